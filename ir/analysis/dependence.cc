// Dependence tests on affine indices: see dependence.h. Two instances of accesses are told apart by renaming what may
// differ between them; the difference of their indices is one canonical sum per dimension, and the pair is disjoint if
// some sum is never 0: always positive, always negative (bounds with symbolic extents, so tails count), or not
// divisible by what divides its varying part (gcd). Different iterations i1 < i2 are written i2 = i1 + 1 + step.
#include "ir/analysis/dependence.h"

#include <algorithm>

#include "ir/analysis/canon.h"
#include "ir/core/names.h"
#include "ir/core/text_form.h"

namespace lathe::ir {

namespace {
using Renaming = std::vector<std::pair<std::string, Expr>>;

bool written_in_kernel(const Kernel& kernel, const std::string& buffer) {
  const Buffer* b = kernel.find_buffer(buffer);
  return !b || !is_input(b->place);
}

// One of the two instances of a pair: its own names end in `tag`.
class Instance {
 public:
  Instance(const Kernel& kernel, std::string tag) : kernel_(kernel), tag_(std::move(tag)) {}

  void bind(const std::string& iter, Expr value) { map_.emplace_back(iter, std::move(value)); }
  // A scope of this instance's own.
  void enter(const Stmt& scope, Ranges& ranges) {
    const std::string name = scope.iter + tag_;
    ranges.enter(name, rename(scope.extent));
    bind(scope.iter, iter(name));
  }
  // Loads of buffers that the kernel writes may give different values to the two instances.
  Expr rename(const Expr& e) const {
    return substitute(rewrite(
                          e,
                          [&](const Expr& n) -> Expr {
                            if (n->op != Op::k_load || !written_in_kernel(kernel_, n->name)) return {};
                            return load(n->name + tag_, n->args, n->type);
                          },
                          kHoldsLoad),
                      map_);
  }

