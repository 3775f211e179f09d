// See updates.h.
#include "ops/updates.h"

#include <algorithm>

#include "ops/family.h"

namespace lathe::ops {

namespace {

template <class List, class F>
bool any(const List& list, F&& f) {
  return std::any_of(list.begin(), list.end(), f);
}
bool holds(const std::vector<int>& list, int tensor) {
  return std::find(list.begin(), list.end(), tensor) != list.end();
}

uint32_t updates_of(const Node& node) {
  const OpRow* row = find_op(node.op);
  return row == nullptr ? 0 : row->family->updates(*row);
}
bool updates(const Node& node, int tensor) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if ((updates_of(node) >> i & 1) != 0 && node.inputs[i] == tensor) return true;
  }
  return false;
}

ir::Status check_node(const Graph& g, const Node& node, const std::vector<int>& writers) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if ((updates_of(node) >> i & 1) == 0) continue;
    const int t = node.inputs[i];
    const TensorDesc& tensor = g.tensors[static_cast<size_t>(t)];
    if (writers[static_cast<size_t>(t)] >= 0)
      return ir::invalid("made by the graph, expected an input: {} updates it", node.op).with_arg(tensor.name);
    if (tensor.constant)
      return ir::invalid("a constant, expected an input: {} updates it", node.op).with_arg(tensor.name);
    int64_t reads = 0;
    for (const Node& n : g.nodes) reads += std::count(n.inputs.begin(), n.inputs.end(), t);
    if (reads != 1)
      return ir::invalid("read {} times, expected once: {} updates it", reads, node.op).with_arg(tensor.name);
  }
  const std::string& result = g.tensors[static_cast<size_t>(node.output)].name;
  if (any(g.nodes, [&](const Node& n) { return holds(n.inputs, node.output); }))
    return ir::unsupported("read in the graph of the {} that updates it: read it in another call", node.op)
        .with_arg(result);
  if (!holds(g.outputs, node.output))
    return ir::invalid("expected to be an output of the graph, as {} updates it", node.op).with_arg(result);
  return {};
}

}  // namespace

uint32_t updates_none(const OpRow&) { return 0; }
int one_result(const OpRow&) { return 1; }

ir::Status check_updates(const Graph& graph, const std::vector<int>& writers) {
  for (const Node& node : graph.nodes) {
    if (updates_of(node) != 0) LATHE_RETURN_IF_ERROR(check_node(graph, node, writers));
  }
  return {};
}

bool is_updated(const Graph& finished, int tensor) {
  return any(finished.nodes, [&](const Node& n) { return updates(n, tensor); });
}

bool is_update(const Graph& finished, int tensor) {
  return any(finished.nodes, [&](const Node& n) { return n.output == tensor && updates_of(n) != 0; });
}

std::vector<int> arguments(const Graph& finished) {
  std::vector<int> out = finished.inputs;
  for (const int t : finished.outputs) {
    if (!is_update(finished, t)) out.push_back(t);
  }
  return out;
}

}  // namespace lathe::ops
