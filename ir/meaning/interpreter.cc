// Runs a Program under one of the arithmetics: see interpreter.h for what it means, interpreter_program.h for its form.
// Errors found while running are kept in status_ and stop the loops; no exceptions.
#include "ir/meaning/interpreter.h"

#include <algorithm>

#include "ir/core/names.h"
#include "ir/core/text_form.h"
#include "ir/meaning/arithmetics.h"
#include "ir/meaning/interpreter_program.h"

namespace lathe::ir {

namespace {

template <class A>
class Runner {
 public:
  using Value = typename A::Value;

  Runner(const Program& program, int64_t max_steps) : program_(program), max_steps_(max_steps) {}

  Status run(std::map<std::string, Tensor>& tensors, bool keep_contents) {
    slots_.resize(program_.slots + 1);
    kept_.resize(program_.kept);
    for (const CodeNode& n : program_.nodes) {
      constants_.push_back(n.op == Op::k_const_float ? A::constant(n.type, n.fval) : A::undefined());
    }
    for (const CodeBuffer& b : program_.buffers) cells_.push_back(initial(b, tensors, keep_contents));
    block(program_.body);
    if (!status_.ok()) return status_;
    for (size_t i = 0; i < program_.buffers.size(); ++i) write_back(program_.buffers[i], cells_[i], tensors);
    return {};
  }

 private:
  std::vector<Value> initial(const CodeBuffer& b, const std::map<std::string, Tensor>& tensors, bool keep) {
    const auto given = tensors.find(b.source->name);
    const bool input = has_contents(*b.source);
    std::vector<Value> out(b.size, A::undefined());
    if (!input && (!keep || given == tensors.end())) return out;
    const DType type = b.source->type;
    for (int64_t i = 0; i < b.size; ++i) {
      const double v = given->second.data[i];
      if (!b.integer) {
        out[i] = A::input(type, v);
      } else if (!std::isnan(v)) {
        out[i] = A::store_int(DoubleArithmetic::to_int(type, v));
      }
    }
    return out;
  }

  void write_back(const CodeBuffer& b, const std::vector<Value>& cells, std::map<std::string, Tensor>& tensors) {
    if (is_input(b.source->place)) return;
    if (b.source->place != Place::out && !tensors.count(b.source->name)) return;
    Tensor& t = tensors[b.source->name];
    t.dims = b.dims;
    t.data.resize(cells.size());
    for (size_t i = 0; i < cells.size(); ++i) {
      t.data[i] = b.integer ? A::output_int(cells[i]) : A::output(cells[i]);
    }
  }

  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
    stopped_ = true;
  }
  std::string here() const { return current_ ? print(std::vector<Stmt>{*current_}) : std::string("a scope"); }

  void block(const std::vector<CodeStep>& body) {
    for (const CodeStep& step : body) {
      if (stopped_) return;
      if (step.scope) {
        scope(step);
      } else {
        assign(step);
      }
    }
  }

  void scope(const CodeStep& step) {
    const int64_t extent = step.extent < 0 ? step.constant_extent : integer(step.extent);
    if (step.only) {
      for (const int64_t i : *step.only) {
        if (i < 0 || i >= extent || stopped_) continue;
        slots_[step.slot] = {i, ++turn_};
        block(step.body);
      }
      return;
    }
    if (step.line && extent >= kShortestLine && line(step, extent)) return;
    for (int64_t i = 0; i < extent && !stopped_; ++i) {
      slots_[step.slot] = {i, ++turn_};
      block(step.body);
    }
  }