 private:
  const Kernel& kernel_;
  const std::string tag_;
  Renaming map_;
};

bool never_zero(const Poly& delta, const Ranges& ranges) {
  if (delta.overflow) return false;
  const int64_t constant = delta.constant_part();
  const int64_t divisor = multiple_of(add(delta, Poly::constant(constant), -1), ranges);
  if (divisor == 0 ? constant != 0 : constant % divisor != 0) return true;
  const Poly one = Poly::constant(1);
  return proves_nonnegative(add(delta, one, -1), ranges) || proves_nonnegative(add(scaled(delta, -1), one, -1), ranges);
}

// What is smaller than a step of the other terms cannot make up for it: it is 0 itself, or the sum is not. Of the
// scopes of a launch alone, whose threads take turns: x[1024*i + 4*t + v].
bool never_zero_below_steps(const Poly& delta, const Ranges& ranges) {
  if (delta.overflow) return false;
  for (const Term& step : delta.terms) {
    const int64_t size = std::abs(step.coef);
    if (size <= 1 || step.atoms.empty()) continue;
    Poly below;
    for (const Term& t : delta.terms) {
      if (t.atoms.empty() || t.coef % size != 0) below.terms.push_back(t);
    }
    const Interval range = interval_of(below, ranges);
    if (range.lo > -size && range.hi < size && never_zero(below, ranges)) return true;
  }
  return false;
}

// The index dimensions as sums; x // c in one dimension and x % c in another together mean x.
std::vector<Poly> dimensions(const std::vector<Expr>& index, const Instance& instance, const Ranges& ranges) {
  const Canon canon(ranges, false);
  std::vector<Poly> out;
  for (const Expr& e : index) out.push_back(canon.poly(instance.rename(e)));
  return out;
}

// c where a dimension has x // c for a dimension that has x % c.
int64_t tile_of(const Expr& quotient, const Expr& remainder) {
  int64_t tile = 0;
  for_each_node(quotient, [&](const ExprNode& q) {
    if (q.op != Op::k_floordiv || !is_const_int(q.args[1])) return;
    for_each_node(remainder, [&](const ExprNode& r) {
      if (r.op == Op::k_mod && equal(q.args[0], r.args[0]) && equal(q.args[1], r.args[1])) tile = q.args[1]->ival;
    });
  });
  return tile;
}

// Different places of a ring: i % c and (i + 1) % c.
bool other_places(const Expr& x, const Expr& y, const Instance& first, const Instance& second, const Ranges& ranges) {
  const bool places =
      x->op == Op::k_mod && y->op == Op::k_mod && is_const_int(x->args[1]) && equal(x->args[1], y->args[1]);
  if (!places) return false;
  const Poly apart = add(dimensions({x->args[0]}, first, ranges)[0], dimensions({y->args[0]}, second, ranges)[0], -1);
  const Expr steps = apart.overflow ? Expr() : to_expr(apart);
  return steps && is_const_int(steps) && steps->ival % x->args[1]->ival != 0;
}

bool disjoint(const Access& a, const Access& b, const Instance& first, const Instance& second, const Ranges& ranges,
              bool turns = false) {
  if (a.index.size() != b.index.size()) return false;
  const std::vector<Poly> x = dimensions(a.index, first, ranges), y = dimensions(b.index, second, ranges);
  for (size_t d = 0; d < x.size(); ++d) {
    const Poly delta = add(x[d], y[d], -1);
    if (never_zero(delta, ranges) || (turns && never_zero_below_steps(delta, ranges))) return true;
    if (other_places(a.index[d], b.index[d], first, second, ranges)) return true;
  }
  const Canon canon(ranges, false);
  for (size_t d = 0; d < x.size(); ++d) {
    for (size_t r = 0; r < x.size(); ++r) {
      const int64_t tile = d == r ? 0 : tile_of(a.index[d], a.index[r]);
      if (tile == 0) continue;
      const Poly whole_x = canon.poly(to_expr(add(x[r], x[d], tile))),
                 whole_y = canon.poly(to_expr(add(y[r], y[d], tile)));
      if (never_zero(add(whole_x, whole_y, -1), ranges)) return true;
    }
  }
  return false;
}

// k where e = k * iter + what has nothing to do with iter; null if it is not of that form.
std::optional<int64_t> coefficient(const Expr& e, const std::string& iter) {
  if (!uses(e, iter)) return 0;
  if (e->op == Op::k_iter) return 1;
  int64_t out = 0;
  if (e->op == Op::k_mul && is_const_int(e->args[0])) {
    const auto x = coefficient(e->args[1], iter);
    return x && !__builtin_mul_overflow(*x, e->args[0]->ival, &out) ? std::optional(out) : std::nullopt;
  }
  if (e->op != Op::k_add && e->op != Op::k_sub) return std::nullopt;
  const auto x = coefficient(e->args[0], iter), y = coefficient(e->args[1], iter);
  if (!x || !y) return std::nullopt;
  const bool overflow =
      e->op == Op::k_add ? __builtin_add_overflow(*x, *y, &out) : __builtin_sub_overflow(*x, *y, &out);
  return overflow ? std::nullopt : std::optional(out);
}

// The most that an extent is, as far as it says so itself.
std::optional<int64_t> stated_most(const Expr& extent) {
  if (is_const_int(extent)) return extent->ival;
  if (extent->op != Op::k_min) return std::nullopt;
  const auto a = stated_most(extent->args[0]), b = stated_most(extent->args[1]);
  return a && b ? std::min(*a, *b) : a ? a : b;
}

// How far the scopes inside the one at `depth` can move an index: the sum over their iterators of |k| * (most - 1).
// Null: an extent does not say its most, or the index is not linear.
std::optional<int64_t> reach_inside(const Expr& index, const Access& access, size_t depth) {
  int64_t reach = 0;
  for (size_t i = depth + 1; i < access.scopes.size(); ++i) {
    const auto k = coefficient(index, access.scopes[i]->iter);
    if (k && *k == 0) continue;
    const auto most = stated_most(access.scopes[i]->extent);
    int64_t part = 0;
    if (!k || *k == INT64_MIN || !most ||
        __builtin_mul_overflow(std::abs(*k), std::max<int64_t>(*most - 1, 0), &part) ||
        __builtin_add_overflow(reach, part, &reach))
      return std::nullopt;
  }
  return reach;
}

// Both have the same index in some dimension, which each iteration of the scope at `depth` moves on by more than what
// is inside it does: what the sums below would show of it.
bool steps_apart(const Access& a, const Access& b, const std::string& iter, size_t depth) {
  for (size_t d = 0; d < a.index.size(); ++d) {
    const Expr& index = a.index[d];
    const int64_t step = coefficient(index, iter).value_or(0);
    if (step == 0 || step == INT64_MIN || !equal(index, b.index[d])) continue;
    bool loads = false;
    for_each_node(index, [&](const ExprNode& n) { loads = loads || n.op == Op::k_load; });
    if (loads) continue;
    const auto in_a = reach_inside(index, a, depth), in_b = reach_inside(index, b, depth);
    if (in_a && in_b && std::max(*in_a, *in_b) < std::abs(step)) return true;
  }
  return false;
}

// The same cells in every iteration of the scope, as far as the values of the scopes inside are the same: no proof that
// they are other cells can succeed.
bool stays(const Access& a, const Access& b, const std::string& iter) {
  for (size_t d = 0; d < a.index.size(); ++d) {
    if (!equal(a.index[d], b.index[d]) || uses(a.index[d], iter)) return false;
  }
  return true;
}

bool commute(const Access& a, const Access& b, bool allow_reductions) {
  if (a.buffer != b.buffer || (!a.write && !b.write)) return true;
  return allow_reductions && a.reduction && b.reduction && a.op == b.op;
}

// Position of the scope in the list, or -1.
int position(const std::vector<const Stmt*>& scopes, const std::string& iter) {
  for (size_t i = 0; i < scopes.size(); ++i) {
    if (scopes[i]->iter == iter) return static_cast<int>(i);
  }
  return -1;
}

// May `early` in iteration i1 and `late` in iteration i2 > i1 touch one cell? ranges: of the scopes around this one.
bool may_meet(const Kernel& kernel, Ranges ranges, const Stmt& scope, int depth, const Access& early,
              const Access& late) {
  const std::string i1 = scope.iter + "'1", step = scope.iter + "'step";
  ranges.enter(i1, scope.extent - 1);
  ranges.enter(step, scope.extent - 1 - iter(i1));
  Instance first(kernel, "'1"), second(kernel, "'2");
  first.bind(scope.iter, iter(i1));
  second.bind(scope.iter, iter(i1) + 1 + iter(step));
  for (size_t i = depth + 1; i < early.scopes.size(); ++i) first.enter(*early.scopes[i], ranges);
  for (size_t i = depth + 1; i < late.scopes.size(); ++i) second.enter(*late.scopes[i], ranges);
  return !disjoint(early, late, first, second, ranges, scope.mark == Mark::block);
}

// In program order; a statement's loads before its store. only: of one buffer; null: all.
struct Collector {
  const std::string* only;
  std::vector<const Stmt*> scopes;
  std::vector<Access> out;

