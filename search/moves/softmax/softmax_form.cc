// See softmax_form.h.
#include "search/moves/softmax/softmax_form.h"

#include <algorithm>
#include <cmath>

#include "ir/analysis/dependence.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

namespace {

bool sets(const Stmt& s, const Stmt& like) {
  const auto same = [](const std::vector<Expr>& a, const std::vector<Expr>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Expr& x, const Expr& y) { return equal(x, y); });
  };
  return s.kind == Stmt::Kind::assign && s.op == AssignOp::set && s.target == like.target && same(s.index, like.index);
}
// The last statement before `end` that gives the target of `like` its first value; `end`: there is none.
size_t start_of(const std::vector<Stmt>& body, size_t end, const Stmt& like) {
  for (size_t i = end; i-- > 0;) {
    if (sets(body[i], like)) return i;
  }
  return end;
}
bool indexed_by(const Stmt& s, const std::string& scope) {
  return std::any_of(s.index.begin(), s.index.end(), [&](const Expr& e) { return uses(e, scope); });
}
// A finite number, or the larger of one and something else.
bool starts_finite(const Expr& e) {
  if (e->op == Op::k_fmax) return starts_finite(e->args[0]) || starts_finite(e->args[1]);
  return e->op == Op::k_const_float && std::isfinite(e->fval);
}
}  // namespace

bool is_factor(const Expr& x, const Expr& e) {
  if (equal(x, e)) return true;
  // Rounded: 0 stays 0.
  const bool rounded = e->op == Op::k_cast && is_float(e->type) && is_float(e->args[0]->type);
  if (rounded) return is_factor(x, e->args[0]);
  if (e->op != Op::k_mul) return false;
  for (const size_t side : {0, 1}) {
    if (!uses(e->args[1 - side], x->name) && is_factor(x, e->args[side])) return true;
  }
  return false;
}
Expr exponent(const Expr& e) {
  if (e->op == Op::k_exp) return e->args[0];
  const bool scaled = e->op == Op::k_exp2 && e->args[0]->op == Op::k_mul &&
                      e->args[0]->args[1]->op == Op::k_const_float && e->args[0]->args[1]->fval > 0;
  return scaled ? e->args[0]->args[0] : Expr();
}

Expr power_like(const Expr& e, const Expr& difference) {
  return e->op == Op::k_exp ? make(Op::k_exp, {difference}) : make(Op::k_exp2, {difference * e->args[0]->args[1]});
}

