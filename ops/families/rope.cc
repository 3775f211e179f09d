// Rotary embedding: each pair of the last dimension is turned by the angle of its position.
//
//   for i [row]:
//     for p [col]:  (d0, d1) = (s0*cos - s1*sin, s1*cos + s0*sin)
//     for q [col]:  d = s
//
// The first R numbers of a head are turned, as many as there are angles for; the second loop, if any are left, copies
// them. Pairs are (p, p + R/2), or (2p, 2p + 1) if interleaved. Operands s, co, si, positions, d. Sums are f32; the
// result has the dtype of s.
#include "ops/kernel_writer.h"
#include "ops/samples.h"
#include "ops/shape.h"

namespace lathe::ops {

using ir::Expr;

namespace {

constexpr char kEven[] = "an even size, as pairs are turned: pad it by one";

constexpr size_t kPositions = 3;  // operand

std::span<const ir::DType> operand_dtypes(const OpRow&, size_t number) {
  static constexpr ir::DType kFloats[] = {ir::DType::f32, ir::DType::bf16, ir::DType::f16};
  static constexpr ir::DType kIntegers[] = {ir::DType::i32, ir::DType::i64};
  if (number == kPositions) return kIntegers;
  return kFloats;
}

ir::Result<Shape> infer(const OpRow& row, const Node&, const Inputs& in) {
  const TensorDesc& x = *in[0];
  LATHE_RETURN_IF_ERROR(need_rank(x, 3, true, row.name));
  const size_t rank = x.dims.size();
  const DimDesc& d = x.dims[rank - 1];
  if (!d.fixed()) return mismatch(x, rank - 1, "a fixed size: finish a graph for each");
  if (d.min % 2 != 0) return mismatch(x, rank - 1, kEven);
  const TensorDesc &co = *in[1], &si = *in[2];
  for (const TensorDesc* table : {&co, &si}) LATHE_RETURN_IF_ERROR(need_rank(*table, 2, false, row.name));
  const DimDesc &tokens = x.dims[rank - 3], &angles = co.dims[1];
  if (in.size() == kPositions && !same_dim(co.dims[0], tokens))
    return mismatch(co, 0, fmt::format("{} (positions of {})", dim_text(tokens), x.name));
  if (!angles.fixed() || angles.min > d.min / 2)
    return mismatch(co, 1, fmt::format("at most {} (half of the last of {})", d.min / 2, x.name));
  for (size_t i = 0; i < 2; ++i) {
    if (!same_dim(si.dims[i], co.dims[i]))
      return mismatch(si, i, fmt::format("{} (as {})", dim_text(co.dims[i]), co.name));
  }
  if (in.size() > kPositions) {
    const TensorDesc& at = *in[kPositions];
    const size_t first = at.dims.size() == 1 ? rank - 3 : 0;
    if (at.dims.size() != 1) LATHE_RETURN_IF_ERROR(need_rank(at, rank - 2, false, row.name));
    for (size_t i = 0; i < at.dims.size(); ++i) {
      const DimDesc& expected = x.dims[first + i];
      if (!same_dim(at.dims[i], expected))
        return mismatch(at, i, fmt::format("{} (as {})", dim_text(expected), x.name));
    }
  }
  return Shape{x.dtype, x.dims};
}

ir::Result<LoweredKernel> lower_group(KernelWriter& w) {
  const Node& node = w.anchor();
  const std::vector<Expr> dims = w.view(node.output).dims;
  const size_t rank = dims.size();
  const std::vector<Expr> table = w.view(node.inputs[1]).dims;
  const int64_t half = table[1]->ival, rest = dims.back()->ival - 2 * half;
  w.add_param(node.inputs[0], "s");
  w.add_param(node.inputs[1], "co");
  w.add_param(node.inputs[2], "si");

  std::vector<std::string> names = iter_names("i", rank - 1);
  std::vector<Expr> extents(dims.begin(), dims.end() - 1);
  std::vector<std::string> roles(names.size(), "row");
  const Index rows = iters(names);
  Expr position = rows[rank - 3];
  if (node.inputs.size() > kPositions) {
    const int tensor = node.inputs[kPositions];
    LATHE_RETURN_IF_ERROR(w.add_integers(tensor, "positions", table[0] - Expr(1)));
    const Index at(w.view(tensor).dims.size() == 1 ? rows.end() - 2 : rows.begin(), rows.end() - 1);
    position = as_dtype(ir::DType::i64, ir::load("positions", at, w.dtype_of("positions")));
  }
  const Expr p = ir::iter("p");
  const bool interleaved = attr_bool(node, AttrId::interleaved);
  const auto at = [&](int which) {
    Index index = rows;
    index.push_back(interleaved ? (which ? Expr(2) * p + Expr(1) : Expr(2) * p) : (which ? p + Expr(half) : p));
    return index;
  };
  const Index angle{position, p};
  const ir::DType type = w.dtype_of("s");
  const auto value = [&](const char* name, const Index& index) {
    return as_dtype(ir::DType::f32, ir::load(name, index, w.dtype_of(name)));
  };
  const Expr x0 = value("s", at(0)), x1 = value("s", at(1)), c = value("co", angle), s = value("si", angle);
  std::vector<ir::Stmt> body =
      nest({"p"}, {Expr(half)}, {"col"},
           {store("d", at(0), as_dtype(type, x0 * c - x1 * s)), store("d", at(1), as_dtype(type, x1 * c + x0 * s))});
  if (rest != 0) {
    Index left = rows;
    left.push_back(ir::iter("q") + Expr(2 * half));
    body.push_back(ir::make_scope("q", Expr(rest), {store("d", left, ir::load("s", left, type))}, "col"));
  }
  return w.finish("d", nest(names, extents, roles, std::move(body)));
}

// As many rows of the angles as there are positions, at most.
double share_read(const Node&, const NodeSizes& sizes, size_t operand) {
  const bool some = sizes.inputs.size() > kPositions && (operand == 1 || operand == 2);
  return some ? rows_read(elements(sizes.inputs[kPositions]), sizes.inputs[operand][0]) : 1;
}

constexpr SampleAxis kAxes[] = {{.name = "d", .fixed = true, .step = 2, .refusal = kEven}, {"t"}};
// Heads, then the axis that is not swept, then what lies outside of both.
constexpr std::initializer_list<int64_t> kAround[] = {{5, 6},  {1, 2},  {5, 2}, {5, 6, 2}, {5, 16},
                                                      {1, 64}, {5, 34}, {0, 6}, {1, 8, 3}};
constexpr int kPlain = 0, kOfTokens = 1, kWays = 3;  // positions: none, [T], the batch's own

// Of x, of the angles, of positions.
struct Types {
  ir::DType x, angles, positions;
};
constexpr Types kTypes[] = {{ir::DType::f32, ir::DType::f32, ir::DType::i32},
                            {ir::DType::bf16, ir::DType::f32, ir::DType::i64},
                            {ir::DType::f32, ir::DType::f32, ir::DType::i64},
                            {ir::DType::bf16, ir::DType::bf16, ir::DType::i32},
                            {ir::DType::f16, ir::DType::f16, ir::DType::i32}};

int variants(const OpRow&) { return 2 * 2 * kWays * static_cast<int>(std::size(kTypes)); }

void operands(Graph& g, const OpRow&, size_t axis, int variant, const SampleSizes& s, Node& node) {
  const DimDesc &d = axis == 0 ? s.swept : s.others[1], &t = axis == 0 ? s.others[1] : s.swept;
  node.attrs.push_back({"interleaved", take(variant, 2) != 0});
  const bool part = take(variant, 2) != 0;
  const int way = take(variant, kWays);
  const Types& types = kTypes[take(variant, static_cast<int>(std::size(kTypes)))];
  std::vector<DimDesc> outside(s.others.begin() + 2, s.others.end());
  outside.push_back(t);
  std::vector<DimDesc> x = outside;
  x.insert(x.end(), {s.others[0], d});
  const std::vector<DimDesc> table = {way == kPlain ? t : fixed_dim(40), fixed_dim(d.max / (part ? 4 : 2))};
  node.inputs.push_back(add_tensor(g, "x", x, false, types.x));
  node.inputs.push_back(add_tensor(g, "cos", table, false, types.angles));
  node.inputs.push_back(add_tensor(g, "sin", table, false, types.angles));
  if (way != kPlain) {
    const std::vector<DimDesc> dims = way == kOfTokens ? std::vector{t} : outside;
    node.inputs.push_back(add_tensor(g, "positions", dims, false, types.positions));
  }
}

SampleSizes sizes(Draw& draw, size_t axis) {
  const DimDesc d = fixed_dim(2 * draw.size(64)), t = axis == 0 ? fixed_dim(draw.size(40)) : draw.swept(40);
  SampleSizes out{axis == 0 ? d : t, {fixed_dim(1 + draw.below(8)), axis == 0 ? t : d}};
  if (draw.chance(4)) out.others.push_back(fixed_dim(2));
  return out;
}

}  // namespace

constexpr Family families::rope = {
    .name = "rope",
    .operand_dtypes = operand_dtypes,
    .infer = infer,
    .results = one_result,
    .lower = lower_group,
    .flops = one_per_element,
    .share_read = share_read,
    .updates = updates_none,
    .in_place = false,
    .error_rule = ErrorRule::tolerance_of_functions,
    .fusion =
        {.element = std::nullopt, .followed = false, .preceded = 0, .packed = 0, .stored = false, .f32_alone = false},
    .samples = {.axes = kAxes,
                .variants = variants,
                .operands = operands,
                .least_others = 2,
                .around = kAround,
                .sizes = sizes,
                .one_in = 0},
};

}  // namespace lathe::ops
