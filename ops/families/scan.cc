// Scans over an axis: the last one, or another, of which the columns behind it have a sum each.
//
//   for b [row]:  a = 0;  for n [col]: { a += s;  d = a }
//   for b [row]:  for c [clear]: a = 0;  for n: for c1 [col]: { a += s;  d = a }
//
// The sum is f32 and rounded where it is stored. What rides before or behind is computed where it is read and stored.
// Operands s, e0, e1, ..., d.
#include <algorithm>

#include "ops/kernel_writer.h"
#include "ops/samples.h"
#include "ops/shape.h"

namespace lathe::ops {

using ir::Expr;

namespace {

std::span<const ir::DType> operand_dtypes(const OpRow&, size_t) {
  static constexpr ir::DType kFloats[] = {ir::DType::f32, ir::DType::bf16, ir::DType::f16};
  return kFloats;
}

ir::Result<Shape> infer(const OpRow& row, const Node& node, const Inputs& in) {
  LATHE_RETURN_IF_ERROR(need_rank(*in[0], 1, true, row.name));
  LATHE_RETURN_IF_ERROR(need_axis(*in[0], attr_int(node, AttrId::axis), row.name));
  return Shape{in[0]->dtype, in[0]->dims};
}

// Dimensions behind the axis, which is not the last one.
size_t dims_behind(const Graph& graph, const Node& node) {
  const auto rank = static_cast<int64_t>(graph.tensors[static_cast<size_t>(node.inputs[0])].dims.size());
  const int64_t axis = attr_int(node, AttrId::axis);
  return static_cast<size_t>(axis < 0 ? -1 - axis : rank - 1 - axis);
}

ir::Result<LoweredKernel> lower_columns(KernelWriter& w, size_t behind) {
  const Node& node = w.anchor();
  const int input = node.inputs[0];
  if (w.view(input).dims.size() == behind + 1) w.add_row_dim();
  const std::vector<Expr> dims = w.view(w.group().output).dims;
  const std::vector<Expr> outside(dims.begin(), dims.end() - static_cast<ptrdiff_t>(behind) - 1),
      inside(dims.end() - static_cast<ptrdiff_t>(behind), dims.end());
  const auto& read = w.externals();
  if (std::find(read.begin(), read.end(), input) != read.end()) w.add_param(input, "s");
  std::vector<Expr> sums = outside;
  sums.insert(sums.end(), inside.begin(), inside.end());
  w.add_temp("a", sums);
  const std::vector<std::string> rows = iter_names("b", outside.size());
  const auto columns = [&](const std::string& stem, const char* role, auto&& body) {
    std::vector<std::string> names = iter_names(stem, behind), roles(behind);
    roles.back() = role;
    return nest(names, inside, roles, body(iters(names)));
  };
  const auto joined = [](Index a, const Index& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  std::vector<ir::Stmt> body = columns(
      "c", "clear", [&](const Index& c) { return std::vector<ir::Stmt>{store("a", joined(iters(rows), c), f32(0))}; });
  std::vector<ir::Stmt> step = columns("m", "col", [&](const Index& c) {
    const Index of_sum = joined(iters(rows), c), at = joined(joined(iters(rows), {ir::iter("n")}), c);
    std::vector<ir::Stmt> out;
    for (const int t : w.stored_ahead()) out.push_back(w.store_also(t, at));
    out.push_back(store("a", of_sum, w.value(input, at), ir::AssignOp::add));
    w.bind(node.output, load("a", of_sum));
    for (ir::Stmt& s : w.store_results("d", at)) out.push_back(std::move(s));
    return out;
  });
  body.push_back(ir::make_scope("n", dims[outside.size()], std::move(step)));
  return w.finish("d", nest(rows, outside, std::vector<std::string>(rows.size(), "row"), std::move(body)));
}

ir::Result<LoweredKernel> lower_group(KernelWriter& w) {
  const Node& node = w.anchor();
  const int input = node.inputs[0];
  if (const size_t behind = dims_behind(w.graph(), node); behind > 0) return lower_columns(w, behind);
  if (w.view(input).dims.size() == 1) w.add_row_dim();
  const std::vector<Expr> dims = w.view(w.group().output).dims, outside(dims.begin(), dims.end() - 1);
  const auto& read = w.externals();
  if (std::find(read.begin(), read.end(), input) != read.end()) w.add_param(input, "s");
  w.add_temp("a", outside);
  const std::vector<std::string> names = iter_names("b", outside.size());
  const Index rows = iters(names);
  Index at = rows;
  at.push_back(ir::iter("n"));
  const Expr sum = load("a", rows);
  std::vector<ir::Stmt> step;
  for (const int t : w.stored_ahead()) step.push_back(w.store_also(t, at));
  step.push_back(store("a", rows, w.value(input, at), ir::AssignOp::add));
  w.bind(node.output, sum);
  for (ir::Stmt& s : w.store_results("d", at)) step.push_back(std::move(s));
  std::vector<ir::Stmt> body = {store("a", rows, f32(0))};
  body.push_back(ir::make_scope("n", dims.back(), std::move(step), "col"));
  return w.finish("d", nest(names, outside, std::vector<std::string>(names.size(), "row"), std::move(body)));
}

int variants(const OpRow& row) { return static_cast<int>(operand_dtypes(row, 0).size()); }

void operands(Graph& g, const OpRow& row, size_t, int variant, const SampleSizes& s, Node& node) {
  const ir::DType dtype = take_dtype(variant, row, 0);
  node.inputs.push_back(add_tensor(g, "x", with_last(s.others, s.swept), false, dtype));
}

}  // namespace

constexpr Family families::scan = {
    .name = "scan",
    .operand_dtypes = operand_dtypes,
    .infer = infer,
    .results = one_result,
    .lower = lower_group,
    .flops = one_per_element,
    .share_read = all_read,
    .updates = updates_none,
    .in_place = true,
    .error_rule = ErrorRule::bound_of_sums,
    .fusion =
        {.element = std::nullopt, .followed = true, .preceded = 1, .packed = 0, .stored = true, .f32_alone = false},
    .samples = {.axes = kLastAxis,
                .variants = variants,
                .operands = operands,
                .least_others = 0,
                .around = kAnyAround,
                .sizes = any_sizes,
                .one_in = 0},
};

}  // namespace lathe::ops
