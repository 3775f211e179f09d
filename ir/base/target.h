// What a kernel is generated for: a set of CPU features, a register file, caches. Emitters ask only the Target, never
// the machine; jit/host/host_cpu fills one in for the host, cap() and without() take features away for LATHE_MAX_ISA
// and for tests. A plain value.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lathe::ir {

// Bits of a set of features.
enum CpuFeature : uint64_t {
#define LATHE_CPU_FEATURE(id, bit, leaf, subleaf, reg, reg_bit, xcr0) kCpu_##id = uint64_t{1} << bit,
#include "ir/base/cpu_features.def"
#undef LATHE_CPU_FEATURE
};

// The rows of targets.def: names for bundles of features. They have no order; what code may use is asked by has().
enum class IsaLevel : uint8_t {
#define LATHE_TARGET(id, base, features, vectors, bytes, registers, masks) id,
#define LATHE_TARGET_EXTRA(word, base, feature)
#include "ir/base/targets.def"
};
bool operator<(IsaLevel, IsaLevel) = delete;
bool operator>(IsaLevel, IsaLevel) = delete;
bool operator<=(IsaLevel, IsaLevel) = delete;
bool operator>=(IsaLevel, IsaLevel) = delete;

struct IsaRow {
  const char* name;
  uint64_t features;  // with those of its base
  IsaLevel vectors;
  int vector_bytes, vector_registers, mask_registers;
};
inline constexpr int kIsaLevels = 0
#define LATHE_TARGET(id, base, features, vectors, bytes, registers, masks) +1
#define LATHE_TARGET_EXTRA(word, base, feature)
#include "ir/base/targets.def"
    ;
const IsaRow& isa_row(IsaLevel level);
inline uint64_t isa_features(IsaLevel level) { return isa_row(level).features; }
inline const char* isa_name(IsaLevel level) { return isa_row(level).name; }  // "portable", "avx2", ...
std::optional<IsaLevel> parse_isa(std::string_view name);
// The extra features that come with these.
uint64_t extras_with(uint64_t features);
// Whether some row has vector registers of as many bytes.
bool is_vector_bytes(int64_t bytes);

struct Target {
  IsaLevel level = IsaLevel::portable;
  uint64_t extra = 0;  // features beside those of the level
  int lanes = 8;       // 32-bit lanes of a vector register
  int vector_registers = 16;
  int mask_registers = 0;  // AVX-512: 7 usable
  int64_t l1_bytes = 32 << 10, l2_bytes = 1 << 20, l3_bytes = 16 << 20;
  int l1_ways = 8;
  int cores = 1;
  // Bytes a cycle from memory to one core, about: fast is a core of a desktop or of AMD's, slow one on Intel's mesh.
  static constexpr int kFastMemory = 12, kSlowMemory = 4;
  int memory_rate = kFastMemory;
  bool slow_memory() const { return memory_rate <= kSlowMemory; }
  // Whether a product of pairs of bf16 (vdpbf16ps) takes longer than the two multiply-adds that it stands for: on
  // Intel's cores as long as kSlowPair of them. Of those that have it the servers are known by their memory.
  static constexpr double kSlowPair = 4;
  bool slow_pairs() const { return slow_memory(); }
  // Bytes of a vector register that a pipe works on in a cycle.
  int pipe_bytes = 64;
  // Cycles that an operation keeps a pipe: 2 where a vector is worked on in two halves.
  int halves() const { return std::max(1, vector_bytes() / pipe_bytes); }
  // Whether the core's prefetcher alone brings a stream from memory as fast as it comes. Where arithmetic waits for the
  // stream, instructions that prefetch to L1 then cost, as few lines are on their way there at once.
  bool prefetches_alone = false;
  // The level of the cache that rows and products prefetch to.
  int prefetched_cache() const { return prefetches_alone ? 2 : 1; }

  uint64_t features() const { return isa_features(level) | extra; }
  bool has(uint64_t wanted) const { return (wanted & ~features()) == 0; }
  // Whether code of that level runs on it.
  bool has(IsaLevel wanted) const { return has(isa_features(wanted)); }
  int vector_bytes() const { return lanes * 4; }

  // The level, the extra features and the register file of a machine with these features; caches and cores stay.
  Target with(uint64_t features) const;
  // The same machine without these features, and without what comes with them only.
  Target without(uint64_t features) const { return with(this->features() & ~features); }
  // The same machine with no feature that a machine of that level may not have.
  Target cap(IsaLevel level) const;
  std::string to_string() const;  // "avx512 lanes 16 registers 32 ..."
};
// The register file of a level and its features, and no others; caches and cores as of a default Target.
Target bare_target(IsaLevel level);

}  // namespace lathe::ir
