// online_softmax: a softmax and the sums of values that it weights, in one pass over blocks of what it runs over. What
// a block brings is added to the sums of all blocks before it, once these are scaled to the maximum of both.
#include "search/moves/legality.h"
#include "search/moves/softmax/softmax_form.h"
#include "search/moves/transform_rows.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

namespace {

constexpr int64_t kMostParts = 1024;

class OnlineSoftmax {
 public:
  OnlineSoftmax(Kernel& kernel, const Softmax& p, Names& names, std::string block, int64_t size, int64_t parts)
      : k_(kernel), p_(p), names_(names), block_(std::move(block)), size_(size), parts_(parts) {}

  std::vector<Stmt> run() {
    add_buffers();
    std::vector<Stmt> out;
    for (size_t i = 0; i < p_.max; ++i) {
      if (i != p_.max_start && i != p_.sum_start) out.push_back((*p_.body)[i]);
    }
    out.push_back((*p_.body)[p_.max_start]);
    out.push_back(make_assign(a_run_, added().index, AssignOp::set, zero(a_run_)));
    out.push_back(each_sum(
        "_z", [&](const std::vector<Expr>& at) { return make_assign(o_run_, at, AssignOp::set, zero(o_run_)); }));
    out.push_back(blocks());
    if (p_.sum_start < p_.max) out.push_back((*p_.body)[p_.sum_start]);
    for (size_t i = p_.max + 1; i < p_.columns; ++i) {
      out.push_back(i != p_.sum ? (*p_.body)[i]
                                : make_assign(added().target, added().index, AssignOp::add, of(a_run_, added().index)));
    }
    if (parts_ > 1) {
      out.push_back(each_sum(
          "_c", [&](const std::vector<Expr>& at) { return make_assign(o_parts_, at, AssignOp::set, of(o_run_, at)); }));
    }
    out.push_back(results());
    out.insert(out.end(), p_.body->begin() + static_cast<std::ptrdiff_t>(p_.columns) + 1, p_.body->end());
    return out;
  }

 private:
  const Stmt& maximum() const { return p_.maximum(); }
  const Stmt& added() const { return p_.added(); }
  const Stmt& product() const { return p_.product(); }
  const Stmt& columns() const { return (*p_.body)[p_.columns]; }
  Expr of(const std::string& buffer, const std::vector<Expr>& index) const {
    return load(buffer, index, k_.find_buffer(buffer)->type);
  }
  Expr zero(const std::string& buffer) const { return const_float(0, k_.find_buffer(buffer)->type); }

  std::string like(const std::string& buffer, const char* suffix, bool of_parts) {
    Buffer b;
    b.name = names_.fresh(buffer + suffix);
    b.type = k_.find_buffer(buffer)->type;
    b.place = Place::heap;
    b.dims = k_.find_buffer(buffer)->dims;
    if (of_parts) b.dims.insert(b.dims.end() - 1, Expr(parts_));
    k_.buffers.push_back(b);
    return b.name;
  }
  void add_buffers() {
    const std::string m = maximum().target, a = added().target, o = product().target;
    m_old_ = like(m, "_old", false);
    m_scale_ = like(m, "_scale", false);
    a_run_ = like(a, "_run", false);
    o_run_ = like(o, "_run", parts_ > 1);
    if (parts_ > 1) o_parts_ = like(o, "_parts", true);
  }
  // Of the sums: the part before the column.
  std::vector<Expr> in_part(const Expr& part) const {
    std::vector<Expr> at = product().index;
    if (parts_ > 1) at.insert(at.end() - 1, part);
    return at;
  }

  // for q < Q: for n: statement
  template <class F>
  Stmt each_sum(const std::string& suffix, F statement) {
    const std::string part = names_.fresh(block_ + suffix), column = names_.fresh(block_ + suffix + "n");
    std::vector<Expr> at = in_part(iter(part));
    at.back() = iter(column);
    Stmt out = make_scope(column, columns().extent, {statement(at)}, columns().role);
    return parts_ > 1 ? make_scope(part, Expr(parts_), {std::move(out)}) : out;
  }

