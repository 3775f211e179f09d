// Products with the weights that integers choose: those of the experts that a token is sent to.
//
//   for t [batch]: for m < 1 [m]: for n [n]:
//     c = 0;  for k [k]: c += a[t, m, k] * b[ids[t], k, n];  y[t, m, n] = f(c)
//
// t runs over the dimensions of ids; a broadcasts to them. Operands a, b, ids, then e0, e1, ... of the riders, y. Sums
// are f32 whatever the operands are; the result has the dtype of a. Tensors with rows of their own for each t have a
// unit dimension m here.
#include <algorithm>
#include <iterator>

#include "ops/kernel_writer.h"
#include "ops/samples.h"
#include "ops/shape.h"

namespace lathe::ops {

using ir::Expr;

namespace {

enum Operand : uint8_t { kRows, kWeights, kIds };

std::span<const ir::DType> operand_dtypes(const OpRow&, size_t number) {
  static constexpr ir::DType kFloats[] = {ir::DType::f32, ir::DType::bf16, ir::DType::f16};
  static constexpr ir::DType kIntegers[] = {ir::DType::i32, ir::DType::i64};
  if (number == kIds) return kIntegers;
  return kFloats;
}

ir::Result<Shape> infer(const OpRow& row, const Node& node, const Inputs& in) {
  const TensorDesc &a = *in[kRows], &b = *in[kWeights], &ids = *in[kIds];
  LATHE_RETURN_IF_ERROR(need_rank(ids, 1, true, row.name));
  LATHE_RETURN_IF_ERROR(need_rank(b, 3, false, row.name));
  LATHE_RETURN_IF_ERROR(need_rank(a, ids.dims.size() + 1, false, row.name));
  const bool turned = attr_bool(node, AttrId::transpose_b);
  const size_t k = turned ? 2 : 1, n = turned ? 1 : 2;
  if (b.dims[0].max < 1) return mismatch(b, 0, "at least one weight to choose");
  if (!same_dim(a.dims.back(), b.dims[k]))
    return mismatch(a, a.dims.size() - 1, fmt::format("{} (K of {})", dim_text(b.dims[k]), b.name));
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

// As many weights as there are ids, at most.
double share_read(const Node&, const NodeSizes& sizes, size_t operand) {
  return operand == kWeights ? rows_read(elements(sizes.inputs[kIds]), sizes.inputs[kWeights][0]) : 1;
}

// A unit dimension before the last one.
void add_rows(View& v) {
  if (v.dims.size() < 2) return;
  v.dims.insert(v.dims.end() - 1, Expr(1));
  if (!v.strides.empty()) v.strides.insert(v.strides.end() - 1, v.strides.back());
}

ir::Result<LoweredKernel> lower_group(KernelWriter& w) {
  const Node& node = w.anchor();
  const int ta = node.inputs[kRows], tb = node.inputs[kWeights], ids = node.inputs[kIds];
  for (const int t : w.externals()) {
    if (t != tb && t != ids) add_rows(w.view(t));
  }
  const auto& outside = w.externals();
  if (std::find(outside.begin(), outside.end(), ta) == outside.end()) add_rows(w.view(ta));
  add_rows(w.view(w.group().output));
  const std::string a = w.add_operand(ta, "a"), b = w.add_param(tb, "b");
  LATHE_RETURN_IF_ERROR(w.add_integers(ids, "ids", w.view(tb).dims[0] - Expr(1)));

  const std::vector<Expr> dims = w.view(w.group().output).dims;
  std::vector<std::string> names = iter_names("t", dims.size() - 2);
  const Index chosen = iters(names);
  const Expr m = ir::iter("m"), n = ir::iter("n"), k = ir::iter("k");
  Index row = align(chosen, {w.view(ta).dims.begin(), w.view(ta).dims.end() - 2});
  row.push_back(m);
  row.push_back(k);
  Index weight = {as_dtype(ir::DType::i64, ir::load("ids", chosen, w.dtype_of("ids")))};
  const bool turned = attr_bool(node, AttrId::transpose_b);
  weight.push_back(turned ? n : k);
  weight.push_back(turned ? k : n);
  const auto wide = [&](const std::string& name, Index index) {
    return as_dtype(ir::DType::f32, ir::load(name, std::move(index), w.dtype_of(name)));
  };
  Index at = chosen;
  at.push_back(m);
  at.push_back(n);
  w.add_temp("c", dims);
  w.bind(node.output, load("c", at));
  const ir::Stmt term = store("c", at, wide(a, row) * wide(b, weight), ir::AssignOp::add);
  std::vector<ir::Stmt> body = {store("c", at, f32(0)), ir::make_scope("k", w.view(ta).dims.back(), {term}, "k"),
                                w.store_result("y", at)};
  std::vector<std::string> roles(names.size(), "batch");
  for (const char* name : {"m", "n"}) {
    names.emplace_back(name);
    roles.emplace_back(name);
  }
  std::vector<ir::Stmt> all = w.stage(), product = nest(names, dims, roles, std::move(body));
  all.insert(all.end(), std::make_move_iterator(product.begin()), std::make_move_iterator(product.end()));
  return w.finish("y", std::move(all));
}

constexpr SampleAxis kAxes[] = {{"ids"}, {"n"}, {"k"}};
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

void operands(Graph& g, const OpRow&, size_t axis, int variant, const SampleSizes& s, Node& node) {
  std::vector<DimDesc> sizes;  // ids, n, k
  for (size_t i = 0, other = 0; i < 3; ++i) sizes.push_back(i == axis ? s.swept : s.others[other++]);
  const Kind& kind = kKinds[take(variant, static_cast<int>(std::size(kKinds)))];
  const bool spread = take(variant, 2) != 0;  // one row for all that the last dimension of ids chooses
  std::vector<DimDesc> ids = {sizes[0]};
  ids.insert(ids.end(), s.others.begin() + 3, s.others.end());
  std::vector<DimDesc> rows = ids;
  if (spread) rows.back() = fixed_dim(1);
  rows.push_back(sizes[2]);
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
    .lower = lower_group,
    .flops = flops,
    .share_read = share_read,
    .in_place = false,
    .error_rule = ErrorRule::bound_of_sums,
    .fusion = {.element = std::nullopt, .followed = true, .preceded = 1, .packed = 0, .f32_alone = false},
    .samples = {.axes = kAxes,
                .variants = variants,
                .operands = operands,
                .least_others = 3,
                .around = kAround,
                .sizes = sizes,
                .one_in = 0},
};

}  // namespace lathe::ops
