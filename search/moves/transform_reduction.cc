// split_reduction, share_sum, online_reduction: a reduction with several results on the way. They add
// temporaries (partial results) and scopes that start and combine them.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/core/text_form.h"
#include "search/moves/footprint.h"
#include "search/moves/legality.h"
#include "search/moves/transform_rows.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

namespace {
constexpr int64_t kMaxPartials = 1024;
constexpr int64_t kMaxPartTerms = int64_t{1} << 30;

// What changes nothing: e op= identity.
Expr identity_of(AssignOp op, DType type) {
  const double infinity = std::numeric_limits<double>::infinity();
  switch (op) {
    case AssignOp::add:
      return is_float(type) ? const_float(-0.0, type) : const_int(0, type);
    case AssignOp::mul:
      return const_float(1, type);
    case AssignOp::min:
      return const_float(infinity, type);
    default:
      return const_float(-infinity, type);
  }
}

// for o_0 < e0: for o_1 < e1: statement, over the iterators of that name.
Stmt around(Stmt statement, const std::vector<std::string>& iters, const std::vector<Expr>& extents) {
  for (size_t d = iters.size(); d-- > 0;) {
    std::vector<Stmt> body;
    body.push_back(std::move(statement));
    statement = make_scope(iters[d], extents[d], std::move(body));
  }
  return statement;
}

std::vector<std::string> fresh_iters(Names& names, const std::string& base, size_t count) {
  std::vector<std::string> out;
  for (size_t d = 0; d < count; ++d) out.push_back(names.fresh(fmt::format("{}_{}", base, d)));
  return out;
}
std::vector<Expr> as_index(const std::vector<std::string>& iters) {
  std::vector<Expr> out;
  for (const std::string& i : iters) out.push_back(iter(i));
  return out;
}
}  // namespace

