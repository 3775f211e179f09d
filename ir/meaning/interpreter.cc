// Runs a Program under one of the arithmetics: see interpreter.h for what it means, interpreter_program.h for its form.
// Errors found while running are kept in status_ and stop the loops; no exceptions.
#include "ir/meaning/interpreter.h"

#include "ir/core/names.h"
#include "ir/core/text_form.h"
#include "ir/meaning/arithmetics.h"
#include "ir/meaning/interpreter_program.h"

namespace lathe::ir {

namespace {

int64_t wrapped(DType type, int64_t v) {
  switch (type) {
    case DType::i8:
      return static_cast<int8_t>(v);
    case DType::u8:
      return static_cast<uint8_t>(v);
    case DType::i32:
      return static_cast<int32_t>(v);
    case DType::b8:
      return v != 0;
    default:
      return v;
  }
}
int64_t wrap_op(Op op, int64_t a, int64_t b) {
  const uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  return static_cast<int64_t>(op == Op::k_add ? x + y : op == Op::k_sub ? x - y : x * y);
}

template <class A>
class Runner {
 public:
  using Value = typename A::Value;

  Runner(const Program& program, int64_t max_steps) : program_(program), max_steps_(max_steps) {}

  Status run(std::map<std::string, Tensor>& tensors, bool keep_contents) {
    slots_.assign(program_.slots, 0);
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
        slots_[step.slot] = i;
        block(step.body);
      }
      return;
    }
    for (int64_t i = 0; i < extent && !stopped_; ++i) {
      slots_[step.slot] = i;
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
    Value* cell = locate(program_.accesses[step.access]);
    if (!cell) return;
    switch (step.op) {
      case AssignOp::set:
        *cell = v;
        break;
      case AssignOp::add:
        *cell = A::add(step.type, *cell, v);
        break;
      case AssignOp::mul:
        *cell = A::mul(step.type, *cell, v);
        break;
      case AssignOp::max:
        *cell = A::max(step.type, *cell, v);
        break;
      case AssignOp::min:
        *cell = A::min(step.type, *cell, v);
        break;
      case AssignOp::fmax:
        *cell = A::fmax(step.type, v, *cell);
        break;
    }
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

  int64_t affine(int64_t base, int first_term, int last_term) const {
    const CodeTerm* const end = program_.terms.data() + last_term;
    for (const CodeTerm* t = program_.terms.data() + first_term; t != end; ++t) base += t->coef * slots_[t->slot];
    return base;
  }

  // The cell, or null after a failure.
  Value* locate(const CodeAccess& access) {
    std::vector<Value>& cells = cells_[access.buffer];
    int64_t offset = 0;
    if (access.flat) {
      offset = affine(access.base, access.first_term, access.last_term);
    } else {
      for (int d = access.first_dim; d < access.last_dim; ++d) {
        const CodeDim& dim = program_.dims[d];
        const int64_t i = dim.node >= 0 ? integer(dim.node) : affine(dim.base, dim.first_term, dim.last_term);
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
      default:
        break;
    }
    const Value a = value(n.arg[0]);
    if (n.arg[1] < 0) {
      if (n.op == Op::k_neg) return A::neg(n.type, a);
      if (n.op == Op::k_abs) return A::abs(n.type, a);
      if (!A::math_defined(n.op, a)) {
        fail(unsupported("exp of a value that went through exp has no meaning in the finite field: {}", here()));
      }
      return A::math(n.op, n.type, a);
    }
    const Value b = value(n.arg[1]);
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
      case Op::k_fma:
        return A::fma(n.type, a, b, value(n.arg[2]));
      default:
        fail(unsupported("{} of floats: {}", op_info(n.op).id, here()));
        return A::undefined();
    }
  }

  int64_t integer(int index) {
    const CodeNode& n = program_.nodes[index];
    switch (n.op) {
      case Op::k_const_int:
        return n.ival;
      case Op::k_iter:
        return slots_[n.slot];
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
  std::vector<int64_t> slots_;
  std::vector<Value> constants_;  // by node
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
