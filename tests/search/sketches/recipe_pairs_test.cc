// The matmul recipe's products of bf16 in pairs, and in tiles those of bytes too: who gets them, which settings keep
// the values, what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/machines.h"
#include "tests/search/model/problems.h"
#include "tests/search/sketches/kept_values.h"

namespace lathe::search {
namespace {

using testing::HasSubstr;

// y[m, n] of m x k x n, the weight as [K, N] or [N, K].
Problem product(int64_t m, int64_t k, int64_t n, bool transposed = false, const char* type = "bf16") {
  Problem p;
  p.kernel = kernel_of(
      fmt::format(R"(kernel product(x: {4}[{0}, {2}] in, w: bf16[{3}] const, y: f32[{0}, {1}] out) family matmul
  c: f32[{0}, {1}] heap
  for m < {0} [m]:
    for n < {1} [n]:
      c[m, n] = 0.0
      for k < {2} [k]:
        c[m, n] += {5} * f32(w[{6}])
      y[m, n] = c[m, n]
)",
                  m, n, k, transposed ? fmt::format("{}, {}", n, k) : fmt::format("{}, {}", k, n), type,
                  std::string_view(type) == "f32" ? "x[m, k]" : "f32(x[m, k])", transposed ? "n, k" : "k, n"));
  p.allowed = ir::kReassociate | ir::kContract | ir::kBf16Dots;
  return p;
}

// y[s, n] of rows that stand sorted by their weight, of which there are three; some have no rows.
Problem product_of_groups(int64_t rows, int64_t k, int64_t n, bool transposed = false) {
  Problem p;
  p.kernel =
      kernel_of(fmt::format("kernel product(x: bf16[{0}, {2}] in, w: bf16[3, {3}] const, o: i32[4] in values 0..{0}, "
                            R"(y: f32[{0}, {1}] out) family experts
  c: f32[{0}, {1}] heap
  for zm < {0} [clear]:
    for zn < {1} [clear]:
      y[zm, zn] = 0.0
  for t < 3 [batch]:
    for m < i64(o[t + 1]) - i64(o[t]) [m]:
      for n < {1} [n]:
        c[i64(o[t]) + m, n] = 0.0
        for k < {2} [k]:
          c[i64(o[t]) + m, n] += f32(x[i64(o[t]) + m, k]) * f32(w[t, {4}])
        y[i64(o[t]) + m, n] = c[i64(o[t]) + m, n]
)",
                            rows, n, k, transposed ? fmt::format("{}, {}", n, k) : fmt::format("{}, {}", k, n),
                            transposed ? "n, k" : "k, n"));
  p.allowed = ir::kReassociate | ir::kContract | ir::kBf16Dots;
  return p;
}

// Of bytes, their sums as they are.
Problem product_of_bytes(int64_t m, int64_t k, int64_t n, const char* a, const char* b) {
  Problem p;
  p.kernel = kernel_of(
      fmt::format(R"(kernel product(x: {3}[{0}, {2}] in, w: {4}[{2}, {1}] const, y: i32[{0}, {1}] out) family matmul
  c: i32[{0}, {1}] heap
  for m < {0} [m]:
    for n < {1} [n]:
      c[m, n] = 0:i32
      for k < {2} [k]:
        c[m, n] += i32(x[m, k]) * i32(w[k, n])
      y[m, n] = c[m, n]
)",
                  m, n, k, a, b));
  return p;
}

ir::Target zen5() { return test::find_machine("zen5")->target; }

std::vector<int64_t> choices(const Problem& p, const ir::Target& t) {
  for (const KnobDomain& d : kMatmulRecipe.knobs(p, t)) {
    if (d.name == "dp") return d.values;
  }
  return {};
}