  void assign(const CodeStep& step) {
    current_ = step.source;
    if (++steps_ > max_steps_) return fail(unsupported("more than {} statements to interpret", max_steps_));
    if (step.integer) {
      // A copy reads nothing of what it copies: cells never written stay so.
      const CodeNode& n = program_.nodes[step.value];
      if (step.op == AssignOp::set && n.op == Op::k_load && n.type == step.type) {
        const Value* from = locate(program_.accesses[n.access]);
        const Value copied = from ? *from : A::undefined();
        if (Value* cell = locate(program_.accesses[step.access])) *cell = copied;
        return;
      }
      if constexpr (A::kOrdered) {
        if (step.op == AssignOp::set && n.op == Op::k_cast && !n.integer_args && n.type == step.type) {
          const Value v = value(n.arg[0]);
          if (Value* cell = locate(program_.accesses[step.access])) *cell = A::store_cast(step.type, v);
          return;
        }
      }
      const int64_t v = integer(step.value);
      if (Value* cell = locate(program_.accesses[step.access])) assign_integer(step, v, *cell);
      return;
    }
    if (step.factor_a >= 0) {
      const Value a = value(step.factor_a), b = value(step.factor_b);
      if (Value* cell = locate(program_.accesses[step.access])) *cell = A::fma(step.type, a, b, *cell);
      return;
    }
    const Value v = A::convert(step.type, value(step.value));
    if (Value* cell = locate(program_.accesses[step.access])) assign_float(step, v, *cell);
  }

  static void assign_float(const CodeStep& step, Value v, Value& cell) {
    switch (step.op) {
      case AssignOp::set:
        cell = v;
        break;
      case AssignOp::add:
        cell = A::add(step.type, cell, v);
        break;
      case AssignOp::mul:
        cell = A::mul(step.type, cell, v);
        break;
      case AssignOp::max:
        cell = A::max(step.type, cell, v);
        break;
      case AssignOp::min:
        cell = A::min(step.type, cell, v);
        break;
      case AssignOp::fmax:
        cell = A::fmax(step.type, v, cell);
        break;
    }
  }

  // Cells that a loop goes through by equal steps.
  struct Cells {
    Value* first = nullptr;  // null: some of them lie outside
    int64_t step = 0;
  };
  Cells cells_of(const CodeAccess& access, int64_t count) {
    std::vector<Value>& cells = cells_[access.buffer];
    const auto inside = [count](int64_t first, int64_t step, int64_t size) {
      const int64_t last = first + (count - 1) * step;
      return std::min(first, last) >= 0 && std::max(first, last) < size;
    };
    int64_t offset = access.flat ? sum(access.sum) : 0, step = access.flat ? access.sum.coef : 0;
    for (int d = access.first_dim; d < access.last_dim && !access.flat; ++d) {
      const CodeDim& dim = program_.dims[d];
      const int64_t first = dim.node >= 0 ? integer(dim.node) : sum(dim.sum), by = dim.node >= 0 ? 0 : dim.sum.coef;
      if (!inside(first, by, dim.size)) return {};
      offset += first * dim.stride;
      step += by * dim.stride;
    }
    if (!inside(offset, step, static_cast<int64_t>(cells.size()))) return {};
    return {cells.data() + offset, step};
  }

  // The values of an expression in `count` turns of a line, from number `from` on. Null: in some turn of all it reads
  // what lies outside. depth: those of less are not touched.
  const Value* values(int index, int64_t from, int64_t count, size_t depth) {
    while (lines_.size() <= depth) lines_.emplace_back(kLongestLine);
    Value* const out = lines_[depth].data();
    const CodeNode& n = program_.nodes[index];
    if (n.op == Op::k_const_float) {
      std::fill_n(out, count, constants_[index]);
    } else if (n.op == Op::k_load) {
      const Cells cells = cells_of(program_.accesses[n.access], turns_);
      if (cells.first == nullptr) return nullptr;
      for (int64_t i = 0; i < count; ++i) out[i] = cells.first[(from + i) * cells.step];
    } else {
      if (values(n.arg[0], from, count, depth) == nullptr) return nullptr;
      const Value* const b = n.arg[1] < 0 ? nullptr : values(n.arg[1], from, count, depth + 1);
      if (n.arg[1] >= 0 && b == nullptr) return nullptr;
      for (int64_t i = 0; i < count; ++i) out[i] = b == nullptr ? unary(n, out[i]) : binary(n, out[i], b[i]);
    }
    return out;
  }

