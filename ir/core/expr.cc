// Expression constructors and equality: see expr.h.
#include "ir/core/expr.h"

namespace lathe::ir {

namespace {
constexpr OpInfo kOps[] = {
#define LATHE_NODE(id, spelling, arity, form, cls) {#id, spelling, arity, OpForm::form, OpClass::cls},
#include "ir/core/nodes.def"
#undef LATHE_NODE
};

Expr wrap(ExprNode node) { return Expr(std::make_shared<const ExprNode>(std::move(node))); }

// An argument list from braces would copy each argument.
Expr of_two(Op op, Expr a, Expr b) {
  std::vector<Expr> args;
  args.reserve(2);
  args.push_back(std::move(a));
  args.push_back(std::move(b));
  return make(op, std::move(args));
}

Expr named(Op op, std::string name) {
  ExprNode node{op, DType::i64, {}, std::move(name)};
  return wrap(std::move(node));
}
}  // namespace

const OpInfo& op_info(Op op) { return kOps[static_cast<int>(op)]; }

Expr::Expr(int64_t value)
    : node_(std::make_shared<const ExprNode>(ExprNode{Op::k_const_int, DType::i64, {}, {}, value})) {}

Expr iter(std::string name) { return named(Op::k_iter, std::move(name)); }
Expr symbol(std::string name) { return named(Op::k_symbol, std::move(name)); }

// Rounds to the type, so that fval is always exactly representable.
Expr const_float(double value, DType type) {
  if (type != DType::f64) value = static_cast<float>(value);
  if (type == DType::f16) value = f16_to_f32(f32_to_f16(static_cast<float>(value)));
  if (type == DType::bf16) value = bf16_to_f32(f32_to_bf16(static_cast<float>(value)));
  return wrap({Op::k_const_float, type, {}, {}, 0, value});
}

Expr const_int(int64_t value, DType type) { return wrap({Op::k_const_int, type, {}, {}, value}); }

Expr load(std::string buffer, std::vector<Expr> indices, DType type) {
  return wrap({Op::k_load, type, std::move(indices), std::move(buffer)});
}

Expr cast(DType type, Expr e) { return wrap({Op::k_cast, type, {std::move(e)}}); }

Expr make_typed(Op op, DType type, std::vector<Expr> args) { return wrap({op, type, std::move(args)}); }

Expr make(Op op, std::vector<Expr> args) {
  const OpClass cls = op_info(op).cls;
  DType type = args.empty() ? DType::i64 : args.back()->type;
  if (cls == OpClass::kCompare || cls == OpClass::kLogic) type = DType::b8;
  if (cls == OpClass::kBits && !args.empty()) type = args.front()->type;  // a shift's count has a type of its own
  return make_typed(op, type, std::move(args));
}

Expr operator+(Expr a, Expr b) { return of_two(Op::k_add, std::move(a), std::move(b)); }
Expr operator-(Expr a, Expr b) { return of_two(Op::k_sub, std::move(a), std::move(b)); }
Expr operator*(Expr a, Expr b) { return of_two(Op::k_mul, std::move(a), std::move(b)); }
Expr operator/(Expr a, Expr b) { return of_two(Op::k_div, std::move(a), std::move(b)); }
Expr operator-(Expr a) { return make(Op::k_neg, {std::move(a)}); }
Expr floordiv(Expr a, Expr b) { return of_two(Op::k_floordiv, std::move(a), std::move(b)); }
Expr mod(Expr a, Expr b) { return of_two(Op::k_mod, std::move(a), std::move(b)); }
Expr ceildiv(Expr a, Expr b) { return of_two(Op::k_ceildiv, std::move(a), std::move(b)); }
Expr min(Expr a, Expr b) { return of_two(Op::k_min, std::move(a), std::move(b)); }
Expr max(Expr a, Expr b) { return of_two(Op::k_max, std::move(a), std::move(b)); }
Expr fma(Expr a, Expr b, Expr c) { return make(Op::k_fma, {std::move(a), std::move(b), std::move(c)}); }
Expr select(Expr c, Expr x, Expr y) { return make(Op::k_select, {std::move(c), std::move(x), std::move(y)}); }

bool is_const_int(const Expr& e) { return e && e->op == Op::k_const_int; }
bool is_const_int(const Expr& e, int64_t value) { return is_const_int(e) && e->ival == value; }

bool equal(const Expr& a, const Expr& b) {
  if (a.get() == b.get()) return true;
  if (!a || !b) return false;
  if (a->op != b->op || a->type != b->type || a->name != b->name || a->ival != b->ival ||
      a->args.size() != b->args.size()) {
    return false;
  }
  if (a->op == Op::k_const_float && !(a->fval == b->fval || (a->fval != a->fval && b->fval != b->fval))) return false;
  for (size_t i = 0; i < a->args.size(); ++i) {
    if (!equal(a->args[i], b->args[i])) return false;
  }
  return true;
}

}  // namespace lathe::ir
