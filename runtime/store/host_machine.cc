// machine_fields(): what CPUID and sysfs say of this machine, beside what the Target knows. A file
// that is missing (containers) counts as 1 or as nothing: it is the same at the next start.
#include <cpuid.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "runtime/store/key.h"

namespace lathe::runtime {
namespace {

std::string read_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// CPUs in a list such as "0-3,8,10-11"; at least 1.
int64_t count_cpus(const std::string& list) {
  int64_t n = 0;
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    const std::string item = list.substr(at, end - at);
    const size_t dash = item.find('-');
    const long lo = std::strtol(item.c_str(), nullptr, 10);
    const long hi = dash == std::string::npos ? lo : std::strtol(item.c_str() + dash + 1, nullptr, 10);
    n += std::max(0L, hi - lo + 1);
    at = end + 1;
  }
  return std::max<int64_t>(n, 1);
}

int64_t count_numa_nodes() {
  std::error_code error;
  int64_t n = 0;
  for (const auto& e : std::filesystem::directory_iterator("/sys/devices/system/node", error)) {
    const std::string name = e.path().filename();
    n += name.size() > 4 && name.compare(0, 4, "node") == 0 && name[4] >= '0' && name[4] <= '9';
  }
  return std::max<int64_t>(n, 1);
}

}  // namespace

MachineFields machine_fields(const ir::Target& target) {
  MachineFields f;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0, &a, &b, &c, &d) != 0) {
    char vendor[13] = {};
    std::memcpy(vendor, &b, 4);
    std::memcpy(vendor + 4, &d, 4);
    std::memcpy(vendor + 8, &c, 4);
    f.cpu_vendor = vendor;
  }
  if (__get_cpuid(1, &a, &b, &c, &d) != 0) {
    f.cpu_family = (a >> 8 & 15) + ((a >> 8 & 15) == 15 ? a >> 20 & 255 : 0);
    f.cpu_model = (a >> 4 & 15) | (a >> 16 & 15) << 4;
    f.cpu_stepping = a & 15;
  }
  f.core_class = "core";
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d >> 15 & 1) != 0 &&
      __get_cpuid_count(0x1a, 0, &a, &b, &c, &d) != 0) {
    f.core_class = (a >> 24) == 0x20 ? "efficient" : "performance";  // a hybrid part
  }
  f.isa = ir::isa_name(target.level);
  f.lanes = target.lanes;
  f.vector_registers = target.vector_registers;
  f.bf16 = target.bf16;
  f.vnni = target.vnni;
  f.l1_bytes = target.l1_bytes;
  f.l1_ways = target.l1_ways;
  f.l2_bytes = target.l2_bytes;
  f.l3_bytes = target.l3_bytes;
  const std::string cpu0 = "/sys/devices/system/cpu/cpu0/";
  f.l3_sharing = count_cpus(read_line(cpu0 + "cache/index3/shared_cpu_list"));
  f.smt = count_cpus(read_line(cpu0 + "topology/thread_siblings_list"));
  f.numa_nodes = count_numa_nodes();
  return f;
}

}  // namespace lathe::runtime
