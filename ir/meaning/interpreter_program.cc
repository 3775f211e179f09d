// Kernel -> Program: see interpreter_program.h. Checks names, tensors and what the arithmetic can express; runs
// nothing.
#include "ir/meaning/interpreter_program.h"

#include <algorithm>
#include <climits>
#include <unordered_map>
#include <utility>

#include "ir/analysis/analysis.h"
#include "ir/core/names.h"

namespace lathe::ir {

namespace {

class Compiler {
 public:
  Compiler(const Kernel& kernel, const std::map<std::string, Tensor>& tensors, const InterpreterOptions& options,
           bool ordered)
      : kernel_(kernel), tensors_(tensors), options_(options), ordered_(ordered) {}

  Result<Program> run(const SymbolValues& symbols) {
    for (const Symbol& s : kernel_.symbols) {
      const auto it = symbols.find(s.name);
      if (it == symbols.end()) return invalid("symbol {}: no value given", s.name);
      symbols_.emplace_back(s.name, Expr(it->second));
      values_.emplace_back(s.name, it->second);
    }
    for (const Buffer& b : kernel_.buffers) LATHE_RETURN_IF_ERROR(buffer(b));
    LATHE_RETURN_IF_ERROR(block(kernel_.body, program_.body));
    return std::move(program_);
  }

 private:
  Status buffer(const Buffer& b) {
    const auto given = tensors_.find(b.name);
    const Tensor* tensor = given == tensors_.end() ? nullptr : &given->second;
    CodeBuffer out{&b, {}, 1, !is_float(b.type)};
    for (size_t d = 0; d < b.dims.size(); ++d) {
      int64_t size = 0;
      if (b.dims[d]) {
        const auto v = evaluate(b.dims[d], values_);
        if (!v || *v < 0) return invalid("buffer {}: dimension {} has no size", b.name, d);
        size = *v;
      } else {
        if (!tensor || tensor->dims.size() != b.dims.size())
          return invalid("buffer {}: open size and no tensor of its rank", b.name);
        size = tensor->dims[d];
      }
      out.dims.push_back(size);
      if (__builtin_mul_overflow(out.size, size, &out.size)) return invalid("buffer {}: too large", b.name);
    }
    const bool needed = has_contents(b);
    if (needed && !tensor) return invalid("tensor {}: not given", b.name);
    const bool used = needed || (tensor && options_.keep_contents);
    if (used && (tensor->dims != out.dims || static_cast<int64_t>(tensor->data.size()) != out.size)) {
      return invalid("tensor {}: expected dims [{}] and {} values, got [{}] and {}", b.name, fmt::join(out.dims, ", "),
                     out.size, fmt::join(tensor->dims, ", "), tensor->data.size());
    }
    buffer_of_[b.name] = static_cast<int>(program_.buffers.size());
    program_.buffers.push_back(std::move(out));
    return {};
  }

  Status block(const std::vector<Stmt>& body, std::vector<CodeStep>& out) {
    for (const Stmt& s : body) {
      if (s.kind == Stmt::Kind::prefetch) continue;
      CodeStep step;
      step.source = &s;
      if (s.kind == Stmt::Kind::scope) {
        LATHE_RETURN_IF_ERROR(scope(s, step));
      } else {
        LATHE_RETURN_IF_ERROR(assign(s, step));
      }
      out.push_back(std::move(step));
    }
    return {};
  }

  Status scope(const Stmt& s, CodeStep& step) {
    step.scope = true;
    step.slot = program_.slots++;
    const Expr extent = simplify(bound(s.extent));
    if (is_const_int(extent)) {
      step.constant_extent = extent->ival;
    } else {
      LATHE_ASSIGN(step.extent, node(extent));
    }
    const auto only = options_.only.find(s.iter);
    if (only != options_.only.end()) step.only = &only->second;
    if (!slot_of_.emplace(s.iter, step.slot).second) return invalid("scope {}: the name is in use around it", s.iter);
    const Ranges outer = ranges_;
    Stmt head = make_scope(s.iter, extent, {});
    ranges_.enter(head);
    const int around = std::exchange(innermost_, step.slot);
    LATHE_RETURN_IF_ERROR(block(s.body, step.body));
    step.line = step.body.size() == 1 && !step.body[0].scope && is_line(step.body[0]);
    innermost_ = around;
    ranges_ = outer;
    slot_of_.erase(s.iter);
    return {};
  }

