// Operators that update an operand where it lies, as Family::updates says: what finish() asks of them, and the arguments
// of a call, where what is updated is given once.
#pragma once
#include <vector>

#include "ops/graph.h"

namespace lathe::ops {

// Of a graph whose operators, attributes and shapes are known: what is updated is an input of the graph, no constant,
// and nobody else's operand; the result is an output of the graph that nobody reads. writers: of each tensor, -1: none.
ir::Status check_updates(const Graph& graph, const std::vector<int>& writers);

// Whether an operator of the finished graph updates this input.
bool is_updated(const Graph& finished, int tensor);
// Whether this is what an updated input is afterwards.
bool is_update(const Graph& finished, int tensor);
// Tensors that a call is given: the inputs, then the outputs but for updates.
std::vector<int> arguments(const Graph& finished);

}  // namespace lathe::ops
