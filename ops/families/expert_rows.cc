// See expert_rows.h.
#include "ops/families/expert_rows.h"

#include <algorithm>
#include <iterator>

namespace lathe::ops {

using ir::Expr;

namespace {

// A unit dimension before the last one.
void add_rows(View& v) {
  if (v.dims.size() < 2) return;
  v.dims.insert(v.dims.end() - 1, Expr(1));
  if (!v.strides.empty()) v.strides.insert(v.strides.end() - 1, v.strides.back());
}

}  // namespace

ir::Result<std::vector<DimDesc>> chosen_dims(const OpRow& row, bool grouped, const TensorDesc& a, const TensorDesc& b,
                                             const TensorDesc& ids) {
  LATHE_RETURN_IF_ERROR(need_rank(ids, 1, !grouped, row.name));
  LATHE_RETURN_IF_ERROR(need_rank(a, ids.dims.size() + 1, false, row.name));
  LATHE_RETURN_IF_ERROR(need_rank(b, 1, true, row.name));
  if (b.dims[0].max < 1) return mismatch(b, 0, "at least one weight to choose");
  if (grouped) {
    if (!b.dims[0].fixed()) return mismatch(b, 0, "a fixed number of weights: finish a graph for each");
    if (!same_dim(ids.dims[0], fixed_dim(b.dims[0].max + 1)))
      return mismatch(ids, 0, fmt::format("{} (one more than the weights of {})", b.dims[0].max + 1, b.name));
    return std::vector<DimDesc>{a.dims[0]};
  }
  for (size_t d = 0; d < ids.dims.size(); ++d) {
    if (!same_dim(a.dims[d], ids.dims[d]) && !same_dim(a.dims[d], fixed_dim(1)))
      return mismatch(a, d, fmt::format("{} (of {}) or 1", dim_text(ids.dims[d]), ids.name));
  }
  return ids.dims;
}

double chosen_share(const NodeSizes& sizes, bool grouped) {
  const double rows = grouped ? static_cast<double>(sizes.inputs[0][0]) : elements(sizes.inputs.back());
  return rows_read(rows, sizes.inputs[1][0]);
}

ExpertRows::ExpertRows(KernelWriter& w, bool grouped) : w_(w), grouped_(grouped) {
  if (grouped_) return;
  const std::vector<int>& inputs = w_.anchor().inputs;
  const auto of_weights = [&](int t) { return std::find(inputs.begin() + 1, inputs.end(), t) != inputs.end(); };
  const auto& outside = w_.externals();
  for (const int t : outside) {
    if (!of_weights(t)) add_rows(w_.view(t));
  }
  if (std::find(outside.begin(), outside.end(), inputs[0]) == outside.end()) add_rows(w_.view(inputs[0]));
  add_rows(w_.view(w_.group().output));
}

Expr ExpertRows::integer(const std::string& name, Index index) const {
  return as_dtype(ir::DType::i64, ir::load(name, std::move(index), w_.dtype_of(name)));
}

ir::Status ExpertRows::declare_integers(const Expr& count) {
  const std::vector<Expr> result = w_.view(w_.group().output).dims;
  if (!grouped_) {
    LATHE_RETURN_IF_ERROR(w_.add_integers(integers(), "ids", count - Expr(1)));
    extents_ = result;
    names_ = iter_names("t", extents_.size() - 2);
    const Index chosen = iters(names_);
    weight_ = integer("ids", chosen);
    const std::vector<Expr>& rows = w_.view(w_.anchor().inputs[0]).dims;
    row_ = align(chosen, {rows.begin(), rows.end() - 2});
    row_.push_back(ir::iter("m"));
    at_ = chosen;
    at_.push_back(ir::iter("m"));
    at_.push_back(ir::iter("n"));
    return {};
  }
  LATHE_RETURN_IF_ERROR(w_.add_integers(integers(), "offsets", result[0], true));
  names_ = {"t"};
  weight_ = ir::iter("t");
  const Expr first = integer("offsets", {weight_});
  extents_ = {count, integer("offsets", {weight_ + Expr(1)}) - first, result[1]};
  row_ = {first + ir::iter("m")};
  at_ = {row_[0], ir::iter("n")};
  return {};
}

// Rows of no group are 0.
ir::Stmt ExpertRows::clear() const {
  const ir::DType type = w_.graph().tensors[static_cast<size_t>(w_.group().output)].dtype;
  const std::vector<std::string> names = {"zm", "zn"}, roles(names.size(), "clear");
  return nest(names, w_.view(w_.group().output).dims, roles, {store("y", iters(names), as_dtype(type, f32(0)))})[0];
}

ir::Result<LoweredKernel> ExpertRows::finish(const Expr& product, const Expr& depth) {
  w_.add_temp("c", w_.view(w_.group().output).dims);
  w_.bind(w_.anchor().output, load("c", at_));
  std::vector<ir::Stmt> body = {store("c", at_, f32(0)),
                                ir::make_scope("k", depth, {store("c", at_, product, ir::AssignOp::add)}, "k"),
                                w_.store_result("y", at_)};
  std::vector<std::string> roles(names_.size(), "batch");
  for (const char* name : {"m", "n"}) {
    names_.emplace_back(name);
    roles.emplace_back(name);
  }
  std::vector<ir::Stmt> all = w_.stage(), products = nest(names_, extents_, roles, std::move(body));
  if (grouped_) all.push_back(clear());
  all.insert(all.end(), std::make_move_iterator(products.begin()), std::make_move_iterator(products.end()));
  return w_.finish("y", std::move(all));
}

}  // namespace lathe::ops
