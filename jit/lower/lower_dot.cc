// Tensor scopes of dot4_u8s8: four products of bytes at once. A lane of the result is one i32, a lane of a factor the
// four bytes that belong to it:
//
//   for j < 4 @tensor(dot4_u8s8):              a' = bytes k .. k + 3 of x in every lane
//     for n < 16 @vector:                      b' = (bytes q[n, 0 .. 3] as one lane) >> 4 & 0x0f0f0f0f
//       c[n] += i32(x[k + j])                  c  = dot4_u8s8(b', a', c)
//               * ((i32(q[n, j]) >> 4) & 15)
//
// mma_u8s8 is the same in a loop over fours, of bytes as they are; the factor that all lanes share may be the unsigned
// one. decode4_u8 stores b' as it is:
//
//   for j < 4 @tensor(decode4_u8):             d[n, 0 .. 3] as one lane = b'
//     for n < 16 @vector:
//       d[n, j] = u8((i32(q[n, j]) >> 4) & 15)
//
// What a factor is made of bytes with works on all four where no bit leaves its byte: & | and + of small numbers as
// they are, shifts with the bits masked that come from the next byte; of a choice what copies of unrolled scopes take.
#include <algorithm>
#include <bit>

#include "ir/analysis/analysis.h"
#include "ir/analysis/intrinsics.h"
#include "ir/core/text_form.h"
#include "jit/lower/lowering.h"

