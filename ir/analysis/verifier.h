// verify(): the invariants of a Kernel. Run at every border in debug builds. The rules are listed at the top of
// verifier.cc.
#pragma once
#include "ir/base/status.h"
#include "ir/core/kernel.h"

namespace lathe::ir {

// What is asked of the indices of loads and stores. sampled: none leaves its buffer at the points tried. proven: each
// is shown to stay inside for all values of its iterators and symbols, loads under a select too (code computes both of
// its sides): what code may be made of.
enum class Bounds : uint8_t { sampled, proven };

// INVALID naming the rule and the place ("buffer y: dimension 1: index n0*32+n1 may reach 4895, size is 4864").
Status verify(const Kernel& kernel, Bounds bounds = Bounds::sampled);

}  // namespace lathe::ir
