// See structure.h. A line per symbol, per node and per tensor; tensors are numbered as the nodes mention them.
#include "ops/structure.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>

#include "ops/monomial.h"

namespace lathe::ops {
namespace {

class Writer {
 public:
  // others: tensors that no node may mention.
  Writer(const Graph& graph, const std::vector<int>& nodes, const std::vector<int>& others = {}) : graph_(graph) {
    for (const int n : nodes) mention(graph.nodes[static_cast<size_t>(n)]);
    for (const int t : others) mention(t);
    for (const DimDesc& s : graph.symbols) {
      if (std::any_of(tensors_.begin(), tensors_.end(), [&](int t) { return has(t, s.symbol); }))
        symbols_.emplace(s.symbol, static_cast<int>(symbols_.size()));
    }
    for (const DimDesc& s : graph.symbols) {
      if (symbols_.count(s.symbol) > 0) add("symbol {}..{} by {}\n", s.min, s.max, s.multiple_of);
    }
    for (const int n : nodes) add_node(graph.nodes[static_cast<size_t>(n)]);
    for (const int t : tensors_) add_tensor(graph.tensors[static_cast<size_t>(t)]);
  }

  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }
  // -1: it is not mentioned.
  int number(int tensor) {
    const auto found = std::find(tensors_.begin(), tensors_.end(), tensor);
    return found == tensors_.end() ? -1 : static_cast<int>(found - tensors_.begin());
  }
  std::string take() { return std::move(out_); }

 private:
  void mention(const Node& node) {
    for (const int t : node.inputs) mention(t);
    for (const int t : results_of(node)) mention(t);
  }
  void mention(int tensor) {
    if (number(tensor) < 0) tensors_.push_back(tensor);
  }
  bool has(int tensor, const std::string& symbol) const {
    const TensorDesc& t = graph_.tensors[static_cast<size_t>(tensor)];
    const auto in_stride = [&](const ir::Expr& e) {
      const std::vector<std::string> factors = symbols_in(e);
      return std::find(factors.begin(), factors.end(), symbol) != factors.end();
    };
    return std::any_of(t.dims.begin(), t.dims.end(),
                       [&](const DimDesc& d) { return !d.fixed() && d.symbol == symbol; }) ||
           std::any_of(t.strides.begin(), t.strides.end(), in_stride);
  }
  static std::vector<std::string> symbols_in(const ir::Expr& stride) {
    const std::optional<Monomial> m = monomial(stride);
    return m ? m->symbols : std::vector<std::string>{};
  }

  void add_node(const Node& node) {
    add("{}", node.op);
    for (const int t : node.inputs) add(" {}", number(t));
    for (const int t : results_of(node)) add(" > {}", number(t));
    for (const Attr& a : node.attrs) {
      add(" {}:{}=", a.name, a.value.index());
      std::visit([&](const auto& v) { add_value(v); }, a.value);
    }
    add("\n");
  }
  void add_value(const std::vector<int64_t>& list) {
    for (const int64_t i : list) add("{},", i);
  }
  void add_value(const std::string& text) { add("{}\"{}\"", text.size(), text); }
  template <class T>
  void add_value(const T& value) {
    add("{}", value);
  }

  void add_tensor(const TensorDesc& t) {
    add("{}{}", ir::dtype_name(t.dtype), t.constant ? " const" : "");
    for (const DimDesc& d : t.dims) {
      if (d.fixed()) {
        add(" {}", d.max);
      } else {
        add(" ${}", symbols_.at(d.symbol));
      }
    }
    for (const ir::Expr& e : t.strides) add_stride(e);
    add("\n");
  }
  // A product (finish() takes nothing else), whatever the order in which the caller's names put its factors.
  void add_stride(const ir::Expr& e) {
    const std::optional<Monomial> m = monomial(e);
    std::vector<int> factors;
    for (const std::string& s : symbols_in(e)) factors.push_back(symbols_.at(s));
    std::sort(factors.begin(), factors.end());
    add(" /{}", m ? m->coeff : -1);
    for (const int f : factors) add("*${}", f);
  }

  const Graph& graph_;
  std::vector<int> tensors_;            // by number
  std::map<std::string, int> symbols_;  // their numbers, in the order of the graph
  std::string out_;
};

}  // namespace

std::string structure_of(const Graph& finished, const Group& group) {
  Writer writer(finished, group.nodes);
  for (const int t : group.stored) writer.add("> {}\n", writer.number(t));
  writer.add("> {}\n", writer.number(group.output));
  return writer.take();
}

std::string structure_of(const Graph& finished) {
  std::vector<int> nodes(finished.nodes.size());
  std::iota(nodes.begin(), nodes.end(), 0);
  std::vector<int> arguments = finished.inputs;
  arguments.insert(arguments.end(), finished.outputs.begin(), finished.outputs.end());
  Writer writer(finished, nodes, arguments);
  for (const int t : finished.inputs) writer.add("< {}\n", writer.number(t));
  for (const int t : finished.outputs) writer.add("> {}\n", writer.number(t));
  for (const DimDesc& s : finished.symbols) {
    for (const Hint& h : s.hints) writer.add("~{}*{}", h.value, h.weight);
    writer.add("\n");
  }
  return writer.take();
}

}  // namespace lathe::ops