Result<Softmax> find_softmax(Kernel& kernel, const std::string& max, const std::string& sum,
                             const std::string& weighted) {
  Softmax p;
  LATHE_ASSIGN(const ScopeSite first, find_plain_site(kernel, max));
  LATHE_ASSIGN(const ScopeSite second, find_plain_site(kernel, sum));
  LATHE_ASSIGN(const ScopeSite third, find_plain_site(kernel, weighted));
  p.body = first.siblings;
  p.outer = first.outer;
  p.max = first.index;
  p.sum = second.index;
  if (second.siblings != p.body || p.max >= p.sum) return invalid("expected `{}` to stand after `{}`", sum, max);
  if (third.outer.size() != p.outer.size() + 1 || third.outer.back() < p.body->data() ||
      third.outer.back() >= p.body->data() + p.body->size())
    return invalid("expected `{}` in a scope beside `{}`", weighted, sum);
  p.columns = static_cast<size_t>(third.outer.back() - p.body->data());
  p.weighted = third.index;
  if (p.columns <= p.sum) return invalid("expected `{}` to stand after `{}`", weighted, sum);
  const Ranges ranges = ranges_at(kernel, p.outer);
  p.extent = simplify(first.scope().extent, ranges);
  for (const ScopeSite& s : {second, third}) {
    if (!equal(p.extent, simplify(s.scope().extent, ranges)))
      return invalid("expected `{}` and `{}` to have equal extents", max, s.scope().iter);
  }
  // m fmax= s
  if (first.scope().body.empty() || first.scope().body.back().kind != Stmt::Kind::assign ||
      p.maximum().op != AssignOp::fmax || p.maximum().value->op != Op::k_load || indexed_by(p.maximum(), max))
    return invalid("expected `{}` to end with one maximum (fmax=) of what a buffer has", max);
  const Stmt& m = p.maximum();
  p.max_start = start_of(*p.body, p.max, m);
  if (p.max_start == p.max || !starts_finite((*p.body)[p.max_start].value))
    return invalid("expected {} to start from a finite number before `{}`", m.target, max);
  // s = exp2((s - m) * c); a += s; s = s * x ...
  const std::vector<Stmt>& powers = second.scope().body;
  const bool two = powers.size() >= 2 && std::all_of(powers.begin(), powers.end(),
                                                     [](const Stmt& s) { return s.kind == Stmt::Kind::assign; });
  if (!two) return invalid("expected `{}` to hold powers and their sum", sum);
  const Expr value = substitute(m.value, {{max, iter(sum)}}), loaded = load(m.target, m.index, value->type);
  const Expr difference = exponent(p.power().value);
  const bool power = difference && equal(difference, value - loaded) && p.power().op == AssignOp::set &&
                     p.power().target == value->name &&
                     sets(p.power(), make_assign(value->name, value->args, AssignOp::set, value));
  const bool added = p.added().op == AssignOp::add && equal(p.added().value, value) && !indexed_by(p.added(), sum);
  if (!power || !added)
    return invalid("expected `{}` to make powers of {} - {} and to add them", sum, value->name, m.target);
  for (size_t i = 2; i < powers.size(); ++i) {
    if (!sets(powers[i], p.power()) || !is_factor(value, powers[i].value))
      return invalid("expected `{}` to multiply {} once it is added, and nothing else", sum, value->name);
  }
  p.sum_start = start_of(*p.body, p.sum, p.added());
  if (p.sum_start == p.sum) return invalid("expected {} to have a first value before `{}`", p.added().target, sum);
  size_t keys = 0;
  for (size_t d = 0; d < value->args.size(); ++d) {
    if (!uses(value->args[d], sum)) continue;
    p.key = d;
    ++keys;
  }
  if (keys != 1) return invalid("expected `{}` to index one dimension of {}", sum, value->name);
  if (!proves_le(p.extent, kernel.find_buffer(value->name)->dims[p.key], ranges))
    return invalid("expected no more iterations than dimension {} of {} has", p.key, value->name);
  // o += s * v
  const std::vector<Stmt>& columns = (*p.body)[p.columns].body;
  const Stmt& sums = third.scope();
  const bool weights = sums.body.size() == 1 && sums.body[0].kind == Stmt::Kind::assign &&
                       sums.body[0].op == AssignOp::add && !indexed_by(sums.body[0], weighted) &&
                       is_factor(substitute(value, {{sum, iter(weighted)}}), sums.body[0].value);
  if (!weights) return invalid("expected `{}` to add products with {} and nothing else", weighted, value->name);
  const Stmt& of_columns = (*p.body)[p.columns];
  const Expr column = is_const_int(of_columns.extent, 1) ? Expr(0) : iter(of_columns.iter);
  if (sums.body[0].index.empty() ||
      !equal(simplify(substitute(sums.body[0].index.back(), {{of_columns.iter, column}})), column))
    return invalid("expected {} to have a cell for each iteration of `{}`, along its last dimension",
                   sums.body[0].target, (*p.body)[p.columns].iter);
  p.weighted_start = start_of(columns, p.weighted, sums.body[0]);
  if (p.weighted_start != 0 || p.weighted != 1)
    return invalid("expected `{}` to begin with a first value of {} and `{}`", (*p.body)[p.columns].iter,
                   sums.body[0].target, weighted);
  return p;
}

