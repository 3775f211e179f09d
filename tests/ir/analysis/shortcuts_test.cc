// The short ways of the analyses give what the long ones do: a sum is recognised without being written out, ends are
// worked out without the canonical form, and what a point in range refutes no proof shows.
#include <gtest/gtest.h>

#include "ir/analysis/canon.h"
#include "ir/core/text_form.h"
#include "tests/ir/analysis/random_index.h"

namespace lathe::ir {
namespace {

TEST(Shortcuts, AnExpressionIsKnownForTheOneItsSumMakes) {
  int same = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    RandomIndex random(seed);
    const Canon canon(random.ranges(), true);
    const Expr e = random.index(3);
    const Poly p = canon.poly(e);
    if (p.overflow) continue;
    const Expr made = to_expr(p);
    EXPECT_TRUE(is_expr_of(p, made)) << print(made);
    EXPECT_EQ(is_expr_of(p, e), equal(made, e)) << print(e) << " is " << print(made);
    const Poly other = canon.poly(random.index(2));
    EXPECT_EQ(is_expr_of(other, made), equal(to_expr(other), made)) << print(to_expr(other)) << " and " << print(made);
    same += equal(made, e);
  }
  EXPECT_GT(same, 50);
}

// The sum of the sums of its parts; none: some part is something else.
std::optional<Poly> sum_of_parts(const Expr& e) {
  if (is_const_int(e)) return Poly::constant(e->ival);
  if (e->args.empty()) return Poly::atom(e);
  std::vector<Poly> parts;
  for (const Expr& a : e->args) {
    const std::optional<Poly> part = sum_of_parts(a);
    if (!part) return std::nullopt;
    parts.push_back(*part);
  }
  if (e->op == Op::k_add || e->op == Op::k_sub) return add(parts[0], parts[1], e->op == Op::k_add ? 1 : -1);
  if (e->op == Op::k_neg) return scaled(parts[0], -1);
  const bool factor = e->op == Op::k_mul && (is_const_int(e->args[0]) || is_const_int(e->args[1]));
  return factor ? std::optional(mul(parts[0], parts[1])) : std::nullopt;
}

TEST(Shortcuts, APlainSumIsTheSumOfItsParts) {
  int plain = 0;
  for (uint64_t seed = 0; seed < 6000; ++seed) {
    RandomIndex random(seed);
    const Expr e = random.index(3);
    const int64_t scale = random.pick(1, 8) * (random.pick(0, 1) == 0 ? 1 : -1);
    const std::optional<Poly> parts = sum_of_parts(e);
    Poly p;
    ASSERT_EQ(Canon(random.ranges(), false).add_plain(e, scale, p), parts.has_value()) << print(e);
    if (!parts) continue;
    EXPECT_TRUE(equal(p, scaled(*parts, scale))) << print(e) << " is " << print(to_expr(p));
    plain += p.terms.size() > 1;
  }
  EXPECT_GT(plain, 200);
  Poly p;
  const RandomIndex random(1);
  const Canon canon(random.ranges(), false);
  EXPECT_TRUE(canon.add_plain(Expr(INT64_MAX), 1, p));
  EXPECT_FALSE(canon.add_plain(Expr(1), 1, p)) << "their sum is not representable";
  EXPECT_FALSE(canon.add_plain(Expr(2) * iter("i"), INT64_MAX, p));
}

TEST(Shortcuts, WhatSimplifyReturnsIsCanonical) {
  int sums = 0;
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    RandomIndex random(seed);
    const Expr e = simplify(random.index(3), random.ranges());
    EXPECT_TRUE(equal(Canon(random.ranges(), true).expr(e), e)) << print(e);
    sums += e->op == Op::k_add || e->op == Op::k_sub;
  }
  EXPECT_GT(sums, 300);
  RandomIndex random(1);
  const Expr i = iter("i"), j = iter("j"), k = iter("k");
  for (const Expr& e : {j + i, i + i, i + 2 + j, 1 * i + j, 0 * i + j, -i + j, i - j, 2 + i, i + 8 * j - 3, i + 0,
                        i * 8 + j, i + (j + k)}) {
    EXPECT_TRUE(equal(simplify(e, random.ranges()), Canon(random.ranges(), true).expr(e))) << print(e);
  }
}

TEST(Shortcuts, EndsAreAtLeastAsCloseAsTheCanonicalForms) {
  int closer = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    RandomIndex random(seed);
    const Expr e = random.index(3);
    const Interval quick = interval(e, random.ranges()),
                   canonical = interval_of(Canon(random.ranges(), false).poly(e), random.ranges());
    EXPECT_GE(quick.lo, canonical.lo) << print(e);
    EXPECT_LE(quick.hi, canonical.hi) << print(e);
    closer += quick.lo > canonical.lo || quick.hi < canonical.hi;
  }
  EXPECT_GT(closer, 0);
}

TEST(Shortcuts, PointsLieInRange) {
  const RandomIndex random(1);
  const Ranges& ranges = random.ranges();
  for (size_t point = 0; point < Points::kCount; ++point) {
    Env env;
    for (const char* name : {"M", "N", "i", "j", "k"}) {
      const Points* points = ranges.points_of(name);
      ASSERT_TRUE(points != nullptr && points->known[point]) << name;
      const int64_t value = points->value[point];
      EXPECT_GE(value, ranges.find(name)->lo) << name;
      EXPECT_LE(value, ranges.find(name)->hi) << name;
      EXPECT_EQ(value % ranges.multiple_of(name), 0) << name;
      if (const Expr* extent = ranges.extent_of(name)) {
        EXPECT_LT(value, *evaluate(*extent, env)) << name;
      }
      env.emplace_back(name, value);
    }
  }
  EXPECT_EQ(ranges.points_of("unknown"), nullptr);
}

// At each point what evaluate() gives with the names' values there.
TEST(Shortcuts, PointsAreEvaluatedAsOneByOne) {
  int known = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    RandomIndex random(seed);
    const Expr e = seed % 4 == 0
                       ? select(make(Op::k_lt, {random.index(2), random.index(2)}), random.index(2), -random.index(2))
                       : random.index(3);
    const Points all = evaluate_at(e, random.ranges());
    for (size_t point = 0; point < Points::kCount; ++point) {
      Env env;
      for (const char* name : {"M", "N", "i", "j", "k"})
        env.emplace_back(name, random.ranges().points_of(name)->value[point]);
      const std::optional<int64_t> one = evaluate(e, env);
      ASSERT_EQ(all.known[point], one.has_value()) << print(e);
      EXPECT_EQ(all.value[point], one.value_or(0)) << print(e);
      known += one.has_value();
    }
  }
  EXPECT_GT(known, 3000);
}

// negative_somewhere() may only say so of what some values in range make negative.
TEST(Shortcuts, WhatAPointRefutesIsNegativeThere) {
  int refuted = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    RandomIndex random(seed);
    const Expr e = random.index(3);
    const Poly p = Canon(random.ranges(), false).poly(e);
    if (!negative_somewhere(p, random.ranges())) continue;
    ++refuted;
    bool found = false;
    const Points points = evaluate_at(e, random.ranges());
    for (size_t point = 0; point < Points::kCount; ++point) found |= points.known[point] && points.value[point] < 0;
    EXPECT_TRUE(found) << print(e);
    EXPECT_FALSE(proves_le(Expr(0), e, random.ranges())) << print(e);
  }
  EXPECT_GT(refuted, 300);
}

}  // namespace
}  // namespace lathe::ir
