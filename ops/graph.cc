// Building and finishing graphs: see graph.h. Shapes of single nodes are in shape.cc.
#include "ops/graph.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "ir/core/binding.h"
#include "ir/core/names.h"
#include "ops/monomial.h"
#include "ops/op_table.h"
#include "ops/shape.h"

namespace lathe::ops {

using ir::Expr;
using ir::invalid;
using ir::Result;
using ir::Status;
using ir::unsupported;

DimDesc fixed_dim(int64_t size) { return {size, size, 1, {}, {}}; }
DimDesc symbol_dim(std::string symbol, int64_t min, int64_t max, std::vector<Hint> hints, int64_t multiple_of) {
  return {min, max, multiple_of, std::move(symbol), std::move(hints)};
}
bool same_dim(const DimDesc& a, const DimDesc& b) {
  if (a.fixed() || b.fixed()) return a.fixed() && b.fixed() && a.min == b.min;
  return a.symbol == b.symbol;
}
Expr dim_expr(const DimDesc& dim) { return dim.fixed() ? Expr(dim.min) : ir::symbol(dim.symbol); }
std::string dim_text(const DimDesc& dim) { return dim.fixed() ? fmt::format("{}", dim.min) : dim.symbol; }

bool operator==(const TensorDesc& a, const TensorDesc& b) {
  return a.name == b.name && a.dtype == b.dtype && a.dims == b.dims && a.constant == b.constant &&
         a.inferred == b.inferred &&
         std::equal(a.strides.begin(), a.strides.end(), b.strides.begin(), b.strides.end(),
                    [](const Expr& x, const Expr& y) { return ir::equal(x, y); });
}

int add_tensor(Graph& graph, std::string name, std::vector<DimDesc> dims, bool constant, ir::DType dtype,
               std::vector<Expr> strides) {
  graph.tensors.push_back({std::move(name), dtype, std::move(dims), std::move(strides), constant, false});
  return static_cast<int>(graph.tensors.size()) - 1;
}
int add_node(Graph& graph, std::string op, std::vector<int> inputs, std::string output_name, std::vector<Attr> attrs) {
  const OpRow* row = find_op(op);
  const int index = static_cast<int>(graph.tensors.size()), results = row == nullptr ? 1 : row->family->results(*row);
  Node node{std::move(op), std::move(inputs), index, std::move(attrs), {}};
  for (int i = 0; i < results; ++i) {
    TensorDesc out;
    out.name = i == 0 ? output_name : fmt::format("{}.{}", output_name, i);
    out.inferred = true;
    graph.tensors.push_back(std::move(out));
    if (i > 0) node.also.push_back(index + i);
  }
  graph.nodes.push_back(std::move(node));
  return index;
}

std::vector<int> results_of(const Node& node) {
  std::vector<int> out = node.also;
  out.insert(out.begin(), node.output);
  return out;
}

std::string kernel_symbol(const std::string& symbol) {
  return !symbol.empty() && symbol[0] >= 'A' && symbol[0] <= 'Z' ? symbol : "S_" + symbol;
}

namespace {

// The state of one finish(). Steps in the order of run().
class Finisher {
 public:
  explicit Finisher(const Graph& graph) : g_(graph), writer_(graph.tensors.size(), -1) {}
  Result<Graph> run();

 private:
  Status check_tensors();
  Status check_dim(const TensorDesc& t, size_t d, DimDesc& dim);
  std::string unused_symbol(std::string name) const;
  Status check_strides();
  Status check_nodes();
  Status check_outputs();
  Status visit(int tensor);
  static Status settle(TensorDesc& out, Shape shape, const std::string& op);
  Status infer();
  Status check_storage(const TensorDesc& t, bool written);
  Status collect_symbols();
  Graph renumber() const;

  const DimDesc* find_symbol(const std::string& name) const {
    for (const DimDesc& s : symbols_) {
      if (s.symbol == name) return &s;
    }
    return nullptr;
  }

