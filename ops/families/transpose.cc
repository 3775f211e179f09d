// The transpose family: transpose and copy, one scope per dimension of the result; dimensions that
// stay adjacent and evenly spaced in both memories are one.
//
//   for i [row]: for j [col]: d[i, j] = s[j, i]
//
// Operands s, d.
#include <algorithm>
#include <numeric>

#include "ops/kernel_writer.h"
#include "ops/monomial.h"
#include "ops/samples.h"

namespace lathe::ops {

using ir::Expr;

namespace {
// A dimension of the result, or several merged, with its innermost steps in both memories.
struct Merged {
  Expr size;
  int64_t source;  // the outermost input dimension in it, to order the input's
  Expr to, from;
};

std::vector<Expr> steps(const View& v) {
  if (!v.strides.empty()) return v.strides;
  std::vector<Expr> out(v.dims.size(), Expr(1));
  for (size_t d = v.dims.size(); d-- > 1;) out[d - 1] = multiply(out[d], v.dims[d]);
  return out;
}

ir::Result<LoweredKernel> lower_group(KernelWriter& w) {
  const Node& node = w.anchor();
  View& in = w.view(node.inputs[0]);
  View& out = w.view(node.output);
  std::vector<int64_t> perm;
  if (op_row(node).id == OpId::transpose) {
    perm = std::get<std::vector<int64_t>>(attr(node, AttrId::perm));
  } else {
    for (size_t i = 0; i < out.dims.size(); ++i) perm.push_back(static_cast<int64_t>(i));
  }
  const std::vector<Expr> to = steps(out), from = steps(in);
  const auto follows = [](const Expr& outer, const Expr& size, const Expr& inner) {
    const auto a = monomial(outer), b = monomial(multiply(size, inner));
    return a && b && *a == *b;
  };
  std::vector<Merged> dims;
  for (size_t i = 0; i < perm.size(); ++i) {
    const int64_t p = perm[i];
    if (ir::is_const_int(out.dims[i], 1)) continue;  // nothing steps along it
    if (!dims.empty() && p > dims.back().source && follows(dims.back().to, out.dims[i], to[i]) &&
        follows(dims.back().from, in.dims[p], from[p])) {
      dims.back() = {multiply(dims.back().size, out.dims[i]), dims.back().source, to[i], from[p]};
    } else {
      dims.push_back({out.dims[i], p, to[i], from[p]});
    }
  }
  if (dims.empty()) dims.push_back({Expr(1), 0, Expr(1), Expr(1)});

  // The views in merged dimensions: the result's in order, the operand's in its own.
  std::vector<size_t> order(dims.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return dims[a].source < dims[b].source; });
  const bool out_compact = out.strides.empty(), in_compact = in.strides.empty();
  out = {};
  in = {};
  std::vector<std::string> names = iter_names("i", dims.size() - 1);
  names.emplace_back("j");
  std::vector<std::string> roles(dims.size(), "row");
  roles.back() = "col";
  Index source;
  for (size_t i : order) {
    in.dims.push_back(dims[i].size);
    if (!in_compact) in.strides.push_back(dims[i].from);
    source.push_back(ir::iter(names[i]));
  }
  for (const Merged& d : dims) {
    out.dims.push_back(d.size);
    if (!out_compact) out.strides.push_back(d.to);
  }
  w.add_param(node.inputs[0], "s");
  const std::vector<Expr> extents = out.dims;
  const Expr value = ir::load("s", source, w.graph().tensors[node.output].dtype);
  return w.finish("d", nest(names, extents, roles, {store("d", iters(names), value)}));
}

std::span<const ir::DType> operand_dtypes(const OpRow&, size_t) {
  static constexpr ir::DType kAll[] = {
#define LATHE_DTYPE(id, bits, values, kind, code) ir::DType::id,
#include "ir/base/dtypes.def"
#undef LATHE_DTYPE
  };
  return kAll;
}

ir::Result<Shape> infer(const OpRow& row, const Node& node, const Inputs& in) {
  Shape out{in[0]->dtype, in[0]->dims};
  if (row.id == OpId::copy) return out;
  const auto& perm = std::get<std::vector<int64_t>>(attr(node, AttrId::perm));
  std::vector<int64_t> sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  bool good = perm.size() == out.dims.size();
  for (size_t i = 0; good && i < sorted.size(); ++i) good = sorted[i] == static_cast<int64_t>(i);
  if (!good) {
    return ir::invalid("perm [{}] of transpose, expected each of the {} dimensions once", fmt::join(perm, ", "),
                       out.dims.size())
        .with_arg(in[0]->name);
  }
  for (size_t i = 0; i < perm.size(); ++i) out.dims[i] = in[0]->dims[perm[i]];
  return out;
}

constexpr int kOrders = 3;

// The last dimension first; the last two swapped; all turned round.
std::vector<int64_t> order_of(int kind, size_t rank) {
  std::vector<int64_t> out(rank);
  std::iota(out.begin(), out.end(), 0);
  if (kind == 0 && rank > 0) std::rotate(out.begin(), out.end() - 1, out.end());
  if (kind == 1 && rank > 1) std::swap(out[rank - 1], out[rank - 2]);
  if (kind == 2) std::reverse(out.begin(), out.end());
  return out;
}

int variants(const OpRow& row) {
  return static_cast<int>(operand_dtypes(row, 0).size()) * (row.attrs & kHas_perm ? kOrders : 1);
}

void operands(Graph& g, const OpRow& row, size_t, int variant, const SampleSizes& s, Node& node) {
  const std::vector<DimDesc> dims = with_last(s.others, s.swept);
  const ir::DType dtype = take_dtype(variant, row, 0);
  node.inputs.push_back(add_tensor(g, "x", dims, false, dtype));
  if (row.attrs & kHas_perm) node.attrs.push_back({"perm", order_of(take(variant, kOrders), dims.size())});
}
}  // namespace

constexpr Family families::transpose = {
    .name = "transpose",
    .operand_dtypes = operand_dtypes,
    .infer = infer,
    .results = one_result,
    .lower = lower_group,
    .flops = one_per_element,
    .share_read = all_read,
    .updates = updates_none,
    .in_place = false,
    .error_rule = ErrorRule::tolerance_of_functions,
    .fusion =
        {.element = std::nullopt, .followed = false, .preceded = 0, .packed = 0, .stored = false, .f32_alone = false},
    .samples = {.axes = kLastAxis,
                .variants = variants,
                .operands = operands,
                .least_others = 0,
                .around = kAnyAround,
                .sizes = any_sizes,
                .one_in = 0},
};

}  // namespace lathe::ops
