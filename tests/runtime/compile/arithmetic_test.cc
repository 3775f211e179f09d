// Which arithmetic rows are a share of, and what formats leave of it.
#include "runtime/compile/arithmetic.h"

#include <gtest/gtest.h>

#include "ops/quant_formats.h"
#include "runtime/serve/definition.h"

namespace lathe::runtime {
namespace {

constexpr uint32_t kBytes = kDefaultAllowed | ir::kQuantisedActivations, kPairs = kDefaultAllowed | ir::kBf16Dots;

// y[4, 64] = x[4, 512] * w, of ggml's blocks.
ops::Graph blocks(const std::string& format) {
  const ops::QuantFormat& f = *ops::find_quant_format(format);
  ops::Graph g;
  const int x = ops::add_tensor(g, "x", {ops::fixed_dim(4), ops::fixed_dim(512)});
  const int w = ops::add_tensor(g, "w", {ops::fixed_dim(64), ops::fixed_dim(512 / f.block * f.block_bytes)});
  g.tensors[static_cast<size_t>(w)].dtype = ir::DType::u8;
  g.tensors[static_cast<size_t>(w)].constant = true;
  g.outputs = {ops::add_node(g, "quantized_matmul", {x, w}, "y", {{"format", format}})};
  return ops::finish(g).value();
}

// MatMulNBits of 4 bits: y[4, 64] = x[4, 512] * w.
ops::Graph groups(int64_t group, bool zeros) {
  ops::Graph g;
  const auto constant = [&](const char* name, std::vector<ops::DimDesc> dims, ir::DType type) {
    const int t = ops::add_tensor(g, name, std::move(dims));
    g.tensors[static_cast<size_t>(t)].dtype = type;
    g.tensors[static_cast<size_t>(t)].constant = true;
    return t;
  };
  const int64_t n = 512 / group;
  std::vector<int> in = {
      ops::add_tensor(g, "x", {ops::fixed_dim(4), ops::fixed_dim(512)}),
      constant("w", {ops::fixed_dim(64), ops::fixed_dim(n), ops::fixed_dim(group / 2)}, ir::DType::u8),
      constant("s", {ops::fixed_dim(64), ops::fixed_dim(n)}, ir::DType::f32)};
  if (zeros) in.push_back(constant("z", {ops::fixed_dim(64), ops::fixed_dim((n + 1) / 2)}, ir::DType::u8));
  g.outputs = {ops::add_node(g, "quantized_matmul", in, "y",
                             {{"format", std::string(zeros ? "nbits_4_zeros" : "nbits_4")}, {"group", group}})};
  return ops::finish(g).value();
}

ops::Graph product(const char* op, ir::DType type) {
  ops::Graph g;
  std::vector<int> in;
  for (const char* name : {"a", "b"}) {
    in.push_back(ops::add_tensor(g, name, {ops::fixed_dim(8), ops::fixed_dim(8)}));
    g.tensors.back().dtype = type;
  }
  g.outputs = {ops::add_node(g, op, in, "y")};
  return ops::finish(g).value();
}

Arithmetic of(const ops::Graph& finished, uint32_t allowed) {
  return arithmetic_of(finished, ops::lower(finished).value(), allowed);
}
// Beside vpdpbusd.
double ceiling_of_dots(const Arithmetic& a) { return ceiling_of(a, ir::DType::i8, 1); }

TEST(Arithmetic, CeilingsOfFormats) {
  const std::pair<const char*, double> rows[] = {{"q4_0", .89}, {"q5_0", .89}, {"q8_0", .89}, {"q4_1", .80},
                                                 {"q5_1", .80}, {"q4_k", .80}, {"q5_k", .80}, {"q6_k", .80}};
  for (const auto& [format, ceiling] : rows) {
    const Arithmetic a = of(blocks(format), kBytes);
    EXPECT_EQ(a.factors, ir::DType::i8) << format;
    EXPECT_EQ(a.format, format);
    EXPECT_NEAR(ceiling_of_dots(a), ceiling, .005) << format;
    EXPECT_NEAR(ceiling_of(a, ir::DType::i8, 3), 48 / (48 + a.beside), 1e-9) << format << " by vpmaddubsw";
    EXPECT_FALSE(a.tiles) << format;
    EXPECT_EQ(ceiling_of(a, ir::DType::f32, 1), 1) << format;
    const Arithmetic f32 = of(blocks(format), kDefaultAllowed);
    EXPECT_EQ(f32.factors, ir::DType::f32) << format;
    EXPECT_EQ(ceiling_of_dots(f32), 1);
  }
  EXPECT_NEAR(ceiling_of_dots(of(groups(32, false), kBytes)), .89, .005);
  EXPECT_NEAR(ceiling_of_dots(of(groups(128, false), kBytes)), .94, .005);
  EXPECT_NEAR(ceiling_of_dots(of(groups(32, true), kBytes)), .80, .005);
  EXPECT_EQ(ceiling_of(of(groups(128, false), kBytes), ir::DType::i8, 0), 1) << "beside tiles";
  for (const int64_t group : {32, 64, 128, 256}) EXPECT_EQ(of(groups(group, false), kBytes).tiles, group > 64) << group;
  EXPECT_FALSE(of(groups(128, false), kDefaultAllowed).tiles) << "in f32";
}

TEST(Arithmetic, TypesOfFactors) {
  EXPECT_EQ(of(product("matmul", ir::DType::f32), kPairs).factors, ir::DType::f32);
  EXPECT_EQ(of(product("matmul", ir::DType::bf16), kPairs).factors, ir::DType::bf16);
  EXPECT_EQ(of(product("matmul", ir::DType::bf16), kDefaultAllowed).factors, ir::DType::f32);
  EXPECT_EQ(of(product("matmul_integer", ir::DType::i8), kDefaultAllowed).factors, ir::DType::i8);
  EXPECT_TRUE(of(product("matmul", ir::DType::f32), 0).format.empty());
}

TEST(Arithmetic, AttentionOfPairs) {
  ops::Graph g;
  std::vector<int> in;
  for (const char* name : {"q", "k", "v"}) {
    in.push_back(
        ops::add_tensor(g, name, {ops::fixed_dim(1), ops::fixed_dim(2), ops::fixed_dim(8), ops::fixed_dim(32)}));
    g.tensors.back().dtype = ir::DType::bf16;
  }
  g.outputs = {ops::add_node(g, "attention", in, "y")};
  const ops::Graph finished = ops::finish(g).value();
  EXPECT_EQ(of(finished, kPairs).factors, ir::DType::bf16);
  EXPECT_EQ(of(finished, kDefaultAllowed).factors, ir::DType::f32);
}

}  // namespace
}  // namespace lathe::runtime
