// See depth.h.
#include "search/quantised/depth.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "ir/analysis/analysis.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kLeastBlock = 16, kMostBlock = 4096;  // weights; what begins anew after more is taken not to
constexpr int64_t kMostSteps = 8;                       // unrolled beside each other

// Divisors that the depth meets, one after another: of x // a // b, a * b.
int64_t find_divisors(const Expr& e, const std::string& k, std::set<int64_t>& out) {
  int64_t inner = 1;
  for (const Expr& a : e->args) inner = std::max(inner, uses(a, k) ? find_divisors(a, k, out) : 1);
  const bool divides = e->op == Op::k_floordiv || e->op == Op::k_mod || e->op == Op::k_ceildiv;
  if (!divides || !uses(e->args[0], k) || !is_const_int(e->args[1])) return inner;
  const int64_t here = inner * e->args[1]->ival;
  if (here > 1 && here <= kMostBlock) out.insert(here);
  return e->op == Op::k_floordiv ? here : inner;
}

// Whether the index is a sum of loops, no quotient of one left in it.
bool plain(const Expr& index, const std::vector<std::string>& loops) {
  bool out = true;
  for_each_node(index, [&](const ExprNode& n) {
    const bool divides = n.op == Op::k_floordiv || n.op == Op::k_mod || n.op == Op::k_ceildiv;
    out &= !divides || std::none_of(n.args.begin(), n.args.end(), [&](const Expr& a) {
      return std::any_of(loops.begin(), loops.end(), [&](const std::string& l) { return uses(a, l); });
    });
  });
  return out;
}

}  // namespace

bool indices_known(const Expr& e, const Ranges& ranges, const std::vector<std::string>& loops) {
  bool out = true;
  for_each_node(e, [&](const ExprNode& n) {
    if (n.op != Op::k_load) return;
    for (const Expr& i : n.args) out &= plain(simplify(i, ranges), loops);
  });
  return out;
}

bool code_known(const Expr& e, const Ranges& ranges, const std::vector<std::string>& loops) {
  if (e->op == Op::k_load) return indices_known(e, ranges, loops);
  for (const Expr& a : e->args) {
    const bool compares = op_info(a->op).cls == OpClass::kCompare && a->args[0]->type == DType::i64;
    if (a->type == DType::i64) {
      if (!is_const_int(simplify(a, ranges))) return false;
    } else if (compares) {
      if (!is_const_int(simplify(a->args[0], ranges)) || !is_const_int(simplify(a->args[1], ranges))) return false;
    } else if (!code_known(a, ranges, loops)) {
      return false;
    }
  }
  return true;
}

namespace {

bool fits(const std::vector<Expr>& values, const std::string& k, const DepthCut& c, int64_t blocks) {
  const std::string k0 = k + "_0", kl = k + "_l", kj = k + "_j";
  const int64_t block = c.levels.front(), run = c.run();
  Ranges ranges;
  ranges.set(k0, {0, std::max<int64_t>(blocks, 1) - 1});
  ranges.set(kj, {0, run / c.step - 1});
  const int64_t inner = c.loop == 0 ? block : c.levels[c.loop], outer = c.loop == 0 ? block : c.levels[c.loop - 1];
  ranges.set(kl, {0, outer / inner - 1});
  // Copies of a step are told apart by a number, but what a step's iterator indexes is a sum all the same.
  const std::string ki = k + "_i";
  ranges.set(ki, {0, c.step - 1});
  for (int64_t ko = 0; ko < block; ko += run) {
    if (ko % outer >= inner) continue;  // the loop's other steps
    const Expr piece = Expr(block) * iter(k0) + Expr(inner) * iter(kl) + Expr(c.step) * iter(kj) + Expr(ko) + iter(ki);
    const bool sums = std::all_of(values.begin(), values.end(), [&](const Expr& v) {
      return indices_known(substitute(v, {{k, piece}}), ranges, {kl, kj, ki});
    });
    if (!sums) return false;
    for (int64_t ki = 0; ki < c.step; ++ki) {
      const Expr at = Expr(block) * iter(k0) + Expr(inner) * iter(kl) + Expr(c.step) * iter(kj) + Expr(ko + ki);
      const bool all = std::all_of(values.begin(), values.end(), [&](const Expr& v) {
        return code_known(substitute(v, {{k, at}}), ranges, {kl, kj});
      });
      if (!all) return false;
    }
  }
  return true;
}

}  // namespace

