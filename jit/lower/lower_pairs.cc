// Tensor scopes of dot2_bf16: two products of bf16 at once. A lane of a factor is the pair that belongs to it:
//
//   for k < seglen @tensor(dot2_bf16):           a' = x[m, 2k], x[m, 2k + 1] in every lane
//     for j < 2 @unroll:                         b' = pairs w[2k .. 2k + 1, n] side by side
//       for m @unroll: for n < 16 @vector:       c  = dot2_bf16(b', a', c)
//         c[m, n] += f32(x[m, 2k + j]) * f32(w[2k + j, n])
//
// Without the instruction each half becomes f32, and the odd products are added first as well.
#include <algorithm>

#include "ir/analysis/analysis.h"
#include "ir/core/text_form.h"
#include "jit/lower/lowering.h"

namespace lathe::jit {

using ir::Expr;
using ir::Stmt;

namespace {

constexpr int64_t kPair = 2;

// The scope whose iterations share a lane: what is summed does not depend on it.
const Stmt* part_scope(const std::vector<Stmt>& body, int64_t parts, std::vector<const Stmt*>& around) {
  for (const Stmt& s : body) {
    if (s.kind == Stmt::Kind::prefetch) continue;
    if (s.kind == Stmt::Kind::scope) {
      around.push_back(&s);
      return part_scope(s.body, parts, around);
    }
    for (const Stmt* scope : around) {
      const auto moves = [&](const Expr& e) { return ir::uses(e, scope->iter); };
      const bool summed = std::none_of(s.index.begin(), s.index.end(), moves);
      if (summed && scope->mark == ir::Mark::unroll && ir::is_const_int(scope->extent, parts)) return scope;
    }
    return nullptr;
  }
  return nullptr;
}

}  // namespace

// A product whose steps are several elements of each factor, in one lane.
void Lowering::mma_in_parts(const Stmt& s, int64_t parts) {
  std::vector<const Stmt*> around;
  const Stmt* part = part_scope(s.body, parts, around);
  if (part == nullptr || !part_iter_.empty()) {
    fail(ir::unsupported("scope {}: expected an unrolled scope of the {} elements of a lane", s.iter, parts));
    return;
  }
  part_iter_ = part->iter;
  mma(s);
  part_iter_.clear();
}

void Lowering::dot2_bf16(const Stmt& s) {
  pairs_ = true;
  mma_in_parts(s, kPair);
  pairs_ = false;
}

void Lowering::add_pairs(const Stmt& s) {
  std::optional<Place> to = place(s.target, s.index);
  if (!to) return;
  if (!to->cell || to->buffer->type != ir::DType::f32 || s.op != ir::AssignOp::add || s.value->op != ir::Op::k_mul) {
    fail(ir::unsupported("{}: expected a register of f32 that products are added to", s.target));
    return;
  }
  const auto is_vector = [&](const Expr& e) {
    return lane_ && std::any_of(ir::unwidened(e)->args.begin(), ir::unwidened(e)->args.end(),
                                [&](const Expr& i) { return ir::uses(i, lane_->iter); });
  };
  const size_t first = is_vector(s.value->args[0]) ? 0 : 1;  // the other one may come from memory in every lane
  const int x = pairs(ir::unwidened(s.value->args[first])), y = pairs(ir::unwidened(s.value->args[1 - first]));
  const int old = read(*to), home = in_place(*to);
  if (!e_.ok()) return;
  if (has_dot2(e_.program()) && e_.program().level != ir::IsaLevel::portable) {
    if (home >= 0) return e_.op_into(home, LeafOp::k_dot2_bf16, {x, y, old});
    return write(*to, e_.op(LeafOp::k_dot2_bf16, {x, y, old}));
  }
  if (home >= 0) {
    e_.op_into(home, LeafOp::k_fma, {half(x, true), half(y, true), old});
    return e_.op_into(home, LeafOp::k_fma, {half(x, false), half(y, false), home});
  }
  const int odd = e_.op(LeafOp::k_fma, {half(x, true), half(y, true), old});
  write(*to, e_.op(LeafOp::k_fma, {half(x, false), half(y, false), odd}));
}

int Lowering::pairs(const Expr& load) {
  if (load->op != ir::Op::k_load || load->type != ir::DType::bf16)
    return fail(ir::unsupported("{}: expected an element of bf16", ir::print(load)));
  const std::optional<Access> at = one_lane(load, kPair);
  return at ? e_.load(*at, lane_ && !at->uniform() ? lane_->mask : -1) : 0;
}

// One element of each pair as f32.
int Lowering::half(int pair, bool odd) {
  if (!odd) return e_.op(LeafOp::k_shift_left, {pair}, 16);
  return e_.op(LeafOp::k_bit_and, {pair, e_.constant_bits(0xffff0000)});
}

}  // namespace lathe::jit
