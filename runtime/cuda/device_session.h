// A stream of Lathe's own on a device, for what measures and verifies: copies, waiting, and the time of launches in a
// graph, which is free of what the host needs to launch. No call of a kernel uses one. Not thread-safe.
#pragma once
#include <functional>
#include <memory>

#include "runtime/cuda/device_memory.h"

namespace lathe::runtime {

// Launches that were recorded, to be launched together.
class DeviceGraph {
 public:
  DeviceGraph(std::shared_ptr<CudaDevice> device, void* exec, int launches)
      : device_(std::move(device)), exec_(exec), launches_(launches) {}
  ~DeviceGraph();
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;
  void* exec() const { return exec_; }
  int launches() const { return launches_; }

 private:
  std::shared_ptr<CudaDevice> device_;
  void* exec_;
  int launches_;
};

class DeviceSession {
 public:
  static constexpr int kLaunches = 20;  // of a graph that is timed

  static ir::Result<std::unique_ptr<DeviceSession>> open(std::shared_ptr<CudaDevice> device);
  ~DeviceSession();
  DeviceSession(const DeviceSession&) = delete;
  DeviceSession& operator=(const DeviceSession&) = delete;

  const std::shared_ptr<CudaDevice>& device() const { return device_; }
  void* stream() const { return stream_; }
  // Joins the stream; what is copied from stays as it is until finish().
  ir::Status to_device(void* to, const void* from, size_t bytes);
  ir::Status to_host(void* to, const void* from, size_t bytes);
  ir::Status copy(void* to, const void* from, size_t bytes);  // on the device
  ir::Status finish();                                        // waits. DEVICE: something in the stream failed

  // launch(stream), so many times, in a graph.
  using Launch = std::function<ir::Status(void* stream)>;
  ir::Result<std::unique_ptr<DeviceGraph>> record(const Launch& launch, int launches = kLaunches);
  // Microseconds of one of its launches, by events around all of them.
  ir::Result<double> time(const DeviceGraph& graph);

 private:
  explicit DeviceSession(std::shared_ptr<CudaDevice> device) : device_(std::move(device)) {}

  std::shared_ptr<CudaDevice> device_;
  void *stream_ = nullptr, *first_ = nullptr, *last_ = nullptr;  // two events
};

}  // namespace lathe::runtime