bool used_whole(const Kernel& kernel, const Softmax& p) {
  const std::string &m = p.maximum().target, &a = p.added().target, &o = p.product().target, &s = p.scores();
  const Stmt* const parts[] = {&(*p.body)[p.max], &(*p.body)[p.sum], &(*p.body)[p.columns].body[p.weighted]};
  const auto inside = [](const Access& x, const Stmt* scope) {
    return std::find(x.scopes.begin(), x.scopes.end(), scope) != x.scopes.end();
  };
  for (const Access& x : collect_accesses(kernel.body)) {
    const bool first = inside(x, parts[0]), second = inside(x, parts[1]), third = inside(x, parts[2]);
    const auto stands_before = [&](size_t end) {
      return std::any_of(p.body->begin(), p.body->begin() + static_cast<std::ptrdiff_t>(end),
                         [&](const Stmt& b) { return x.stmt == &b || inside(x, &b); });
    };
    if (x.buffer == s && !first && !second && !third && !stands_before(p.max)) return false;
    // Within the parts each result is used in its statement alone.
    if (x.buffer == m && first && x.stmt != &p.maximum()) return false;
    if (x.buffer == m && second && x.stmt != &p.power()) return false;
    if (x.buffer == m && third) return false;
    if (x.buffer == a && (first || third || (second && x.stmt != &p.added()))) return false;
    if (x.buffer == o && (first || second || (third && x.stmt != &p.product()))) return false;
    if (x.buffer != m && x.buffer != a && x.buffer != o) continue;
    // Elsewhere only in this body: first values, and what follows.
    const bool here =
        std::any_of(p.body->begin(), p.body->end(), [&](const Stmt& b) { return x.stmt == &b || inside(x, &b); });
    if (!here) return false;
    const auto before = [&](size_t end) {
      for (size_t i = 0; i < end; ++i) {
        const Stmt& b = (*p.body)[i];
        if ((x.stmt == &b || inside(x, &b)) && !sets(b, x.buffer == m ? p.maximum() : p.added())) return true;
      }
      return false;
    };
    if (x.buffer == m && before(p.max)) return false;
    if (x.buffer == a && before(p.sum)) return false;
    // From there on nothing writes them.
    const bool first_value = x.stmt == &(*p.body)[p.max_start] || x.stmt == &(*p.body)[p.sum_start] ||
                             x.stmt == &(*p.body)[p.columns].body[p.weighted_start];
    if (x.write && !first && !second && !third && !first_value) return false;
    if (x.buffer == o && !inside(x, &(*p.body)[p.columns])) return false;
  }
  return true;
}

bool parts_stand_alone(const Softmax& p) {
  const std::string &m = p.maximum().target, &a = p.added().target, &o = p.product().target;
  const std::vector<Stmt>& columns = (*p.body)[p.columns].body;
  const std::vector<Stmt> parts = {(*p.body)[p.max_start], (*p.body)[p.max], (*p.body)[p.sum],
                                   columns[p.weighted_start], columns[p.weighted]};
  std::vector<std::string> read, written;
  for (const Access& x : collect_accesses(parts)) {
    if (x.buffer == m || x.buffer == a || x.buffer == o) continue;
    (x.write ? written : read).push_back(x.buffer);
  }
  const auto has = [](const std::vector<std::string>& list, const std::string& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  std::vector<Stmt> others;
  for (size_t i = p.max + 1; i < p.columns; ++i) {
    if (i != p.sum) others.push_back((*p.body)[i]);
  }
  others.insert(others.end(), columns.begin() + static_cast<std::ptrdiff_t>(p.weighted) + 1, columns.end());
  for (const Access& x : collect_accesses(others)) {
    if (has(written, x.buffer) || (x.write && has(read, x.buffer))) return false;
  }
  // First values that stand before the parts are made behind them, too.
  for (const size_t start : {p.max_start, p.sum_start}) {
    if (start > p.max) continue;
    const std::vector<Stmt> passed(p.body->begin() + static_cast<std::ptrdiff_t>(start) + 1,
                                   p.body->begin() + static_cast<std::ptrdiff_t>(p.max));
    const Expr& value = (*p.body)[start].value;
    const auto changes = [&](const Access& x) { return x.write && uses(value, x.buffer); };
    const std::vector<Access> accesses = collect_accesses(passed);
    if (std::any_of(accesses.begin(), accesses.end(), changes)) return false;
    if (std::any_of(written.begin(), written.end(), [&](const std::string& b) { return uses(value, b); })) return false;
  }
  // The first value of a may be made of the maximum; those of the others are made of nothing that is a result here.
  const Stmt* const firsts[] = {&(*p.body)[p.max_start], &columns[p.weighted_start]};
  for (const Stmt* s : firsts) {
    for (const std::string& name : {m, a, o}) {
      if (uses(s->value, name)) return false;
    }
  }
  return true;
}

}  // namespace lathe::search