  bool wanted(const std::string& buffer) const { return only == nullptr || *only == buffer; }

  void loads(const Expr& e, const Stmt& s) {
    if (!e || (e->holds & kHoldsLoad) == 0) return;
    for (const Expr& a : e->args) loads(a, s);
    if (e->op == Op::k_load && wanted(e->name))
      out.push_back({&s, e->name, e->args, false, false, AssignOp::set, scopes});
  }

  void visit(const Stmt& s) {
    if (s.kind == Stmt::Kind::prefetch) return;
    if (s.kind == Stmt::Kind::scope) {
      loads(s.extent, s);
      scopes.push_back(&s);
      for (const Stmt& inner : s.body) visit(inner);
      scopes.pop_back();
      return;
    }
    for (const Expr& e : s.index) loads(e, s);
    loads(s.value, s);
    if (wanted(s.target)) out.push_back({&s, s.target, s.index, true, s.op != AssignOp::set, s.op, scopes});
  }
};

std::string describe(const Access& a) {
  return fmt::format("{} {}[{}]", a.write ? (a.reduction ? "the update of" : "the write of") : "the read of", a.buffer,
                     [&] {
                       std::vector<std::string> parts;
                       for (const Expr& e : a.index) parts.push_back(print(e));
                       return fmt::format("{}", fmt::join(parts, ", "));
                     }());
}

}  // namespace

std::vector<Access> collect_accesses(const std::vector<Stmt>& body, const std::vector<const Stmt*>& outer,
                                     const std::string* only) {
  Collector collector{only, {}, {}};
  collector.scopes.reserve(outer.size() + 8);
  collector.scopes = outer;
  collector.out.reserve(only == nullptr ? 16 : 4);
  for (const Stmt& s : body) collector.visit(s);
  return std::move(collector.out);
}

bool may_conflict_across(const Kernel& kernel, const std::string& iter, const Access& a, const Access& b,
                         bool allow_reductions) {
  if (commute(a, b, allow_reductions)) return false;
  const int depth = position(a.scopes, iter);
  if (depth < 0 || position(b.scopes, iter) != depth) return true;
  const bool alike = a.index.size() == b.index.size();
  if (alike && steps_apart(a, b, iter, static_cast<size_t>(depth))) return false;
  const Stmt& scope = *a.scopes[depth];
  Ranges outer(kernel);
  for (int i = 0; i < depth; ++i) outer.enter(*a.scopes[i]);
  if (interval(scope.extent, outer).hi <= 1) return false;
  if (alike && a.scopes == b.scopes && stays(a, b, iter)) return true;
  return may_meet(kernel, outer, scope, depth, a, b) ||
         (&a != &b && may_meet(kernel, std::move(outer), scope, depth, b, a));
}

bool may_exchange(const Kernel& kernel, const Stmt& first, const Stmt& second, const std::vector<const Stmt*>& outer,
                  std::string* why) {
  Collector before{nullptr, outer, {}}, after{nullptr, outer, {}};
  before.visit(first);
  after.visit(second);
  for (const Access& a : before.out) {
    for (const Access& b : after.out) {
      if (commute(a, b, false)) continue;
      Ranges ranges(kernel);
      for (const Stmt* s : outer) ranges.enter(*s);
      Instance one(kernel, "'1"), two(kernel, "'2");
      for (size_t i = outer.size(); i < a.scopes.size(); ++i) one.enter(*a.scopes[i], ranges);
      for (size_t i = outer.size(); i < b.scopes.size(); ++i) two.enter(*b.scopes[i], ranges);
      if (disjoint(a, b, one, two, ranges)) continue;
      if (why) *why = fmt::format("{} and {} may meet", describe(a), describe(b));
      return false;
    }
  }
  return true;
}

namespace {

bool is_running_sum(const std::string& iter, const std::vector<Access>& of_buffer) {
  const Access& first = of_buffer[0];
  if (!first.reduction || first.op != AssignOp::add) return false;
  for (const Expr& e : first.index) {
    if (uses(e, iter)) return false;
  }
  // In program order: the reads of the statement that adds would stand before it.
  return of_buffer.size() > 1 && std::all_of(of_buffer.begin() + 1, of_buffer.end(), [&](const Access& a) {
           return !a.write && a.stmt != first.stmt &&
                  std::equal(a.index.begin(), a.index.end(), first.index.begin(), first.index.end(),
                             [](const Expr& x, const Expr& y) { return equal(x, y); });
         });
}

}  // namespace

std::vector<std::string> running_sums(const Kernel& kernel, const Stmt& scope) {
  std::vector<std::string> out;
  for (const Stmt& s : scope.body) {
    if (s.kind != Stmt::Kind::assign || s.op != AssignOp::add) continue;
    const Buffer* buffer = kernel.find_buffer(s.target);
    if (buffer == nullptr || buffer->type != DType::f32) continue;
    if (is_running_sum(scope.iter, collect_accesses(scope.body, {}, &s.target))) out.push_back(s.target);
  }
  return out;
}

}  // namespace lathe::ir