DepthCut depth_cut(const std::vector<Expr>& values, const std::string& k, int64_t extent) {
  std::set<int64_t> divisors = {1};
  for (const Expr& v : values) find_divisors(v, k, divisors);
  int64_t block = 1;
  for (const int64_t d : divisors) block = std::lcm(block, d) <= kMostBlock ? std::lcm(block, d) : block;
  block = std::max(block, kLeastBlock / std::gcd(block, kLeastBlock) * block);
  DepthCut out;
  out.levels = {block};
  for (auto d = divisors.rbegin();; ++d) {
    for (out.step = 1; out.step <= std::min(kMostSteps, out.run()); out.step *= 2) {
      if (out.run() % out.step != 0 || !fits(values, k, out, extent / block)) continue;
      for (size_t l = 1; l < out.levels.size() && out.loop == 0; ++l) {
        out.loop = l;
        if (!fits(values, k, out, extent / block)) out.loop = 0;
      }
      return out;
    }
    while (d != divisors.rend() && (*d >= out.run() || out.run() % *d != 0)) ++d;
    if (d == divisors.rend()) break;
    out.levels.push_back(*d);
  }
  out.step = 1;
  return out;
}

int64_t DepthCut::copies() const {
  const int64_t steps = loop == 0 ? 1 : levels[loop - 1] / levels[loop];
  return levels.front() / run() / steps * step;
}

std::vector<DepthPart> cut_depth(Script& s, const std::string& k, int64_t extent, const DepthCut& c) {
  std::vector<DepthPart> out;
  std::string scope = k;
  int64_t left = extent;
  // Cuts pieces of `size` off the scope; they are pieces of the levels below as well, down to `least`.
  const auto pieces = [&](size_t level, int64_t size, bool loop) {
    const int64_t whole = left / size;
    if (whole == 0) return;
    const std::string stem = fmt::format("{}{}", k, out.size());
    const bool exact = left % size == 0;
    DepthPart part;
    std::string inner;
    if (size > 1) {
      inner = stem + "i";
      s.move("tile_scope {} {} tail={} as {},{}{}", scope, size, exact ? "exact" : "peel", stem, inner,
             exact ? "" : fmt::format(",{}r", stem));
      part.scopes = {stem};
    } else {
      part.scopes = {scope};
    }
    if (!loop) part.unrolled.push_back(part.scopes[0]);
    const auto cut_inner = [&](int64_t by, bool unrolled) {
      const std::string next = inner + "i";
      s.move("tile_scope {} {} tail=exact as {}o,{}", inner, by, inner, next);
      part.scopes.push_back(inner + "o");
      if (unrolled) part.unrolled.push_back(inner + "o");
      inner = next;
    };
    for (size_t l = level + 1; l < c.levels.size(); ++l) cut_inner(c.levels[l], l != c.loop);
    if (size > c.step && c.step > 1) cut_inner(c.step, false);
    if (size > 1) {
      part.scopes.push_back(inner);
      if (c.step > 1) part.unrolled.push_back(inner);
    }
    out.push_back(std::move(part));
    left %= size;
    scope = stem + "r";
  };
  for (size_t l = 0; l < c.levels.size(); ++l) {
    if (c.levels[l] > c.step) pieces(l, c.levels[l], l == 0);
  }
  if (c.step > 1) pieces(c.levels.size(), c.step, true);
  pieces(c.levels.size(), 1, c.step == 1);
  return out;
}

}  // namespace lathe::search
