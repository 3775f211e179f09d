// mask_softmax: a softmax and the sums that it weights run as often in any case, over what has no weight as well: its
// values are -inf. With over=scope as often as the last iteration of an outer scope needs, from where the first one
// begins; without, as often as there are iterations at most.
#include <algorithm>
#include <limits>

#include "ir/core/names.h"
#include "ir/core/text_form.h"
#include "search/moves/footprint.h"
#include "search/moves/legality.h"
#include "search/moves/softmax/softmax_form.h"
#include "search/moves/transform_rows.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

namespace {

constexpr int64_t kMostIterations = 1024;

bool indexed_by(const std::vector<Expr>& index, const std::string& scope) {
  return std::any_of(index.begin(), index.end(), [&](const Expr& e) { return uses(e, scope); });
}

// begin + count. max(r, s) + min(p, q) is q + r where q - p is s - r: where the last so many of some begin.
Expr end_of(const Expr& begin, const Expr& count, const Ranges& ranges) {
  const bool last = begin->op == Op::k_max && count->op == Op::k_min;
  for (size_t p = 0; last && p < 2; ++p) {
    for (size_t r = 0; r < 2; ++r) {
      const Expr less = simplify(count->args[1 - p] - count->args[p], ranges),
                 more = simplify(begin->args[1 - r] - begin->args[r], ranges);
      if (equal(less, more)) return simplify(count->args[1 - p] + begin->args[r], ranges);
    }
  }
  return simplify(begin + count, ranges);
}

class Masking {
 public:
  Masking(Kernel& kernel, const ScopeSite& maximum, const ScopeSite& sum, const ScopeSite& weighted)
      : k_(kernel), sites_{maximum, sum, weighted}, ranges_(ranges_at(kernel, maximum.outer)) {}

  // INVALID: what is expected.
  Status find_values();
  Status widen_over(const std::string& scope);
  Status pad();
  // Before the rewrite.
  std::string seen_elsewhere() const;
  bool is_above_minus_infinity() const { return search::is_above_minus_infinity(k_, maximum_); }
  void write();
  // After it.
  std::string outside() const;
  std::string without_values() const;

 private:
  const std::string& iterator(size_t scope) const { return sites_[scope].scope().iter; }
  bool is_masked(const Expr& first) const;

