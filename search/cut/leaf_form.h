// Leaf form: whether a group of sibling statements can be one leaf, and its canonical Kernel (docs/ir.md, "Cut"). Does
// not decide where to cut; cut.cc does.
#pragma once
#include <vector>

#include "ir/base/status.h"
#include "ir/nest.h"

namespace lathe::search {

struct LeafGroup {
  ir::NestCall call;             // leaves index `leaves` below
  std::vector<ir::Leaf> leaves;  // one per variant
};

// The statements [first, last) as one leaf, inside the nest loops `outer` (outermost first). UNSUPPORTED with the rule
// that refuses it.
ir::Result<LeafGroup> make_leaf(const ir::Kernel& kernel, const ir::Stmt* first, const ir::Stmt* last,
                                const std::vector<const ir::Stmt*>& outer);

// Row-major strides of the buffer's physical dimensions (or its stated strides), in elements, simplified.
std::vector<ir::Expr> physical_strides(const ir::Buffer& buffer);

}  // namespace lathe::search
