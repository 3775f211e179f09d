// See groups.h.
#include "search/quantised/groups.h"

#include <algorithm>

#include "ir/analysis/analysis.h"
#include "search/quantised/depth.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kMaxGroup = 65536, kMaxGroups = 16;  // weights; groups after which the expression begins anew
constexpr int64_t kMaxParts = 4;                       // parts of a group that share bytes

// Whether b reads the bytes that follow those of a at a distance of `by`, and does the same with them.
bool follows(const Expr& a, const Expr& b, int64_t by, const Ranges& ranges) {
  if (a->op != b->op || a->args.size() != b->args.size()) return false;
  if (a->op == Op::k_load) {
    int steps = 0;
    for (size_t d = 0; d < a->args.size(); ++d) {
      const Expr step = simplify(simplify(b->args[d], ranges) - simplify(a->args[d], ranges), ranges);
      if (!is_const_int(step) || (step->ival != 0 && step->ival != by)) return false;
      steps += step->ival != 0;
    }
    return steps == 1;
  }
  if (a->type == DType::i64) return equal(simplify(a, ranges), simplify(b, ranges));
  if (a->args.empty()) return equal(a, b);
  for (size_t i = 0; i < a->args.size(); ++i) {
    if (!follows(a->args[i], b->args[i], by, ranges)) return false;
  }
  return true;
}

// Whether indices, counts and conditions are known for every quad of a block of groups: asked of the first and the last
// one, as the others differ by numbers. What only looks so, the code refuses.
bool known_with(const Groups& g, const std::string& k, int64_t depth) {
  Ranges ranges;
  const std::string g0 = k + "_0", ks = k + "_s", kp = k + "_p", kq = k + "_q";
  const std::string gl = k + "_l";
  ranges.set(g0, {0, std::max<int64_t>(depth / g.group / g.block, 1) - 1});
  ranges.set(gl, {0, g.block / g.unrolled - 1});
  ranges.set(ks, {0, g.group / g.period - 1});
  ranges.set(kp, {0, g.period / g.part - 1});
  ranges.set(kq, {0, g.part / kQuad - 1});
  const int64_t step = g.straight() ? kQuad : g.part;  // in straight code each quad has numbers of its own
  for (const int64_t gi : {int64_t{0}, g.unrolled - 1}) {
    const Expr group = Expr(g.block) * iter(g0) + Expr(g.unrolled) * iter(gl) + Expr(gi);
    for (const Expr& e : {g.weight.factor, g.weight.rest}) {
      if (e && !code_known(substitute(e, {{"g", group}}), ranges, {g0, gl})) return false;
    }
    const Expr byte = substitute(g.weight.byte, {{"g", group}});
    const Expr anywhere = Expr(g.period) * iter(ks) + Expr(g.part) * iter(kp) + Expr(kQuad) * iter(kq);
    if (!indices_known(substitute(byte, {{k, anywhere}}), ranges, {g0, gl, ks, kp, kq})) return false;
    for (const int64_t at : {int64_t{0}, g.period - step}) {
      const Expr quad = Expr(g.period) * iter(ks) + (g.straight() ? Expr(0) : Expr(kQuad) * iter(kq));
      const Expr first = substitute(byte, {{k, quad + Expr(at)}}),
                 last = substitute(byte, {{k, quad + Expr(at + kQuad - 1)}});
      if (!code_known(first, ranges, {g0, gl, ks, kq}) || !follows(first, last, kQuad - 1, ranges)) return false;
    }
  }
  return true;
}

// Whether bytes of one part are read again by another: a quad's bytes then lie elsewhere than those of the next one.
bool do_parts_share(const Groups& g, const std::string& k) {
  if (!g.straight() || g.part == kQuad) return true;
  Ranges ranges;
  const std::string kp = k + "_p", kq = k + "_q";
  ranges.set(kp, {0, g.period / g.part - 1});
  ranges.set(kq, {0, g.part / kQuad - 1});
  const Expr byte = substitute(g.weight.byte, {{k, Expr(g.part) * iter(kp) + Expr(kQuad) * iter(kq)}});
  bool out = false;
  for_each_node(byte, [&](const ExprNode& load) {
    if (load.op != Op::k_load) return;
    for (const Expr& index : load.args) out |= uses(simplify(index, ranges), kq);
  });
  return out;
}

// Short groups share a scale of the activations in pairs.
int64_t least_unrolled(const Groups& g) { return std::min(g.block, std::max<int64_t>(kLeastScale / g.group, 1)); }

}  // namespace

int64_t operations(const Expr& e) {
  if (!e) return 0;
  if (e->op == Op::k_load) return 1;
  if (e->type == DType::i64 || e->args.empty()) return 0;
  int64_t n = e->op == Op::k_cast ? 0 : 1;
  for (const Expr& a : e->args) n += operations(a);
  return n;
}

// Of the choices those that are taken where k is so much.
static Expr taken(const Expr& e, const std::string& k, int64_t at) {
  return rewrite(e, [&](const Expr& x) -> Expr {
    if (x->op != Op::k_select) return {};
    const Expr c = simplify(substitute(x->args[0], {{k, Expr(at)}}));
    return is_const_int(c) ? x->args[is_const_int(c, 1) ? 1 : 2] : Expr{};
  });
}

static void count_unpacking(Groups& g, const std::string& k) {
  int64_t all = 0;
  for (int64_t at = 0; at < g.period; at += kQuad) {
    const Expr byte = taken(g.weight.byte, k, at);
    int64_t loads = 0;
    for_each_node(byte, [&](const ExprNode& n) { loads += n.op == Op::k_load; });
    all += operations(byte);
    g.sources = std::max(g.sources, loads);
  }
  g.unpacking = static_cast<double>(all) / static_cast<double>(g.period / kQuad);
}

Groups groups_of(const QuantisedParts& p, const Ranges& ranges) {
  Groups out;
  const std::string& k = p.k->iter;
  const int64_t depth = p.k->extent->ival;
  // All of the depth; else what some index changes after, or less.
  int64_t widest = kQuad;
  for_each_node(p.weight, [&](const ExprNode& n) {
    const bool divides = n.op == Op::k_floordiv && n.args[0]->op == Op::k_iter && n.args[0]->name == k;
    if (divides && is_const_int(n.args[1])) widest = std::max(widest, n.args[1]->ival);
  });
  const auto less = [&](int64_t group) { return group == depth && depth > widest ? widest : group / 2; };
  for (int64_t group = depth; group >= 2 * kQuad; group = less(group)) {
    if (group > kMaxGroup || depth % group != 0 || group % kQuad != 0) continue;
    const std::optional<GroupedWeight> w = grouped_weight(p.weight, k, depth, group, "g", ranges);
    if (!w) continue;
    out.weight = *w;
    out.group = group;
    for (out.period = group; out.period % kQuad == 0; out.period /= 2) {
      for (out.part = out.period; out.part >= out.period / kMaxParts && out.part % kQuad == 0; out.part /= 2) {
        for (out.block = 1; out.block <= kMaxGroups; out.block *= 2) {
          if (depth / group % out.block != 0) continue;
          for (out.unrolled = least_unrolled(out); out.unrolled <= out.block; out.unrolled *= 2) {
            if (!known_with(out, k, depth)) continue;
            out.parts_share = do_parts_share(out, k);
            count_unpacking(out, k);
            out.signed_bytes = group == depth && signed_byte(out.weight);
            return out;
          }
        }
      }
    }
    break;
  }
  return {};
}

}  // namespace lathe::search
