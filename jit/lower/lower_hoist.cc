// What a loop computes again at each step although nothing of it changes - the scale of a block of weights, say - is
// computed before it: value() finds it there by its key.
//
//   for j < 16: c += x[j] * (f32(d[b]) * f32(q[j]))   ->   s = f32(d[b]);  for j < 16: c += x[j] * (s * f32(q[j]))
#include <algorithm>
#include <cstdint>

#include "ir/analysis/analysis.h"
#include "ir/analysis/intrinsics.h"
#include "jit/lower/lowering.h"

namespace lathe::jit {

using ir::Expr;
using ir::Mark;
using ir::Op;
using ir::Stmt;

namespace {

// Operations on the way from an element of few bits to a number: what is worth a register.
bool converts(const Expr& e) {
  bool found = false;
  ir::for_each_node(e, [&](const ir::ExprNode& n) {
    found |= ir::op_info(n.op).cls == ir::OpClass::kBits ||
             (n.op == Op::k_cast && n.args[0]->type != n.type && n.args[0]->type != ir::DType::i64);
  });
  return found;
}

}  // namespace

// Whether some statement multiplies by what it makes of integers.
bool Lowering::makes_weights() {
  if (weights_) return *weights_;
  weights_ = false;
  ir::for_each_stmt(leaf_.body, [&](const Stmt& s) {
    if (s.kind != Stmt::Kind::assign) return;
    bool product = false, integer = false;
    ir::for_each_node(s.value, [&](const ir::ExprNode& n) {
      const bool casts = n.op == Op::k_cast && ir::is_float(n.type);
      product |= n.op == Op::k_mul;
      integer |= casts && !ir::is_float(n.args[0]->type) && n.args[0]->type != ir::DType::i64;
    });
    *weights_ |= product && integer;
  });
  return *weights_;
}

// How many values may wait in registers. Where there are 16, and a product of four bytes is a sequence of instructions
// with values of its own (dot4_u8s8), sums, weights of several fields and these leave two.
size_t Lowering::most_hoisted() {
  if (most_hoisted_) return *most_hoisted_;
  constexpr size_t kBesideProducts = 2;
  bool products = false;
  ir::for_each_stmt(leaf_.body, [&](const Stmt& s) {
    products |= s.mark == Mark::tensor && s.intrinsic == leaf_op_name(LeafOp::k_dot4_u8s8);
  });
  const bool few = products && e_.scarce_masks() && dot4_feature(e_.program().extra) == 0;
  most_hoisted_ = few ? kBesideProducts : SIZE_MAX;
  return *most_hoisted_;
}

// Whether the value is the same at each step of loops over these iterators: elements of operands that the leaf does
// not write.
bool Lowering::stays(const Expr& e, const std::vector<std::string>& loops) const {
  bool out = true;
  ir::for_each_node(e, [&](const ir::ExprNode& n) {
    out &= n.op != Op::k_iter || std::find(loops.begin(), loops.end(), n.name) == loops.end();
    if (n.op != Op::k_load) return;
    const int slot = slot_of(n.name);
    out &= slot >= 0 && leaf_.buffers[static_cast<size_t>(slot)].place == ir::Place::in;
  });
  return out;
}

void Lowering::hoist(const Expr& e, const std::vector<std::string>& loops) {
  if (!e_.ok() || e->type == ir::DType::i64 || e->type == ir::DType::b8 || e->args.empty() || e->op == Op::k_load)
    return;
  if (stays(e, loops)) {
    if (!converts(e) || hoisted_.size() >= most_hoisted()) return;
    hoists_ = true;
    if (only_looks_) return;
    const int made = value(e);
    if (std::find(hoisted_.begin(), hoisted_.end(), made) == hoisted_.end()) hoisted_.push_back(made);
    return;
  }
  for (const Expr& a : e->args) hoist(a, loops);
}

// Forgets what was read of operands: values made of it are made again rather than kept.
void Lowering::read_again() {
  for (size_t slot = 0; slot < leaf_.buffers.size(); ++slot) {
    if (leaf_.buffers[slot].place == ir::Place::in) e_.stored(static_cast<int>(slot));
  }
}

// Whether a loop runs at least once, whatever the sizes.
bool Lowering::always_runs(const Stmt& s) const { return ir::interval(s.extent, ir::Ranges(leaf_)).lo >= 1; }

// Any step stands for all.
void Lowering::hoist_loop(const Stmt& s, std::vector<std::string>& loops) {
  loops.push_back(s.iter);
  env_.push_back({s.iter, Binding::Kind::number, 0, 1, nullptr});
  hoist(s.body, loops);
  env_.pop_back();
  loops.pop_back();
}

void Lowering::hoist_loop(const Stmt& s) {
  std::vector<std::string> loops;
  hoist_loop(s, loops);
}

// Whether hoist_loop would compute something.
bool Lowering::hoists(const Stmt& s) {
  hoists_ = false;
  only_looks_ = true;
  hoist_loop(s);
  only_looks_ = false;
  return hoists_;
}

// Before a loop: what its statements compute and no step changes, for each copy of unrolled scopes and vectors.
void Lowering::hoist(const Body& list, std::vector<std::string>& loops) {
  for (const Stmt& s : list) {
    if (s.kind == Stmt::Kind::assign) {
      hoist(s.value, loops);
      continue;
    }
    if (s.kind != Stmt::Kind::scope || (s.mark == Mark::tensor && ir::is_one_step(s))) continue;
    if (s.mark == Mark::none || s.mark == Mark::tensor) {
      if (always_runs(s)) hoist_loop(s, loops);
      continue;
    }
    const std::optional<VectorExtent> extent = vector_extent(s.extent, env_, leaf_);
    const bool vector = s.mark == Mark::vector;
    if (!extent || extent->max < 0 ||
        (vector ? lane_ || extent->max == 1 || !lanes_are_regular(s)
                : !extent->bounds.empty() || s.extent->op == Op::k_ceildiv)) {
      continue;  // without it the loop computes as it did
    }
    for (int64_t i = 0; i < extent->max && e_.ok(); i += vector ? lanes_ : 1) {
      if (vector) {
        Lane lane{s.iter, -1, {}};
        if (!only_looks_) lane.mask = lane_mask(*extent, i, &lane.signature);
        lane_ = std::move(lane);
        env_.push_back({s.iter, Binding::Kind::lane, i, std::min<int64_t>(lanes_, extent->max - i), nullptr});
      } else {
        env_.push_back({s.iter, Binding::Kind::number, i, extent->max, nullptr});
      }
      hoist(s.body, loops);
      env_.pop_back();
      if (vector) lane_.reset();
    }
  }
}

}  // namespace lathe::jit
