// The row family: reductions over the last axis and what normalises by them.
//
//   for b [row]:  acc = ...;  for n [col]: acc op= s;  ...  for n2 [col]: d = f(s, acc)
//
// An elementwise prologue of an operator with a full result is stored by the first pass and read from there: in d, or
// in e where d is not f32 (softmax: always, as e holds the exponentials later). If it is stored as a result t0 of its
// own, and is f32, it is read from there. A NaN that fmax drops in softmax comes
// back through the sum.
//
// argmax finds the maximum, then the lowest index that has it, in i32; the largest number says that there is none yet:
//
//   for n1 [col]: i min= select(s == m or s != s, n1, 2147483647);  d = i | i + 1 >> 31
//
// Operands s, then scale g and bias h, e0, e1, ..., t0, t1, ... of what is stored on the way, d.
#include <algorithm>
#include <limits>

#include "ops/kernel_writer.h"
#include "ops/monomial.h"
#include "ops/samples.h"
#include "ops/shape.h"

namespace lathe::ops {

using ir::AssignOp;
using ir::Expr;
using ir::Stmt;

namespace {
class RowWriter {
 public:
  explicit RowWriter(KernelWriter& w);
  LoweredKernel run();

 private:
  Stmt col(const std::string& iter, std::vector<Stmt> body) {
    return ir::make_scope(iter, width_, std::move(body), "col");
  }
  Index at(const std::string& n) const {
    Index i = rows_;
    i.push_back(ir::iter(n));
    return i;
  }
  // Value of the reduced operand. The pass over "n" is the first: there stage() stores a prologue.
  Expr x(const std::string& n) const { return staged_ ? load(stage_, at(n)) : w_.value(input_, at(n)); }
  std::vector<Stmt> stage(std::vector<Stmt> body);
  void add_row(const std::string& name) {
    std::vector<Expr> all = extents_;
    all.push_back(width_);
    w_.add_temp(name, std::move(all));
  }
  Expr acc(const std::string& name) const { return load(name, rows_); }
  // d at "n" of the last pass, or of the row: the followers of the operator's result.
  std::vector<Stmt> result(Expr value, const Index& index) {
    w_.bind(node_.output, std::move(value));
    return w_.store_results("d", index);
  }
  bool rounds_to_bf16() const;
  std::vector<Stmt> softmax();
  std::vector<Stmt> norm(bool centred);
  std::vector<Stmt> reduce(OpId id);
  std::vector<Stmt> argmax();
  Index kept_index() const;

