// Products with the weights that integers choose: those of the experts that tokens are sent to.
//
// expert_matmul: each row names its weight.
//
//   for t [batch]: for m < 1 [m]: for n [n]:
//     c = 0;  for k [k]: c += a[t, m, k] * b[ids[t], k, n];  y[t, m, n] = f(c)
//
// t runs over the dimensions of ids; a broadcasts to them. Tensors with rows of their own for each t have a unit
// dimension m here.
//
// grouped_matmul: rows that share a weight stand one after another.
//
//   for zm [clear]: for zn [clear]: y[zm, zn] = 0
//   for t [batch]: for m < offsets[t + 1] - offsets[t] [m]: for n [n]:
//     c = 0;  for k [k]: c += a[r, k] * b[t, k, n];  y[r, n] = f(c)            with r = offsets[t] + m
//
// Operands a, b, ids or offsets, then e0, e1, ... of the riders, y. Sums are f32 whatever the operands are; the result
// has the dtype of a.
#include <algorithm>
#include <iterator>

#include "ops/kernel_writer.h"
#include "ops/samples.h"
#include "ops/shape.h"

namespace lathe::ops {

using ir::Expr;

namespace {

enum Operand : uint8_t { kRows, kWeights, kIds };  // of grouped_matmul: offsets

bool grouped(const OpRow& row) { return row.id == OpId::grouped_matmul; }

std::span<const ir::DType> operand_dtypes(const OpRow&, size_t number) {
  static constexpr ir::DType kFloats[] = {ir::DType::f32, ir::DType::bf16, ir::DType::f16};
  static constexpr ir::DType kIntegers[] = {ir::DType::i32, ir::DType::i64};
  if (number == kIds) return kIntegers;
  return kFloats;
}

ir::Result<Shape> infer(const OpRow& row, const Node& node, const Inputs& in) {
  const TensorDesc &a = *in[kRows], &b = *in[kWeights], &ids = *in[kIds];
  LATHE_RETURN_IF_ERROR(need_rank(ids, 1, !grouped(row), row.name));
  LATHE_RETURN_IF_ERROR(need_rank(b, 3, false, row.name));
  LATHE_RETURN_IF_ERROR(need_rank(a, ids.dims.size() + 1, false, row.name));
  const bool turned = attr_bool(node, AttrId::transpose_b);
  const size_t k = turned ? 2 : 1, n = turned ? 1 : 2;
  if (b.dims[0].max < 1) return mismatch(b, 0, "at least one weight to choose");
  if (!same_dim(a.dims.back(), b.dims[k]))
    return mismatch(a, a.dims.size() - 1, fmt::format("{} (K of {})", dim_text(b.dims[k]), b.name));
  if (grouped(row)) {
    if (!b.dims[0].fixed()) return mismatch(b, 0, "a fixed number of weights: finish a graph for each");
    if (!same_dim(ids.dims[0], fixed_dim(b.dims[0].max + 1)))
      return mismatch(ids, 0, fmt::format("{} (one more than the weights of {})", b.dims[0].max + 1, b.name));
    return Shape{a.dtype, {a.dims[0], b.dims[n]}};
  }
  Shape out{a.dtype, ids.dims};
  for (size_t d = 0; d < ids.dims.size(); ++d) {
    if (!same_dim(a.dims[d], ids.dims[d]) && !same_dim(a.dims[d], fixed_dim(1)))
      return mismatch(a, d, fmt::format("{} (of {}) or 1", dim_text(ids.dims[d]), ids.name));
  }
  out.dims.push_back(b.dims[n]);
  return out;
}

// Two per multiply-add.
double flops(const Node&, const NodeSizes& sizes) {
  return 2.0 * elements(sizes.output) * static_cast<double>(sizes.inputs[kRows].back());
}

// As many weights as there are ids, or rows, at most.
double share_read(const Node& node, const NodeSizes& sizes, size_t operand) {
  if (operand != kWeights) return 1;
  const double rows =
      grouped(op_row(node)) ? static_cast<double>(sizes.inputs[kRows][0]) : elements(sizes.inputs[kIds]);
  return rows_read(rows, sizes.inputs[kWeights][0]);
}

// A unit dimension before the last one.
void add_rows(View& v) {
  if (v.dims.size() < 2) return;
  v.dims.insert(v.dims.end() - 1, Expr(1));
  if (!v.strides.empty()) v.strides.insert(v.strides.end() - 1, v.strides.back());
}

class ExpertsWriter {
 public:
  explicit ExpertsWriter(KernelWriter& w) : w_(w), node_(w.anchor()), grouped_(grouped(op_row(node_))) {}
  ir::Result<LoweredKernel> run();

