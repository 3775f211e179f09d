// Expression rules of the verifier: see expr_check.h; the rules are listed in verifier.cc.
#include "ir/analysis/expr_check.h"

#include <algorithm>

#include "ir/core/names.h"
#include "ir/core/text_form.h"

namespace lathe::ir {

namespace {

bool is_numeric(DType type) { return type != DType::b8; }

// print() with an upper limit, for messages.
std::string shown(const ExprNode& e) {
  std::string text = print(Expr(std::make_shared<const ExprNode>(e)));
  return text.size() <= 120 ? text : text.substr(0, 117) + "...";
}

bool is_affine(const Expr& e) {
  const auto args = [&] { return std::all_of(e->args.begin(), e->args.end(), is_affine); };
  switch (e->op) {
    case Op::k_const_int:
    case Op::k_symbol:
      return true;
    case Op::k_add:
    case Op::k_sub:
    case Op::k_neg:
      return args();
    case Op::k_mul:
      return args() && (is_const_int(e->args[0]) || is_const_int(e->args[1]));
    default:
      return false;
  }
}

Status type_error(const ExprNode& e, std::string_view expected) {
  return invalid("types: {}: expected {}", shown(e), expected);
}

}  // namespace

Status ExprChecker::check_index(const Expr& e) {
  LATHE_RETURN_IF_ERROR(check(e));
  if (e->type != DType::i64) return invalid("types: index {} is {}, expected i64", shown(*e), dtype_name(e->type));
  return {};
}

Status ExprChecker::check_size(const Expr& e) {
  LATHE_RETURN_IF_ERROR(check_index(e));
  Status status;
  for_each_node(e, [&](const ExprNode& n) {
    if (n.op == Op::k_iter || n.op == Op::k_load) status = invalid("sizes: {} depends on {}", shown(*e), n.name);
  });
  return status;
}

Status ExprChecker::check_values(const Buffer& b) {
  if (!b.values) return {};
  if (b.place == Place::out) return invalid("values: buffer {}: expected an input or a temporary", b.name);
  const DTypeKind kind = dtype_kind(b.type);
  if (kind != DTypeKind::kInt && kind != DTypeKind::kUInt)
    return invalid("values: buffer {} is {}, expected integers", b.name, dtype_name(b.type));
  if (is_param(b.place) && (b.made || !b.layout.empty() || !b.padding.empty()))
    return invalid("values: buffer {}: expected to be read as the caller gives it", b.name);
  for (const Expr& e : {b.values.lo, b.values.hi}) {
    LATHE_RETURN_IF_ERROR(check_size(e).with_context("values of " + b.name));
    if (!is_affine(e)) return invalid("values: buffer {}: {} is not affine in symbols", b.name, shown(*e));
    if (!is_param(b.place) && !is_const_int(e))
      return invalid("values: buffer {}: {} is no number, expected one of what is stored", b.name, shown(*e));
  }
  return {};
}

Status ExprChecker::check_name(const ExprNode& e) const {
  if (e.op == Op::k_symbol && !kernel_.find_symbol(e.name)) return invalid("names: symbol {} is not declared", e.name);
  if (e.op != Op::k_iter) return {};
  const bool open = std::any_of(scopes_.begin(), scopes_.end(), [&](const Stmt* s) { return s->iter == e.name; });
  return open ? Status() : invalid("names: iterator {} is used outside its scope", e.name);
}

Status ExprChecker::visit(const Expr& e, int depth, bool guarded) {
  if (!e) return invalid("expressions: a part is missing");
  if (depth > kMaxExprDepth) return invalid("expressions: deeper than {}", kMaxExprDepth);
  const OpInfo& info = op_info(e->op);
  if (info.arity >= 0 && static_cast<int>(e->args.size()) != info.arity) {
    return invalid("expressions: {} has {} arguments, expected {}", info.id, e->args.size(), info.arity);
  }
  for (size_t i = 0; i < e->args.size(); ++i) {
    const bool chosen = e->op == Op::k_select && i > 0;
    if (chosen && i == 1) holding_.push_back(e->args[0]);
    const Status status = visit(e->args[i], depth + 1, guarded || chosen);
    if (chosen && i == 1) holding_.pop_back();
    LATHE_RETURN_IF_ERROR(status);
  }
  LATHE_RETURN_IF_ERROR(check_name(*e));
  if (e->op != Op::k_load) return check_types(*e);

  const Buffer* buffer = kernel_.find_buffer(e->name);
  if (!buffer) return invalid("names: buffer {} is not declared", e->name);
  if (e->args.size() != buffer->dims.size()) {
    return invalid("ranks: {} has {} indices, expected {}", shown(*e), e->args.size(), buffer->dims.size());
  }
  for (const Expr& i : e->args) {
    if (i->type != DType::i64) return invalid("types: index {} is {}, expected i64", shown(*i), dtype_name(i->type));
  }
  if (e->type != buffer->type) {
    return invalid("types: load {} is {}, the buffer is {}", shown(*e), dtype_name(e->type), dtype_name(buffer->type));
  }
  return on_load ? on_load(*e, guarded, holding_) : Status();
}

Status ExprChecker::check_count(const ExprNode& shift) const {
  constexpr int64_t kMostShift = 31;
  const Expr& count = shift.args[1];
  if (count->type != DType::i64) return type_error(shift, "a count of type i64");
  if (ranges_ == nullptr) return {};
  bool never = false;  // in a scope of no iterations
  for_each_node(count, [&](const ExprNode& n) {
    const std::optional<Interval> known = n.op == Op::k_iter ? ranges_->find(n.name) : std::nullopt;
    never |= known && known->lo > known->hi;
  });
  if (never) return {};
  const bool inside = proves_le(Expr(0), count, *ranges_) && proves_le(count, Expr(kMostShift), *ranges_);
  return inside ? Status() : type_error(shift, "a count in 0..31");
}

Status ExprChecker::check_types(const ExprNode& e) const {
  const auto arg = [&](size_t i) { return e.args[i]->type; };
  const auto all_args = [&](DType type) {
    return std::all_of(e.args.begin(), e.args.end(), [&](const Expr& a) { return a->type == type; });
  };
  switch (e.op) {
    case Op::k_const_int:
      return is_float(e.type) ? type_error(e, "an integer type") : Status();
    case Op::k_const_float:
      return is_float(e.type) ? Status() : type_error(e, "a float type");
    case Op::k_iter:
    case Op::k_symbol:
      return e.type == DType::i64 ? Status() : type_error(e, "i64");
    case Op::k_cast:
      return {};
    case Op::k_select:
      if (arg(0) != DType::b8) return type_error(e, "a condition of type b8");
      return arg(1) == e.type && arg(2) == e.type ? Status() : type_error(e, "two values of one type");
    case Op::k_floordiv:
    case Op::k_mod:
    case Op::k_ceildiv: {
      if (e.type != DType::i64 || !all_args(DType::i64)) return type_error(e, "operands of type i64");
      if (ranges_ && interval(e.args[1], *ranges_).lo < 1) return type_error(e, "a positive divisor");
      return {};
    }
    case Op::k_div:
    case Op::k_fmax:
    case Op::k_fma:
      return is_float(e.type) && all_args(e.type) ? Status() : type_error(e, "operands of one float type");
    default:
      break;
  }
  switch (op_info(e.op).cls) {
    case OpClass::kCompare:
      return e.type == DType::b8 && arg(0) == arg(1) ? Status() : type_error(e, "operands of one type");
    case OpClass::kBits:
      if (e.type != DType::i32 || arg(0) != DType::i32) return type_error(e, "operands of type i32");
      if (e.op == Op::k_bit_and || e.op == Op::k_bit_or)
        return arg(1) == DType::i32 ? Status() : type_error(e, "operands of type i32");
      return check_count(e);
    case OpClass::kLogic:
      return e.type == DType::b8 && all_args(DType::b8) ? Status() : type_error(e, "operands of type b8");
    case OpClass::kMath:
      return is_float(e.type) && all_args(e.type) ? Status() : type_error(e, "an operand of float type");
    default:
      return is_numeric(e.type) && all_args(e.type) ? Status() : type_error(e, "operands of one type");
  }
}

}  // namespace lathe::ir
