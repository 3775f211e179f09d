// The transpose recipe: transposes, copies and the packing of constants. Squares of `lanes` go through registers where the
// unit-stride dimensions of source and destination differ; else rows are copied in vectors.
//
//   outer ... { i0 { j0 { i1 < T (tensor transpose) { j1 < T: d[.. j .. i] = s[.. i .. j] } } } }
#include <algorithm>

#include "ir/analysis.h"
#include "search/recipe.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

bool matches(const Problem& problem) {
  return problem.kernel.family == "transpose" || problem.kernel.family == "pack";
}

std::vector<KnobDomain> knobs(const Problem& problem, const Target&) {
  return {{"parallel", {problem.threads > 1 ? 1 : 0}}};
}
Status accepts(const Knobs&, const Problem&, const Target&) { return {}; }
Knobs defaults(const Problem& problem, const Target&) { return {{"parallel", problem.threads > 1 ? 1 : 0}}; }
double estimate(const Knobs&, const Problem&, const Target&) { return 1; }

// The chain of scopes of one top-level nest, outermost first, and its only statement.
struct Chain {
  std::vector<std::string> iters;
  const Stmt* stmt = nullptr;
};
Chain chain_of(const Stmt& top) {
  Chain c;
  const Stmt* s = &top;
  while (s->kind == Stmt::Kind::scope) {
    c.iters.push_back(s->iter);
    if (s->body.size() != 1) return c;
    s = &s->body[0];
  }
  if (s->kind == Stmt::Kind::assign) c.stmt = s;
  return c;
}

// The iterator that steps this access by one element, empty if none.
std::string unit_iter(const Kernel& kernel, const std::string& buffer, const std::vector<Expr>& index,
                      const std::vector<std::string>& iters) {
  const Buffer& b = *kernel.find_buffer(buffer);
  for (size_t d = 0; d < index.size(); ++d) {
    const bool unit = b.strides.empty() ? d + 1 == index.size() : is_const_int(b.strides[d], 1);
    if (!unit) continue;
    const std::optional<AffineForm> form = affine_form(index[d]);
    if (!form) return {};
    for (const std::string& i : iters) {
      if (is_const_int(simplify(form->coeff(i)), 1)) return i;
    }
  }
  return {};
}

// Moves scope `name` down to just above `above` (empty: innermost) in its perfect nest.
void sink(Script& s, const std::string& name, const std::string& above) {
  for (int step = 0; step < 16; ++step) {
    const Stmt* scope = find_scope(s.kernel(), name);
    if (scope == nullptr || scope->body.size() != 1 || scope->body[0].kind != Stmt::Kind::scope) return;
    const std::string child = scope->body[0].iter;
    if (child == above) return;
    s.move("swap_scopes {} {}", name, child);
    if (!s.ok()) return;
  }
}

void schedule_chain(Script& s, const Chain& c, int64_t lanes) {
  const std::string to = unit_iter(s.kernel(), c.stmt->target, c.stmt->index, c.iters);
  std::string from = to;
  if (c.stmt->value->op == Op::k_load) from = unit_iter(s.kernel(), c.stmt->value->name, c.stmt->value->args, c.iters);
  if (to.empty() || from.empty()) return;
  const Stmt* to_scope = find_scope(s.kernel(), to);
  if (from == to) {
    const char* tail = proves_divisible(to_scope->extent, lanes, Ranges(s.kernel())) ? "exact" : "mask";
    s.move("tile_scope {} {} tail={} as {}v,{}l", to, lanes, tail, to, to);
    s.move("vectorize_scope {}l", to);
    return;
  }
  s.move("tile_scope {} {} tail=mask as {}v,{}l", from, lanes, from, from);
  s.move("tile_scope {} {} tail=mask as {}v,{}l", to, lanes, to, to);
  sink(s, to + "l", "");
  sink(s, from + "l", "");
  s.move("tensorize {}l transpose", to);
}

Result<Schedule> build(const Knobs& knob, const Problem& problem, const Target& t) {
  Script s(problem.kernel);
  for (const Stmt& top : problem.kernel.body) {
    const Chain c = chain_of(top);
    if (c.stmt != nullptr) schedule_chain(s, c, t.lanes);
  }
  if (knob.at("parallel") != 0) {
    for (const Stmt& top : problem.kernel.body) {
      const Chain c = chain_of(top);
      if (c.iters.size() < 2) continue;
      const bool kept = find_scope(s.kernel(), c.iters[0]) != nullptr;
      s.move("parallelize {}", kept ? c.iters[0] : c.iters[0] + "v");
    }
  }
  return s.finish(kTransposeRecipe, knob);
}

}  // namespace

const Recipe kTransposeRecipe = {"squares", 1, matches, knobs, accepts, defaults, build, estimate};

}  // namespace lathe::search
