// Weights of few bits that ids or offsets choose, on a device, through the C ABI and the fakes: the results of the CPU
// in every format, whatever groups there are, and nothing read of a weight that no row is sent to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gpu/integers/served_weight.h"

namespace lathe::test {
namespace {

constexpr int64_t kExperts = 5;

class DeviceChosenWeights : public ServedWeight {
 protected:
  static Operand integers(const std::vector<int64_t>& dims, const std::vector<int64_t>& values, uint32_t type) {
    Operand out{{dims, type}, ""};
    for (const int64_t v : values) {
      const auto narrow = static_cast<int32_t>(v);
      if (type == LATHE_DTYPE_I64) out.bytes.append(reinterpret_cast<const char*>(&v), sizeof v);
      if (type == LATHE_DTYPE_I32) out.bytes.append(reinterpret_cast<const char*>(&narrow), sizeof narrow);
    }
    return out;
  }
  // The bits of these weights all set: scales of floats are NaN.
  static Weight with_unread(Weight w, const std::vector<int64_t>& unread) {
    for (Operand& o : w.operands) {
      const size_t each = o.bytes.size() / kExperts;
      for (const int64_t e : unread) std::fill_n(o.bytes.begin() + e * static_cast<int64_t>(each), each, '\xff');
    }
    return w;
  }
  Owned<lathe_kernel> kernel_of(const char* op, const Weight& w, const std::vector<lathe_dim>& rows, uint32_t type,
                                const std::vector<lathe_dim>& ints, uint32_t of_ints) {
    std::vector<DescOf> descs = descs_of(w);
    std::vector<lathe_dim> a = rows;
    a.push_back(fixed(w.k));
    descs.insert(descs.begin(), {a, type});
    descs.push_back({ints, of_ints});
    graph_ = single_graph(ctx.get(), op, descs, attrs_of(w));
    auto out = served_on_device(ctx.get(), graph_.get());
    EXPECT_NE(out, nullptr) << w.format;
    return out;
  }
  static float tolerance_of(uint32_t type) {
    return type == LATHE_DTYPE_F32 ? 4e-6f : type == LATHE_DTYPE_F16 ? 0.00098f : 0.0079f;
  }

  struct Groups {
    int64_t rows;
    std::vector<int64_t> offsets, unread;
  };
  // Few rows a group by the hint, and many.
  void expect_groups(const Weight& w, uint32_t type, const std::vector<Groups>& cases) {
    for (const lathe_hint* hint : {&kFew, &kMany}) {
      lathe_dim rows = range("S", 0, 5000);
      rows.hints = hint;
      rows.num_hints = 1;
      const auto kernel =
          kernel_of("quantized_grouped_matmul", w, {rows}, type, {fixed(kExperts + 1)}, LATHE_DTYPE_I32);
      if (!kernel) return;
      for (const Groups& c : cases)
        expect_as_cpu(graph_.get(), kernel.get(), {{{{c.rows, w.k}, type}, ""}}, with_unread(w, c.unread),
                      {integers({kExperts + 1}, c.offsets, LATHE_DTYPE_I32)}, {{c.rows, w.n}, type},
                      tolerance_of(type));
    }
  }
  // Tokens that each name two weights, some of them the same.
  void expect_tokens(const Weight& w, uint32_t type, uint32_t of_ids, const std::vector<int64_t>& tokens) {
    const auto kernel = kernel_of("quantized_expert_matmul", w, {range("T", 0, 5000), fixed(1)}, type,
                                  {range("T", 0, 5000), fixed(2)}, of_ids);
    if (!kernel) return;
    for (const int64_t t : tokens) {
      std::vector<int64_t> ids;
      for (int64_t i = 0; i < 2 * t; ++i) ids.push_back(i * 3 % 7 % 4);  // never the last one
      expect_as_cpu(graph_.get(), kernel.get(), {{{{t, 1, w.k}, type}, ""}}, with_unread(w, {kExperts - 1}),
                    {integers({t, 2}, ids, of_ids)}, {{t, 2, w.n}, type}, tolerance_of(type));
    }
  }
  // Of every format, n by about so many terms.
  static std::vector<Weight> weights(int64_t n) {
    std::vector<Weight> out;
    for (const Blocks& b : kBlocks) out.push_back(blocks(b.name, b.size, n, b.size == 32 ? 3 : 1, false, kExperts));
    for (const char* format : {"int8_channel", "int8_group", "nbits_4", "nbits_4_zeros", "nbits_8", "nbits_8_zeros",
                               "nbits_4_float_zeros", "nbits_8_float_zeros"})
      out.push_back(tensors(format, n, 96, format == std::string("int8_channel") ? 0 : 32, kExperts));
    for (const char* format : {"gptq", "gptq_v2", "awq"})
      out.push_back(tensors(format, (n + 7) / 8 * 8, 96, 32, kExperts));
    return out;
  }

