// The condition under which an iteration runs, as short as what is known around it allows: tails of tiles are minima
// of minima, of which a thread that is inside of a tile needs to look at the last one only.
//   i < min(8, min(64, N - 64*b) - 8*w), where i < 8 and w < 8   ->   i + 8*w + 64*b < N
#pragma once
#include "ir/analysis/analysis.h"

namespace lathe::jit {

// less < than. Null: it always holds.
inline ir::Expr guard_of(const ir::Expr& less, const ir::Expr& than, const ir::Ranges& ranges) {
  using ir::Expr;
  using ir::Op;
  if (ir::proves_lt(less, than, ranges)) return {};
  const auto positive = [](const Expr& e) { return is_const_int(e) && e->ival > 0; };
  const auto& args = than->args;
  if (than->op == Op::k_min) {
    const Expr a = guard_of(less, args[0], ranges), b = guard_of(less, args[1], ranges);
    return !a ? b : !b ? a : ir::make(Op::k_logical_and, {a, b});
  }
  if (than->op == Op::k_ceildiv && positive(args[1])) return guard_of(args[1] * less, args[0], ranges);
  // A minimum less something: what is taken from it goes to the other side.
  if (than->op == Op::k_sub && args[0]->op == Op::k_min) return guard_of(less + args[1], args[0], ranges);
  if (than->op == Op::k_add) {
    for (const size_t i : {0, 1}) {
      if (args[i]->op == Op::k_min) return guard_of(less - args[1 - i], args[i], ranges);
    }
  }
  return ir::make(Op::k_lt, {ir::simplify(less, ranges), than});
}

}  // namespace lathe::jit
