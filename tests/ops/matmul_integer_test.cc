// Products of bytes: the naive Kernel gives the i32 sums of the definition for all types, zero points, transposes and
// sizes; what does not fit is refused by name; a chain that scales and rounds the sums is one kernel with them.
#include <gmock/gmock.h>

#include "ir/core/text_form.h"
#include "tests/ops/check_lowered.h"

namespace lathe::ops::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr ir::DType kBytes[] = {ir::DType::i8, ir::DType::u8};

enum class Zeros { none, of_a, of_both, of_columns };

struct Product {
  int64_t m = 3, n = 5, k = 9;
  ir::DType a = ir::DType::i8, b = ir::DType::i8;
  bool constant = true, turned_a = false, turned_b = false;
  Zeros zeros = Zeros::none;
  std::vector<DimDesc> batch;

  int add_to(Graph& g) const {
    const auto dims = [&](const std::vector<DimDesc>& leading, int64_t row, int64_t column, bool turned) {
      std::vector<DimDesc> out = leading;
      out.push_back(F(turned ? column : row));
      out.push_back(F(turned ? row : column));
      return out;
    };
    std::vector<int> in = {
        add_tensor(g, "a", dims(batch, m, k, turned_a), false, a),
        add_tensor(g, "b", dims(constant ? std::vector<DimDesc>{} : batch, k, n, turned_b), constant, b)};
    if (zeros != Zeros::none) in.push_back(add_tensor(g, "za", {F(1)}, false, a));
    if (zeros == Zeros::of_both) in.push_back(add_tensor(g, "zb", {}, false, b));
    if (zeros == Zeros::of_columns) in.push_back(add_tensor(g, "zb", {F(n)}, true, b));
    return add_node(g, "matmul_integer", in, "y", {{"transpose_a", turned_a}, {"transpose_b", turned_b}});
  }
};

// Bytes of all values, the largest ones often.
Tensors bytes_for(const Graph& g, const Sizes& sizes) {
  std::mt19937 rng(3);
  Tensors out = random_inputs(g, sizes, rng);
  for (auto& [t, tensor] : out) {
    const ir::DType type = g.tensors[t].dtype;
    for (double& v : tensor.data) {
      if (type == ir::DType::u8) v = rng() % 3 == 0 ? 255 : rng() % 256;
      if (type == ir::DType::i8) v = rng() % 3 == 0 ? -128 : static_cast<double>(rng() % 256) - 128;
    }
  }
  return out;
}

void expect_exact(const Graph& graph, const Sizes& sizes = {}) {
  const auto g = finish(graph);
  ASSERT_TRUE(g.ok()) << g.status().to_string();
  const auto lowered = lower(*g);
  ASSERT_TRUE(lowered.ok()) << lowered.status().to_string();
  Tensors want = bytes_for(*g, sizes), got = want;
  run_reference(*g, sizes, want);
  run_lowered(*g, *lowered, sizes, got);
  if (::testing::Test::HasFatalFailure()) return;
  for (const int t : g->outputs) EXPECT_EQ(got.at(t).data, want.at(t).data) << ir::print(lowered->kernels[0].kernel);
}

void expect_exact(const Product& p) {
  Graph g;
  g.outputs = {p.add_to(g)};
  expect_exact(g);
}

TEST(MatmulInteger, AllTypesZeroPointsAndTransposes) {
  for (const ir::DType a : kBytes) {
    for (const ir::DType b : kBytes) {
      for (const Zeros zeros : {Zeros::none, Zeros::of_a, Zeros::of_both, Zeros::of_columns}) {
        for (const int turns : {0, 1, 2, 3}) {
          for (const bool constant : {false, true}) {
            for (const int64_t k : {9, 12}) {
              expect_exact({.k = k,
                            .a = a,
                            .b = b,
                            .constant = constant,
                            .turned_a = turns % 2 != 0,
                            .turned_b = turns / 2 != 0,
                            .zeros = zeros});
            }
          }
        }
      }
    }
  }
}

TEST(MatmulInteger, AllSizesAndBatches) {
  for (const int64_t m : {0, 1, 2, 7}) {
    for (const int64_t n : {0, 1, 17, 33}) {
      for (const int64_t k : {0, 1, 3, 4, 5, 7, 8, 31}) {
        for (const bool constant : {false, true})
          expect_exact({.m = m, .n = n, .k = k, .constant = constant, .zeros = Zeros::of_columns});
      }
    }
  }
  for (const bool constant : {false, true}) {
    expect_exact({.a = ir::DType::u8, .constant = constant, .zeros = Zeros::of_columns, .batch = {F(2), F(3)}});
    expect_exact({.constant = constant, .turned_a = true, .zeros = Zeros::of_both, .batch = {F(2)}});
  }
}

