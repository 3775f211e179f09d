// Weights of few bits through the C ABI, on every level: dequantize gives the bits of the format's definition,
// quantized_matmul multiplies by them, packed and as they lie; calls that do not fit are refused by name.
#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "tests/common/c_client.h"
#include "tests/common/quant_blocks.h"

namespace lathe::test {
namespace {

constexpr const char* kLevels[] = {"portable", "avx2", "avx512"};

// op of the weight, and of rows `a` of a product, at this level; packed: its constant in its packed form.
std::vector<float> run(const char* level, bool packed, const std::string& format, Weight& w, Floats* a,
                       lathe_policy policy = LATHE_POLICY_INIT, uint32_t* used = nullptr) {
  const auto ctx = make_context(level);
  const std::vector<lathe_dim> rows = {range("M", 1, 64), fixed(w.k)}, blocks = {fixed(w.n), fixed(w.row_bytes)};
  std::vector<lathe_tensor_desc> inputs;
  if (a != nullptr) inputs.push_back(desc("a", rows));
  inputs.push_back(desc("w", blocks, LATHE_TENSOR_CONST, LATHE_DTYPE_U8));
  const lathe_attr attr = text_attr("format", format.c_str());
  lathe_graph* made = nullptr;
  lathe_error e;
  EXPECT_EQ(lathe_graph_single(ctx.get(), a != nullptr ? "quantized_matmul" : "dequantize", inputs.data(),
                               inputs.size(), &attr, 1, &made, &e),
            LATHE_STATUS_OK)
      << e.message;
  const Owned<lathe_graph> graph(made);
  lathe_kernel* resolved = nullptr;
  lathe_kernel_info about = LATHE_KERNEL_INFO_INIT;
  EXPECT_EQ(lathe_resolve(ctx.get(), graph.get(), &policy, &resolved, &about, &e), LATHE_STATUS_OK) << e.message;
  const Owned<lathe_kernel> kernel(resolved);
  if (kernel == nullptr) return {};
  if (used != nullptr) *used = about.numeric_class;
  std::vector<int64_t> shape = {w.n, w.row_bytes};
  lathe_tensor blocks_of = {w.bytes.data(), {1, 0}, 2, {1, 8, 1}, shape.data(), nullptr, 0};
  lathe_arg weight = {&blocks_of, w.bytes.size(), 0, 0, 0};
  const int32_t number = a != nullptr ? 1 : 0;
  lathe_pack_info info{};
  EXPECT_EQ(lathe_prepack_query(kernel.get(), number, &info, &e), LATHE_STATUS_OK) << e.message;
  const Aligned room(static_cast<size_t>(info.bytes) + 64);
  if (packed && info.layout_id != 0) {
    EXPECT_LE(static_cast<double>(info.bytes), 1.06 * static_cast<double>((w.n + 31) / 32 * 32 * w.row_bytes) + 256);
    EXPECT_EQ(lathe_prepack(kernel.get(), number, &blocks_of, room.memory, info.bytes, &e), LATHE_STATUS_OK)
        << e.message;
    weight.layout_id = info.layout_id;
    blocks_of.data = room.memory;
    weight.bytes = info.bytes;
  }
  const int64_t m = a != nullptr ? a->shape[0] : w.n;
  Floats y({m, a != nullptr ? w.n : w.k}, NAN);
  std::vector<lathe_arg> args;
  if (a != nullptr) args.push_back(a->arg());
  args.push_back(weight);
  args.push_back(y.arg());
  EXPECT_EQ(execute(kernel.get(), args, &e), LATHE_STATUS_OK) << e.message;
  return y.data;
}

TEST(CapiQuantised, DequantizeGivesTheBitsOfTheFormat) {
  for (auto& [name, format] : formats()) {
    Weight w(format, 5, 3);
    for (const char* level : kLevels) {
      const std::vector<float> y = run(level, false, name, w, nullptr);
      ASSERT_EQ(y.size(), w.values.size()) << name;
      for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], w.values[i]) << name << " at " << level << ", weight " << i;
    }
  }
}

