// Rows and elementwise chains of bf16 and f16 beside the same of f32, as a host calls them: default Schedules, one
// thread, in turns, every ratio one of the same round; f32's bytes a second as a share of memcpy's say whether memory
// is the limit.
//
//   narrow_types --isa avx512 --rounds 41
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "include/lathe.h"

namespace {

struct Type {
  const char* name;
  uint32_t header;
  uint8_t code, bits;
};
constexpr Type kTypes[] = {
    {"f32", LATHE_DTYPE_F32, 2, 32}, {"bf16", LATHE_DTYPE_BF16, 4, 16}, {"f16", LATHE_DTYPE_F16, 2, 16}};

// `operands` of the full shape; a second operator follows the first where it has a name.
struct Case {
  const char* name;
  const char* op;
  int operands;
  const char* then = "";  // of the result and the last operand, or of the result alone
  bool reduces = false;
};
constexpr Case kCases[] = {{"copy", "copy", 1},           {"add", "add", 2},
                           {"relu", "relu", 1},           {"gelu", "gelu", 1},
                           {"swiglu", "swiglu", 2},       {"mul_silu", "mul", 2, "silu"},
                           {"rmsnorm", "rmsnorm", 1},     {"add_rmsnorm", "add", 2, "rmsnorm"},
                           {"layernorm", "layernorm", 1}, {"softmax", "softmax", 1},
                           {"sum", "sum", 1, "", true}};

void check(lathe_status status, const lathe_error& e, const char* what) {
  if (status == LATHE_STATUS_OK) return;
  fmt::print(stderr, "{}: {}\n", what, e.message);
  std::exit(1);
}

// One case of one type, pinned to operands of its own.
class Run {
 public:
  Run(lathe_context* ctx, const Case& c, const Type& type, int64_t rows, int64_t columns) {
    lathe_error e{};
    lathe_graph* graph = nullptr;
    check(lathe_graph_create(ctx, c.name, &graph, &e), e, c.name);
    const lathe_dim dims[] = {{rows, rows, 1, nullptr, nullptr, 0}, {columns, columns, 1, nullptr, nullptr, 0}};
    std::vector<int32_t> ids(static_cast<size_t>(c.operands));
    const char* names[] = {"a", "b"};
    for (int i = 0; i < c.operands; ++i) {
      lathe_tensor_desc d = LATHE_TENSOR_DESC_INIT;
      d.name = names[i];
      d.dtype = type.header;
      d.ndim = 2;
      d.dims = dims;
      check(lathe_graph_tensor(graph, &d, &ids[static_cast<size_t>(i)], &e), e, c.name);
    }
    int32_t y = 0;
    check(lathe_graph_op(graph, c.op, ids.data(), ids.size(), nullptr, 0, "y", &y, &e), e, c.name);
    if (*c.then != 0) check(lathe_graph_op(graph, c.then, &y, 1, nullptr, 0, "z", &y, &e), e, c.name);
    check(lathe_graph_output(graph, y, &e), e, c.name);
    check(lathe_graph_finish(graph, &e), e, c.name);
    check(lathe_resolve(ctx, graph, nullptr, &kernel_, nullptr, &e), e, c.name);
    lathe_graph_destroy(graph);
    const size_t element = type.bits / 8u, full = static_cast<size_t>(rows * columns) * element;
    std::vector<lathe_arg> args;
    tensors_.resize(static_cast<size_t>(c.operands) + 1);
    shape_ = {rows, columns};
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const bool small = c.reduces && i + 1 == tensors_.size();
      const size_t size = small ? static_cast<size_t>(rows) * element : full;
      char* data = static_cast<char*>(std::aligned_alloc(64, (size + 63) / 64 * 64));
      // Small positive numbers of either type: bytes of bf16 1.5, of f16 1.5, of f32 1.5.
      const uint32_t bits = type.bits == 32 ? 0x3fc00000u : type.code == 4 ? 0x3fc03fc0u : 0x3e003e00u;
      for (size_t at = 0; at + 4 <= size; at += 4) std::memcpy(data + at, &bits, 4);
      memory_.emplace_back(data, &std::free);
      tensors_[i] = {data, {1, 0}, small ? 1 : 2, {type.code, type.bits, 1}, shape_.data(), nullptr, 0};
      args.push_back({&tensors_[i], size, 0, 0, 0});
      bytes_ += size;
    }
    check(lathe_pin(kernel_, args.data(), args.size(), 1, &pinned_, &e), e, c.name);
    const uint64_t workspace = lathe_pinned_workspace_bytes(pinned_);
    workspace_.reset(static_cast<char*>(std::aligned_alloc(64, (workspace + 127) / 64 * 64)));
    exec_.threads = 1;
    exec_.workspace = workspace_.get();
    exec_.workspace_bytes = workspace;
    for (const lathe_tensor& t : tensors_) data_.push_back(t.data);
  }
  ~Run() {
    lathe_pinned_destroy(pinned_);
    lathe_kernel_destroy(kernel_);
  }
  Run(const Run&) = delete;

