// simplify: canonical forms by example, every rule of the table on random states, random expressions by value.
#include <gtest/gtest.h>

#include <chrono>
#include <map>

#include "ir/analysis/simplify_rules.h"
#include "tests/ir/analysis/random_index.h"

namespace lathe::ir {
namespace {

Ranges tile_ranges() {
  Ranges r;
  r.set("M", {1, 4096});
  r.set("N", {16, 4096});
  r.set("K", {32, 4096}, 32);
  r.enter(make_scope("n0", 152, {}));
  r.enter(make_scope("n1", 2, {}));
  r.enter(make_scope("n2", 16, {}));
  r.enter(make_scope("m0", ceildiv(symbol("M"), 8), {}));
  r.enter(make_scope("m1", min(8, symbol("M") - 8 * iter("m0")), {}));
  r.enter(make_scope("k0", floordiv(symbol("K"), 32), {}));
  r.enter(make_scope("k1", 32, {}));
  return r;
}
Expr i(const char* name) { return iter(name); }
Expr s(const char* name) { return symbol(name); }

struct Example {
  Expr before, after;
};
std::string show(const Expr& e) {
  if (!e) return "null";
  std::string out = op_info(e->op).id;
  out += e->name.empty() ? "" : ":" + e->name;
  if (e->op == Op::k_const_int) return std::to_string(e->ival);
  if (e->args.empty()) return out;
  out += "(";
  for (const Expr& a : e->args) out += show(a) + " ";
  return out + ")";
}

TEST(Simplify, Examples) {
  const Ranges r = tile_ranges();
  const Expr n = 32 * i("n0") + 16 * i("n1") + i("n2");
  const Example examples[] = {
      {floordiv(n, 32), i("n0")},
      {mod(n, 32), 16 * i("n1") + i("n2")},
      {floordiv(n, 16), 2 * i("n0") + i("n1")},
      {mod(n, 16), i("n2")},
      {i("n2") + 16 * i("n1") + i("n0") * 32, n},
      {i("n0") + 3 - i("n0"), 3},
      {(i("n0") + 1) * 4 - 4, 4 * i("n0")},
      {i("n0") * s("N") + s("N"), s("N") + s("N") * i("n0")},
      {ceildiv(s("N") + 16, 16), ceildiv(s("N"), 16) + 1},
      {floordiv(s("N") + 15, 16), ceildiv(s("N"), 16)},
      {ceildiv(s("K"), 16), floordiv(s("K"), 16)},
      {mod(s("K"), 16), 0},
      {min(32, s("K") - 32 * i("k0")), 32},
      {min(min(8, s("M")), min(4, s("M"))), min(4, s("M"))},
      {max(i("n2"), 0), i("n2")},
      {min(i("n2"), 100), i("n2")},
      {max(min(s("M"), i("n0")), s("M")), s("M")},
      {floordiv(floordiv(s("M"), 4), 8), floordiv(s("M"), 32)},
      {mod(mod(s("M"), 64), 16), mod(s("M"), 16)},
      {8 * floordiv(s("M"), 8) + mod(s("M"), 8), s("M")},
      {floordiv(i("n0") * s("N") + i("n2"), s("N")), i("n0")},
      {mod(i("n0") * s("N") + i("n2"), s("N")), i("n2")},
      {-(-i("n0")), i("n0")},
      {s("N") - 16 - s("N") + 16, 0},
  };
  for (const Example& e : examples) {
    const Expr got = simplify(e.before, r);
    EXPECT_TRUE(equal(got, e.after)) << show(e.before) << "\n got " << show(got) << "\nwant " << show(e.after);
  }
}

TEST(Simplify, SymbolicPeriodOfAScope) {
  Ranges r;
  r.set("N", {1, 4096});
  r.enter(make_scope("a", symbol("M"), {}));
  r.enter(make_scope("b", symbol("N"), {}));
  EXPECT_TRUE(equal(simplify(floordiv(i("a") * s("N") + i("b"), s("N")), r), i("a")));
  EXPECT_TRUE(equal(simplify(mod(i("a") * s("N") + i("b"), s("N")), r), i("b")));
  EXPECT_TRUE(equal(simplify(s("N") * floordiv(i("c"), s("N")) + mod(i("c"), s("N")), r), i("c")));
}

TEST(Simplify, ConditionsAndLoadsInsideFloats) {
  const Ranges r = tile_ranges();
  const Expr inside = make(Op::k_lt, {i("n2"), Expr(16)}), outside = make(Op::k_lt, {i("n2"), Expr(0)});
  const Expr x = load("x", {i("n2") + 1 - 1}, DType::f32), zero = const_float(0);
  EXPECT_TRUE(equal(simplify(select(inside, x, zero), r), load("x", {i("n2")}, DType::f32)));
  EXPECT_TRUE(equal(simplify(select(outside, x, zero), r), zero));
  const Expr kept = x + const_float(1) + const_float(2);
  EXPECT_TRUE(equal(simplify(kept, r), load("x", {i("n2")}, DType::f32) + const_float(1) + const_float(2)));
}

TEST(Simplify, RandomExpressionsKeepTheirValue) {
  RandomIndex random(1);
  int changed = 0, checked = 0;
  for (int round = 0; round < 6000; ++round) {
    const Expr e = random.index(random.pick(1, 4));
    const Expr got = simplify(e, random.ranges());
    changed += !equal(e, got);
    EXPECT_TRUE(equal(simplify(got, random.ranges()), got)) << "not idempotent: " << show(e) << "\n" << show(got);
    const Interval range = interval(e, random.ranges());
    for (int sample = 0; sample < 24; ++sample) {
      const Env env = random.values();
      const auto before = evaluate(e, env), after = evaluate(got, env);
      if (!before) continue;
      ++checked;
      ASSERT_TRUE(after.has_value()) << show(e) << "\n" << show(got);
      ASSERT_EQ(*before, *after) << show(e) << "\n" << show(got);
      ASSERT_TRUE(range.lo <= *before && *before <= range.hi)
          << show(e) << " = " << *before << " outside " << range.lo << ".." << range.hi;
    }
  }
  EXPECT_GT(changed, 3000);
  EXPECT_GT(checked, 100000);
}

std::optional<int64_t> value_of(const Division& d, const Env& env) {
  const auto extra = evaluate(to_expr(d.extra), env);
  if (!d.live || !extra) return extra;
  const auto part = evaluate(make(d.op, {to_expr(d.num), to_expr(d.den)}), env);
  return part ? std::optional(*extra + d.scale * *part) : std::nullopt;
}

TEST(Simplify, EveryRuleOfTheTableKeepsTheValue) {
  RandomIndex random(7);
  const Canon canon(random.ranges(), true);
  std::map<std::string, int> fired;
  for (int round = 0; round < 30000; ++round) {
    static constexpr Op kOps[] = {Op::k_floordiv, Op::k_mod, Op::k_ceildiv};
    Division before{kOps[random.pick(0, 2)], canon.poly(random.index(random.pick(0, 3))), canon.poly(random.divisor()),
                    random.pick(1, 3), canon.poly(random.leaf())};
    for (const DivisionRule& rule : kDivisionRules) {
      Division after = before;
      if (!rule.apply(after, canon)) continue;
      ++fired[rule.name];
      for (int sample = 0; sample < 6; ++sample) {
        const Env env = random.values();
        ASSERT_EQ(value_of(before, env), value_of(after, env))
            << rule.name << ": " << rule.picture << "\n"
            << show(to_expr(before.num)) << " by " << show(to_expr(before.den));
      }
    }
  }
  for (const DivisionRule& rule : kDivisionRules) EXPECT_GE(fired[rule.name], 20) << rule.name;
}

TEST(Simplify, TakesMicroseconds) {
  const Ranges r = tile_ranges();
  const Expr e = floordiv(32 * i("n0") + 16 * i("n1") + i("n2"), 32) * 896 + i("k1");
  const auto start = std::chrono::steady_clock::now();
  for (int round = 0; round < 1000; ++round) ASSERT_TRUE(simplify(e, r));
  const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / 1000;
  RecordProperty("us_per_simplify", std::to_string(us));
  EXPECT_LT(us, 500.0);  // a debug build on a busy machine; about 10 in a release build
}

}  // namespace
}  // namespace lathe::ir