TEST(CapiQuantised, QuantizedGatherGivesRowsOfTheFormat) {
  for (auto& [name, format] : formats()) {
    Weight w(format, 9, 2);
    for (const char* level : kLevels) {
      SCOPED_TRACE(name + " at " + level);
      const auto ctx = make_context(level);
      const std::vector<lathe_dim> blocks = {range("P", 1, 100), fixed(w.row_bytes)}, at = {range("T", 0, 64)};
      const lathe_tensor_desc inputs[] = {desc("w", blocks, 0, LATHE_DTYPE_U8), desc("ids", at, 0, LATHE_DTYPE_I32)};
      const lathe_attr attr = text_attr("format", name.c_str());
      lathe_graph* made = nullptr;
      lathe_error e;
      ASSERT_EQ(lathe_graph_single(ctx.get(), "quantized_gather", inputs, 2, &attr, 1, &made, &e), LATHE_STATUS_OK)
          << e.message;
      const auto kernel = resolve(ctx.get(), Owned<lathe_graph>(made).get());
      int32_t ids[] = {8, 0, 3, 3, 8};
      std::vector<int64_t> shape = {w.n, w.row_bytes}, count = {5};
      lathe_tensor bytes = {w.bytes.data(), {1, 0}, 2, {1, 8, 1}, shape.data(), nullptr, 0},
                   rows = {ids, {1, 0}, 1, {0, 32, 1}, count.data(), nullptr, 0};
      Floats y({5, w.k}, 77);
      const lathe_arg args[] = {{&bytes, w.bytes.size(), 0, 0, 0}, {&rows, sizeof ids, 0, 0, 0}, y.arg()};
      ids[3] = 9;
      EXPECT_EQ(lathe_execute(kernel.get(), args, 3, nullptr, &e), LATHE_STATUS_INVALID);
      EXPECT_STREQ(e.message, "ids[3]: 9, expected 0..8");
      EXPECT_EQ(y.data, std::vector<float>(y.data.size(), 77));
      ids[3] = 3;
      ASSERT_EQ(lathe_execute(kernel.get(), args, 3, nullptr, &e), LATHE_STATUS_OK) << e.message;
      for (size_t i = 0; i < y.data.size(); ++i) {
        const auto k = static_cast<size_t>(w.k);
        ASSERT_EQ(y.data[i], w.values[static_cast<size_t>(ids[i / k]) * k + i % k]) << i;
      }
    }
  }
}

TEST(CapiQuantised, ProductsOfEveryFormatPackedAndAsTheyLie) {
  for (auto& [name, format] : formats()) {
    for (const int64_t n : {int64_t{1}, int64_t{31}, int64_t{70}}) {
      Weight w(format, n, 2);
      for (const int64_t m : {1, 5}) {
        Floats a({m, w.k});
        a.numbers(3);
        for (const char* level : kLevels) {
          for (const bool packed : {false, true}) {
            if (!packed && n == 70) continue;  // slow, and nothing new
            SCOPED_TRACE(fmt::format("{} {}x{}x{} {} {}", name, m, n, w.k, level, packed ? "packed" : "plain"));
            const std::vector<float> y = run(level, packed, name, w, &a);
            ASSERT_EQ(y.size(), static_cast<size_t>(m * n));
            for (int64_t i = 0; i < m * n; ++i) {
              double want = 0, size = 0;
              for (int64_t k = 0; k < w.k; ++k) {
                const double term = static_cast<double>(a.data[static_cast<size_t>(i / n * w.k + k)]) *
                                    w.values[static_cast<size_t>(i % n * w.k + k)];
                want += term;
                size += std::abs(term);
              }
              ASSERT_NEAR(y[static_cast<size_t>(i)], want, 1e-6 * size + 1e-30) << i;
            }
          }
        }
      }
    }
  }
}

// Quantised activations: only where the policy allows them, and then the kernel says so.
TEST(CapiQuantised, QuantisedActivationsAreTheCallersChoice) {
  for (auto& [name, format] : formats()) {
    Weight w(format, 70, 4);
    Floats a({3, w.k});
    a.numbers(5);
    for (const char* level : kLevels) {
      SCOPED_TRACE(fmt::format("{} {}", name, level));
      uint32_t used = 0;
      const std::vector<float> exact = run(level, true, name, w, &a, LATHE_POLICY_INIT, &used);
      EXPECT_EQ(used & LATHE_CLASS_QUANTISED_ACTIVATIONS, 0u);
      lathe_policy policy = LATHE_POLICY_INIT;
      policy.allowed = LATHE_CLASS_REASSOCIATE | LATHE_CLASS_CONTRACT | LATHE_CLASS_QUANTISED_ACTIVATIONS;
      const std::vector<float> bytes = run(level, true, name, w, &a, policy, &used);
      EXPECT_NE(used & LATHE_CLASS_QUANTISED_ACTIVATIONS, 0u);
      double error = 0, size = 0;
      for (size_t i = 0; i < exact.size(); ++i) {
        error += (bytes[i] - exact[i]) * (bytes[i] - exact[i]);
        size += exact[i] * exact[i];
      }
      EXPECT_LE(error, 1e-3 * size);
      EXPECT_GT(error, 0) << "nothing was rounded";
    }
  }
}

