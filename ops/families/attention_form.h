// What a node of attention has: which operands, by place, and its attributes; the shapes that fit, and its work. The
// Kernel is attention.cc's.
#pragma once
#include <span>

#include "ops/family.h"

namespace lathe::ops {

struct AttentionForm {
  static constexpr size_t kQuery = 0, kKey = 1, kValue = 2;
  // Of operands that not every node has; 0: there is none.
  size_t lengths = 0, pages = 0, offsets = 0, key_scales = 0, value_scales = 0, mask = 0, sinks = 0;
  int64_t window = 0;   // keys that a query sees at most; 0: all
  double soft_cap = 0;  // 0: none
  bool causal = false;
  // Of q, whose queries stand before its heads if there are offsets.
  size_t heads(size_t rank) const { return offsets != 0 ? 1 : rank - 3; }
  size_t queries(size_t rank) const { return offsets != 0 ? 0 : rank - 2; }
  // Whether a mask of so many dimensions has two for keys: their page in the table, and their place there.
  bool mask_has_pages(size_t rank, size_t mask_rank) const { return pages != 0 && mask_rank > rank; }
};
AttentionForm attention_form(const OpRow& row, const Node& node);

std::span<const ir::DType> attention_dtypes(const OpRow& row, size_t number);
ir::Result<Shape> attention_shape(const OpRow& row, const Node& node, const Inputs& in);
double attention_flops(const Node& node, const NodeSizes& sizes);
double attention_share_read(const Node& node, const NodeSizes& sizes, size_t operand);

}  // namespace lathe::ops
