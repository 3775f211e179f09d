// See host_cpu.h. Cache sizes come from CPUID (leaf 4 of Intel, 0x8000001D of AMD), the core count from the affinity
// mask and the cgroup's CPU quota.
#include "jit/host/host_cpu.h"

#include <cpuid.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace lathe::jit {
namespace {

struct Cpuid {
  uint32_t reg[4] = {};  // eax, ebx, ecx, edx
  Cpuid(uint32_t leaf, uint32_t subleaf) {
    if (__get_cpuid_max(leaf & 0x80000000u, nullptr) >= leaf)
      __cpuid_count(leaf, subleaf, reg[0], reg[1], reg[2], reg[3]);
  }
};

uint64_t read_xcr0() {
  if (!((Cpuid(1, 0).reg[2] >> 27) & 1)) return 0;  // OSXSAVE
  uint32_t lo = 0, hi = 0;
  __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
  return (uint64_t{hi} << 32) | lo;
}

// Linux lends the registers of tiles to processes that ask for them, once; a signal stack too small for them, or a
// kernel that knows none, refuses.
bool may_use_tiles() {
  constexpr long kAskForState = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
  return syscall(SYS_arch_prctl, kAskForState, kTileData) == 0;
}

uint64_t detect_features() {
  const uint64_t xcr0 = read_xcr0();
  uint64_t found = 0;
#define LATHE_CPU_FEATURE(id, bit, leaf, subleaf, register_, register_bit, xcr0_bits)                     \
  if (((Cpuid(leaf, subleaf).reg[register_] >> register_bit) & 1) && (xcr0 & (xcr0_bits)) == (xcr0_bits)) \
    found |= kCpu_##id;
#include "ir/base/cpu_features.def"
#undef LATHE_CPU_FEATURE
  return lent_features(found, may_use_tiles);
}

std::string vendor_name() {
  const Cpuid vendor(0, 0);
  char name[13] = {};
  std::memcpy(name, &vendor.reg[1], 4);
  std::memcpy(name + 4, &vendor.reg[3], 4);
  std::memcpy(name + 8, &vendor.reg[2], 4);
  return name;
}

void detect_caches(ir::Target& target) {
  const std::string vendor = vendor_name();
  const bool amd = vendor == "AuthenticAMD" || vendor == "HygonGenuine";
  for (uint32_t i = 0; i < 16; ++i) {
    const Cpuid c(amd ? 0x8000001du : 4u, i);
    const uint32_t type = c.reg[0] & 31;
    if (type == 0) break;
    if (type == 2) continue;  // instructions
    const int64_t ways = (c.reg[1] >> 22) + 1;
    const int64_t line = (c.reg[1] & 0xfff) + 1;
    const int64_t partitions = ((c.reg[1] >> 12) & 0x3ff) + 1;
    const int64_t bytes = ways * partitions * line * (int64_t{c.reg[2]} + 1);
    switch ((c.reg[0] >> 5) & 7) {
      case 1:
        target.l1_bytes = bytes;
        target.l1_ways = static_cast<int>(ways);
        break;
      case 2:
        target.l2_bytes = bytes;
        break;
      case 3:
        target.l3_bytes = bytes;
        break;
      default:
        break;
    }
  }
}

// Intel's servers: a core's requests cross the mesh. A desktop part has no such L2, or no AVX-512.
int memory_rate(const ir::Target& target) {
  const bool server =
      vendor_name() == "GenuineIntel" && target.has(ir::IsaLevel::avx512) && target.l2_bytes >= int64_t{1} << 20;
  return server ? ir::Target::kSlowMemory : ir::Target::kFastMemory;
}

// AMD says whether pipes are 64 bytes wide (FP512). That the prefetcher keeps up with memory was measured on Zen 4
// (family 0x19, which Zen 3 shares), that it does not on Zen 5 (0x1A).
void detect_amd(ir::Target& target) {
  const std::string vendor = vendor_name();
  if (vendor != "AuthenticAMD" && vendor != "HygonGenuine") return;
  constexpr uint32_t kZen4 = 0x19;
  const uint32_t version = Cpuid(1, 0).reg[0], family = ((version >> 8) & 15) + ((version >> 20) & 255);
  target.pipe_bytes = ((Cpuid(0x8000001au, 0).reg[0] >> 3) & 1) != 0 ? 64 : 32;
  target.prefetches_alone = family == kZen4;
}

// CPUs the cgroup's quota grants, rounded up; 0 when there is none.
int quota_cores() {
  std::FILE* file = std::fopen("/sys/fs/cgroup/cpu.max", "re");
  if (!file) return 0;
  long quota = 0, period = 0;
  const int fields = std::fscanf(file, "%ld %ld", &quota, &period);  // "max 100000" reads no field
  std::fclose(file);
  return fields == 2 && quota > 0 && period > 0 ? static_cast<int>((quota + period - 1) / period) : 0;
}

int detect_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  if (const int quota = quota_cores()) cores = std::min(cores, quota);
  return std::max(cores, 1);
}

ir::Target detect_target() {
  ir::Target target = ir::Target().with(host_features());
  detect_caches(target);
  target.cores = detect_cores();
  target.memory_rate = memory_rate(target);
  detect_amd(target);
  return target;
}

}  // namespace

uint64_t lent_features(uint64_t enabled, bool (*may_use_tiles)()) {
  constexpr uint64_t kTiles = kCpu_amx_tile | kCpu_amx_int8 | kCpu_amx_bf16;
  return (enabled & kTiles) != 0 && !may_use_tiles() ? enabled & ~kTiles : enabled;
}

uint64_t host_features() {
  static const uint64_t features = detect_features();
  return features;
}

namespace {
ir::Target& host() {
  static ir::Target target = detect_target();
  return target;
}
}  // namespace

const ir::Target& host_target() { return host(); }
void describe_host(const ir::Target& target) { host() = target.without(~host().features()); }

CpuModel host_model() {
  CpuModel out;
  out.vendor = vendor_name();
  const uint32_t a = Cpuid(1, 0).reg[0];
  out.family = (a >> 8 & 15) + ((a >> 8 & 15) == 15 ? a >> 20 & 255 : 0);
  out.model = (a >> 4 & 15) | (a >> 16 & 15) << 4;
  out.stepping = a & 15;
  const bool hybrid = (Cpuid(7, 0).reg[3] >> 15 & 1) != 0;
  const uint32_t core = hybrid ? Cpuid(0x1a, 0).reg[0] : 0;
  if (core != 0) out.core_class = core >> 24 == 0x20 ? "efficient" : "performance";
  return out;
}

std::string feature_names(uint64_t features) {
  std::string names;
  const auto append = [&names](const std::string& name) { names += (names.empty() ? "" : " ") + name; };
#define LATHE_CPU_FEATURE(id, bit, leaf, subleaf, register_, register_bit, xcr0_bits) \
  if (features & kCpu_##id) append(#id);                                              \
  features &= ~uint64_t{kCpu_##id};
#include "ir/base/cpu_features.def"
#undef LATHE_CPU_FEATURE
  if (features) append(fmt::format("{:#x}", features));
  return names;
}

}  // namespace lathe::jit
