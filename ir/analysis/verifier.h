// verify(): the invariants of a Kernel. Run at every border in debug builds. The rules are listed at the top of
// verifier.cc. Below it stand the proofs of indices that it shares with moves.
#pragma once
#include <vector>

#include "ir/analysis/analysis.h"
#include "ir/base/status.h"
#include "ir/core/kernel.h"

namespace lathe::ir {

// What is asked of the indices of loads and stores. sampled: none leaves its buffer at the points tried. proven: each
// is shown to stay inside for all values of its iterators and symbols, loads under a select too (code computes both of
// its sides): what code may be made of.
enum class Bounds : uint8_t { sampled, proven };

// INVALID naming the rule and the place ("buffer y: dimension 1: index n0*32+n1 may reach 4895, size is 4864").
Status verify(const Kernel& kernel, Bounds bounds = Bounds::sampled);

// In the body of these scopes, where each of them runs: its extent is at least 1 there. Whether 0 <= e is proven.
bool proves_begun(const Expr& e, const Ranges& ranges, const std::vector<const Stmt*>& scopes);
// Whether 0 <= index < size is.
bool proves_inside(const Expr& index, const Expr& size, const Ranges& ranges, const std::vector<const Stmt*>& scopes);

}  // namespace lathe::ir
