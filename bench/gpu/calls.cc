// gpu_calls: the C interface on a GPU as engines call it: two streams, pinned calls, graphs that capture, a workspace
// of the caller's; and calls that must be refused by name, after which all goes on. Prints one JSON line, with the
// microseconds that a call and a pinned call take on the host; exit status 1: something is not as it should be.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "include/lathe.h"
#include "runtime/cuda/device_session.h"
#include "runtime/oracle/data_sets.h"

namespace {

using namespace lathe;           // NOLINT: a program
using namespace lathe::runtime;  // NOLINT
using ir::Result;
using ir::Status;

constexpr size_t kAlign = 256;
constexpr int64_t kMostRows = 4096;

struct DeleteAll {
  void operator()(lathe_context* p) const { lathe_context_destroy(p); }
  void operator()(lathe_graph* p) const { lathe_graph_destroy(p); }
  void operator()(lathe_kernel* p) const { lathe_kernel_destroy(p); }
  void operator()(lathe_pinned* p) const { lathe_pinned_destroy(p); }
};
template <class T>
using Owned = std::unique_ptr<T, DeleteAll>;

Status status_of(lathe_status code, const lathe_error& error) {
  if (code == LATHE_STATUS_OK) return {};
  return ir::make_error(ir::Code::kINTERNAL, "{} ({})", error.message, error.arg_name);
}

// Floats on a device or, for what must be refused, on the host.
class Floats {
 public:
  static Result<Floats> on(DeviceSession& s, std::vector<int64_t> shape, int number) {
    Floats out;
    out.shape_ = std::move(shape);
    int64_t count = 1;
    for (const int64_t d : out.shape_) count *= d;
    out.host_.resize(static_cast<size_t>(count));
    LATHE_ASSIGN(out.memory_, DeviceMemory::map(s.device(), out.bytes(), kAlign));
    out.tensor_ = {
        out.memory_.data(), {2, number}, static_cast<int32_t>(out.shape_.size()), {2, 32, 1}, nullptr, nullptr, 0};
    return out;
  }
  size_t bytes() const { return host_.size() * sizeof(float); }
  std::vector<float>& host() { return host_; }
  void* data() const { return memory_.data(); }
  Status up(DeviceSession& s) {
    LATHE_RETURN_IF_ERROR(s.to_device(data(), host_.data(), bytes()));
    return s.finish();
  }
  Status down(DeviceSession& s) {
    LATHE_RETURN_IF_ERROR(s.to_host(host_.data(), data(), bytes()));
    return s.finish();
  }
  // The tensor, with other memory or of another device where a test wants that.
  lathe_tensor tensor() {
    lathe_tensor out = tensor_;
    out.shape = shape_.data();
    return out;
  }

 private:
  std::vector<int64_t> shape_;
  std::vector<float> host_;
  DeviceMemory memory_;
  lathe_tensor tensor_{};
};

class Calls {
 public:
  Calls(std::shared_ptr<DeviceSession> first, std::shared_ptr<DeviceSession> second, int number)
      : first_(std::move(first)), second_(std::move(second)), number_(number) {}

  Status run(nlohmann::json& line) {
    lathe_context* ctx = nullptr;
    LATHE_RETURN_IF_ERROR(status_of(lathe_context_create(nullptr, &ctx, &error_), error_));
    ctx_.reset(ctx);
    LATHE_ASSIGN(relu_, graph("relu", {{"x", {0, 1}}}, {}));
    LATHE_ASSIGN(kernel_, resolve(*relu_, static_cast<uint32_t>(number_) + 1));
    LATHE_RETURN_IF_ERROR(sizes_and_streams());
    LATHE_RETURN_IF_ERROR(captured());
    LATHE_RETURN_IF_ERROR(refused());
    LATHE_RETURN_IF_ERROR(workspace());
    LATHE_RETURN_IF_ERROR(times(line));
    line["checked"] = checked_;
    line["failures"] = failures_;
    return {};
  }
  bool failed() const { return !failures_.empty(); }

