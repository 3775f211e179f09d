// What the family files of the ops floor share: the parameters of a group's Kernel, views of its
// tensors, and the expression of a tensor's element with elementwise nodes inlined. Internal to
// ops.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "ops/fusion.h"
#include "ops/lower.h"

namespace lathe::ops {

using Index = std::vector<ir::Expr>;

// The sizes and strides under which a Kernel sees a tensor: the graph's, or merged and padded with
// ones.
struct View {
  std::vector<ir::Expr> dims;
  std::vector<ir::Expr> strides;  // empty: compact
};

class KernelWriter {
 public:
  KernelWriter(const Graph& graph, const Group& group);

  const Graph& graph() const { return graph_; }
  const Group& group() const { return group_; }
  const Node& anchor() const { return graph_.nodes[group_.anchor]; }
  // Tensors from outside that the group reads, each once, in graph order.
  const std::vector<int>& externals() const { return externals_; }
  View& view(int tensor) { return views_[tensor]; }
  // A first dimension of 1 for the anchor's operand and for all results: there are always rows.
  void add_row_dim();

  // Declares a parameter and returns its name. A tensor may serve as two parameters; loads use the
  // first.
  std::string add_param(int tensor, const std::string& name);
  // Declares integers from `least` to `most`: an input of the graph, as callers are held to their range, and to their
  // order if they rise.
  ir::Status add_integers(int tensor, const std::string& name, const ir::Expr& most, bool rises = false,
                          const ir::Expr& least = ir::Expr(0));
  // Declares an operand that the group updates.
  void add_updated(int tensor, const std::string& name);
  // Declares integers below `count` that choose a row each of the group's result, and returns their dims: one where
  // nothing rides and both are compact.
  ir::Result<std::vector<ir::Expr>> add_ids(int tensor, const std::string& name, const ir::Expr& count);
  // The same of what riders of the group may make. Of a constant: it is packed as they make it; where they only widen
  // a bf16 or f16, it stays as it is. Of anything else: a temporary, which stage() fills.
  std::string add_operand(int tensor, const std::string& name);
  // A part of a tensor, or another reading of it, as a parameter: the buffer says which, but for its place.
  void add_part(int tensor, ir::Buffer part, int64_t offset, bool is_part);
  // Of a declared parameter or temporary.
  ir::DType dtype_of(const std::string& name) const;
  std::string add_temp(const std::string& name, std::vector<ir::Expr> dims, ir::DType type = ir::DType::f32);
  // From here on value(tensor) is this expression: an anchor's result, or a prologue already
  // stored.
  void bind(int tensor, ir::Expr value) { bound_[tensor] = std::move(value); }
  // The element of `tensor` at `index`, which may have more dimensions than it (broadcasting aligns
  // to the right); floats as f32. Undeclared tensors become parameters e0, e1, ...
  ir::Expr value(int tensor, const Index& index);
  // What fills the temporaries that add_operand declared, in the dtypes of their tensors, each in scopes of its own
  // with the role "prologue".
  std::vector<ir::Stmt> stage();
  // The group's result at `index`, in its dtype.
  ir::Stmt store_result(const std::string& output, const Index& index);
  // Tensors inside the group that are stored besides: those that the anchor's first operand is made of, it included,
  // and the others.
  std::vector<int> stored_ahead() const;
  std::vector<int> stored_beside() const;
  // The next of the Kernel's outputs t0, t1, ... for one of them: its name.
  std::string name_also(int tensor);
  // Stores one at `index`, in its dtype, as the next of the Kernel's outputs.
  ir::Stmt store_also(int tensor, const Index& index);
  // The group's result and those stored beside it.
  std::vector<ir::Stmt> store_results(const std::string& output, const Index& index);
  // The Kernel, its result as last parameter under `output`, the others before it.
  LoweredKernel finish(const std::string& output, std::vector<ir::Stmt> body);
  // The Kernel of a group whose result is an operand that it updates.
  LoweredKernel finish_updates(std::vector<ir::Stmt> body);

 private:
  ir::Buffer buffer(int tensor, const std::string& name, ir::Place place) const;
  void add_packed(int tensor, const std::string& name);
  bool makes(int tensor, int part) const;

  const Graph& graph_;
  const Group& group_;
  std::vector<int> externals_;
  std::map<int, View> views_;
  std::map<int, ir::Expr> bound_;
  std::map<int, int> producer_;        // tensor -> node of the group
  std::map<int, std::string> params_;  // tensor -> first name
  std::vector<ParamSource> sources_;   // of parameters so far
  std::vector<ir::Buffer> buffers_, temps_;
  std::vector<std::pair<int, std::string>> staged_;  // tensors and their temporaries
  std::vector<int> also_;                            // tensors stored so far as t0, t1, ...
  int next_operand_ = 0;
};

// The last indices of `index`, with 0 where `dims` is 1.
Index align(const Index& index, const std::vector<ir::Expr>& dims);
// Nested scopes, outermost first, around `body`.
std::vector<ir::Stmt> nest(const std::vector<std::string>& iters, const std::vector<ir::Expr>& extents,
                           const std::vector<std::string>& roles, std::vector<ir::Stmt> body);
// {"b"} or {"b0", "b1", ...}
std::vector<std::string> iter_names(const std::string& stem, size_t n);
Index iters(const std::vector<std::string>& names);
ir::Stmt store(const std::string& buffer, Index index, ir::Expr value, ir::AssignOp op = ir::AssignOp::set);
inline ir::Expr load(const std::string& buffer, Index index) {
  return ir::load(buffer, std::move(index), ir::DType::f32);
}
ir::Expr f32(double value);             // a constant, rounded
ir::Expr f32_of(const ir::Expr& size);  // a size as a number
ir::Expr as_dtype(ir::DType type, ir::Expr e);

}  // namespace lathe::ops
