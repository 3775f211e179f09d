// The elementwise family: the expression of each operator, and the nest of a chain.
//
//   for i [row]: for j [col]: y = f(e0, e1, ...)
#include "ops/kernel_writer.h"
#include "ops/monomial.h"

namespace lathe::ops {

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
}  // namespace

Expr elementwise_expr(const Node& node, const std::vector<Expr>& a) {
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

ir::Result<LoweredKernel> lower_elementwise(KernelWriter& w) {
  const int output = w.group().output;
  if (w.view(output).dims.size() != 1 && one_run(w)) {
    for (int t : w.externals()) merge_dims(w.view(t));
    merge_dims(w.view(output));
  }
  const std::vector<Expr>& dims = w.view(output).dims;
  std::vector<std::string> names = iter_names("i", dims.size() - 1);
  std::vector<std::string> roles(names.size(), "row");
  names.emplace_back("j");
  roles.emplace_back("col");
  const Index index = iters(names);
  return w.finish("y", nest(names, dims, roles, {w.store_result("y", index)}));
}

}  // namespace lathe::ops
