// The dependence rules against two independent oracles on random affine pairs: isl (exact, for all sizes) and the
// enumeration of every instance at small sizes. A claim of independence must be confirmed by both; how often the rules
// are more conservative than isl is recorded.
#include <gtest/gtest.h>

#include <iostream>
#include <random>
#include <set>

#ifdef LATHE_HAVE_ISL
#include <isl/ctx.h>
#include <isl/set.h>
#endif

#include "ir/analysis/dependence.h"
#include "ir/core/text_form.h"

namespace lathe::ir {
namespace {

// for o < 3: for i < extent: { for j < extent: y[a] = 0; for k < extent: y[b] = 0 }
struct Pair {
  Kernel kernel;
  Access a, b;
};

class RandomPair {
 public:
  explicit RandomPair(uint64_t seed) : rng_(seed) {}

  Kernel kernel() {
    Kernel k;
    k.name = "t";
    k.symbols = {{"N", 1, 24, 1}};
    const int rank = pick(1, 2);
    Buffer y;
    y.name = "y";
    y.place = Place::out;
    for (int d = 0; d < rank; ++d) y.dims.push_back(symbol("N"));
    k.buffers = {y};
    const Expr i_extent = outer_extent();
    Stmt first = make_scope("j", inner_extent(), {make_assign("y", index(rank, "j"), AssignOp::set, const_float(0))});
    Stmt second = make_scope("k", inner_extent(), {make_assign("y", index(rank, "k"), AssignOp::set, const_float(0))});
    k.body = {make_scope("o", 3, {make_scope("i", i_extent, {first, second})})};
    return k;
  }

 private:
  int pick(int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng_); }
  Expr outer_extent() {
    tiled_ = pick(0, 2) == 0;
    if (tiled_) return ceildiv(symbol("N"), 4);
    return pick(0, 1) ? symbol("N") : Expr(pick(1, 6));
  }
  Expr inner_extent() {
    if (tiled_ && pick(0, 3) != 0) return min(4, symbol("N") - 4 * iter("i"));
    return pick(0, 3) == 0 ? symbol("N") : Expr(pick(1, 5));
  }
  std::vector<Expr> index(int rank, const char* inner) {
    static constexpr int kCoefs[] = {-4, -2, -1, 0, 1, 1, 2, 3, 4, 4, 8};
    std::vector<Expr> out;
    for (int d = 0; d < rank; ++d) {
      Expr e = Expr(pick(-2, 4)) + Expr(kCoefs[pick(0, 10)]) * iter("i") + Expr(kCoefs[pick(2, 8)]) * iter(inner);
      if (pick(0, 3) == 0) e = e + Expr(pick(-1, 2)) * iter("o");
      if (pick(0, 5) == 0) e = e + symbol("N");
      out.push_back(e);
    }
    return out;
  }

