// fill_scope: a sum of products over as many terms as there may be at most; the further ones are 0 * 0.
//   for i < E: t[i] = x(i); for j < E: u[j] = y(j); for k < E: c += t[k] * u[k]
//   ->  for i < T: t[i] = select(i < E, x(i), 0); for j < T: u[j] = select(j < E, y(j), 0); for k < T: c += t[k] * u[k]
#include <algorithm>

#include "ir/analysis/dependence.h"
#include "ir/core/names.h"
#include "search/moves/footprint.h"
#include "search/moves/legality.h"
#include "search/moves/transform_rows.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

namespace {

constexpr int64_t kMostIterations = 1024;

// The only statement of a nest; null: there are more.
Stmt* only_statement(Stmt& scope) {
  Stmt* s = &scope;
  while (s->kind == Stmt::Kind::scope && s->body.size() == 1) s = &s->body[0];
  return s->kind == Stmt::Kind::assign ? s : nullptr;
}

// The dimension whose index is the iterator, which is in no other.
std::optional<size_t> dimension_of(const std::vector<Expr>& index, const std::string& iterator) {
  std::optional<size_t> out;
  for (size_t d = 0; d < index.size(); ++d) {
    if (!uses(index[d], iterator)) continue;
    if (out || index[d]->op != Op::k_iter) return std::nullopt;
    out = d;
  }
  return out;
}

// min(C, x - y) of min(C, min(T, x) - y), where T - y is C at least: of a part of a sum that is whole steps, only what
// lies beyond the sum's own end is filled.
Expr without_idle_minimum(const Expr& extent, const Ranges& ranges) {
  const auto parts = [](const Expr& e) -> std::pair<const Expr*, const Expr*> {
    if (e->op != Op::k_min) return {};
    for (const size_t i : {0, 1}) {
      if (is_const_int(e->args[i])) return {&e->args[i], &e->args[1 - i]};
    }
    return {};
  };
  const auto [most, rest] = parts(extent);
  if (most == nullptr) return extent;
  Expr inner;
  for_each_node(*rest, [&](const ExprNode& n) {
    if (n.op == Op::k_min && !inner) inner = make(Op::k_min, n.args);
  });
  if (!inner) return extent;
  const auto [whole, other] = parts(inner);
  if (whole == nullptr) return extent;
  const auto with = [&](const Expr& by) {
    return simplify(rewrite(*rest, [&](const Expr& n) { return equal(n, inner) ? by : Expr(); }), ranges);
  };
  const Expr of_whole = with(*whole), of_other = with(*other);
  const bool linear = is_const_int(simplify(of_whole - *whole - (of_other - *other), ranges), 0);
  return linear && interval(of_whole, ranges).lo >= (*most)->ival ? make(Op::k_min, {*most, of_other}) : extent;
}

class Filling {
 public:
  // most: iterations that there may be.
  Filling(Kernel& kernel, const ScopeSite& site, int64_t most, const Ranges& ranges)
      : kernel_(kernel),
        site_(site),
        extent_(site.scope().extent),
        bound_(without_idle_minimum(extent_, ranges)),
        most_(most) {}

  // Of the nests that give the factors their values, what is to be filled. Empty: all is found.
  Result<std::string> find() {
    Stmt* sum = only_statement(site_.scope());
    const bool sums =
        sum != nullptr && sum->op == AssignOp::add && sum->value->op == Op::k_mul &&
        (is_float(sum->value->type) || sum->value->type == DType::i32) &&
        std::none_of(sum->index.begin(), sum->index.end(), [&](const Expr& e) { return uses(e, term()); });
    bool plain = sums;
    for (const Stmt* s = &site_.scope(); plain && s->kind == Stmt::Kind::scope; s = &s->body[0])
      plain = s == &site_.scope() || !uses(s->extent, term());
    if (!plain) return invalid("expected `{}` to sum products of floats or of i32 and to do nothing else", term());
    for (const Expr& factor : sum->value->args) {
      const bool byte = factor->op == Op::k_cast && factor->type == DType::i32;
      const Expr& e = byte ? factor->args[0] : unwidened(factor);
      const bool temporary = e->op == Op::k_load && !is_param(kernel_.find_buffer(e->name)->place);
      const std::optional<size_t> dim = temporary ? dimension_of(e->args, term()) : std::nullopt;
      if (!dim) return invalid("expected factors of `{}` that are elements of temporaries, its own each", term());
      const std::string why = find_writer(e->name, *dim, site_.index, &site_.scope());
      if (!why.empty()) return why;
    }
    return std::string();
  }

  bool sums_floats() const { return is_float(only_statement(site_.scope())->value->type); }