  KernelWriter& w_;
  const Node& node_;
  int input_;
  bool staged_ = false;
  std::string stage_ = "d";  // where
  std::string own_result_;   // of the prologue, if that is where
  std::vector<std::string> names_;
  std::vector<Expr> extents_;
  Index rows_;
  Expr width_;
};

RowWriter::RowWriter(KernelWriter& w) : w_(w), node_(w.anchor()), input_(node_.inputs[0]) {
  if (w_.view(input_).dims.size() == 1) w_.add_row_dim();
  const std::vector<Expr>& dims = w_.view(input_).dims;
  width_ = dims.back();
  extents_.assign(dims.begin(), dims.end() - 1);
  names_ = iter_names("b", extents_.size());
  rows_ = iters(names_);
  const auto& outside = w_.externals();
  const bool prologue = std::find(outside.begin(), outside.end(), input_) == outside.end();
  const bool full = !(op_row(node_).attrs & kHas_keepdims);
  staged_ = prologue && full;
  if (!prologue) w_.add_param(input_, "s");
  if (staged_ && w_.graph().tensors[w_.group().output].dtype != ir::DType::f32) stage_ = "e";
  const std::vector<int> ahead = w_.stored_ahead();
  const auto stored = std::find(ahead.begin(), ahead.end(), input_);
  if (staged_ && stored != ahead.end() && w_.graph().tensors[input_].dtype == ir::DType::f32)
    stage_ = own_result_ = fmt::format("t{}", stored - ahead.begin());
  const char* extra[] = {"g", "h"};
  for (size_t i = 1; i < node_.inputs.size(); ++i) {
    const int t = node_.inputs[i];
    if (std::find(node_.inputs.begin(), node_.inputs.begin() + i, t) == node_.inputs.begin() + i)
      w_.add_param(t, extra[i - 1]);
  }
}

std::vector<Stmt> RowWriter::stage(std::vector<Stmt> body) {
  std::vector<Stmt> out;
  for (const int t : w_.stored_ahead()) out.push_back(w_.store_also(t, at("n")));
  if (staged_ && stage_ != own_result_) out.push_back(store(stage_, at("n"), w_.value(input_, at("n"))));
  for (Stmt& s : body) out.push_back(std::move(s));
  return out;
}

// Whether the operator's result is rounded to bf16, and nothing else is made of it.
bool RowWriter::rounds_to_bf16() const {
  return node_.output == w_.group().output &&
         w_.graph().tensors[static_cast<size_t>(node_.output)].dtype == ir::DType::bf16;
}

std::vector<Stmt> RowWriter::softmax() {
  w_.add_temp("m", extents_);
  w_.add_temp("a", extents_);
  w_.add_temp("r", extents_);
  add_row("e");
  stage_ = "e";
  const Index n1 = at("n1"), n2 = at("n2");
  std::vector<Stmt> body;
  body.push_back(store("m", rows_, f32(-std::numeric_limits<double>::infinity())));
  body.push_back(col("n", stage({store("m", rows_, x("n"), AssignOp::fmax)})));
  body.push_back(store("a", rows_, f32(0)));
  const Expr power = (x("n1") - acc("m")) * f32(1.4426950408889634);
  const ir::Op exp2 = rounds_to_bf16() ? ir::Op::k_exp2_bf16 : ir::Op::k_exp2;
  body.push_back(col("n1", {store("e", n1, ir::make(exp2, {power})), store("a", rows_, load("e", n1), AssignOp::add)}));
  body.push_back(store("r", rows_, f32(1) / acc("a")));
  body.push_back(col("n2", result(load("e", n2) * acc("r"), n2)));
  return body;
}

std::vector<Stmt> RowWriter::norm(bool centred) {
  const Expr count = f32_of(width_), epsilon = f32(attr_float(node_, AttrId::epsilon));
  std::vector<Stmt> body;
  if (staged_ && stage_ == "e") add_row("e");
  const auto centre = [&](const std::string& n) { return centred ? x(n) - acc("u") : x(n); };
  if (centred) {
    w_.add_temp("u", extents_);
    body.push_back(store("u", rows_, f32(0)));
    body.push_back(col("n", stage({store("u", rows_, x("n"), AssignOp::add)})));
    body.push_back(store("u", rows_, acc("u") / count));
  }
  w_.add_temp("v", extents_);
  w_.add_temp("r", extents_);
  const std::string second = centred ? "n1" : "n", last = centred ? "n2" : "n1";
  body.push_back(store("v", rows_, f32(0)));
  std::vector<Stmt> squares{store("v", rows_, centre(second) * centre(second), AssignOp::add)};
  body.push_back(col(second, centred ? std::move(squares) : stage(std::move(squares))));
  body.push_back(store("r", rows_, ir::make(ir::Op::k_rsqrt, {acc("v") / count + epsilon})));
  const Index index = at(last);
  Expr y = centre(last) * acc("r");
  if (node_.inputs.size() > 1) y = y * w_.value(node_.inputs[1], index);
  if (node_.inputs.size() > 2) y = y + w_.value(node_.inputs[2], index);
  if (staged_) w_.bind(input_, x(last));
  body.push_back(col(last, result(std::move(y), index)));
  return body;
}

// Of the row's only result.
Index RowWriter::kept_index() const {
  Index index = rows_;
  if (attr_bool(node_, AttrId::keepdims)) index.emplace_back(0);
  return index;
}

// A NaN makes the maximum NaN, which equals nothing: then the first NaN is found. An empty row gives -1.
std::vector<Stmt> RowWriter::argmax() {
  const ir::DType i32 = ir::DType::i32, to = w_.graph().tensors[static_cast<size_t>(node_.output)].dtype;
  w_.add_temp("a", extents_);
  w_.add_temp("i", extents_, i32);
  const auto number = [&](int64_t n) { return ir::const_int(n, i32); };
  const Expr index = ir::load("i", rows_, i32), value = x("n1");
  const Expr found = ir::make(ir::Op::k_logical_or,
                              {ir::make(ir::Op::k_eq, {value, acc("a")}), ir::make(ir::Op::k_ne, {value, value})});
  std::vector<Stmt> body;
  body.push_back(store("a", rows_, f32(-std::numeric_limits<double>::infinity())));
  body.push_back(col("n", {store("a", rows_, x("n"), AssignOp::max)}));
  body.push_back(store("i", rows_, number(INT32_MAX)));
  body.push_back(col(
      "n1", {store("i", rows_, ir::select(found, ir::cast(i32, ir::iter("n1")), number(INT32_MAX)), AssignOp::min)}));
  const Expr none = ir::make(ir::Op::k_shift_right, {index + number(1), Expr(31)});
  body.push_back(store("d", kept_index(), as_dtype(to, ir::make(ir::Op::k_bit_or, {index, none}))));
  return body;
}

std::vector<Stmt> RowWriter::reduce(OpId id) {
  w_.add_temp("a", extents_);
  const bool max = id == OpId::max;
  std::vector<Stmt> body;
  body.push_back(store("a", rows_, max ? f32(-std::numeric_limits<double>::infinity()) : f32(0)));
  body.push_back(col("n", stage({store("a", rows_, x("n"), max ? AssignOp::max : AssignOp::add)})));
  for (Stmt& s : result(id == OpId::mean ? acc("a") / f32_of(width_) : acc("a"), kept_index()))
    body.push_back(std::move(s));
  return body;
}

LoweredKernel RowWriter::run() {
  const OpId id = op_row(node_).id;
  std::vector<Stmt> body = id == OpId::softmax                            ? softmax()
                           : id == OpId::layernorm || id == OpId::rmsnorm ? norm(id == OpId::layernorm)
                           : id == OpId::argmax                           ? argmax()
                                                                          : reduce(id);
  const std::vector<std::string> roles(names_.size(), "row");
  return w_.finish("d", nest(names_, extents_, roles, std::move(body)));
}

ir::Result<LoweredKernel> lower_group(KernelWriter& w) { return RowWriter(w).run(); }

std::span<const ir::DType> operand_dtypes(const OpRow&, size_t) {
  static constexpr ir::DType kFloats[] = {ir::DType::f32, ir::DType::bf16, ir::DType::f16};
  return kFloats;
}

// Of the result, as attribute `to` says.
ir::Result<ir::DType> index_dtype(const OpRow& row, const Node& node, const TensorDesc& x) {
  const auto& name = std::get<std::string>(attr(node, AttrId::to));
  if (name == "i32") return ir::DType::i32;
  if (name == "i64") return ir::DType::i64;
  const bool other = ir::parse_dtype(name).has_value();
  const std::string text = fmt::format("to \"{}\" of {}, expected i32, i64", name, row.name);
  return (other ? ir::unsupported("{}", text) : ir::invalid("{}", text)).with_arg(x.name);
}

ir::Result<Shape> infer(const OpRow& row, const Node& node, const Inputs& in) {
  const TensorDesc& x = *in[0];
  LATHE_RETURN_IF_ERROR(need_rank(x, 1, true, row.name));
  LATHE_RETURN_IF_ERROR(need_last_axis(x, attr_int(node, AttrId::axis), row.name));
  for (size_t i = 1; i < in.size(); ++i) {  // scale, bias
    LATHE_RETURN_IF_ERROR(need_rank(*in[i], 1, false, row.name));
    if (!same_dim(in[i]->dims[0], x.dims.back())) {
      return mismatch(*in[i], 0, fmt::format("{} (last of {})", dim_text(x.dims.back()), x.name));
    }
  }
  Shape out{x.dtype, x.dims};
  if (row.id == OpId::argmax) {
    LATHE_ASSIGN(out.dtype, index_dtype(row, node, x));
    if (x.dims.back().max > INT32_MAX) return mismatch(x, x.dims.size() - 1, "at most 2147483647, the largest i32");
  }
  if (row.attrs & kHas_keepdims) {
    out.dims.pop_back();
    if (attr_bool(node, AttrId::keepdims)) out.dims.push_back(fixed_dim(1));
  }
  if ((row.attrs & kHas_epsilon) && attr_float(node, AttrId::epsilon) < 0) {
    return ir::invalid("epsilon {} of {}, expected >= 0", attr_float(node, AttrId::epsilon), row.name).with_arg(x.name);
  }
  return out;
}

constexpr const char* kIndexDtypes[] = {"i32", "i64"};

int variants(const OpRow& row) {
  const int dtypes = static_cast<int>(operand_dtypes(row, 0).size()) * (row.attrs & kHas_to ? 2 : 1);
  return (row.max_arity - row.min_arity + 1) * (row.attrs & kHas_keepdims ? 2 : 1) * dtypes;
}

void operands(Graph& g, const OpRow& row, size_t, int variant, const SampleSizes& s, Node& node) {
  const int arity = row.min_arity + take(variant, row.max_arity - row.min_arity + 1);
  const bool keepdims = (row.attrs & kHas_keepdims) && take(variant, 2) != 0;
  if (row.attrs & kHas_to) node.attrs.push_back({"to", std::string(kIndexDtypes[take(variant, 2)])});
  const ir::DType dtype = take_dtype(variant, row, 0);
  node.inputs.push_back(add_tensor(g, "x", with_last(s.others, s.swept), false, dtype));
  for (int i = 1; i < arity; ++i)  // the scale may be wider than what it scales
    node.inputs.push_back(add_tensor(g, i == 1 ? "scale" : "bias", {s.swept}, true, i == 1 ? ir::DType::f32 : dtype));
  if (row.attrs & kHas_keepdims) node.attrs.push_back({"keepdims", keepdims});
}
}  // namespace

constexpr Family families::row = {
    .name = "row",
    .operand_dtypes = operand_dtypes,
    .infer = infer,
    .results = one_result,
    .lower = lower_group,
    .flops = one_per_element,
    .share_read = all_read,
    .updates = updates_none,
    .in_place = true,
    .error_rule = ErrorRule::tolerance_of_functions,
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