// GPTQ: three constants, each packed by itself; words of eight inputs, zero points in words of eight outputs.
TEST(CapiQuantised, WordsOfSeveralOperands) {
  constexpr int64_t k = 64, n = 40, group = 32, m = 3;
  std::vector<int32_t> q(k / 8 * n), z(k / group * n / 8);
  for (size_t i = 0; i < q.size(); ++i) q[i] = static_cast<int32_t>(i * 2654435761u);
  for (size_t i = 0; i < z.size(); ++i) z[i] = static_cast<int32_t>(i * 40503u * 65599u);
  Floats s({k / group, n}), a({m, k});
  s.numbers(1);
  a.numbers(2);
  const auto nibble = [](int32_t word, int64_t i) {
    return static_cast<int>(static_cast<uint32_t>(word) >> 4 * i & 15);
  };
  for (const char* level : kLevels) {
    for (const bool packed : {false, true}) {
      const auto ctx = make_context(level);
      const std::vector<lathe_dim> rows = {range("M", 1, 64), fixed(k)}, words = {fixed(k / 8), fixed(n)},
                                   scales = {fixed(k / group), fixed(n)}, zeros = {fixed(k / group), fixed(n / 8)};
      const lathe_tensor_desc inputs[] = {desc("a", rows), desc("q", words, LATHE_TENSOR_CONST, LATHE_DTYPE_I32),
                                          desc("s", scales, LATHE_TENSOR_CONST),
                                          desc("z", zeros, LATHE_TENSOR_CONST, LATHE_DTYPE_I32)};
      lathe_attr attrs[] = {text_attr("format", "gptq"), {}};
      attrs[1].name = "group";
      attrs[1].type = LATHE_ATTR_INT;
      attrs[1].i = group;
      lathe_graph* made = nullptr;
      lathe_error e;
      ASSERT_EQ(lathe_graph_single(ctx.get(), "quantized_matmul", inputs, 4, attrs, 2, &made, &e), LATHE_STATUS_OK)
          << e.message;
      const Owned<lathe_graph> graph(made);
      const auto kernel = resolve(ctx.get(), graph.get());
      ASSERT_NE(kernel, nullptr);
      std::vector<int64_t> q_shape = {k / 8, n}, z_shape = {k / group, n / 8};
      lathe_tensor tensors[] = {{q.data(), {1, 0}, 2, {0, 32, 1}, q_shape.data(), nullptr, 0},
                                s.tensor,
                                {z.data(), {1, 0}, 2, {0, 32, 1}, z_shape.data(), nullptr, 0}};
      std::vector<std::unique_ptr<Aligned>> forms;
      Floats y({m, n}, NAN);
      std::vector<lathe_arg> args = {
          a.arg(), {&tensors[0], 0, 0, 0, 0}, {&tensors[1], 0, 0, 0, 0}, {&tensors[2], 0, 0, 0, 0}, y.arg()};
      for (int32_t i = 1; packed && i < 4; ++i) {
        lathe_pack_info info{};
        ASSERT_EQ(lathe_prepack_query(kernel.get(), i, &info, &e), LATHE_STATUS_OK) << e.message;
        if (info.layout_id == 0) continue;
        forms.push_back(std::make_unique<Aligned>(info.bytes));
        ASSERT_EQ(lathe_prepack(kernel.get(), i, &tensors[i - 1], forms.back()->memory, info.bytes, &e),
                  LATHE_STATUS_OK)
            << e.message;
        tensors[i - 1].data = forms.back()->memory;
        args[static_cast<size_t>(i)].layout_id = info.layout_id;
      }
      ASSERT_EQ(execute(kernel.get(), args, &e), LATHE_STATUS_OK) << e.message;
      for (int64_t i = 0; i < m * n; ++i) {
        double want = 0;
        for (int64_t d = 0; d < k; ++d) {
          const int64_t column = i % n, g = d / group;
          const int zero = nibble(z[static_cast<size_t>(g * (n / 8) + column / 8)], column % 8) + 1;
          want += static_cast<double>(a.data[static_cast<size_t>(i / n * k + d)]) *
                  (nibble(q[static_cast<size_t>(d / 8 * n + column)], d % 8) - zero) *
                  s.data[static_cast<size_t>(g * n + column)];
        }
        ASSERT_EQ(y.data[static_cast<size_t>(i)], want) << i << " at " << level << (packed ? " packed" : "");
      }
    }
  }
}

TEST(CapiQuantised, WhatDoesNotFitIsRefusedByName) {
  const auto ctx = make_context();
  const auto refusal = [&](const char* format, int64_t k, int64_t bytes) {
    const std::vector<lathe_dim> rows = {range("M", 1, 64), fixed(k)}, blocks = {fixed(8), fixed(bytes)};
    const lathe_tensor_desc inputs[] = {desc("a", rows), desc("w", blocks, LATHE_TENSOR_CONST, LATHE_DTYPE_U8)};
    const lathe_attr attr = text_attr("format", format);
    lathe_graph* made = nullptr;
    lathe_error e{};
    const lathe_status status = lathe_graph_single(ctx.get(), "quantized_matmul", inputs, 2, &attr, 1, &made, &e);
    lathe_graph_destroy(made);
    return status == LATHE_STATUS_OK ? std::string() : std::string(e.arg_name) + ": " + e.message;
  };
  EXPECT_EQ(refusal("q4_0", 64, 36), "");
  EXPECT_NE(refusal("q4_7", 64, 36).find("expected one of q4_0"), std::string::npos);
  EXPECT_NE(refusal("q4_k", 64, 36).find("K 64, expected a multiple of 256"), std::string::npos);
  EXPECT_NE(refusal("q4_0", 64, 34).find("w.shape[1]: 34, expected 36"), std::string::npos) << refusal("q4_0", 64, 34);
}

}  // namespace
}  // namespace lathe::test
