// Parameters, views and inlined expressions of a group: see kernel_writer.h.
#include "ops/kernel_writer.h"

#include <algorithm>
#include <iterator>

#include "ir/analysis/analysis.h"
#include "ir/core/names.h"
#include "ops/family.h"
#include "ops/monomial.h"

namespace lathe::ops {

using ir::Expr;
using ir::Stmt;

KernelWriter::KernelWriter(const Graph& graph, const Group& group) : graph_(graph), group_(group) {
  for (int i : group.nodes) producer_[graph.nodes[i].output] = i;
  const auto see = [&](int t) {
    View v;
    for (const DimDesc& d : graph.tensors[t].dims) v.dims.push_back(dim_expr(d));
    v.strides = graph.tensors[t].strides;
    views_[t] = std::move(v);
  };
  for (int i : group.nodes) {
    for (int t : graph.nodes[i].inputs) {
      if (!producer_.count(t) && !views_.count(t)) externals_.push_back(t);
      see(t);
    }
  }
  see(group.output);
  for (const int t : group.stored) see(t);
}

ir::Buffer KernelWriter::buffer(int tensor, const std::string& name, ir::Place place) const {
  const View& v = views_.at(tensor);
  ir::Buffer b;
  b.name = name;
  b.type = graph_.tensors[tensor].dtype;
  b.place = place;
  b.dims = v.dims;
  b.strides = v.strides;
  return b;
}

std::string KernelWriter::add_param(int tensor, const std::string& name) {
  buffers_.push_back(buffer(tensor, name, graph_.tensors[tensor].constant ? ir::Place::constant : ir::Place::in));
  sources_.push_back({tensor});
  params_.emplace(tensor, name);
  return name;
}

void KernelWriter::add_updated(int tensor, const std::string& name) {
  add_param(tensor, name);
  buffers_.back().place = ir::Place::out;
  buffers_.back().kept = true;
}

ir::Status KernelWriter::add_integers(int tensor, const std::string& name, const Expr& most, bool rises,
                                      const Expr& least) {
  if (std::find(graph_.inputs.begin(), graph_.inputs.end(), tensor) == graph_.inputs.end())
    return ir::unsupported("computed by the graph, expected an input: its values are checked before the call")
        .with_arg(graph_.tensors[tensor].name);
  add_param(tensor, name);
  buffers_.back().values = {least, most};
  sources_.back().rises = rises;
  return {};
}

ir::Result<std::vector<Expr>> KernelWriter::add_ids(int tensor, const std::string& name, const Expr& count) {
  View &ids = views_[tensor], &rows = views_[group_.output];
  if (group_.nodes.size() == 1 && ids.strides.empty() && rows.strides.empty()) {
    Expr all(1);
    for (const Expr& d : ids.dims) all = multiply(all, d);
    ids.dims = {all};
    rows.dims = {all, rows.dims.back()};
  }
  LATHE_RETURN_IF_ERROR(add_integers(tensor, name, count - Expr(1)));
  return ids.dims;
}

std::string KernelWriter::add_operand(int tensor, const std::string& name) {
  if (producer_.count(tensor) == 0) return add_param(tensor, name);
  if (std::find(group_.packed.begin(), group_.packed.end(), tensor) != group_.packed.end()) {
    add_packed(tensor, name);
    return name;
  }
  ir::Buffer b = buffer(tensor, name, ir::Place::heap);
  b.strides.clear();
  temps_.push_back(std::move(b));
  staged_.emplace_back(tensor, name);
  return name;
}

void KernelWriter::add_packed(int tensor, const std::string& name) {
  int constant = tensor;
  while (producer_.count(constant) != 0) {  // riders on their way from the only tensor they read
    const Node& node = graph_.nodes[producer_.at(constant)];
    constant = node.inputs[0];
  }
  ir::Buffer b = buffer(tensor, name, ir::Place::constant);
  b.strides.clear();
  b.given = graph_.tensors[constant].dtype;
  const Expr own = ir::load(name, {}, b.given);
  bind(constant, ir::is_float(b.given) ? as_dtype(ir::DType::f32, own) : own);
  b.made = value(tensor, {});
  bound_.erase(constant);
  if (ir::unwidened(b.made)->op == ir::Op::k_load) {  // nothing but what a read does by itself
    b.type = b.given;
    b.given = ir::Buffer().given;
    b.made = {};
  }
  buffers_.push_back(std::move(b));
  sources_.push_back({constant});
}

std::vector<Stmt> KernelWriter::stage() {
  std::vector<Stmt> out;
  for (const auto& [tensor, name] : staged_) {
    const std::vector<Expr>& dims = views_.at(tensor).dims;
    std::vector<std::string> names = iter_names(name + "i", dims.size() - 1);
    names.push_back(name + "j");
    const Index index = iters(names);
    const std::vector<std::string> roles(names.size(), "prologue");
    std::vector<Stmt> scopes =
        nest(names, dims, roles, {store(name, index, as_dtype(graph_.tensors[tensor].dtype, value(tensor, index)))});
    out.insert(out.end(), std::make_move_iterator(scopes.begin()), std::make_move_iterator(scopes.end()));
  }
  return out;
}

void KernelWriter::add_part(int tensor, ir::Buffer part, int64_t offset, bool is_part) {
  part.place = graph_.tensors[tensor].constant ? ir::Place::constant : ir::Place::in;
  buffers_.push_back(std::move(part));
  sources_.push_back({tensor, offset, is_part});
}

ir::DType KernelWriter::dtype_of(const std::string& name) const {
  const auto named = [&](const ir::Buffer& b) { return b.name == name; };
  const auto at = std::find_if(buffers_.begin(), buffers_.end(), named);
  return at != buffers_.end() ? at->type : std::find_if(temps_.begin(), temps_.end(), named)->type;
}

std::string KernelWriter::add_temp(const std::string& name, std::vector<Expr> dims, ir::DType type) {
  ir::Buffer b;
  b.name = name;
  b.type = type;
  b.dims = std::move(dims);
  b.place = ir::Place::heap;
  temps_.push_back(std::move(b));
  return name;
}

Expr KernelWriter::value(int tensor, const Index& index) {
  if (const auto it = bound_.find(tensor); it != bound_.end()) return it->second;
  if (const auto it = producer_.find(tensor); it != producer_.end()) {
    const Node& node = graph_.nodes[it->second];
    std::vector<Expr> args;
    for (int t : node.inputs) args.push_back(value(t, index));
    return op_row(node).family->fusion.element.get().value()(node, args);
  }
  const auto it = params_.find(tensor);
  const std::string name = it != params_.end() ? it->second : add_param(tensor, fmt::format("e{}", next_operand_++));
  const ir::DType type = graph_.tensors[tensor].dtype;
  Expr element = ir::load(name, align(index, views_.at(tensor).dims), type);
  return ir::is_float(type) ? as_dtype(ir::DType::f32, std::move(element)) : element;
}

Stmt KernelWriter::store_result(const std::string& output, const Index& index) {
  return store(output, index, as_dtype(graph_.tensors[group_.output].dtype, value(group_.output, index)));
}

// Whether `part` is `tensor`, or what riders of the group make it of.
bool KernelWriter::makes(int tensor, int part) const {
  if (tensor == part) return true;
  const auto producer = producer_.find(tensor);
  if (producer == producer_.end()) return false;
  const std::vector<int>& inputs = graph_.nodes[static_cast<size_t>(producer->second)].inputs;
  return std::any_of(inputs.begin(), inputs.end(), [&](int t) { return makes(t, part); });
}

std::vector<int> KernelWriter::stored_ahead() const {
  std::vector<int> out;
  for (const int t : group_.stored) {
    if (group_.anchor >= 0 && makes(anchor().inputs[0], t)) out.push_back(t);
  }
  return out;
}

std::vector<int> KernelWriter::stored_beside() const {
  const std::vector<int> ahead = stored_ahead();
  std::vector<int> out;
  for (const int t : group_.stored) {
    if (std::find(ahead.begin(), ahead.end(), t) == ahead.end()) out.push_back(t);
  }
  return out;
}

std::string KernelWriter::name_also(int tensor) {
  also_.push_back(tensor);
  return fmt::format("t{}", also_.size() - 1);
}

Stmt KernelWriter::store_also(int tensor, const Index& index) {
  const std::string name = name_also(tensor);
  return store(name, index, as_dtype(graph_.tensors[static_cast<size_t>(tensor)].dtype, value(tensor, index)));
}

std::vector<Stmt> KernelWriter::store_results(const std::string& output, const Index& index) {
  std::vector<Stmt> out;
  for (const int t : stored_beside()) out.push_back(store_also(t, index));
  out.push_back(store_result(output, index));
  return out;
}

LoweredKernel KernelWriter::finish(const std::string& output, std::vector<Stmt> body) {
  for (size_t i = 0; i < also_.size(); ++i) {
    buffers_.push_back(buffer(also_[i], fmt::format("t{}", i), ir::Place::out));
    sources_.push_back({also_[i]});
  }
  buffers_.push_back(buffer(group_.output, output, ir::Place::out));
  sources_.push_back({group_.output});
  return finish_updates(std::move(body));
}

LoweredKernel KernelWriter::finish_updates(std::vector<Stmt> body) {
  LoweredKernel out;
  ir::Kernel& k = out.kernel;
  for (int i : group_.nodes) k.name += (k.name.empty() ? "" : "_") + graph_.nodes[i].op;
  if (!ir::is_valid_name(k.name)) k.name += "_op";  // where, exp, ... mean something in the text form
  k.family = group_.family->name.get();
  k.buffers = std::move(buffers_);
  k.buffers.insert(k.buffers.end(), temps_.begin(), temps_.end());
  k.body = std::move(body);
  std::vector<std::string> used;
  const auto collect = [&](const Expr& e) {
    ir::for_each_node(e, [&](const ir::ExprNode& n) {
      if (n.op == ir::Op::k_symbol) used.push_back(n.name);
    });
  };
  for (const ir::Buffer& b : k.buffers) {
    for (const Expr& e : b.dims) collect(e);
    for (const Expr& e : b.strides) collect(e);
  }
  for (const DimDesc& s : graph_.symbols) {
    if (std::find(used.begin(), used.end(), s.symbol) != used.end()) {
      k.symbols.push_back({s.symbol, s.min, s.max, s.multiple_of});
    }
  }
  out.params = std::move(sources_);
  out.fusion_note = group_.note;
  return out;
}

void KernelWriter::add_row_dim() {
  std::vector<int> tensors = group_.stored;
  tensors.push_back(group_.output);
  const int operand = anchor().inputs[0];
  if (std::find(tensors.begin(), tensors.end(), operand) == tensors.end()) tensors.push_back(operand);
  for (const int t : tensors) {
    View& v = views_[t];
    if (!v.strides.empty())
      v.strides.insert(v.strides.begin(), v.dims.empty() ? Expr(1) : multiply(v.dims[0], v.strides[0]));
    v.dims.insert(v.dims.begin(), Expr(1));
  }
}

Index align(const Index& index, const std::vector<Expr>& dims) {
  Index out(index.end() - static_cast<std::ptrdiff_t>(dims.size()), index.end());
  for (size_t d = 0; d < dims.size(); ++d) {
    if (ir::is_const_int(dims[d], 1)) out[d] = Expr(0);
  }
  return out;
}

std::vector<Stmt> nest(const std::vector<std::string>& names, const std::vector<Expr>& extents,
                       const std::vector<std::string>& roles, std::vector<Stmt> body) {
  for (size_t i = names.size(); i-- > 0;) {
    std::vector<Stmt> outer;
    outer.push_back(ir::make_scope(names[i], extents[i], std::move(body), roles[i]));
    body = std::move(outer);
  }
  return body;
}

std::vector<std::string> iter_names(const std::string& stem, size_t n) {
  if (n == 1) return {stem};
  std::vector<std::string> out;
  for (size_t i = 0; i < n; ++i) out.push_back(fmt::format("{}{}", stem, i));
  return out;
}

Index iters(const std::vector<std::string>& names) {
  Index out;
  for (const std::string& n : names) out.push_back(ir::iter(n));
  return out;
}

Stmt store(const std::string& buffer, Index index, Expr value, ir::AssignOp op) {
  return ir::make_assign(buffer, std::move(index), op, std::move(value));
}

Expr f32(double value) { return ir::const_float(static_cast<float>(value)); }
Expr as_dtype(ir::DType type, Expr e) { return e->type == type ? e : ir::cast(type, std::move(e)); }
Expr f32_of(const Expr& size) {
  return ir::is_const_int(size) ? f32(static_cast<double>(size->ival)) : ir::cast(ir::DType::f32, size);
}

}  // namespace lathe::ops