namespace lathe::jit {

using ir::DType;
using ir::Expr;
using ir::Op;

namespace {

constexpr int64_t kBytes = 4;
constexpr uint32_t in_each(uint32_t byte) { return byte * 0x01010101u; }
// The bits that a number up to `most` may have.
constexpr uint32_t bits_up_to(uint32_t most) { return std::bit_ceil(most + 1) - 1; }

}  // namespace

// The scope's iterator is 0 inside; what depends on it says how with `at_part`.
void Lowering::dot4_u8s8(const ir::Stmt& s) {
  if (!part_iter_.empty() || lane_ || !ir::is_const_int(s.extent, kBytes)) {
    fail(ir::unsupported("scope {}: expected four steps outside vectors", s.iter));
    return;
  }
  part_iter_ = s.iter;
  env_.push_back({s.iter, Binding::Kind::number, 0, kBytes, nullptr});
  body(s.body);
  env_.pop_back();
  part_iter_.clear();
}

void Lowering::decode4_u8(const ir::Stmt& s) { dot4_u8s8(s); }

void Lowering::mma_u8s8(const ir::Stmt& s) { mma_in_parts(s, kBytes); }

// Whether the statements sum bytes and do something else with the sums: as much as registers hold of what they read.
bool Lowering::sums_bytes(const Body& list) {
  bool steps = false;
  ir::for_each_stmt(list, [&](const ir::Stmt& s) { steps |= s.mark == ir::Mark::tensor && ir::is_one_step(s); });
  return steps && std::count_if(list.begin(), list.end(), [](const ir::Stmt& s) { return !is_prefetch(s); }) > 1;
}

// Whether what the sums of bytes read is on its way from memory, as prefetches ahead of the loops around them tell. It
// arrives in its order, in which it is then best used.
bool Lowering::comes_ahead(const Body& list) const {
  bool out = false;
  ir::for_each_stmt(list, [&](const ir::Stmt& s) {
    if (is_prefetch(s)) out |= s.distance != 0;
    if (s.kind != ir::Stmt::Kind::assign || s.value->type != DType::i32) return;
    ir::for_each_node(s.value, [&](const ir::ExprNode& n) {
      if (n.op == Op::k_load) out |= std::find(ahead_.begin(), ahead_.end(), slot_of(n.name)) != ahead_.end();
    });
  });
  return out;
}

template <class F>
auto Lowering::at_part(int64_t part, F&& f) {
  const auto at = std::find_if(env_.rbegin(), env_.rend(), [&](const Binding& b) { return b.iter == part_iter_; });
  at->value = part;
  auto out = f();
  at->value = 0;
  return out;
}

// d[.., j] = u8(bytes)
void Lowering::store_bytes(const ir::Stmt& s) {
  const std::optional<Access> to = one_lane(s.target, s.index, kBytes);
  if (!to) return;
  if (lane_ && !to->unit()) {
    fail(ir::unsupported("{}: expected lanes of four bytes beside each other", s.target));
    return;
  }
  const Bytes b = bytes(s.value->args[0], false);
  if (b.negative) {
    fail(ir::unsupported("{}: expected bytes of 0 to 255", s.target));
    return;
  }
  if (e_.ok()) e_.store(*to, b.reg, lane_ ? lane_->mask : -1, leaf_.find_buffer(s.target)->stream);
}

// c[..] += i32(x[.., j]) * bytes
void Lowering::add_bytes(const ir::Stmt& s) {
  if (s.op == ir::AssignOp::set && s.value->op == Op::k_cast && s.value->type == DType::u8) return store_bytes(s);
  const bool product = s.op == ir::AssignOp::add && s.value->op == Op::k_mul && s.value->type == DType::i32;
  // The factor that all lanes share; where both may be, the signed one.
  const auto shared = [&](const Expr& e, bool any) {
    const Expr& load = ir::unwidened(e);
    const bool byte = load->op == Op::k_load && (load->type == DType::i8 || (any && load->type == DType::u8));
    return byte && (!lane_ || std::none_of(load->args.begin(), load->args.end(),
                                           [&](const Expr& i) { return ir::uses(i, lane_->iter); }));
  };
  std::optional<size_t> number;
  for (const bool any : {false, true}) {
    for (const size_t side : {0, 1}) {
      if (product && !number && shared(s.value->args[side], any)) number = side;
    }
  }
  if (!number) {
    fail(ir::unsupported("{}: expected a sum of products of bytes", s.target));
    return;
  }
  const Expr& load = ir::unwidened(s.value->args[*number]);
  std::optional<Place> to = place(s.target, s.index);
  const std::optional<Access> x = one_lane(load->name, load->args, kBytes);
  if (!to || !x) return;
  if (!to->cell || to->buffer->type != DType::i32 || !x->uniform()) {
    fail(ir::unsupported("{}: expected a register of i32, and one factor that all lanes share", s.target));
    return;
  }
  const Bytes b = bytes(s.value->args[1 - *number], false);
  if (!e_.ok()) return;
  const bool is_signed = load->type == DType::i8;
  if (b.negative == is_signed) {
    fail(ir::unsupported("{}: expected one factor of 0 to 255, and a signed one", s.target));
    return;
  }
  const int a = e_.load(*x, -1), old = read(*to);
  if (!e_.ok()) return;
  const int first = is_signed ? b.reg : a, second = is_signed ? a : b.reg;
  if (const int home = in_place(*to); home >= 0) return e_.op_into(home, LeafOp::k_dot4_u8s8, {first, second, old});
  write(*to, e_.op(LeafOp::k_dot4_u8s8, {first, second, old}));
}

// The element and those beside it that share a lane of four bytes with it; null after an error.
std::optional<Access> Lowering::one_lane(const std::string& name, const std::vector<Expr>& index, int64_t parts) {
  const auto at = [&](int64_t part) {
    return at_part(part, [&]() -> std::optional<Access> {
      KnownAccess& known = known_access(name, index);
      if (known.slot < 0 || leaf_.buffers[static_cast<size_t>(known.slot)].place == ir::Place::reg) return {};
      return known.plain.plain ? known.plain.access(known.slot, env_)
                               : access(leaf_.buffers[static_cast<size_t>(known.slot)], known.slot, index, env_);
    });
  };
  std::optional<Access> first = at(0);
  bool adjacent = first.has_value() && first->element * parts == kBytes;
  for (int64_t part = 1; part < parts && adjacent; ++part) {
    std::optional<Access> next = at(part);
    adjacent = next.has_value();
    if (!adjacent) break;
    next->base.bytes -= part * first->element;
    adjacent = *next == *first;
  }
  if (adjacent) {
    first->element = kBytes;
    first->type = MemType::b32;
    adjacent = first->uniform() || first->unit();
  }
  if (adjacent) return first;
  fail(ir::unsupported("{}: expected {} {} side by side, and lanes beside each other", name,
                       parts == kBytes ? "four" : "two", parts == kBytes ? "bytes" : "elements"));
  return {};
}

// The number that e is for each of the four; null: they differ, or it is none.
std::optional<int64_t> Lowering::same_number(const Expr& e) {
  const std::optional<int64_t> first = constant_value(e, env_);
  for (int64_t byte = 1; byte < kBytes && first; ++byte) {
    if (at_part(byte, [&] { return constant_value(e, env_); }) != first) return {};
  }
  return first;
}

// What the comparison says for each of the four; null: they differ, or copies of unrolled scopes do not decide it.
std::optional<bool> Lowering::same_choice(const Expr& c) {
  const std::optional<bool> first = decided(c);
  for (int64_t byte = 1; byte < kBytes && first; ++byte) {
    if (at_part(byte, [&] { return decided(c); }) != first) return {};
  }
  return first;
}

// (x >> r & mask) << l as one shift and one mask; null, and no code: it is nothing of the kind.
std::optional<Lowering::Bytes> Lowering::moved_bits(const Expr& e, std::optional<int64_t> left) {
  if (!left || *left < 0 || *left > 7 || e->op != Op::k_bit_and) return {};
  const size_t number = ir::is_const_int(e->args[0]) ? 0 : 1;
  const Expr &mask = e->args[number], &shifted = e->args[1 - number];
  if (!ir::is_const_int(mask) || mask->ival < 0 || shifted->op != Op::k_shift_right) return {};
  const std::optional<int64_t> right = same_number(shifted->args[1]);
  if (!right || *right < 0 || *right > 7) return {};
  const Bytes x = bytes(shifted->args[0], false);
  // Bits stay within their byte: those of the mask come from it.
  const uint32_t bits = (bits_up_to(x.most) >> *right & static_cast<uint32_t>(mask->ival & 0xff)) << *left;
  if (!e_.ok() || x.negative || bits > 0xff)
    return Bytes{fail(ir::unsupported("{} << {}: not made of bytes", ir::print(e), *left))};
  if (bits == 0) return Bytes{e_.constant_bits(0), 0};
  const int64_t by = *left - *right;
  int reg = x.reg;
  if (by > 0) reg = e_.op(LeafOp::k_shift_left, {reg}, static_cast<uint32_t>(by));
  if (by < 0) reg = e_.op(LeafOp::k_shift_right, {reg}, static_cast<uint32_t>(-by));
  return Bytes{e_.op(LeafOp::k_bit_and, {reg, e_.constant_bits(in_each(bits))}), bits};
}

// The value for each of the four as a byte of the lane. rough: the result may be so.
Lowering::Bytes Lowering::bytes(const Expr& e, bool rough) {
  const auto refuse = [&] { return Bytes{fail(ir::unsupported("{}: not made of bytes", ir::print(e)))}; };
  const auto masked = [&](int reg, uint32_t bits) {
    return Bytes{e_.op(LeafOp::k_bit_and, {reg, e_.constant_bits(in_each(bits))}), bits};
  };
  if (!e_.ok()) return {};
  switch (e->op) {
    case Op::k_cast: {
      const Expr& from = e->args[0];
      if (e->type != DType::i32 || from->op != Op::k_load || (from->type != DType::u8 && from->type != DType::i8))
        return refuse();
      const std::optional<Access> at = one_lane(from->name, from->args, kBytes);
      if (!at) return {};
      return {e_.load(*at, lane_ && !at->uniform() ? lane_->mask : -1), 0xff, from->type == DType::i8};
    }
    case Op::k_const_int:
      if (e->ival < 0 || e->ival > 0xff) return refuse();
      return {e_.constant_bits(in_each(static_cast<uint32_t>(e->ival))), static_cast<uint32_t>(e->ival)};
    case Op::k_bit_and: {
      const size_t number = ir::is_const_int(e->args[0]) ? 0 : 1;
      const Expr& mask = e->args[number];
      if (!ir::is_const_int(mask) || mask->ival < 0) return refuse();
      const Bytes x = bytes(e->args[1 - number], true);
      const uint32_t all = bits_up_to(x.most), bits = all & static_cast<uint32_t>(mask->ival & 0xff);
      if (!e_.ok() || x.negative) return refuse();
      return !x.rough && bits == all ? x : masked(x.reg, bits);
    }
    case Op::k_shift_right: {
      const std::optional<int64_t> count = same_number(e->args[1]);
      const Bytes x = bytes(e->args[0], false);
      if (!e_.ok() || !count || *count < 0 || *count > 31 || x.negative) return refuse();
      if (*count == 0) return x;
      Bytes out{e_.op(LeafOp::k_shift_right, {x.reg}, static_cast<uint32_t>(*count)), x.most >> *count};
      out.rough = x.most != 0;  // bits of the next byte come in
      return !out.rough || rough ? out : masked(out.reg, bits_up_to(out.most));
    }
    case Op::k_shift_left: {
      const std::optional<int64_t> count = same_number(e->args[1]);
      if (std::optional<Bytes> moved = moved_bits(e->args[0], count)) return *moved;
      const Bytes x = bytes(e->args[0], false);
      if (!e_.ok() || !count || *count < 0 || *count > 7 || x.most << *count > 0xff || x.negative) return refuse();
      if (*count == 0) return x;
      return {e_.op(LeafOp::k_shift_left, {x.reg}, static_cast<uint32_t>(*count)), x.most << *count};
    }
    case Op::k_bit_or: {
      const Bytes x = bytes(e->args[0], false), y = bytes(e->args[1], false);
      if (!e_.ok() || x.negative || y.negative) return refuse();
      return {e_.op(LeafOp::k_bit_or, {x.reg, y.reg}), bits_up_to(std::max(x.most, y.most))};
    }
    case Op::k_select: {
      const std::optional<bool> first = same_choice(e->args[0]);
      return first ? bytes(e->args[*first ? 1 : 2], rough) : refuse();
    }
    case Op::k_add: {
      const Bytes x = bytes(e->args[0], false), y = bytes(e->args[1], false);
      if (!e_.ok() || y.negative) return refuse();
      if (x.negative) {  // a signed byte and 128
        if (!ir::is_const_int(e->args[1], 128)) return refuse();
        return {e_.op(LeafOp::k_bit_xor, {x.reg, y.reg}), 0xff};
      }
      if (x.most + y.most > 0xff) return refuse();
      return {e_.op(LeafOp::k_iadd, {x.reg, y.reg}), x.most + y.most};
    }
    default:
      return refuse();
  }
}

}  // namespace lathe::jit