  double seconds() {
    const auto start = std::chrono::steady_clock::now();
    lathe_pinned_run(pinned_, data_.data(), &exec_);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  double bytes() const { return static_cast<double>(bytes_); }

 private:
  using Memory = std::unique_ptr<char, decltype(&std::free)>;
  lathe_kernel* kernel_ = nullptr;
  lathe_pinned* pinned_ = nullptr;
  std::vector<int64_t> shape_;
  std::vector<lathe_tensor> tensors_;
  std::vector<void*> data_;
  lathe_exec exec_ = LATHE_EXEC_INIT;
  std::vector<Memory> memory_;
  Memory workspace_{nullptr, &std::free};
  size_t bytes_ = 0;
};

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  std::string isa = "avx512", only;
  int rounds = 21;
  int64_t rows = 4096, columns = 1024;
  CLI::App app("Rows and chains of bf16 and f16 beside f32");
  app.add_option("--isa", isa, "avx2 or avx512");
  app.add_option("--rounds", rounds, "of each case");
  app.add_option("--rows", rows, "");
  app.add_option("--columns", columns, "");
  app.add_option("--case", only, "this one");
  CLI11_PARSE(app, argc, argv);
  lathe_context_options options = LATHE_CONTEXT_OPTIONS_INIT;
  options.max_isa = isa.c_str();
  setenv("LATHE_CACHE", "off", 1);
  lathe_context* ctx = nullptr;
  lathe_error e{};
  check(lathe_context_create(&options, &ctx, &e), e, "context");
  const size_t size = static_cast<size_t>(rows * columns) * 4;
  std::vector<char> from(size, 1), to(size, 2);
  fmt::print("{} {}x{} one thread, median of {} rounds in turns\n", isa, rows, columns, rounds);
  fmt::print("{:<12} {:>8} {:>10} {:>10} {:>10}\n", "case", "f32 us", "of memcpy", "bf16/f32", "f16/f32");
  for (const Case& c : kCases) {
    if (!only.empty() && only != c.name) continue;
    std::vector<std::unique_ptr<Run>> runs;
    for (const Type& type : kTypes) runs.push_back(std::make_unique<Run>(ctx, c, type, rows, columns));
    std::vector<double> f32, share, ratio[2];
    for (int round = -2; round < rounds; ++round) {
      const auto start = std::chrono::steady_clock::now();
      std::memcpy(to.data(), from.data(), size);
      asm volatile("" ::: "memory");
      const double copied = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      double t[3];
      for (size_t i = 0; i < 3; ++i) t[i] = runs[i]->seconds();
      if (round < 0) continue;
      f32.push_back(t[0] * 1e6);
      share.push_back(runs[0]->bytes() / t[0] / (2 * static_cast<double>(size) / copied));
      for (size_t i = 0; i < 2; ++i) ratio[i].push_back(t[i + 1] / t[0]);
    }
    fmt::print("{:<12} {:>8.0f} {:>10.2f} {:>10.2f} {:>10.2f}\n", c.name, median(f32), median(share), median(ratio[0]),
               median(ratio[1]));
  }
  lathe_context_destroy(ctx);
}
