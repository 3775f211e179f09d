// The passes that are not about products: see generic_rules.h.
#include "search/sketches/generic_rules.h"

#include <algorithm>

#include "ir/analysis/dependence.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

namespace {
constexpr int64_t kMostRegisterCells = 4;  // what a temporary may take in registers, scalars mostly
constexpr int kMostMoves = 200;            // of a pass: passes end

bool is_plain_scope(const Stmt& s) { return s.kind == Stmt::Kind::scope && s.mark == Mark::none; }

// The children at `at` and `at + 1` of the body, or with a statement between them that can go first, as one scope.
bool join_at(Attempts& a, const std::string& owner, const std::vector<Stmt>& body, size_t at) {
  if (!is_plain_scope(body[at]) || at + 1 >= body.size()) return false;
  if (is_plain_scope(body[at + 1])) return a.move("join_scopes {} {}", body[at].iter, body[at + 1].iter);
  if (body[at + 1].kind != Stmt::Kind::assign || at + 2 >= body.size() || !is_plain_scope(body[at + 2])) return false;
  const std::string first = body[at].iter, second = body[at + 2].iter;
  Attempts trial = a;
  if (!trial.move("swap_ops {} {}", owner, at) || !trial.move("join_scopes {} {}", first, second)) return false;
  a = std::move(trial);
  return true;
}

// One join somewhere in the body or below; the body is a's, and stale after a success.
bool join_somewhere(Attempts& a, const std::string& owner, const std::vector<Stmt>& body) {
  for (size_t i = 0; i < body.size(); ++i) {
    if (join_at(a, owner, body, i)) return true;
    if (body[i].kind == Stmt::Kind::scope && join_somewhere(a, body[i].iter, body[i].body)) return true;
  }
  return false;
}

// Scopes around all uses of the buffer, outermost first.
std::vector<std::string> common_scopes(const Kernel& kernel, const std::string& buffer) {
  std::vector<const Stmt*> path;
  bool first = true;
  for (const Access& a : collect_accesses(kernel.body)) {
    if (a.buffer != buffer) continue;
    if (first) path = a.scopes;
    first = false;
    path.erase(std::mismatch(path.begin(), path.end(), a.scopes.begin(), a.scopes.end()).first, path.end());
  }
  std::vector<std::string> names;
  for (const Stmt* s : path) names.push_back(s->iter);
  return names;
}

std::vector<std::string> temporaries(const Kernel& kernel) {
  std::vector<std::string> out;
  for (const Buffer& b : kernel.buffers) {
    if (b.place == Place::heap) out.push_back(b.name);
  }
  return out;
}

int64_t cells(const Buffer& b) {
  int64_t n = 1;
  for (const Expr& d : b.dims) n = is_const_int(d) && n < (1 << 20) ? n * d->ival : int64_t{1} << 20;
  return n;
}

// The logical dimension whose neighbours are adjacent in memory; -1: none.
int unit_dim(const Buffer& b) {
  if (!b.layout.empty()) return b.layout.back().dim;
  if (b.strides.empty() || b.made)
    return static_cast<int>(b.dims.size()) - 1;  // strides of what is made are the caller's
  for (size_t d = 0; d < b.strides.size(); ++d) {
    if (is_const_int(b.strides[d], 1)) return static_cast<int>(d);
  }
  return -1;
}

bool steps_by_one(const Kernel& kernel, const std::string& buffer, const std::vector<Expr>& index,
                  const std::string& iter) {
  const Buffer& b = *kernel.find_buffer(buffer);
  const int unit = unit_dim(b);
  for (size_t d = 0; d < index.size(); ++d) {
    if (!uses(index[d], iter)) continue;
    if (!b.strides.empty() && !b.made && is_const_int(b.strides[d], 0)) continue;
    const std::optional<AffineForm> form = affine_form(index[d]);
    if (static_cast<int>(d) != unit || !form || !is_const_int(simplify(form->coeff(iter)), 1)) return false;
  }
  return true;
}

bool uses_index(const std::vector<Expr>& index, const std::string& iter) {
  return std::any_of(index.begin(), index.end(), [&](const Expr& e) { return uses(e, iter); });
}

// Moves the scope to the bottom of its perfect nest.
bool sink(Attempts& a, const std::string& name) {
  for (;;) {
    const Stmt* s = find_scope(a.kernel(), name);
    if (!s || s->body.size() != 1 || s->body[0].kind != Stmt::Kind::scope) return true;
    if (!a.move("swap_scopes {} {}", name, s->body[0].iter)) return false;
  }
}

// Scopes of the perfect nest that ends in this scope, innermost first.
std::vector<std::string> perfect_nest(const Kernel& kernel, const std::string& innermost) {
  std::vector<std::string> out = {innermost};
  for (bool found = true; found;) {
    found = false;
    for_each_stmt(kernel.body, [&](const Stmt& s) {
      const bool around = is_plain_scope(s) && s.body.size() == 1 && s.body[0].kind == Stmt::Kind::scope &&
                          s.body[0].iter == out.back();
      if (!around || found) return;
      out.push_back(s.iter);
      found = true;
    });
  }
  return out;
}

// Sums and maxima of a row that go to memory are held in a register while the row runs.
void stage_sums(Attempts& a, const std::string& scope) {
  const Stmt* s = find_scope(a.kernel(), scope);
  const Stmt* parent = nullptr;
  for_each_stmt(a.kernel().body, [&](const Stmt& p) {
    for (const Stmt& child : p.body) parent = child.kind == Stmt::Kind::scope && child.iter == scope ? &p : parent;
  });
  if (!parent) return;
  const std::string at = parent->iter;
  std::vector<std::string> targets;
  for (const Stmt& c : s->body) {
    const Buffer* b = a.kernel().find_buffer(c.target);
    const bool sum = c.kind == Stmt::Kind::assign && c.op != AssignOp::set && !uses_index(c.index, scope);
    if (sum && b->place != Place::reg) targets.push_back(c.target);
  }
  for (const std::string& target : targets) {
    Attempts trial = a;
    const std::string name = Names(a.kernel()).fresh("acc");
    if (trial.move("create_temporary {} {} at={} mode=accumulate", target, name, at) &&
        trial.move("move_to_register {} {}", name, at) && cells(*trial.kernel().find_buffer(name)) == 1) {
      a = std::move(trial);
    }
  }
}

void vectorize_one(Attempts& a, const std::string& name, const GenericPlan& plan, int64_t lanes) {
  const Stmt* s = find_scope(a.kernel(), name);
  const Expr extent = s->extent;
  if (is_const_int(extent) && extent->ival <= lanes) {
    a.move("vectorize_scope {}", name);
    return;
  }
  Attempts trial = a;
  const int64_t block = plan.unroll * lanes;
  const auto by_lanes = [&](const std::string& scope, bool unroll) {
    if (!trial.move("tile_scope {} {} tail={}", scope, lanes, tail_for(trial.kernel(), scope, lanes))) return false;
    const std::vector<std::string> parts = trial.now(scope);
    if (!trial.move("vectorize_scope {}", parts[1])) return false;
    return !unroll || trial.move("unroll_scope {}", parts[0]);
  };
  const int64_t most = interval(extent, Ranges(a.kernel())).hi;
  if (plan.unroll > 1 && most >= block) {
    const bool whole = std::string_view(tail_for(a.kernel(), name, block)) == "exact";
    bool ok = trial.move("tile_scope {} {} tail={}", name, block, whole ? "exact" : "peel");
    const std::vector<std::string> parts = ok ? trial.now(name) : std::vector<std::string>();
    ok = ok && by_lanes(parts[1], true) && (whole || by_lanes(parts[2], false));
    if (ok) {
      a = std::move(trial);
      return;
    }
    trial = a;
  }
  if (by_lanes(name, false)) a = std::move(trial);
}
}  // namespace

