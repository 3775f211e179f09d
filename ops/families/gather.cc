// Gather: rows of a table, in the order that integers say.
//
//   for i [row]: for j [col]: d[i, j] = f(s[ids[i], j])
//
// Operands s, ids, then e0, e1, ... of the followers, d. Without followers bits are copied, and the dimensions of ids
// are one where both ids and the result are compact.
#include "ops/kernel_writer.h"
#include "ops/samples.h"
#include "ops/shape.h"

namespace lathe::ops {

using ir::Expr;

namespace {

std::span<const ir::DType> operand_dtypes(const OpRow&, size_t number) {
  static constexpr ir::DType kTable[] = {
#define LATHE_DTYPE(id, bits, values, kind, code) ir::DType::id,
#include "ir/base/dtypes.def"
#undef LATHE_DTYPE
  };
  static constexpr ir::DType kIds[] = {ir::DType::i32, ir::DType::i64};
  if (number == 0) return kTable;
  return kIds;
}

ir::Result<Shape> infer(const OpRow& row, const Node&, const Inputs& in) {
  LATHE_RETURN_IF_ERROR(need_rank(*in[0], 2, false, row.name));
  return chosen_rows(*in[1], in[0]->dtype, in[0]->dims[1]);
}

ir::Result<LoweredKernel> lower_group(KernelWriter& w) {
  const Node& node = w.anchor();
  const ir::DType table = w.graph().tensors[static_cast<size_t>(node.inputs[0])].dtype,
                  ids = w.graph().tensors[static_cast<size_t>(node.inputs[1])].dtype;
  w.add_param(node.inputs[0], "s");
  LATHE_ASSIGN(const std::vector<Expr> rows, w.add_ids(node.inputs[1], "ids", w.view(node.inputs[0]).dims[0]));
  std::vector<std::string> names = iter_names("i", rows.size());
  std::vector<std::string> roles(names.size(), "row");
  const Expr row = as_dtype(ir::DType::i64, ir::load("ids", iters(names), ids));
  names.emplace_back("j");
  roles.emplace_back("col");
  const std::vector<Expr> extents = w.view(w.group().output).dims;
  const Expr element = ir::load("s", {row, ir::iter("j")}, table);
  if (w.group().nodes.size() > 1) {
    w.bind(node.output, ir::is_float(table) ? as_dtype(ir::DType::f32, element) : element);
    return w.finish("d", nest(names, extents, roles, {w.store_result("d", iters(names))}));
  }
  return w.finish("d", nest(names, extents, roles, {store("d", iters(names), element)}));
}

// What is moved.
double flops(const Node&, const NodeSizes& sizes) { return elements(sizes.output); }

// As many rows of the table as there are ids, at most.
double share_read(const Node&, const NodeSizes& sizes, size_t operand) {
  return operand == 0 ? rows_read(elements(sizes.inputs[1]), sizes.inputs[0][0]) : 1;
}

constexpr SampleAxis kAxes[] = {{"n"}, {"ids"}};
// The axis that is not swept, then the rows of the table: of none there are no ids.
constexpr std::initializer_list<int64_t> kAround[] = {{5, 7}, {1, 1}, {33, 2}, {0, 3}, {4, 100}};

int variants(const OpRow& row) {
  return static_cast<int>(operand_dtypes(row, 0).size() * operand_dtypes(row, 1).size());
}

void operands(Graph& g, const OpRow& row, size_t axis, int variant, const SampleSizes& s, Node& node) {
  const DimDesc &n = axis == 0 ? s.swept : s.others[0], &ids = axis == 0 ? s.others[0] : s.swept;
  const ir::DType table = take_dtype(variant, row, 0), integers = take_dtype(variant, row, 1);
  node.inputs.push_back(add_tensor(g, "table", {s.others[1], n}, false, table));
  node.inputs.push_back(add_tensor(g, "ids", {ids}, false, integers));
}

SampleSizes sizes(Draw& draw, size_t axis) {
  return {draw.swept(axis == 0 ? 300 : 40), {fixed_dim(draw.size(axis == 0 ? 40 : 300)), fixed_dim(draw.size(100))}};
}

}  // namespace

constexpr Family families::gather = {
    .name = "gather",
    .operand_dtypes = operand_dtypes,
    .infer = infer,
    .results = one_result,
    .lower = lower_group,
    .flops = flops,
    .share_read = share_read,
    .updates = updates_none,
    .in_place = false,
    .error_rule = ErrorRule::tolerance_of_functions,
    .fusion =
        {.element = std::nullopt, .followed = true, .preceded = 0, .packed = 0, .stored = false, .f32_alone = false},
    .samples = {.axes = kAxes,
                .variants = variants,
                .operands = operands,
                .least_others = 2,
                .around = kAround,
                .sizes = sizes,
                .one_in = 0},
};

}  // namespace lathe::ops