  // What the scope says turn by turn, operand by operand. False: nothing was done.
  bool line(const CodeStep& scope, int64_t extent) {
    const CodeStep& step = scope.body[0];
    if (steps_ + extent > max_steps_) return false;
    slots_[scope.slot] = {0, ++turn_};
    current_ = step.source;
    turns_ = extent;
    const Cells target = cells_of(program_.accesses[step.access], extent);
    if (target.first == nullptr) return false;
    for (int64_t from = 0; from < extent && !stopped_; from += kLongestLine) {
      const int64_t count = std::min(extent - from, kLongestLine);
      const bool product = step.factor_a >= 0;
      const Value* const a = values(product ? step.factor_a : step.value, from, count, 0);
      const Value* const b = product ? values(step.factor_b, from, count, 1) : a;
      if (a == nullptr || b == nullptr) return false;
      for (int64_t i = 0; i < count; ++i) {
        Value& cell = target.first[(from + i) * target.step];
        if (product) {
          cell = A::fma(step.type, a[i], b[i], cell);
        } else {
          assign_float(step, A::convert(step.type, a[i]), cell);
        }
      }
    }
    steps_ += extent;
    return true;
  }

  void assign_integer(const CodeStep& step, int64_t v, Value& cell) {
    int64_t old = 0;
    if (step.op != AssignOp::set && !A::load_int(cell, &old)) {
      return fail(internal_error("reads a cell of {} never written: {}", step.source->target, here()));
    }
    switch (step.op) {
      case AssignOp::set:
        break;
      case AssignOp::add:
        v = wrap_op(Op::k_add, old, v);
        break;
      case AssignOp::mul:
        v = wrap_op(Op::k_mul, old, v);
        break;
      case AssignOp::max:
      case AssignOp::fmax:
        v = std::max(old, v);
        break;
      case AssignOp::min:
        v = std::min(old, v);
        break;
    }
    cell = A::store_int(wrapped(step.type, v));
  }

  int64_t sum(const CodeSum& s) {
    const int64_t inner = s.coef * slots_[s.slot].value;
    if (s.kept < 0) return s.base + inner;
    Turned& outer = kept_[s.kept];
    const int64_t turn = slots_[s.outer].turn;
    if (outer.turn != turn) {
      outer = {s.base, turn};
      for (int t = s.first_term; t < s.last_term; ++t)
        outer.value += program_.terms[t].coef * slots_[program_.terms[t].slot].value;
    }
    return outer.value + inner;
  }

  // The cell, or null after a failure.
  Value* locate(const CodeAccess& access) {
    std::vector<Value>& cells = cells_[access.buffer];
    int64_t offset = 0;
    if (access.flat) {
      offset = sum(access.sum);
    } else {
      for (int d = access.first_dim; d < access.last_dim; ++d) {
        const CodeDim& dim = program_.dims[d];
        const int64_t i = dim.node >= 0 ? integer(dim.node) : sum(dim.sum);
        if (static_cast<uint64_t>(i) >= static_cast<uint64_t>(dim.size)) return outside(access, d, i);
        offset += i * dim.stride;
      }
    }
    // Memory safety does not rest on the interval analysis.
    return static_cast<uint64_t>(offset) < cells.size() ? &cells[offset] : outside(access, access.last_dim, offset);
  }
  Value* outside(const CodeAccess& access, int dim, int64_t index) {
    const char* buffer = program_.buffers[access.buffer].source->name.c_str();
    if (dim == access.last_dim) {
      fail(internal_error("buffer {}: offset {} outside: {}", buffer, index, here()));
    } else {
      fail(internal_error("buffer {}: dimension {}: index {}, size is {}: {}", buffer, dim - access.first_dim, index,
                          program_.dims[dim].size, here()));
    }
    return nullptr;
  }

