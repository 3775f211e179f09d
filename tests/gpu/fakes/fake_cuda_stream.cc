// Streams, events and graphs of the fake driver. Work on a stream is done at once, unless the stream captures: then it
// is done each time the graph is launched.
#include <chrono>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/gpu/fakes/fake_cuda.h"
#include "tests/gpu/fakes/fake_cuda_parts.h"

using namespace lathe::test;  // NOLINT: the fake's own names

namespace {

constexpr int kRelaxed = 2;
using Clock = std::chrono::steady_clock;

struct Graph {
  std::vector<std::function<int()>> work;
};
struct Event {
  Clock::time_point at;
};

std::mutex& mutex() {
  static std::mutex m;
  return m;
}
std::map<void*, Graph>& capturing() {
  static auto& c = *new std::map<void*, Graph>;
  return c;
}
thread_local int t_mode = 0;  // global

}  // namespace

bool lathe::test::captured(void* stream, std::function<int()> work) {
  const std::lock_guard lock(mutex());
  const auto graph = capturing().find(stream);
  if (graph == capturing().end()) return false;
  graph->second.work.push_back(std::move(work));
  return true;
}

bool lathe::test::would_end_a_capture() {
  const std::lock_guard lock(mutex());
  return !capturing().empty() && t_mode != kRelaxed;
}

extern "C" {

#define FAKE __attribute__((visibility("default")))

FAKE int cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, t_mode);
  return kCudaOk;
}

FAKE int cuStreamCreate(void** stream, unsigned) {
  if (current_device() < 0) return kCudaInvalidContext;
  *stream = new char;
  return kCudaOk;
}
FAKE int cuStreamDestroy_v2(void* stream) {
  delete static_cast<char*>(stream);
  return kCudaOk;
}
FAKE int cuStreamSynchronize(void* stream) {
  ++fake_cuda()->synchronisations;
  const std::lock_guard lock(mutex());
  return capturing().count(stream) != 0 ? kCudaUnsafeInCapture : kCudaOk;
}
FAKE int cuStreamBeginCapture_v2(void* stream, int) {
  const std::lock_guard lock(mutex());
  return capturing().emplace(stream, Graph{}).second ? kCudaOk : kCudaInvalidValue;
}
FAKE int cuStreamEndCapture(void* stream, void** graph) {
  const std::lock_guard lock(mutex());
  const auto it = capturing().find(stream);
  if (it == capturing().end()) return kCudaInvalidValue;
  *graph = new Graph(std::move(it->second));
  capturing().erase(it);
  return kCudaOk;
}
FAKE int cuGraphInstantiateWithFlags(void** exec, void* graph, unsigned long long) {
  *exec = new Graph(*static_cast<Graph*>(graph));
  return kCudaOk;
}
FAKE int cuGraphLaunch(void* exec, void*) {
  if (const int error = std::exchange(fake_cuda()->fail_graph, 0); error != 0) return error;
  for (const auto& work : static_cast<Graph*>(exec)->work) {
    if (const int error = work(); error != kCudaOk) return error;
  }
  return kCudaOk;
}
FAKE int cuGraphDestroy(void* graph) {
  delete static_cast<Graph*>(graph);
  return kCudaOk;
}
FAKE int cuGraphExecDestroy(void* exec) { return cuGraphDestroy(exec); }

FAKE int cuEventCreate(void** event, unsigned) {
  if (current_device() < 0) return kCudaInvalidContext;
  *event = new Event;
  return kCudaOk;
}
FAKE int cuEventRecord(void* event, void*) {
  static_cast<Event*>(event)->at = Clock::now();
  return kCudaOk;
}
FAKE int cuEventSynchronize(void*) {
  ++fake_cuda()->synchronisations;
  return kCudaOk;
}
FAKE int cuEventElapsedTime(float* ms, void* from, void* to) {
  *ms = std::chrono::duration<float, std::milli>(static_cast<Event*>(to)->at - static_cast<Event*>(from)->at).count();
  return kCudaOk;
}
FAKE int cuEventDestroy_v2(void* event) {
  delete static_cast<Event*>(event);
  return kCudaOk;
}
}