  Kernel& k_;
  const ScopeSite sites_[3];
  const Ranges ranges_;
  Expr value_, maximum_;  // loads: of the values in the first scope, and of their maximum
  Stmt* made_ = nullptr;  // gives them
  Expr extent_, wide_extent_;
  Expr shift_;  // from iterations of the wide scopes to those there were before
  bool begins_later_ = false, masked_ = false;
};

Status Masking::find_values() {
  const ScopeSite &first = sites_[0], &second = sites_[1], &third = sites_[2];
  if (second.siblings != first.siblings || first.index >= second.index)
    return invalid("expected `{}` to stand after `{}`", iterator(1), iterator(0));
  const std::vector<Stmt>& body = *first.siblings;
  const bool inside = third.outer.size() == first.outer.size() + 1 && third.outer.back() > &body[second.index] &&
                      third.outer.back() < body.data() + body.size();
  if (!inside) return invalid("expected `{}` in a scope that stands after `{}`", iterator(2), iterator(1));
  extent_ = simplify(first.scope().extent, ranges_);
  for (size_t i = 1; i < 3; ++i) {
    if (!equal(extent_, simplify(sites_[i].scope().extent, ranges_)))
      return invalid("expected `{}` and `{}` to have equal extents", iterator(0), iterator(i));
  }
  std::vector<Stmt>& makes = first.scope().body;
  if (makes.empty() || makes.back().kind != Stmt::Kind::assign || makes.back().op != AssignOp::fmax ||
      makes.back().value->op != Op::k_load || indexed_by(makes.back().index, iterator(0)))
    return invalid("expected `{}` to end with one maximum (fmax=) of what a buffer has", iterator(0));
  value_ = makes.back().value;
  maximum_ = load(makes.back().target, makes.back().index, value_->type);
  size_t writes = 0;
  for (const Access& a : collect_accesses(makes, {}, &value_->name)) writes += a.write;
  for (Stmt& s : makes) {
    const bool sets = s.kind == Stmt::Kind::assign && s.op == AssignOp::set && s.target == value_->name &&
                      equal(load(s.target, s.index, value_->type), value_);
    if (sets) made_ = &s;
  }
  if (made_ == nullptr || writes != 1)
    return invalid("expected `{}` to assign {} before, once", iterator(0), value_->name);
  // s = exp2((s - m) * c); a += s; s = s * x ...
  const Expr of_sum = substitute(value_, {{iterator(0), iter(iterator(1))}}),
             of_weighted = substitute(value_, {{iterator(0), iter(iterator(2))}});
  const std::vector<Stmt>& powers = second.scope().body;
  const auto sets = [&](const Stmt& s) {
    return s.kind == Stmt::Kind::assign && s.op == AssignOp::set &&
           equal(load(s.target, s.index, value_->type), of_sum);
  };
  const Expr difference = powers.size() >= 2 && sets(powers[0]) ? exponent(powers[0].value) : Expr();
  const bool added = difference && equal(difference, of_sum - maximum_) && powers[1].kind == Stmt::Kind::assign &&
                     powers[1].op == AssignOp::add && equal(powers[1].value, of_sum) &&
                     !indexed_by(powers[1].index, iterator(1));
  const bool scaled = added && std::all_of(powers.begin() + 2, powers.end(),
                                           [&](const Stmt& s) { return sets(s) && is_factor(of_sum, s.value); });
  if (!scaled)
    return invalid("expected `{}` to make powers of {} - {} and to add them", iterator(1), value_->name,
                   maximum_->name);
  const std::vector<Stmt>& sums = third.scope().body;
  const bool weights = sums.size() == 1 && sums[0].kind == Stmt::Kind::assign && sums[0].op == AssignOp::add &&
                       !indexed_by(sums[0].index, iterator(2)) && is_factor(of_weighted, sums[0].value);
  if (!weights) return invalid("expected `{}` to add products with {} and nothing else", iterator(2), value_->name);
  return {};
}

Status Masking::widen_over(const std::string& scope) {
  const ScopePath& outer = sites_[0].outer;
  const auto over = std::find_if(outer.begin(), outer.end(), [&](const Stmt* s) { return s->iter == scope; });
  if (over == outer.end() || (*over)->mark != Mark::none)
    return invalid("expected the name of a scope without a mark around `{}`, got `{}`", iterator(0), scope);
  Expr begin;
  for (const Expr& e : value_->args) {
    if (!uses(e, iterator(0))) continue;
    const auto linear = linear_in(e, {iterator(0)});
    if (begin || !linear || linear->terms.size() != 1 || linear->terms[0].second != 1)
      return invalid("expected each iteration of `{}` to have its own cell of {}", iterator(0), value_->name);
    begin = linear->base;
  }
  if (!begin) return invalid("expected each iteration of `{}` to have its own cell of {}", iterator(0), value_->name);
  const Expr end = choices_outside(end_of(begin, extent_, ranges_), ranges_);
  bool later = (uses(extent_, scope) || uses(begin, scope)) && rise_of(begin, scope) && rise_of(end, scope);
  for (auto inner = over + 1; inner != outer.end(); ++inner)
    later = later && !uses(extent_, (*inner)->iter) && !uses(begin, (*inner)->iter);
  if (!later)
    return invalid("expected iterations that begin and end later in later ones of `{}` alone: {}", scope,
                   print_extent(sites_[0].scope()));
  const Ranges around = ranges_at(k_, {outer.begin(), over});
  const Expr last = (*over)->extent - Expr(1);
  const Expr wide_begin = simplify(substitute(begin, {{scope, Expr(0)}}), around);
  const Expr wide_end = choices_outside(simplify(substitute(end, {{scope, last}}), around), around);
  wide_extent_ = simplify(wide_end - wide_begin, around);
  begins_later_ = !equal(begin, wide_begin);
  shift_ = simplify(wide_begin - begin, ranges_);
  return {};
}

Status Masking::pad() {
  const int64_t most = interval(extent_, ranges_).hi;
  if (is_const_int(extent_) || most > kMostIterations)
    return invalid("expected iterations that vary in number, at most {}, got {}", kMostIterations,
                   print_extent(sites_[0].scope()));
  // Of min(T, E) with no more than T iterations, those that are added begin at E.
  Expr first = extent_;
  for (size_t i = 0; extent_->op == Op::k_min && i < 2; ++i) {
    if (is_const_int(extent_->args[i], most)) first = extent_->args[1 - i];
  }
  masked_ = is_masked(first);
  wide_extent_ = Expr(most);
  shift_ = Expr(0);
  return {};
}

// Whether the values are -inf from that iteration on as it is: select(x < y, .., -inf), where x grows and is y by then.
bool Masking::is_masked(const Expr& first) const {
  const Expr& e = made_->value;
  const bool selects = e->op == Op::k_select && e->args[0]->op == Op::k_lt && e->args[2]->op == Op::k_const_float &&
                       e->args[2]->fval == -std::numeric_limits<double>::infinity();
  if (!selects || !rise_of(e->args[0]->args[0], iterator(0)) || uses(e->args[0]->args[1], iterator(0))) return false;
  const Expr at = substitute(e->args[0]->args[0], {{iterator(0), first}});
  Expr left = choices_outside(simplify(e->args[0]->args[1] - at, ranges_), ranges_);
  for (size_t i = sites_[0].outer.size(); i-- > 0 && !surely_le(left, Expr(0), ranges_);) {
    const Stmt& scope = *sites_[0].outer[i];
    if (!uses(left, scope.iter)) continue;
    if (!rise_of(left, scope.iter)) return false;
    left = choices_outside(simplify(substitute(left, {{scope.iter, scope.extent - Expr(1)}}), ranges_), ranges_);
  }
  return surely_le(left, Expr(0), ranges_);
}

std::string Masking::seen_elsewhere() const {
  std::string why;
  if (!lives_inside(k_, value_->name, sites_[0].outer, &why)) return why;
  for (const Access& a : collect_accesses(k_.body, {}, &value_->name)) {
    const bool own = std::any_of(std::begin(sites_), std::end(sites_), [&](const ScopeSite& s) {
      return std::find(a.scopes.begin(), a.scopes.end(), &s.scope()) != a.scopes.end();
    });
    if (!own) return fmt::format("`{}` is used elsewhere", value_->name);
  }
  const ScopePath path = sites_[0].path();
  for (const Access& a : collect_accesses(sites_[0].scope().body, path)) {
    if (!a.write || a.buffer == value_->name || a.stmt == &sites_[0].scope().body.back()) continue;
    if (a.buffer == maximum_->name) return fmt::format("`{}` is used elsewhere", a.buffer);
    if (!lives_inside(k_, a.buffer, path, &why)) return why;
  }
  return {};
}

void Masking::write() {
  const Expr old = simplify(shift_ + iter(iterator(0)), ranges_);
  const Expr minus_infinity = const_float(-std::numeric_limits<double>::infinity(), value_->type);
  Expr value = made_->value;
  if (!masked_) value = select(make(Op::k_lt, {iter(iterator(0)), extent_}), value, minus_infinity);
  if (begins_later_) value = select(make(Op::k_lt, {iter(iterator(0)), Expr(0)}), minus_infinity, value);
  made_->value = value;
  for (const ScopeSite& site : sites_) {
    Stmt& scope = site.scope();
    scope.extent = wide_extent_;
    substitute_body(scope.body, {{scope.iter, shift_ + iter(scope.iter)}});
    simplify_body(scope.body, ranges_at(k_, site.path()));
  }
  k_.numeric |= kReassociate;
}

std::string Masking::outside() const {
  for (const ScopeSite& site : sites_) {
    for (const Access& a : collect_accesses(site.scope().body, site.path())) {
      const Buffer& b = *k_.find_buffer(a.buffer);
      const Ranges ranges = ranges_at(k_, a.scopes);
      for (size_t d = 0; d < a.index.size(); ++d) {
        if (!uses(a.index[d], site.scope().iter)) continue;
        if (!surely_le(Expr(0), a.index[d], ranges) ||
            !surely_le(simplify(a.index[d] + Expr(1), ranges), b.dims[d], ranges))
          return fmt::format("`{}` at {}", a.buffer, print(a.index[d]));
      }
    }
  }
  return {};
}

// Temporaries that further iterations weight.
std::string Masking::without_values() const {
  for (const Access& a : collect_accesses(sites_[2].scope().body, sites_[2].path())) {
    if (a.write || a.buffer == value_->name || is_input(k_.find_buffer(a.buffer)->place)) continue;
    if (!indexed_by(a.index, iterator(2))) continue;
    std::string why;
    if (!has_values(k_, a.buffer, &why)) return why;
  }
  return {};
}

}  // namespace