TEST(Pairs, are_for_callers_and_machines_that_have_them) {
  Problem p = product(16, 64, 64);
  EXPECT_EQ(choices(p, zen5()), (std::vector<int64_t>{1, 0}));
  p.one_layout = true;
  EXPECT_EQ(choices(p, zen5()), std::vector<int64_t>{1});
  EXPECT_EQ(knob_of(kMatmulRecipe.defaults(p, zen5()), "dp"), 1);
  EXPECT_THAT(kMatmulRecipe.accepts({{"mr", 4}, {"nr", 32}, {"dp", 0}}, p, zen5()).to_string(),
              HasSubstr("dp 0: not the layout of this weight"));
  EXPECT_EQ(choices(p, zen5().without(ir::kCpu_avx512bf16)), std::vector<int64_t>{});
  EXPECT_EQ(choices(p, zen5().cap(ir::IsaLevel::avx2)), std::vector<int64_t>{});
  p.allowed = ir::kReassociate | ir::kContract;
  EXPECT_EQ(choices(p, zen5()), std::vector<int64_t>{});
  EXPECT_EQ(knob_of(kMatmulRecipe.defaults(p, zen5()), "dp"), 0);
  EXPECT_EQ(choices(product(16, 63, 64), zen5()), std::vector<int64_t>{}) << "an odd K";
  EXPECT_EQ(choices(product(16, 2, 64), zen5()), std::vector<int64_t>{}) << "a single pair";
  EXPECT_EQ(choices(product(16, 64, 64, false, "f32"), zen5()), std::vector<int64_t>{}) << "rows of f32";
  EXPECT_EQ(choices(product(16, 64, 1), zen5()), std::vector<int64_t>{}) << "one column";
  EXPECT_THAT(kMatmulRecipe.accepts({{"mr", 4}, {"nr", 32}, {"dp", 1}}, p, zen5()).to_string(),
              HasSubstr("dp 1: no pairs of bf16, or they are not allowed"));
}

// Where a pair takes longer than its two multiply-adds, the model knows, and tiles come first.
TEST(Pairs, that_are_slow_cost_more) {
  const ir::Target xeon = test::find_machine("xeon")->target;
  ir::Target quick = xeon;
  quick.memory_rate = ir::Target::kFastMemory;
  const Problem p = product(16, 64, 64);
  const Knobs pairs = {{"mr", 8}, {"nr", 32}, {"dp", 1}}, tiles = {{"mr", 16}, {"nr", 32}, {"dp", 2}};
  EXPECT_GT(kMatmulRecipe.estimate(pairs, p, xeon), 1.5 * kMatmulRecipe.estimate(pairs, p, quick));
  EXPECT_EQ(kMatmulRecipe.estimate(tiles, p, xeon), kMatmulRecipe.estimate(tiles, p, quick));
}

// Tails of rows and columns, blocks of K and of rows, panels side by side, every prefetch.
TEST(Pairs, keep_the_values) {
  struct Case {
    Problem problem;
    Knobs knobs;
  };
  const Case cases[] = {
      {product(1, 4, 32), {{"mr", 1}}},
      {product(5, 10, 37), {{"mr", 4}}},
      {product(8, 12, 64, true), {{"mr", 4}, {"st", 2}}},
      {product(13, 16, 31, true), {{"mr", 8}, {"pf", -1}}},
      {product(3, 16, 33), {{"mr", 3}, {"pf", 8192}}},
      {product(12, 1024, 40), {{"mr", 4}, {"kc", 512}}},
      {product(200, 6, 19), {{"mr", 8}, {"mc", 96}}},
      {product(12, 8, 33), {{"mr", 4}, {"mu", 1}}},
      {product_of_groups(37, 12, 33), {{"mr", 4}}},
      {product_of_groups(37, 12, 64, true), {{"mr", 5}, {"st", 2}, {"pf", 8192}}},
  };
  for (const Case& c : cases) {
    Knobs knobs = {{"nr", 32}, {"dp", 1}};
    knobs.insert(c.knobs.begin(), c.knobs.end());
    const std::optional<Made> made = expect_values_kept(c.problem, knobs, zen5());
    ASSERT_TRUE(made);
    EXPECT_NE(made->schedule.numeric & ir::kBf16Dots, 0u);
    EXPECT_EQ(made->kernel.find_buffer("w")->layout.back().tile, 2) << "pairs lie side by side";
  }
}

