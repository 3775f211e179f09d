// See machine_profile.h. The loops are compiled for their level by attribute and called only where
// the host has it; GCC's vector extensions keep them readable, and an empty asm keeps every
// accumulator alive and in its register.
#include "runtime/measure/machine_profile.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "jit/host/host_cpu.h"
#include "runtime/base/clock.h"

namespace lathe::runtime {
namespace {

double seconds() { return static_cast<double>(now_ns()) * 1e-9; }

typedef float F4 __attribute__((vector_size(16)));
typedef float F8 __attribute__((vector_size(32)));
typedef float F16 __attribute__((vector_size(64)));
typedef int64_t I2 __attribute__((vector_size(16), aligned(16)));
typedef int64_t I4 __attribute__((vector_size(32), aligned(32)));
typedef int64_t I8 __attribute__((vector_size(64), aligned(64)));

constexpr int kChains = 12;  // more than latency times issue width of any core so far
constexpr double kFmaRun = 0.5e-3;

// kChains independent chains, `steps` multiply-adds each; named one by one, so that each is a
// register.
#define LATHE_EACH_CHAIN(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11)
#define LATHE_CHAIN_START(n) auto a##n = x * static_cast<float>(n);
#define LATHE_CHAIN_STEP(n) a##n = a##n * x + y;
#define LATHE_CHAIN_KEEP_V(n) asm volatile("" : "+v"(a##n));
#define LATHE_CHAIN_KEEP_X(n) asm volatile("" : "+x"(a##n));
#define LATHE_FMA_LOOP(name, type, isa, keep)             \
  __attribute__((target(isa))) void name(int64_t steps) { \
    const type x = type{} + 0.999f, y = type{} + 0.001f;  \
    LATHE_EACH_CHAIN(LATHE_CHAIN_START)                   \
    for (int64_t s = 0; s < steps; ++s) {                 \
      LATHE_EACH_CHAIN(LATHE_CHAIN_STEP)                  \
      LATHE_EACH_CHAIN(keep)                              \
    }                                                     \
  }
LATHE_FMA_LOOP(fma_512, F16, "avx512f", LATHE_CHAIN_KEEP_V)
LATHE_FMA_LOOP(fma_256, F8, "avx2,fma", LATHE_CHAIN_KEEP_X)
LATHE_FMA_LOOP(fma_128, F4, "sse2", LATHE_CHAIN_KEEP_X)
#undef LATHE_FMA_LOOP

double best_gflops(void (*loop)(int64_t), int lanes) {
  int64_t steps = 1024;
  double best = 0;
  for (int runs = 0; runs < 6;) {
    const double start = seconds();
    loop(steps);
    const double time = seconds() - start;
    if (time < kFmaRun && steps < int64_t{1} << 40) {
      steps *= 2;
      continue;
    }
    best = std::max(best, 2.0 * kChains * lanes * static_cast<double>(steps) / time * 1e-9);
    ++runs;
  }
  return best;
}

// Reads `lines` cache lines in `streams` equal parts side by side.
#define LATHE_READ_LOOP(name, type, isa, constraint)                                           \
  __attribute__((target(isa))) void name(const char* data, int64_t lines, int streams) {       \
    constexpr int kPerLine = 64 / sizeof(type);                                                \
    type a[4] = {};                                                                            \
    const int64_t part = lines / streams;                                                      \
    for (int64_t i = 0; i + 4 <= part; i += 4) {                                               \
      for (int s = 0; s < streams; ++s) {                                                      \
        const type* p = reinterpret_cast<const type*>(data + (s * part + i) * 64);             \
        _Pragma("GCC unroll 16") for (int k = 0; k < 4 * kPerLine; ++k) { a[k & 3] ^= p[k]; }  \
      }                                                                                        \
    }                                                                                          \
    asm volatile("" : constraint(a[0]), constraint(a[1]), constraint(a[2]), constraint(a[3])); \
  }
LATHE_READ_LOOP(read_512, I8, "avx512f", "+v")
LATHE_READ_LOOP(read_256, I4, "avx2", "+x")
LATHE_READ_LOOP(read_128, I2, "sse2", "+x")
#undef LATHE_READ_LOOP

#define LATHE_COPY_LOOP(name, type, isa)                                              \
  __attribute__((target(isa))) void name(char* to, const char* from, int64_t lines) { \
    constexpr int kPerLine = 64 / sizeof(type);                                       \
    for (int64_t i = 0; i < lines; i += 2) {                                          \
      const type* p = reinterpret_cast<const type*>(from + i * 64);                   \
      type* q = reinterpret_cast<type*>(to + i * 64);                                 \
      _Pragma("GCC unroll 8") for (int k = 0; k < 2 * kPerLine; ++k) q[k] = p[k];     \
      asm volatile("" ::: "memory");                                                  \
    }                                                                                 \
  }
LATHE_COPY_LOOP(copy_512, I8, "avx512f")
LATHE_COPY_LOOP(copy_256, I4, "avx2")
LATHE_COPY_LOOP(copy_128, I2, "sse2")
#undef LATHE_COPY_LOOP

bool has(ir::IsaLevel level) { return jit::host_target().level >= level; }

// Bytes per second of the best pass: passes are grouped so that the clock sees at least 20
// microseconds.
template <class F>
double best_rate(int64_t bytes, F&& pass) {
  const int64_t group = std::max<int64_t>(1, (int64_t{1} << 20) / std::max<int64_t>(bytes, 1));
  pass();
  double best = 0, total = 0;
  for (int n = 0; n < 3 || total < 1e-3; ++n) {
    const double start = seconds();
    for (int64_t g = 0; g < group; ++g) pass();
    const double time = std::max(seconds() - start, 1e-9);
    total += time;
    best = std::max(best, static_cast<double>(bytes * group) / time);
  }
  return best;
}

std::string& described() {
  static std::string text;
  return text;
}

}  // namespace

struct MachineProbe::Buffer {
  char* data = nullptr;
  int64_t bytes = 0;
  ~Buffer() {
    if (data) munmap(data, static_cast<size_t>(bytes));
  }
};

MachineProbe::MachineProbe() : buffer_(std::make_unique<Buffer>()) {}
MachineProbe::~MachineProbe() = default;

char* MachineProbe::buffer(int64_t bytes) {
  if (buffer_->bytes >= bytes) return buffer_->data;
  buffer_ = std::make_unique<Buffer>();
  void* p = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  buffer_->data = static_cast<char*>(p);
  buffer_->bytes = bytes;
  std::memset(p, 1, static_cast<size_t>(bytes));
  return buffer_->data;
}

double MachineProbe::fma_peak_gflops(ir::IsaLevel level) {
  if (level != ir::IsaLevel::portable && !has(level)) return 0;
  if (level == ir::IsaLevel::portable) {
    // Two operations in two instructions: half the chains' multiply-adds per cycle are what this
    // level can do.
    return best_gflops(fma_128, 4);
  }
  double best = best_gflops(fma_256, 8);
  if (level >= ir::IsaLevel::avx512) best = std::max(best, best_gflops(fma_512, 16));
  return best;
}

double MachineProbe::read_gbs(int64_t bytes) {
  const int64_t lines = std::max<int64_t>(bytes / 64 / 16 * 16, 16);
  const char* data = buffer(lines * 64);
  if (!data) return 0;
  const auto loop = has(ir::IsaLevel::avx512) ? read_512 : has(ir::IsaLevel::avx2) ? read_256 : read_128;
  double best = 0;
  for (const int streams : {1, 4}) best = std::max(best, best_rate(lines * 64, [&] { loop(data, lines, streams); }));
  return best * 1e-9;
}

double MachineProbe::copy_gbs(int64_t bytes) {
  const int64_t lines = std::max<int64_t>(bytes / 128 / 2 * 2, 2);
  char* data = buffer(lines * 128);
  if (!data) return 0;
  const auto loop = has(ir::IsaLevel::avx512) ? copy_512 : has(ir::IsaLevel::avx2) ? copy_256 : copy_128;
  return best_rate(lines * 64, [&] { loop(data + lines * 64, data, lines); }) * 1e-9;
}

double MachineProfile::get(std::string_view name) const {
  for (const auto& [key, value] : values) {
    if (key == name) return value;
  }
  return 0;
}

MachineProfile measure_profile(MachineProbe& probe, const ir::Target& target) {
  MachineProfile out;
  for (const ir::IsaLevel level : {ir::IsaLevel::portable, ir::IsaLevel::avx2, ir::IsaLevel::avx512}) {
    if (level > target.level) continue;
    out.values.emplace_back(fmt::format("fma_{}", ir::isa_name(level)), probe.fma_peak_gflops(level));
  }
  const std::pair<const char*, int64_t> footprints[] = {
      {"memory", std::max<int64_t>(2 * target.l3_bytes, int64_t{64} << 20)},
      {"l3", target.l3_bytes / 4},
      {"l2", target.l2_bytes / 2},
      {"l1", target.l1_bytes / 2}};
  for (const auto& [name, bytes] : footprints) {
    out.values.emplace_back(fmt::format("read_{}", name), probe.read_gbs(bytes));
    out.values.emplace_back(fmt::format("copy_{}", name), probe.copy_gbs(bytes));
  }
  out.values.emplace_back("call_ns", leaf_call_ns());
  if (target.cores > 1) {
    const TeamCost team = team_cost(std::min(target.cores, 8));
    out.values.emplace_back("barrier_ns", team.barrier_ns);
    out.values.emplace_back("task_ns", team.task_ns);
  }
  std::erase_if(out.values, [](const auto& v) { return !(v.second > 0); });  // what could not be measured
  return out;
}

void describe_machine(const ir::Target& target, const MachineProfile& profile) {
  jit::describe_host(target);
  described() = to_text(profile);
}
const std::string& described_profile() { return described(); }

std::string to_text(const MachineProfile& profile) {
  std::string out;
  for (const auto& [name, value] : profile.values) out += fmt::format("{} {:.4g}\n", name, value);
  return out;
}

ir::Result<MachineProfile> parse_profile(std::string_view text) {
  MachineProfile out;
  int number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.empty()) continue;
    const size_t space = line.find(' ');
    double value = 0;
    const char* last = line.data() + line.size();
    if (space != std::string_view::npos && space > 0) {
      const auto [rest, error] = std::from_chars(line.data() + space + 1, last, value);
      if (error != std::errc{} || rest != last) value = -1;
    }
    if (!(value > 0) || value > 1e12) return ir::invalid("line {}: expected a name and a positive number", number);
    out.values.emplace_back(std::string(line.substr(0, space)), value);
  }
  return out;
}

}  // namespace lathe::runtime