 private:
  struct Input {
    const char* name;
    std::vector<int64_t> dims;  // 0: N, up to kMostRows
  };
  Result<Owned<lathe_graph>> graph(const char* op, const std::vector<Input>& inputs,
                                   const std::vector<lathe_attr>& attrs) {
    std::vector<lathe_tensor_desc> descs;
    std::vector<std::vector<lathe_dim>> dims;
    for (const Input& i : inputs) {
      dims.emplace_back();
      for (const int64_t d : i.dims)
        dims.back().push_back(d == 0 ? lathe_dim{1, kMostRows, 1, "N", nullptr, 0}
                                     : lathe_dim{d, d, 1, nullptr, nullptr, 0});
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      lathe_tensor_desc d = LATHE_TENSOR_DESC_INIT;
      d.name = inputs[i].name;
      d.dtype = LATHE_DTYPE_F32;
      d.ndim = static_cast<int32_t>(dims[i].size());
      d.dims = dims[i].data();
      descs.push_back(d);
    }
    lathe_graph* out = nullptr;
    LATHE_RETURN_IF_ERROR(status_of(
        lathe_graph_single(ctx_.get(), op, descs.data(), descs.size(), attrs.data(), attrs.size(), &out, &error_),
        error_));
    return Owned<lathe_graph>(out);
  }
  Result<Owned<lathe_kernel>> resolve(const lathe_graph& graph, uint32_t device) {
    lathe_policy policy = LATHE_POLICY_INIT;
    policy.wait = LATHE_WAIT_TUNED;
    policy.device = device;
    lathe_kernel* out = nullptr;
    LATHE_RETURN_IF_ERROR(status_of(lathe_resolve(ctx_.get(), &graph, &policy, &out, nullptr, &error_), error_));
    return Owned<lathe_kernel>(out);
  }
  static lathe_exec on(const DeviceSession& s) {
    lathe_exec out = LATHE_EXEC_INIT;
    out.stream = s.stream();
    return out;
  }
  void expect(bool right, const std::string& what) {
    ++checked_;
    if (!right) failures_.push_back(what);
  }

  // x in, relu of it out, of so many rows of one float.
  struct Pair {
    Floats x, y;
    lathe_tensor tensors[2];
    lathe_arg args[2];
    void* data[2];
  };
  Result<std::unique_ptr<Pair>> pair(int64_t n, int seed) {
    auto out = std::make_unique<Pair>();
    LATHE_ASSIGN(out->x, Floats::on(*first_, {n, 1}, number_));
    LATHE_ASSIGN(out->y, Floats::on(*first_, {n, 1}, number_));
    for (size_t i = 0; i < out->x.host().size(); ++i)
      out->x.host()[i] = static_cast<float>((static_cast<int>(i) * 37 + seed) % 101 - 50);
    std::fill(out->y.host().begin(), out->y.host().end(), -7.5f);
    LATHE_RETURN_IF_ERROR(out->x.up(*first_));
    LATHE_RETURN_IF_ERROR(out->y.up(*first_));
    Floats* both[] = {&out->x, &out->y};
    for (int i = 0; i < 2; ++i) {
      out->tensors[i] = both[i]->tensor();
      out->args[i] = {&out->tensors[i], 0, 0, 0, 0};
      out->data[i] = both[i]->data();
    }
    return out;
  }
  Status expect_relu(Pair& p, const std::string& what) {
    LATHE_RETURN_IF_ERROR(p.y.down(*first_));
    bool right = true;
    for (size_t i = 0; i < p.x.host().size(); ++i) right &= p.y.host()[i] == std::max(p.x.host()[i], 0.0f);
    expect(right, what);
    return {};
  }