// The same panels serve tiles: rows and blocks of rows that are no whole tiles, every prefetch.
TEST(WholeTiles, keep_the_values) {
  struct Case {
    Problem problem;
    Knobs knobs;
  };
  const ir::Target t = test::find_machine("xeon")->target;
  const Case cases[] = {
      {product(1, 64, 32), {{"mr", 1}}},
      {product(16, 64, 64, true), {{"mr", 16}, {"pf", 4096}}},
      {product(37, 96, 64), {{"mr", 32}}},
      {product(70, 64, 32, true), {{"mr", 32}, {"pf", -1}}},
      {product(200, 64, 32), {{"mr", 32}, {"mc", 96}}},
      {product(11, 64, 128, true), {{"mr", 11}, {"st", 2}, {"pf", 8192}}},
      {product(37, 96, 64), {{"mr", 16}, {"st", 2}}},
      {product(64, 128, 64), {{"mr", 32}, {"kc", 64}}},
      {product(37, 128, 64, true), {{"mr", 32}, {"kc", 64}, {"pf", -1}}},
      {product(200, 128, 32), {{"mr", 32}, {"kc", 64}, {"mc", 96}}},
      {product_of_groups(37, 64, 64), {{"mr", 12}, {"st", 2}}},
      {product_of_groups(70, 96, 32, true), {{"mr", 16}, {"pf", 4096}}},
  };
  for (const Case& c : cases) {
    Knobs knobs = {{"nr", 32}, {"dp", 2}};
    knobs.insert(c.knobs.begin(), c.knobs.end());
    const std::optional<Made> made = expect_values_kept(c.problem, knobs, t);
    ASSERT_TRUE(made);
  }
}

// Code of tiles for any number of rows is much: a first call does not wait for it.
TEST(WholeTiles, are_the_default_of_groups_where_nobody_waits) {
  const ir::Target t = test::find_machine("xeon")->target;
  Problem p = product_of_groups(128, 2048, 2048);
  EXPECT_EQ(knob_of(kMatmulRecipe.defaults(p, t), "dp"), 1);
  p.unhurried = true;
  EXPECT_EQ(knob_of(kMatmulRecipe.defaults(p, t), "dp"), 2);
}

// A call's stream keeps pace with its steps, however many rows of B each reads.
TEST(WholeTiles, are_prefetched_as_fast_as_they_are_read) {
  const ir::Target t = test::find_machine("xeon")->target;
  for (const auto& [dots, to] : {std::pair(1, "lines=8\n"), std::pair(2, "lines=128 to=l2\n")}) {
    const std::optional<Made> made =
        expect_values_kept(product(8, 64, 32), {{"mr", 8}, {"nr", 32}, {"dp", dots}, {"pf", 4096}}, t);
    ASSERT_TRUE(made);
    EXPECT_THAT(to_text(made->schedule), HasSubstr(to));
    const ir::CutKernel cut_kernel = *cut(made->kernel);
    int streams = 0;
    const auto look = [&](const auto& self, const ir::NestNode& node) -> void {
      for (const ir::NestStream& stream : node.call.streams) {
        ++streams;
        EXPECT_EQ(ir::print(stream.block_bytes), "4096") << "a panel";
      }
      for (const ir::NestNode& inner : node.body) self(self, inner);
    };
    for (const ir::NestNode& phase : cut_kernel.nest.phases) look(look, phase);
    EXPECT_EQ(streams, 1);
  }
}

// One stream that is prefetched is as fast as memory.
TEST(WholeTiles, of_few_rows_read_one_stream) {
  const ir::Target t = test::find_machine("xeon")->target;
  for (const int64_t rows : {8, 16, 32}) {
    Problem p = product(rows, 4096, 4096);
    p.cold = true;
    const Knobs k = kMatmulRecipe.defaults(p, t);
    EXPECT_EQ(knob_of(k, "dp"), 2);
    EXPECT_EQ(knob_of(k, "mr"), rows);
    EXPECT_EQ(knob_of(k, "st"), 1);
    EXPECT_GT(knob_of(k, "pf"), 0);
  }
}