//   at: for n0: for n1 < P: a[c] += v   ->   for q < P: p[q] = 0; for n0: for n1 < P: p[n1] += v;
//                                            for r < P: a[c] += p[r]                  (scope n1)
Status apply_split_reduction(TransformResult& result, const Move& move, const TransformParams& params) {
  Kernel& k = result.kernel;
  const Legality legality("split_reduction", params);
  const std::string &name = move.args[0], &scope = move.args[1];
  const Buffer* found = k.find_buffer(name);
  if (!found) return invalid("expected the name of a buffer, got `{}`", name);
  const Buffer buffer = *found;
  LATHE_ASSIGN(const BodySite site, find_body(k, move.options.at("at")));
  const auto inside = [&](Mark mark) { return inside_mark(site.path, mark); };
  if (inside(Mark::vector) || inside(Mark::tensor) || inside(Mark::grid) || inside(Mark::block))
    return invalid("expected a place outside @vector, @tensor, @grid and @block scopes");
  // The reductions below the scope, and the statement of `at` that holds them.
  const std::vector<Access> accesses = collect_accesses(*site.body, site.path);
  const size_t fixed = site.path.size();
  std::vector<const Access*> split;
  const Stmt* holder = nullptr;
  Expr extent;
  for (const Access& a : accesses) {
    const auto at = std::find_if(a.scopes.begin() + static_cast<std::ptrdiff_t>(fixed), a.scopes.end(),
                                 [&](const Stmt* s) { return s->iter == scope; });
    if (at == a.scopes.end() || a.buffer != name || !a.reduction) continue;
    split.push_back(&a);
    holder = a.scopes[fixed];
    Ranges ranges = ranges_at(k, ScopePath(a.scopes.begin(), at));
    extent = Expr(interval((*at)->extent, ranges).hi);
  }
  if (split.empty()) return invalid("expected `{}` to be reduced in scope `{}`, below `at`", name, scope);
  const bool own = inside_shared_out(site.path);  // each thread has its own parts
  for (const Access* a : split) {
    if (own && inside_shared_out(ScopePath(a->scopes.begin() + static_cast<std::ptrdiff_t>(fixed), a->scopes.end())))
      return invalid("expected `{}` to be reduced by one thread in an iteration of `{}`", name, site.path.back()->iter);
  }
  if (extent->ival < 1 || extent->ival > kMaxPartials)
    return invalid("expected `{}` to have at most {} iterations", scope, kMaxPartials);
  const AssignOp op = split.front()->op;
  if (order_matters(k, *split.front())) k.numeric |= kReassociate;
  if (!is_float(buffer.type) && (buffer.type != DType::i32 || op != AssignOp::add))
    return invalid("expected floats, or sums of i32, in `{}`", name);
  const bool alone = std::all_of(accesses.begin(), accesses.end(), [&](const Access& a) {
    const bool below = a.scopes.size() > fixed && a.scopes[fixed] == holder;
    return !below || a.buffer != name || (a.reduction && a.op == op);
  });
  LATHE_RETURN_IF_ERROR(legality.require(0, alone));

  Names names(k);
  LATHE_ASSIGN(const std::vector<std::string> created, created_names(names, move, {name + "_p"}));
  const Ranges ranges = ranges_at(k, site.path);
  const Staged staged = stage_box(k, buffer, split, fixed, ranges);
  Buffer partial;
  partial.name = created[0];
  partial.type = buffer.type;
  partial.place = own ? Place::stack : Place::heap;
  partial.dims = {extent};
  std::vector<Expr> extents = {extent};
  for (size_t d = 0; d < staged.box.size(); ++d) {
    if (!staged.kept[d]) continue;
    partial.dims.push_back(storage_size(staged.box[d], buffer.dims[d], ranges, false));
    extents.push_back(staged.box[d].extent);
  }
  const size_t at = static_cast<size_t>(holder - site.body->data());
  std::vector<Stmt>& body = *site.body;
  std::vector<const Stmt*> targets;
  for (const Access* a : split) targets.push_back(a->stmt);
  const auto redirect = [&](Stmt& s) {
    if (std::find(targets.begin(), targets.end(), &s) == targets.end()) return;
    s.target = partial.name;
    s.index = staged.rebase(s.index);
    s.index.insert(s.index.begin(), iter(scope));
  };
  for_each_stmt(body[at].body, redirect);

  const std::vector<std::string> start = fresh_iters(names, partial.name, extents.size());
  const std::vector<std::string> join = fresh_iters(names, partial.name, extents.size());
  const std::vector<Expr> cells = as_index(join);
  std::vector<Expr> target;
  for (size_t d = 0, cell = 1; d < staged.box.size(); ++d) {
    const Expr& base = staged.box[d].base;
    target.push_back(staged.kept[d] ? base + cells[cell++] : base);
  }
  const Expr identity = identity_of(op, buffer.type), value = load(partial.name, cells, buffer.type);
  Stmt first = around(make_assign(partial.name, as_index(start), AssignOp::set, identity), start, extents);
  Stmt last = around(make_assign(name, target, op, value), join, extents);
  body.insert(body.begin() + static_cast<std::ptrdiff_t>(at) + 1, std::move(last));
  body.insert(body.begin() + static_cast<std::ptrdiff_t>(at), std::move(first));
  simplify_body(body, ranges);
  k.buffers.push_back(std::move(partial));
  return {};
}

std::vector<Move> propose_split_reduction(const Kernel& kernel) {
  std::vector<Move> out;
  const auto add = [&](const std::string& buffer, const std::string& scope, const std::string& at) {
    Move move{"split_reduction", {buffer, scope}, {{"at", at}}, {}};
    const bool known = std::any_of(out.begin(), out.end(),
                                   [&](const Move& m) { return m.args == move.args && m.options == move.options; });
    if (!known) out.push_back(std::move(move));
  };
  for (const Access& a : collect_accesses(kernel.body)) {
    if (!a.reduction) continue;
    for (size_t s = 0; s < a.scopes.size(); ++s) {
      add(a.buffer, a.scopes[s]->iter, "root");
      for (size_t o = 0; o < s; ++o) add(a.buffer, a.scopes[s]->iter, a.scopes[o]->iter);
    }
  }
  return out;
}

