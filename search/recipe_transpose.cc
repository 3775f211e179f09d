// The transpose recipe: transposes, copies and the packing of constants. Where the unit-stride dimensions of source and
// destination differ, they become the two innermost scopes and go through registers in squares; else rows are copied in vectors.
//
//   outer ... { i (tensor transpose) { j: d[.. j .. i] = s[.. i .. j] } }
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

// Moves scope `name` to the bottom of its perfect nest.
void sink(Script& s, const std::string& name) {
  while (s.ok()) {
    const Stmt* scope = find_scope(s.kernel(), name);
    if (scope == nullptr || scope->body.size() != 1 || scope->body[0].kind != Stmt::Kind::scope) return;
    s.move("swap_scopes {} {}", name, scope->body[0].iter);
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
  sink(s, to);
  sink(s, from);
  s.move("tensorize {} transpose", to);
}

// The top-level scope that now holds this nest, if it may be shared out (not the squares themselves).
const Stmt* outermost_of(const Kernel& kernel, const std::vector<std::string>& iters) {
  for (const Stmt& top : kernel.body) {
    const bool ours = top.kind == Stmt::Kind::scope && std::find(iters.begin(), iters.end(), top.iter) != iters.end();
    if (ours && top.mark == Mark::none) return &top;
  }
  return nullptr;
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
      if (const Stmt* outermost = outermost_of(s.kernel(), c.iters)) s.move("parallelize {}", outermost->iter);
    }
  }
  return s.finish(kTransposeRecipe, knob);
}

}  // namespace

const Recipe kTransposeRecipe = {"squares", 1, matches, knobs, accepts, defaults, build, estimate};

}  // namespace lathe::search
