// Weights of few bits, in the formats of quant_formats.def. dequantize gives them as f32[N, K], quantized_gather the
// rows that integers choose; quantized_matmul multiplies by them:
//
//   for t [batch]: for m [m]: for n [n]:            for n [n]: for k [k]:      for t [batch]: for n [n]: for k [k]:
//     c = 0;  for k [k]: c += a * v;  y = f(c)         y = f(v)                  y = f(v at row ids[t, n])
//
// quantized_expert_matmul and quantized_grouped_matmul multiply by those of several that integers choose
// (ops/families/expert_rows.h).
//
// v is the weight's expression of the format. Operands: a, the fields f0, f1, ..., the groups g of inputs, ids or
// offsets, then e0, e1, ... of the followers, y. Sums are f32 whatever a is; the result has the dtype of a.
#include <algorithm>

#include "ops/families/expert_rows.h"
#include "ops/quant_formats.h"
#include "ops/samples.h"

namespace lathe::ops {

using ir::Expr;

namespace {

bool gathers(const OpRow& row) { return row.id == OpId::quantized_gather; }
bool multiplies(const OpRow& row) { return row.id != OpId::dequantize && !gathers(row); }
bool grouped(const OpRow& row) { return row.id == OpId::quantized_grouped_matmul; }
bool chooses(const OpRow& row) { return row.id == OpId::quantized_expert_matmul || grouped(row); }
// Whether the last operand is integers.
bool has_integers(const OpRow& row) { return gathers(row) || chooses(row); }

std::span<const ir::DType> operand_dtypes(const OpRow& row, size_t number) {
  static constexpr ir::DType kFloats[] = {ir::DType::f32, ir::DType::bf16, ir::DType::f16};
  static constexpr ir::DType kFields[] = {ir::DType::u8,   ir::DType::i8,  ir::DType::i32, ir::DType::f32,
                                          ir::DType::bf16, ir::DType::f16, ir::DType::i64};
  if (multiplies(row) && number == 0) return kFloats;
  return {kFields, has_integers(row) ? std::size(kFields) : std::size(kFields) - 1};  // i64: of ids
}

// The operands that hold the weight, and the groups of inputs behind them if there are any.
std::vector<const TensorDesc*> fields_of(const OpRow& row, const std::vector<const TensorDesc*>& inputs) {
  return {inputs.begin() + (multiplies(row) ? 1 : 0), inputs.end() - (has_integers(row) ? 1 : 0)};
}

// The group of each input: its values are checked before a call.
ir::Status check_order(const TensorDesc& order, const QuantWeight& weight) {
  const auto refused = [&](const std::string& what, const std::string& expected) {
    return ir::invalid("{}, expected {} (g_idx of {}, a group for each of K inputs)", what, expected,
                       weight.format->name);
  };
  if (order.dtype != ir::DType::i32)
    return refused(fmt::format("dtype {}", ir::dtype_name(order.dtype)), "i32").with_arg(order.name);
  if (order.dims.size() != 1)
    return refused(fmt::format("{} dimensions", order.dims.size()), "1").with_arg(order.name + ".shape");
  if (!same_dim(order.dims[0], fixed_dim(weight.k)))
    return refused(dim_text(order.dims[0]), fmt::format("{}", weight.k)).with_arg(order.name + ".shape[0]");
  if (!order.constant) return refused("no constant", "one").with_arg(order.name);
  return {};
}

ir::Result<QuantWeight> weight_of(const OpRow& row, const Node& node, const Inputs& in) {
  const std::string& name = std::get<std::string>(attr(node, AttrId::format));
  const QuantFormat* format = find_quant_format(name);
  if (format == nullptr)
    return ir::invalid("format \"{}\", expected one of {}", name, quant_format_names()).with_arg(row.name);
  std::vector<const TensorDesc*> operands = fields_of(row, in);
  const TensorDesc* const order = operands.size() == format->tensors() + 1 ? operands.back() : nullptr;
  const bool regroups = format->regroups() && !chooses(row);
  if (order != nullptr && regroups) operands.pop_back();
  if (operands.size() != format->tensors()) {
    const char* more = regroups ? ", or g_idx besides" : order != nullptr ? ": it takes no g_idx" : "";
    if (order != nullptr && chooses(row)) more = ": weights to choose from take no g_idx";
    return ir::invalid("{} operands hold the weight, expected {} ({}{})", operands.size(), format->tensors(), name,
                       more)
        .with_arg(row.name);
  }
  int64_t k = 0;
  if (multiplies(row)) {
    const TensorDesc& a = *in[0];
    LATHE_RETURN_IF_ERROR(need_rank(a, chooses(row) ? 1 : 2, true, row.name));
    const DimDesc& depth = a.dims.back();
    if (!depth.fixed() || depth.max == 0) return mismatch(a, a.dims.size() - 1, "a fixed size of at least 1");
    k = depth.max;
  }
  LATHE_ASSIGN(const QuantWeight weight,
               quant_weight(*format, k, attr_int(node, AttrId::group), operands, chooses(row)));
  if (order != nullptr) LATHE_RETURN_IF_ERROR(check_order(*order, weight));
  return weight;
}

ir::Result<Shape> infer(const OpRow& row, const Node& node, const Inputs& in) {
  LATHE_ASSIGN(const QuantWeight weight, weight_of(row, node, in));
  if (gathers(row)) return chosen_rows(*in.back(), ir::DType::f32, fixed_dim(weight.k));
  if (!multiplies(row)) return Shape{ir::DType::f32, {weight.n, fixed_dim(weight.k)}};
  Shape out{in[0]->dtype, in[0]->dims};
  if (chooses(row)) {
    const TensorDesc& ids = *in.back();
    if (ids.dtype != ir::DType::i32 && ids.dtype != ir::DType::i64)
      return ir::invalid("dtype {}, expected i32 or i64", ir::dtype_name(ids.dtype)).with_arg(ids.name);
    LATHE_ASSIGN(out.dims, chosen_dims(row, grouped(row), *in[0], *in[1], ids));
    out.dims.emplace_back();
  }
  out.dims.back() = weight.n;
  return out;
}

// Two per multiply-add.
double flops(const Node& node, const NodeSizes& sizes) {
  if (!multiplies(op_row(node))) return elements(sizes.output);
  return 2.0 * elements(sizes.output) * static_cast<double>(sizes.inputs[0].back());
}

// Of chosen rows of blocks only those, of chosen weights as many as there are rows.
double share_read(const Node& node, const NodeSizes& sizes, size_t operand) {
  const OpRow& row = op_row(node);
  if (chooses(row)) return operand == 0 || operand + 1 == sizes.inputs.size() ? 1 : chosen_share(sizes, grouped(row));
  const QuantFormat* format = find_quant_format(std::get<std::string>(attr(node, AttrId::format)));
  const bool blocks = format != nullptr && format->place == FieldsIn::kBlocks;
  if (!gathers(row) || !blocks || operand > 0) return 1;
  return rows_read(elements(sizes.inputs.back()), sizes.inputs[0][0]);
}

// The expression with loads of another name.
Expr renamed(const Expr& made, const std::string& from, const std::string& to) {
  return ir::rewrite(made, [&](const Expr& e) -> Expr {
    return e->op == ir::Op::k_load && e->name == from ? ir::load(to, e->args, e->type) : Expr();
  });
}

// The weight's operands as parameters.
struct WeightParams {
  QuantWeight weight;
  std::vector<QuantField> fields;
  std::vector<std::string> names;
  Expr group_of_k;  // of reordered inputs
  Expr value(const Expr& n, const Expr& k, const Expr& matrix = {}) const {
    return quant_value(weight, fields, names, n, k, {group_of_k, matrix});
  }
};

ir::Result<WeightParams> declare_weight(KernelWriter& w) {
  const Node& node = w.anchor();
  const OpRow& row = op_row(node);
  std::vector<const TensorDesc*> inputs;
  for (const int t : node.inputs) inputs.push_back(&w.graph().tensors[t]);
  WeightParams out;
  LATHE_ASSIGN(out.weight, weight_of(row, node, inputs));
  out.weight.packed = multiplies(row) && inputs[1]->constant;  // else read as the fields lie
  std::vector<const TensorDesc*> held = fields_of(row, inputs);
  const bool ordered = held.size() > out.weight.format->tensors();
  held.resize(out.weight.format->tensors());
  out.weight.reordered = ordered;
  out.fields = quant_fields(out.weight, held);
  const size_t first = multiplies(row) ? 1 : 0;
  for (const QuantField& f : out.fields) {
    ir::Buffer part = f.buffer;
    part.name = fmt::format("f{}", out.names.size());
    part.made = renamed(part.made, f.buffer.name, part.name);
    out.names.push_back(part.name);
    w.add_part(node.inputs[first + f.operand], std::move(part), f.offset, f.part);
  }
  if (ordered) {
    const int order = node.inputs[first + held.size()];
    LATHE_RETURN_IF_ERROR(w.add_integers(order, "g", Expr(out.weight.groups() - 1)));
    out.group_of_k = as_dtype(ir::DType::i64, ir::load("g", {ir::iter("k")}, w.dtype_of("g")));
  }
  return out;
}

ir::Result<LoweredKernel> lower_rows(KernelWriter& w) {
  const Node& node = w.anchor();
  const Expr n = ir::iter("n"), k = ir::iter("k");
  LATHE_ASSIGN(const WeightParams weight, declare_weight(w));
  if (!gathers(op_row(node))) {
    w.bind(node.output, weight.value(n, k));
    return w.finish("y", nest({"n", "k"}, w.view(w.group().output).dims, {"n", "k"}, {w.store_result("y", {n, k})}));
  }
  LATHE_ASSIGN(const std::vector<Expr> rows, w.add_ids(node.inputs.back(), "ids", dim_expr(weight.weight.n)));
  std::vector<std::string> iterators = iter_names("t", std::max<size_t>(rows.size(), 1) - 1);
  std::vector<std::string> roles(iterators.size(), "batch");
  for (const char* name : {"n", "k"}) {
    if (iterators.size() == rows.size() && name[0] == 'n') continue;  // a single row
    iterators.emplace_back(name);
    roles.emplace_back(name);
  }
  const Index at = iters(iterators);
  const Expr id = ir::load("ids", {at.begin(), at.end() - 1}, w.dtype_of("ids"));
  w.bind(node.output, weight.value(as_dtype(ir::DType::i64, id), k));
  return w.finish("y", nest(iterators, w.view(w.group().output).dims, roles, {w.store_result("y", at)}));
}

ir::Result<LoweredKernel> lower_chosen(KernelWriter& w) {
  const int ta = w.anchor().inputs[0];
  ExpertRows rows(w, grouped(op_row(w.anchor())));
  w.add_param(ta, "a");
  LATHE_ASSIGN(const WeightParams weight, declare_weight(w));
  LATHE_RETURN_IF_ERROR(rows.declare_integers(Expr(weight.weight.count)));
  const Expr k = ir::iter("k");
  Index row = rows.row();
  row.push_back(k);
  const Expr left = as_dtype(ir::DType::f32, ir::load("a", row, w.dtype_of("a")));
  return rows.finish(left * weight.value(ir::iter("n"), k, rows.weight()), Expr(weight.weight.k));
}

ir::Result<LoweredKernel> lower_group(KernelWriter& w) {
  const Node& node = w.anchor();
  const OpRow& row = op_row(node);
  if (chooses(row)) return lower_chosen(w);
  if (!multiplies(row)) return lower_rows(w);
  w.add_param(node.inputs[0], "a");
  LATHE_ASSIGN(const WeightParams weight, declare_weight(w));
  const std::vector<Expr> dims = w.view(w.group().output).dims;
  const Expr n = ir::iter("n"), k = ir::iter("k");
  std::vector<std::string> iterators = iter_names("t", dims.size() - 2);
  Index at = iters(iterators);
  at.push_back(ir::iter("m"));
  Index sum = at;
  at.push_back(k);
  sum.push_back(n);
  const Expr left = as_dtype(ir::DType::f32, ir::load("a", at, w.dtype_of("a")));
  w.add_temp("c", dims);
  w.bind(node.output, load("c", sum));
  std::vector<ir::Stmt> body;
  body.push_back(store("c", sum, f32(0)));
  body.push_back(
      ir::make_scope("k", Expr(weight.weight.k), {store("c", sum, left * weight.value(n, k), ir::AssignOp::add)}, "k"));
  body.push_back(w.store_result("y", sum));
  std::vector<std::string> roles(iterators.size(), "batch");
  for (const char* name : {"m", "n"}) {
    iterators.emplace_back(name);
    roles.emplace_back(name);
  }
  return w.finish("y", nest(iterators, dims, roles, std::move(body)));
}

// Blocks of K, which are 32 or 256 weights, or eight.
constexpr SampleAxis kAxes[] = {{"m"}, {"n", true}, {"blocks", true}};
// The two axes that are not swept, in order.
constexpr std::initializer_list<int64_t> kAround[] = {{5, 2}, {33, 1}, {1, 3}, {0, 1}, {5, 0}, {1, 1}};
constexpr int64_t kMostBlocks = 9, kSampleGroup = 32, kSampleWeights = 3;

enum class HeldAs : uint8_t { constants, inputs, reordered };
struct Variant {
  const QuantFormat* format;
  HeldAs held;
};
// Each format as it permits: its fields are inputs if nothing is made of them, groups have an order of their own.
std::vector<Variant> variants_of(const OpRow& row) {
  std::vector<Variant> out;
  for (const QuantFormat& f : quant_formats()) {
    out.push_back({&f, HeldAs::constants});
    if (!f.made) out.push_back({&f, HeldAs::inputs});
    if (f.regroups() && !chooses(row)) out.push_back({&f, HeldAs::reordered});
  }
  return out;
}
int variants(const OpRow& row) { return static_cast<int>(variants_of(row).size()); }

int64_t at_least_one(const DimDesc& d) { return std::max<int64_t>(d.max, 1); }

void operands(Graph& g, const OpRow& row, size_t axis, int variant, const SampleSizes& s, Node& node) {
  std::vector<DimDesc> mnk;
  for (size_t i = 0, other = 0; i < 3; ++i) mnk.push_back(i == axis ? s.swept : s.others[other++]);
  const Variant chosen = variants_of(row)[static_cast<size_t>(variant)];
  const QuantFormat& format = *chosen.format;
  const bool constant = chosen.held != HeldAs::inputs;
  const int64_t multiple = std::max<int64_t>(format.meaning.find_symbol("N")->multiple_of, 1);
  const int64_t unit = format.grouped ? kSampleGroup : format.block;
  const int64_t k = (1 + (at_least_one(mnk[2]) - 1) % kMostBlocks) * unit;
  const int64_t n = at_least_one(mnk[1]) * multiple;
  QuantWeight weight{&format, fixed_dim(n), k, format.grouped ? kSampleGroup : 0};
  if (chooses(row)) weight.count = kSampleWeights;
  if (multiplies(row)) node.inputs.push_back(add_tensor(g, "a", {mnk[0], fixed_dim(k)}));
  if (format.place == FieldsIn::kBlocks) {
    std::vector<DimDesc> dims = {fixed_dim(n), fixed_dim(k / format.block * format.block_bytes)};
    if (chooses(row)) dims.insert(dims.begin(), fixed_dim(kSampleWeights));
    node.inputs.push_back(add_tensor(g, "w", dims, constant, ir::DType::u8));
  } else {
    std::vector<TensorDesc> types(format.tensors());
    std::vector<const TensorDesc*> given;
    for (size_t i = 0; i < types.size(); ++i) {
      types[i].dtype = ir::given_type(format.meaning.buffers[i]);
      given.push_back(&types[i]);
    }
    for (const QuantField& f : quant_fields(weight, given)) {
      std::vector<DimDesc> dims;
      for (const Expr& d : ir::given_dims(f.buffer)) dims.push_back(fixed_dim(d->ival));
      node.inputs.push_back(add_tensor(g, f.buffer.name, dims, constant, ir::given_type(f.buffer)));
    }
  }
  if (chosen.held == HeldAs::reordered)
    node.inputs.push_back(add_tensor(g, "g_idx", {fixed_dim(k)}, true, ir::DType::i32));
  if (has_integers(row))
    node.inputs.push_back(
        add_tensor(g, "ids", {grouped(row) ? fixed_dim(kSampleWeights + 1) : mnk[0]}, false, ir::DType::i32));
  node.attrs = {{"format", format.name}, {"group", weight.group}};
}

SampleSizes sizes(Draw& draw, size_t axis) {
  const DimDesc m = axis == 0 ? draw.swept(100) : fixed_dim(draw.size(100)), n = fixed_dim(draw.size(100)),
                blocks = fixed_dim(1 + draw.below(kMostBlocks));
  if (axis == 0) return {m, {n, blocks}};
  return axis == 1 ? SampleSizes{n, {m, blocks}} : SampleSizes{blocks, {m, n}};
}

}  // namespace

constexpr Family families::quantised = {
    .name = "quantised",
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
