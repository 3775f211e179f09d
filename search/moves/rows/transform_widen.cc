// widen_scope: the same iterations in all iterations of an outer scope, from the first that any of them needs to the
// last.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "ir/analysis/dependence.h"
#include "ir/core/names.h"
#include "ir/core/text_form.h"
#include "search/moves/footprint.h"
#include "search/moves/legality.h"
#include "search/moves/transform_rows.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

namespace {

// Cells of which each iteration of a scope has its own: dimension `dim` is begin + iterator, the others are free of it.
struct CellRow {
  std::vector<Expr> index;
  size_t dim = 0;
  Expr begin;
};
std::optional<CellRow> cell_row(const std::vector<Expr>& index, const std::string& iterator) {
  std::optional<CellRow> out;
  for (size_t d = 0; d < index.size(); ++d) {
    if (!uses(index[d], iterator)) continue;
    const auto linear = linear_in(index[d], {iterator});
    if (out || !linear || linear->terms.size() != 1 || linear->terms[0].second != 1) return std::nullopt;
    out = CellRow{index, d, linear->base};
  }
  return out;
}

// In a dimension, where both stand.
bool same_cell(const Expr& a, const Expr& b, const Ranges& ranges) {
  return equal(a, b) || is_const_int(simplify(a - b, ranges), 0);
}

// The scope whose iterations run as often as the last one of an outer scope needs: of temporaries that it writes, or of
// one that it reads, whose further cells are given values that change nothing, along with the scopes that read it next.
class Widening {
 public:
  Widening(Kernel& kernel, const ScopeSite& site, size_t over, int64_t multiple, int64_t ends)
      : kernel_(kernel), site_(site), over_(over), multiple_(multiple), ends_(ends), extent_(site.scope().extent) {}

  Status find_rows();
  bool reads() const { return reads_; }
  std::string seen_elsewhere() const;
  std::string changes_something();
  std::string not_to_be_read();
  Expr only_value(const Access& read, const std::vector<Expr>& at, const Ranges& ranges) const;
  void write(const std::vector<std::string>& created);
  std::string reads_unassigned() const;

 private:
  const std::string& iterator() const { return site_.scope().iter; }
  const std::string& over() const { return site_.outer[over_]->iter; }
  ScopePath life() const { return {site_.outer.begin(), site_.outer.begin() + static_cast<std::ptrdiff_t>(over_) + 1}; }
  Expr at_first(const Expr& e) const { return substitute(e, {{over(), Expr(0)}}); }
  Expr at_last(const Expr& e) const { return substitute(e, {{over(), site_.outer[over_]->extent - Expr(1)}}); }
  bool is_row(const std::string& buffer) const {
    return std::any_of(rows_.begin(), rows_.end(), [&](const auto& r) { return r.first == buffer; });
  }
  bool same_cells(const CellRow& row, const Access& a) const;
  bool within(const CellRow& row, const Access& a) const;
  bool keeps_all(const Stmt& s, double& value) const;

