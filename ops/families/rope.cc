// Rotary embedding: each pair of the last dimension is turned by the angle of its position.
//
//   for i [row]: for p [col]:  (d0, d1) = (s0*cos - s1*sin, s1*cos + s0*sin)
//
// Pairs are (p, p + D/2), or (2p, 2p + 1) if interleaved. Operands s, co, si, d.
#include "ops/kernel_writer.h"
#include "ops/samples.h"
#include "ops/shape.h"

namespace lathe::ops {

using ir::Expr;

namespace {

constexpr char kEven[] = "an even size, as pairs are turned: pad it by one";

std::span<const ir::DType> operand_dtypes(const OpRow&, size_t) {
  static constexpr ir::DType kF32[] = {ir::DType::f32};
  return kF32;
}

ir::Result<Shape> infer(const OpRow& row, const Node&, const Inputs& in) {
  const TensorDesc& x = *in[0];
  LATHE_RETURN_IF_ERROR(need_rank(x, 3, true, row.name));
  const size_t rank = x.dims.size();
  const DimDesc& d = x.dims[rank - 1];
  if (!d.fixed()) return mismatch(x, rank - 1, "a fixed size: finish a graph for each");
  if (d.min % 2 != 0) return mismatch(x, rank - 1, kEven);
  for (size_t i = 1; i < 3; ++i) {
    const TensorDesc& table = *in[i];
    LATHE_RETURN_IF_ERROR(need_rank(table, 2, false, row.name));
    if (!same_dim(table.dims[0], x.dims[rank - 3])) {
      return mismatch(table, 0, fmt::format("{} (positions of {})", dim_text(x.dims[rank - 3]), x.name));
    }
    if (!same_dim(table.dims[1], fixed_dim(d.min / 2))) {
      return mismatch(table, 1, fmt::format("{} (half of the last of {})", d.min / 2, x.name));
    }
  }
  return Shape{ir::DType::f32, x.dims};
}

ir::Result<LoweredKernel> lower_group(KernelWriter& w) {
  const Node& node = w.anchor();
  const std::vector<Expr> dims = w.view(node.output).dims;
  const size_t rank = dims.size();
  const int64_t half = dims.back()->ival / 2;
  w.add_param(node.inputs[0], "s");
  w.add_param(node.inputs[1], "co");
  w.add_param(node.inputs[2], "si");

  std::vector<std::string> names = iter_names("i", rank - 1);
  std::vector<Expr> extents(dims.begin(), dims.end() - 1);
  std::vector<std::string> roles(names.size(), "row");
  const Index rows = iters(names);
  const Expr p = ir::iter("p");
  const bool interleaved = attr_bool(node, AttrId::interleaved);
  const auto at = [&](int which) {
    Index index = rows;
    index.push_back(interleaved ? (which ? Expr(2) * p + Expr(1) : Expr(2) * p) : (which ? p + Expr(half) : p));
    return index;
  };
  const Index angle{rows[rank - 3], p};
  const Expr x0 = load("s", at(0)), x1 = load("s", at(1)), c = load("co", angle), s = load("si", angle);
  names.emplace_back("p");
  extents.emplace_back(half);
  roles.emplace_back("col");
  return w.finish(
      "d", nest(names, extents, roles, {store("d", at(0), x0 * c - x1 * s), store("d", at(1), x1 * c + x0 * s)}));
}

constexpr SampleAxis kAxes[] = {{.name = "d", .fixed = true, .step = 2, .refusal = kEven}, {"t"}};
// Heads, then the axis that is not swept.
constexpr std::initializer_list<int64_t> kAround[] = {{5, 6}, {1, 2}, {5, 2}, {5, 16}, {1, 64}, {5, 34}, {0, 6}};

int variants(const OpRow&) { return 2; }

void operands(Graph& g, const OpRow&, size_t axis, int variant, const SampleSizes& s, Node& node) {
  const DimDesc &d = axis == 0 ? s.swept : s.others[1], &t = axis == 0 ? s.others[1] : s.swept;
  const std::vector<DimDesc> table = {t, fixed_dim(d.max / 2)};
  node.inputs.push_back(add_tensor(g, "x", {t, s.others[0], d}));
  node.inputs.push_back(add_tensor(g, "cos", table));
  node.inputs.push_back(add_tensor(g, "sin", table));
  node.attrs.push_back({"interleaved", take(variant, 2) != 0});
}

SampleSizes sizes(Draw& draw, size_t axis) {
  const DimDesc d = fixed_dim(2 * draw.size(64)), t = axis == 0 ? fixed_dim(draw.size(40)) : draw.swept(40);
  return {axis == 0 ? d : t, {fixed_dim(1 + draw.below(8)), axis == 0 ? t : d}};
}

}  // namespace

constexpr Family families::rope = {
    .name = "rope",
    .operand_dtypes = operand_dtypes,
    .infer = infer,
    .lower = lower_group,
    .flops = one_per_element,
    .share_read = all_read,
    .in_place = false,
    .error_rule = ErrorRule::tolerance_of_functions,
    .fusion = {.element = std::nullopt, .followed = false, .preceded = 0, .packed = 0, .f32_alone = true},
    .samples = {.axes = kAxes,
                .variants = variants,
                .operands = operands,
                .least_others = 2,
                .around = kAround,
                .sizes = sizes,
                .one_in = 0},
};

}  // namespace lathe::ops
