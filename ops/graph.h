// The graph an engine asks for: tensors, nodes (operators of ops.def) and outputs. Written by the
// caller, then finish()ed: shapes and dtypes inferred, everything checked, put in canonical order.
// Plain values; finish() is pure.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ir/base/dtype.h"
#include "ir/base/status.h"
#include "ir/core/expr.h"

namespace lathe::ops {

constexpr int kMaxRank = 8;
constexpr int kMaxSymbols = 6;

// A value of a dimension that will be common, and how common (relative).
struct Hint {
  int64_t value = 0;
  double weight = 1;
  bool operator==(const Hint&) const = default;
};

// A size in [min, max], a multiple of multiple_of. Fixed if min = max. Equal symbols have equal
// values.
struct DimDesc {
  int64_t min = 0, max = 0, multiple_of = 1;
  std::string symbol;
  std::vector<Hint> hints;
  bool fixed() const { return min == max; }
  bool operator==(const DimDesc&) const = default;
};
DimDesc fixed_dim(int64_t size);
DimDesc symbol_dim(std::string symbol, int64_t min, int64_t max, std::vector<Hint> hints = {}, int64_t multiple_of = 1);
// One value at run time: the same number, or the same symbol.
bool same_dim(const DimDesc& a, const DimDesc& b);
ir::Expr dim_expr(const DimDesc& dim);     // a constant or a symbol
std::string dim_text(const DimDesc& dim);  // "896" or "M"

struct TensorDesc {
  std::string name;
  ir::DType dtype = ir::DType::f32;
  std::vector<DimDesc> dims;
  // Elements per step of each dim: constants, symbols or products of them. Empty: compact.
  std::vector<ir::Expr> strides;
  bool constant = false;
  bool inferred = false;  // dtype and dims are left to finish() (results of nodes only); strides may be stated
};
bool operator==(const TensorDesc& a, const TensorDesc& b);

using AttrValue = std::variant<int64_t, double, bool, std::string, std::vector<int64_t>>;
struct Attr {
  std::string name;
  AttrValue value;
  bool operator==(const Attr&) const = default;
};

struct Node {
  std::string op;
  std::vector<int> inputs;  // indices into Graph::tensors
  int output = -1;
  std::vector<Attr> attrs;
  std::vector<int> also;  // results after the first one, as many as the operator has
  bool operator==(const Node&) const = default;
};

struct Graph {
  std::string name;
  std::vector<TensorDesc> tensors;
  std::vector<Node> nodes;
  std::vector<int> outputs;

  // Filled by finish().
  std::vector<int> inputs;       // tensors no node writes, in the caller's order: arguments are inputs, then outputs
  std::vector<int> source;       // tensor i was tensors[source[i]] of the caller's graph
  std::vector<DimDesc> symbols;  // in order of first use; ranges and hints

  bool operator==(const Graph&) const = default;
};

// Builders for C++ callers and tests; each returns the index of the tensor it adds: the first, where an operator has
// several results. The others follow it, and are named after it: "y.1".
int add_tensor(Graph& graph, std::string name, std::vector<DimDesc> dims, bool constant = false,
               ir::DType dtype = ir::DType::f32, std::vector<ir::Expr> strides = {});
int add_node(Graph& graph, std::string op, std::vector<int> inputs, std::string output_name,
             std::vector<Attr> attrs = {});

// The first result of a node, then the others.
std::vector<int> results_of(const Node& node);

// The checked graph in canonical form: nodes in the topological order of a walk from the outputs,
// tensors numbered by first use in it, every attribute stated that has a default, symbols named as kernel_symbol()
// says. Errors name the argument, as "x.shape[1]: 96, expected 128 (K of w)". A finished graph
// finishes to itself.
ir::Result<Graph> finish(const Graph& graph);

// The name a symbol has in finished graphs and Kernels: its own if it starts with an upper-case
// letter, else "S_" before it (lower-case names belong to iterators and buffers).
std::string kernel_symbol(const std::string& symbol);

}  // namespace lathe::ops
