// The machine this process runs on: its CPU features (CPUID and XCR0), caches and cores. Says nothing about speed.
// Emitters never ask it; they ask the Target. Thread-safe.
#pragma once
#include <cstdint>
#include <string>

#include "ir/base/target.h"

namespace lathe::jit {

enum CpuFeature : uint64_t {
#define LATHE_CPU_FEATURE(id, bit, leaf, subleaf, reg, reg_bit, xcr0) kCpu_##id = uint64_t{1} << bit,
#include "jit/host/cpu_features.def"
#undef LATHE_CPU_FEATURE
};

// Every feature of a level: what code generated for it may use.
uint64_t level_features(ir::IsaLevel level);

// Features of the host that the operating system has enabled.
uint64_t host_features();

// The host as a Target, at its highest level.
const ir::Target& host_target();
// For tests: the process takes itself for that machine from here on, at the highest level that both have. Before
// threads ask.
void describe_host(const ir::Target& target);

// "avx2 fma avx512f"; unknown bits as hexadecimal.
std::string feature_names(uint64_t features);

}  // namespace lathe::jit
