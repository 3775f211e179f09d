// Weights of few bits on a device, through the C ABI and the fakes: the results of the CPU in every format, at every
// size, from the bytes that engines have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gpu/integers/served_weight.h"

namespace lathe::test {
namespace {

class DeviceQuantised : public ServedWeight {
 protected:
  void expect_products(const Weight& w, uint32_t type, const std::vector<int64_t>& rows) {
    const float tolerance = type == LATHE_DTYPE_F32 ? 4e-6f : type == LATHE_DTYPE_F16 ? 0.00098f : 0.0079f;
    for (const lathe_hint* hint : {&kFew, &kMany}) {
      lathe_dim m = range("M", 0, 5000);
      m.hints = hint;
      m.num_hints = 1;
      std::vector<DescOf> descs = descs_of(w);
      descs.insert(descs.begin(), {{m, fixed(w.k)}, type});
      const auto graph = single_graph(ctx.get(), "quantized_matmul", descs, attrs_of(w));
      const auto kernel = served_on_device(ctx.get(), graph.get());
      ASSERT_NE(kernel, nullptr) << w.format;
      for (const int64_t r : rows)
        expect_as_cpu(graph.get(), kernel.get(), {{{{r, w.k}, type}, ""}}, w, {}, {{r, w.n}, type}, tolerance);
    }
  }
};

TEST_F(DeviceQuantised, ProductsWithBlocks) {
  for (const Blocks& b : kBlocks) {
    expect_products(blocks(b.name, b.size, 9, 3), LATHE_DTYPE_F32, {0, 1, 3, 9, 17});
    if (b.name != std::string("q4_0") && b.name != std::string("q5_k")) continue;
    for (const auto& [n, depth] : {std::pair<int64_t, int64_t>{1, 1}, {65, 2}})
      expect_products(blocks(b.name, b.size, n, depth), LATHE_DTYPE_F32, {0, 1, 2, 8, 9, 16, 17, 63, 65});
  }
  EXPECT_GT(packed_, 100);
}

TEST_F(DeviceQuantised, ProductsOfNarrowActivations) {
  for (const uint32_t type : {LATHE_DTYPE_BF16, LATHE_DTYPE_F16}) {
    expect_products(blocks("q4_0", 32, 33, 5), type, {1, 5, 8, 31});
    expect_products(blocks("q6_k", 256, 7, 1), type, {1, 8, 33});
    expect_products(tensors("gptq", 16, 64, 32), type, {1, 8, 33});
  }
}

// All bits set, none, the largest scale.
TEST_F(DeviceQuantised, ExtremeBlocks) {
  for (const Blocks& b : kBlocks) expect_products(blocks(b.name, b.size, 11, 3, true), LATHE_DTYPE_F32, {1, 3, 17});
}

TEST_F(DeviceQuantised, ProductsWithTensors) {
  for (const char* format : {"int8_channel", "int8_group", "nbits_4", "nbits_4_zeros", "nbits_8", "nbits_8_zeros",
                             "nbits_4_float_zeros", "nbits_8_float_zeros"}) {
    const bool channel = format == std::string("int8_channel");
    for (const auto& [n, k, group] : {std::tuple<int64_t, int64_t, int64_t>{1, 256, 128}, {65, 96, 32}})
      expect_products(tensors(format, n, k, channel ? 0 : group), LATHE_DTYPE_F32, {0, 1, 3, 9, 17});
  }
  for (const char* format : {"gptq", "gptq_v2", "awq"}) {
    for (const auto& [n, k, group] : {std::tuple<int64_t, int64_t, int64_t>{8, 32, 32}, {72, 256, 128}})
      expect_products(tensors(format, n, k, group), LATHE_DTYPE_F32, {0, 1, 3, 9, 17});
  }
}

TEST_F(DeviceQuantised, GroupsOfInputsInAnyOrder) {
  for (const char* format : {"gptq", "gptq_v2"}) {
    Weight w = tensors(format, 16, 64, 32);
    Operand order{{{64}, LATHE_DTYPE_I32}, ""};
    for (int32_t k = 0; k < 64; ++k) {
      const int32_t group = k * 37 % 64 / 32;
      order.bytes.append(reinterpret_cast<const char*>(&group), sizeof group);
    }
    w.operands.push_back(order);
    expect_products(w, LATHE_DTYPE_F32, {0, 1, 3, 9, 17});
  }
}

// A depth that ends inside of a group, and groups that are no power of two.
TEST_F(DeviceQuantised, GroupsThatDoNotFit) {
  expect_products(tensors("nbits_4", 7, 37, 16), LATHE_DTYPE_F32, {1, 3, 17});
  expect_products(tensors("nbits_8_zeros", 5, 1, 16), LATHE_DTYPE_F32, {1, 9});
  expect_products(tensors("nbits_4_zeros", 5, 96, 48), LATHE_DTYPE_F32, {1, 9});
  expect_products(tensors("int8_group", 3, 7, 3), LATHE_DTYPE_F32, {1, 9});
  expect_products(tensors("int8_channel", 3, 7, 0), LATHE_DTYPE_F32, {1, 9});
  expect_products(tensors("gptq", 16, 40, 8), LATHE_DTYPE_F32, {1, 9});
}

TEST_F(DeviceQuantised, WeightsAreDecodedBitByBit) {
  for (const Blocks& b : kBlocks) {
    for (const auto& [n, depth] : {std::pair<int64_t, int64_t>{1, 1}, {7, 3}}) {
      const Weight w = blocks(b.name, b.size, n, depth, true);
      const auto graph = single_graph(ctx.get(), "dequantize", descs_of(w), attrs_of(w));
      const auto kernel = served_on_device(ctx.get(), graph.get());
      ASSERT_NE(kernel, nullptr) << b.name;
      expect_as_cpu(graph.get(), kernel.get(), {}, w, {}, {{n, w.k}}, 0);
    }
  }
  for (const char* format :
       {"int8_channel", "int8_group", "nbits_4", "nbits_4_zeros", "nbits_8", "nbits_8_zeros", "gptq", "awq"}) {
    const Weight w = tensors(format, 16, 96, format == std::string("int8_channel") ? 0 : 32);
    const auto graph = single_graph(ctx.get(), "dequantize", descs_of(w), attrs_of(w));
    const auto kernel = served_on_device(ctx.get(), graph.get());
    ASSERT_NE(kernel, nullptr) << format;
    expect_as_cpu(graph.get(), kernel.get(), {}, w, {}, {{16, w.k}}, 0);
  }
}

TEST_F(DeviceQuantised, RowsThatIdsChoose) {
  for (const char* format : {"q4_0", "q6_k", "nbits_4", "int8_channel", "gptq", "gptq_v2", "awq"}) {
    const bool whole = format[0] == 'q', words = format[0] == 'g' || format[0] == 'a';
    const Weight w = whole ? blocks(format, format[1] == '6' ? 256 : 32, 9, 3)
                           : tensors(format, words ? 16 : 9, 96, format == std::string("int8_channel") ? 0 : 32);
    for (const uint32_t type : {LATHE_DTYPE_I32, LATHE_DTYPE_I64}) {
      std::vector<DescOf> descs = descs_of(w);
      descs.push_back({{range("T", 0, 5000)}, type});
      const auto graph = single_graph(ctx.get(), "quantized_gather", descs, attrs_of(w));
      const auto kernel = served_on_device(ctx.get(), graph.get());
      ASSERT_NE(kernel, nullptr) << format;
      for (const int64_t t : {0, 1, 7, 33})
        expect_as_cpu(graph.get(), kernel.get(), {}, w, {{{{t}, type, w.n}, ""}}, {{t, w.k}}, 0);
    }
  }
}

}  // namespace
}  // namespace lathe::test
