// How fast a served operator is as lathe_pinned_run runs it, as a share of what the machine can do in the same round:
// samples and probes interleaved, on operands that rotate where the workload says cold (bench_operands.h).
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/serve/operator.h"

namespace lathe::runtime {

struct BenchOptions {
  bool cold = false;
  int threads = 1;
  int min_rounds = 9;
  double row_ms = 400;  // aim per row; rounds are cut down to min_rounds for it
  double min_sample_us = 50;
  int64_t ram = int64_t{8} << 30;
  uint64_t seed = 0;
  uint32_t allowed = 0;  // NumericClass bits, as prepared; 0: the default
};

struct BenchRow {
  int tier = 0;
  int rounds = 0;
  double us = 0, min_us = 0;  // per call: median and least of the rounds
  double spread = 0;          // interquartile range over the median
  // Medians over the rounds of (the probe's time for the same work) / (the kernel's time); 0: not probed.
  double of_peak = 0, of_read = 0, of_copy = 0;
  std::string format;                 // of weights of few bits; empty: there are none
  std::string peak_of;                // the instruction that the peak is of
  double ceiling = 1;                 // what the format of the weights leaves of the peak
  double of_roofline = 0;             // the largest of of_peak / ceiling, of_read and of_copy
  std::string limit;                  // which: peak_of, "read", "copy"
  double peak_gflops = 0;             // of one thread while all of the row's run: median of the probes
  double read_gbs = 0, copy_gbs = 0;  // of one thread alone
  std::vector<double> samples;        // us, by round
};

// Runs so many calls in a row; microseconds of one.
using TimedCalls = std::function<double(int64_t calls)>;

class Bench {
 public:
  // The operator is prepared. More than one thread: the context's team.
  Bench(std::shared_ptr<Operator> op, const BenchOptions& options);
  ~Bench();
  // UNSUPPORTED: more memory than options.ram.
  ir::Result<BenchRow> run(const SymbolValues& dims);
  // The calls alone. Valid until the next run() or calls(), and while this lives.
  ir::Result<TimedCalls> calls(const SymbolValues& dims);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The CPUs the calling thread may run on.
std::vector<int> allowed_cpus();

// Keeps the calling thread on one CPU, -1: the one it runs on, for as long as it lives.
class PinnedThread {
 public:
  explicit PinnedThread(bool wanted, int cpu = -1);
  ~PinnedThread();
  PinnedThread(const PinnedThread&) = delete;
  PinnedThread& operator=(const PinnedThread&) = delete;

 private:
  std::vector<unsigned char> before_;
};

}  // namespace lathe::runtime
