// gpu_ceilings: what a GPU does at best, as one JSON line: copying, bare tensor instructions, a launch by itself and
// one in a graph; and what loading code and compiling it take. Null: there is no compiler.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/gpu/bare_loops.h"
#include "runtime/cuda/device_code.h"
#include "runtime/cuda/device_session.h"
#include "runtime/measure/timing.h"

namespace {

using namespace lathe;           // NOLINT: a program
using namespace lathe::runtime;  // NOLINT
using ir::Result;
using nlohmann::json;

constexpr int kRounds = 5;
constexpr size_t kAlign = 256;

class Ceilings {
 public:
  explicit Ceilings(std::shared_ptr<DeviceSession> session)
      : session_(std::move(session)), emulated_(session_->device()->driver().emulated) {}

  // Bytes that are read and written, a second.
  Result<double> copy_gbs() {
    const size_t bytes = emulated_ ? size_t{1} << 20 : size_t{4} << 30;
    LATHE_ASSIGN(const DeviceMemory from, DeviceMemory::map(session_->device(), bytes, kAlign));
    LATHE_ASSIGN(const DeviceMemory to, DeviceMemory::map(session_->device(), bytes, kAlign));
    LATHE_ASSIGN(const double us, best([&](void*) { return session_->copy(to.data(), from.data(), bytes); }, 1));
    return 2e-3 * static_cast<double>(bytes) / us;
  }

  // Of a kernel that does nothing: microseconds of a launch, and of one of many in a graph; of loading, and compiling.
  ir::Status nothing(const jit::Nvrtc& compiler, json& line) {
    using Clock = std::chrono::steady_clock;
    const auto since = [](Clock::time_point start) {
      return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    };
    const Clock::time_point start = Clock::now();
    LATHE_ASSIGN(const jit::CompiledKernel made, compile(compiler, bench::kNothing));
    line["compile_ms"] = since(start);
    const Clock::time_point load = Clock::now();
    LATHE_ASSIGN(void* const kernel, session_->device()->load(made.cubin, bench::kNothing.name, 0));
    line["load_ms"] = since(load);
    const int launches = emulated_ ? 10 : 1000;
    const auto launch = [&](void* stream) { return launch_one(bench::kNothing, kernel, 1, 0, nullptr, stream); };
    LATHE_ASSIGN(line["node_us"], best(launch, launches));
    const CurrentDevice current(*session_->device());
    const Clock::time_point first = Clock::now();
    for (int i = 0; i < launches; ++i) LATHE_RETURN_IF_ERROR(launch(session_->stream()));
    line["launch_us"] = 1e3 * since(first) / launches;
    return session_->finish();
  }

  Result<double> tflops(const jit::Nvrtc& compiler, const bench::BareLoop& loop) {
    LATHE_ASSIGN(const jit::CompiledKernel made, compile(compiler, loop));
    LATHE_ASSIGN(void* const kernel, session_->device()->load(made.cubin, loop.name, loop.shared));
    const int blocks = emulated_ ? 1 : 2 * std::max(session_->device()->target().multiprocessors, 1);
    const int64_t turns = emulated_ ? 2 : 4000;
    const size_t bytes = sizeof(float) * static_cast<size_t>(blocks * loop.threads);
    LATHE_ASSIGN(const DeviceMemory out, DeviceMemory::map(session_->device(), bytes, kAlign));
    const auto launch = [&](void* stream) { return launch_one(loop, kernel, blocks, turns, out.data(), stream); };
    LATHE_ASSIGN(const double us, best(launch, 1));
    return loop.flops * blocks * static_cast<double>(turns) / us * 1e-6;
  }

 private:
  Result<jit::CompiledKernel> compile(const jit::Nvrtc& compiler, const bench::BareLoop& loop) const {
    return compiler.compile(bench::text_of(loop), loop.name, session_->device()->target());
  }
  ir::Status launch_one(const bench::BareLoop& loop, void* kernel, int blocks, int64_t turns, void* out,
                        void* stream) const {
    uint64_t args[] = {reinterpret_cast<uint64_t>(out), static_cast<uint64_t>(turns)};
    const CurrentDevice current(*session_->device());
    const CudaDevice::LaunchShape shape{.blocks = static_cast<unsigned>(blocks),
                                        .threads = static_cast<unsigned>(loop.threads),
                                        .shared = static_cast<unsigned>(loop.shared)};
    return session_->device()->launch(kernel, shape, args, stream);
  }
  // Least microseconds of one of so many in a graph.
  Result<double> best(const DeviceSession::Launch& launch, int launches) {
    LATHE_ASSIGN(const std::unique_ptr<DeviceGraph> graph, session_->record(launch, launches));
    double least = HUGE_VAL;
    for (int i = 0; i <= kRounds; ++i) {
      LATHE_ASSIGN(const double us, session_->time(*graph));
      if (i > 0) least = std::min(least, std::max(us, 1e-3));
    }
    return least;
  }

  const std::shared_ptr<DeviceSession> session_;
  const bool emulated_;
};

ir::Status measure(const std::string& cuda, const std::string& nvrtc, int number, json& line) {
  LATHE_ASSIGN(const std::shared_ptr<CudaDevice> device, cuda_device(cuda, number));
  LATHE_ASSIGN(std::unique_ptr<DeviceSession> session, DeviceSession::open(device));
  Ceilings ceilings(std::move(session));
  line["gpu"] = device->target().name;
  line["emulated"] = device->driver().emulated;
  LATHE_ASSIGN(line["copy_gbs"], ceilings.copy_gbs());
  for (const char* field : {"compile_ms", "load_ms", "node_us", "launch_us", "tensor_tflops"}) line[field] = nullptr;
  DeviceCodes codes(nvrtc, nullptr, nullptr);
  const auto compiler = codes.compiler(device->driver().version);
  if (!compiler.ok()) {
    line["note"] = compiler.status().message();
    return {};
  }
  LATHE_RETURN_IF_ERROR(ceilings.nothing(**compiler, line));
  line["tensor_tflops"] = json::object();
  for (const bench::BareLoop& loop : bench::kTensorLoops) {
    if (device->target().sm < loop.least_sm || device->target().sm > loop.most_sm) continue;
    LATHE_ASSIGN(line["tensor_tflops"][loop.name], ceilings.tflops(**compiler, loop));
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"What a GPU does at best"};
  std::string cuda, nvrtc;
  int number = 0;
  app.add_option("--device", number, "Number of the CUDA device");
  app.add_option("--cuda", cuda, "The driver's library");
  app.add_option("--nvrtc", nvrtc, "NVRTC's library");
  CLI11_PARSE(app, argc, argv);
  json line = {{"schema", "lathe-ceilings-1"}, {"event", "summary"}};
  const ir::Status done = measure(cuda, nvrtc, number, line);
  if (!done.ok()) {
    line["event"] = "error";
    line["message"] = done.message();
  }
  std::puts(line.dump().c_str());
  return done.ok() ? 0 : 1;
}
