// Nanoseconds of a pinned call through the C ABI, operands in L1: tiny products, whose leaves take little longer than
// the call around them, and one vector of a function that takes none of it: what a call costs. Default Schedules, or
// those of the store (LATHE_CACHE_DIR). Each round has a sample of every row and a probe of the peak. Rows are those of
// `lathe bench --json`, so that bench/judge.py judges them.
//
//   build/release/bench/pinned_calls/pinned_calls --json > rows.jsonl
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "include/lathe.h"
#include "jit/host/host_cpu.h"
#include "runtime/base/clock.h"
#include "runtime/bench/bench.h"
#include "runtime/measure/machine_profile.h"
#include "runtime/oracle/data_sets.h"

namespace {

using lathe::runtime::now_us;

// Throws a text: this is a program of its own.
void check(const char* what, lathe_status status, const lathe_error& error) {
  if (status != LATHE_STATUS_OK)
    throw std::runtime_error(fmt::format("{}: {}: {}", what, lathe_status_name(status), error.message));
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

using Floats = std::unique_ptr<float, void (*)(void*)>;
Floats floats(int64_t count, uint64_t seed) {
  Floats out(static_cast<float*>(std::aligned_alloc(64, static_cast<size_t>(count * 4 + 63) / 64 * 64)), std::free);
  lathe::runtime::fill_tame(lathe::ir::DType::f32, seed, reinterpret_cast<char*>(out.get()), 4 * count);
  return out;
}

// y = op(x) or x w, w constant, everything n x n; one row where op is no product.
class Row {
 public:
  Row(lathe_context* context, const char* op, int64_t n) : op_(op), product_(op_ == "matmul"), n_(n) {
    const int64_t rows = product_ ? n : 1;
    flops = product_ ? 2.0 * static_cast<double>(n * n * n) : static_cast<double>(n);
    name = product_ ? fmt::format("tiny_{0}x{0}x{0}", n) : fmt::format("{}_{}", op, n);
    lathe_dim dims[2] = {{rows, rows, 1, nullptr, nullptr, 0}, {n, n, 1, nullptr, nullptr, 0}};
    lathe_tensor_desc descs[2] = {LATHE_TENSOR_DESC_INIT, LATHE_TENSOR_DESC_INIT};
    const size_t inputs = product_ ? 2 : 1;
    for (size_t i = 0; i < inputs; ++i) {
      descs[i].name = i == 0 ? "x" : "w";
      descs[i].ndim = 2;
      descs[i].dims = dims;
      descs[i].flags = i == 1 ? LATHE_TENSOR_CONST : 0;
    }
    lathe_error error = {};
    check("graph", lathe_graph_single(context, op, descs, inputs, nullptr, 0, &graph_, &error), error);
    check("resolve", lathe_resolve(context, graph_, nullptr, &kernel_, nullptr, &error), error);
    const int64_t shape[2] = {rows, n};
    std::vector<lathe_tensor> tensors(inputs + 1);
    std::vector<lathe_arg> args(inputs + 1);
    for (size_t i = 0; i <= inputs; ++i) {
      operands_.push_back(floats(rows * n, i));
      tensors[i].data = operands_[i].get();
      tensors[i].device.type = 1;
      tensors[i].dtype = {2, 32, 1};
      tensors[i].ndim = 2;
      tensors[i].shape = const_cast<int64_t*>(shape);
      args[i].tensor = &tensors[i];
    }
    if (product_) {
      lathe_pack_info info = {};
      check("prepack_query", lathe_prepack_query(kernel_, 1, &info, &error), error);
      if (info.bytes > 0) {
        Floats packed = floats(static_cast<int64_t>(info.bytes / 4), 0);
        check("prepack", lathe_prepack(kernel_, 1, &tensors[1], packed.get(), info.bytes, &error), error);
        args[1].layout_id = info.layout_id;
        operands_[1] = std::move(packed);
        tensors[1].data = operands_[1].get();
      }
    }
    check("pin", lathe_pin(kernel_, args.data(), args.size(), 1, &pinned_, &error), error);
    exec_.workspace_bytes = lathe_pinned_workspace_bytes(pinned_);
    workspace_ = floats(static_cast<int64_t>(exec_.workspace_bytes / 4) + 16, 9);
    exec_.workspace = workspace_.get();
    for (const Floats& o : operands_) data_.push_back(o.get());
  }
  Row(const Row&) = delete;
  ~Row() {
    lathe_pinned_destroy(pinned_);
    lathe_kernel_destroy(kernel_);
    lathe_graph_destroy(graph_);
  }

  // us of a call, the least of three runs.
  double sample() {
    double best = 1e30;
    for (int again = 0; again < 3; ++again) {
      const double begin = now_us();
      for (int64_t i = 0; i < reps_; ++i) run();
      best = std::min(best, (now_us() - begin) / static_cast<double>(reps_));
    }
    reps_ = static_cast<int64_t>(100 / best) + 1;
    return best;
  }

  std::string name;
  double flops = 0;
  std::vector<double> us, of_peak;

 private:
  void run() { (void)lathe_pinned_run(pinned_, data_.data(), exec_.workspace_bytes == 0 ? nullptr : &exec_); }

  std::string op_;
  bool product_;
  int64_t n_, reps_ = 1000;
  std::vector<Floats> operands_;
  Floats workspace_{nullptr, std::free};
  std::vector<void*> data_;
  lathe_graph* graph_ = nullptr;
  lathe_kernel* kernel_ = nullptr;
  lathe_pinned* pinned_ = nullptr;
  lathe_exec exec_ = LATHE_EXEC_INIT;
};

int run(int rounds, bool json) {
  const lathe::runtime::PinnedThread pinned(true);
  lathe_context* context = nullptr;
  lathe_error error = {};
  check("context", lathe_context_create(nullptr, &context, &error), error);
  std::vector<std::unique_ptr<Row>> rows;
  rows.push_back(std::make_unique<Row>(context, "relu", 16));
  for (const int64_t n : {8, 16, 24, 32, 48, 64, 96, 128}) rows.push_back(std::make_unique<Row>(context, "matmul", n));
  lathe::runtime::MachineProbe probe;
  const lathe::ir::IsaLevel level = lathe::jit::host_target().level;
  for (int round = -1; round < rounds; ++round) {
    const double peak = probe.fma_peak_gflops(level);
    for (const auto& row : rows) {
      const double us = row->sample();
      if (round < 0) continue;
      row->us.push_back(us);
      row->of_peak.push_back(row->flops / us * 1e-3 / peak);
    }
  }
  for (const auto& row : rows) {
    const double us = median(row->us), of_peak = median(row->of_peak);
    if (json) {
      fmt::print("{}\n", nlohmann::json{{"event", "row"}, {"op", row->name}, {"us", us}, {"of_peak", of_peak}}.dump());
    } else {
      fmt::print("{:<20} {:>9.1f} ns  {:.3f} of peak\n", row->name, us * 1e3, of_peak);
    }
  }
  rows.clear();
  lathe_context_destroy(context);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Nanoseconds of pinned calls of tiny products."};
  int rounds = 15;
  bool json = false;
  app.add_option("--rounds", rounds, "turns of all rows")->check(CLI::Range(1, 1000));
  app.add_flag("--json", json, "one object per line");
  CLI11_PARSE(app, argc, argv);
  try {
    return run(rounds, json);
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
