// Which machine a test means: four described as data (machines.def), each whole or without features, and the one that
// this run takes itself for, named by the environment variable LATHE_TEST_MACHINE. Only tests read it;
// tests/runtime/measure/machine_test.cc hands it to the library.
#pragma once
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/base/target.h"

namespace lathe::test {

struct Machine {
  std::string name, what;
  ir::Target target;
  std::vector<std::pair<std::string, double>> rates;  // by the names of a machine profile
};

inline Machine make_machine(const char* name, const char* what, ir::IsaLevel level, bool bf16, bool vnni, bool avx_vnni,
                            int cores, int64_t l1_kb, int l1_ways, int64_t l2_kb, int64_t l3_mb, int memory_rate,
                            int pipe_bytes, bool prefetches_alone, const std::vector<double>& rates) {
  Machine m{name, what, {}, {}};
  m.target = ir::bare_target(level);
  if (bf16) m.target.extra |= ir::kCpu_avx512bf16;
  if (vnni) m.target.extra |= ir::kCpu_avx512vnni;
  if (avx_vnni) m.target.extra |= ir::kCpu_avx_vnni;
  m.target.cores = cores;
  m.target.l1_bytes = l1_kb << 10;
  m.target.l1_ways = l1_ways;
  m.target.l2_bytes = l2_kb << 10;
  m.target.l3_bytes = l3_mb << 20;
  m.target.memory_rate = memory_rate;
  m.target.pipe_bytes = pipe_bytes;
  m.target.prefetches_alone = prefetches_alone;
  static constexpr const char* kRates[] = {"fma_portable", "fma_avx2",    "fma_avx512", "read_l1",  "read_l2",
                                           "read_l3",      "read_memory", "copy_l1",    "copy_l2",  "copy_l3",
                                           "copy_memory",  "call_ns",     "barrier_ns", "task_ns",  "vpmaddubsw",
                                           "vpdpbusd",     "vdpbf16ps",   "tdpbusd",    "tdpbf16ps"};
  for (size_t i = 0; i < rates.size(); ++i) m.rates.emplace_back(kRates[i], rates[i]);
  return m;
}

inline const std::vector<Machine>& machines() {
  static const std::vector<Machine> all = {
#define LATHE_MACHINE(name, what, level, bf16, vnni, avx_vnni, cores, l1_kb, l1_ways, l2_kb, l3_mb, memory, pipes,  \
                      alone, ...)                                                                                   \
  make_machine(#name, what, ir::IsaLevel::level, bf16, vnni, avx_vnni, cores, l1_kb, l1_ways, l2_kb, l3_mb, memory, \
               pipes, alone, {__VA_ARGS__}),
#include "tests/common/machines.def"
  };
  return all;
}

// The feature of that name in cpu_features.def; 0: none.
inline uint64_t feature_of(std::string_view name) {
  uint64_t out = 0;
#define LATHE_CPU_FEATURE(id, ...) \
  if (name == #id) out = ir::kCpu_##id;
#include "ir/base/cpu_features.def"
#undef LATHE_CPU_FEATURE
  return out;
}

// By its name, or by a name and features that it is taken to lack: "zen5-avx512bf16".
inline const Machine* find_machine(std::string_view name) {
  for (const Machine& m : machines()) {
    if (m.name == name) return &m;
  }
  static std::map<std::string, Machine, std::less<>> reduced;
  const auto known = reduced.find(name);
  if (known != reduced.end()) return &known->second;
  const size_t dash = name.rfind('-');
  if (dash == std::string_view::npos) return nullptr;
  const Machine* whole = find_machine(name.substr(0, dash));
  const uint64_t feature = feature_of(name.substr(dash + 1));
  if (whole == nullptr || feature == 0) return nullptr;
  Machine m = *whole;
  m.name = name;
  m.target = m.target.without(feature);
  return &reduced.emplace(m.name, std::move(m)).first->second;
}

// The name that this run was given; empty: the host, as it is.
inline std::string machine_wanted() {
  const char* name = std::getenv("LATHE_TEST_MACHINE");
  return name == nullptr ? "" : name;
}

// What tests of schedules alone run as, whatever CPU is below: Zen 5 where the run was given no name.
inline const Machine& this_machine() {
  const Machine* wanted = find_machine(machine_wanted());
  return wanted != nullptr ? *wanted : *find_machine("zen5");
}

}  // namespace lathe::test
