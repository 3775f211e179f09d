// split_softmax: a softmax and the sums of values that it weights, by parts of what it runs over. Each part has a
// maximum and sums of its own, of which all are made in the order of the parts.
#include <algorithm>
#include <cmath>

#include "search/moves/legality.h"
#include "search/moves/transform_rows.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

namespace {

// m = least; ...; for j: { ...; m fmax= s }; ...; a = a0; ...; for j1: { s = exp2((s - m) * c); a += s; ... }; ...;
// for n: { ...; o = o0; for j2: o += s * v; ... }, all in one body.
struct Softmax {
  std::vector<Stmt>* body = nullptr;
  ScopePath outer;
  // Where the scopes and the first values stand: in the body, those of o in the scope n.
  size_t max = 0, sum = 0, columns = 0, max_start = 0, sum_start = 0, weighted = 0, weighted_start = 0;
  size_t key = 0;  // the dimension of s that j indexes
  Expr extent;
  const Stmt& maximum() const { return (*body)[max].body.back(); }
  const Stmt& power() const { return (*body)[sum].body[0]; }
  const Stmt& added() const { return (*body)[sum].body[1]; }
  const Stmt& product() const { return (*body)[columns].body[weighted].body[0]; }
  const std::string& scores() const { return power().target; }
};

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
// x is a factor of e, which has it nowhere else.
bool is_factor(const Expr& x, const Expr& e) {
  if (equal(x, e)) return true;
  if (e->op != Op::k_mul) return false;
  for (const size_t side : {0, 1}) {
    if (!uses(e->args[1 - side], x->name) && is_factor(x, e->args[side])) return true;
  }
  return false;
}
// exp2((x - m) * c) of the difference x - m, or exp(x - m): the difference; null: neither.
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
  if (sums.body[0].index.empty() || !equal(sums.body[0].index.back(), iter((*p.body)[p.columns].iter)))
    return invalid("expected {} to have a cell for each iteration of `{}`, along its last dimension",
                   sums.body[0].target, (*p.body)[p.columns].iter);
  p.weighted_start = start_of(columns, p.weighted, sums.body[0]);
  if (p.weighted_start != 0 || p.weighted != 1)
    return invalid("expected `{}` to begin with a first value of {} and `{}`", (*p.body)[p.columns].iter,
                   sums.body[0].target, weighted);
  return p;
}

// Whether the results are used where they are whole only, and the values nowhere else.
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

// Whether what stands between the scopes leaves alone what the parts read, and reads nothing that they write.
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

void rename_buffer(std::vector<Stmt>& body, const std::string& from, const std::string& to) {
  rewrite_exprs(body, [&](const Expr& e) -> Expr {
    return e->op == Op::k_load && e->name == from ? load(to, e->args, e->type) : Expr();
  });
  for_each_stmt(body, [&](Stmt& s) {
    if (s.target == from) s.target = to;
  });
}

std::vector<Expr> with(std::vector<Expr> index, size_t behind, const Expr& e) {
  index.insert(index.end() - static_cast<std::ptrdiff_t>(behind), e);
  return index;
}

}  // namespace