  Kernel& kernel_;
  const ScopeSite& site_;
  const size_t over_;       // of site_.outer
  const int64_t multiple_;  // of which further iterations begin, and end where they read
  const int64_t ends_;      // and of which they end where they write
  const Expr extent_;
  static constexpr int64_t kManySteps = 1024;
  bool reads_ = false;
  std::vector<std::pair<std::string, CellRow>> rows_;
  std::vector<ScopePath> scopes_;  // what becomes wider, each with what is around
  double value_ = 0;               // of further cells that are read
  int64_t rise_ = 0;               // of begin and end, from one iteration of the outer scope to the next
  Expr begin_, wide_begin_, wide_extent_;
  // What further iterations read if several nests assign it, else what the one assignment reads.
  std::vector<std::string> to_have_values_;
};

// An expression of one load, rounded or not: 0 and -inf stay what they are.
const Expr* only_load(const Expr& e, const std::string& buffer) {
  if (e->op == Op::k_cast && is_float(e->type) && is_float(e->args[0]->type)) return only_load(e->args[0], buffer);
  return e->op == Op::k_load && e->name == buffer ? &e : nullptr;
}

Status Widening::find_rows() {
  const Stmt& scope = site_.scope();
  const auto add = [&](const std::string& name, const std::vector<Expr>& index) {
    const Buffer& b = *kernel_.find_buffer(name);
    const std::optional<CellRow> row = is_param(b.place) ? std::nullopt : cell_row(index, iterator());
    if (!row || (begin_ && !equal(row->begin, begin_))) return false;
    begin_ = row->begin;
    rows_.emplace_back(name, *row);
    return true;
  };
  const Stmt& first = scope.body[0];
  const bool maximum = first.op == AssignOp::max || first.op == AssignOp::fmax;
  reads_ = first.kind == Stmt::Kind::assign && (first.op == AssignOp::add || maximum) &&
           std::none_of(first.index.begin(), first.index.end(), [&](const Expr& e) { return uses(e, iterator()); });
  if (reads_ && ends_ > 1)
    return invalid("expected `{}` to write temporaries: what it sums ends at `multiple`", iterator());
  if (reads_) {
    value_ = maximum ? -std::numeric_limits<double>::infinity() : 0;
    for_each_node(first.value, [&](const ExprNode& n) {
      if (n.op == Op::k_load && rows_.empty() && is_float(n.type)) (void)add(n.name, n.args);
    });
    if (rows_.empty()) return invalid("expected `{}` to read a temporary, each iteration its own cell", iterator());
  } else {
    for (const Access& a : collect_accesses(scope.body, site_.path())) {
      if (a.write && !is_row(a.buffer) && !add(a.buffer, a.index))
        return invalid("expected `{}` to write temporaries, each iteration its own cells", iterator());
    }
    if (rows_.empty()) return invalid("expected `{}` to write temporaries", iterator());
  }
  scopes_.push_back(site_.path());
  const Ranges inside = ranges_at(kernel_, site_.outer);
  const Expr end = choices_outside(simplify(begin_ + extent_, inside), inside);
  const std::optional<int64_t> first_rise = rise_of(begin_, over()), end_rise = rise_of(end, over());
  const int64_t step = reads_ ? multiple_ : ends_;  // of which they end
  const bool varies = uses(extent_, over()) || uses(begin_, over()), ends = step > 1;
  if (!(varies || ends) || !first_rise || !end_rise)
    return invalid("expected iterations that begin and end later in later ones of `{}`: {}", over(),
                   print_extent(scope));
  for (size_t i = over_ + 1; i < site_.outer.size(); ++i) {
    const std::string& inner = site_.outer[i]->iter;
    if (uses(extent_, inner) || uses(begin_, inner))
      return invalid("expected an extent that only `{}` and what is around it decide", over());
    const std::vector<Expr>& cells = rows_[0].second.index;  // further ones are filled before `inner`
    if (reads_ && std::any_of(cells.begin(), cells.end(), [&](const Expr& e) { return uses(e, inner); }))
      return invalid("expected cells that only `{}` and what is around it choose, not `{}`", over(), inner);
  }
  const ScopePath around(site_.outer.begin(), site_.outer.begin() + static_cast<std::ptrdiff_t>(over_));
  const Ranges ranges = ranges_at(kernel_, around);
  rise_ = std::max(*first_rise, *end_rise);
  wide_begin_ = simplify(floordiv(at_first(begin_), Expr(multiple_)) * Expr(multiple_), ranges);
  if (multiple_ > 1) wide_begin_ = choices_outside(wide_begin_, ranges);
  Expr wide_end = choices_outside(simplify(at_last(end), ranges), ranges);
  if (ends) wide_end = choices_outside(simplify(ceildiv(wide_end, Expr(step)) * Expr(step), ranges), ranges);
  wide_extent_ = simplify(wide_end - wide_begin_, ranges);
  if (!varies && equal(wide_extent_, extent_))
    return invalid("expected iterations that end at no multiple of {} yet", step);
  // Further cells are those of a last step.
  for (const auto& [name, row] : rows_) {
    Expr& cells = kernel_.find_buffer(name)->dims[row.dim];
    if (ends && !surely_le(wide_end, cells, ranges))
      cells = simplify(ceildiv(cells, Expr(step)) * Expr(step), Ranges(kernel_));
  }
  return {};
}

bool Widening::same_cells(const CellRow& row, const Access& a) const {
  const Ranges ranges = ranges_at(kernel_, a.scopes);
  return std::equal(row.index.begin(), row.index.end(), a.index.begin(), a.index.end(),
                    [&](const Expr& x, const Expr& y) { return same_cell(x, y, ranges); });
}

// Whether an access touches the row in iterations that the scope had before.
bool Widening::within(const CellRow& row, const Access& a) const {
  const Ranges ranges = ranges_at(kernel_, a.scopes);
  for (size_t d = 0; d < row.index.size(); ++d) {
    if (d != row.dim && !same_cell(a.index[d], row.index[d], ranges)) return false;
  }
  if (!surely_le(row.begin, a.index[row.dim], ranges)) return false;
  const Expr end = simplify(row.begin + extent_, ranges);
  Expr last = simplify(a.index[row.dim] + Expr(1), ranges);
  for (size_t i = a.scopes.size(); i > over_; --i) {
    if (surely_le(last, end, ranges)) return true;
    const Stmt& scope = *a.scopes[i - 1];
    if (!rise_of(last, scope.iter)) return false;
    last = substitute(last, {{scope.iter, scope.extent - Expr(1)}});
    last = choices_outside(simplify(last, ranges), ranges);
  }
  return surely_le(last, end, ranges);
}

std::string Widening::seen_elsewhere() const {
  for (const auto& [name, row] : rows_) {
    std::string why;
    if (!lives_inside(kernel_, name, life(), &why)) return why;
    bool after = false;
    for (const Access& a : collect_accesses(kernel_.body, {}, &name)) {
      const bool inside = std::count(a.scopes.begin(), a.scopes.end(), &site_.scope()) != 0;
      if (inside && !same_cells(row, a)) return fmt::format("`{}` is read at other cells", name);
      after = after || inside;
      if (after && !inside && !within(row, a))
        return fmt::format("`{}` at {} may be used beyond `{}`", name, print(a.index[row.dim]), iterator());
    }
  }
  return {};
}

// Whether a statement changes nothing but the cell itself where that holds `value`, which becomes what it holds then.
bool Widening::keeps_all(const Stmt& s, double& value) const {
  const std::string& cell = rows_[0].first;
  if (s.kind != Stmt::Kind::assign) return false;
  const bool minus_infinity = std::isinf(value);
  if (s.target != cell && (s.op == AssignOp::max || s.op == AssignOp::fmax))
    return minus_infinity && only_load(s.value, cell) != nullptr;
  if (s.target != cell && s.op == AssignOp::add) {
    if (minus_infinity) return false;
    const bool product = s.value->op == Op::k_mul &&
                         (only_load(s.value->args[0], cell) != nullptr || only_load(s.value->args[1], cell) != nullptr);
    return product || only_load(s.value, cell) != nullptr;
  }
  const bool scaled = s.target == cell && s.op == AssignOp::set && s.value->op == Op::k_mul && !minus_infinity;
  if (scaled) return only_load(s.value->args[0], cell) != nullptr || only_load(s.value->args[1], cell) != nullptr;
  // exp((cell - maximum) * positive): 0 where the cell is -inf.
  if (s.target != cell || s.op != AssignOp::set || !minus_infinity) return false;
  if (s.value->op != Op::k_exp && s.value->op != Op::k_exp2 && s.value->op != Op::k_exp2_bf16) return false;
  Expr of = s.value->args[0];
  if (of->op == Op::k_mul && of->args[1]->op == Op::k_const_float && of->args[1]->fval > 0) of = of->args[0];
  if (of->op != Op::k_sub || only_load(of->args[0], cell) == nullptr || !is_above_minus_infinity(kernel_, of->args[1]))
    return false;
  value = 0;
  return true;
}

// Also finds the scopes that read the cells next.
std::string Widening::changes_something() {
  const auto& [name, row] = rows_[0];
  std::string why;
  if (!lives_inside(kernel_, name, life(), &why)) return why;
  double value = value_;
  bool after = false;
  std::vector<ScopePath> scopes;
  for (const Access& a : collect_accesses(kernel_.body, {}, &name)) {
    after = after || a.scopes.back() == &site_.scope();
    // They are filled before the scope that reads them, or what is around it in an iteration of the outer scope.
    const bool filled =
        site_.outer.size() > over_ + 1 && a.scopes.size() > over_ + 1 && a.scopes[over_ + 1] == site_.outer[over_ + 1];
    if (!after && a.write && filled && !within(row, a))
      return fmt::format("`{}` at {} may be written once further cells are filled", name, print(a.index[row.dim]));
    if (!after) continue;
    if (!scopes.empty() && scopes.back() == a.scopes) continue;
    const Stmt& scope = *a.scopes.back();
    const std::optional<CellRow> own = cell_row(a.index, scope.iter);
    const bool plain = scope.mark == Mark::none && a.scopes.size() > over_ + 1;
    if (!plain || !own || own->dim != row.dim || !equal(own->begin, row.begin) || !equal(scope.extent, extent_))
      return fmt::format("`{}` is used by another scope than such ones", name);
    const Ranges ranges = ranges_at(kernel_, a.scopes);
    for (const Access& other : collect_accesses(scope.body, a.scopes, &name)) {
      for (size_t d = 0; d < row.index.size(); ++d) {
        if (!same_cell(other.index[d], d == row.dim ? a.index[d] : row.index[d], ranges))
          return fmt::format("`{}` is used at other cells", name);
      }
    }
    for (const Stmt& s : scope.body) {
      if (!keeps_all(s, value)) return fmt::format("`{}` holds something else than sums and powers of it", scope.iter);
    }
    scopes.push_back(a.scopes);
  }
  // They are filled once in an iteration of the outer scope: a power leaves 0 in them, which the next one may not meet.
  for (size_t i = over_ + 1; value != value_ && i < site_.outer.size(); ++i) {
    const Stmt& between = *site_.outer[i];
    const bool own =
        std::any_of(row.index.begin(), row.index.end(), [&](const Expr& e) { return e && uses(e, between.iter); });
    if (!own) return fmt::format("iterations of `{}` use the same cells of `{}`, and change them", between.iter, name);
  }
  scopes_ = std::move(scopes);
  return {};
}

// What one statement, before the outer scope, has given these cells of a temporary. Null: there may be other values.
Expr Widening::only_value(const Access& read, const std::vector<Expr>& at, const Ranges& ranges) const {
  const std::vector<Access> all = collect_accesses(kernel_.body, {}, &read.buffer);
  const Access& write = all.front();
  const bool once = write.write && write.op == AssignOp::set &&
                    std::none_of(all.begin() + 1, all.end(), [](const Access& a) { return a.write; });
  const ScopePath life_path = life();
  if (!once || std::count(write.scopes.begin(), write.scopes.end(), life_path.back()) != 0) return {};
  const auto split = std::mismatch(write.scopes.begin(), write.scopes.end(), life_path.begin(), life_path.end());
  const auto common = static_cast<size_t>(split.first - write.scopes.begin());
  size_t own = 0;  // scopes of the write alone, each of which chooses one dimension
  for (size_t d = 0; d < at.size(); ++d) {
    const Expr& index = write.index[d];
    if (is_const_int(index, 0) && is_const_int(kernel_.find_buffer(read.buffer)->dims[d], 1)) continue;
    const auto scope = std::find_if(write.scopes.begin(), write.scopes.end(), [&](const Stmt* s) {
      return index->op == Op::k_iter && s->iter == index->name && s->mark == Mark::none;
    });
    if (scope == write.scopes.end()) return {};
    if (scope < split.first) {
      if (!equal(at[d], index)) return {};
      continue;
    }
    ++own;
    for (size_t i = common; i < write.scopes.size(); ++i) {
      if (uses((*scope)->extent, write.scopes[i]->iter)) return {};
    }
    if (!surely_le(Expr(0), at[d], ranges) || !surely_le(simplify(at[d] + Expr(1), ranges), (*scope)->extent, ranges))
      return {};
  }
  return own == write.scopes.size() - common ? write.stmt->value : Expr();
}

std::string Widening::not_to_be_read() {
  for (const ScopePath& path : scopes_) {
    const Stmt& scope = *path.back();
    const Expr shifted = wide_begin_ - begin_ + iter(scope.iter);
    const ScopePath around(path.begin(), path.end() - 1);
    for (const Access& a : collect_accesses(scope.body, path)) {
      const Buffer& b = *kernel_.find_buffer(a.buffer);
      const bool fixed =
          std::none_of(a.index.begin(), a.index.end(), [&](const Expr& e) { return uses(e, scope.iter); });
      if (reads_ && fixed && (a.write || !is_param(b.place))) continue;  // sums, and what the powers are over
      Ranges ranges = ranges_at(kernel_, around);
      ranges.enter(scope.iter, wide_extent_);
      for (size_t i = path.size(); i < a.scopes.size(); ++i) ranges.enter(*a.scopes[i]);
      std::vector<Expr> cell;
      for (const Expr& e : a.index) cell.push_back(simplify(substitute(e, {{scope.iter, shifted}}), ranges));
      const bool given = is_row(a.buffer) || is_input(b.place);
      const Expr made_of = given ? Expr() : only_value(a, cell, ranges);
      if (!given && !made_of) to_have_values_.push_back(a.buffer);
      for_each_node(made_of, [&](const ExprNode& n) {
        if (n.op == Op::k_load) to_have_values_.push_back(n.name);
      });
      for (size_t d = 0; d < a.index.size(); ++d) {
        const Expr& at = cell[d];
        if (surely_le(Expr(0), at, ranges) && surely_le(simplify(at + Expr(1), ranges), b.dims[d], ranges)) continue;
        return fmt::format("`{}` at {}", a.buffer, print(at));
      }
    }
  }
  return {};
}

// Asked when they are wider: whether several nests together have assigned what they read.
std::string Widening::reads_unassigned() const {
  for (const std::string& name : to_have_values_) {
    if (!has_values(kernel_, name, nullptr)) return fmt::format("`{}` is no input, nor assigned before", name);
  }
  return {};
}

// The values of further cells are written before the statement of the outer scope that reads them first.
void Widening::write(const std::vector<std::string>& created) {
  std::vector<Stmt> fills;
  const Ranges ranges = ranges_at(kernel_, life());
  const auto fill = [&](const std::string& name, const Expr& from, const Expr& to) {
    const Expr first = simplify(from, ranges);
    Expr count = simplify(to - first, ranges);
    if (is_const_int(count) && count->ival <= 0) return;
    bool chosen = false;
    for_each_node(first, [&](const ExprNode& n) { chosen = chosen || n.op == Op::k_min || n.op == Op::k_max; });
    if (!chosen) count = choices_outside(count, ranges);
    const int64_t steps = interval(site_.outer[over_]->extent, ranges).hi - 1;
    const int64_t most = steps * rise_ + multiple_ - 1;
    if (steps < kManySteps && interval(count, ranges).hi > most) count = ir::min(Expr(most), count);
    const auto& [buffer, row] = rows_[0];
    std::vector<Expr> index = row.index;
    index[row.dim] = first + iter(name);
    const DType type = kernel_.find_buffer(buffer)->type;
    fills.push_back(make_scope(name, count, {make_assign(buffer, index, AssignOp::set, const_float(value_, type))},
                               site_.scope().role));
  };
  if (reads_) {
    const Expr end = simplify(begin_ + extent_, ranges);
    fill(created[0], wide_begin_, begin_);
    fill(created[1], simplify(ir::max(begin_, end), ranges), wide_begin_ + wide_extent_);
    kernel_.numeric |= kReassociate;
  }
  const Stmt* first = site_.outer.size() > over_ + 1 ? site_.outer[over_ + 1] : &site_.scope();
  Stmt* outer = nullptr;
  for_each_stmt(kernel_.body, [&](Stmt& s) {
    outer = &s == site_.outer[over_] ? &s : outer;
    for (const ScopePath& path : scopes_) {
      if (&s != path.back()) continue;
      s.extent = wide_extent_;
      substitute_body(s.body, {{s.iter, wide_begin_ - begin_ + iter(s.iter)}});
      simplify_body(s.body, ranges_at(kernel_, path));
    }
  });
  if (fills.empty()) return;
  simplify_body(fills, ranges);
  const auto at = std::find_if(outer->body.begin(), outer->body.end(), [&](const Stmt& s) { return &s == first; });
  outer->body.insert(at, std::make_move_iterator(fills.begin()), std::make_move_iterator(fills.end()));
}

}  // namespace

