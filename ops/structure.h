// What a finished graph computes, as a text without any of the caller's names: operators, attributes, dtypes, sizes,
// strides, constness, and symbols by number. Two graphs of one structure are one operator, whoever named them; nothing
// here depends on how Kernels are written or printed.
#pragma once
#include <string>

#include "ops/fusion.h"

namespace lathe::ops {

// The whole graph: its operators, the order of its arguments, and the hints of its symbols, which say what is made for
// it.
std::string structure_of(const Graph& finished);
// One group of it, as decisions are named by: its symbols in the order of the graph, with their ranges.
std::string structure_of(const Graph& finished, const Group& group);

}  // namespace lathe::ops