  // Calls of several sizes on two streams in turns, pinned and not.
  Status sizes_and_streams() {
    std::vector<std::unique_ptr<Pair>> pairs;
    DeviceSession* const sessions[] = {first_.get(), second_.get()};
    for (const int64_t n : {1, 33, 1000, 4095, 4096}) {
      LATHE_ASSIGN(std::unique_ptr<Pair> p, pair(n, static_cast<int>(n)));
      const lathe_exec exec = on(*sessions[pairs.size() % 2]);
      LATHE_RETURN_IF_ERROR(status_of(lathe_execute(kernel_.get(), p->args, 2, &exec, &error_), error_));
      pairs.push_back(std::move(p));
    }
    for (DeviceSession* s : sessions) LATHE_RETURN_IF_ERROR(s->finish());
    for (const auto& p : pairs)
      LATHE_RETURN_IF_ERROR(expect_relu(*p, "a call of " + std::to_string(p->x.host().size())));
    LATHE_ASSIGN(const std::unique_ptr<Pair> p, pair(777, 5));
    LATHE_ASSIGN(const Owned<lathe_pinned> pinned, pin(*p));
    const lathe_exec exec = on(*first_);
    expect(lathe_pinned_run(pinned.get(), p->data, &exec) == LATHE_STATUS_OK, "a pinned call runs");
    LATHE_RETURN_IF_ERROR(first_->finish());
    return expect_relu(*p, "a pinned call");
  }
  Result<Owned<lathe_pinned>> pin(Pair& p) {
    lathe_pinned* out = nullptr;
    LATHE_RETURN_IF_ERROR(status_of(lathe_pin(kernel_.get(), p.args, 2, 1, &out, &error_), error_));
    return Owned<lathe_pinned>(out);
  }

  // A call at a size that was never seen is captured; nothing runs until the graph does.
  Status captured() {
    LATHE_ASSIGN(const std::unique_ptr<Pair> p, pair(555, 9));
    LATHE_ASSIGN(const std::unique_ptr<DeviceGraph> graph, first_->record([&](void* stream) {
      lathe_exec exec = LATHE_EXEC_INIT;
      exec.stream = stream;
      return status_of(lathe_execute(kernel_.get(), p->args, 2, &exec, &error_), error_);
    }));
    LATHE_RETURN_IF_ERROR(p->y.down(*first_));
    expect(p->y.host()[5] == -7.5f, "nothing runs while a stream captures");
    LATHE_RETURN_IF_ERROR(first_->time(*graph).status());
    return expect_relu(*p, "a graph that captured a call");
  }

  // Each names its argument, and the call after it is served.
  Status refused() {
    LATHE_ASSIGN(const std::unique_ptr<Pair> p, pair(64, 3));
    std::vector<float> host(64);
    const auto call = [&](const std::string& what, const char* argument,
                          const std::function<void(Pair&, lathe_exec&)>& spoil) {
      Pair bad;
      std::copy(std::begin(p->tensors), std::end(p->tensors), bad.tensors);
      for (int i = 0; i < 2; ++i) bad.args[i] = {&bad.tensors[i], 0, 0, 0, 0};
      lathe_exec exec = on(*first_);
      spoil(bad, exec);
      const lathe_status status = lathe_execute(kernel_.get(), bad.args, 2, &exec, &error_);
      expect(
          status != LATHE_STATUS_OK && std::strstr(error_.arg_name, argument) != nullptr,
          what + ": " + (status == LATHE_STATUS_OK ? "taken" : std::string(error_.arg_name) + ": " + error_.message));
    };
    call("no stream", "exec.stream", [](Pair&, lathe_exec& e) { e.stream = nullptr; });
    call("a host pointer as an input", "x", [&](Pair& b, lathe_exec&) { b.tensors[0].data = host.data(); });
    call("a host pointer as a result", "out", [&](Pair& b, lathe_exec&) { b.tensors[1].data = host.data(); });
    call("a tensor of the CPU", "x", [](Pair& b, lathe_exec&) { b.tensors[0].device = {1, 0}; });
    call("another device", "x", [](Pair& b, lathe_exec&) { b.tensors[0].device.id += 1; });
    call("no multiple of an element", "x",
         [](Pair& b, lathe_exec&) { b.tensors[0].data = static_cast<char*>(b.tensors[0].data) + 1; });
    expect(!resolve(*relu_, 200).ok() && std::strcmp(error_.arg_name, "policy.device") == 0,
           "a device that is not there");
    LATHE_ASSIGN(const Owned<lathe_kernel> cpu, resolve(*relu_, 0));
    lathe_tensor tensors[2] = {p->tensors[0], p->tensors[1]};
    std::vector<float> result(64, -7.5f);
    for (lathe_tensor& t : tensors) t.device = {1, 0};
    tensors[0].data = p->x.host().data();
    tensors[1].data = result.data();
    const lathe_arg args[] = {{&tensors[0], 0, 0, 0, 0}, {&tensors[1], 0, 0, 0, 0}};
    LATHE_RETURN_IF_ERROR(status_of(lathe_execute(cpu.get(), args, 2, nullptr, &error_), error_));
    expect(result[0] == std::max(p->x.host()[0], 0.0f), "the CPU beside it");
    const lathe_exec exec = on(*first_);
    LATHE_RETURN_IF_ERROR(status_of(lathe_execute(kernel_.get(), p->args, 2, &exec, &error_), error_));
    LATHE_RETURN_IF_ERROR(first_->finish());
    return expect_relu(*p, "a call after those that were refused");
  }