//   for m: a[m] = 0; for k < K: a[m] += v(k); S(a[m])
//   ->  for p < ceildiv(K, T): for m: q[p, m] = 0; for k < min(T, K - T*p): q[p, m] += v(T*p + k); w[p, m] = q[p, m]
//       for m: a[m] = 0; for p < ceildiv(K, T): a[m] += w[p, m]; S(a[m])
Status apply_share_sum(TransformResult& result, const Move& move, const TransformParams& params) {
  Kernel& k = result.kernel;
  const Legality legality("share_sum", params);
  LATHE_ASSIGN(const ScopeSite site, find_plain_site(k, move.args[0]));
  LATHE_ASSIGN(const int64_t size, int_arg(move.args[1], "size", 1, kMaxPartTerms));
  const Stmt& sum = site.scope();
  const auto assigns = [](const Stmt& s, AssignOp op) { return s.kind == Stmt::Kind::assign && s.op == op; };
  if (site.outer.empty() || site.index != 1 || sum.body.size() != 1 || !assigns(sum.body[0], AssignOp::add) ||
      !assigns((*site.siblings)[0], AssignOp::set))
    return invalid("expected `{}` to hold one sum and to stand after its start, inside a scope", sum.iter);
  const Stmt &start = (*site.siblings)[0], &term = sum.body[0];
  const Buffer target = *k.find_buffer(term.target);
  const bool same = start.target == term.target && start.index.size() == term.index.size() &&
                    std::equal(start.index.begin(), start.index.end(), term.index.begin(), equal);
  const bool zero = start.value->op == Op::k_const_float && start.value->fval == 0 && !std::signbit(start.value->fval);
  if (!same || !zero || !is_float(target.type))
    return invalid("expected `{}` to start at 0.0 what is summed", sum.iter);
  for (size_t i = 0; i + 1 < site.outer.size(); ++i) {
    if (site.outer[i]->body.size() != 1 || site.outer[i]->mark != Mark::none)
      return invalid("expected `{}` to hold nothing else", site.outer[i]->iter);
  }
  const Ranges ranges = ranges_at(k, {});
  std::vector<Expr> extents = {sum.extent};
  for (const Stmt* s : site.outer) extents.push_back(s->extent);
  for (const Expr& e : extents) {
    bool symbols = true;
    for_each_node(e, [&](const ExprNode& n) { symbols &= n.op != Op::k_iter && n.op != Op::k_load; });
    if (!symbols) return invalid("expected extents of symbols, got {}", print(e));
    if (!surely_le(Expr(0), e, ranges)) return invalid("expected extents of 0 or more, got {}", print(e));
  }
  const Stmt& top = *site.outer[0];
  std::string changed;
  for (const Access& a : collect_accesses(top.body)) {
    if (a.write && changed.empty() && uses(term.value, a.buffer)) changed = a.buffer;
  }
  LATHE_RETURN_IF_ERROR(legality.require(0, changed.empty(), fmt::format("`{}` is written there", changed)));

  Names names(k);
  LATHE_ASSIGN(const std::vector<std::string> created, created_names(names, move, {sum.iter + "p", sum.iter + "t"}));
  const std::string &part = created[0], &inner = created[1];
  Buffer shared;
  shared.name = names.fresh(target.name + "_w");
  shared.type = target.type;
  shared.place = Place::heap;
  const Expr parts = ceildiv(sum.extent, Expr(size));
  shared.dims = extents;
  shared.dims[0] = parts;
  Buffer own = shared;
  own.name = names.fresh(target.name + "_q");
  std::vector<Expr> index = {iter(part)};
  for (const Stmt* s : site.outer) index.push_back(iter(s->iter));
  const auto at = std::find_if(k.body.begin(), k.body.end(), [&](const Stmt& s) { return &s == &top; });
  Stmt last = top;  // adds up
  // Of each part.
  std::vector<Stmt> body;
  body.push_back(make_assign(own.name, index, AssignOp::set, start.value));
  Stmt terms = make_scope(inner, min(Expr(size), sum.extent - Expr(size) * iter(part)),
                          {make_assign(own.name, index, AssignOp::add, term.value)}, sum.role);
  substitute_body(terms.body, {{sum.iter, Expr(size) * iter(part) + iter(inner)}});
  body.push_back(std::move(terms));
  body.push_back(make_assign(shared.name, index, AssignOp::set, load(own.name, index, own.type)));
  for (size_t d = site.outer.size(); d-- > 0;) {
    std::vector<Stmt> around_it;
    around_it.push_back(make_scope(site.outer[d]->iter, site.outer[d]->extent, std::move(body), site.outer[d]->role));
    body = std::move(around_it);
  }
  Stmt first = make_scope(part, parts, std::move(body));
  // Of all parts, in their order.
  std::vector<Stmt>* inside = &last.body;
  for (size_t d = 1; d < site.outer.size(); ++d) inside = &inside->front().body;
  Stmt& adds = (*inside)[1];
  adds.extent = parts;
  adds.role.clear();
  index[0] = iter(adds.iter);
  adds.body[0].value = load(shared.name, index, shared.type);
  std::vector<Stmt> second;
  second.push_back(std::move(last));
  rename_scopes(second, "_s", names);
  const auto place = at - k.body.begin();
  k.body[static_cast<size_t>(place)] = std::move(first);
  k.body.insert(k.body.begin() + place + 1, std::move(second[0]));
  k.numeric |= kReassociate;
  k.buffers.push_back(std::move(own));
  k.buffers.push_back(std::move(shared));
  simplify_body(k.body, Ranges(k));
  return {};
}