std::vector<std::string> Attempts::now(const std::string& old) const {
  for (const auto& [name, names] : renamed_) {
    if (name == old) return names;
  }
  return {};
}

bool Attempts::add(const std::string& line) {
  if (static_cast<int>(moves_.size()) >= kMostMoves) return false;
  Result<Move> move = parse_move(line);
  if (!move.ok()) return false;
  Result<TransformResult> result = apply(kernel_, *move, {.verify = false});  // who keeps the Schedule replays it
  if (!result.ok()) return false;
  kernel_ = std::move(result->kernel);
  renamed_ = std::move(result->renamed);
  moves_.push_back(std::move(*move));
  return true;
}

const char* tail_for(const Kernel& kernel, const std::string& scope, int64_t size) {
  const Stmt* s = find_scope(kernel, scope);
  return s == nullptr ? "mask" : tail_of(s->extent, size, kernel);
}

bool unit_stride(const Kernel& kernel, const Stmt& scope) {
  bool ok = true;
  for_each_stmt(scope.body, [&](const Stmt& s) {
    if (s.kind != Stmt::Kind::assign) return;
    ok = ok && steps_by_one(kernel, s.target, s.index, scope.iter);
    ok = ok && (s.op != AssignOp::set || uses_index(s.index, scope.iter));
    for_each_node(s.value, [&](const ExprNode& n) {
      if (n.op == Op::k_load) ok = ok && steps_by_one(kernel, n.name, n.args, scope.iter);
    });
  });
  return ok;
}