  // A long sum of one row is split among blocks, whose parts lie in the caller's memory.
  Status workspace() {
    constexpr int64_t kTerms = 65536, kColumns = 8;
    lathe_attr turned = {};
    turned.name = "transpose_b";
    turned.type = LATHE_ATTR_BOOL;
    turned.i = 1;
    LATHE_ASSIGN(const Owned<lathe_graph> product,
                 graph("matmul", {{"a", {1, kTerms}}, {"b", {kColumns, kTerms}}}, {turned}));
    LATHE_ASSIGN(const Owned<lathe_kernel> kernel, resolve(*product, static_cast<uint32_t>(number_) + 1));
    Floats all[3];
    const std::vector<int64_t> shapes[] = {{1, kTerms}, {kColumns, kTerms}, {1, kColumns}};
    lathe_tensor tensors[3];
    lathe_arg args[3];
    for (size_t i = 0; i < 3; ++i) {
      LATHE_ASSIGN(all[i], Floats::on(*first_, shapes[i], number_));
      for (size_t k = 0; k < all[i].host().size(); ++k) all[i].host()[k] = static_cast<float>(k % 3);
      LATHE_RETURN_IF_ERROR(all[i].up(*first_));
      tensors[i] = all[i].tensor();
      args[i] = {&tensors[i], 0, 0, 0, 0};
    }
    uint64_t bytes = 0;
    LATHE_RETURN_IF_ERROR(status_of(lathe_workspace_bytes(kernel.get(), args, 3, 1, &bytes, &error_), error_));
    LATHE_ASSIGN(const DeviceMemory memory, DeviceMemory::map(first_->device(), bytes + kAlign, kAlign));
    std::vector<char> host(bytes + kAlign);
    lathe_exec exec = on(*first_);
    const auto refuses = [&](const char* what, void* at, uint64_t size) {
      exec.workspace = at;
      exec.workspace_bytes = size;
      const lathe_status status = lathe_execute(kernel.get(), args, 3, &exec, &error_);
      expect(status != LATHE_STATUS_OK && std::strstr(error_.arg_name, "exec.workspace") != nullptr,
             std::string(what) + ": " + (status == LATHE_STATUS_OK ? "taken" : error_.arg_name));
    };
    if (bytes > 0) {
      refuses("no workspace", nullptr, 0);
      refuses("a workspace that is short", memory.data(), bytes - 1);
      refuses("a workspace that is unaligned", static_cast<char*>(memory.data()) + 4, bytes);
      refuses("a workspace on the host",
              reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(host.data()) + kAlign - 1) / kAlign * kAlign),
              bytes);
    }
    expect(bytes > 0, "a long sum needs a workspace");
    exec.workspace = memory.data();
    exec.workspace_bytes = bytes;
    LATHE_RETURN_IF_ERROR(status_of(lathe_execute(kernel.get(), args, 3, &exec, &error_), error_));
    LATHE_RETURN_IF_ERROR(first_->finish());
    LATHE_RETURN_IF_ERROR(all[2].down(*first_));
    bool right = true;
    for (int64_t n = 0; n < kColumns; ++n) {  // of whole numbers, exact in any order
      double want = 0;
      for (int64_t k = 0; k < kTerms; ++k)
        want += all[0].host()[static_cast<size_t>(k)] * all[1].host()[static_cast<size_t>(n * kTerms + k)];
      right &= all[2].host()[static_cast<size_t>(n)] == want;
    }
    expect(right, "a long sum");
    return {};
  }

  // What a call takes of the host: it launches one kernel.
  Status times(nlohmann::json& line) {
    const bool emulated = first_->device()->driver().emulated;
    const int calls = emulated ? 10 : 1000, rounds = emulated ? 2 : 9;
    LATHE_ASSIGN(const std::unique_ptr<Pair> p, pair(1, 1));
    LATHE_ASSIGN(const Owned<lathe_pinned> pinned, pin(*p));
    const lathe_exec exec = on(*first_);
    const auto best = [&](const std::function<lathe_status()>& call) -> Result<double> {
      using Clock = std::chrono::steady_clock;
      double least = HUGE_VAL;
      for (int r = 0; r < rounds; ++r) {
        const Clock::time_point start = Clock::now();
        for (int i = 0; i < calls; ++i) LATHE_RETURN_IF_ERROR(status_of(call(), error_));
        least = std::min(least, std::chrono::duration<double, std::micro>(Clock::now() - start).count() / calls);
        LATHE_RETURN_IF_ERROR(first_->finish());
      }
      return least;
    };
    LATHE_ASSIGN(line["execute_us"], best([&] { return lathe_execute(kernel_.get(), p->args, 2, &exec, &error_); }));
    LATHE_ASSIGN(line["pinned_us"], best([&] { return lathe_pinned_run(pinned.get(), p->data, &exec); }));
    return {};
  }

  const std::shared_ptr<DeviceSession> first_, second_;
  const int number_;
  lathe_error error_{};
  Owned<lathe_context> ctx_;
  Owned<lathe_graph> relu_;
  Owned<lathe_kernel> kernel_;
  int checked_ = 0;
  std::vector<std::string> failures_;
};

