// Rows on a device, through the C ABI and the fakes: softmax, norms, sums, means and maxima at odd sizes, against f64
// within the tolerances of the oracle (runtime/oracle/tolerances.def).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <limits>

#include "tests/gpu/served_chain.h"
#include "tests/gpu/served_op.h"

namespace lathe::test {
namespace {

using Row = std::vector<double>;

struct RowOp {
  const char* op;
  int operands;  // of the row's length: the row, a scale, a bias
  double relative;
  enum class Floor { none, mean, most } floor;
  std::function<Row(const Row&, const Row&, const Row&)> reference;
};

double sum(const Row& x) {
  double s = 0;
  for (const double v : x) s += v;
  return s;
}

Row softmax(const Row& x, const Row&, const Row&) {
  Row out = x;
  const double m = *std::max_element(x.begin(), x.end());
  for (double& v : out) v = std::exp(v - m);
  const double s = sum(out);
  for (double& v : out) v /= s;
  return out;
}
Row norm(const Row& x, const Row& g, const Row& h, bool centred) {
  Row out = x;
  const auto n = static_cast<double>(x.size());
  const double u = centred ? sum(x) / n : 0;
  double v = 0;
  for (double& e : out) e -= u, v += e * e;
  for (size_t i = 0; i < x.size(); ++i) {
    out[i] *= 1 / std::sqrt(v / n + static_cast<double>(1e-5f));
    if (!g.empty()) out[i] *= g[i];
    if (!h.empty()) out[i] += h[i];
  }
  return out;
}

const std::vector<RowOp>& row_ops() {
  static const auto& ops = *new std::vector<RowOp>{
      {"softmax", 1, 1.2e-6, RowOp::Floor::mean, softmax},
      {"rmsnorm", 2, 5e-7, RowOp::Floor::most,
       [](const Row& x, const Row& g, const Row& h) { return norm(x, g, h, false); }},
      {"layernorm", 3, 5e-7, RowOp::Floor::most,
       [](const Row& x, const Row& g, const Row& h) { return norm(x, g, h, true); }},
      {"sum", 1, 5e-7, RowOp::Floor::none, [](const Row& x, const Row&, const Row&) { return Row{sum(x)}; }},
      {"mean", 1, 5e-7, RowOp::Floor::none,
       [](const Row& x, const Row&, const Row&) { return Row{sum(x) / static_cast<double>(x.size())}; }},
      {"max", 1, 0, RowOp::Floor::none,
       [](const Row& x, const Row&, const Row&) {
         return Row{x.empty() ? -std::numeric_limits<double>::infinity() : *std::max_element(x.begin(), x.end())};
       }},
  };
  return ops;
}

Row row_of(const TensorOf& t, int64_t row, int64_t columns) {
  Row out;
  for (int64_t i = 0; i < columns; ++i) out.push_back(static_cast<double>(t.floats()[row * columns + i]));
  return out;
}

// Values of both signs, none of which is exact.
void fill(const TensorOf& t, int seed) {
  uint32_t state = 77u + static_cast<uint32_t>(seed);
  for (size_t i = 0; i < t.count; ++i) {
    state = state * 1664525u + 1013904223u;
    t.floats()[i] = static_cast<float>(state >> 8) / static_cast<float>(1 << 22) - 2.0f;
  }
}

void expect_rows(const RowOp& op, lathe_kernel* kernel, int64_t rows, int64_t columns, size_t room) {
  SCOPED_TRACE(std::string(op.op) + " " + std::to_string(rows) + " x " + std::to_string(columns));
  std::vector<std::unique_ptr<TensorOf>> tensors;
  tensors.push_back(std::make_unique<TensorOf>(ArgOf{{rows, columns}}, true, room));
  for (int i = 1; i < op.operands; ++i) tensors.push_back(std::make_unique<TensorOf>(ArgOf{{columns}}, true, room));
  for (size_t i = 0; i < tensors.size(); ++i) fill(*tensors[i], static_cast<int>(i));
  const bool full = op.floor != RowOp::Floor::none;
  tensors.push_back(std::make_unique<TensorOf>(full ? ArgOf{{rows, columns}} : ArgOf{{rows}}, true, room));
  std::vector<lathe_arg> args;
  for (const auto& t : tensors) args.push_back(t->arg());
  const lathe_exec exec = on_stream();
  lathe_error e;
  ASSERT_EQ(lathe_execute(kernel, args.data(), args.size(), &exec, &e), LATHE_STATUS_OK)
      << e.message << fake_gpu().state.why;
  const Row g = op.operands > 1 ? row_of(*tensors[1], 0, columns) : Row{},
            h = op.operands > 2 ? row_of(*tensors[2], 0, columns) : Row{};
  for (int64_t r = 0; r < rows; ++r) {
    const Row x = row_of(*tensors[0], r, columns), want = op.reference(x, g, h);
    double mean = 0, most = 0, magnitude = 0;
    for (const double w : want)
      mean += std::abs(w) / static_cast<double>(want.size()), most = std::max(most, std::abs(w));
    for (const double v : x) magnitude += std::abs(v);
    if (std::string(op.op) == "mean") magnitude /= static_cast<double>(std::max<int64_t>(columns, 1));
    const double floor = op.floor == RowOp::Floor::mean ? mean : op.floor == RowOp::Floor::most ? most : magnitude;
    // Short norms have the bound of their sums: the mean of few values may be far from them.
    const double relative = op.floor == RowOp::Floor::most && columns < 8 ? 1e-5 : op.relative;
    for (size_t i = 0; i < want.size(); ++i) {
      const double got = static_cast<double>(tensors.back()->floats()[static_cast<size_t>(r) * want.size() + i]);
      ASSERT_TRUE(want[i] == got || (std::isnan(want[i]) && std::isnan(got)) ||
                  std::abs(got - want[i]) <= relative * std::max(std::abs(want[i]), floor))
          << "row " << r << ", " << i << ": " << got << ", expected " << want[i];
    }
  }
  for (size_t i = tensors.back()->bytes; i < tensors.back()->all; ++i)
    ASSERT_EQ(tensors.back()->data[i], 0x5b) << "past the end";
}

Owned<lathe_graph> graph_of_rows(lathe_context* ctx, const RowOp& op, lathe_dim rows, lathe_dim columns) {
  std::vector<DescOf> inputs = {{{rows, columns}}};
  for (int i = 1; i < op.operands; ++i) inputs.push_back({{columns}});
  return single_graph(ctx, op.op, inputs);
}

class DeviceRows : public testing::Test {
  void TearDown() override { fake_gpu().state.order = Order::forward; }
};

TEST_F(DeviceRows, AnyLength) {
  const auto ctx = gpu_context();
  for (const RowOp& op : row_ops()) {
    const auto graph = graph_of_rows(ctx.get(), op, range("M", 0, 5000), range("N", 0, 100000));
    const auto kernel = served_on_device(ctx.get(), graph.get());
    ASSERT_NE(kernel, nullptr) << op.op;
    for (const int64_t m : {0, 1, 7, 129}) {
      for (const int64_t n : {1, 2, 3, 127, 128, 129})
        if (m < 129 || n > 127) expect_rows(op, kernel.get(), m, n, 0);
    }
    for (const int64_t n : {1000, 1025, 4097}) expect_rows(op, kernel.get(), 3, n, 4);
    expect_rows(op, kernel.get(), 1, 70000, 0);
  }
}

TEST_F(DeviceRows, LengthsInRegisters) {
  const auto ctx = gpu_context();
  for (const RowOp& op : row_ops()) {
    for (const int64_t n : {1, 2, 3, 127, 128, 129, 1000, 1025, 4097, 16384}) {
      const auto graph = graph_of_rows(ctx.get(), op, range("M", 0, 5000), fixed(n));
      const auto kernel = served_on_device(ctx.get(), graph.get());
      ASSERT_NE(kernel, nullptr) << op.op;
      for (const Order order : {Order::forward, Order::shuffled}) {
        fake_gpu().state.order = order;
        for (const int64_t m : {0, 1, 7}) expect_rows(op, kernel.get(), m, n, m == 7 ? 4 : 0);
        if (n < 200) expect_rows(op, kernel.get(), 129, n, 0);
      }
    }
  }
}

// Elements of 2 bytes of which no two neighbours lie together.
TEST_F(DeviceRows, NarrowRowsOfATurnedMatrix) {
  const auto ctx = gpu_context();
  constexpr int64_t kRows = 5, kColumns = 40;
  const std::vector<lathe_dim> dims = {fixed(kRows), fixed(kColumns)};
  int64_t strides[] = {1, kRows};
  for (const uint32_t dtype : {LATHE_DTYPE_F16, LATHE_DTYPE_BF16}) {
    lathe_tensor_desc input = desc("x", dims, 0, dtype);
    input.strides = strides;
    lathe_graph* made = nullptr;
    lathe_error e;
    ASSERT_EQ(lathe_graph_single(ctx.get(), "softmax", &input, 1, nullptr, 0, &made, &e), LATHE_STATUS_OK);
    const auto kernel = served_on_device(ctx.get(), Owned<lathe_graph>(made).get());
    ASSERT_NE(kernel, nullptr);
    const ArgOf arg = {{kRows, kColumns}, dtype};
    TensorOf x(arg, true), y(arg, true);
    x.fill(arg, 3);
    x.tensor.strides = strides;
    const std::vector<lathe_arg> args = {x.arg(), y.arg()};
    const lathe_exec exec = on_stream();
    ASSERT_EQ(lathe_execute(kernel.get(), args.data(), args.size(), &exec, &e), LATHE_STATUS_OK) << e.message;
    for (int64_t r = 0; r < kRows; ++r) {
      Row row;
      for (int64_t c = 0; c < kColumns; ++c) row.push_back(static_cast<double>(x.value(c * kRows + r)));
      const Row want = softmax(row, {}, {});
      for (int64_t c = 0; c < kColumns; ++c)
        ASSERT_NEAR(y.value(r * kColumns + c), want[c], 5e-3 * want[c]) << r << ", " << c;
    }
  }
}

// Each input is read once and the result written once, by accesses of 16 bytes.
TEST_F(DeviceRows, OneReadOneWrite) {
  const auto ctx = gpu_context();
  for (const RowOp& op : row_ops()) {
    const auto graph = graph_of_rows(ctx.get(), op, range("M", 0, 5000), fixed(1024));
    const auto kernel = served_on_device(ctx.get(), graph.get());
    ASSERT_NE(kernel, nullptr) << op.op;
    Accesses& a = fake_gpu().state.accesses;
    a = {};
    expect_rows(op, kernel.get(), 16, 1024, 0);
    const bool full = op.floor != RowOp::Floor::none;
    EXPECT_EQ(a.loads[2], 16 * 256 * op.operands) << op.op;
    EXPECT_EQ(a.loads[0] + a.loads[1] + a.stores[1], 0) << op.op;
    EXPECT_EQ(a.stores[2], full ? 16 * 256 : 0) << op.op;
    EXPECT_EQ(a.stores[0], full ? 0 : 16) << op.op;
  }
}

TEST_F(DeviceRows, WhatOneProcessCompiledAnotherServes) {
  struct Folder {
    std::filesystem::path path = std::filesystem::temp_directory_path() / ("lathe_rows_" + std::to_string(getpid()));
    ~Folder() { std::filesystem::remove_all(path); }
  } folder;
  for (const bool second : {false, true}) {
    const auto ctx = gpu_context(folder.path, second ? "/nonexistent/libnvrtc.so" : LATHE_FAKE_NVRTC);
    for (const RowOp& op : row_ops()) {
      const auto graph = graph_of_rows(ctx.get(), op, range("M", 0, 5000), fixed(1000));
      const auto kernel = served_on_device(ctx.get(), graph.get());
      ASSERT_NE(kernel, nullptr) << op.op;
      expect_rows(op, kernel.get(), 5, 1000, 0);
    }
    EXPECT_EQ(counter(ctx.get(), "compiled_nvrtc"), second ? 0u : row_ops().size());
  }
}

}  // namespace
}  // namespace lathe::test
