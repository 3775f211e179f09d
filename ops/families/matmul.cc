// The matmul family: y[.., m, n] = f(sum over k of a[.., m, k] * b[.., k, n]), f the fused followers.
//
//   for t [batch]: for m [m]: for n [n]:
//     c = 0;  for k [k]: c += a * b;  y = f(c)
//
// Operands a, b, then e0, e1, ... of the riders, y. Sums are f32 whatever the operands are; the result has the dtype
// of a. What riders make of a constant is made when it is packed; another operand that they make is stored first,
// rounded to its dtype. matmul_integer.cc has the products of bytes.
#include <iterator>

#include "ops/families/matmul_integer.h"
#include "ops/samples.h"

namespace lathe::ops {

using ir::Expr;

namespace {

bool of_bytes(const OpRow& row) { return row.id == OpId::matmul_integer; }

std::span<const ir::DType> operand_dtypes(const OpRow& row, size_t) {
  static constexpr ir::DType kFloats[] = {ir::DType::f32, ir::DType::bf16, ir::DType::f16};
  static constexpr ir::DType kBytes[] = {ir::DType::i8, ir::DType::u8};
  if (of_bytes(row)) return kBytes;
  return kFloats;
}

ir::Result<Shape> infer(const OpRow& row, const Node& node, const Inputs& in) {
  const TensorDesc &a = *in[0], &b = *in[1];
  LATHE_RETURN_IF_ERROR(need_rank(a, 2, true, row.name));
  LATHE_RETURN_IF_ERROR(need_rank(b, 2, true, row.name));
  const size_t ra = a.dims.size(), rb = b.dims.size();
  const bool ta = attr_bool(node, AttrId::transpose_a), tb = attr_bool(node, AttrId::transpose_b);
  const size_t a_k = ta ? ra - 2 : ra - 1, a_m = ta ? ra - 1 : ra - 2;
  const size_t b_k = tb ? rb - 1 : rb - 2, b_n = tb ? rb - 2 : rb - 1;
  if (!same_dim(a.dims[a_k], b.dims[b_k])) {
    return mismatch(a, a_k, fmt::format("{} (K of {})", dim_text(b.dims[b_k]), b.name));
  }
  if (of_bytes(row)) LATHE_RETURN_IF_ERROR(check_integer_product(in, a_k, b.dims[b_n]));
  Shape out;
  out.dtype = of_bytes(row) ? ir::DType::i32 : a.dtype;
  LATHE_RETURN_IF_ERROR(broadcast_into(out.dims, a, 0, ra - 2));
  LATHE_RETURN_IF_ERROR(broadcast_into(out.dims, b, 0, rb - 2));
  out.dims.push_back(a.dims[a_m]);
  out.dims.push_back(b.dims[b_n]);
  return out;
}

// Two per multiply-add.
double flops(const Node& node, const NodeSizes& sizes) {
  const std::vector<int64_t>& a = sizes.inputs[0];
  return 2.0 * elements(sizes.output) *
         static_cast<double>(a[a.size() - (attr_bool(node, AttrId::transpose_a) ? 2 : 1)]);
}

ir::Result<LoweredKernel> lower_group(KernelWriter& w) {
  const Node& node = w.anchor();
  if (of_bytes(op_row(node))) return lower_integer_product(w);
  const int ta = node.inputs[0], tb = node.inputs[1];
  const bool transpose_a = attr_bool(node, AttrId::transpose_a), transpose_b = attr_bool(node, AttrId::transpose_b);
  const std::string a = w.add_operand(ta, "a"), b = w.add_operand(tb, "b");
  const View& va = w.view(ta);
  const std::vector<Expr> dims = w.view(w.group().output).dims;

  std::vector<std::string> names = iter_names("t", dims.size() - 2);
  const Index batch = iters(names);
  const Expr m = ir::iter("m"), n = ir::iter("n"), k = ir::iter("k");
  const auto operand = [&](const std::string& name, int tensor, bool transposed, const Expr& row, const Expr& col) {
    const View& v = w.view(tensor);
    Index index = align(batch, {v.dims.begin(), v.dims.end() - 2});
    index.push_back(transposed ? col : row);
    index.push_back(transposed ? row : col);
    return as_dtype(ir::DType::f32, ir::load(name, std::move(index), w.dtype_of(name)));
  };
  const Expr term = operand(a, ta, transpose_a, m, k) * operand(b, tb, transpose_b, k, n);
  const Expr depth = va.dims[va.dims.size() - (transpose_a ? 2 : 1)];

  Index index = batch;
  index.push_back(m);
  index.push_back(n);
  w.add_temp("c", dims);
  w.bind(node.output, load("c", index));
  std::vector<ir::Stmt> body;
  body.push_back(store("c", index, f32(0)));
  body.push_back(ir::make_scope("k", depth, {store("c", index, term, ir::AssignOp::add)}, "k"));
  body.push_back(w.store_result("y", index));

  std::vector<std::string> roles(names.size(), "batch");
  for (const char* name : {"m", "n"}) {
    names.emplace_back(name);
    roles.emplace_back(name);
  }
  std::vector<ir::Stmt> all = w.stage();
  std::vector<ir::Stmt> product = nest(names, dims, roles, std::move(body));
  all.insert(all.end(), std::make_move_iterator(product.begin()), std::make_move_iterator(product.end()));
  return w.finish("y", std::move(all));
}

constexpr SampleAxis kAxes[] = {{"m"}, {"n"}, {"k"}};
// The two axes that are not swept, in order; then the batch.
constexpr std::initializer_list<int64_t> kAround[] = {{5, 5}, {1, 5}, {5, 1},    {5, 5, 5}, {1, 1},
                                                      {5, 5}, {5, 0}, {5, 1, 1}, {0, 5},    {5, 5}};

// What the operands are: dtypes; the second one an input or a constant; and whether riders make it, or the first one.
struct Kind {
  ir::DType a = ir::DType::f32, b = ir::DType::f32;
  bool constant = false, made = false, a_made = false;
};
constexpr Kind kKinds[] = {
    {ir::DType::f32, ir::DType::f32},
    {ir::DType::f32, ir::DType::f32, true},
    {ir::DType::f32, ir::DType::bf16, true, true},
    {ir::DType::bf16, ir::DType::bf16, true},
    {ir::DType::f32, ir::DType::f16, true},
    {ir::DType::f16, ir::DType::f16},
    {ir::DType::bf16, ir::DType::f32},
    {ir::DType::f32, ir::DType::f32, true, false, true},
    {ir::DType::bf16, ir::DType::bf16, true, false, true},
    {ir::DType::f32, ir::DType::bf16, false, true, true},
};

// The same of bytes, with the zero points that are given; those of b for each column.
struct ByteKind {
  ir::DType a = ir::DType::i8, b = ir::DType::i8;
  bool constant = true;
  int zeros = 0;
  bool columns = false;
};
constexpr ByteKind kByteKinds[] = {
    {ir::DType::i8, ir::DType::i8},          {ir::DType::u8, ir::DType::i8},
    {ir::DType::u8, ir::DType::u8, true, 2}, {ir::DType::i8, ir::DType::u8, true, 2, true},
    {ir::DType::u8, ir::DType::i8, true, 1}, {ir::DType::i8, ir::DType::i8, true, 2, true},
    {ir::DType::i8, ir::DType::i8, false},   {ir::DType::u8, ir::DType::i8, false, 2, true},
};

int variants(const OpRow& row) {
  return 4 * static_cast<int>(of_bytes(row) ? std::size(kByteKinds) : std::size(kKinds));
}

void operands(Graph& g, const OpRow& row, size_t axis, int variant, const SampleSizes& s, Node& node) {
  using Dims = std::vector<DimDesc>;
  Dims mnk;
  for (size_t i = 0, other = 0; i < 3; ++i) mnk.push_back(i == axis ? s.swept : s.others[other++]);
  const bool ta = take(variant, 2), tb = take(variant, 2);
  Kind kind;
  ByteKind bytes;
  if (of_bytes(row)) {
    bytes = kByteKinds[take(variant, static_cast<int>(std::size(kByteKinds)))];
    kind = {bytes.a, bytes.b, bytes.constant};
  } else {
    kind = kKinds[take(variant, static_cast<int>(std::size(kKinds)))];
  }
  const Dims batch(s.others.begin() + 2, s.others.end());
  const auto stored = [](Dims leading, const DimDesc& row, const DimDesc& column, bool turned) {
    leading.push_back(turned ? column : row);
    leading.push_back(turned ? row : column);
    return leading;
  };
  int first = add_tensor(g, "a", stored(batch, mnk[0], mnk[2], ta), false, kind.a);
  if (kind.a_made) {
    const int gate = add_tensor(g, "gate", g.tensors[static_cast<size_t>(first)].dims, false, kind.a);
    first = add_node(g, op_row(OpId::swiglu).name, {first, gate}, "gated");
  }
  node.inputs.push_back(first);
  const Dims b = stored(kind.constant ? Dims{} : batch, mnk[2], mnk[1], tb);
  int weight = add_tensor(g, "b", b, kind.constant, kind.b);
  if (kind.made) {
    weight = add_node(g, op_row(OpId::cast).name, {weight}, "wide", {{"to", std::string("f32")}});
    weight = add_node(g, op_row(OpId::scale).name, {weight}, "scaled", {{"value", 0.5}});
  }
  node.inputs.push_back(weight);
  if (bytes.zeros > 0) node.inputs.push_back(add_tensor(g, "za", {fixed_dim(1)}, false, kind.a));
  if (bytes.zeros > 1)
    node.inputs.push_back(add_tensor(g, "zb", {bytes.columns ? mnk[1] : fixed_dim(1)}, kind.constant, kind.b));
  node.attrs = {{"transpose_a", ta}, {"transpose_b", tb}};
}

SampleSizes sizes(Draw& draw, size_t) {
  SampleSizes out{draw.swept(200), {}};
  for (int i = 0; i < 2; ++i) out.others.push_back(fixed_dim(draw.size(200)));
  if (draw.chance(4)) out.others.push_back(fixed_dim(1 + draw.below(4)));
  return out;
}

}  // namespace

constexpr Family families::matmul = {
    .name = "matmul",
    .operand_dtypes = operand_dtypes,
    .infer = infer,
    .results = one_result,
    .lower = lower_group,
    .flops = flops,
    .share_read = all_read,
    .updates = updates_none,
    .in_place = false,
    .error_rule = ErrorRule::bound_of_sums,
    .fusion =
        {.element = std::nullopt, .followed = true, .preceded = 3, .packed = 3, .stored = false, .f32_alone = false},
    .samples = {.axes = kAxes,
                .variants = variants,
                .operands = operands,
                .least_others = 2,
                .around = kAround,
                .sizes = sizes,
                .one_in = 4},
};

}  // namespace lathe::ops
