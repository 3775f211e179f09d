// The machine this process runs on: its CPU features (CPUID and XCR0), caches and cores. Says nothing about speed.
// Emitters never ask it; they ask the Target. Thread-safe.
#pragma once
#include <cstdint>
#include <string>

#include "ir/base/target.h"

namespace lathe::jit {

using enum ir::CpuFeature;

// The architecture that this library makes code for: in the identity of stored code; its number in ELF files.
inline constexpr char kArch[] = "x86-64";
inline constexpr int kElfMachine = 62;

// Features of the host that the operating system has enabled, and lent to this process where it has to ask.
uint64_t host_features();
// Those that stay of enabled ones: it asks for tiles only if there are any.
uint64_t lent_features(uint64_t enabled, bool (*may_use_tiles)());

// The host as a Target, with every feature that some level may use.
const ir::Target& host_target();
// For tests: the process takes itself for that machine from here on, with the features that both
// have. Before threads ask.
void describe_host(const ir::Target& target);

// The model of CPU, as its maker numbers it.
struct CpuModel {
  std::string vendor;
  int64_t family = 0, model = 0, stepping = 0;
  std::string core_class = "core";  // of hybrid parts: performance, efficient
};
CpuModel host_model();

// "avx2 fma avx512f"; unknown bits as hexadecimal.
std::string feature_names(uint64_t features);

}  // namespace lathe::jit