  Status assign(const Stmt& s, CodeStep& step) {
    LATHE_ASSIGN(step.access, access(s.target, s.index));
    const Buffer& target = *program_.buffers[program_.accesses[step.access].buffer].source;
    step.op = s.op;
    step.type = target.type;
    step.integer = !is_float(target.type);
    if (!s.value) return invalid("statement on {}: no value", s.target);
    if (step.integer != !is_float(s.value->type))
      return invalid("statement on {}: a {} value for {}", s.target, dtype_name(s.value->type),
                     dtype_name(target.type));
    if (s.op == AssignOp::add && !step.integer && s.value->op == Op::k_mul && s.value->type == target.type) {
      LATHE_ASSIGN(step.factor_a, node(s.value->args[0]));
      LATHE_ASSIGN(step.factor_b, node(s.value->args[1]));
      return {};
    }
    LATHE_ASSIGN(step.value, node(s.value));
    return {};
  }

  // See CodeStep::line; of the scope right around.
  bool is_line(const CodeStep& s) const {
    const CodeAccess& target = program_.accesses[s.access];
    if (s.integer || !is_even(target)) return false;
    return s.factor_a < 0 ? is_line(s.value, target.buffer)
                          : is_line(s.factor_a, target.buffer) && is_line(s.factor_b, target.buffer);
  }
  bool is_line(int node, int target) const {
    const CodeNode& n = program_.nodes[node];
    if (n.integer || n.op == Op::k_select || n.op == Op::k_fma) return false;
    if (n.op == Op::k_load) {
      const CodeAccess& from = program_.accesses[n.access];
      return from.buffer != target && is_even(from);
    }
    return std::all_of(n.arg, n.arg + 2, [&](int arg) { return arg < 0 || is_line(arg, target); });
  }
  bool is_even(const CodeAccess& access) const {
    const CodeDim* const dims = program_.dims.data();
    return access.flat || std::all_of(dims + access.first_dim, dims + access.last_dim,
                                      [&](const CodeDim& d) { return d.node < 0 || depends_[d.node] < innermost_; });
  }

  Expr bound(const Expr& e) const { return substitute(e, symbols_); }

  Result<int> access(const std::string& name, const std::vector<Expr>& index) {
    const auto it = buffer_of_.find(name);
    if (it == buffer_of_.end()) return invalid("buffer {}: not declared", name);
    const std::vector<int64_t> sizes = program_.buffers[it->second].dims;
    if (sizes.size() != index.size())
      return invalid("buffer {}: {} indices, {} dimensions", name, index.size(), sizes.size());
    std::vector<CodeDim> dims(index.size());
    int64_t stride = 1;
    for (size_t d = index.size(); d-- > 0;) {
      dims[d].size = sizes[d];
      dims[d].stride = stride;
      stride *= sizes[d];
      const Expr e = bound(index[d]);
      const Interval range = interval(e, ranges_);
      dims[d].checked = range.lo < 0 || range.hi >= sizes[d];
      LATHE_RETURN_IF_ERROR(dimension(e, dims[d]));
    }
    CodeAccess out;
    out.buffer = it->second;
    out.integer = program_.buffers[it->second].integer;
    out.first_dim = static_cast<int>(program_.dims.size());
    program_.dims.insert(program_.dims.end(), dims.begin(), dims.end());
    out.last_dim = static_cast<int>(program_.dims.size());
    flatten(dims, out);
    program_.accesses.push_back(out);
    return static_cast<int>(program_.accesses.size()) - 1;
  }

  using Terms = std::map<int, int64_t>;  // coefficients by slot

  CodeSum sum(int64_t base, Terms terms) {
    CodeSum out;
    out.base = base;
    if (const auto inner = terms.find(innermost_); inner != terms.end()) {
      out.slot = inner->first;
      out.coef = inner->second;
      terms.erase(inner);
    }
    out.first_term = static_cast<int>(program_.terms.size());
    for (const auto& [slot, coef] : terms) program_.terms.push_back({slot, coef});
    out.last_term = static_cast<int>(program_.terms.size());
    if (terms.empty()) return out;
    out.outer = terms.rbegin()->first;
    out.kept = program_.kept++;
    return out;
  }

