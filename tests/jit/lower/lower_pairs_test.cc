// Tensor scopes of dot2_bf16 in leaves, against the interpreter on every level, with the instruction and without: rows,
// masked columns, segments, sums that start anywhere; copies into pairs; and what is no pair is refused.
#include "ir/base/dtype.h"
#include "ir/meaning/interpreter.h"
#include "tests/jit/lower/leaf_case.h"

namespace lathe::jit {
namespace {

struct Tile {
  int64_t rows = 3, columns = 24, pairs = 6;
  std::string product = "f32(p0[M, 2*i3 + i4]) * f32(p1[i3, N, i4])";
};

// p0 as [m, k], p1 as [k / 2, n, k % 2].
std::string leaf_text(const Tile& t, int lanes) {
  const int64_t vectors = (t.columns + lanes - 1) / lanes;
  const auto each = [&](const std::string& row, int first, const std::string& statement) {
    return tile_text(row, first, t.rows, t.columns, lanes, statement);
  };
  return fmt::format(
             "kernel leaf(p0: bf16[_, _] in strides [{}, 1], p1: bf16[_, _, _] in strides [{}, 2, 1], "
             "p2: f32[_, _] out strides [{}, 1]) family leaf where seglen in 0..9223372036854775807\n"
             "  r0: f32[{}, {}] reg\n",
             2 * t.pairs, 2 * t.columns, t.columns, t.rows, vectors * lanes) +
         each("  ", 0, "r0[M, N] = 0.5") + "  for i3 < seglen @tensor(dot2_bf16):\n    for i4 < 2 @unroll:\n" +
         each("      ", 5, "r0[M, N] += " + t.product) + each("  ", 8, "p2[M, N] = r0[M, N]");
}

std::vector<ir::Target> targets() {
  std::vector<ir::Target> out = test_targets();
  ir::Target with = test_target(ir::IsaLevel::avx512);
  with.extra = ir::kCpu_avx512bf16;
  out.push_back(with);
  return out;
}

// integers: every order of sums gives the same bits. Else the values of the program itself are compared.
void expect_sums(const Tile& t, bool integers, const std::vector<int64_t>& segments) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  const auto fill = [&](std::vector<uint16_t>& v) {
    for (uint16_t& x : v)
      x = ir::f32_to_bf16(integers ? static_cast<float>(static_cast<int>(random() % 9) - 4) : normal(random));
  };
  std::vector<uint16_t> a(static_cast<size_t>(t.rows * 2 * t.pairs)), b(static_cast<size_t>(t.pairs * t.columns * 2));
  fill(a);
  fill(b);
  for (const ir::Target& target : targets()) {
    const std::string text = leaf_text(t, target.lanes);
    const auto kernel = ir::parse_kernel(text);
    ASSERT_TRUE(kernel.ok()) << kernel.status().to_string() << text;
    const auto p = lower_leaf(*kernel, target);
    ASSERT_TRUE(p.ok()) << p.status().to_string() << text;
    EXPECT_EQ(contains(p->body, LeafOp::k_dot2_bf16), target.extra != 0) << to_text(*p);
    std::vector<float> out(static_cast<size_t>(t.rows * t.columns), -1);
    const auto before = out;
    ir::LeafArgs args{};
    args.op[0].ptr = reinterpret_cast<char*>(a.data());
    args.op[1].ptr = reinterpret_cast<char*>(b.data());
    args.op[2].ptr = reinterpret_cast<char*>(out.data());
    std::vector<ir::LeafSeg> segs;
    int64_t at = 0;
    for (const int64_t length : segments) {
      segs.push_back({4 * at, 4 * t.columns * at, length, 0, 0});
      at += length;
    }
    ASSERT_EQ(at, t.pairs);
    args.seg = segs.data();
    args.nseg = static_cast<int64_t>(segs.size());
    execute_portable(*p, args);
    for (int64_t m = 0; integers && m < t.rows; ++m) {
      for (int64_t n = 0; n < t.columns; ++n) {
        double want = 0.5;
        for (int64_t k = 0; k < 2 * t.pairs; ++k) {
          want += ir::bf16_to_f32(a[static_cast<size_t>(m * 2 * t.pairs + k)]) *
                  ir::bf16_to_f32(b[static_cast<size_t>((k / 2 * t.columns + n) * 2 + k % 2)]);
        }
        ASSERT_EQ(out[static_cast<size_t>(m * t.columns + n)], want)
            << m << ", " << n << " at " << target.to_string() << "\n"
            << text << to_text(*p);
      }
    }
    if (target.vector_registers == 16 && t.rows * t.columns > 32) continue;  // more sums than registers
    expect_code_writes(*p, args, 2, before, out);
    if (testing::Test::HasFatalFailure()) FAIL() << target.to_string();
  }
}

TEST(LowerPairs, every_row_count_and_masked_columns) {
  for (const int64_t rows : {1, 2, 5, 8}) {
    for (const int64_t columns : {1, 7, 16, 17, 32}) {
      for (const int64_t pairs : {1, 3, 4, 9}) {
        expect_sums({.rows = rows, .columns = columns, .pairs = pairs}, true, {pairs});
        if (HasFatalFailure()) return;
      }
    }
  }
  expect_sums({.rows = 4, .columns = 32, .pairs = 64}, false, {64});
}

TEST(LowerPairs, segments_and_factors_in_either_order) {
  expect_sums({.pairs = 7}, true, {3, 0, 4});
  expect_sums({.pairs = 7, .product = "f32(p1[i3, N, i4]) * f32(p0[M, 2*i3 + i4])"}, true, {7});
}

std::string refusal(const std::string& product) {
  const auto kernel = ir::parse_kernel(leaf_text({.product = product}, 16));
  if (!kernel.ok()) return kernel.status().to_string();
  ir::Target target = test_target(ir::IsaLevel::avx512);
  target.extra = ir::kCpu_avx512bf16;
  const auto p = lower_leaf(*kernel, target);
  return p.ok() ? "none" : p.status().to_string();
}

TEST(LowerPairs, what_is_no_pair_is_refused) {
  for (const char* product :
       {"f32(p0[M, 2*i3 + 1 - i4]) * f32(p1[i3, N, i4])", "f32(p0[M, 2*i3 + i4]) * f32(p1[i3, N, 0])",
        "f32(p0[M, 4*i3 + 2*i4]) * f32(p1[i3, N, i4])"})
    EXPECT_NE(refusal(product).find("two elements side by side"), std::string::npos) << product << refusal(product);
}

// Elements of two bytes, copied by a leaf on every level: p1 as the leaf says, -1 where nothing is written.
void expect_copies(const std::string& text, size_t from, size_t to, const std::vector<int64_t>& extents,
                   const std::function<int64_t(int64_t)>& source) {
  std::vector<uint16_t> in(from);
  for (size_t i = 0; i < from; ++i) in[i] = static_cast<uint16_t>(3 * i + 1);
  for (const ir::Target& target : targets()) {
    std::string written = text;
    for (size_t at; (at = written.find("LANES")) != std::string::npos;)
      written.replace(at, 5, fmt::format("{}", target.lanes));
    const auto kernel = ir::parse_kernel(written);
    ASSERT_TRUE(kernel.ok()) << kernel.status().to_string() << written;
    const auto p = lower_leaf(*kernel, target);
    ASSERT_TRUE(p.ok()) << p.status().to_string() << written;
    std::vector<uint16_t> out(to, 0xffff);
    const auto before = out;
    ir::LeafArgs args{};
    args.op[0].ptr = reinterpret_cast<char*>(in.data());
    args.op[1].ptr = reinterpret_cast<char*>(out.data());
    for (size_t e = 0; e < extents.size(); ++e) args.extent[e] = extents[e];
    execute_portable(*p, args);
    for (size_t i = 0; i < to; ++i) {
      const int64_t at = source(static_cast<int64_t>(i));
      ASSERT_EQ(out[i], at < 0 ? 0xffff : in[static_cast<size_t>(at)]) << i << " at " << target.to_string() << written;
    }
    expect_code_writes(*p, args, 1, before, out);
    if (testing::Test::HasFatalFailure()) FAIL() << target.to_string();
  }
}

// p0 as [row, column], p1 as [column / 2, row, column % 2].
TEST(LowerPairs, pairs_of_a_row_become_those_of_a_column) {
  for (const int64_t rows : {1, 2, 7, 15, 16, 17, 32}) {
    for (const int64_t pairs : {2, 3, 8, 16, 17, 33}) {
      const std::string text = fmt::format(
          "kernel leaf(p0: bf16[_, _] in strides [{}, 1], p1: bf16[_, _, _] out strides [{}, 2, 1]) family leaf where "
          "e0 in 0..9223372036854775807\n"
          "  for i0 < min(32, e0) @tensor(transpose_pairs):\n    for i1 < {}:\n      for i2 < 2:\n"
          "        p1[i1, i0, i2] = p0[i0, 2*i1 + i2]\n",
          2 * pairs, 2 * 32, pairs);
      expect_copies(text, static_cast<size_t>(rows * 2 * pairs), static_cast<size_t>(pairs * 2 * 32), {rows},
                    [&](int64_t i) {
                      const int64_t row = i / 2 % 32;
                      return row < rows ? row * 2 * pairs + i / 64 * 2 + i % 2 : -1;
                    });
      if (HasFatalFailure()) return;
    }
  }
}

// p0 as [row, column], p1 as [row / 2, column, row % 2].
TEST(LowerPairs, two_rows_become_pairs) {
  for (const int64_t rows : {1, 2, 5}) {
    for (const int64_t columns : {1, 7, 8, 16, 17, 31, 32}) {
      const std::string text = fmt::format(
          "kernel leaf(p0: bf16[_, _] in strides [{0}, 1], p1: bf16[_, _, _] out strides [{1}, 2, 1]) family leaf "
          "where "
          "e0 in 0..9223372036854775807, e1 in 0..9223372036854775807\n"
          "  for i0 < e0:\n    for i1 < 2 @tensor(transpose):\n      for i2 < min(32, e1):\n"
          "        p1[i0, i2, i1] = p0[2*i0 + i1, i2]\n",
          columns, 2 * columns);
      expect_copies(text, static_cast<size_t>(2 * rows * columns), static_cast<size_t>(2 * rows * columns),
                    {rows, columns},
                    [&](int64_t i) { return (i / (2 * columns) * 2 + i % 2) * columns + i / 2 % columns; });
      if (HasFatalFailure()) return;
    }
  }
}

TEST(LowerPairs, elements_of_a_pair_lie_side_by_side) {
  const auto refused = [](const std::string& type, const std::string& copy) {
    const auto kernel = ir::parse_kernel(fmt::format(
        "kernel leaf(p0: {0}[_, _] in strides [64, 1], p1: {0}[_, _, _] out strides [64, 2, 1]) family leaf "
        "where e0 in 0..9223372036854775807\n"
        "  for i0 < e0 @tensor(transpose_pairs):\n    for i1 < 4:\n      for i2 < 2:\n        {1}\n",
        type, copy));
    if (!kernel.ok()) return kernel.status().to_string();
    const auto p = lower_leaf(*kernel, test_target(ir::IsaLevel::avx512));
    return p.ok() ? "none" : p.status().to_string();
  };
  EXPECT_EQ(refused("bf16", "p1[i1, i0, i2] = p0[i0, 2*i1 + i2]"), "none");
  EXPECT_NE(refused("bf16", "p1[i1, i0, i2] = p0[i0, 2*i1 - i2 + 1]").find("not adjacent"), std::string::npos);
  EXPECT_NE(refused("bf16", "p1[i1, i0, i2] = p0[i0, i1 + 4*i2]").find("not adjacent"), std::string::npos);
  EXPECT_NE(refused("f32", "p1[i1, i0, i2] = p0[i0, 2*i1 + i2]").find("two bytes"), std::string::npos);
}

}  // namespace
}  // namespace lathe::jit
