// machine_fields(): what the CPU and sysfs say of this machine, beside what the Target knows. A file
// that is missing (containers) counts as 1 or as nothing: it is the same at the next start.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "jit/host/host_cpu.h"
#include "runtime/store/key.h"

namespace lathe::runtime {
namespace {

std::string read_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// Numbers in a list such as "0-3,8,10-11"; at least 1.
int64_t count_listed(const std::string& list) {
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

}  // namespace

MachineFields machine_fields(const ir::Target& target) {
  MachineFields f;
  const jit::CpuModel cpu = jit::host_model();
  f.cpu_vendor = cpu.vendor;
  f.cpu_family = cpu.family;
  f.cpu_model = cpu.model;
  f.cpu_stepping = cpu.stepping;
  f.core_class = cpu.core_class;
  f.isa = ir::isa_name(target.level);
  f.lanes = target.lanes;
  f.vector_registers = target.vector_registers;
  f.bf16 = target.has(ir::kCpu_avx512bf16);
  f.vnni = target.has(ir::kCpu_avx512vnni);
  f.avx_vnni = target.has(ir::kCpu_avx_vnni);
  f.l1_bytes = target.l1_bytes;
  f.l1_ways = target.l1_ways;
  f.l2_bytes = target.l2_bytes;
  f.l3_bytes = target.l3_bytes;
  const std::string cpu0 = "/sys/devices/system/cpu/cpu0/";
  f.l3_sharing = count_listed(read_line(cpu0 + "cache/index3/shared_cpu_list"));
  f.smt = count_listed(read_line(cpu0 + "topology/thread_siblings_list"));
  f.numa_nodes = count_listed(read_line("/sys/devices/system/node/online"));
  return f;
}

}  // namespace lathe::runtime
