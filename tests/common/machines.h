// Which machine a test means: four described as data (machines.def), and the one that this run takes itself for, named
// by the environment variable LATHE_TEST_MACHINE. Only tests read it; tests/runtime/measure/machine_test.cc hands it
// to the library.
#pragma once
#include <cstdlib>
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

inline Machine make_machine(const char* name, const char* what, ir::IsaLevel level, bool bf16, bool vnni, int cores,
                            int64_t l1_kb, int l1_ways, int64_t l2_kb, int64_t l3_mb,
                            const std::vector<double>& rates) {
  Machine m{name, what, {}, {}};
  m.target.level = level;
  if (level >= ir::IsaLevel::avx512) {
    m.target.lanes = 16;
    m.target.vector_registers = 32;
    m.target.mask_registers = 7;
  }
  m.target.bf16 = bf16;
  m.target.vnni = vnni;
  m.target.cores = cores;
  m.target.l1_bytes = l1_kb << 10;
  m.target.l1_ways = l1_ways;
  m.target.l2_bytes = l2_kb << 10;
  m.target.l3_bytes = l3_mb << 20;
  static constexpr const char* kRates[] = {"fma_portable", "fma_avx2",    "fma_avx512", "read_l1", "read_l2",
                                           "read_l3",      "read_memory", "copy_l1",    "copy_l2", "copy_l3",
                                           "copy_memory",  "call_ns",     "barrier_ns", "task_ns"};
  for (size_t i = 0; i < rates.size(); ++i) m.rates.emplace_back(kRates[i], rates[i]);
  return m;
}

inline const std::vector<Machine>& machines() {
  static const std::vector<Machine> all = {
#define LATHE_MACHINE(name, what, level, bf16, vnni, cores, l1_kb, l1_ways, l2_kb, l3_mb, ...) \
  make_machine(#name, what, ir::IsaLevel::level, bf16, vnni, cores, l1_kb, l1_ways, l2_kb, l3_mb, {__VA_ARGS__}),
#include "tests/common/machines.def"
  };
  return all;
}

inline const Machine* find_machine(std::string_view name) {
  for (const Machine& m : machines()) {
    if (m.name == name) return &m;
  }
  return nullptr;
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
