// Values that are no f32: what a cast makes of them, and how they lie in registers.
//
//   i32, i8, u8, b8   i32 lanes
//   bf16, f16         f32 as soon as a cast reads them from memory, and until one is stored; the 16 bits, zeros above,
//                     where they are copied
//   f64, i64          pairs of lanes, one element at a time: copies only
//
// Stores round to nearest even, denormals included, and keep NaN on every level (jit/program/mem_types.def).
#include "ir/core/text_form.h"
#include "jit/lower/lowering.h"
#include "jit/lower/vector_math.h"

namespace lathe::jit {

using ir::DType;
using ir::Expr;
using ir::Op;

namespace {

bool small_integer(DType type) { return type == DType::i8 || type == DType::u8 || type == DType::b8; }

// i32 as f32 that rounds to bf16 as if it had never been f32: from 2^24 on, whatever the low byte holds is one bit.
int for_bf16(Emitter& e, int number) {
  const int plain = e.op(LeafOp::k_cvt_i32_f32, {number});
  const int low = e.op(LeafOp::k_bit_and, {number, e.constant_bits(0xff)});
  const int any = e.op(LeafOp::k_shift_right, {e.op(LeafOp::k_iadd, {low, e.constant_bits(0xff)})}, 1);
  const int sticky = e.op(LeafOp::k_bit_or,
                          {e.op(LeafOp::k_isub, {number, low}), e.op(LeafOp::k_bit_and, {any, e.constant_bits(0x80)})});
  const int size = e.op(LeafOp::k_bit_and, {plain, e.constant_bits(0x7fffffff)});
  const int large = e.compare(LeafOp::k_cmp_le, e.constant(0x1p24f), size);
  return e.op(LeafOp::k_blend, {plain, e.op(LeafOp::k_cvt_i32_f32, {sticky})}, 0, large);
}

// Nearest even within [low, high], 0 for NaN.
int to_integer(Emitter& e, int x, float low, float high) {
  const int number = e.op(LeafOp::k_blend, {x, e.constant(0.0f)}, 0, e.compare(LeafOp::k_cmp_unord, x, x));
  const int within = e.op(LeafOp::k_min, {e.op(LeafOp::k_max, {number, e.constant(low)}), e.constant(high)});
  return e.op(LeafOp::k_cvt_f32_i32, {within});
}

int to_i32(Emitter& e, int x) {
  // What is too large converts to the least number, all of whose bits but the sign are to be on.
  const int number = e.op(LeafOp::k_blend, {x, e.constant(0.0f)}, 0, e.compare(LeafOp::k_cmp_unord, x, x));
  const int large = e.compare(LeafOp::k_cmp_le, e.constant(0x1p31f), number);
  return e.op(LeafOp::k_blend, {e.op(LeafOp::k_cvt_f32_i32, {number}), e.constant_bits(0x7fffffff)}, 0, large);
}

}  // namespace

// Any byte but 0 is true, which is 1.
int Lowering::as_i32(const Expr& e) {
  const int number = value(e);
  if (!e_.ok() || e->type != DType::b8) return number;
  return e_.op(LeafOp::k_shift_right, {e_.op(LeafOp::k_isub, {e_.constant_bits(0), number})}, 31);
}

// Arithmetic of i32, which wraps.
int Lowering::integer(const Expr& e) {
  if (e->op == Op::k_const_int) return e_.constant_bits(static_cast<uint32_t>(e->ival));
  if (e->op == Op::k_select) return choose(e->args[0], e->args[1], e->args[2]);
  if (e->op == Op::k_shift_left || e->op == Op::k_shift_right) {
    const std::optional<int64_t> count = constant_value(e->args[1], env_);
    if (!count || *count < 0 || *count > 31)
      return fail(ir::unsupported("{}: a count that is no constant", ir::print(e)));
    const int x = value(e->args[0]);
    if (!e_.ok() || *count == 0) return x;
    return e_.op(e->op == Op::k_shift_left ? LeafOp::k_shift_left : LeafOp::k_shift_right_arith, {x},
                 static_cast<uint32_t>(*count));
  }
  if (e->args.empty() || e->args.size() > 2) return fail(ir::unsupported("{} of i32", ir::op_info(e->op).id));
  const int a = value(e->args[0]), b = e->args.size() == 2 ? value(e->args[1]) : 0;
  if (!e_.ok()) return 0;
  switch (e->op) {
    case Op::k_add:
      return e_.op(LeafOp::k_iadd, {a, b});
    case Op::k_sub:
      return e_.op(LeafOp::k_isub, {a, b});
    case Op::k_mul:
      return e_.op(LeafOp::k_imul, {a, b});
    case Op::k_min:
      return e_.op(LeafOp::k_imin, {a, b});
    case Op::k_neg:
      return e_.op(LeafOp::k_isub, {e_.constant_bits(0), a});
    case Op::k_bit_and:
      return e_.op(LeafOp::k_bit_and, {a, b});
    case Op::k_bit_or:
      return e_.op(LeafOp::k_bit_or, {a, b});
    default:
      return fail(ir::unsupported("{} of i32", ir::op_info(e->op).id));
  }
}

int Lowering::as_f32(const Expr& e) {
  switch (e->type) {
    case DType::f32:
      return value(e);
    case DType::i64:
      return index_value(e);
    case DType::f16:
    case DType::bf16:
      if (e->op == Op::k_load) {
        std::optional<Place> p = place(e->name, e->args);
        if (p) p->access.type = half_type(e->type);
        return p ? read(*p) : 0;
      }
      break;
    case DType::i32:
    case DType::i8:
    case DType::u8:
    case DType::b8:
      return e_.op(LeafOp::k_cvt_i32_f32, {as_i32(e)});
    default:
      break;
  }
  return fail(ir::unsupported("cast from {} in {}", ir::dtype_name(e->type), ir::print(e)));
}

// An index of type i64 as i32: what loops, copies and lanes make of it.
int Lowering::index_number(const Expr& e) {
  const std::optional<Affine> a = affine(e, env_);
  const bool whole =
      a && std::all_of(a->loops.begin(), a->loops.end(), [](const auto& l) { return l.second % l.first->width == 0; });
  if (!whole) return fail(ir::unsupported("{} as a number: not affine in the loops of the leaf", ir::print(e)));
  int out = -1;
  const auto add = [&](int64_t times, int x) {
    if (times != 1) x = e_.op(LeafOp::k_imul, {x, e_.constant_bits(static_cast<uint32_t>(times))});
    out = out < 0 ? x : e_.op(LeafOp::k_iadd, {out, x});
  };
  bool lanes = a->lane == 1;  // added to the variable of a loop
  for (const auto& [loop, per_iteration] : a->loops) {
    const int64_t times = per_iteration / loop->width;
    add(times, e_.index_i32({}, loop, lanes && times == 1));
    lanes &= times != 1;
  }
  for (const auto& [symbol, times] : a->symbols) {
    const std::optional<int> slot = extent_slot(*symbol);
    if (!slot) return fail(ir::unsupported("{} as a number", ir::print(e)));
    add(times, e_.index_i32({*slot, 0}, nullptr, false));
  }
  if (lanes || (a->lane != 0 && a->lane != 1)) add(a->lane, e_.index_i32({}, nullptr, true));
  if (a->constant != 0 || out < 0) add(1, e_.constant_bits(static_cast<uint32_t>(a->constant)));
  return out;
}

int Lowering::convert(const Expr& e) {
  const Expr& from = e->args[0];
  if (e->type == from->type) return value(from);
  const auto number = [&] { return as_f32(from); };
  switch (e->type) {
    case DType::f32:
      return number();
    case DType::i32:
      if (small_integer(from->type)) return as_i32(from);
      if (from->type == DType::i64) return index_number(from);
      if (const int x = number(); e_.ok()) return to_i32(e_, x);
      return 0;
    case DType::i8:
    case DType::u8:
      if (from->type == DType::i32 || small_integer(from->type)) {  // the low byte
        const int x = as_i32(from);
        if (!e_.ok()) return 0;
        if (e->type == DType::u8) return e_.op(LeafOp::k_bit_and, {x, e_.constant_bits(0xff)});
        return e_.op(LeafOp::k_shift_right_arith, {e_.op(LeafOp::k_shift_left, {x}, 24)}, 24);
      }
      if (const int x = number(); e_.ok())
        return e->type == DType::i8 ? to_integer(e_, x, -128, 127) : to_integer(e_, x, 0, 255);
      return 0;
    case DType::i64:  // a pair of lanes: the number, and its sign
      if (is_float(from->type)) break;
      if (const int x = as_i32(from); e_.ok())
        return e_.op(LeafOp::k_unpack_lo32, {x, e_.op(LeafOp::k_shift_right_arith, {x}, 31)});
      return 0;
    case DType::b8:
      if (const int x = number(); e_.ok()) {
        // By its bits: a comparison may take a denormal for 0.
        const int size = e_.op(LeafOp::k_shift_left, {x}, 1);
        const int flag = e_.op(LeafOp::k_shift_right, {e_.op(LeafOp::k_isub, {e_.constant_bits(0), size})}, 31);
        return e_.op(LeafOp::k_bit_or, {flag, e_.op(LeafOp::k_shift_right, {size}, 31)});
      }
      return 0;
    default:
      break;
  }
  return fail(ir::unsupported("cast from {} to {}", ir::dtype_name(from->type), ir::dtype_name(e->type)));
}

// i32 op= value, in a register or in memory.
void Lowering::update_i32(const ir::Stmt& s, const Place& to, LeafOp op) {
  const int number = value(s.value), old = read(to);
  if (!e_.ok()) return;
  if (const int home = in_place(to); home >= 0) return e_.op_into(home, op, {old, number});
  write(to, e_.op(op, {old, number}));
}

// What is not f32 is assigned whole; i32 is added to, multiplied and lowered as well.
void Lowering::assign_converted(const ir::Stmt& s, Place& to) {
  if (to.buffer->type == DType::i32 && s.op == ir::AssignOp::add)
    return lane_ && to.uniform() ? reduce_lanes(s, to) : update_i32(s, to, LeafOp::k_iadd);
  if (to.buffer->type == DType::i32 && s.op == ir::AssignOp::mul) return update_i32(s, to, LeafOp::k_imul);
  if (to.buffer->type == DType::i32 && s.op == ir::AssignOp::min) {
    return lane_ && to.uniform() ? reduce_lanes(s, to) : update_i32(s, to, LeafOp::k_imin);
  }
  if (s.op != ir::AssignOp::set) {
    fail(ir::unsupported("{}: {} is added to in memory", s.target, ir::dtype_name(to.buffer->type)));
    return;
  }
  if (!is_half(to.buffer->type) || s.value->op != Op::k_cast) return write(to, value(s.value));
  const Expr& from = s.value->args[0];
  const bool number = to.buffer->type == DType::bf16 && from->type == DType::i32;
  const int x = number ? value(from) : as_f32(from);
  if (!e_.ok()) return;
  to.access.type = half_type(to.buffer->type);
  write(to, number ? for_bf16(e_, x) : x);
}

}  // namespace lathe::jit