  Value value(int index) {
    const CodeNode& n = program_.nodes[index];
    switch (n.op) {
      case Op::k_const_float:
        return constants_[index];
      case Op::k_load: {
        const Value* cell = locate(program_.accesses[n.access]);
        return cell ? *cell : A::undefined();
      }
      case Op::k_cast:
        return n.integer_args ? A::from_int(n.type, integer(n.arg[0])) : A::convert(n.type, value(n.arg[0]));
      case Op::k_select:
        return value(n.arg[integer(n.arg[0]) != 0 ? 1 : 2]);
      case Op::k_fma: {
        const Value a = value(n.arg[0]), b = value(n.arg[1]);
        return A::fma(n.type, a, b, value(n.arg[2]));
      }
      default:
        break;
    }
    const Value a = value(n.arg[0]);
    return n.arg[1] < 0 ? unary(n, a) : binary(n, a, value(n.arg[1]));
  }
  Value unary(const CodeNode& n, Value a) {
    if (n.op == Op::k_cast) return A::convert(n.type, a);
    if (n.op == Op::k_neg) return A::neg(n.type, a);
    if (n.op == Op::k_abs) return A::abs(n.type, a);
    if (!A::math_defined(n.op, a)) {
      fail(unsupported("exp of a value that went through exp has no meaning in the finite field: {}", here()));
    }
    return A::math(n.op, n.type, a);
  }
  Value binary(const CodeNode& n, Value a, Value b) {
    switch (n.op) {
      case Op::k_add:
        return A::add(n.type, a, b);
      case Op::k_sub:
        return A::sub(n.type, a, b);
      case Op::k_mul:
        return A::mul(n.type, a, b);
      case Op::k_div:
        return A::div(n.type, a, b);
      case Op::k_max:
        return A::max(n.type, a, b);
      case Op::k_min:
        return A::min(n.type, a, b);
      case Op::k_fmax:
        return A::fmax(n.type, a, b);
      default:
        fail(unsupported("{} of floats: {}", op_info(n.op).id, here()));
        return A::undefined();
    }
  }

  int64_t integer(int index) {
    const CodeNode& n = program_.nodes[index];
    if (n.kept < 0) return computed(n);
    Turned& known = kept_[n.kept];
    const int64_t turn = slots_[n.slot].turn;
    if (known.turn != turn) known = {computed(n), turn};
    return known.value;
  }
  int64_t computed(const CodeNode& n) {
    switch (n.op) {
      case Op::k_const_int:
        return n.ival;
      case Op::k_iter:
        return slots_[n.slot].value;
      case Op::k_load: {
        int64_t v = 0;
        const Value* cell = locate(program_.accesses[n.access]);
        if (cell && !A::load_int(*cell, &v)) {
          fail(internal_error("reads a cell of {} never written: {}",
                              program_.buffers[program_.accesses[n.access].buffer].source->name, here()));
        }
        return v;
      }
      case Op::k_cast:
        return n.integer_args ? wrapped(n.type, integer(n.arg[0])) : A::to_int(n.type, value(n.arg[0]));
      case Op::k_select:
        return integer(n.arg[integer(n.arg[0]) != 0 ? 1 : 2]);
      case Op::k_logical_and:
        return integer(n.arg[0]) != 0 && integer(n.arg[1]) != 0;
      case Op::k_logical_or:
        return integer(n.arg[0]) != 0 || integer(n.arg[1]) != 0;
      case Op::k_logical_not:
        return integer(n.arg[0]) == 0;
      case Op::k_lt:
      case Op::k_le:
      case Op::k_eq:
      case Op::k_ne:
        return comparison(n);
      default:
        break;
    }
    const int64_t a = integer(n.arg[0]);
    if (n.op == Op::k_neg) return wrapped(n.type, wrap_op(Op::k_sub, 0, a));
    if (n.op == Op::k_abs) return a < 0 ? wrapped(n.type, wrap_op(Op::k_sub, 0, a)) : a;
    const int64_t b = integer(n.arg[1]);
    switch (n.op) {
      case Op::k_add:
      case Op::k_sub:
      case Op::k_mul:
        return wrapped(n.type, wrap_op(n.op, a, b));
      case Op::k_min:
        return std::min(a, b);
      case Op::k_max:
      case Op::k_fmax:
        return std::max(a, b);
      case Op::k_fma:
        return wrapped(n.type, wrap_op(Op::k_add, wrap_op(Op::k_mul, a, b), integer(n.arg[2])));
      case Op::k_floordiv:
      case Op::k_mod:
      case Op::k_ceildiv:
        return division(n.op, a, b);
      case Op::k_bit_and:
        return a & b;
      case Op::k_bit_or:
        return a | b;
      case Op::k_shift_left:
      case Op::k_shift_right:
        return shifted(n, a, b);
      default:
        fail(unsupported("{} of integers: {}", op_info(n.op).id, here()));
        return 0;
    }
  }

