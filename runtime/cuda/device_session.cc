// See device_session.h.
#include "runtime/cuda/device_session.h"

#include <algorithm>

namespace lathe::runtime {

using ir::Result;
using ir::Status;

namespace {

unsigned long long address(const void* p) { return static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(p)); }

}  // namespace

DeviceGraph::~DeviceGraph() {
  const CurrentDevice current(*device_);
  (void)device_->driver().cuGraphExecDestroy(exec_);
}

Result<std::unique_ptr<DeviceSession>> DeviceSession::open(std::shared_ptr<CudaDevice> device) {
  LATHE_RETURN_IF_ERROR(device->working());
  std::unique_ptr<DeviceSession> out(new DeviceSession(std::move(device)));
  CudaDevice& on = *out->device_;
  const CudaDriver& d = on.driver();
  const CurrentDevice current(on);
  LATHE_RETURN_IF_ERROR(on.note(d.cuStreamCreate(&out->stream_, cuda::kNonBlockingStream), "stream"));
  LATHE_RETURN_IF_ERROR(on.note(d.cuEventCreate(&out->first_, 0), "event"));
  LATHE_RETURN_IF_ERROR(on.note(d.cuEventCreate(&out->last_, 0), "event"));
  return out;
}

DeviceSession::~DeviceSession() {
  const CudaDriver& d = device_->driver();
  const CurrentDevice current(*device_);
  if (first_ != nullptr) (void)d.cuEventDestroy_v2(first_);
  if (last_ != nullptr) (void)d.cuEventDestroy_v2(last_);
  if (stream_ != nullptr) (void)d.cuStreamDestroy_v2(stream_);
}

Status DeviceSession::to_device(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return {};
  const CurrentDevice current(*device_);
  return device_->note(device_->driver().cuMemcpyHtoDAsync_v2(address(to), from, bytes, stream_), "copy to the device");
}

Status DeviceSession::to_host(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return {};
  const CurrentDevice current(*device_);
  return device_->note(device_->driver().cuMemcpyDtoHAsync_v2(to, address(from), bytes, stream_),
                       "copy from the device");
}

Status DeviceSession::copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return {};
  const CurrentDevice current(*device_);
  return device_->note(device_->driver().cuMemcpyDtoDAsync_v2(address(to), address(from), bytes, stream_),
                       "copy on the device");
}

Status DeviceSession::finish() {
  const CurrentDevice current(*device_);
  return device_->note(device_->driver().cuStreamSynchronize(stream_), "the stream");
}

Result<std::unique_ptr<DeviceGraph>> DeviceSession::record(const Launch& launch, int launches) {
  const CudaDriver& d = device_->driver();
  const CurrentDevice current(*device_);
  LATHE_RETURN_IF_ERROR(device_->note(d.cuStreamBeginCapture_v2(stream_, cuda::kCaptureThread), "capture"));
  Status launched;
  for (int i = 0; i < launches && launched.ok(); ++i) launched = launch(stream_);
  void *graph = nullptr, *exec = nullptr;
  const Status ended = device_->note(d.cuStreamEndCapture(stream_, &graph), "end of the capture");
  if (!launched.ok() && graph != nullptr) (void)d.cuGraphDestroy(graph);
  LATHE_RETURN_IF_ERROR(launched);
  LATHE_RETURN_IF_ERROR(ended);
  const Status made = device_->note(d.cuGraphInstantiateWithFlags(&exec, graph, 0), "graph");
  (void)d.cuGraphDestroy(graph);
  LATHE_RETURN_IF_ERROR(made);
  return std::make_unique<DeviceGraph>(device_, exec, launches);
}

Result<double> DeviceSession::time(const DeviceGraph& graph) {
  const CudaDriver& d = device_->driver();
  const CurrentDevice current(*device_);
  LATHE_RETURN_IF_ERROR(device_->note(d.cuEventRecord(first_, stream_), "event"));
  LATHE_RETURN_IF_ERROR(device_->note(d.cuGraphLaunch(graph.exec(), stream_), "launch of a graph"));
  LATHE_RETURN_IF_ERROR(device_->note(d.cuEventRecord(last_, stream_), "event"));
  LATHE_RETURN_IF_ERROR(device_->note(d.cuEventSynchronize(last_), "waiting for an event"));
  float ms = 0;
  LATHE_RETURN_IF_ERROR(device_->note(d.cuEventElapsedTime(&ms, first_, last_), "time between events"));
  return 1e3 * static_cast<double>(ms) / std::max(graph.launches(), 1);
}

}  // namespace lathe::runtime