  std::mt19937_64 rng_;
  bool tiled_ = false;
};

std::vector<Access> writes_of(const Kernel& k) { return collect_accesses(k.body); }

using Env = SymbolValues;

// The cells each iteration of i touches, at one N and o.
std::vector<std::set<std::vector<int64_t>>> cells(const Access& a, int64_t n, int64_t o) {
  std::vector<std::set<std::vector<int64_t>>> out;
  Env env = {{"N", n}, {"o", o}};
  const int64_t iterations = *evaluate(a.scopes[1]->extent, env);
  for (int64_t i = 0; i < iterations; ++i) {
    Env inner = env;
    inner.emplace_back("i", i);
    out.emplace_back();
    const int64_t steps = *evaluate(a.scopes[2]->extent, inner);
    inner.emplace_back(a.scopes[2]->iter, 0);
    for (int64_t j = 0; j < steps; ++j) {
      inner.back().second = j;
      std::vector<int64_t> cell;
      for (const Expr& e : a.index) cell.push_back(*evaluate(e, inner));
      out.back().insert(cell);
    }
  }
  return out;
}

bool meet_by_enumeration(const Access& a, const Access& b, int64_t n) {
  for (int64_t o = 0; o < 3; ++o) {
    const auto x = cells(a, n, o), y = cells(b, n, o);
    for (size_t i = 0; i < x.size(); ++i) {
      for (size_t j = 0; j < y.size(); ++j) {
        if (i == j) continue;
        for (const auto& cell : x[i]) {
          if (y[j].count(cell)) return true;
        }
      }
    }
  }
  return false;
}

TEST(DependenceOracle, EnumerationConfirmsIndependence) {
  RandomPair random(11);
  int independent = 0, missed = 0;
  for (int round = 0; round < 400; ++round) {
    const Kernel k = random.kernel();
    const std::vector<Access> all = writes_of(k);
    const bool may = may_conflict_across(k, "i", all[0], all[1], false);
    bool meets = false;
    for (const int64_t n : {1, 2, 3, 5, 8, 13, 24}) {
      meets |= meet_by_enumeration(all[0], all[1], n);
      ASSERT_TRUE(may || !meets) << "N = " << n << "\n" << print(k);
    }
    independent += !may;
    missed += may && !meets;
  }
  EXPECT_GT(independent, 40);
  RecordProperty("independent", independent);
  RecordProperty("more_conservative_than_enumeration", missed);
}

#ifdef LATHE_HAVE_ISL
// isl's syntax for an expression; `tag` renames the iterators of one instance.
std::string isl_text(const Expr& e, const std::string& tag) {
  switch (e->op) {
    case Op::k_const_int:
      return std::to_string(e->ival);
    case Op::k_symbol:
      return e->name;
    case Op::k_iter:
      return e->name == "o" ? e->name : e->name + tag;
    case Op::k_add:
      return "(" + isl_text(e->args[0], tag) + " + " + isl_text(e->args[1], tag) + ")";
    case Op::k_sub:
      return "(" + isl_text(e->args[0], tag) + " - " + isl_text(e->args[1], tag) + ")";
    case Op::k_mul:
      return "(" + isl_text(e->args[0], tag) + " * " + isl_text(e->args[1], tag) + ")";
    case Op::k_ceildiv:
      return "floor((" + isl_text(e->args[0], tag) + " + " + std::to_string(e->args[1]->ival - 1) + ") / " +
             std::to_string(e->args[1]->ival) + ")";
    default:
      return "?";
  }
}
std::string domain(const Access& a, const std::string& tag) {
  std::string out;
  for (size_t s = 1; s < a.scopes.size(); ++s) {
    const std::string name = a.scopes[s]->iter + tag;
    const Expr& extent = a.scopes[s]->extent;
    out += " and 0 <= " + name;
    const std::vector<Expr> bounds = extent->op == Op::k_min ? extent->args : std::vector<Expr>{extent};
    for (const Expr& b : bounds) out += " and " + name + " < " + isl_text(b, tag);
  }
  return out;
}

bool meet_by_isl(isl_ctx* ctx, const Access& a, const Access& b) {
  std::string text = "[N] -> { [o, i1, inner1, i2, inner2] : 1 <= N <= 24 and 0 <= o < 3 and i1 != i2" +
                     domain(a, "1") + domain(b, "2");
  for (size_t d = 0; d < a.index.size(); ++d)
    text += " and " + isl_text(a.index[d], "1") + " = " + isl_text(b.index[d], "2");
  text += " }";
  const std::string names[] = {a.scopes[2]->iter + "1", b.scopes[2]->iter + "2"};
  text.replace(text.find("inner1"), 6, names[0]);
  text.replace(text.find("inner2"), 6, names[1]);
  isl_set* set = isl_set_read_from_str(ctx, text.c_str());
  EXPECT_NE(set, nullptr) << text;
  const bool empty = set && isl_set_is_empty(set) == isl_bool_true;
  isl_set_free(set);
  return !empty;
}
#endif

TEST(DependenceOracle, IslConfirmsIndependence) {
#ifdef LATHE_HAVE_ISL
  isl_ctx* ctx = isl_ctx_alloc();
  RandomPair random(23);
  int independent = 0, conservative = 0;
  for (int round = 0; round < 600; ++round) {
    const Kernel k = random.kernel();
    const std::vector<Access> all = writes_of(k);
    const Access& b = all[round % 2];
    const bool may = may_conflict_across(k, "i", all[0], b, false);
    const bool meets = meet_by_isl(ctx, all[0], b);
    ASSERT_TRUE(may || !meets) << print(k);
    independent += !may;
    conservative += may && !meets;
  }
  isl_ctx_free(ctx);
  RecordProperty("independent", independent);
  RecordProperty("more_conservative_than_isl", conservative);
  EXPECT_GT(independent, 80);
  EXPECT_LT(conservative, independent) << "the rules lost their strength";
  std::cout << "independent " << independent << ", isl proves " << conservative << " more, of 600\n";
#else
  GTEST_SKIP() << "isl is not installed";
#endif
}

}  // namespace
}  // namespace lathe::ir
