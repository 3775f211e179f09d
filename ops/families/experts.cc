// Products with the weights that integers choose (ops/families/expert_rows.h): those of the experts that tokens are
// sent to. expert_matmul: each row names its weight b[ids[t]]. grouped_matmul: rows that share a weight stand one after
// another. Sums are f32 whatever the operands are; the result has the dtype of a.
#include "ops/families/expert_rows.h"
#include "ops/samples.h"

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
  const TensorDesc &a = *in[kRows], &b = *in[kWeights];
  LATHE_RETURN_IF_ERROR(need_rank(b, 3, false, row.name));
  LATHE_ASSIGN(std::vector<DimDesc> dims, chosen_dims(row, grouped(row), a, b, *in[kIds]));
  const bool turned = attr_bool(node, AttrId::transpose_b);
  const size_t k = turned ? 2 : 1, n = turned ? 1 : 2;
  if (!same_dim(a.dims.back(), b.dims[k]))
    return mismatch(a, a.dims.size() - 1, fmt::format("{} (K of {})", dim_text(b.dims[k]), b.name));
  dims.push_back(b.dims[n]);
  return Shape{a.dtype, std::move(dims)};
}

// Two per multiply-add.
double flops(const Node&, const NodeSizes& sizes) {
  return 2.0 * elements(sizes.output) * static_cast<double>(sizes.inputs[kRows].back());
}

double share_read(const Node& node, const NodeSizes& sizes, size_t operand) {
  return operand == kWeights ? chosen_share(sizes, grouped(op_row(node))) : 1;
}

ir::Result<LoweredKernel> lower_group(KernelWriter& w) {
  const Node& node = w.anchor();
  const int ta = node.inputs[kRows], tb = node.inputs[kWeights];
  ExpertRows rows(w, grouped(op_row(node)));
  w.add_operand(ta, "a");
  w.add_param(tb, "b");
  LATHE_RETURN_IF_ERROR(rows.declare_integers(w.view(tb).dims[0]));
  const bool turned = attr_bool(node, AttrId::transpose_b);
  const Expr n = ir::iter("n"), k = ir::iter("k");
  const auto wide = [&](const std::string& name, Index index) {
    return as_dtype(ir::DType::f32, ir::load(name, std::move(index), w.dtype_of(name)));
  };
  Index row = rows.row();
  row.push_back(k);
  const Expr product = wide("a", row) * wide("b", {rows.weight(), turned ? n : k, turned ? k : n});
  return rows.finish(product, w.view(ta).dims.back());
}

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
