// Tensor scopes of dot2_bf16, two products of bf16 at once, and copies into the pairs that they read. A lane of a
// factor is the pair that belongs to it:
//
//   for k < seglen @tensor(dot2_bf16):           a' = x[m, 2k], x[m, 2k + 1] in every lane
//     for j < 2 @unroll:                         b' = pairs w[2k .. 2k + 1, n] side by side
//       for m @unroll: for n < 16 @vector:       c  = dot2_bf16(b', a', c)
//         c[m, n] += f32(x[m, 2k + j]) * f32(w[2k + j, n])
//
// Without the instruction each half becomes f32, and the odd products are added first as well.
//
// Pairs along rows are elements of four bytes to a transpose. Of pairs along columns, both rows are one vector:
//
//   for p < 2 @tensor(transpose): for n: w[n, p] = v[p, n]     ->   w[n] = v[0, n] | v[1, n] << 16
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
  const std::optional<Access> at = one_lane(load->name, load->args, kPair);
  return at ? e_.load(*at, lane_ && !at->uniform() ? lane_->mask : -1) : 0;
}

// One element of each pair as f32.
int Lowering::half(int pair, bool odd) {
  if (!odd) return e_.op(LeafOp::k_shift_left, {pair}, 16);
  return e_.op(LeafOp::k_bit_and, {pair, e_.constant_bits(0xffff0000)});
}

void Lowering::transpose_pairs(const Stmt& s) {
  const Stmt *inner = s.body.size() == 1 ? &s.body[0] : nullptr,
             *pair = inner != nullptr && inner->body.size() == 1 ? &inner->body[0] : nullptr;
  const Stmt* copy = pair != nullptr && pair->body.size() == 1 ? &pair->body[0] : nullptr;
  if (copy == nullptr || copy->kind != Stmt::Kind::assign || copy->value->op != ir::Op::k_load ||
      ir::dtype_bytes(copy->value->type) * kPair != 4 || !ir::is_const_int(pair->extent, kPair)) {
    fail(ir::unsupported("scope {}: not a transpose of pairs of two bytes each", s.iter));
    return;
  }
  // By the first element of each, the second of which follows it.
  const auto at = [&](const std::string& buffer, const std::vector<Expr>& index, int64_t part) {
    Environment env = env_;
    for (const Stmt* scope : {&s, inner}) env.push_back({scope->iter, Binding::Kind::number, 0, 1, nullptr});
    env.push_back({pair->iter, Binding::Kind::number, part, kPair, nullptr});
    const int slot = slot_of(buffer);
    if (slot < 0 || leaf_.buffers[slot].place == ir::Place::reg) return std::optional<Access>();
    return access(leaf_.buffers[static_cast<size_t>(slot)], slot, index, env);
  };
  const auto follow = [&](const std::string& buffer, const std::vector<Expr>& index) {
    std::optional<Access> first = at(buffer, index, 0);
    const std::optional<Access> second = at(buffer, index, 1);
    if (first) first->base.bytes += first->element;
    return first && second && *first == *second;
  };
  if (!follow(copy->value->name, copy->value->args) || !follow(copy->target, copy->index)) {
    fail(ir::unsupported("scope {}: elements of a pair that are not adjacent", s.iter));
    return;
  }
  Stmt first = *copy;
  const std::vector<std::pair<std::string, Expr>> zero = {{pair->iter, Expr(0)}};
  for (Expr& e : first.index) e = ir::substitute(e, zero);
  first.value = ir::substitute(first.value, zero);
  Stmt row = ir::make_scope(inner->iter, inner->extent, {std::move(first)});
  made_.push_back(std::make_unique<Stmt>(ir::make_scope(s.iter, s.extent, {std::move(row)})));
  made_.back()->mark = ir::Mark::tensor;  // of its squares as well
  made_.back()->intrinsic = "transpose";
  pair_elements_ = true;
  transpose(*made_.back());
  pair_elements_ = false;
}

// Two rows of elements of two bytes, whose columns are pairs in the target: false if they are anything else.
bool Lowering::pair_rows(const Stmt& copy, const Stmt& row, const Stmt& col, const VectorExtent& cols) {
  if (pair_elements_ || ir::dtype_bytes(copy.value->type) * kPair != 4 || !ir::is_const_int(row.extent, kPair))
    return false;
  const auto at = [&](const std::string& buffer, const std::vector<Expr>& index, int64_t r, int64_t c) {
    env_.push_back({row.iter, Binding::Kind::number, r, kPair, nullptr});
    env_.push_back({col.iter, Binding::Kind::lane, c, lanes_, nullptr});
    const int slot = slot_of(buffer);
    std::optional<Access> a = access(leaf_.buffers[static_cast<size_t>(slot)], slot, index, env_);
    env_.pop_back();
    env_.pop_back();
    return a.value_or(Access{});
  };
  for (int64_t c = 0; c < cols.max && e_.ok(); c += lanes_) {
    Access to = at(copy.target, copy.index, 0, c);
    if (!to.lane.step(kPair * to.element)) return false;
    to.element *= kPair;
    to.type = MemType::b32;
    std::string unused;
    const int mask = lane_mask(cols, c, &unused);
    const int even = e_.load(at(copy.value->name, copy.value->args, 0, c), mask),
              odd = e_.load(at(copy.value->name, copy.value->args, 1, c), mask);
    const int both = e_.op(LeafOp::k_bit_or, {even, e_.op(LeafOp::k_shift_left, {odd}, 16)});
    e_.store(to, both, mask);
  }
  return true;
}

}  // namespace lathe::jit
