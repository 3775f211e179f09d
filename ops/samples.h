// Graphs of one operator at given sizes, made from its row of ops.def: what a sweep over shapes and random workloads
// are made of. A row of a known family gets its operands from the family, so a new one is covered without a line here;
// a family or a required attribute that this file does not know is UNSUPPORTED.
#pragma once
#include <span>
#include <vector>

#include "ops/graph.h"
#include "ops/op_table.h"

namespace lathe::ops {

// The dimensions of an operator that a sweep takes in turn: {"m", "n", "k"}, {"d", "t"}, {"last"}.
std::span<const char* const> sample_axes(const OpRow& row);
// Ways to ask for it: attributes, operands that may be left out, constants, orders of dimensions, dtypes. Numbered from
// 0.
int sample_variants(const OpRow& row);

struct SampleSizes {
  DimDesc swept;                // along the axis
  std::vector<DimDesc> others;  // matmul's two, in order, then its batch; else the dimensions before the last one
};
// Unfinished, its output named. Matmul takes two others at least, rope two (heads, and the dimension that is not
// swept).
ir::Result<Graph> sample_graph(const OpRow& row, size_t axis, int variant, const SampleSizes& sizes);

}  // namespace lathe::ops
