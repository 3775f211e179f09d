// The elementwise family: the expression of each operator, and the nest of a chain.
//
//   for i [row]: for j [col]: y = f(e0, e1, ...)
//
// One dimension where all tensors are compact. Operands e0, e1, ..., t0, t1, ... of what is stored on the way, y.
#include <algorithm>
#include <cstddef>

#include "ops/kernel_writer.h"
#include "ops/monomial.h"
#include "ops/samples.h"
#include "ops/shape.h"

namespace lathe::ops {

using ir::DType;
using ir::Expr;
using ir::Op;

namespace {
Expr call(Op op, Expr x) { return ir::make(op, {std::move(x)}); }

Expr gelu(const Expr& x, bool tanh_form) {
  if (!tanh_form) return x * call(Op::k_normal_cdf, x);
  // (1 + tanh u) / 2 = sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3)
  constexpr double kTwice = 1.59576912160573072;
  return x * call(Op::k_sigmoid, x * ir::make(Op::k_fma, {x * x, f32(0.044715 * kTwice), f32(kTwice)}));
}
Expr silu(const Expr& x) { return x * call(Op::k_sigmoid, x); }
bool tanh_form(const Node& node) { return std::get<std::string>(attr(node, AttrId::approximate)) == "tanh"; }

// True if every operand fills the result densely, or is a single value: then all of it is one run
// of memory.
bool one_run(KernelWriter& w) {
  const View& out = w.view(w.group().output);
  if (!out.strides.empty()) return false;
  for (int t : w.group().stored) {
    if (!w.view(t).strides.empty()) return false;
  }
  for (int t : w.externals()) {
    const View& v = w.view(t);
    bool single = true, full = v.strides.empty() && v.dims.size() == out.dims.size();
    for (size_t d = 0; d < v.dims.size(); ++d) {
      single = single && ir::is_const_int(v.dims[d], 1);
      full = full && ir::equal(v.dims[d], out.dims[d]);
    }
    if (!single && !full) return false;
  }
  return true;
}

void merge_dims(View& v) {
  Expr size(1);
  for (const Expr& d : v.dims) size = multiply(size, d);
  v = {{size}, {}};
}

Expr element(const Node& node, const std::vector<Expr>& a) {
  const Expr& x = a[0];
  switch (op_row(node).id) {
    case OpId::add:
      return x + a[1];
    case OpId::sub:
      return x - a[1];
    case OpId::mul:
      return x * a[1];
    case OpId::div:
      return x / a[1];
    case OpId::minimum:
      return ir::min(x, a[1]);
    case OpId::maximum:
      return ir::max(x, a[1]);
    case OpId::neg:
      return -x;
    case OpId::abs:
      return call(Op::k_abs, x);
    case OpId::exp:
      return call(Op::k_exp, x);
    case OpId::log:
      return call(Op::k_log, x);
    case OpId::sqrt:
      return call(Op::k_sqrt, x);
    case OpId::rsqrt:
      return call(Op::k_rsqrt, x);
    case OpId::tanh:
      return call(Op::k_tanh, x);
    case OpId::erf:
      return call(Op::k_erf, x);
    case OpId::sigmoid:
      return call(Op::k_sigmoid, x);
    case OpId::sin:
      return call(Op::k_sin, x);
    case OpId::cos:
      return call(Op::k_cos, x);
    case OpId::floor:
      return call(Op::k_floor, x);
    case OpId::round:
      return call(Op::k_round, x);
    case OpId::relu:
      return ir::max(x, f32(0));
    case OpId::gelu:
      return gelu(x, tanh_form(node));
    case OpId::silu:
      return silu(x);
    case OpId::scale:
      return x * f32(attr_float(node, AttrId::value));
    case OpId::add_scalar:
      return x + f32(attr_float(node, AttrId::value));
    case OpId::swiglu:
      return silu(x) * a[1];
    case OpId::geglu:
      return gelu(x, tanh_form(node)) * a[1];
    case OpId::where:
      return ir::select(x, a[1], a[2]);
    case OpId::cast:  // its kernel ends with it (fusion.cc) unless the result is f32
      return as_dtype(*ir::parse_dtype(std::get<std::string>(attr(node, AttrId::to))), x);
    default:
      return {};
  }
}

ir::Result<LoweredKernel> lower_group(KernelWriter& w) {
  const int output = w.group().output;
  if (w.view(output).dims.size() != 1 && one_run(w)) {
    for (int t : w.externals()) merge_dims(w.view(t));
    for (int t : w.group().stored) merge_dims(w.view(t));
    merge_dims(w.view(output));
  }
  const std::vector<Expr>& dims = w.view(output).dims;
  std::vector<std::string> names = iter_names("i", dims.size() - 1);
  std::vector<std::string> roles(names.size(), "row");
  names.emplace_back("j");
  roles.emplace_back("col");
  const Index index = iters(names);
  return w.finish("y", nest(names, dims, roles, w.store_results("y", index)));
}

std::span<const DType> operand_dtypes(const OpRow& row, size_t number) {
  static constexpr DType kMask[] = {DType::b8}, kSummed[] = {DType::f32, DType::bf16, DType::f16, DType::i32};
  static constexpr std::span<const DType> kFloats = std::span(kSummed).first(3);
  if (row.id == OpId::add) return kSummed;
  if (row.id == OpId::cast) return cast_dtypes();
  if (row.id == OpId::where && number == 0) return kMask;
  return kFloats;
}

// The one dtype of the data operands, or f32 where they differ.
DType common_dtype(const OpRow& row, const Inputs& in) {
  const size_t first = row.id == OpId::where ? 1 : 0;
  const bool same = std::all_of(in.begin() + static_cast<std::ptrdiff_t>(first), in.end(),
                                [&](const TensorDesc* t) { return t->dtype == in[first]->dtype; });
  return same ? in[first]->dtype : DType::f32;
}

// Integers are added to integers.
ir::Status check_integers(const OpRow& row, const Inputs& in) {
  if (row.id != OpId::add || (in[0]->dtype == DType::i32) == (in[1]->dtype == DType::i32)) return {};
  const TensorDesc& other = *in[in[0]->dtype == DType::i32 ? 1 : 0];
  return ir::unsupported("dtype {} of {} beside i32, expected i32; cast one of them", ir::dtype_name(other.dtype),
                         row.name)
      .with_arg(other.name);
}

ir::Result<Shape> infer(const OpRow& row, const Node& node, const Inputs& in) {
  LATHE_RETURN_IF_ERROR(check_integers(row, in));
  Shape out;
  out.dtype = common_dtype(row, in);
  if (row.id == OpId::cast) {
    const auto& name = std::get<std::string>(attr(node, AttrId::to));
    const std::optional<DType> to = ir::parse_dtype(name);
    const auto served = cast_dtypes();
    if (!to || std::find(served.begin(), served.end(), *to) == served.end()) {
      const std::string text = fmt::format("to \"{}\" of {}, expected {}", name, row.name, list_of(served));
      return (to ? ir::unsupported("{}", text) : ir::invalid("{}", text)).with_arg(in[0]->name);
    }
    out.dtype = *to;
  }
  for (const TensorDesc* t : in) LATHE_RETURN_IF_ERROR(broadcast_into(out.dims, *t, 0, t->dims.size()));
  if (row.attrs & kHas_approximate) {
    const auto& form = std::get<std::string>(attr(node, AttrId::approximate));
    if (form != "none" && form != "tanh") {
      return ir::invalid("approximate \"{}\" of {}, expected \"none\" or \"tanh\"", form, row.name)
          .with_arg(in[0]->name);
    }
  }
  return out;
}

size_t last_operand(const OpRow& row) { return static_cast<size_t>(row.max_arity) - 1; }  // where has its mask first

int variants(const OpRow& row) {
  const int dtypes = static_cast<int>(operand_dtypes(row, last_operand(row)).size());
  return (row.attrs & kHas_approximate ? 2 : 1) * (row.max_arity > 1 ? 3 : 1) * dtypes *
         (row.attrs & kHas_to ? static_cast<int>(cast_dtypes().size()) : 1);
}

void operands(Graph& g, const OpRow& row, size_t, int variant, const SampleSizes& s, Node& node) {
  const bool tanh = (row.attrs & kHas_approximate) && take(variant, 2) != 0;
  // Operands after the first: as the first; of the last dimension; one value.
  const int spread = row.max_arity > 1 ? take(variant, 3) : 0;
  const DType dtype = take_dtype(variant, row, last_operand(row));
  for (int i = static_cast<int>(node.inputs.size()); i < row.max_arity; ++i) {
    std::vector<DimDesc> dims = with_last(s.others, s.swept);
    if (i > 0 && spread == 1) dims = {s.swept};
    if (i > 0 && spread == 2) dims = {fixed_dim(1)};
    const auto served = operand_dtypes(row, static_cast<size_t>(i));
    const bool takes = std::find(served.begin(), served.end(), dtype) != served.end();
    const std::string name = fmt::format("x{}", g.tensors.size());
    node.inputs.push_back(add_tensor(g, name, dims, false, takes ? dtype : served[0]));
  }
  if (tanh) node.attrs.push_back({"approximate", std::string("tanh")});
  if (row.attrs & kHas_value) node.attrs.push_back({"value", 0.5});
  if (row.attrs & kHas_to) {
    const auto to = cast_dtypes();
    node.attrs.push_back(
        {"to", std::string(ir::dtype_name(to[static_cast<size_t>(take(variant, static_cast<int>(to.size())))]))});
  }
}
}  // namespace

constexpr Family families::elementwise = {
    .name = "elementwise",
    .operand_dtypes = operand_dtypes,
    .infer = infer,
    .results = one_result,
    .lower = lower_group,
    .flops = one_per_element,
    .share_read = all_read,
    .updates = updates_none,
    .in_place = true,
    .error_rule = ErrorRule::tolerance_of_functions,
    .fusion = {.element = element, .followed = false, .preceded = 0, .packed = 0, .stored = true, .f32_alone = false},
    .samples = {.axes = kLastAxis,
                .variants = variants,
                .operands = operands,
                .least_others = 0,
                .around = kAnyAround,
                .sizes = any_sizes,
                .one_in = 0},
};

}  // namespace lathe::ops