//   for i < N: for j < E(i): t[i, j] = e  ->  for i < N: for j < E(N - 1): t[i, j] = e
//   for i < N: for j < E(i): o += t[i, j] * v  ->
//     for i < N: for z < E(N - 1) - E(i): t[i, E(i) + z] = 0;  for j < E(N - 1): o += t[i, j] * v
Status apply_widen_scope(TransformResult& result, const Move& move, const TransformParams& params) {
  Kernel& k = result.kernel;
  const Legality legality("widen_scope", params);
  LATHE_ASSIGN(const ScopeSite site, find_plain_site(k, move.args[0]));
  const auto over =
      std::find_if(site.outer.begin(), site.outer.end(), [&](const Stmt* s) { return s->iter == move.args[1]; });
  if (over == site.outer.end() || (*over)->mark != Mark::none)
    return invalid("expected the name of a scope without a mark around `{}`, got `{}`", move.args[0], move.args[1]);
  if (site.scope().body.empty()) return invalid("expected `{}` to hold statements", move.args[0]);
  Names names(k);
  LATHE_ASSIGN(const std::vector<std::string> created,
               created_names(names, move, {move.args[0] + "_b", move.args[0] + "_e"}));
  int64_t sizes[] = {1, 1};
  const char* const options[] = {"multiple", "ends"};
  for (size_t i = 0; i < 2; ++i) {
    if (const auto given = move.options.find(options[i]); given != move.options.end()) {
      LATHE_ASSIGN(sizes[i], int_arg(given->second, options[i], 1, int64_t{1} << 20));
    }
  }
  Widening widening(k, site, static_cast<size_t>(over - site.outer.begin()), sizes[0], sizes[1]);
  LATHE_RETURN_IF_ERROR(widening.find_rows());
  std::string why = widening.reads() ? widening.changes_something() : widening.seen_elsewhere();
  LATHE_RETURN_IF_ERROR(legality.require(widening.reads() ? 1 : 0, why.empty(), why));
  why = widening.not_to_be_read();
  LATHE_RETURN_IF_ERROR(legality.require(2, why.empty(), why));
  widening.write(created);
  why = widening.reads_unassigned();
  return legality.require(2, why.empty(), why);
}

std::vector<Move> propose_widen_scope(const Kernel& kernel) {
  std::vector<Move> out;
  std::vector<std::string> around;
  const auto visit = [&](auto&& self, const std::vector<Stmt>& body) -> void {
    for (const Stmt& s : body) {
      if (s.kind != Stmt::Kind::scope) continue;
      for (const std::string& name : around) {
        if (uses(s.extent, name)) out.push_back({"widen_scope", {s.iter, name}, {}, {}});
        if (is_const_int(s.extent)) continue;
        for (const char* size : {"multiple", "ends"}) out.push_back({"widen_scope", {s.iter, name}, {{size, "2"}}, {}});
      }
      around.push_back(s.iter);
      self(self, s.body);
      around.pop_back();
    }
  };
  visit(visit, kernel.body);
  return out;
}

}  // namespace lathe::search