TEST(MatmulInteger, SizesThatVary) {
  for (const bool constant : {false, true}) {
    Graph g;
    const DimDesc m = symbol_dim("M", 0, 64), k = symbol_dim("K", 0, 4096);
    const int a = add_tensor(g, "a", {m, constant ? F(11) : k}, false, ir::DType::u8),
              b = add_tensor(g, "b", {constant ? F(11) : k, F(5)}, constant, ir::DType::u8),
              za = add_tensor(g, "za", {F(1)}, false, ir::DType::u8),
              zb = add_tensor(g, "zb", {F(5)}, false, ir::DType::u8);
    g.outputs = {add_node(g, "matmul_integer", {a, b, za, zb}, "y")};
    for (const int64_t rows : {0, 1, 6}) expect_exact(g, {{"M", rows}, {"K", 2 * rows}});
  }
}

// The longest sums that are served: at their ends they are the largest and the least that fit.
TEST(MatmulInteger, SumsFitUpToTheLongestDepth) {
  for (const int64_t k : {33025, 33026}) {
    Graph g;
    g.outputs = {Product{.m = 1, .n = 1, .k = k, .a = ir::DType::u8, .b = ir::DType::u8}.add_to(g)};
    const auto finished = finish(g);
    ASSERT_EQ(finished.ok(), k == 33025);
    if (!finished.ok()) {
      EXPECT_EQ(finished.status().to_string(),
                "UNSUPPORTED: a.shape[1]: 33026, expected at most 33025: sums of such products may exceed i32");
      continue;
    }
    const auto lowered = lower(*finished);
    Tensors values;
    for (const int t : finished->inputs) {
      const auto dims = sizes_of(finished->tensors[t].dims, {});
      values[t] = {dims, std::vector<double>(static_cast<size_t>(count(dims)), 255)};
    }
    run_lowered(*finished, *lowered, {}, values);
    EXPECT_EQ(values.at(finished->outputs[0]).data[0], 255.0 * 255 * 33025);
  }
  const std::pair<Product, int64_t> limits[] = {
      {{.a = ir::DType::i8, .b = ir::DType::i8}, 131071},
      {{.a = ir::DType::u8, .b = ir::DType::i8}, 65793},
      {{.a = ir::DType::i8, .b = ir::DType::i8, .zeros = Zeros::of_both}, 33025},
      {{.a = ir::DType::i8, .b = ir::DType::i8, .zeros = Zeros::of_a}, 65793},
  };
  for (auto [p, most] : limits) {
    for (const bool beyond : {false, true}) {
      Graph g;
      p.k = most + (beyond ? 1 : 0);
      g.outputs = {p.add_to(g)};
      EXPECT_EQ(finish(g).ok(), !beyond) << p.k;
    }
  }
}

TEST(MatmulInteger, WhatDoesNotFitIsRefusedByName) {
  const auto refusal = [](ir::DType a, ir::DType b,
                          const std::vector<std::pair<ir::DType, std::vector<DimDesc>>>& zeros) {
    Graph g;
    std::vector<int> in = {add_tensor(g, "a", {F(3), F(8)}, false, a), add_tensor(g, "b", {F(8), F(5)}, true, b)};
    for (const auto& [type, dims] : zeros) in.push_back(add_tensor(g, in.size() == 2 ? "za" : "zb", dims, false, type));
    g.outputs = {add_node(g, "matmul_integer", in, "y")};
    return finish(g).status().to_string();
  };
  const ir::DType i8 = ir::DType::i8, u8 = ir::DType::u8;
  EXPECT_EQ(refusal(ir::DType::f32, i8, {}), "UNSUPPORTED: a: dtype f32 of matmul_integer, expected i8, u8");
  EXPECT_EQ(refusal(i8, ir::DType::i32, {}), "UNSUPPORTED: b: dtype i32 of matmul_integer, expected i8, u8");
  EXPECT_EQ(refusal(u8, i8, {{i8, {F(1)}}}), "INVALID: za: dtype i8, expected u8 (that of a, whose zero point it is)");
  EXPECT_EQ(refusal(u8, i8, {{u8, {F(3)}}}), "INVALID: za.shape: several elements, expected one (the zero point of a)");
  EXPECT_EQ(refusal(u8, i8, {{u8, {F(1)}}, {i8, {F(4)}}}), "INVALID: zb.shape[0]: 4, expected 1 or 5 (columns of b)");
  EXPECT_EQ(refusal(u8, i8, {{u8, {F(1)}}, {i8, {F(5), F(1)}}}),
            "INVALID: zb.shape: 2 dimensions, expected 1 (zero points)");
  EXPECT_EQ(refusal(u8, i8, {{u8, {F(0)}}}), "INVALID: za.shape: several elements, expected one (the zero point of a)");
  EXPECT_EQ(refusal(u8, i8, {}), "OK");
}

std::vector<std::string> names(const Lowered& l) {
  std::vector<std::string> out;
  for (const LoweredKernel& k : l.kernels) out.push_back(k.kernel.name);
  return out;
}