std::vector<std::string> innermost_scopes(const Kernel& kernel) {
  std::vector<std::string> out;
  for (const std::string& name : plain_scopes(kernel)) {
    const Stmt* s = find_scope(kernel, name);
    const bool flat =
        std::all_of(s->body.begin(), s->body.end(), [](const Stmt& c) { return c.kind == Stmt::Kind::assign; });
    if (flat) out.push_back(name);
  }
  return out;
}

void join_producers(Attempts& a) {
  while (join_somewhere(a, "root", a.kernel().body)) {
  }
  // What is made and used in one innermost scope needs no buffer.
  for (const std::string& t : temporaries(a.kernel())) {
    const std::vector<std::string> path = common_scopes(a.kernel(), t);
    if (path.empty()) continue;
    const Stmt* s = find_scope(a.kernel(), path.back());
    const bool flat =
        std::all_of(s->body.begin(), s->body.end(), [](const Stmt& c) { return c.kind == Stmt::Kind::assign; });
    if (flat) a.move("inline_temporary {}", t);
  }
}

void square_copies(Attempts& a) {
  for (const std::string& name : innermost_scopes(a.kernel())) {
    const Stmt* s = find_scope(a.kernel(), name);
    if (s->body.size() != 1 || s->body[0].value->op != Op::k_load || s->body[0].op != AssignOp::set) continue;
    const Stmt copy = s->body[0];
    const std::vector<std::string> nest = perfect_nest(a.kernel(), name);
    const auto along = [&](const std::string& buffer, const std::vector<Expr>& index) {
      const int unit = unit_dim(*a.kernel().find_buffer(buffer));
      for (const std::string& i : nest) {
        if (unit >= 0 && uses(index[static_cast<size_t>(unit)], i) && steps_by_one(a.kernel(), buffer, index, i))
          return i;
      }
      return std::string();
    };
    const std::string to = along(copy.target, copy.index), from = along(copy.value->name, copy.value->args);
    if (to.empty() || from.empty() || to == from) continue;
    Attempts trial = a;
    if (sink(trial, to) && sink(trial, from) && trial.move("tensorize {} transpose", to)) a = std::move(trial);
  }
}

