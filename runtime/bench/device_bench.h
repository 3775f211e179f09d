// How fast a served operator is on a GPU, as a share of copying as many bytes there in the same round: launches in a
// graph, timed by events, on operands that rotate where the workload says cold.
#pragma once
#include <memory>

#include "runtime/bench/bench.h"
#include "runtime/cuda/device_session.h"

namespace lathe::runtime {

struct DeviceBenchRow {
  int tier = 0, rounds = 0;
  double us = 0, min_us = 0;         // of a call: median and least of the rounds
  double spread = 0;                 // interquartile range over the median
  double gbs = 0, tflops = 0;        // compulsory bytes, and arithmetic, of a call over its time
  double copy_gbs = 0, of_copy = 0;  // read and written; median of the rounds' ratios
  double peer_us = 0, of_peer = 0;   // of what is timed beside it: its time over the call's; 0: nothing is
  std::vector<double> samples;       // us, by round
};

class DeviceBench {
 public:
  // The operator is prepared on the session's device. Of the options: cold, min_rounds, row_ms, ram, seed.
  DeviceBench(std::shared_ptr<Operator> op, std::shared_ptr<DeviceSession> session, const BenchOptions& options)
      : op_(std::move(op)), session_(std::move(session)), options_(options) {}
  // peer: launches of somebody else's, timed in the same rounds; may be null. UNSUPPORTED: more memory than
  // options.ram. DEVICE: the device failed.
  ir::Result<DeviceBenchRow> run(const SymbolValues& dims, const DeviceGraph* peer = nullptr);

 private:
  std::shared_ptr<Operator> op_;
  std::shared_ptr<DeviceSession> session_;
  const BenchOptions options_;
};

}  // namespace lathe::runtime