  Owned<lathe_graph> graph_;
};

const std::vector<int64_t> kNone = {0, 1, 2, 3, 4};

TEST_F(DeviceChosenWeights, GroupsInEveryFormat) {
  for (const Weight& w : weights(9)) {
    SCOPED_TRACE(w.format);
    expect_groups(w, LATHE_DTYPE_F32, {{0, {0, 0, 0, 0, 0, 0}, kNone}, {21, {2, 3, 3, 19, 19, 20}, {1, 3}}});
  }
  EXPECT_GT(packed_, 20);
}

TEST_F(DeviceChosenWeights, TokensInEveryFormat) {
  for (const Weight& w : weights(9)) {
    SCOPED_TRACE(w.format);
    expect_tokens(w, LATHE_DTYPE_F32, LATHE_DTYPE_I32, {0, 1, 5});
  }
  EXPECT_GT(packed_, 10);
}

// Groups of every kind: empty ones, one over and under a tile, rows before the first and behind the last.
TEST_F(DeviceChosenWeights, GroupsOfAnySize) {
  const std::vector<Groups> cases = {{1, {0, 0, 0, 1, 1, 1}, {0, 1, 3, 4}},
                                     {70, {3, 20, 20, 36, 53, 66}, {1}},
                                     {90, {0, 1, 2, 66, 67, 90}, {}},
                                     {33, {0, 33, 33, 33, 33, 33}, {1, 2, 3, 4}},
                                     {140, {0, 0, 0, 129, 129, 140}, {0, 1, 3}}};
  for (const uint32_t type : {LATHE_DTYPE_F32, LATHE_DTYPE_BF16, LATHE_DTYPE_F16}) {
    expect_groups(blocks("q4_k", 256, 70, 2, false, kExperts), type, cases);
    for (const int64_t n : {1, 129}) expect_groups(blocks("q8_0", 32, n, 1, false, kExperts), type, cases);
  }
}

TEST_F(DeviceChosenWeights, TokensOfAnyType) {
  for (const uint32_t type : {LATHE_DTYPE_F32, LATHE_DTYPE_BF16, LATHE_DTYPE_F16}) {
    for (const uint32_t ids : {LATHE_DTYPE_I32, LATHE_DTYPE_I64}) {
      expect_tokens(blocks("q4_k", 256, 70, 2, false, kExperts), type, ids, {1, 3, 17});
      expect_tokens(tensors("int8_channel", 5, 7, 0, kExperts), type, ids, {2, 9});
    }
  }
}

// A depth that ends inside of a group, and groups that are no power of two.
TEST_F(DeviceChosenWeights, GroupsOfTermsThatDoNotFit) {
  const std::vector<Groups> cases = {{19, {0, 3, 3, 18, 19, 19}, {1, 4}}};
  for (const Weight& w : {tensors("nbits_4", 7, 37, 16, kExperts), tensors("nbits_4_zeros", 5, 96, 48, kExperts),
                          tensors("int8_group", 3, 7, 3, kExperts), tensors("gptq", 16, 40, 8, kExperts)}) {
    expect_groups(w, LATHE_DTYPE_F32, cases);
    expect_tokens(w, LATHE_DTYPE_F32, LATHE_DTYPE_I32, {4});
  }
}

// One weight alone, which integers still choose.
TEST_F(DeviceChosenWeights, OneWeight) {
  const Weight w = blocks("q4_0", 32, 33, 2, false, 1);
  const auto kernel =
      kernel_of("quantized_grouped_matmul", w, {range("S", 0, 5000)}, LATHE_DTYPE_F32, {fixed(2)}, LATHE_DTYPE_I32);
  ASSERT_NE(kernel, nullptr);
  for (const int64_t rows : {0, 1, 40})
    expect_as_cpu(graph_.get(), kernel.get(), {{{{rows, w.k}}, ""}}, w, {integers({2}, {0, rows}, LATHE_DTYPE_I32)},
                  {{rows, w.n}}, 4e-6f);
}

}  // namespace
}  // namespace lathe::test