  void flatten(const std::vector<CodeDim>& dims, CodeAccess& out) {
    int64_t base = 0;
    Terms terms;
    for (const CodeDim& d : dims) {
      if (d.checked || d.node >= 0) return;
      base += d.sum.base * d.stride;
      if (d.sum.coef != 0) terms[d.sum.slot] += d.sum.coef * d.stride;
      for (int t = d.sum.first_term; t < d.sum.last_term; ++t)
        terms[program_.terms[t].slot] += program_.terms[t].coef * d.stride;
    }
    out.flat = true;
    out.sum = sum(base, std::move(terms));
  }

  Status dimension(const Expr& e, CodeDim& dim) {
    const auto form = affine_form(e);
    bool constant = form && is_const_int(form->rest);
    for (size_t t = 0; constant && t < form->terms.size(); ++t) constant = is_const_int(form->terms[t].second);
    if (!constant) {
      LATHE_ASSIGN(dim.node, node(e));
      return {};
    }
    Terms terms;
    for (const auto& [name, coef] : form->terms) {
      const auto slot = slot_of_.find(name);
      if (slot == slot_of_.end()) return invalid("iterator {}: not in scope", name);
      terms[slot->second] += coef->ival;
    }
    dim.sum = sum(form->rest->ival, std::move(terms));
    return {};
  }

  Result<int> node(const Expr& source) {
    if (!source) return invalid("missing expression");
    const Expr e = source->op == Op::k_symbol ? bound(source) : source;
    CodeNode n;
    n.op = e->op;
    n.type = e->type;
    n.integer = !is_float(e->type);
    n.ival = e->ival;
    n.fval = e->fval;
    switch (e->op) {
      case Op::k_symbol:
        return invalid("symbol {}: no value given", e->name);
      case Op::k_iter: {
        const auto slot = slot_of_.find(e->name);
        if (slot == slot_of_.end()) return invalid("iterator {}: not in scope", e->name);
        n.slot = slot->second;
        return push(n, n.slot);
      }
      case Op::k_load: {
        LATHE_ASSIGN(n.access, access(e->name, e->args));
        if (program_.accesses[n.access].integer != n.integer) return invalid("load of {}: wrong type", e->name);
        return push(n, kUnknown);
      }
      default:
        break;
    }
    if (e->args.size() > 3) return invalid("{}: too many operands", op_info(e->op).id);
    int depends = kNothing;
    for (size_t i = 0; i < e->args.size(); ++i) {
      LATHE_ASSIGN(n.arg[i], node(e->args[i]));
      n.integer_args = program_.nodes[n.arg[i]].integer;
      depends = std::max(depends, depends_[n.arg[i]]);
    }
    if (n.integer && depends > kNothing && depends < innermost_) {
      n.slot = depends;
      n.kept = program_.kept++;
    }
    const OpClass cls = op_info(e->op).cls;
    const bool reads_floats = !e->args.empty() && !n.integer_args;
    const bool decides = cls == OpClass::kCompare || (e->op == Op::k_cast && n.integer);
    if (decides && reads_floats && !ordered_) {
      return unsupported("{} of a float has no meaning in this arithmetic",
                         e->op == Op::k_cast ? "a cast to integer" : "a comparison");
    }
    if (cls == OpClass::kMath && n.integer) return unsupported("{} of integers", op_info(e->op).id);
    if (e->op == Op::k_div && n.integer) return unsupported("/ of integers; use // or a cast");
    return push(n, depends);
  }
  // depends: the innermost of the loops that it depends on; kUnknown: on what is stored, too.
  static constexpr int kNothing = -1, kUnknown = INT_MAX;
  int push(const CodeNode& n, int depends) {
    program_.nodes.push_back(n);
    depends_.push_back(depends);
    return static_cast<int>(program_.nodes.size()) - 1;
  }

  const Kernel& kernel_;
  const std::map<std::string, Tensor>& tensors_;
  const InterpreterOptions& options_;
  const bool ordered_;
  Program program_;
  std::vector<std::pair<std::string, Expr>> symbols_;
  SymbolValues values_;
  std::unordered_map<std::string, int> buffer_of_, slot_of_;
  std::vector<int> depends_;  // of nodes
  int innermost_ = -1;        // the slot of the scope right around
  Ranges ranges_;
};

}  // namespace

Result<Program> compile_program(const Kernel& kernel, const SymbolValues& symbols,
                                const std::map<std::string, Tensor>& tensors, const InterpreterOptions& options,
                                bool ordered) {
  return Compiler(kernel, tensors, options, ordered).run(symbols);
}

}  // namespace lathe::ir
