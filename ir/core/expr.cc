// Expression constructors and equality: see expr.h.
#include "ir/core/expr.h"

#include <array>

namespace lathe::ir {

namespace {
constexpr OpInfo kOps[] = {
#define LATHE_NODE(id, spelling, arity, form, cls) {#id, spelling, arity, OpForm::form, OpClass::cls},
#include "ir/core/nodes.def"
#undef LATHE_NODE
};

std::shared_ptr<ExprNode> node_of(Op op, DType type) {
  std::shared_ptr<ExprNode> node = std::make_shared<ExprNode>();
  node->op = op;
  node->type = type;
  return node;
}

// Integers that stand in most Kernels. Nobody counts who refers to them: they stay for as long as the process lives.
class SmallConstants {
 public:
  static constexpr int64_t kLeast = -1, kMost = 64;
  SmallConstants() {
    for (int64_t v = kLeast; v <= kMost; ++v)
      nodes_[static_cast<size_t>(v - kLeast)] = ExprNode{Op::k_const_int, DType::i64, {}, {}, v};
  }
  std::shared_ptr<const ExprNode> at(int64_t v) const {
    return {std::shared_ptr<const ExprNode>(), &nodes_[static_cast<size_t>(v - kLeast)]};
  }

 private:
  std::array<ExprNode, kMost - kLeast + 1> nodes_{};
};

std::shared_ptr<const ExprNode> constant_node(int64_t value) {
  if (value >= SmallConstants::kLeast && value <= SmallConstants::kMost) {
    static const SmallConstants& small = *new SmallConstants;
    return small.at(value);
  }
  std::shared_ptr<ExprNode> node = node_of(Op::k_const_int, DType::i64);
  node->ival = value;
  return node;
}

// An argument list from braces would copy each argument.
Expr of_two(Op op, Expr a, Expr b) {
  std::vector<Expr> args;
  args.reserve(2);
  args.push_back(std::move(a));
  args.push_back(std::move(b));
  return make(op, std::move(args));
}

Expr named(Op op, std::string name) {
  std::shared_ptr<ExprNode> node = node_of(op, DType::i64);
  node->name = std::move(name);
  return Expr(std::move(node));
}
}  // namespace

const OpInfo& op_info(Op op) { return kOps[static_cast<int>(op)]; }

Expr::Expr(int64_t value) : node_(constant_node(value)) {}
Expr::Expr(std::shared_ptr<const ExprNode> node) : node_(std::move(node)) {
  if (node_ == nullptr) return;
  uint64_t holds = node_->name.empty() ? 0 : holds_name(node_->name);
  if (node_->op == Op::k_load) holds |= kHoldsLoad;
  if (node_->op == Op::k_shift_left || node_->op == Op::k_shift_right) holds |= kHoldsShift;
  for (const Expr& a : node_->args) holds |= a ? a->holds : 0;
  node_->holds = holds;
}

Expr iter(std::string name) { return named(Op::k_iter, std::move(name)); }
Expr symbol(std::string name) { return named(Op::k_symbol, std::move(name)); }

// Rounds to the type, so that fval is always exactly representable.
Expr const_float(double value, DType type) {
  if (type != DType::f64) value = static_cast<float>(value);
  if (type == DType::f16) value = f16_to_f32(f32_to_f16(static_cast<float>(value)));
  if (type == DType::bf16) value = bf16_to_f32(f32_to_bf16(static_cast<float>(value)));
  std::shared_ptr<ExprNode> node = node_of(Op::k_const_float, type);
  node->fval = value;
  return Expr(std::move(node));
}

Expr const_int(int64_t value, DType type) {
  std::shared_ptr<ExprNode> node = node_of(Op::k_const_int, type);
  node->ival = value;
  return Expr(std::move(node));
}

Expr load(std::string buffer, std::vector<Expr> indices, DType type) {
  std::shared_ptr<ExprNode> node = node_of(Op::k_load, type);
  node->name = std::move(buffer);
  node->args = std::move(indices);
  return Expr(std::move(node));
}

Expr cast(DType type, Expr e) { return make_typed(Op::k_cast, type, {std::move(e)}); }

Expr make_typed(Op op, DType type, std::vector<Expr> args) {
  std::shared_ptr<ExprNode> node = node_of(op, type);
  node->args = std::move(args);
  return Expr(std::move(node));
}

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
  if (a->holds != b->holds || a->op != b->op || a->type != b->type || a->name != b->name || a->ival != b->ival ||
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