//   m = m0; for j: {S; m fmax= s}; a = a0; for j1: {s = exp2((s - m) * c); a += s};
//   for n: {o = 0; for j2: o += s * v; y = f(o, a)}
//   ->  for jp < ceildiv(N, P): { the same to o, of P, a from 0; m_part[jp] = m; a_part[jp] = a; o_part[jp, n] = o }
//       m_all = m0; for q: m_all fmax= m_part[q]; a_all = a0;
//       for q: { w[q] = exp2((m_part[q] - m_all) * c); a_all += a_part[q] * w[q] };
//       for n: {o_all = 0; for q: o_all += o_part[q, n] * w[q]; y = f(o_all, a_all)}
Status apply_split_softmax(TransformResult& result, const Move& move, const TransformParams& params) {
  Kernel& k = result.kernel;
  const Legality legality("split_softmax", params);
  LATHE_ASSIGN(const Softmax p, find_softmax(k, move.args[0], move.args[1], move.args[2]));
  LATHE_ASSIGN(const int64_t size, int_arg(move.args[3], "a number of iterations", 1, int64_t{1} << 30));
  LATHE_RETURN_IF_ERROR(legality.require(0, used_whole(k, p)));
  LATHE_RETURN_IF_ERROR(legality.require(1, parts_stand_alone(p)));

  const Stmt maximum = p.maximum(), power = p.power(), added = p.added(), product = p.product();
  const std::string m = maximum.target, a = added.target, o = product.target;
  Names names(k);
  LATHE_ASSIGN(const std::vector<std::string> created, created_names(names, move, {move.args[0] + "p"}));
  const std::string& part = created[0];
  const Expr number = iter(part), parts = simplify(ceildiv(k.find_buffer(p.scores())->dims[p.key], Expr(size)));
  const Ranges ranges = ranges_at(k, p.outer);
  const std::string role = (*p.body)[p.max].role;

  // Buffers: results of parts, those of all, weights of parts.
  const auto like = [&](const std::string& of, const std::string& suffix, const Expr& dim, size_t behind) {
    Buffer b;
    b.name = names.fresh(of + suffix);
    b.type = k.find_buffer(of)->type;
    b.place = Place::heap;
    b.dims = k.find_buffer(of)->dims;
    if (dim) b.dims = with(b.dims, behind, dim);
    k.buffers.push_back(b);
    return b.name;
  };
  const size_t inner = product.index.empty() ? 0 : 1;
  const std::string m_p = like(m, "_part", parts, 0), a_p = like(a, "_part", parts, 0),
                    o_p = like(o, "_part", parts, inner), m_m = like(m, "_all", {}, 0), a_m = like(a, "_all", {}, 0),
                    o_m = like(o, "_all", {}, 0), w = like(m, "_weight", parts, 0);

  // A part.
  std::vector<Stmt> of_part;
  const auto partial = [&](Stmt scope) {
    const std::string own = scope.iter;
    substitute_body(scope.body, {{own, Expr(size) * number + iter(own)}});
    scope.extent = min(Expr(size), p.extent - Expr(size) * number);
    return scope;
  };
  const DType type = k.find_buffer(a)->type;
  const auto result_of = [&](const std::string& buffer, const std::vector<Expr>& index) {
    return load(buffer, index, k.find_buffer(buffer)->type);
  };
  const Stmt columns = (*p.body)[p.columns];
  of_part.push_back((*p.body)[p.max_start]);
  of_part.push_back(partial((*p.body)[p.max]));
  of_part.push_back(make_assign(a, added.index, AssignOp::set, const_float(0, type)));
  of_part.push_back(partial((*p.body)[p.sum]));
  of_part.push_back(make_assign(m_p, with(maximum.index, 0, number), AssignOp::set, result_of(m, maximum.index)));
  of_part.push_back(make_assign(a_p, with(added.index, 0, number), AssignOp::set, result_of(a, added.index)));
  Stmt values = columns;
  values.body.clear();
  values.body.push_back(make_assign(o, product.index, AssignOp::set, const_float(0, k.find_buffer(o)->type)));
  values.body.push_back(partial(columns.body[p.weighted]));
  values.body.push_back(
      make_assign(o_p, with(product.index, inner, number), AssignOp::set, result_of(o, product.index)));
  of_part.push_back(std::move(values));

  // All parts.
  const auto each = [&](const std::string& name, std::vector<Stmt> body) {
    return make_scope(name, ceildiv(p.extent, Expr(size)), std::move(body), role);
  };
  const std::string q = names.fresh(part + "_m"), r = names.fresh(part + "_w"), t = names.fresh(part + "_s");
  const auto rename_all = [&](std::vector<Stmt>& body) {
    rename_buffer(body, m, m_m);
    rename_buffer(body, a, a_m);
    rename_buffer(body, o, o_m);
  };
  std::vector<Stmt> behind;
  behind.push_back((*p.body)[p.max_start]);
  behind.push_back(
      each(q, {make_assign(m, maximum.index, AssignOp::fmax, result_of(m_p, with(maximum.index, 0, iter(q))))}));
  if (p.sum_start < p.max) behind.push_back((*p.body)[p.sum_start]);
  for (size_t i = p.max + 1; i < p.columns; ++i) {
    if (i != p.sum) {
      behind.push_back((*p.body)[i]);
      continue;
    }
    const std::vector<Expr> at = with(maximum.index, 0, iter(r));
    const Expr difference = result_of(m_p, at) - result_of(m, maximum.index);
    behind.push_back(each(r, {make_assign(w, at, AssignOp::set, power_like(power.value, difference)),
                              make_assign(a, added.index, AssignOp::add,
                                          result_of(a_p, with(added.index, 0, iter(r))) * result_of(w, at))}));
  }
  Stmt joined = columns;
  joined.body[p.weighted] = each(t, {make_assign(o, product.index, AssignOp::add,
                                                 result_of(o_p, with(product.index, inner, iter(t))) *
                                                     result_of(w, with(maximum.index, 0, iter(t))))});
  joined.iter = names.fresh(columns.iter + "_m");
  substitute_body(joined.body, {{columns.iter, iter(joined.iter)}});
  behind.push_back(std::move(joined));
  rename_all(behind);

  std::vector<Stmt> whole;
  for (size_t i = 0; i < p.max; ++i) {
    if (i != p.max_start && i != p.sum_start) whole.push_back((*p.body)[i]);
  }
  whole.push_back(each(part, std::move(of_part)));
  whole.insert(whole.end(), behind.begin(), behind.end());
  std::vector<Stmt> rest(p.body->begin() + static_cast<std::ptrdiff_t>(p.columns) + 1, p.body->end());
  rename_all(rest);
  whole.insert(whole.end(), rest.begin(), rest.end());
  *p.body = std::move(whole);
  simplify_body(*p.body, ranges);
  result.renamed.push_back({move.args[0], {part, move.args[0]}});
  k.numeric |= kReassociate;
  return {};
}

std::vector<Move> propose_split_softmax(const Kernel& kernel) {
  std::vector<Move> out;
  const auto visit = [&](auto&& self, const std::vector<Stmt>& body) -> void {
    for (size_t i = 0; i < body.size(); ++i) {
      self(self, body[i].body);
      const bool maximum = !body[i].body.empty() && body[i].body.back().op == AssignOp::fmax &&
                           body[i].body.back().kind == Stmt::Kind::assign;
      for (size_t j = i + 1; maximum && j < body.size(); ++j) {
        for (size_t n = j + 1; n < body.size(); ++n) {
          for (const Stmt& inner : body[n].body) {
            if (inner.kind != Stmt::Kind::scope || body[j].kind != Stmt::Kind::scope) continue;
            for (const char* size : {"1", "2", "4"})
              out.push_back({"split_softmax", {body[i].iter, body[j].iter, inner.iter, size}, {}, {}});
          }
        }
      }
    }
  };
  visit(visit, kernel.body);
  return out;
}

}  // namespace lathe::search
