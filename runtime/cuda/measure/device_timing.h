// Times of launches on a device, candidate beside candidate: graphs of launches between events, in turns. The
// counterpart of runtime/measure/timing.h for work that runs beside the host. Not thread-safe.
#pragma once
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/cuda/device_session.h"

namespace lathe::runtime {

class DeviceTiming {
 public:
  // before, if not empty: called before each sample with its candidate's number.
  explicit DeviceTiming(std::shared_ptr<DeviceSession> session, std::function<void(int)> before = {})
      : session_(std::move(session)), before_(std::move(before)) {}

  // Its number; number 0 is the reference. Warms it up.
  ir::Result<int> add(const DeviceSession::Launch& launch);
  // Three samples of microseconds a launch, and the reference's around then.
  struct Row {
    std::vector<double> samples;
    double reference_us = 0;
  };
  ir::Result<Row> screen(int candidate);

  // In rounds, each of which takes all in turn.
  struct Finalist {
    int candidate = 0;
    double us = 0;                    // by its median share of the reference
    double gain_lo = 0, gain_hi = 0;  // over the reference in per cent of its time, in all rounds but the extreme ones
  };
  struct Decision {
    double reference_us = 0;          // median
    std::vector<Finalist> finalists;  // the fastest first
    int samples = 0;
  };
  ir::Result<Decision> decide(const std::vector<int>& finalists);

 private:
  struct Candidate {
    std::unique_ptr<DeviceGraph> graph;
    int repeats = 1;  // graphs of a sample
  };
  ir::Result<double> sample(int number);

  std::shared_ptr<DeviceSession> session_;
  std::function<void(int)> before_;
  std::vector<Candidate> candidates_;
};

}  // namespace lathe::runtime
