// See memory_limit.h.
#include "runtime/base/memory_limit.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "runtime/base/read_file.h"

namespace lathe::runtime {
namespace {

constexpr size_t kMostText = 4096;  // of a limit

// "max", or nothing readable: none.
int64_t limit_in(const std::string& path) {
  const ir::Result<std::string> text = read_file(path, kMostText);
  uint64_t bytes = 0;
  if (!text.ok() || std::from_chars(text->data(), text->data() + text->size(), bytes).ec != std::errc())
    return INT64_MAX;
  return static_cast<int64_t>(std::min<uint64_t>(bytes, INT64_MAX));
}

// Of a group and of those around it. A container may see itself as the root.
int64_t least_upwards(const std::string& root, std::string_view group, const char* file) {
  int64_t least = INT64_MAX;
  for (;;) {
    while (!group.empty() && group.back() == '/') group.remove_suffix(1);
    least = std::min(least, limit_in(root + std::string(group) + file));
    if (group.empty()) return least;
    const size_t parent = group.rfind('/');
    group = parent == group.npos ? "" : group.substr(0, parent);
  }
}

}  // namespace

// Lines are "ID:CONTROLLERS:GROUP". The unified hierarchy names no controllers; the older one of memory lies in a
// folder of its own.
int64_t control_group_limit(const std::string& root, std::string_view own) {
  int64_t least = INT64_MAX;
  while (!own.empty()) {
    const size_t end = std::min(own.find('\n'), own.size());
    const std::string_view line = own.substr(0, end);
    own.remove_prefix(std::min(end + 1, own.size()));
    const size_t first = line.find(':'), second = line.find(':', first == line.npos ? first : first + 1);
    if (second == line.npos) continue;
    const std::string controllers = "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
    const std::string_view group = line.substr(second + 1);
    if (controllers == ",,") least = std::min(least, least_upwards(root, group, "/memory.max"));
    if (controllers.find(",memory,") != controllers.npos)
      least = std::min(least, least_upwards(root + "/memory", group, "/memory.limit_in_bytes"));
  }
  return least;
}

int64_t memory_limit() {
  const int error = errno;  // the host's
  int64_t least = INT64_MAX;
  if (!__builtin_mul_overflow(int64_t{sysconf(_SC_PHYS_PAGES)}, int64_t{sysconf(_SC_PAGESIZE)}, &least) && least <= 0)
    least = INT64_MAX;
  rlimit own = {};
  if (getrlimit(RLIMIT_AS, &own) == 0 && own.rlim_cur != RLIM_INFINITY)
    least = std::min(least, static_cast<int64_t>(std::min<rlim_t>(own.rlim_cur, INT64_MAX)));
  if (const ir::Result<std::string> groups = read_file("/proc/self/cgroup"); groups.ok())
    least = std::min(least, control_group_limit("/sys/fs/cgroup", *groups));
  errno = error;
  return least;
}

}  // namespace lathe::runtime