void place_temporaries(Attempts& a) {
  for (const std::string& t : temporaries(a.kernel())) {
    const std::vector<std::string> path = common_scopes(a.kernel(), t);
    if (path.empty()) continue;
    Attempts trial = a;
    if (trial.move("move_to_register {} {}", t, path.back()) &&
        cells(*trial.kernel().find_buffer(t)) <= kMostRegisterCells) {
      a = std::move(trial);
    } else {
      a.move("move_to_stack {} {}", t, path.back());
    }
  }
}

void vectorize_scopes(Attempts& a, const GenericPlan& plan, const Target& target) {
  for (const std::string& name : innermost_scopes(a.kernel())) {
    std::string chosen;
    for (const std::string& s : perfect_nest(a.kernel(), name)) {
      if (chosen.empty() && unit_stride(a.kernel(), *find_scope(a.kernel(), s))) chosen = s;
    }
    if (chosen.empty()) continue;
    if (chosen != name) {
      Attempts trial = a;
      if (!sink(trial, chosen)) continue;
      a = std::move(trial);
    }
    if (plan.stage) stage_sums(a, chosen);
    vectorize_one(a, chosen, plan, target.lanes);
  }
}

void share_out(Attempts& a, const GenericPlan& plan) {
  if (!plan.parallel) return;
  std::vector<std::string> tops;
  for (const Stmt& s : a.kernel().body) {
    if (is_plain_scope(s) && !is_const_int(s.extent, 1)) tops.push_back(s.iter);
  }
  for (const std::string& top : tops) {
    Attempts trial = a;
    if (plan.grain > 1 && trial.move("tile_scope {} {} tail=mask", top, plan.grain) &&
        trial.move("parallelize {}", trial.now(top)[0])) {
      a = std::move(trial);
    } else {
      a.move("parallelize {}", top);
    }
  }
}

// Rows that are walked several times:
//
//   for i: { for a: S } { for b: T }
//   ->  S of row 0;  for i < N - 1: for b: { S of row i + 1 | T of row i };  T of row N - 1
namespace {
// A plain scope with nothing but assignments in it.
bool is_pass(const Stmt& s) {
  return s.kind == Stmt::Kind::scope && s.mark == Mark::none &&
         std::all_of(s.body.begin(), s.body.end(), [](const Stmt& c) { return c.kind == Stmt::Kind::assign; });
}

// Brings the pass down to the next one of the row, past what lies between, and joins the two.
bool join_with_next(Attempts& a, const std::string& row, const std::string& pass) {
  for (;;) {
    const Stmt* scope = find_scope(a.kernel(), row);
    if (scope == nullptr) return false;
    const std::vector<Stmt>& body = scope->body;
    const auto at = std::find_if(body.begin(), body.end(), [&](const Stmt& c) { return c.iter == pass; });
    if (at == body.end() || at + 1 == body.end()) return false;
    if (is_pass(at[1])) return a.move("join_scopes {} {}", pass, at[1].iter);
    if (!a.move("swap_ops {} {}", row, at - body.begin())) return false;
  }
}
}  // namespace

void compute_again(Attempts& a) {
  std::vector<std::string> temporaries;
  for (const Buffer& b : a.kernel().buffers) {
    if (b.place == Place::heap) temporaries.push_back(b.name);
  }
  for (const std::string& t : temporaries) a.move("inline_temporary {}", t);
}

void overlap_rows(Attempts& a) {
  for (const std::string& row : plain_scopes(a.kernel())) {
    const Stmt* scope = find_scope(a.kernel(), row);
    if (scope == nullptr) continue;
    const std::vector<Stmt>& body = scope->body;
    const auto first = std::find_if(body.begin(), body.end(), is_pass);
    if (first == body.end() || std::none_of(first + 1, body.end(), is_pass)) continue;
    const std::string pass = first->iter;
    Attempts trial = a;
    if (trial.move("pipeline {} after={}", row, first - body.begin()) && join_with_next(trial, row, pass))
      a = std::move(trial);
  }
}

}  // namespace lathe::search
