// See read_file.h.
#include "runtime/base/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <regex>

namespace lathe::runtime {
namespace {

ir::Status system_error(const std::string& path) {
  const int error = errno;
  return ir::make_error_impl(ir::Code::kIO, fmt::format("{}: cannot be read: {}", path, std::strerror(error)), {}, -1,
                             error);
}

struct Fd {
  int fd;
  ~Fd() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

ir::Result<std::string> read_file(const std::string& path, size_t max_bytes) {
  // Without O_NONBLOCK a FIFO would wait for its writer.
  const Fd file{open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)};
  struct stat s;
  if (file.fd < 0 || fstat(file.fd, &s) != 0) return system_error(path);
  if (!S_ISREG(s.st_mode))
    return ir::invalid("{}: {}, expected a regular file", path,
                       S_ISDIR(s.st_mode) ? "is a directory" : "is a device, a pipe or a socket");
  std::string text;
  char chunk[65536];
  for (;;) {
    const ssize_t n = read(file.fd, chunk, sizeof(chunk));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error(path);
    if (n == 0) return text;
    text.append(chunk, static_cast<size_t>(n));
    if (text.size() > max_bytes) return ir::invalid("{}: has more than {} bytes", path, max_bytes);
  }
}

ir::Status in_file(const std::string& path, const ir::Status& status) {
  static const std::regex kLine(R"(^line (\d+)(, column (\d+))?(: )?)");
  const bool by_arg = status.arg().rfind("line ", 0) == 0;
  const std::string& text = by_arg ? status.arg() : status.message();
  std::smatch m;
  if (!std::regex_search(text, m, kLine)) return status.with_context(path);
  const std::string where = fmt::format("{}:{}{}{}", path, m[1].str(), m[3].matched ? ":" : "", m[3].str());
  std::string rest = m.suffix();
  if (by_arg) rest += (rest.empty() ? "" : ": ") + status.message();
  return ir::make_error_impl(status.code(), rest, where, status.arg_index(), status.os_errno());
}

}  // namespace lathe::runtime