TEST(WholeTiles, of_bytes_keep_the_values) {
  struct Case {
    Problem problem;
    Knobs knobs;
  };
  const ir::Target t = test::find_machine("xeon")->target;
  const Case cases[] = {
      {product_of_bytes(2, 128, 32, "u8", "i8"), {{"mr", 2}}},
      {product_of_bytes(37, 192, 64, "i8", "u8"), {{"mr", 32}}},
      {product_of_bytes(70, 128, 32, "u8", "i8"), {{"mr", 32}, {"pf", -1}}},
      {product_of_bytes(200, 128, 32, "i8", "u8"), {{"mr", 32}, {"mc", 96}}},
      {product_of_bytes(11, 128, 128, "u8", "i8"), {{"mr", 11}, {"st", 2}, {"pf", 8192}}},
      {product_of_bytes(64, 256, 32, "i8", "u8"), {{"mr", 32}, {"kc", 128}}},
  };
  for (const Case& c : cases) {
    Knobs knobs = {{"nr", 32}, {"dp", 2}};
    knobs.insert(c.knobs.begin(), c.knobs.end());
    const std::optional<Made> made = expect_values_kept(c.problem, knobs, t);
    ASSERT_TRUE(made);
    EXPECT_NE(to_text(made->schedule).find("tile_u8s8"), std::string::npos);
    EXPECT_EQ(made->schedule.numeric, uint32_t{ir::kExact});
  }
  Problem zero_points = cases[0].problem;
  zero_points.kernel = kernel_of(
      R"(kernel product(x: u8[37, 128] in, w: i8[128, 64] const, z: i8[64] const, y: i32[37, 64] out) family matmul
  rows: i32[37] heap
  c: i32[37, 64] heap
  for i < 37 [sums]:
    rows[i] = 0:i32
    for j < 128 [sums]:
      rows[i] += i32(x[i, j])
  for m < 37 [m]:
    for n < 64 [n]:
      c[m, n] = 0:i32
      for k < 128 [k]:
        c[m, n] += i32(x[m, k]) * i32(w[k, n])
      y[m, n] = c[m, n] - rows[m] * i32(z[n])
)");
  EXPECT_TRUE(expect_values_kept(zero_points, {{"mr", 32}, {"nr", 32}, {"dp", 2}}, t));
  EXPECT_EQ(choices(product_of_bytes(32, 128, 64, "u8", "i8"), t), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(choices(product_of_bytes(32, 64, 64, "u8", "i8"), t), (std::vector<int64_t>{1}));
  EXPECT_EQ(choices(product_of_bytes(32, 96, 64, "u8", "i8"), t), (std::vector<int64_t>{1}));
}

TEST(WholeTiles, are_refused_where_a_side_is_no_tile) {
  const ir::Target t = test::find_machine("xeon")->target;
  const auto refused = [&](const Problem& p, const Knobs& others) {
    Knobs knobs = others;
    knobs.insert({{"mr", 16}, {"nr", 32}, {"dp", 2}});
    return kMatmulRecipe.accepts(knobs, p, t).to_string();
  };
  EXPECT_THAT(refused(product(32, 48, 64), {}), HasSubstr("dp 2: no tiles here"));
  EXPECT_THAT(refused(product(32, 64, 48), {}), HasSubstr("dp 2: no tiles here"));
  EXPECT_THAT(refused(product(32, 64, 64), {{"pa", 1}}), HasSubstr("dp 2: panels of 32 columns, A in place"));
  EXPECT_THAT(refused(product(32, 96, 64), {{"kc", 48}}), HasSubstr("kc 48: K 96 is not several whole blocks"));
  EXPECT_THAT(refused(product(32, 96, 64), {{"kc", 64}}), HasSubstr("kc 64: K 96 is not several whole blocks"));
  EXPECT_THAT(refused(product(32, 128, 64), {{"kc", 32}}), HasSubstr("kc 32: K 128 is not several whole blocks"));
  EXPECT_THAT(refused(product(32, 128, 64), {{"kc", 64}, {"st", 2}}), HasSubstr("st 2: a K block is one panel's"));
  EXPECT_THAT(refused(product(32, 64, 96), {{"st", 2}}), HasSubstr("st 2: two panels of at most 16 rows"));
  EXPECT_THAT(refused(product(32, 64, 64), {{"mr", 32}, {"st", 2}}), HasSubstr("st 2: two panels of at most 16 rows"));
  EXPECT_THAT(refused(product(32, 64, 64), {{"st", 2}, {"pf", -1}}), HasSubstr("pf next: two panels"));
  EXPECT_EQ(choices(product(32, 64, 64), t), (std::vector<int64_t>{1, 2, 0}));
  EXPECT_EQ(choices(product(32, 64, 64), t.cap(ir::IsaLevel::avx512)), (std::vector<int64_t>{1, 0}));
}

TEST(Pairs, are_refused_where_rows_or_blocks_are_not_whole_pairs) {
  const auto refused = [&](const Problem& p, const Knobs& others) {
    Knobs knobs = {{"mr", 4}, {"nr", 32}, {"dp", 1}};
    knobs.insert(others.begin(), others.end());
    return kMatmulRecipe.accepts(knobs, p, zen5()).to_string();
  };
  EXPECT_THAT(refused(product(16, 64, 64), {{"pa", 1}}), HasSubstr("dp 1: rows of A are read in place"));
  EXPECT_THAT(refused(product(16, 1030, 64), {{"kc", 512}}), HasSubstr("K 1030 is not whole blocks of steps"));
}

}  // namespace
}  // namespace lathe::search