std::vector<Move> propose_share_sum(const Kernel& kernel) {
  std::vector<Move> out;
  for (const std::string& scope : plain_scopes(kernel)) {
    for (const char* size : {"8", "64"}) out.push_back({"share_sum", {scope, size}, {}, {}});
  }
  return out;
}

namespace {
// for n < N: m[i] fmax= x(n); ...; for n1 < N: [e[j] = exp(x(n1) - m[i]);] a[k] += that
// exp2((x - m) * c), c a positive constant, serves like exp(x - m), and so does exp2_bf16.
struct MaxAndSum {
  ScopeSite max, sum;
  const Stmt *maximum = nullptr, *update = nullptr;  // m fmax= x, a += ...
  Op function = Op::k_exp;
  Expr factor;  // of exp2((x - m) * factor); null: exp(x - m)
  Expr power(const Expr& difference) const { return make(function, {factor ? difference * factor : difference}); }
};

bool is_maximum(const Stmt& s) {
  return s.kind == Stmt::Kind::assign && (s.op == AssignOp::max || s.op == AssignOp::fmax);
}

// What `update` adds: its value, or that of the statement before it which stores it in a buffer.
Expr added_value(const Stmt& scope, const Stmt& update) {
  Expr value = update.value;
  for (const Stmt& s : scope.body) {
    if (&s == &update) break;
    if (update.value->op != Op::k_load || s.target != update.value->name) continue;
    const bool stores = s.op == AssignOp::set && equal(load(s.target, s.index, s.value->type), update.value);
    value = stores ? s.value : update.value;
  }
  return value;
}

Result<MaxAndSum> find_max_and_sum(Kernel& kernel, const std::string& max, const std::string& sum) {
  MaxAndSum out;
  LATHE_ASSIGN(out.max, find_plain_site(kernel, max));
  LATHE_ASSIGN(out.sum, find_plain_site(kernel, sum));
  const Stmt &first = out.max.scope(), &second = out.sum.scope();
  if (out.max.siblings != out.sum.siblings || out.max.index >= out.sum.index)
    return invalid("expected `{}` to stand after `{}`", sum, max);
  const Ranges ranges = ranges_at(kernel, out.max.outer);
  if (!equal(simplify(first.extent, ranges), simplify(second.extent, ranges)))
    return invalid("expected `{}` and `{}` to have equal extents", max, sum);
  if (first.body.size() != 1 || !is_maximum(first.body[0]) || !is_float(first.body[0].value->type))
    return invalid("expected `{}` to hold a maximum of floats and nothing else", max);
  out.maximum = &first.body[0];
  const Stmt& m = *out.maximum;
  const Expr value = simplify_loads(substitute(m.value, {{max, iter(sum)}}), ranges);
  const Expr difference = value - load(m.target, m.index, m.value->type);
  for (const Stmt& s : second.body) {
    if (s.kind != Stmt::Kind::assign) return invalid("expected only assignments in `{}`", sum);
    if (s.op != AssignOp::add || s.target == m.target) continue;
    const Expr added = simplify_loads(added_value(second, s), ranges);
    const bool of_two = added->op == Op::k_exp2 || added->op == Op::k_exp2_bf16;
    const bool scaled = of_two && added->args[0]->op == Op::k_mul && added->args[0]->args[1]->op == Op::k_const_float &&
                        added->args[0]->args[1]->fval > 0;
    out.function = scaled ? added->op : Op::k_exp;
    out.factor = scaled ? added->args[0]->args[1] : Expr();
    if (equal(added, out.power(difference))) {
      out.update = &s;
      break;
    }
  }
  if (!out.update) return invalid("expected `{}` to add exp(x - {}) of the values in `{}`", sum, m.target, max);
  for (const Expr& e : m.index) {
    if (uses(e, max)) return invalid("expected one maximum in `{}`", max);
  }
  for (const Expr& e : out.update->index) {
    if (uses(e, sum)) return invalid("expected one sum in `{}`", sum);
  }
  return out;
}

// The two statements' results and operands stay alone: see the row's rules.
struct OnlineLegality {
  bool between = true, inside = true;
};
OnlineLegality check_online(const MaxAndSum& p) {
  OnlineLegality out;
  const std::string &m = p.maximum->target, &a = p.update->target;
  const auto feeds = [&](const std::string& b) { return b == m || uses(p.maximum->value, b); };
  for (size_t i = p.max.index + 1; i < p.sum.index; ++i) {
    for (const Access& x : collect_accesses({(*p.max.siblings)[i]})) {
      if (x.buffer == m || (x.write && feeds(x.buffer))) out.between = false;
    }
  }
  if (uses(p.maximum->value, m) || uses(p.maximum->value, a)) out.inside = false;
  for (const Access& x : collect_accesses(p.sum.scope().body)) {
    const bool update = x.stmt == p.update;
    if (x.buffer == a && !update) out.inside = false;
    if (x.write && !update && feeds(x.buffer)) out.inside = false;
  }
  return out;
}

// old == new: nothing to rescale (infinities included). A sum may be rescaled as often as it has terms, so the power is
// as exact as there is.
Expr rescaled(const MaxAndSum& p, const Expr& value, const Expr& from, const Expr& to) {
  const Expr one = const_float(1, from->type);
  MaxAndSum exact = p;
  if (exact.function == Op::k_exp2_bf16) exact.function = Op::k_exp2;
  return value * select(make(Op::k_eq, {from, to}), one, exact.power(from - to));
}
}  // namespace

