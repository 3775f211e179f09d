// See bench.h.
#include "runtime/bench/bench.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "runtime/base/clock.h"
#include "runtime/bench/bench_memory.h"
#include "runtime/bench/bench_operands.h"
#include "runtime/compile/arithmetic.h"
#include "runtime/measure/machine_profile.h"
#include "runtime/measure/work.h"
#include "runtime/serve/serve_sampled.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;

namespace {

constexpr int kMaxRounds = 51;
constexpr int kSamples = 3;
constexpr double kColdSampleUs = 1000;
// Of a cold footprint: a pass over one takes longer than a sample; one over all would take most of a row's time.
constexpr int kColdSlices = 16;

double median(std::vector<double> v) {
  const size_t mid = v.size() / 2;
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(mid), v.end());
  return v[mid];
}

double quartile_range(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() * 3 / 4] - v[v.size() / 4];
}

}  // namespace

struct Bench::Impl {
  std::shared_ptr<Operator> shared;
  BenchOptions options;
  Operator& op = *shared;
  BenchOperands operands{op,
                         {.cold = options.cold,
                          .ram = options.ram,
                          .cold_bytes = cold_bytes(op.context().target()),
                          .seed = options.seed}};
  BenchMemory workspace;
  MachineProbe probe;

  // Not for one thread: a team that a pinned thread starts stays on that thread's CPU.
  ThreadTeam* team() const { return options.threads > 1 ? op.context().team() : nullptr; }

  Result<TimedCalls> caller(const SymbolValues& dims, int* tier) {
    LATHE_RETURN_IF_ERROR(operands.place(dims));
    LATHE_ASSIGN(const BoundOp* bound,
                 op.shapes().bound({.symbols = dims, .threads = options.threads, .packed = true}));
    if (!workspace.reserve(static_cast<size_t>(bound->workspace_bytes)))
      return ir::unsupported("no memory for the workspace");
    *tier = bound->tier;
    struct Calls {
      std::shared_ptr<Operator> op;
      const BoundOp* bound = nullptr;
      ThreadTeam* team = nullptr;
      void* workspace = nullptr;
      std::vector<void*> args;  // `most` calls' arguments
      size_t n = 0;
      int64_t most = 1, next = 0;
    };
    const auto calls = std::make_shared<Calls>();
    calls->args = operands.args();
    calls->n = op.arg_tensors().size();
    calls->most = operands.calls();
    calls->op = shared;
    calls->bound = bound;
    calls->team = team();
    calls->workspace = workspace.data();
    return TimedCalls([calls](int64_t reps) {
      const double begin = now_us();
      for (int64_t r = 0; r < reps; ++r) {
        run_counted(*calls->bound, false, calls->args.data() + static_cast<size_t>(calls->next) * calls->n,
                    calls->workspace, calls->team);
        calls->next = calls->next + 1 == calls->most ? 0 : calls->next + 1;
      }
      return (now_us() - begin) / static_cast<double>(reps);
    });
  }

  Result<BenchRow> run(const SymbolValues& dims) {
    int tier = 0;
    LATHE_ASSIGN(const TimedCalls calls, caller(dims, &tier));
    return measure(dims, tier, calls);
  }

  // While all of the row's threads run: cores may share units and clocks, a virtual machine's two CPUs even the core.
  PeakProbe peak_of_a_thread(const Arithmetic& of) {
    const ir::Target& target = op.context().target();
    if (team() == nullptr) return probe.peak(of.factors, target, of.tiles);
    std::vector<PeakProbe> each(static_cast<size_t>(options.threads));
    team()->parallel_for(options.threads, [&](int i) {
      each[static_cast<size_t>(i)] = MachineProbe().peak(of.factors, target, of.tiles);
    });
    PeakProbe out = each[0];
    out.gflops =
        std::accumulate(each.begin(), each.end(), 0.0, [](double sum, const PeakProbe& p) { return sum + p.gflops; }) /
        options.threads;
    return out;
  }

