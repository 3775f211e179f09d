// See machine_profile.h. The loops are those of jit/host/machine_loops.h.
#include "runtime/measure/machine_profile.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>

#include "jit/host/host_cpu.h"
#include "jit/host/machine_loops.h"
#include "runtime/base/clock.h"
#include "runtime/base/large_pages.h"
#include "runtime/walk/threads.h"

namespace lathe::runtime {
namespace {

double seconds() { return static_cast<double>(now_ns()) * 1e-9; }

constexpr double kPeakRun = 0.5e-3;

// `operations`: of one of the steps that it is told to run.
template <class Run>
double best_gflops(double operations, Run&& run) {
  int64_t steps = 1024;
  double best = 0;
  for (int runs = 0; runs < 6;) {
    const double start = seconds();
    run(steps);
    const double time = seconds() - start;
    if (time < kPeakRun && steps < int64_t{1} << 40) {
      steps *= 2;
      continue;
    }
    best = std::max(best, operations * static_cast<double>(steps) / time * 1e-9);
    ++runs;
  }
  return best;
}

// Those of the widest vectors that the host has.
const jit::MachineLoops& widest() {
  const jit::MachineLoops* out = nullptr;
  for (const jit::MachineLoops& l : jit::machine_loops()) out = jit::host_target().has(l.level) ? &l : out;
  return *out;
}

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

// One call for each of the threads, all at once; without a team one after the other.
template <class F>
void on_each(ThreadTeam* team, int threads, F&& f) {
  if (team != nullptr) return team->parallel_for(threads, f);
  for (int i = 0; i < threads; ++i) f(i);
}

// The best of f32's multiply-adds and of what the target has for such factors. rate: of a loop, in GFLOP/s.
template <class Rate>
PeakProbe best_of(double fma, ir::DType factors, const ir::Target& target, bool tiles, Rate&& rate) {
  PeakProbe best;
  best.gflops = fma;
  for (const jit::DotLoop& l : jit::dot_loops()) {
    if (l.factors != factors || !target.has(l.features) || (l.instructions == 0 && !tiles)) continue;
    const double gflops = rate(l);
    if (gflops > best.gflops) best = {gflops, factors, l.instruction, l.instructions};
  }
  return best;
}

// 0: not on this host.
double rate_of(const jit::DotLoop& loop) {
  return jit::host_target().has(loop.features) ? best_gflops(static_cast<double>(loop.operations), loop.run) : 0;
}

std::string& described() {
  static std::string text;
  return text;
}

}  // namespace

int64_t cold_bytes(const ir::Target& target) {
  return std::clamp(int64_t{1} << 30, 2 * target.l3_bytes, 8 * target.l3_bytes);
}

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
  ask_for_large_pages(p, static_cast<size_t>(bytes));
  buffer_->data = static_cast<char*>(p);
  buffer_->bytes = bytes;
  std::memset(p, 1, static_cast<size_t>(bytes));
  return buffer_->data;
}

double MachineProbe::fma_peak_gflops(ir::IsaLevel level) {
  if (!jit::host_target().has(level)) return 0;
  // The portable ones multiply, then add: half the chains' operations per cycle are what that level can do.
  const bool portable = level == ir::IsaLevel::portable;
  double best = 0;
  for (const jit::MachineLoops& l : jit::machine_loops()) {
    if (ir::bare_target(level).has(l.level) && (l.level == ir::IsaLevel::portable) == portable)
      best = std::max(best, best_gflops(2.0 * jit::kFmaChains * l.lanes, l.fma));
  }
  return best;
}

PeakProbe MachineProbe::peak(ir::DType factors, const ir::Target& target, bool tiles) {
  return best_of(fma_peak_gflops(target.level), factors, target, tiles, rate_of);
}

double MachineProbe::read_gbs(int64_t bytes, ThreadTeam* team, int threads, int slices) {
  const int64_t lines = std::max<int64_t>(bytes / 64 / threads / slices / 16 * 16, 16);  // of a thread and slice
  const char* data = buffer(threads * slices * lines * 64);
  if (!data) return 0;
  const auto loop = widest().read;
  double best = 0;
  for (const int streams : {1, 4}) {
    const auto pass = [&] {
      const int64_t slice = next_slice(slices);
      on_each(team, threads, [&](int i) { loop(data + (i * slices + slice) * lines * 64, lines, streams); });
    };
    best = std::max(best, best_rate(threads * lines * 64, pass));
  }
  return best * 1e-9;
}

double MachineProbe::copy_gbs(int64_t bytes, ThreadTeam* team, int threads, int slices) {
  const int64_t lines = std::max<int64_t>(bytes / 128 / threads / slices / 2 * 2, 2);  // of a half of a slice
  char* data = buffer(2 * threads * slices * lines * 64);
  if (!data) return 0;
  const auto loop = widest().copy;
  const auto pass = [&] {
    const int64_t slice = next_slice(slices);
    on_each(team, threads, [&](int i) {
      char* from = data + 2 * (i * slices + slice) * lines * 64;
      loop(from + lines * 64, from, lines);
    });
  };
  return best_rate(threads * lines * 64, pass) * 1e-9;
}

std::string peak_name(const ir::Target& target) {
  return fmt::format("fma_{}", ir::isa_name(ir::isa_row(target.level).vectors));
}

double MachineProfile::get(std::string_view name) const {
  for (const auto& [key, value] : values) {
    if (key == name) return value;
  }
  return 0;
}

PeakProbe MachineProfile::peak(ir::DType factors, const ir::Target& target, bool tiles) const {
  bool known = true;
  PeakProbe best = best_of(get(peak_name(target)), factors, target, tiles, [&](const jit::DotLoop& l) {
    const double gflops = get(l.instruction);
    known &= gflops > 0;
    return gflops;
  });
  if (!known) best.gflops = 0;
  return best;
}

MachineProfile measure_profile(MachineProbe& probe, const ir::Target& target) {
  MachineProfile out;
  for (const jit::MachineLoops& l : jit::machine_loops()) {
    if (target.has(l.level)) {
      out.values.emplace_back(fmt::format("fma_{}", ir::isa_name(l.level)), probe.fma_peak_gflops(l.level));
    }
  }
  std::map<std::string, double> dots;  // of those of one name the fastest
  for (const jit::DotLoop& l : jit::dot_loops()) {
    if (target.has(l.features)) dots[l.instruction] = std::max(dots[l.instruction], rate_of(l));
  }
  out.values.insert(out.values.end(), dots.begin(), dots.end());
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