Status check(const std::string& cuda, int number, nlohmann::json& line, bool* failed) {
  LATHE_ASSIGN(const std::shared_ptr<CudaDevice> device, cuda_device(cuda, number));
  LATHE_ASSIGN(std::unique_ptr<DeviceSession> first, DeviceSession::open(device));
  LATHE_ASSIGN(std::unique_ptr<DeviceSession> second, DeviceSession::open(device));
  line["gpu"] = device->target().name;
  line["emulated"] = device->driver().emulated;
  Calls calls(std::move(first), std::move(second), number);
  LATHE_RETURN_IF_ERROR(calls.run(line));
  *failed = calls.failed();
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"The C interface on a GPU; further options are Lathe's, from the environment"};
  std::string cuda;
  int number = 0;
  app.add_option("--device", number, "Number of the CUDA device");
  app.add_option("--cuda", cuda, "The driver's library, the same as LATHE_CUDA");
  CLI11_PARSE(app, argc, argv);
  nlohmann::json line = {{"schema", "lathe-calls-1"}, {"event", "summary"}};
  bool failed = false;
  const Status done = check(cuda, number, line, &failed);
  if (!done.ok()) {
    line["event"] = "error";
    line["message"] = done.to_string();
  }
  std::puts(line.dump().c_str());
  return done.ok() && !failed ? 0 : 1;
}