  // Each round: one sample of the kernel, then the probes that come near it. What moves bytes is compared with reading,
  // or copying, as many from where the kernel's lie: a footprint beyond the caches if they are cold.
  Result<BenchRow> measure(const SymbolValues& dims, int tier, const TimedCalls& call_us) {
    const ir::Target& target = op.context().target();
    const Work work = work_at(op.graph(), dims);
    const int64_t beyond = cold_bytes(target);
    const auto footprint = [&](double bytes, bool cold) {
      const int64_t line = std::max<int64_t>(static_cast<int64_t>(bytes), 4096);
      return cold ? beyond : std::min(line, beyond);
    };
    const auto slices = [](bool cold) { return cold ? kColdSlices : 1; };
    const bool all = operands.all_rotate(), constants = options.cold && !all;
    const double moved = work.read_bytes + work.write_bytes;
    call_us(1);
    const double first = call_us(1);
    const auto reps_for = [&](double us) {
      const double least = options.cold ? std::max(options.min_sample_us, kColdSampleUs) : options.min_sample_us;
      return static_cast<int64_t>(least / std::max(us, 1e-3)) + 1;
    };
    const int64_t reps = reps_for(std::min(first, call_us(reps_for(first))));

    const Arithmetic arithmetic = op.arithmetic({.allowed = options.allowed});

    BenchRow row;
    row.tier = tier;
    row.format = arithmetic.format;
    std::vector<double> peaks, reads, copied, of_peak, of_read, of_copy;
    bool peak = true, read = work.read_bytes >= 64, copy = moved >= 128 && !constants;
    const double start = now_us();
    for (int round = 0; round < kMaxRounds; ++round) {
      if (round >= options.min_rounds && now_us() - start > 1e3 * options.row_ms) break;
      call_us(1);  // what the probes left in the caches is not the kernel's fault
      double us = call_us(reps);
      // A probe is the best of several runs; the kernel is sampled the same way.
      for (int again = 1; again < kSamples; ++again) us = std::min(us, call_us(reps));
      row.samples.push_back(us);
      if (peak) {
        const PeakProbe most = peak_of_a_thread(arithmetic);
        row.peak_of = most.instruction;
        row.ceiling = ceiling_of(arithmetic, most.factors, most.instructions);
        peaks.push_back(most.gflops);
        of_peak.push_back(work.flops / us * 1e-3 / (peaks.back() * options.threads));
      }
      if (read) {
        reads.push_back(
            probe.read_gbs(footprint(work.read_bytes, options.cold), team(), options.threads, slices(options.cold)));
        of_read.push_back(work.read_bytes / us * 1e-3 / reads.back());
      }
      if (copy) {
        copied.push_back(probe.copy_gbs(footprint(moved, all), team(), options.threads, slices(all)));
        of_copy.push_back(moved / 2 / us * 1e-3 / copied.back());
      }
      if (round > 0) continue;
      // What is far from being the limit is probed once: the time is better spent on the others.
      const double arithmetics = of_peak[0] / row.ceiling;
      const double most = std::max({arithmetics, of_read.empty() ? 0 : of_read[0], of_copy.empty() ? 0 : of_copy[0]});
      peak = arithmetics >= most / 2;
      read = read && of_read[0] >= most / 2;
      copy = copy && of_copy[0] >= most / 2;
    }
    row.rounds = static_cast<int>(row.samples.size());
    row.us = median(row.samples);
    row.min_us = *std::min_element(row.samples.begin(), row.samples.end());
    row.spread = quartile_range(row.samples) / row.us;
    row.peak_gflops = median(peaks);
    row.of_peak = median(of_peak);
    if (!of_read.empty()) row.of_read = median(of_read), row.read_gbs = median(reads);
    if (!of_copy.empty()) row.of_copy = median(of_copy), row.copy_gbs = median(copied);
    row.of_roofline = std::max({row.of_peak / row.ceiling, row.of_read, row.of_copy});
    row.limit = row.of_roofline == row.of_peak / row.ceiling ? row.peak_of
                : row.of_roofline == row.of_read             ? "read"
                                                             : "copy";
    return row;
  }
};

Bench::Bench(std::shared_ptr<Operator> op, const BenchOptions& options) : impl_(new Impl{std::move(op), options}) {}
Bench::~Bench() = default;
Result<BenchRow> Bench::run(const SymbolValues& dims) { return impl_->run(dims); }
Result<TimedCalls> Bench::calls(const SymbolValues& dims) {
  int tier = 0;
  return impl_->caller(dims, &tier);
}

std::vector<int> allowed_cpus() {
  std::vector<int> out;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return out;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) out.push_back(i);
  }
  return out;
}

PinnedThread::PinnedThread(bool wanted, int cpu) {
  if (!wanted) return;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return;
  before_.resize(sizeof set);
  std::memcpy(before_.data(), &set, sizeof set);
  CPU_ZERO(&set);
  CPU_SET(cpu >= 0 ? cpu : sched_getcpu(), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) before_.clear();
}

PinnedThread::~PinnedThread() {
  if (before_.empty()) return;
  cpu_set_t set;
  std::memcpy(&set, before_.data(), sizeof set);
  (void)sched_setaffinity(0, sizeof set, &set);
}

}  // namespace lathe::runtime
