// The intrinsic table: every meaning parses and matches its own row; what differs is refused with a reason.
#include "ir/analysis/intrinsics.h"

#include <gtest/gtest.h>

#include "ir/core/text_form.h"

namespace lathe::ir {
namespace {

std::string match(const std::string& text, const char* name) {
  Result<Kernel> k = parse_kernel(text);
  if (!k.ok()) return k.status().to_string();
  std::string why;
  return matches_intrinsic(*k, k->body[0], *find_intrinsic(name), &why) ? "yes" : why;
}

TEST(Intrinsics, EveryMeaningParses) {
  for (const Intrinsic& row : intrinsics()) {
    EXPECT_EQ(find_intrinsic(row.name), &row);
    EXPECT_TRUE(parse_kernel(row.meaning).ok()) << row.name;
    EXPECT_EQ(match(row.meaning, row.name), "yes") << "each means itself";
  }
  EXPECT_EQ(find_intrinsic("none"), nullptr);
}

const std::string kMma =
    "kernel t(x: f32[M, K] in, w: f32[32, K] in, c: f32[8, 32] out) where M in 8..64, K in 1..64\n"
    "  for k < K [k]:\n"
    "    prefetch w lines 8\n"
    "    for m < 8 @unroll:\n"
    "      for n < 2 @unroll:\n"
    "        for v < 16 @vector:\n"
    "          c[m, 16*n + v] += x[m, k] * w[16*n + v, k]\n";

std::string edited(std::string text, const std::string& from, const std::string& to) {
  EXPECT_NE(text.find(from), std::string::npos) << from;
  return text.replace(text.find(from), from.size(), to);
}

TEST(Intrinsics, TransposePairs) {
  const std::string copy =
      "kernel t(x: f16[M, 8] in, y: f16[8, M] out) where M in 1..64\n"
      "  for m < M:\n"
      "    for k < 4:\n"
      "      for p < 2:\n"
      "        y[2*k + p, m] = x[m, 2*k + p]\n";
  const auto laid_out = [](std::string text) {
    return text.replace(text.find("y: f16[8, M] out"), 16, "y: f16[8, M] out layout [0/2, 1, 0%2]");
  };
  EXPECT_EQ(match(laid_out(copy), "transpose_pairs"), "yes");
  EXPECT_EQ(match(laid_out(copy), "transpose"), "expected two nested scopes");
  EXPECT_NE(match(copy, "transpose_pairs"), "yes") << "elements of y that are no pairs";
  for (const auto& [from, to] : {std::pair("p < 2", "p < 3"), std::pair("x[m, 2*k + p]", "x[m, 2*k + 1 - p]"),
                                 std::pair("y[2*k + p, m] =", "y[2*k + p, m] +=")}) {
    std::string other = laid_out(copy);
    other.replace(other.find(from), std::string(from).size(), to);
    EXPECT_NE(match(other, "transpose_pairs"), "yes") << other;
  }
}

TEST(Intrinsics, Mma) {
  EXPECT_EQ(match(kMma, "mma"), "yes");
  EXPECT_EQ(match(edited(kMma, "+= x", "= x"), "mma"), "expected c[..] += a[..] * b[..]");
  EXPECT_EQ(match(edited(kMma, "m < 8 @unroll", "m < 8"), "mma"), "expected scope m to be @unroll or @vector");
  EXPECT_EQ(match(edited(kMma, "c[m, 16*n + v]", "c[m, k]"), "mma"), "expected c not to depend on k");
  EXPECT_EQ(match(edited(edited(kMma, "x[m, k]", "x[m, v]"), "16*n + v, k]", "16*n + v, v]"), "mma"),
            "expected an operand to depend on k");
  EXPECT_EQ(match(edited(kMma, "x: f32", "x: f64"), "mma"), "expected x to be f32");
  // What a cast widens without rounding is read as f32; nothing else is.
  const auto read_as = [](const std::string& type) {
    return edited(edited(kMma, "x: f32", "x: " + type), "x[m, k] *", "f32(x[m, k]) *");
  };
  for (const char* type : {"bf16", "f16"}) EXPECT_EQ(match(read_as(type), "mma"), "yes") << type;
  for (const char* type : {"i8", "f64"})
    EXPECT_EQ(match(read_as(type), "mma"), "expected c[..] += a[..] * b[..]") << type;
  // A vector that is summed would need its lanes added up after the last k.
  EXPECT_EQ(match(edited(edited(kMma, "c[m, 16*n + v]", "c[m, n]"), "w[16*n + v, k]", "w[n, k + v]"), "mma"),
            "expected c to depend on vector scope v");
  EXPECT_EQ(match(kMma + "          c[m, v] += x[m, k] * w[v, k]\n", "mma"), "expected one statement in scope v");
}

const std::string kTranspose =
    "kernel t(s: f32[M, N] in, d: f32[N, M] out) where M in 16..64, N in 16..64\n"
    "  for i < 16 @unroll:\n"
    "    for j < 16 @vector:\n"
    "      d[j, i] = s[i, j]\n";

TEST(Intrinsics, Transpose) {
  EXPECT_EQ(match(kTranspose, "transpose"), "yes");
  EXPECT_EQ(match(edited(kTranspose, "d[j, i] = s[i, j]", "d[i, j] = s[j, i]"), "transpose"), "yes");
  EXPECT_EQ(match(edited(kTranspose, "d[j, i]", "d[i, j]"), "transpose"),
            "expected different iterators along the unit-stride dimensions");
  EXPECT_EQ(match(edited(kTranspose, "s[i, j]", "s[i, 2*j]"), "transpose"),
            "expected one iterator with step 1 along the unit-stride dimension of each buffer");
  EXPECT_EQ(match(edited(kTranspose, "d[j, i] =", "d[j, i] +="), "transpose"), "expected d[..] = s[..]");
  // What only copies does so for any one type of a lane or less.
  const auto typed = [](const std::string& s, const std::string& d) {
    return edited(edited(kTranspose, "s: f32", "s: " + s), "d: f32", "d: " + d);
  };
  for (const char* type : {"bf16", "f16", "i32", "i8", "u8", "b8"})
    EXPECT_EQ(match(typed(type, type), "transpose"), "yes") << type;
  EXPECT_EQ(match(typed("f64", "f64"), "transpose"), "expected d to have elements of at most 4 bytes");
}

// Rows that are not shipped: what a meaning can say.
std::string match(const std::string& text, const Intrinsic& row) {
  Result<Kernel> k = parse_kernel(text);
  if (!k.ok()) return k.status().to_string();
  std::string why;
  return matches_intrinsic(*k, k->body[0], row, &why) ? "yes" : why;
}

constexpr Intrinsic kDot4 = {
    "dot4",
    "kernel dot4(a: u8[M, 4*K] in, b: i8[K, N, 4] in, c: i32[M, N] out) where M in 1..8, N in 1..32, K in 1..64\n"
    "  for k < K:\n"
    "    for m < M @unroll:\n"
    "      for n < N @vector:\n"
    "        for j < 4 @unroll:\n"
    "          c[m, n] += i32(a[m, 4*k + j]) * i32(b[k, n, j])\n",
    kExact, 0, IntrinsicLayout::kAnyLayout};
const std::string kBytes =
    "kernel t(x: u8[M, 4*K] in, w: i8[K, 16, 4] in, y: i32[8, 16] out) where M in 8..64, K in 1..64\n"
    "  for q < K [k]:\n"
    "    for r < 8 @unroll:\n"
    "      for s < 4 @unroll:\n"
    "        for v < 16 @vector:\n"
    "          y[r, v] += i32(x[r, 4*q + s]) * i32(w[q, v, s])\n";

TEST(Intrinsics, a_k_step_and_its_packing_are_the_meanings_own) {
  EXPECT_EQ(k_step(kDot4), 4);
  EXPECT_EQ(k_step(*find_intrinsic("mma")), 1);
  EXPECT_EQ(match(kDot4.meaning, kDot4), "yes");
  EXPECT_EQ(match(kBytes, kDot4), "yes") << "names, sizes, order of the scopes inside";
  EXPECT_EQ(
      match(edited(kBytes, "i32(x[r, 4*q + s]) * i32(w[q, v, s])", "i32(w[q, v, s]) * i32(x[r, 4*q + s])"), kDot4),
      "yes")
      << "factors in either order";
  EXPECT_EQ(match(edited(kBytes, "s < 4", "s < 2"), kDot4), "expected a scope of extent 4 that steps as j does");
  EXPECT_EQ(match(edited(edited(kBytes, "16, 4] in", "4, 16] in"), "w[q, v, s]", "w[q, s, v]"), kDot4),
            "expected a scope of extent 4 that steps as j does")
      << "groups of four lie side by side";
  EXPECT_EQ(match(edited(kBytes, "4*q + s", "4*q + 2*s"), kDot4), "expected a scope of extent 4 that steps as j does");
  EXPECT_EQ(match(edited(kBytes, "s < 4 @unroll", "s < 4 @vector"), kDot4),
            "expected a scope of extent 4 that steps as j does");
}

const std::string kPairs =
    "kernel t(x: bf16[M, 64] in, w: bf16[64, 32] in layout [0/2, 1, 0%2], y: f32[8, 32] out) where M in 8..64\n"
    "  for q < 32 [k]:\n"
    "    for s < 2 @unroll:\n"
    "      for r < 8 @unroll:\n"
    "        for v < 32 @vector:\n"
    "          y[r, v] += f32(x[r, 2*q + s]) * f32(w[2*q + s, v])\n";

TEST(Intrinsics, pairs_of_bf16_lie_side_by_side) {
  EXPECT_EQ(k_step(*find_intrinsic("dot2_bf16")), 2);
  EXPECT_EQ(k_step(*find_intrinsic("tile_bf16")), 32);
  EXPECT_EQ(k_step(*find_intrinsic("tile_u8s8")), 64);
  EXPECT_EQ(k_step(*find_intrinsic("tile_u8s8_32")), 32);
  EXPECT_EQ(match(kPairs, "dot2_bf16"), "yes");
  EXPECT_EQ(match(edited(kPairs, " layout [0/2, 1, 0%2]", ""), "dot2_bf16"),
            "expected a scope of extent 2 that steps as j does");
  EXPECT_EQ(match(edited(kPairs, "s < 2 @unroll", "s < 2 @vector"), "dot2_bf16"),
            "expected a scope of extent 2 that steps as j does");
  EXPECT_EQ(match(edited(kPairs, "x: bf16", "x: f16"), "dot2_bf16"), "expected x to be bf16");
  EXPECT_EQ(match(kMma, "dot2_bf16"), "expected c[..] += f32(a[..]) * f32(b[..])");
}

// What steps once may have no part in any index; what steps more often adds other terms each time.
TEST(Intrinsics, a_single_step_needs_no_operand_that_depends_on_it) {
  const std::string once =
      "kernel t(x: i8[8, 32] in, w: u8[32, 16] in layout [0/4, 1, 0%4], y: i32[8, 16] out)\n"
      "  for t < 1 [k]:\n"
      "    for q < 8 @unroll:\n"
      "      for s < 4 @unroll:\n"
      "        for r < 8 @unroll:\n"
      "          for v < 16 @vector:\n"
      "            y[r, v] += i32(x[r, 4*q + s]) * i32(w[4*q + s, v])\n";
  EXPECT_EQ(match(once, "tile_u8s8_32"), "yes");
  EXPECT_EQ(match(edited(once, "t < 1", "t < 2"), "tile_u8s8_32"), "expected an operand to depend on t");
  EXPECT_EQ(match(edited(edited(once, "t < 1", "t < K"), "out)", "out) where K in 1..2"), "tile_u8s8_32"),
            "expected an operand to depend on t");
  EXPECT_EQ(match(once, "tile_u8s8"), "expected a scope of extent 16 that steps as q does");
}

// Before the sum of a step, elements may be copied; nothing else stands beside it.
TEST(Intrinsics, a_step_copies_before_its_sum) {
  const std::string sum = "    for m < 8 @unroll:\n";
  const auto with = [&](const std::string& before) {
    return edited(edited(kMma, sum, before + sum), "c: f32[8, 32] out)", "c: f32[8, 32] out, t: f32[K, 32] out)");
  };
  const std::string copy =
      "    for q < 2 @unroll:\n      for u < 16 @vector:\n        t[k, 16*q + u] = w[16*q + u, k]\n";
  EXPECT_EQ(match(with(copy), "mma"), "yes");
  EXPECT_EQ(
      match(with("    t[k, 0] = w[0, k]\n" + edited(edited(edited(copy, "q", "r"), "16*q", "16*r"), "16*q", "16*r")),
            "mma"),
      "yes");
  const std::string refusal = "expected one statement in scope k";
  EXPECT_EQ(match(with(edited(copy, "= w", "+= w")), "mma"), refusal);
  EXPECT_EQ(match(with(edited(copy, "k]\n", "k] * 2.0\n")), "mma"), refusal);
  EXPECT_EQ(match(with(edited(copy, "2 @unroll", "2")), "mma"), refusal);
  EXPECT_EQ(match(edited(with(""), "+= x[m, k] * w[16*n + v, k]\n", "+= x[m, k] * w[16*n + v, k]\n" + copy), "mma"),
            refusal)
      << "after its sum";
  EXPECT_EQ(match(edited(edited(kPairs, "    for s < 2", "    t[q] = x[8, q]\n    for s < 2"), "y: f32[8, 32] out)",
                         "y: f32[8, 32] out, t: bf16[64] out)"),
                  "dot2_bf16"),
            "expected one statement in scope q");
}

// A warp's instructions: sixteen terms at a time, of tiles that lie as they like.
const std::string kWarp =
    "kernel t(x: bf16[64, 32] in, w: bf16[64, 32] in, y: f32[64, 64] out)\n"
    "  for q < 16 [k]:\n"
    "    for r < 16 [m]:\n"
    "      for s < 8 [n]:\n"
    "        y[16 + r, 8 + s] += f32(x[16 + r, 16 + q]) * f32(w[8 + s, 16 + q])\n";

TEST(Intrinsics, of_warps_step_along_one_dimension_each) {
  EXPECT_EQ(match(kWarp, "mma_bf16"), "yes");
  EXPECT_EQ(match(edited(kWarp, "f32(x[16 + r, 16 + q]) * f32(w[8 + s, 16 + q])", "f32(w[8 + s, q]) * f32(x[r, q])"),
                  "mma_bf16"),
            "yes");
  EXPECT_EQ(match(kWarp, "mma_f16"), "expected x to be f16");
  EXPECT_EQ(match(edited(kWarp, "q < 16", "q < 8"), "mma_bf16"), "expected scope q to have extent 16");
  EXPECT_EQ(match(edited(kWarp, "s < 8", "s < 16"), "mma_bf16"), "expected scope s to have extent 8");
  EXPECT_EQ(match(edited(kWarp, "s < 8 [n]", "s < 8 [n] @vector"), "mma_bf16"), "expected scope s to have no mark");
  EXPECT_EQ(match(edited(kWarp, "x[16 + r, 16 + q]", "x[2*r, 16 + q]"), "mma_bf16"),
            "expected r to step along one dimension of x, by 1");
  EXPECT_EQ(match(edited(kWarp, "x[16 + r, 16 + q]", "x[q + r, q]"), "mma_bf16"),
            "expected q to step along one dimension of x, by 1");
  EXPECT_EQ(match(edited(kWarp, "x[16 + r, 16 + q]", "x[q + r, 0]"), "mma_bf16"),
            "expected q and r to step along different dimensions of x");
  EXPECT_EQ(match(edited(kWarp, "w[8 + s, 16 + q]", "w[8, 16 + q]"), "mma_bf16"), "expected w to depend on s");
  const std::string copy =
      "kernel t(x: f16[64, 32] in, y: f16[64, 32] out)\n  for r < 16:\n    for q < 16:\n      y[r, q] = x[r, q]\n";
  for (const char* name : {"ldmatrix", "ldmatrix_trans"}) {
    EXPECT_EQ(match(copy, name), "yes");
    EXPECT_EQ(match(edited(edited(copy, "f16", "f32"), "f16", "f32"), name), "expected y to have elements of 2 bytes");
    EXPECT_EQ(match(edited(copy, "q < 16", "q < 8"), name), "expected scope q to have extent 16");
  }
}

TEST(Intrinsics, a_box_has_any_extent) {
  const std::string copy =
      "kernel t(x: f16[M, N] in, y: f16[2, 64, 64] out) where M in 1..64, N in 64..99\n  for r < min(64, M):\n"
      "    for q < 64:\n      y[1, r, q] = x[r, q]\n";
  EXPECT_EQ(match(copy, "tma_2d"), "yes");
  EXPECT_EQ(match(edited(copy, "x[r, q]", "x[r, 2*q]"), "tma_2d"), "expected q to step along one dimension of x, by 1");
  EXPECT_EQ(match(edited(copy, "y[1, r, q]", "y[1, r, r]"), "tma_2d"),
            "expected r to step along one dimension of y, by 1");
  EXPECT_EQ(match(edited(edited(copy, "f16", "f32"), "f16", "f32"), "tma_2d"),
            "expected y to have elements of 2 bytes");
}

TEST(Intrinsics, types_are_the_meanings_own) {
  EXPECT_EQ(match(edited(kBytes, "x: u8", "x: i8"), kDot4), "expected x to be u8");
  EXPECT_EQ(match(edited(kBytes, "w: i8", "w: u8"), kDot4), "expected w to be i8");
  EXPECT_EQ(match(kMma, kDot4), "expected c[..] += i32(a[..]) * i32(b[..])");
  EXPECT_EQ(match(kBytes, "mma"), "expected c[..] += a[..] * b[..]");
}

TEST(Intrinsics, a_meaning_that_is_no_kernel_matches_nothing) {
  for (const char* meaning :
       {"kernel", "kernel k(a: f32[4] in, b: f32[4] out)\n  for i < 4:\n    b[i] = a[i]\n    b[i] = a[i]\n"}) {
    const Intrinsic row = {"odd", meaning, kExact, 0, IntrinsicLayout::kAnyLayout};
    EXPECT_EQ(match(kMma, row), "the meaning of odd is no Kernel of one statement");
  }
}

}  // namespace
}  // namespace lathe::ir