  Stmt in_block(Stmt scope) const {
    const std::string own = scope.iter;
    const Expr first = Expr(size_) * iter(block_);
    substitute_body(scope.body, {{own, first + iter(own)}});
    scope.extent = min(Expr(size_), p_.extent - first);
    return scope;
  }
  Stmt blocks() {
    std::vector<Stmt> body;
    const Expr m = of(maximum().target, maximum().index), old = of(m_old_, maximum().index);
    body.push_back(make_assign(m_old_, maximum().index, AssignOp::set, m));
    body.push_back(in_block((*p_.body)[p_.max]));
    const Expr power = power_like(p_.power().value, old - m), scale = of(m_scale_, maximum().index);
    body.push_back(make_assign(a_run_, added().index, AssignOp::mul, power));
    body.push_back(make_assign(m_scale_, maximum().index, AssignOp::set, power));
    body.push_back(
        each_sum("_r", [&](const std::vector<Expr>& at) { return make_assign(o_run_, at, AssignOp::mul, scale); }));
    Stmt powers = (*p_.body)[p_.sum];
    powers.body[1].target = a_run_;
    body.push_back(in_block(std::move(powers)));
    Stmt values = columns(), sum = values.body[p_.weighted];
    const std::string key = sum.iter;
    sum.body[0].target = o_run_;
    sum.body[0].index = in_part(floordiv(iter(key), Expr(size_ / parts_)));
    const std::vector<Expr> index = sum.body[0].index;
    sum = in_block(std::move(sum));
    sum.body[0].index = index;  // counted in the block
    values.body = {std::move(sum)};
    body.push_back(std::move(values));
    return make_scope(block_, ceildiv(p_.extent, Expr(size_)), std::move(body), (*p_.body)[p_.max].role);
  }
  Stmt results() {
    Stmt out = columns();
    const std::string part = names_.fresh(block_ + "_s"), column = names_.fresh(out.iter + "_e");
    const std::string& from = parts_ > 1 ? o_parts_ : o_run_;
    Stmt sum = make_assign(product().target, product().index, AssignOp::add, of(from, in_part(iter(part))));
    out.body[p_.weighted] = parts_ > 1 ? make_scope(part, Expr(parts_), {std::move(sum)}) : std::move(sum);
    substitute_body(out.body, {{out.iter, iter(column)}});
    out.iter = column;
    return out;
  }

  Kernel& k_;
  const Softmax& p_;
  Names& names_;
  const std::string block_;
  const int64_t size_, parts_;
  std::string m_old_, m_scale_, a_run_, o_run_, o_parts_;
};

}  // namespace

//   m = m0; for j: {S; m fmax= s}; a = a0; for j1: {s = exp2((s - m) * c); a += s};
//   for n: {o = o0; for j2: o += s * v; y = f(o, a)}
//   ->  m = m0; a_run = 0; for n: o_run[n] = 0
//       for b < ceildiv(N, B): { m_old = m; for j < B: {S; m fmax= s}; a_run *= exp2((m_old - m) * c);
//         w = exp2((m_old - m) * c); for n: o_run[n] *= w; for j1 < B: {s = exp2((s - m) * c); a_run += s};
//         for n: for j2 < B: o_run[n] += s * v }
//       a = a0; a += a_run; for n: {o = o0; o += o_run[n]; y = f(o, a)}
// With parts=Q there are Q sums of values, of which key j of a block is added to number j // (B // Q).
Status apply_online_softmax(TransformResult& result, const Move& move, const TransformParams& params) {
  Kernel& k = result.kernel;
  const Legality legality("online_softmax", params);
  LATHE_ASSIGN(const Softmax p, find_softmax(k, move.args[0], move.args[1], move.args[2]));
  LATHE_ASSIGN(const int64_t size, int_arg(move.args[3], "a number of iterations", 1, int64_t{1} << 30));
  const auto option = move.options.find("parts");
  const std::string text = option == move.options.end() ? "1" : option->second;
  LATHE_ASSIGN(const int64_t parts, int_arg(text, "parts", 1, kMostParts));
  if (size % parts != 0) return invalid("expected a block of whole parts, got {} in {}", size, parts);
  LATHE_RETURN_IF_ERROR(legality.require(0, used_whole(k, p)));
  LATHE_RETURN_IF_ERROR(legality.require(1, parts_stand_alone(p)));
  Names names(k);
  LATHE_ASSIGN(const std::vector<std::string> created, created_names(names, move, {move.args[0] + "b"}));
  const Ranges ranges = ranges_at(k, p.outer);
  std::vector<Stmt> whole = OnlineSoftmax(k, p, names, created[0], size, parts).run();
  *p.body = std::move(whole);
  simplify_body(*p.body, ranges);
  result.renamed.push_back({move.args[0], {created[0], move.args[0]}});
  k.numeric |= kReassociate;
  return {};
}

std::vector<Move> propose_online_softmax(const Kernel& kernel) {
  std::vector<Move> out;
  for (const Move& split : propose_split_softmax(kernel)) {
    for (const char* parts : {"1", "2"}) out.push_back({"online_softmax", split.args, {{"parts", parts}}, {}});
  }
  return out;
}

}  // namespace lathe::search
