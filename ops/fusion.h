// The fusion rule: which nodes of a finished graph share a Kernel, by the fusion roles of their families
// (ops/family.h). A group is a chain of riders; a row reduction with the riders before and after it; a matmul with its
// followers; or a single other node. Decides only; lower.cc writes the Kernels.
//
// What is made inside a group of a family that stores it may be an output of the graph, and what riders make for an
// anchor may be read by other groups as well: residual add + norm is one Kernel with two results.
#pragma once
#include <string>
#include <vector>

#include "ops/op_table.h"

namespace lathe::ops {

struct Group {
  const Family* family = nullptr;  // the anchor's, or that of the riders
  int anchor = -1;                 // the node that does not ride; -1 if all do
  std::vector<int> nodes;          // in graph order; the last one writes `output`
  int output = -1;                 // what the last node writes
  std::vector<int> stored;         // further results, stored where they are made; in graph order
  std::vector<int> packed;         // what riders make of a constant when it is packed
  std::string note;                // what was fused, and why its result is stored
};

// A leaf takes 12 operands; the accumulators of a group need some.
constexpr int kMaxGroupOperands = 10;
// Followers are written as one expression; operators that repeat their operand (gelu) multiply its
// size.
constexpr int kMaxExpressionSize = 200;

// Groups in execution order.
std::vector<Group> fuse(const Graph& graph);

}  // namespace lathe::ops