// i32 sums, bias, scales of rows and columns, an activation, the output's scale and zero point.
TEST(MatmulInteger, RequantisingIsOneKernel) {
  for (const ir::DType to : {ir::DType::i8, ir::DType::u8}) {
    Graph g;
    const int sums = Product{.n = 6, .k = 8, .a = ir::DType::u8, .zeros = Zeros::of_columns}.add_to(g);
    int y = add_node(g, "add", {sums, add_tensor(g, "bias", {F(6)}, true, ir::DType::i32)}, "biased");
    y = add_node(g, "cast", {y}, "real", {{"to", std::string("f32")}});
    y = add_node(g, "mul", {y, add_tensor(g, "scales", {F(6)}, true)}, "scaled");
    y = add_node(g, "mul", {y, add_tensor(g, "rows", {F(3), F(1)})}, "scaled_rows");
    y = add_node(g, "relu", {y}, "active");
    y = add_node(g, "div", {y, add_tensor(g, "by", {F(1)})}, "divided");
    y = add_node(g, "round", {y}, "rounded");
    y = add_node(g, "add_scalar", {y}, "shifted", {{"value", 3.0}});
    g.outputs = {add_node(g, "cast", {y}, "out", {{"to", std::string(ir::dtype_name(to))}})};
    const auto finished = finish(g);
    ASSERT_TRUE(finished.ok()) << finished.status().to_string();
    EXPECT_EQ(finished->tensors[static_cast<size_t>(finished->outputs[0])].dtype, to);
    const auto l = lower(*finished);
    ASSERT_TRUE(l.ok());
    EXPECT_THAT(names(*l), ElementsAre("matmul_integer_add_cast_mul_mul_relu_div_round_add_scalar_cast"));
    expect_exact(g);
  }
}

// A half is rounded before it becomes an integer: it is stored first.
TEST(MatmulInteger, CastsOfHalvesReadThemAsStored) {
  Graph g;
  const int x = add_tensor(g, "x", {F(3), F(8)}, false, ir::DType::bf16);
  const int y = add_node(g, "neg", {x}, "t");
  g.outputs = {add_node(g, "cast", {y}, "y", {{"to", std::string("i8")}})};
  const auto l = lower(*finish(g));
  EXPECT_THAT(names(*l), ElementsAre("neg", "cast"));
  EXPECT_THAT(l->kernels[0].fusion_note, HasSubstr("t is bf16 and becomes i8"));
}

TEST(MatmulInteger, IntegersAreAddedToIntegers) {
  Graph g;
  const int x = add_tensor(g, "x", {F(3), F(5)}, false, ir::DType::i32),
            v = add_tensor(g, "v", {F(5)}, false, ir::DType::i32);
  g.outputs = {add_node(g, "add", {x, v}, "y")};
  const auto finished = finish(g);
  ASSERT_TRUE(finished.ok());
  EXPECT_EQ(finished->tensors[static_cast<size_t>(finished->outputs[0])].dtype, ir::DType::i32);
  check(g);
  g.tensors[static_cast<size_t>(v)].dtype = ir::DType::f32;
  EXPECT_EQ(finish(g).status().to_string(),
            "UNSUPPORTED: v: dtype f32 of add beside i32, expected i32; cast one of them");
  const auto product = [](const char* op) {
    Graph h;
    const int i = add_tensor(h, "x", {F(5)}, false, ir::DType::i32);
    h.outputs = {add_node(h, op, {i, i}, "y")};
    return finish(h).status().to_string();
  };
  EXPECT_THAT(product("mul"), HasSubstr("x: dtype i32 of mul, expected f32, bf16, f16"));
}

// What the instructions want of a constant is made when it is packed.
TEST(MatmulInteger, TextOfAKernel) {
  Graph g;
  g.outputs = {Product{.m = 2, .n = 4, .k = 6, .zeros = Zeros::of_both}.add_to(g)};
  EXPECT_EQ(
      ir::print(lower(*finish(g))->kernels.at(0).kernel),
      R"(kernel matmul_integer(a: i8[2, 6] in, b: u8[8, 4] const from i8[6, 4] u8(i32(b[d0 % 6, d1]) + 128:i32), za: i8[1] in, zb: i8[] in, columns: i32[4] const from i8[6, 4] i32(columns[d1, d0]), y: i32[2, 4] out) family matmul
  ap: i8[2, 8] heap
  rows: i32[2] heap
  c: i32[2, 4] heap
  for pm < 2 [prologue]:
    for pk < 6 [prologue]:
      ap[pm, pk] = a[pm, pk]
  for zm < 2 [prologue]:
    for zk < 2 [prologue]:
      ap[zm, 6 + zk] = i8(0:i32)
  for rows_i < 2 [sums]:
    rows[rows_i] = 0:i32
    for rows_k < 6 [sums]:
      rows[rows_i] += i32(ap[rows_i, rows_k])
  for m < 2 [m]:
    for n < 4 [n]:
      c[m, n] = 0:i32
      for k < 8 [k]:
        c[m, n] += i32(ap[m, k]) * i32(b[k, n])
      y[m, n] = c[m, n] - rows[m] * (i32(zb[]) + 128:i32) - i32(za[0]) * (columns[n] - 6:i32 * i32(zb[]))
)");
}

}  // namespace
}  // namespace lathe::ops::testing
