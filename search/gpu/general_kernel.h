// The general Kernel: sizes and strides of a Kernel of plain nests become symbols, so that one piece of code serves
// every shape of a form.
//
//   d: f32[64, M] out, s: f32[M, 64] in; for i < 64: for j < M: d[i, j] = s[j, i]
//     -> d: f32[D0, D1] out, s: f32[D1, D0] in; for i < D0: for j < D1: d[i, j] = s[j, i]
//
// A scope and the dimensions that its iterator indexes share a symbol. Where an index is anything else than an
// iterator, the sizes that it meets stay as they were; so do those of attention that are numbers. Integers that
// choose a row of a dimension end where that ends; so do offsets of groups of rows.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "ir/base/status.h"
#include "ir/core/binding.h"
#include "ir/core/kernel.h"

namespace lathe::search {

struct GeneralKernel {
  ir::Kernel kernel;                                    // constants are inputs, packed or as the caller gives them
  std::vector<ir::Buffer> packed;                       // those that are packed (packed_constants.h)
  std::vector<std::pair<std::string, ir::Expr>> sizes;  // its symbols, as expressions of the naive Kernel's
  ir::SymbolValues most,
      multiple;  // of each, in calls: the largest value, and a power of two that divides all, up to 16
};
GeneralKernel general_kernel(const ir::Kernel& naive);

}  // namespace lathe::search