  void fill() {
    for (const Writer& w : writers_) {
      // What is made of one that is filled is filled itself.
      if (w.first) {
        Stmt& s = *w.statement;
        const Expr zero = is_float(s.value->type) ? const_float(0, s.value->type) : const_int(0, s.value->type);
        s.value = select(make(Op::k_lt, {iter(w.scope->iter), bound_}), s.value, zero);
      }
      w.scope->extent = Expr(most_);
    }
    site_.scope().extent = Expr(most_);
  }

 private:
  struct Writer {
    Stmt *scope, *statement;  // the scope along the terms, and what it holds
    bool first;
  };

  const std::string& term() const { return site_.scope().iter; }

  // Of a temporary whose only reader stands in the sibling `reader`, number `before`: the one assignment before that
  // gives it as many elements.
  std::string find_writer(const std::string& buffer, size_t dim, size_t before, const Stmt* reader) {
    const std::string no = fmt::format("`{}`", buffer);
    Stmt* nest = nullptr;
    for (size_t i = 0; i < site_.siblings->size(); ++i) {
      Stmt& s = (*site_.siblings)[i];
      const bool writes = std::any_of(writers_.begin(), writers_.end(),
                                      [&](const Writer& w) { return w.statement == only_statement(s); });
      for (const Access& a : collect_accesses({s}, {}, &buffer)) {
        if (a.write && (nest != nullptr || i >= before || writes)) return no;
        if (a.write) nest = &s;
        if (!a.write && &s != reader) return no;
      }
    }
    size_t inside = 0;
    for (const Stmt& s : *site_.siblings) inside += collect_accesses({s}, {}, &buffer).size();
    if (nest == nullptr || inside != collect_accesses(kernel_.body, {}, &buffer).size()) return no;
    Stmt* statement = only_statement(*nest);
    if (statement == nullptr || statement->op != AssignOp::set) return no;
    const Expr& at = statement->index[dim];
    if (at->op != Op::k_iter || dimension_of(statement->index, at->name) != dim) return no;
    Stmt* scope = nullptr;
    for (Stmt* s = nest; s->kind == Stmt::Kind::scope; s = &s->body[0]) {
      if (scope != nullptr && uses(s->extent, scope->iter)) return no;
      if (s->iter == at->name) scope = s;
    }
    if (scope == nullptr || scope->mark != Mark::none || !equal(scope->extent, extent_)) return no;
    if (!surely_le(Expr(most_), kernel_.find_buffer(buffer)->dims[dim], Ranges(kernel_))) return no;
    std::string why;
    if (!lives_inside(kernel_, buffer, site_.outer, &why)) return why;
    const Expr value = statement->value;
    const Buffer* from = value->op == Op::k_load ? kernel_.find_buffer(value->name) : nullptr;
    const bool handed_on = from != nullptr && !is_param(from->place);
    writers_.push_back({scope, statement, !handed_on});
    if (!handed_on) return {};
    const std::optional<size_t> along = dimension_of(value->args, at->name);
    const auto number = static_cast<size_t>(nest - site_.siblings->data());
    return along ? find_writer(value->name, *along, number, nest) : fmt::format("`{}`", value->name);
  }

  Kernel& kernel_;
  const ScopeSite& site_;
  const Expr extent_, bound_;
  const int64_t most_;
  std::vector<Writer> writers_;
};

}  // namespace

Status apply_fill_scope(TransformResult& result, const Move& move, const TransformParams& params) {
  Kernel& k = result.kernel;
  const Legality legality("fill_scope", params);
  LATHE_ASSIGN(const ScopeSite site, find_plain_site(k, move.args[0]));
  const Stmt& scope = site.scope();
  const Ranges ranges = ranges_at(k, site.outer);
  const int64_t most = interval(scope.extent, ranges).hi;
  if (is_const_int(scope.extent) || most > kMostIterations)
    return invalid("expected iterations that vary in number, at most {}, got {}", kMostIterations, print_extent(scope));
  Filling filling(k, site, most, ranges);
  LATHE_ASSIGN(const std::string why, filling.find());
  LATHE_RETURN_IF_ERROR(legality.require(0, why.empty(), why));
  filling.fill();
  if (filling.sums_floats()) k.numeric |= kReassociate;
  simplify_body(*site.siblings, ranges);
  return {};
}

std::vector<Move> propose_fill_scope(const Kernel& kernel) {
  std::vector<Move> out;
  for (const std::string& scope : plain_scopes(kernel)) {
    if (!is_const_int(find_scope(kernel, scope)->extent)) out.push_back({"fill_scope", {scope}, {}, {}});
  }
  return out;
}

}  // namespace lathe::search