//   for i < N: m = m0; for j < E(i): {s = e; m fmax= s}; for j1 < E(i): {s = exp2((s - m) * c); a += s};
//     for n: for j2 < E(i): o += s * v
//   ->  for i < N: m = m0; for j < E(N - 1): {s = select(j < E(i), e, -inf); m fmax= s};
//         for j1 < E(N - 1): {s = exp2((s - m) * c); a += s}; for n: for j2 < E(N - 1): o += s * v
Status apply_mask_softmax(TransformResult& result, const Move& move, const TransformParams& params) {
  Kernel& k = result.kernel;
  const Legality legality("mask_softmax", params);
  LATHE_ASSIGN(const ScopeSite maximum, find_plain_site(k, move.args[0]));
  LATHE_ASSIGN(const ScopeSite sum, find_plain_site(k, move.args[1]));
  LATHE_ASSIGN(const ScopeSite weighted, find_plain_site(k, move.args[2]));
  Masking masking(k, maximum, sum, weighted);
  LATHE_RETURN_IF_ERROR(masking.find_values());
  const auto over = move.options.find("over");
  LATHE_RETURN_IF_ERROR(over == move.options.end() ? masking.pad() : masking.widen_over(over->second));
  std::string why = masking.seen_elsewhere();
  LATHE_RETURN_IF_ERROR(legality.require(0, why.empty(), why));
  LATHE_RETURN_IF_ERROR(legality.require(1, masking.is_above_minus_infinity()));
  masking.write();
  why = masking.outside();
  LATHE_RETURN_IF_ERROR(legality.require(2, why.empty(), why));
  why = masking.without_values();
  return legality.require(3, why.empty(), why);
}

std::vector<Move> propose_mask_softmax(const Kernel& kernel) {
  std::vector<Move> out;
  for (const Move& split : propose_split_softmax(kernel)) {
    if (split.args[3] != "1") continue;
    const std::vector<std::string> scopes(split.args.begin(), split.args.begin() + 3);
    out.push_back({"mask_softmax", scopes, {}, {}});
    for (const std::string& over : plain_scopes(kernel)) {
      const Stmt* scope = find_scope(kernel, over);
      bool around = false;
      for_each_stmt(scope->body, [&](const Stmt& s) { around = around || s.iter == scopes[0]; });
      if (around) out.push_back({"mask_softmax", scopes, {{"over", over}}, {}});
    }
  }
  return out;
}

}  // namespace lathe::search
