// Writing a workload as one line of a manifest: see manifest.h. The reader is manifest.cc.
#include <nlohmann/json.hpp>

#include "ir/core/names.h"
#include "ops/manifest.h"
#include "ops/monomial.h"

namespace lathe::ops {

namespace {
using Json = nlohmann::ordered_json;

Json tensor_json(const TensorDesc& t) {
  Json j = Json::object();
  if (!t.inferred) {
    j["dtype"] = ir::dtype_name(t.dtype);
    j["dims"] = Json::array();
    for (const DimDesc& d : t.dims) {
      if (d.symbol.empty()) {
        j["dims"].push_back(d.min);
      } else {
        j["dims"].push_back(d.symbol);
      }
    }
  }
  for (const ir::Expr& e : t.strides) {
    const auto m = monomial(e);
    if (m && m->symbols.empty()) {
      j["strides"].push_back(m->coeff);
    } else {
      j["strides"].push_back(m ? to_text(*m) : std::string());
    }
  }
  if (t.constant) j["const"] = true;
  return j;
}

Json node_json(const Graph& g, const Node& n) {
  Json j = {{"op", n.op}, {"in", Json::array()}};
  for (int t : n.inputs) j["in"].push_back(g.tensors[t].name);
  j["out"] = g.tensors[n.output].name;
  if (!n.also.empty()) {
    j["out"] = Json::array();
    for (int t : results_of(n)) j["out"].push_back(g.tensors[t].name);
  }
  for (const Attr& a : n.attrs) {
    std::visit([&](const auto& value) { j["attrs"][a.name] = value; }, a.value);
  }
  return j;
}

Json graph_json(const Graph& g) {
  Json j = {{"tensors", Json::object()}, {"nodes", Json::array()}, {"outputs", Json::array()}};
  std::vector<size_t> order(g.tensors.size());  // the caller's order: it is that of the arguments
  for (size_t i = 0; i < order.size(); ++i) order[g.source.empty() ? i : g.source[i]] = i;
  for (size_t i : order) {
    const TensorDesc& t = g.tensors[i];
    if (!t.inferred || !t.strides.empty()) j["tensors"][t.name] = tensor_json(t);
  }
  for (const Node& n : g.nodes) j["nodes"].push_back(node_json(g, n));
  for (int t : g.outputs) j["outputs"].push_back(g.tensors[t].name);
  return j;
}
}  // namespace

std::string to_json_line(const Workload& w) {
  Json j = {{"name", w.name}, {"graph", graph_json(w.graph)}};
  for (const DimDesc& d : w.dims) {
    Json& dim = j["dims"][d.symbol];
    dim = {{"min", d.min}, {"max", d.max}, {"multiple_of", d.multiple_of}, {"hints", Json::array()}};
    for (const Hint& h : d.hints) dim["hints"].push_back({{"value", h.value}, {"weight", h.weight}});
  }
  j["threads"] = w.threads;
  j["cache"] = cache_name(w.cache);
  j["allowed"] = Json::array();
  for (uint32_t bit = 1; bit != 0; bit <<= 1) {
    if (w.allowed & bit) j["allowed"].push_back(ir::numeric_names(bit));
  }
  j["weight"] = w.weight;
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Workload make_workload(Graph graph) {
  Workload w;
  w.name = graph.name.empty() ? "graph" : graph.name;
  for (const TensorDesc& t : graph.tensors) {
    for (const DimDesc& d : t.dims) {
      bool known = d.symbol.empty();
      for (const DimDesc& have : w.dims) known = known || have.symbol == d.symbol;
      if (!known) w.dims.push_back(d);
    }
  }
  w.graph = std::move(graph);
  return w;
}

}  // namespace lathe::ops