  Graph g_;
  std::vector<int> writer_;  // node that writes each tensor, or -1
  std::vector<int> order_;   // nodes in topological order
  std::vector<char> state_;  // of nodes in visit(): 0 unseen, 1 open, 2 done
  std::vector<DimDesc> symbols_;
  std::map<std::string, std::string> given_names_;  // kernel symbol -> the caller's
  ir::SymbolValues fixed_symbols_;                  // symbols whose range is one value
};

// For a dim that the caller gave no name: `name`, made longer while it is also what the caller calls another one.
std::string Finisher::unused_symbol(std::string name) const {
  const auto calls_it = [&](const TensorDesc& t) {
    return std::any_of(t.dims.begin(), t.dims.end(), [&](const DimDesc& d) { return kernel_symbol(d.symbol) == name; });
  };
  while (given_names_.contains(name) || std::any_of(g_.tensors.begin(), g_.tensors.end(), calls_it)) name += '_';
  return name;
}

Status Finisher::check_dim(const TensorDesc& t, size_t d, DimDesc& dim) {
  const std::string where = fmt::format("{}.shape[{}]", t.name, d);
  if (dim.min < 0) return invalid("{}, expected >= 0", dim.min).with_arg(where);
  if (dim.max < dim.min) return invalid("max {} is less than min {}", dim.max, dim.min).with_arg(where);
  if (dim.multiple_of < 1) return invalid("multiple_of {}, expected >= 1", dim.multiple_of).with_arg(where);
  if (dim.max / dim.multiple_of * dim.multiple_of < dim.min) {
    return invalid("no multiple of {} in {}..{}", dim.multiple_of, dim.min, dim.max).with_arg(where);
  }
  for (const Hint& h : dim.hints) {
    if (h.value < dim.min || h.value > dim.max || h.value % dim.multiple_of != 0) {
      return invalid("hint {}, expected a multiple of {} in {}..{}", h.value, dim.multiple_of, dim.min, dim.max)
          .with_arg(where);
    }
    if (!std::isfinite(h.weight) || h.weight < 0)
      return invalid("weight of a hint, expected finite and >= 0").with_arg(where);
  }
  if (!dim.symbol.empty()) {
    const std::string given = dim.symbol;
    dim.symbol = kernel_symbol(given);
    if (!ir::is_valid_name(dim.symbol)) return invalid("symbol \"{}\", expected a name", given).with_arg(where);
    const auto [it, fresh] = given_names_.emplace(dim.symbol, given);
    if (!fresh && it->second != given) {
      return invalid("symbols {} and {} cannot be told apart", given, it->second).with_arg(where);
    }
  }
  if (dim.fixed()) {
    if (!dim.symbol.empty()) fixed_symbols_[dim.symbol] = dim.min;
    dim = fixed_dim(dim.min);
  } else if (dim.symbol.empty()) {
    dim.symbol = unused_symbol(fmt::format("D{}_{}", &t - g_.tensors.data(), d));
  }
  return {};
}

Status Finisher::check_tensors() {
  for (size_t i = 0; i < g_.tensors.size(); ++i) {
    TensorDesc& t = g_.tensors[i];
    if (t.name.empty()) return invalid("tensor {} has no name", i).with_arg("tensors", static_cast<int>(i));
    for (size_t j = 0; j < i; ++j) {
      if (g_.tensors[j].name == t.name) return invalid("two tensors of this name").with_arg(t.name);
    }
    if (t.dims.size() > kMaxRank) {
      return invalid("{} dimensions, expected at most {}", t.dims.size(), kMaxRank).with_arg(t.name + ".shape");
    }
    for (size_t d = 0; d < t.dims.size(); ++d) {
      const DimDesc given = t.dims[d];
      LATHE_RETURN_IF_ERROR(check_dim(t, d, t.dims[d]));
      if (t.dims[d].fixed()) continue;
      for (size_t j = 0; j <= i; ++j) {  // one symbol, one range
        for (size_t e = 0; e < (j == i ? d : g_.tensors[j].dims.size()); ++e) {
          const DimDesc& other = g_.tensors[j].dims[e];
          if (other.symbol != t.dims[d].symbol) continue;
          if (other.min != given.min || other.max != given.max || other.multiple_of != given.multiple_of) {
            return invalid(
                       "symbol {} in {}..{} multiple {}, expected {}..{} multiple {} as in "
                       "{}.shape[{}]",
                       given.symbol, given.min, given.max, given.multiple_of, other.min, other.max, other.multiple_of,
                       g_.tensors[j].name, e)
                .with_arg(fmt::format("{}.shape[{}]", t.name, d));
          }
        }
      }
    }
  }
  return {};
}

// Strides as products of the Kernel's symbols.
Status Finisher::check_strides() {
  for (TensorDesc& t : g_.tensors) {
    for (size_t d = 0; d < t.strides.size(); ++d) {
      const std::string where = fmt::format("{}.strides[{}]", t.name, d);
      const auto given = monomial(t.strides[d]);
      if (!given) return invalid("expected a product of non-negative constants and symbols").with_arg(where);
      std::optional<Monomial> m = Monomial{given->coeff, {}};
      for (const std::string& name : given->symbols) {
        const std::string symbol = kernel_symbol(name);
        const auto fixed = fixed_symbols_.find(symbol);
        m = product(*m, fixed == fixed_symbols_.end() ? Monomial{1, {symbol}} : Monomial{fixed->second, {}});
        if (!m) return invalid("the stride overflows 64 bits").with_arg(where);
      }
      t.strides[d] = to_expr(*m);
    }
  }
  return {};
}

Status Finisher::check_nodes() {
  const int n = static_cast<int>(g_.tensors.size());
  for (size_t i = 0; i < g_.nodes.size(); ++i) {
    Node& node = g_.nodes[i];
    const std::string where = fmt::format("nodes[{}]", i);
    const OpRow* row = find_op(node.op);
    if (!row) return unsupported("unknown op \"{}\"", node.op).with_arg(where);
    const int arity = static_cast<int>(node.inputs.size());
    if (arity < row->min_arity || arity > row->max_arity) {
      return invalid("{} operands of {}, expected {}", arity, row->name,
                     row->min_arity == row->max_arity ? fmt::format("{}", row->min_arity)
                                                      : fmt::format("{} to {}", row->min_arity, row->max_arity))
          .with_arg(where);
    }
    for (int t : node.inputs) {
      if (t < 0 || t >= n) return invalid("operand {} of {}, expected 0 to {}", t, row->name, n - 1).with_arg(where);
    }
    const std::vector<int> results = results_of(node);
    if (const auto expected = static_cast<size_t>(row->family->results(*row)); results.size() != expected)
      return invalid("{} results of {}, expected {}", results.size(), row->name, expected).with_arg(where);
    for (const int t : results) {
      if (t < 0 || t >= n) return invalid("output {} of {}, expected 0 to {}", t, row->name, n - 1).with_arg(where);
      const TensorDesc& out = g_.tensors[t];
      if (writer_[t] >= 0) return invalid("written by two nodes").with_arg(out.name);
      if (out.constant) return invalid("a constant cannot be the result of {}", row->name).with_arg(out.name);
      writer_[t] = static_cast<int>(i);
    }
    LATHE_ASSIGN(node.attrs, complete_attrs(*row, node, where));
  }
  for (int t = 0; t < n; ++t) {
    if (writer_[t] < 0 && g_.tensors[t].inferred) {
      return invalid("dims and dtype are missing, and no node writes it").with_arg(g_.tensors[t].name);
    }
  }
  return {};
}

Status Finisher::check_outputs() {
  if (g_.outputs.empty()) return invalid("the graph has no output").with_arg("outputs");
  for (size_t i = 0; i < g_.outputs.size(); ++i) {
    const int t = g_.outputs[i];
    if (t < 0 || t >= static_cast<int>(g_.tensors.size())) {
      return invalid("tensor {} does not exist", t).with_arg(fmt::format("outputs[{}]", i));
    }
    if (writer_[t] < 0) return invalid("an input cannot be an output; copy it").with_arg(g_.tensors[t].name);
    if (std::find(g_.outputs.begin(), g_.outputs.begin() + i, t) != g_.outputs.begin() + i) {
      return invalid("named twice as an output").with_arg(g_.tensors[t].name);
    }
  }
  return {};
}

// Post-order walk. Iterative, since a chain may be as long as a caller likes.
Status Finisher::visit(int tensor) {
  struct Frame {
    int node;
    size_t next;
  };
  std::vector<Frame> stack;
  const auto open = [&](int t) -> Status {
    const int node = writer_[t];
    if (node < 0 || state_[node] == 2) return {};
    if (state_[node] == 1) return invalid("depends on itself").with_arg(g_.tensors[t].name);
    state_[node] = 1;
    stack.push_back({node, 0});
    return {};
  };
  LATHE_RETURN_IF_ERROR(open(tensor));
  while (!stack.empty()) {
    Frame& top = stack.back();
    const Node& node = g_.nodes[top.node];
    if (top.next < node.inputs.size()) {
      LATHE_RETURN_IF_ERROR(open(node.inputs[top.next++]));
    } else {
      state_[top.node] = 2;
      order_.push_back(top.node);
      stack.pop_back();
    }
  }
  return {};
}

Status Finisher::settle(TensorDesc& out, Shape shape, const std::string& op) {
  if (shape.dims.size() > kMaxRank) {
    return invalid("{} dimensions, expected at most {}", shape.dims.size(), kMaxRank).with_arg(out.name + ".shape");
  }
  if (out.inferred) {
    out.dtype = shape.dtype;
    out.dims = std::move(shape.dims);
    out.inferred = false;
    return {};
  }
  if (out.dtype != shape.dtype) {
    return invalid("dtype {}, expected {} (result of {})", ir::dtype_name(out.dtype), ir::dtype_name(shape.dtype), op)
        .with_arg(out.name);
  }
  if (out.dims.size() != shape.dims.size()) {
    return invalid("{} dimensions, expected {} (result of {})", out.dims.size(), shape.dims.size(), op)
        .with_arg(out.name + ".shape");
  }
  for (size_t d = 0; d < shape.dims.size(); ++d) {
    if (same_dim(out.dims[d], shape.dims[d])) continue;
    return invalid("{}, expected {} (result of {})", dim_text(out.dims[d]), dim_text(shape.dims[d]), op)
        .with_arg(fmt::format("{}.shape[{}]", out.name, d));
  }
  return {};
}

Status Finisher::infer() {
  for (int i : order_) {
    const Node& node = g_.nodes[i];
    std::vector<const TensorDesc*> inputs;
    for (int t : node.inputs) inputs.push_back(&g_.tensors[t]);
    LATHE_ASSIGN(Shape shape, infer_shape(*find_op(node.op), node, inputs));
    std::vector<Shape> more = std::move(shape.more);
    LATHE_RETURN_IF_ERROR(settle(g_.tensors[node.output], std::move(shape), node.op));
    for (size_t r = 0; r < node.also.size(); ++r)
      LATHE_RETURN_IF_ERROR(settle(g_.tensors[node.also[r]], std::move(more[r]), node.op));
  }
  return {};
}

// Sizes fit 64 bits at the ends of all ranges; strides of results do not make elements share a
// cell.
Status Finisher::check_storage(const TensorDesc& t, bool written) {
  const std::string where = t.name + ".shape";
  if (!t.strides.empty() && t.strides.size() != t.dims.size()) {
    return invalid("{} strides, expected {}", t.strides.size(), t.dims.size()).with_arg(t.name + ".strides");
  }
  const auto too_large = [&](int64_t elements) { return ir::dtype_bytes(t.dtype, elements) == INT64_MAX; };
  int64_t elements = 1;
  for (const DimDesc& d : t.dims) {
    if (__builtin_mul_overflow(elements, std::max<int64_t>(1, d.max), &elements) || too_large(elements)) {
      return invalid("the size in bytes overflows 64 bits").with_arg(where);
    }
  }
  if (t.strides.empty()) return {};
  for (const bool top : {false, true}) {
    const auto value = [&](const std::string& name) { return top ? find_symbol(name)->max : find_symbol(name)->min; };
    int64_t extent = 1;
    std::vector<std::pair<int64_t, int64_t>> steps;  // stride, size
    for (size_t d = 0; d < t.dims.size(); ++d) {
      const Monomial m = *monomial(t.strides[d]);
      const std::string stride = fmt::format("{}.strides[{}]", t.name, d);
      for (const std::string& s : m.symbols) {
        if (!find_symbol(s)) return invalid("symbol {} is the size of no dimension", s).with_arg(stride);
      }
      const auto step = evaluate(m, value);
      const int64_t size = top ? t.dims[d].max : t.dims[d].min;
      int64_t reach = 0;
      if (!step || __builtin_mul_overflow(*step, std::max<int64_t>(0, size - 1), &reach) ||
          __builtin_add_overflow(extent, reach, &extent) || (extent > 0 && too_large(extent))) {
        return invalid("the offset in bytes overflows 64 bits").with_arg(stride);
      }
      if (size > 1) steps.emplace_back(*step, size);
    }
    if (!written) continue;
    std::sort(steps.begin(), steps.end());
    int64_t covered = 1;  // cells of the dimensions before, from the innermost on
    for (const auto& [step, size] : steps) {
      if (step < covered) {
        return invalid("stride {}: elements of a result share memory, expected >= {}", step, covered)
            .with_arg(t.name + ".strides");
      }
      covered += step * (size - 1);
    }
  }
  return {};
}

Status Finisher::collect_symbols() {
  const auto add = [&](int tensor) {
    for (const DimDesc& d : g_.tensors[tensor].dims) {
      if (!d.fixed() && !find_symbol(d.symbol)) symbols_.push_back(d);
    }
  };
  for (int i : order_) {
    for (int t : g_.nodes[i].inputs) add(t);
    for (int t : results_of(g_.nodes[i])) add(t);
  }
  if (symbols_.size() > kMaxSymbols) {
    return invalid("{} symbols, expected at most {}", symbols_.size(), kMaxSymbols).with_arg("dims");
  }
  for (DimDesc& s : symbols_) {  // the first tensor with hints speaks for the symbol
    for (const TensorDesc& t : g_.tensors) {
      for (const DimDesc& d : t.dims) {
        if (s.hints.empty() && d.symbol == s.symbol) s.hints = d.hints;
      }
    }
  }
  return {};
}

Graph Finisher::renumber() const {
  Graph out;
  out.name = g_.name;
  out.symbols = symbols_;
  std::vector<int> number(g_.tensors.size(), -1);
  const auto place = [&](int t) {
    if (number[t] < 0) {
      number[t] = static_cast<int>(out.tensors.size());
      out.tensors.push_back(g_.tensors[t]);
      out.source.push_back(t);
    }
    return number[t];
  };
  for (int i : order_) {
    Node node = g_.nodes[i];
    for (int& t : node.inputs) t = place(t);
    node.output = place(node.output);
    for (int& t : node.also) t = place(t);
    out.nodes.push_back(std::move(node));
  }
  for (int t : g_.outputs) out.outputs.push_back(number[t]);
  for (size_t t = 0; t < number.size(); ++t) {
    if (writer_[t] < 0) out.inputs.push_back(number[t]);
  }
  return out;
}

Result<Graph> Finisher::run() {
  LATHE_RETURN_IF_ERROR(check_tensors());
  LATHE_RETURN_IF_ERROR(check_strides());
  LATHE_RETURN_IF_ERROR(check_nodes());
  LATHE_RETURN_IF_ERROR(check_outputs());
  state_.assign(g_.nodes.size(), 0);
  for (int t : g_.outputs) LATHE_RETURN_IF_ERROR(visit(t));
  std::vector<char> used(g_.tensors.size(), 0);
  for (int i : order_) {
    for (int t : results_of(g_.nodes[i])) used[t] = 1;
    for (int t : g_.nodes[i].inputs) used[t] = 1;
  }
  for (size_t t = 0; t < used.size(); ++t) {
    if (!used[t]) return invalid("no output needs it").with_arg(g_.tensors[t].name);
  }
  LATHE_RETURN_IF_ERROR(infer());
  LATHE_RETURN_IF_ERROR(check_updates(g_, writer_));
  LATHE_RETURN_IF_ERROR(collect_symbols());
  for (size_t t = 0; t < g_.tensors.size(); ++t) {
    const bool written = writer_[t] >= 0 || is_updated(g_, static_cast<int>(t));
    LATHE_RETURN_IF_ERROR(check_storage(g_.tensors[t], written));
  }
  return renumber();
}

}  // namespace

Result<Graph> finish(const Graph& graph) {
  if (!graph.source.empty()) return graph;
  return Finisher(graph).run();
}

}  // namespace lathe::ops
