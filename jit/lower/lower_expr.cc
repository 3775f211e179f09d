// Values: expressions to registers. Every IR operation is one instruction or a short fixed
// sequence; functions are vector_math's.
#include "ir/core/text_form.h"
#include "jit/lower/lowering.h"
#include "jit/lower/vector_math.h"

namespace lathe::jit {

using ir::Expr;
using ir::Op;

int Lowering::index_value(const Expr& e) {
  if (const std::optional<int64_t> c = constant_value(e, env_)) return e_.constant(static_cast<float>(*c));
  if (const std::optional<Extent> x = plain_extent(e, env_)) return e_.extent_f32(*x);
  return fail(ir::unsupported("{} as a value", ir::print(e)));
}

int Lowering::value(const Expr& e) {
  if (!e_.ok()) return 0;
  if (e->op == Op::k_cast) return convert(e);
  if (e->op == Op::k_load) {
    for (const RunningSum& r : running_) {
      if (r.buffer == e->name) return r.lanes;
    }
    const std::optional<Place> p = place(e->name, e->args);
    return p ? read(*p) : 0;
  }
  if (e->op == Op::k_const_float && is_half(e->type)) {  // the bits, as those of halves that are read
    const auto x = static_cast<float>(e->fval);
    return e_.constant_bits(e->type == ir::DType::f16 ? ir::f32_to_f16(x) : ir::f32_to_bf16(x));
  }
  if (e->type == ir::DType::i32) return integer(e);
  if (e->type != ir::DType::f32) return fail(ir::unsupported("{}: {} value", ir::print(e), ir::dtype_name(e->type)));
  if (e->op == Op::k_const_float) return e_.constant(static_cast<float>(e->fval));
  if (e->op == Op::k_select) return choose(e->args[0], e->args[1], e->args[2]);
  if (e->op == Op::k_mul) {
    for (const int s : {1, 0}) {
      const Expr& function = e->args[s];
      if (function->op == Op::k_normal_cdf && ir::equal(function->args[0], e->args[1 - s])) {
        const int x = value(function->args[0]);
        return e_.ok() ? emit_times_own_normal_cdf(e_, x) : 0;
      }
      if (function->op != Op::k_sigmoid) continue;
      const int x = value(e->args[1 - s]), argument = value(function->args[0]);
      return e_.ok() ? emit_times_sigmoid(e_, x, argument) : 0;
    }
  }
  std::array<int, 3> numbers{};
  if (e->args.size() > numbers.size()) return fail(ir::unsupported("{}", ir::op_info(e->op).id));
  for (size_t a = 0; a < e->args.size(); ++a) numbers[a] = value(e->args[a]);
  if (!e_.ok()) return 0;
  const std::span<const int> args(numbers.data(), e->args.size());
  switch (e->op) {
    case Op::k_add:
      return e_.op(LeafOp::k_add, args);
    case Op::k_sub:
      return e_.op(LeafOp::k_sub, args);
    case Op::k_mul:
      return e_.op(LeafOp::k_mul, args);
    case Op::k_div:
      return e_.op(LeafOp::k_div, args);
    case Op::k_fma:
      return e_.op(LeafOp::k_fma, args);
    case Op::k_min:
      return emit_min(e_, args[0], args[1]);
    case Op::k_max:
      return emit_max(e_, args[0], args[1]);
    case Op::k_fmax:
      return e_.op(LeafOp::k_max, args);
    case Op::k_neg:
      return e_.op(LeafOp::k_bit_xor, {args[0], e_.constant_bits(0x80000000u)});
    case Op::k_abs:
      return e_.op(LeafOp::k_bit_and, {args[0], e_.constant_bits(0x7fffffffu)});
    default:
      break;
  }
  const int out = args.size() == 1 ? emit_math(e_, e->op, args[0]) : -1;
  return out >= 0 ? out : fail(ir::unsupported("{}", ir::op_info(e->op).id));
}

// What a comparison of indices says that copies of unrolled scopes decide.
std::optional<bool> Lowering::decided(const Expr& c) const {
  if (c->args.size() != 2 || c->args[0]->type != ir::DType::i64) return {};
  const std::optional<int64_t> a = constant_value(c->args[0], env_), b = constant_value(c->args[1], env_);
  if (!a || !b) return {};
  switch (c->op) {
    case Op::k_lt:
      return *a < *b;
    case Op::k_le:
      return *a <= *b;
    case Op::k_eq:
      return *a == *b;
    case Op::k_ne:
      return *a != *b;
    default:
      return {};
  }
}

// A comparison of floats, or a b8 element, as a mask; -1 after an error.
int Lowering::condition(const Expr& e) {
  if (e->op == Op::k_load) {  // its byte as a number: a comparison of the bits may take them for a denormal 0
    const std::optional<Place> p = place(e->name, e->args);
    const int number = p ? e_.op(LeafOp::k_cvt_i32_f32, {read(*p)}) : 0;
    return e_.ok() ? e_.compare(LeafOp::k_cmp_ne, number, e_.constant(0.0f)) : -1;
  }
  LeafOp op;
  switch (e->op) {
    case Op::k_lt:
      op = LeafOp::k_cmp_lt;
      break;
    case Op::k_le:
      op = LeafOp::k_cmp_le;
      break;
    case Op::k_eq:
      op = LeafOp::k_cmp_eq;
      break;
    case Op::k_ne:
      op = LeafOp::k_cmp_ne;
      break;
    default:
      fail(ir::unsupported("condition {}", ir::print(e)));
      return -1;
  }
  if (e->args[0]->type != ir::DType::f32) {
    fail(ir::unsupported("condition {} on {}", ir::print(e), ir::dtype_name(e->args[0]->type)));
    return -1;
  }
  const int a = value(e->args[0]), b = value(e->args[1]);
  return e_.ok() ? e_.compare(op, a, b) : -1;
}

// select(c, x, y). Both sides are computed; and, or, not become choices of their own.
int Lowering::choose(const Expr& c, const Expr& x, const Expr& y) {
  if (!e_.ok()) return 0;
  if (const std::optional<bool> known = decided(c)) return value(*known ? x : y);
  if (c->op == Op::k_logical_not) return choose(c->args[0], y, x);
  if (c->op == Op::k_logical_and) return choose(c->args[0], select(c->args[1], x, y), y);
  if (c->op == Op::k_logical_or) return choose(c->args[0], x, select(c->args[1], x, y));
  const int mask = condition(c);
  const int on = value(x), off = value(y);
  return mask < 0 ? 0 : e_.op(LeafOp::k_blend, {off, on}, 0, mask);
}

}  // namespace lathe::jit