 private:
  ir::Status declare_chosen();
  ir::Status declare_groups();
  Expr integer(const std::string& name, Index index) const {
    return as_dtype(ir::DType::i64, ir::load(name, std::move(index), w_.dtype_of(name)));
  }
  Expr wide(const std::string& name, Index index) const {
    return as_dtype(ir::DType::f32, ir::load(name, std::move(index), w_.dtype_of(name)));
  }
  ir::Stmt clear() const;

  KernelWriter& w_;
  const Node& node_;
  const bool grouped_;
  std::vector<std::string> names_;  // of all scopes: those of batches, m, n
  std::vector<Expr> extents_;
  Index row_, at_;  // of a without k; of the result
  Expr weight_;     // its number
};

ir::Status ExpertsWriter::declare_chosen() {
  const int ta = node_.inputs[kRows], tb = node_.inputs[kWeights], ids = node_.inputs[kIds];
  const auto& outside = w_.externals();
  for (const int t : outside) {
    if (t != tb && t != ids) add_rows(w_.view(t));
  }
  if (std::find(outside.begin(), outside.end(), ta) == outside.end()) add_rows(w_.view(ta));
  add_rows(w_.view(w_.group().output));
  w_.add_operand(ta, "a");
  w_.add_param(tb, "b");
  LATHE_RETURN_IF_ERROR(w_.add_integers(ids, "ids", w_.view(tb).dims[0] - Expr(1)));
  extents_ = w_.view(w_.group().output).dims;
  names_ = iter_names("t", extents_.size() - 2);
  const Index chosen = iters(names_);
  weight_ = integer("ids", chosen);
  row_ = align(chosen, {w_.view(ta).dims.begin(), w_.view(ta).dims.end() - 2});
  row_.push_back(ir::iter("m"));
  at_ = chosen;
  at_.push_back(ir::iter("m"));
  at_.push_back(ir::iter("n"));
  return {};
}

ir::Status ExpertsWriter::declare_groups() {
  const int ta = node_.inputs[kRows], tb = node_.inputs[kWeights];
  w_.add_operand(ta, "a");
  w_.add_param(tb, "b");
  const std::vector<Expr> result = w_.view(w_.group().output).dims;
  LATHE_RETURN_IF_ERROR(w_.add_integers(node_.inputs[kIds], "offsets", result[0], true));
  names_ = {"t"};
  weight_ = ir::iter("t");
  const Expr first = integer("offsets", {weight_});
  extents_ = {w_.view(tb).dims[0], integer("offsets", {weight_ + Expr(1)}) - first, result[1]};
  row_ = {first + ir::iter("m")};
  at_ = {row_[0], ir::iter("n")};
  return {};
}

// Rows of no group are 0.
ir::Stmt ExpertsWriter::clear() const {
  const ir::DType type = w_.graph().tensors[static_cast<size_t>(w_.group().output)].dtype;
  const std::vector<std::string> names = {"zm", "zn"}, roles(names.size(), "clear");
  return nest(names, w_.view(w_.group().output).dims, roles, {store("y", iters(names), as_dtype(type, f32(0)))})[0];
}

ir::Result<LoweredKernel> ExpertsWriter::run() {
  LATHE_RETURN_IF_ERROR(grouped_ ? declare_groups() : declare_chosen());
  const bool turned = attr_bool(node_, AttrId::transpose_b);
  const Expr n = ir::iter("n"), k = ir::iter("k");
  Index row = row_;
  row.push_back(k);
  w_.add_temp("c", w_.view(w_.group().output).dims);
  w_.bind(node_.output, load("c", at_));
  const Expr product = wide("a", row) * wide("b", {weight_, turned ? n : k, turned ? k : n});
  const Expr depth = w_.view(node_.inputs[kRows]).dims.back();
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

ir::Result<LoweredKernel> lower_group(KernelWriter& w) { return ExpertsWriter(w).run(); }

constexpr SampleAxis kAxes[] = {{"rows"}, {"n"}, {"k"}};
// The two axes that are not swept, in order; the number of weights; then a second dimension of ids.
constexpr std::initializer_list<int64_t> kAround[] = {{5, 5, 3}, {1, 5, 1}, {5, 1, 4},
                                                      {0, 5, 2}, {5, 0, 2}, {33, 17, 2, 2}};

struct Kind {
  ir::DType a, b, ids;
  bool constant = false, turned = false;
};
constexpr Kind kKinds[] = {
    {ir::DType::f32, ir::DType::f32, ir::DType::i32, true, true},
    {ir::DType::f32, ir::DType::f32, ir::DType::i64, true, false},
    {ir::DType::bf16, ir::DType::bf16, ir::DType::i32, true, true},
    {ir::DType::f32, ir::DType::f16, ir::DType::i32, false, true},
    {ir::DType::f32, ir::DType::f32, ir::DType::i32, false, false},
};

int variants(const OpRow&) { return 2 * static_cast<int>(std::size(kKinds)); }

void operands(Graph& g, const OpRow& row, size_t axis, int variant, const SampleSizes& s, Node& node) {
  std::vector<DimDesc> sizes;  // rows, n, k
  for (size_t i = 0, other = 0; i < 3; ++i) sizes.push_back(i == axis ? s.swept : s.others[other++]);
  const Kind& kind = kKinds[take(variant, static_cast<int>(std::size(kKinds)))];
  const bool spread = take(variant, 2) != 0;  // one row for all that the last dimension of ids chooses
  std::vector<DimDesc> ids = {sizes[0]};
  if (!grouped(row)) ids.insert(ids.end(), s.others.begin() + 3, s.others.end());
  std::vector<DimDesc> rows = ids;
  if (spread && !grouped(row)) rows.back() = fixed_dim(1);
  rows.push_back(sizes[2]);
  if (grouped(row)) ids = {fixed_dim(s.others[2].max + 1)};
  const DimDesc &k = kind.turned ? sizes[1] : sizes[2], &n = kind.turned ? sizes[2] : sizes[1];
  node.inputs.push_back(add_tensor(g, "a", rows, false, kind.a));
  node.inputs.push_back(add_tensor(g, "b", {s.others[2], k, n}, kind.constant, kind.b));
  node.inputs.push_back(add_tensor(g, "ids", ids, false, kind.ids));
  node.attrs = {{"transpose_b", kind.turned}};
}

SampleSizes sizes(Draw& draw, size_t) {
  SampleSizes out{draw.swept(80), {fixed_dim(draw.size(80)), fixed_dim(draw.size(80)), fixed_dim(1 + draw.below(6))}};
  if (draw.chance(3)) out.others.push_back(fixed_dim(1 + draw.below(3)));
  return out;
}

}  // namespace

constexpr Family families::experts = {
    .name = "experts",
    .operand_dtypes = operand_dtypes,
    .infer = infer,
    .results = one_result,
    .lower = lower_group,
    .flops = flops,
    .share_read = share_read,
    .updates = updates_none,
    .in_place = false,
    .error_rule = ErrorRule::bound_of_sums,
    .fusion =
        {.element = std::nullopt, .followed = true, .preceded = 1, .packed = 0, .stored = false, .f32_alone = false},
    .samples = {.axes = kAxes,
                .variants = variants,
                .operands = operands,
                .least_others = 3,
                .around = kAround,
                .sizes = sizes,
                .one_in = 0},
};

}  // namespace lathe::ops