  int64_t shifted(const CodeNode& n, int64_t a, int64_t count) {
    if (count < 0 || count > 31) {
      fail(internal_error("{} by {}, expected 0..31: {}", op_info(n.op).spelling, count, here()));
      return 0;
    }
    return n.op == Op::k_shift_right ? a >> count : wrapped(n.type, a << count);
  }

  int64_t comparison(const CodeNode& n) {
    if (n.integer_args) {
      const int64_t a = integer(n.arg[0]), b = integer(n.arg[1]);
      return n.op == Op::k_lt ? a < b : n.op == Op::k_le ? a <= b : n.op == Op::k_eq ? a == b : a != b;
    }
    const Value a = value(n.arg[0]), b = value(n.arg[1]);
    const bool eq = A::eq(a, b);
    return n.op == Op::k_lt ? A::lt(a, b) : n.op == Op::k_le ? A::lt(a, b) || eq : n.op == Op::k_eq ? eq : !eq;
  }

  int64_t division(Op op, int64_t a, int64_t b) {
    if (b <= 0) {
      fail(internal_error("{} by {}, which is not positive: {}", op_info(op).spelling, b, here()));
      return 0;
    }
    const int64_t floor = a / b - (a % b < 0);
    if (op == Op::k_floordiv) return floor;
    return op == Op::k_mod ? a - floor * b : floor + (a % b != 0);
  }

  const Program& program_;
  const int64_t max_steps_;
  // A value, and since which turn of a loop it is so: turns of all loops are counted together.
  struct Turned {
    int64_t value = 0, turn = 0;
  };
  std::vector<Turned> slots_, kept_;
  int64_t turn_ = 0;
  static constexpr int64_t kShortestLine = 4, kLongestLine = 64;
  std::vector<std::vector<Value>> lines_;  // values of operands
  int64_t turns_ = 0;                      // of the line that runs
  std::vector<Value> constants_;           // by node
  std::vector<std::vector<Value>> cells_;
  int64_t steps_ = 0;
  const Stmt* current_ = nullptr;
  bool stopped_ = false;
  Status status_;
};

template <class A>
Status run_with(const Kernel& kernel, const SymbolValues& symbols, std::map<std::string, Tensor>& tensors,
                const InterpreterOptions& options) {
  LATHE_ASSIGN(const Program program, compile_program(kernel, symbols, tensors, options, A::kOrdered));
  return Runner<A>(program, options.max_steps).run(tensors, options.keep_contents);
}

}  // namespace

Status interpret(const Kernel& scheduled, const SymbolValues& symbols, std::map<std::string, Tensor>& tensors,
                 const InterpreterOptions& options) {
  const Kernel kernel = as_given(scheduled);
  switch (options.arithmetic) {
    case Arithmetic::native:
      return run_with<NativeArithmetic>(kernel, symbols, tensors, options);
    case Arithmetic::real:
      return run_with<RealArithmetic>(kernel, symbols, tensors, options);
    case Arithmetic::magnitude:
      return run_with<MagnitudeArithmetic>(kernel, symbols, tensors, options);
    case Arithmetic::error_bound:
      return run_with<ErrorArithmetic>(kernel, symbols, tensors, options);
    case Arithmetic::finite_field:
      return run_with<FieldArithmetic>(kernel, symbols, tensors, options);
  }
  return invalid("unknown arithmetic");
}

}  // namespace lathe::ir
