// Ranges, interval, proofs of <= and divisibility, affine form, evaluation.
#include <gtest/gtest.h>

#include "tests/ir/analysis/random_index.h"

namespace lathe::ir {
namespace {

Expr i(const char* name) { return iter(name); }
Expr s(const char* name) { return symbol(name); }

TEST(Bounds, TilesStayInside) {
  Ranges r;
  r.enter(make_scope("n0", 152, {}));
  r.enter(make_scope("n1", 32, {}));
  EXPECT_TRUE(proves_lt(32 * i("n0") + i("n1"), 4864, r));
  EXPECT_FALSE(proves_lt(32 * i("n0") + i("n1"), 4863, r));
  EXPECT_FALSE(proves_lt(32 * i("n0") + i("n1") + 1, 4864, r));
}

TEST(Bounds, WhatIsLoadedHasItsRange) {
  Kernel k;
  k.symbols = {{"P", 0, 50000}};
  k.buffers.resize(2);
  k.buffers[0].name = "ids";
  k.buffers[0].type = DType::i32;
  k.buffers[0].values = {Expr(2), s("P") - 1};
  k.buffers[1].name = "any";
  Ranges r(k);
  r.enter(make_scope("t", 8, {}));
  const Expr id = cast(DType::i64, load("ids", {i("t")}, DType::i32));
  const Interval v = interval(id, r);
  EXPECT_EQ(v.lo, 2);
  EXPECT_EQ(v.hi, 49999);
  EXPECT_TRUE(proves_lt(id, s("P"), r));
  EXPECT_FALSE(proves_lt(id, s("P") - 1, r));
  EXPECT_FALSE(proves_lt(id + 1, s("P"), r));
  EXPECT_TRUE(proves_le(2, id, r));
  EXPECT_FALSE(proves_le(3, id, r));
  EXPECT_TRUE(proves_lt(8 * floordiv(id, 8), s("P"), r));
  EXPECT_TRUE(proves_lt(8 * id + i("t"), 8 * s("P"), r));
  EXPECT_FALSE(proves_lt(9 * id + i("t"), 8 * s("P"), r));
  EXPECT_FALSE(proves_lt(cast(DType::i64, load("any", {i("t")}, DType::i32)), s("P"), r));
  EXPECT_FALSE(proves_lt(cast(DType::i64, load("ids", {i("t")}, DType::i32)), 49999, r));
}

// As many pages as hold the tokens that an input counts, at most all of a table whose width is a symbol.
TEST(Bounds, ALoopOverLoadedPagesStaysInTheirTable) {
  Kernel k;
  k.symbols = {{"P", 0, 256}};
  k.buffers.resize(1);
  k.buffers[0].name = "lengths";
  k.buffers[0].type = DType::i64;
  k.buffers[0].values = {Expr(0), 16 * s("P")};
  Ranges r(k);
  r.enter(make_scope("t", 8, {}));
  const Expr length = load("lengths", {i("t")}, DType::i64);
  r.enter(make_scope("p", ceildiv(length, 16), {}));
  EXPECT_TRUE(proves_lt(i("p"), s("P"), r));
  EXPECT_FALSE(proves_lt(i("p") + 1, s("P"), r));
  r.enter(make_scope("q", ceildiv(length, 15), {}));
  EXPECT_FALSE(proves_lt(i("q"), s("P"), r));
  r.enter(make_scope("f", floordiv(length, 16), {}));
  EXPECT_TRUE(proves_lt(i("f"), s("P"), r));
  r.enter(make_scope("e", min(16, length - 16 * i("p")), {}));
  EXPECT_TRUE(proves_lt(16 * i("p") + i("e"), 16 * s("P"), r));
  EXPECT_TRUE(proves_lt(16 * i("p") + i("e"), length, r));
}

TEST(Bounds, MaskedTail) {
  Ranges r;
  r.set("M", {1, 4096});
  r.enter(make_scope("m0", ceildiv(s("M"), 8), {}));
  EXPECT_TRUE(proves_lt(8 * i("m0"), s("M"), r));
  r.enter(make_scope("m1", min(8, s("M") - 8 * i("m0")), {}));
  EXPECT_TRUE(proves_lt(8 * i("m0") + i("m1"), s("M"), r));
  EXPECT_TRUE(proves_le(0, 8 * i("m0") + i("m1"), r));
  EXPECT_TRUE(proves_lt(i("m1"), 8, r));
  EXPECT_FALSE(proves_lt(8 * i("m0") + i("m1") + 1, s("M"), r));
  EXPECT_FALSE(proves_lt(8 * i("m0") + 7, s("M"), r));
}

// The last 40 of the N keys: min(40, N) of them from max(0, N - 40) on.
TEST(Bounds, AWindowEndsWhereItsKeysDo) {
  Ranges r;
  r.set("N", {0, 4096});
  r.enter(make_scope("j", min(40, s("N")), {}));
  EXPECT_TRUE(proves_lt(i("j") + max(0, s("N") - 40), s("N"), r));
  EXPECT_FALSE(proves_lt(i("j") + max(0, s("N") - 39), s("N"), r));
  EXPECT_FALSE(proves_lt(i("j") + max(1, s("N") - 40), s("N"), r));
  r.enter(make_scope("k", ceildiv(min(40, s("N")), 16), {}));
  r.enter(make_scope("e", min(16, min(40, s("N")) - 16 * i("k")), {}));
  EXPECT_TRUE(proves_lt(16 * i("k") + i("e") + max(0, s("N") - 40), s("N"), r));
  EXPECT_FALSE(proves_lt(16 * i("k") + i("e") + 1 + max(0, s("N") - 40), s("N"), r));
}

// A part of 48 keys that there is has a block of 16 at least.
TEST(Bounds, WhatThereIsOfHasABlock) {
  Ranges r;
  r.set("N", {0, 4096});
  r.enter(make_scope("p", ceildiv(s("N"), 48), {}));
  const Expr part = min(48, s("N") - 48 * i("p"));
  EXPECT_TRUE(proves_le(16, 16 * ceildiv(part, 16), r));
  EXPECT_FALSE(proves_le(17, 16 * ceildiv(part, 16), r));
  EXPECT_FALSE(proves_le(16, 16 * ceildiv(part - 1, 16), r));
  EXPECT_FALSE(proves_le(16, 16 * floordiv(part, 16), r));
}

TEST(Bounds, TwoLevelsOfMaskedTails) {
  Ranges r;
  r.set("N", {0, 100000});
  r.enter(make_scope("a", ceildiv(s("N"), 512), {}));
  r.enter(make_scope("b", ceildiv(min(512, s("N") - 512 * i("a")), 16), {}));
  r.enter(make_scope("c", min(16, min(512, s("N") - 512 * i("a")) - 16 * i("b")), {}));
  EXPECT_TRUE(proves_lt(512 * i("a") + 16 * i("b") + i("c"), s("N"), r));
  EXPECT_FALSE(proves_lt(512 * i("a") + 16 * i("b") + i("c"), s("N") - 1, r));
}

TEST(Bounds, PeeledAndClampedTails) {
  Ranges r;
  r.set("N", {16, 4096});
  r.enter(make_scope("n0", floordiv(s("N"), 16), {}));
  r.enter(make_scope("n1", 16, {}));
  EXPECT_TRUE(proves_lt(16 * i("n0") + i("n1"), s("N"), r));
  r.enter(make_scope("n2", mod(s("N"), 16), {}));
  EXPECT_TRUE(proves_lt(16 * floordiv(s("N"), 16) + i("n2"), s("N"), r));
  r.enter(make_scope("t0", ceildiv(s("N"), 16), {}));
  const Expr clamped = min(16 * i("t0"), s("N") - 16);
  r.enter(make_scope("t1", 16, {}));
  EXPECT_TRUE(proves_lt(clamped + i("t1"), s("N"), r));
  EXPECT_TRUE(proves_le(0, clamped + i("t1"), r));
  EXPECT_FALSE(proves_lt(clamped + i("t1") + 1, s("N"), r));
  Ranges small;
  small.set("N", {15, 4096});
  small.enter(make_scope("t0", ceildiv(s("N"), 16), {}));
  EXPECT_FALSE(proves_le(0, min(16 * i("t0"), s("N") - 16), small));
}

TEST(Bounds, SymbolicExtentsAndProducts) {
  Ranges r;
  r.set("M", {1, 1 << 20});
  r.set("N", {1, 1 << 20});
  r.enter(make_scope("a", s("M"), {}));
  r.enter(make_scope("b", s("N"), {}));
  EXPECT_TRUE(proves_lt(i("b"), s("N"), r));
  EXPECT_FALSE(proves_lt(i("a"), s("N"), r));
  EXPECT_TRUE(proves_lt(i("a") * s("N") + i("b"), s("M") * s("N"), r));
  EXPECT_FALSE(proves_lt(i("a") * s("N") + i("b") + 1, s("M") * s("N"), r));
  EXPECT_TRUE(proves_le(s("M"), s("M") * s("N"), r));
}

TEST(Bounds, SymbolsWithoutAnUpperEnd) {
  Ranges r;
  r.set("e0", {0, INT64_MAX});
  r.enter(make_scope("i0", ceildiv(s("e0"), 16), {}));
  r.enter(make_scope("i1", min(16, s("e0") - 16 * i("i0")), {}));
  EXPECT_TRUE(proves_lt(16 * i("i0") + i("i1"), s("e0"), r));
  EXPECT_EQ(interval(i("i1"), r).hi, 15);
  EXPECT_EQ(interval(16 * i("i0"), r).hi, INT64_MAX);
}

TEST(Bounds, Divisible) {
  Ranges r;
  r.set("K", {32, 4096}, 32);
  r.set("N", {1, 100});
  EXPECT_TRUE(proves_divisible(s("K") + 64 * i("x"), 32, r));
  EXPECT_FALSE(proves_divisible(s("K") + 16 * i("x"), 32, r));
  EXPECT_TRUE(proves_divisible(s("K") * s("N"), 32, r));
  EXPECT_TRUE(proves_divisible(floordiv(s("K"), 4), 8, r));
  EXPECT_TRUE(proves_divisible(min(s("K"), 96), 32, r));
  EXPECT_FALSE(proves_divisible(s("N"), 2, r));
  EXPECT_TRUE(proves_divisible(Expr(0), 7, r));
}

TEST(Bounds, MultiplesTightenTheEnds) {
  Ranges r;
  r.set("K", {1, 100}, 32);
  EXPECT_EQ(r.find("K")->lo, 32);
  EXPECT_EQ(r.find("K")->hi, 96);
}

TEST(Bounds, RandomProofsAreNeverWrong) {
  RandomIndex random(3);
  int proved = 0;
  for (int round = 0; round < 6000; ++round) {
    const Expr a = random.index(random.pick(0, 3)),
               b = random.pick(0, 1) ? random.index(random.pick(0, 2)) : a + Expr(random.pick(-2, 9));
    const bool le = proves_le(a, b, random.ranges()), lt = proves_lt(a, b, random.ranges());
    const int by = random.pick(2, 16);
    const bool divisible = proves_divisible(a, by, random.ranges());
    proved += le;
    for (int sample = 0; sample < 24 && (le || divisible); ++sample) {
      const Env env = random.values();
      const auto x = evaluate(a, env), y = evaluate(b, env);
      if (!x || !y) continue;
      ASSERT_TRUE(!le || *x <= *y) << *x << " " << *y;
      ASSERT_TRUE(!lt || *x < *y) << *x << " " << *y;
      ASSERT_TRUE(!divisible || *x % by == 0) << *x << " % " << by;
    }
  }
  EXPECT_GT(proved, 1000);
}

TEST(Affine, TermsInNameOrder) {
  const auto form = affine_form(3 * i("b") + s("N") * i("a") + s("M") - 2 + i("b"));
  ASSERT_TRUE(form);
  ASSERT_EQ(form->terms.size(), 2u);
  EXPECT_EQ(form->terms[0].first, "a");
  EXPECT_TRUE(equal(form->terms[0].second, s("N")));
  EXPECT_TRUE(is_const_int(form->coeff("b"), 4));
  EXPECT_TRUE(is_const_int(form->coeff("z"), 0));
  EXPECT_TRUE(equal(form->rest, s("M") - 2));
}

TEST(Affine, RefusesProductsMinsAndLoads) {
  EXPECT_FALSE(affine_form(i("a") * i("b")));
  EXPECT_FALSE(affine_form(min(i("a"), s("N"))));
  EXPECT_FALSE(affine_form(floordiv(i("a"), 2)));
  EXPECT_FALSE(affine_form(load("t", {Expr(0)}, DType::i64)));
  EXPECT_TRUE(affine_form(min(s("M"), s("N")) + i("a")));
  EXPECT_TRUE(affine_form(floordiv(4 * i("a"), 2)));
}

TEST(Affine, Uses) {
  const Expr e = load("x", {i("a") + s("N")}, DType::f32);
  EXPECT_TRUE(uses(e, "x"));
  EXPECT_TRUE(uses(e, "a"));
  EXPECT_TRUE(uses(e, "N"));
  EXPECT_FALSE(uses(e, "b"));
  EXPECT_FALSE(uses(Expr(), "b"));
}

TEST(Affine, NamesOfOneBitAreTold) {
  std::vector<std::string> alike;  // as far as the bits of nodes say
  for (int n = 0; alike.size() < 3; ++n) {
    const std::string name = "name" + std::to_string(n);
    if (holds_name(name) == holds_name("a")) alike.push_back(name);
  }
  const Expr e = load("x", {floordiv(i("a") + 2, 4) * s(alike[0].c_str())}, DType::f32);
  EXPECT_TRUE(uses(e, alike[0]));
  EXPECT_FALSE(uses(e, alike[1]));
  EXPECT_EQ(substitute(e, {{alike[1], Expr(1)}}).get(), e.get());
  const Expr changed = substitute(e, {{alike[1], Expr(1)}, {"a", i("b")}});
  EXPECT_TRUE(equal(changed, load("x", {floordiv(i("b") + 2, 4) * s(alike[0].c_str())}, DType::f32)));
  EXPECT_FALSE(uses(changed, "a"));
  EXPECT_TRUE(uses(changed, "b"));
}

// A name of 8 letters and longer ones that end with the same 8.
TEST(Bounds, NamesOfOneTagAreTold) {
  Ranges r;
  r.set("12345678", {1, 1});
  r.set("a12345678", {2, 2});
  r.enter("b12345678", s("12345678") + s("a12345678"));
  EXPECT_EQ(r.find("12345678")->hi, 1);
  EXPECT_EQ(r.find("a12345678")->hi, 2);
  EXPECT_EQ(r.find("b12345678")->hi, 2);
  EXPECT_FALSE(r.find("c12345678"));
  EXPECT_FALSE(r.find("2345678"));
}

// What follows from an extent is found out late: it is the same whenever it is asked for.
TEST(Bounds, AnIteratorIsWhatItsExtentSays) {
  for (const bool asked : {false, true}) {
    Ranges r;
    r.set("N", {4, 10});
    r.enter("i", s("N"));
    r.enter("j", i("i") + 1);
    if (asked) {
      EXPECT_EQ(r.find("j")->hi, 9);
    }
    Ranges copy = r;
    copy.learn(s("N"), 10);
    EXPECT_EQ(copy.points_of("i")->value[0], 9);
    EXPECT_EQ(copy.find("j")->hi, 9);
    copy.enter("i", 100);  // another one
    EXPECT_EQ(copy.find("j")->hi, 9);
    EXPECT_EQ(copy.points_of("j")->value[0], 9);
    EXPECT_EQ(r.points_of("i")->value[0], 3);
    r.enter("k", i("k"));  // of itself nothing is known
    EXPECT_EQ(r.find("k")->hi, INT64_MAX);
    EXPECT_FALSE(r.points_of("k")->known[0]);
  }
}

TEST(Affine, EvaluateFloorsAndRefuses) {
  EXPECT_EQ(evaluate(floordiv(Expr(-7), 2), {}), -4);
  EXPECT_EQ(evaluate(mod(Expr(-7), 2), {}), 1);
  EXPECT_EQ(evaluate(ceildiv(Expr(-7), 2), {}), -3);
  EXPECT_EQ(evaluate(ceildiv(s("N"), 16), {{"N", 17}}), 2);
  EXPECT_EQ(evaluate(min(8, s("M") - 8 * i("m")), {{"M", 13}, {"m", 1}}), 5);
  EXPECT_FALSE(evaluate(s("N"), {}));
  EXPECT_FALSE(evaluate(floordiv(Expr(1), 0), {}));
  EXPECT_FALSE(evaluate(Expr(INT64_MAX) + Expr(1), {}));
  EXPECT_EQ(evaluate_dims({Expr(3), s("N")}, {{"N", 4}}), (std::vector<int64_t>{3, 4}));
  EXPECT_FALSE(evaluate_dims({s("N")}, {{"N", -1}}));
}

}  // namespace
}  // namespace lathe::ir
