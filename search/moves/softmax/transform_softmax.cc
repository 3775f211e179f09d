// split_softmax: a softmax and the sums of values that it weights, by parts of what it runs over. Each part has a
// maximum and sums of its own, of which all are made in the order of the parts.
#include "search/moves/legality.h"
#include "search/moves/softmax/softmax_form.h"
#include "search/moves/transform_rows.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

namespace {

void rename_buffer(std::vector<Stmt>& body, const std::string& from, const std::string& to) {
  rewrite_exprs(
      body,
      [&](const Expr& e) -> Expr {
        return e->op == Op::k_load && e->name == from ? load(to, e->args, e->type) : Expr();
      },
      holds_name(from));
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
