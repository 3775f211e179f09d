// See samples.h.
#include "ops/samples.h"

#include <algorithm>

#include "ops/shape.h"

namespace lathe::ops {

namespace {

using Dims = std::vector<DimDesc>;

constexpr const char* kLast[] = {"last"};
constexpr const char* kMatmulAxes[] = {"m", "n", "k"};
constexpr const char* kRopeAxes[] = {"d", "t"};
constexpr int kOrders = 3;

// The last dimension first; the last two swapped; all turned round.
std::vector<int64_t> order(int kind, size_t rank) {
  std::vector<int64_t> out;
  for (size_t i = 0; i < rank; ++i) out.push_back(static_cast<int64_t>(i));
  if (kind == 0 && rank > 0) std::rotate(out.begin(), out.end() - 1, out.end());
  if (kind == 1 && rank > 1) std::swap(out[rank - 1], out[rank - 2]);
  if (kind == 2) std::reverse(out.begin(), out.end());
  return out;
}

// Takes one of `n` choices from the variant's number.
int take(int& variant, int n) {
  const int choice = variant % n;
  variant /= n;
  return choice;
}

ir::DType take_dtype(int& variant, const OpRow& row, size_t operand) {
  const std::span<const ir::DType> served = operand_dtypes(row, operand);
  return served[static_cast<size_t>(take(variant, static_cast<int>(served.size())))];
}

Dims with_last(const Dims& others, const DimDesc& last) {
  Dims out = others;
  out.push_back(last);
  return out;
}

void matmul(Graph& g, size_t axis, int variant, const SampleSizes& s, Node& node) {
  Dims mnk;
  for (size_t i = 0, other = 0; i < 3; ++i) mnk.push_back(i == axis ? s.swept : s.others[other++]);
  const bool ta = take(variant, 2), tb = take(variant, 2), constant = take(variant, 2);
  const Dims batch(s.others.begin() + 2, s.others.end());
  const auto stored = [](Dims leading, const DimDesc& row, const DimDesc& column, bool turned) {
    leading.push_back(turned ? column : row);
    leading.push_back(turned ? row : column);
    return leading;
  };
  node.inputs.push_back(add_tensor(g, "a", stored(batch, mnk[0], mnk[2], ta)));
  node.inputs.push_back(add_tensor(g, "b", stored(constant ? Dims{} : batch, mnk[2], mnk[1], tb), constant));
  node.attrs = {{"transpose_a", ta}, {"transpose_b", tb}};
}

void row_family(Graph& g, const OpRow& row, int variant, const SampleSizes& s, Node& node) {
  const int operands = row.min_arity + take(variant, row.max_arity - row.min_arity + 1);
  const bool keepdims = (row.attrs & kHas_keepdims) && take(variant, 2) != 0;
  const ir::DType dtype = take_dtype(variant, row, 0);
  node.inputs.push_back(add_tensor(g, "x", with_last(s.others, s.swept), false, dtype));
  for (int i = 1; i < operands; ++i)  // the scale may be wider than what it scales
    node.inputs.push_back(add_tensor(g, i == 1 ? "scale" : "bias", {s.swept}, true, i == 1 ? ir::DType::f32 : dtype));
  if (row.attrs & kHas_keepdims) node.attrs.push_back({"keepdims", keepdims});
}

void elementwise(Graph& g, const OpRow& row, int variant, const SampleSizes& s, Node& node) {
  const bool tanh = (row.attrs & kHas_approximate) && take(variant, 2) != 0;
  const int spread = row.max_arity > 1 ? take(variant, 3)
                                       : 0;  // operands after the first: as the first; of the last dimension; one value
  const size_t data = static_cast<size_t>(row.max_arity) - 1;  // where has its mask first
  const ir::DType dtype = take_dtype(variant, row, data);
  for (int i = 0; i < row.max_arity; ++i) {
    Dims dims = with_last(s.others, s.swept);
    if (i > 0 && spread == 1) dims = {s.swept};
    if (i > 0 && spread == 2) dims = {fixed_dim(1)};
    const auto served = operand_dtypes(row, static_cast<size_t>(i));
    const bool takes = std::find(served.begin(), served.end(), dtype) != served.end();
    node.inputs.push_back(add_tensor(g, fmt::format("x{}", i), dims, false, takes ? dtype : served[0]));
  }
  if (tanh) node.attrs.push_back({"approximate", std::string("tanh")});
  if (row.attrs & kHas_value) node.attrs.push_back({"value", 0.5});
  if (row.attrs & kHas_to) {
    const auto to = cast_dtypes();
    node.attrs.push_back(
        {"to", std::string(ir::dtype_name(to[static_cast<size_t>(take(variant, static_cast<int>(to.size())))]))});
  }
}

void transpose(Graph& g, const OpRow& row, int variant, const SampleSizes& s, Node& node) {
  const Dims dims = with_last(s.others, s.swept);
  const ir::DType dtype = take_dtype(variant, row, 0);
  node.inputs.push_back(add_tensor(g, "x", dims, false, dtype));
  if (row.attrs & kHas_perm) node.attrs.push_back({"perm", order(take(variant, kOrders), dims.size())});
}

void rope(Graph& g, size_t axis, int variant, const SampleSizes& s, Node& node) {
  const DimDesc &d = axis == 0 ? s.swept : s.others[1], &t = axis == 0 ? s.others[1] : s.swept;
  const Dims table = {t, fixed_dim(d.max / 2)};
  node.inputs.push_back(add_tensor(g, "x", {t, s.others[0], d}));
  node.inputs.push_back(add_tensor(g, "cos", table));
  node.inputs.push_back(add_tensor(g, "sin", table));
  node.attrs.push_back({"interleaved", take(variant, 2) != 0});
}

}  // namespace

std::span<const char* const> sample_axes(const OpRow& row) {
  switch (row.family) {
    case Family::kMatmul:
      return kMatmulAxes;
    case Family::kRope:
      return kRopeAxes;
    default:
      return kLast;
  }
}

int sample_variants(const OpRow& row) {
  const int dtypes = static_cast<int>(
      operand_dtypes(row, row.family == Family::kElementwise ? static_cast<size_t>(row.max_arity) - 1 : 0).size());
  switch (row.family) {
    case Family::kMatmul:
      return 8;
    case Family::kRow:
      return (row.max_arity - row.min_arity + 1) * (row.attrs & kHas_keepdims ? 2 : 1) * dtypes;
    case Family::kElementwise:
      return (row.attrs & kHas_approximate ? 2 : 1) * (row.max_arity > 1 ? 3 : 1) * dtypes *
             (row.attrs & kHas_to ? static_cast<int>(cast_dtypes().size()) : 1);
    case Family::kTranspose:
      return dtypes * (row.attrs & kHas_perm ? kOrders : 1);
    case Family::kRope:
      return 2;
  }
  return 1;
}

ir::Result<Graph> sample_graph(const OpRow& row, size_t axis, int variant, const SampleSizes& sizes) {
  const size_t wanted = row.family == Family::kMatmul || row.family == Family::kRope ? 2 : 0;
  if (sizes.others.size() < wanted)
    return ir::invalid("{} other sizes for {}, expected {}", sizes.others.size(), row.name, wanted);
  Graph g;
  Node node;
  switch (row.family) {
    case Family::kMatmul:
      matmul(g, axis, variant, sizes, node);
      break;
    case Family::kRow:
      row_family(g, row, variant, sizes, node);
      break;
    case Family::kElementwise:
      elementwise(g, row, variant, sizes, node);
      break;
    case Family::kTranspose:
      transpose(g, row, variant, sizes, node);
      break;
    case Family::kRope:
      rope(g, axis, variant, sizes, node);
      break;
  }
  if (node.inputs.empty()) return ir::unsupported("{}: a family without samples", row.name);
  g.name = row.name;
  g.outputs = {add_node(g, row.name, std::move(node.inputs), "y", std::move(node.attrs))};
  return g;
}

}  // namespace lathe::ops