//   for n: m fmax= x(n); a = 0; for n1: a += exp(x(n1) - m)
//   ->  a = 0; for q < P: mp[q] = -inf; ap[q] = 0
//       for n0: for n1 < P: t = fmax(x, mp); ap = ap * exp(mp - t) + exp(x - t); mp = t   (each [n1])
//       for r < P: m fmax= mp[r];  for s < P: a += ap[s] * exp(mp[s] - m)
Status apply_online_reduction(TransformResult& result, const Move& move, const TransformParams& params) {
  Kernel& k = result.kernel;
  const Legality legality("online_reduction", params);
  LATHE_ASSIGN(const MaxAndSum p, find_max_and_sum(k, move.args[0], move.args[1]));
  LATHE_ASSIGN(const int64_t size, int_arg(move.args[2], "a number of partial results", 1, 256));
  const OnlineLegality legal = check_online(p);
  LATHE_RETURN_IF_ERROR(legality.require(0, legal.between));
  LATHE_RETURN_IF_ERROR(legality.require(1, legal.inside));

  const Stmt maximum = *p.maximum, update = *p.update;
  const DType type = maximum.value->type;
  Names names(k);
  const std::string &m = maximum.target, &a = update.target, &n = move.args[0];
  LATHE_ASSIGN(const std::vector<std::string> created,
               created_names(names, move, {m + "_p", a + "_p", m + "_n", n + "0", n + "1"}));
  const auto partial = [&](int which, const Expr& at) { return load(created[static_cast<size_t>(which)], {at}, type); };
  for (int b = 0; b < 3; ++b) {
    Buffer buffer;
    buffer.name = created[static_cast<size_t>(b)];
    buffer.type = type;
    buffer.place = Place::heap;
    buffer.dims = {Expr(size)};
    k.buffers.push_back(std::move(buffer));
  }
  const auto set = [&](int which, const Expr& at, Expr value) {
    return make_assign(created[static_cast<size_t>(which)], {at}, AssignOp::set, std::move(value));
  };
  const std::vector<std::string> own = fresh_iters(names, created[0], 3);
  const Expr q = iter(own[0]), r = iter(own[1]), s = iter(own[2]);
  const Expr outer = iter(created[3]), inner = iter(created[4]);
  const Expr infinity = const_float(-std::numeric_limits<double>::infinity(), type);
  const Expr extent = p.max.scope().extent, step(size);

  const Expr x = substitute(maximum.value, {{n, step * outer + inner}});
  const Expr old = partial(0, inner), next = partial(2, inner), one = p.power(x - next);
  const Expr term = select(make(Op::k_eq, {x, infinity}), const_float(0, type), one);
  std::vector<Stmt> lanes;
  const Op larger = maximum.op == AssignOp::fmax ? Op::k_fmax : Op::k_max;
  lanes.push_back(set(2, inner, make(larger, {x, old})));
  lanes.push_back(set(1, inner, rescaled(p, partial(1, inner), old, next) + term));
  lanes.push_back(set(0, inner, next));
  const std::string role = p.max.scope().role;
  std::vector<Stmt> pass;
  pass.push_back(make_scope(created[4], min(step, extent - step * outer), std::move(lanes), role));
  std::vector<Stmt> start;
  start.push_back(set(0, q, infinity));
  start.push_back(set(1, q, const_float(0, type)));

  std::vector<Stmt> added;
  added.push_back(make_scope(own[0], step, std::move(start)));
  added.push_back(make_scope(created[3], ceildiv(extent, step), std::move(pass), role));
  const Expr whole = load(m, maximum.index, type);
  added.push_back(around(make_assign(m, maximum.index, maximum.op, partial(0, r)), {own[1]}, {step}));
  const Expr share = rescaled(p, partial(1, s), partial(0, s), whole);
  added.push_back(around(make_assign(a, update.index, AssignOp::add, share), {own[2]}, {step}));

  std::vector<Stmt>& siblings = *p.sum.siblings;
  std::vector<Stmt>& rest = p.sum.scope().body;
  rest.erase(rest.begin() + (p.update - rest.data()));
  if (rest.empty()) siblings.erase(siblings.begin() + static_cast<std::ptrdiff_t>(p.sum.index));
  siblings.insert(siblings.begin() + static_cast<std::ptrdiff_t>(p.sum.index), std::make_move_iterator(added.begin()),
                  std::make_move_iterator(added.end()));
  siblings.erase(siblings.begin() + static_cast<std::ptrdiff_t>(p.max.index));
  simplify_body(siblings, ranges_at(k, p.max.outer));
  result.renamed.push_back({n, {created[3], created[4]}});
  k.numeric |= kReassociate;
  return {};
}

std::vector<Move> propose_online_reduction(const Kernel& kernel) {
  std::vector<Move> out;
  const auto visit = [&](auto&& self, const std::vector<Stmt>& body) -> void {
    for (size_t i = 0; i < body.size(); ++i) {
      self(self, body[i].body);
      if (body[i].body.size() != 1 || !is_maximum(body[i].body[0])) continue;
      for (size_t j = i + 1; j < body.size(); ++j) {
        if (body[j].kind != Stmt::Kind::scope) continue;
        for (const char* size : {"1", "2", "4"})
          out.push_back({"online_reduction", {body[i].iter, body[j].iter, size}, {}, {}});
      }
    }
  };
  visit(visit, kernel.body);
  return out;
}

}  // namespace lathe::search
