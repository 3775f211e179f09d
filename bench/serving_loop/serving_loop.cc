// The linear, row and elementwise operators of a layer of smollm2-135m, over and over on one thread, while another host
// thread keeps a second CPU busy. Blocks with tuning on alternate with blocks without, and every other block without is
// the control: the ratio of its 99th percentile to the other ones' is what chance makes. Uses the C ABI only, an empty
// store, real calls for trials.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "include/lathe.h"

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const lathe_error& error) {
  std::fprintf(stderr, "%s %s: %s\n", lathe_status_name(error.code), error.arg_name, error.message);
  std::exit(1);
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// One operator with its operands; constants packed as the kernel likes them.
class Operator {
 public:
  struct Arg {
    std::vector<int64_t> shape;
    bool constant = false;
  };
  // Inputs in order; the last one is the output.
  Operator(lathe_context* ctx, const char* name, int64_t rows, std::vector<Arg> args)
      : rows_(rows), args_(std::move(args)) {
    lathe_error e{};
    if (lathe_graph_create(ctx, name, &graph_, &e) != LATHE_STATUS_OK) fail(e);
  }
  ~Operator() {
    lathe_kernel_destroy(kernel_);
    lathe_graph_destroy(graph_);
    for (void* p : memory_) std::free(p);
  }
  Operator(const Operator&) = delete;

  // Declares the inputs; dimensions of 0 are the symbol M.
  std::vector<int32_t> declare() {
    std::vector<int32_t> ids;
    for (size_t i = 0; i + 1 < args_.size(); ++i) {
      std::vector<lathe_dim> dims;
      for (const int64_t size : args_[i].shape)
        dims.push_back(size == 0 ? lathe_dim{1, 64, 1, "M", &hint_, 1} : lathe_dim{size, size, 1, nullptr, nullptr, 0});
      const std::string name = "a" + std::to_string(i);
      lathe_tensor_desc d = LATHE_TENSOR_DESC_INIT;
      d.name = name.c_str();
      d.ndim = static_cast<int32_t>(dims.size());
      d.dims = dims.data();
      d.flags = args_[i].constant ? uint32_t{LATHE_TENSOR_CONST} : 0u;
      lathe_error e{};
      ids.emplace_back();
      if (lathe_graph_tensor(graph_, &d, &ids.back(), &e) != LATHE_STATUS_OK) fail(e);
    }
    return ids;
  }
  int32_t node(const char* op, const std::vector<int32_t>& inputs, const char* out,
               const std::vector<lathe_attr>& attrs = {}) {
    int32_t id = 0;
    lathe_error e{};
    if (lathe_graph_op(graph_, op, inputs.data(), inputs.size(), attrs.data(), attrs.size(), out, &id, &e) !=
        LATHE_STATUS_OK)
      fail(e);
    return id;
  }
  void finish(lathe_context* ctx, int32_t output) {
    lathe_error e{};
    if (lathe_graph_output(graph_, output, &e) != LATHE_STATUS_OK || lathe_graph_finish(graph_, &e) != LATHE_STATUS_OK)
      fail(e);
    if (lathe_resolve(ctx, graph_, nullptr, &kernel_, nullptr, &e) != LATHE_STATUS_OK) fail(e);
    for (size_t i = 0; i < args_.size(); ++i) {
      int64_t count = 1;
      for (int64_t& size : args_[i].shape) count *= size = size == 0 ? rows_ : size;
      auto* data = static_cast<float*>(reserve(static_cast<size_t>(count) * 4));
      for (int64_t n = 0; n < count; ++n)
        data[n] = static_cast<float>((n * 7 + static_cast<int64_t>(i)) % 13) * 0.125f - 0.75f;
      tensors_.push_back(
          {data, {1, 0}, static_cast<int32_t>(args_[i].shape.size()), {2, 32, 1}, args_[i].shape.data(), nullptr, 0});
    }
    for (size_t i = 0; i < args_.size(); ++i) {
      uint64_t layout = 0;
      lathe_pack_info info{};
      const auto number = static_cast<int32_t>(i);
      if (args_[i].constant && lathe_prepack_query(kernel_, number, &info, &e) == LATHE_STATUS_OK && info.bytes != 0) {
        void* packed = reserve(info.bytes);
        if (lathe_prepack(kernel_, number, &tensors_[i], packed, info.bytes, &e) != LATHE_STATUS_OK) fail(e);
        tensors_[i].data = packed;
        layout = info.layout_id;
      }
      call_.push_back({&tensors_[i], 0, 0, 0, layout});
    }
    uint64_t bytes = 0;
    if (lathe_workspace_bytes(kernel_, call_.data(), call_.size(), 1, &bytes, &e) != LATHE_STATUS_OK) fail(e);
    exec_ = LATHE_EXEC_INIT;
    exec_.workspace_bytes = bytes;
    if (bytes != 0) exec_.workspace = reserve(bytes);
  }
  void run() {
    lathe_error e{};
    if (lathe_execute(kernel_, call_.data(), call_.size(), &exec_, &e) != LATHE_STATUS_OK) fail(e);
  }

 private:
  void* reserve(size_t bytes) {
    memory_.push_back(std::aligned_alloc(64, (bytes + 127) / 64 * 64));
    return memory_.back();
  }
  int64_t rows_;
  std::vector<Arg> args_;
  lathe_hint hint_{rows_, 1};
  lathe_graph* graph_ = nullptr;
  lathe_kernel* kernel_ = nullptr;
  std::vector<lathe_tensor> tensors_;
  std::vector<lathe_arg> call_;
  std::vector<void*> memory_;
  lathe_exec exec_{};
};

lathe_attr flag(const char* name) {
  lathe_attr a{};
  a.name = name;
  a.type = LATHE_ATTR_BOOL;
  a.i = 1;
  return a;
}

std::vector<std::unique_ptr<Operator>> decode_step(lathe_context* ctx, int64_t rows) {
  std::vector<std::unique_ptr<Operator>> out;
  const auto add = [&](const char* name, std::vector<Operator::Arg> args, auto&& body) {
    out.push_back(std::make_unique<Operator>(ctx, name, rows, std::move(args)));
    const std::vector<int32_t> in = out.back()->declare();
    out.back()->finish(ctx, body(*out.back(), in));
  };
  const auto linear = [&](const char* name, int64_t from, int64_t to) {
    add(name, {{{0, from}}, {{to, from}, true}, {{0, to}}},
        [](Operator& o, const auto& in) { return o.node("matmul", {in[0], in[1]}, "y", {flag("transpose_b")}); });
  };
  add("norm", {{{0, 576}}, {{576}, true}, {{0, 576}}},
      [](Operator& o, const auto& in) { return o.node("rmsnorm", {in[0], in[1]}, "y"); });
  linear("q_proj", 576, 576);
  linear("kv_proj", 576, 192);
  add("softmax", {{{0, 9, 128}}, {{0, 9, 128}}},
      [](Operator& o, const auto& in) { return o.node("softmax", {in[0]}, "y"); });
  linear("o_proj", 576, 576);
  add("residual", {{{0, 576}}, {{0, 576}}, {{0, 576}}},
      [](Operator& o, const auto& in) { return o.node("add", {in[0], in[1]}, "y"); });
  linear("gate_proj", 576, 1536);
  linear("up_proj", 576, 1536);
  add("swiglu", {{{0, 1536}}, {{0, 1536}}, {{0, 1536}}},
      [](Operator& o, const auto& in) { return o.node("mul", {o.node("silu", {in[0]}, "s"), in[1]}, "y"); });
  linear("down_proj", 1536, 576);
  return out;
}

uint64_t counter(const lathe_context* ctx, const char* name) {
  uint64_t value = 0;
  lathe_error e{};
  if (lathe_stats(ctx, name, &value, &e) != LATHE_STATUS_OK) fail(e);
  return value;
}

double percentile(std::vector<float> values, double p) {
  if (values.empty()) return 0;
  const auto at = static_cast<size_t>(p * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

struct Kind {
  std::vector<float> steps;      // us
  std::vector<double> p50, p99;  // by block
  double seconds = 0;
};

}  // namespace

int main(int argc, char** argv) {
  int blocks = 20, rows = 8, budget = 2;
  double block_s = 4;
  bool json = false;
  std::string worker = LATHE_WORKER_PATH;
  CLI::App app("Serving with tuning on and off in turns");
  app.add_option("--blocks", blocks, "blocks of each kind: on, off, control")->check(CLI::Range(2, 1000));
  app.add_option("--seconds", block_s, "of a block");
  app.add_option("--rows", rows, "sequences decoded together")->check(CLI::Range(1, 64));
  app.add_option("--budget", budget, "per cent of one CPU for tuning")->check(CLI::Range(1, 100));
  app.add_option("--worker", worker, "the measuring worker; else the one of this build");
  app.add_flag("--json", json, "one object on standard output");
  CLI11_PARSE(app, argc, argv);

  std::string store = (std::filesystem::temp_directory_path() / "lathe-serving-XXXXXX").string();
  if (mkdtemp(store.data()) == nullptr) return 1;
  const lathe_layer layer = {store.c_str(), LATHE_LAYER_SHARED, 0};
  lathe_context_options options = LATHE_CONTEXT_OPTIONS_INIT;
  options.layers = &layer;
  options.num_layers = 1;
  options.tune = LATHE_TUNE_OFF;
  options.tune_cpu = static_cast<uint32_t>(budget);
  options.worker_path = worker.c_str();
  lathe_context* ctx = nullptr;
  lathe_error e{};
  if (lathe_context_create(&options, &ctx, &e) != LATHE_STATUS_OK) fail(e);
  std::atomic<bool> stop{false};
  std::thread busy([&stop] {
    volatile double x = 1;
    while (!stop.load(std::memory_order_relaxed)) x = x * 1.0000001 + 1e-9;
  });
  std::map<std::string, Kind> kinds;
  std::vector<double> on_ratio, control_ratio;  // of neighbours
  nlohmann::json timeline = nlohmann::json::array();
  {
    const std::vector<std::unique_ptr<Operator>> step = decode_step(ctx, rows);
    for (int i = 0; i < 200; ++i) {
      for (const auto& op : step) op->run();
    }
    double last_p99[3] = {};
    for (int b = 0; b < 3 * blocks; ++b) {
      const int cycle = b / 3, turn = cycle % 2 == 0 ? b % 3 : 2 - b % 3;  // off on control, control on off, ...
      const char* name = turn == 0 ? "off" : turn == 1 ? "on" : "control";
      if (lathe_tune_mode(ctx, turn == 1 ? LATHE_TUNE_TRIALS : LATHE_TUNE_OFF, &e) != LATHE_STATUS_OK) fail(e);
      std::vector<float> times;
      const Clock::time_point start = Clock::now();
      Clock::time_point last = start;
      while (std::chrono::duration<double>(last - start).count() < block_s) {
        for (const auto& op : step) op->run();
        const Clock::time_point now = Clock::now();
        times.push_back(std::chrono::duration<float, std::micro>(now - last).count());
        last = now;
      }
      Kind& kind = kinds[name];
      kind.seconds += seconds_since(start);
      kind.p50.push_back(percentile(times, 0.5));
      kind.p99.push_back(last_p99[turn] = percentile(times, 0.99));
      kind.steps.insert(kind.steps.end(), times.begin(), times.end());
      if (b % 3 == 2) {
        on_ratio.push_back(last_p99[1] / ((last_p99[0] + last_p99[2]) / 2));
        control_ratio.push_back(last_p99[2] / last_p99[0]);
      }
      timeline.push_back({{"kind", name},
                          {"p50", kind.p50.back()},
                          {"p99", kind.p99.back()},
                          {"active", counter(ctx, "promotions_active")}});
    }
  }
  stop = true;
  busy.join();
  nlohmann::json out = {{"schema", "lathe-serving-loop-1"},
                        {"blocks", blocks},
                        {"seconds", block_s},
                        {"rows", rows},
                        {"budget_percent", budget}};
  for (const char* name : {"proposed", "verified", "faster", "shadow", "canary", "active", "rejected", "tie",
                           "quarantined", "rolled_back"}) {
    out["promotions"][name] = counter(ctx, (std::string("promotions_") + name).c_str());
  }
  for (const auto& [name, k] : kinds) {
    out[name] = {{"steps", k.steps.size()},
                 {"p50_us", percentile(k.steps, 0.5)},
                 {"p99_us", percentile(k.steps, 0.99)},
                 {"p999_us", percentile(k.steps, 0.999)}};
  }
  out["p99_on_to_off"] = median(on_ratio);
  out["p99_control_to_off"] = median(control_ratio);
  out["p50_first_to_last_off"] = kinds["off"].p50.front() / kinds["off"].p50.back();
  out["tune_cpu_s"] = static_cast<double>(counter(ctx, "tune_cpu_ns")) * 1e-9;
  out["tune_cpu_share"] = out["tune_cpu_s"].get<double>() / kinds["on"].seconds;
  out["measurements"] = counter(ctx, "measurements");
  if (json) {
    out["timeline"] = timeline;
    std::printf("%s\n", out.dump().c_str());
  } else {
    for (const auto& [name, k] : kinds) {
      std::printf("%-8s %9zu steps  p50 %8.2f us  p99 %8.2f us  p99.9 %8.2f us\n", name.c_str(), k.steps.size(),
                  percentile(k.steps, 0.5), percentile(k.steps, 0.99), percentile(k.steps, 0.999));
    }
    std::printf(
        "p99, block by block: on to off %.4f, control to off %.4f; p50 of the first off block to the last %.3f\n",
        median(on_ratio), median(control_ratio), kinds["off"].p50.front() / kinds["off"].p50.back());
    std::printf("promotions %s\ntuning used %.3f s of CPU, %.4f of one CPU while on\n",
                out["promotions"].dump().c_str(), out["tune_cpu_s"].get<double>(), out["tune_cpu_share"].get<double>());
  }
  lathe_context_destroy(ctx);
  std::filesystem::remove_all(store);
  return 0;
}
