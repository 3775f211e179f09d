// The outer product of two vectors.
//
//   for m [row]: for n [col]:  y = a[m] * b[n]
//
// Operands a, b, y.
#include "ops/kernel_writer.h"
#include "ops/samples.h"
#include "ops/shape.h"

namespace lathe::ops {

namespace {

std::span<const ir::DType> operand_dtypes(const OpRow&, size_t) {
  static constexpr ir::DType kF32[] = {ir::DType::f32};
  return kF32;
}

ir::Result<Shape> infer(const OpRow& row, const Node&, const Inputs& in) {
  for (const TensorDesc* t : in) LATHE_RETURN_IF_ERROR(need_rank(*t, 1, false, row.name));
  return Shape{ir::DType::f32, {in[0]->dims[0], in[1]->dims[0]}};
}

ir::Result<LoweredKernel> lower_group(KernelWriter& w) {
  const Node& node = w.anchor();
  const std::vector<ir::Expr> dims = w.view(node.output).dims;
  w.add_param(node.inputs[0], "a");
  const std::string b = w.add_param(node.inputs[1], "b");
  const ir::Expr m = ir::iter("m"), n = ir::iter("n");
  return w.finish("y", nest({"m", "n"}, dims, {"row", "col"}, {store("y", {m, n}, load("a", {m}) * load(b, {n}))}));
}

constexpr SampleAxis kAxes[] = {{"m"}, {"n"}};
constexpr std::initializer_list<int64_t> kAround[] = {{5}, {1}, {0}, {64}, {17}};

int variants(const OpRow&) { return 1; }

void operands(Graph& g, const OpRow&, size_t axis, int, const SampleSizes& s, Node& node) {
  node.inputs.push_back(add_tensor(g, "a", {axis == 0 ? s.swept : s.others[0]}));
  node.inputs.push_back(add_tensor(g, "b", {axis == 0 ? s.others[0] : s.swept}));
}

SampleSizes sizes(Draw& draw, size_t) { return {draw.swept(300), {fixed_dim(draw.size(300))}}; }

}  // namespace

constexpr Family families::outer = {
    .name = "outer",
    .operand_dtypes = operand_dtypes,
    .infer = infer,
    .results = one_result,
    .lower = lower_group,
    .flops = one_per_element,
    .share_read = all_read,
    .updates = updates_none,
    .in_place = false,
    .error_rule = ErrorRule::bound_of_sums,
    .fusion =
        {.element = std::nullopt, .followed = false, .preceded = 0, .packed = 0, .stored = false, .f32_alone = true},
    .samples = {.axes = kAxes,
                .variants = variants,
                .operands = operands,
                .least_others = 1,
                .around = kAround,
                .sizes = sizes,
                .one_in = 0},
};

}  // namespace lathe::ops
