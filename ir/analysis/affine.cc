// Affine form, uses and evaluation of index expressions: see analysis.h.
#include <algorithm>

#include "ir/analysis/canon.h"

namespace lathe::ir {

const Expr& unwidened(const Expr& e) {
  if (e->op != Op::k_cast || e->args[0]->op != Op::k_load) return e;
  const DType from = e->args[0]->type;
  const bool half = from == DType::bf16 || from == DType::f16, byte = from == DType::i8 || from == DType::u8;
  return (e->type == DType::f32 && half) || (e->type == DType::i32 && byte) ? e->args[0] : e;
}

namespace {
bool has_iterator(const Expr& e) {
  bool found = false;
  for_each_node(e, [&](const ExprNode& n) { found |= n.op == Op::k_iter || n.op == Op::k_load; });
  return found;
}

std::optional<int64_t> apply(Op op, int64_t a, int64_t b) {
  int64_t out = 0;
  switch (op) {
    case Op::k_add:
      return __builtin_add_overflow(a, b, &out) ? std::nullopt : std::optional(out);
    case Op::k_sub:
      return __builtin_sub_overflow(a, b, &out) ? std::nullopt : std::optional(out);
    case Op::k_mul:
      return __builtin_mul_overflow(a, b, &out) ? std::nullopt : std::optional(out);
    case Op::k_floordiv:
    case Op::k_ceildiv:
    case Op::k_mod: {
      if (b == 0 || (a == INT64_MIN && b == -1)) return std::nullopt;
      const bool inexact = a % b != 0, negative = (a < 0) != (b < 0);
      const int64_t floor = a / b - (inexact && negative);
      if (op == Op::k_mod) return a - floor * b;
      return op == Op::k_floordiv ? floor : floor + inexact;
    }
    case Op::k_min:
      return std::min(a, b);
    case Op::k_max:
      return std::max(a, b);
    case Op::k_lt:
      return a < b;
    case Op::k_le:
      return a <= b;
    case Op::k_eq:
      return a == b;
    case Op::k_ne:
      return a != b;
    case Op::k_logical_and:
      return a != 0 && b != 0;
    case Op::k_logical_or:
      return a != 0 || b != 0;
    default:
      return std::nullopt;
  }
}
}  // namespace

Expr AffineForm::coeff(const std::string& iter) const {
  for (const auto& [name, c] : terms) {
    if (name == iter) return c;
  }
  return Expr(0);
}

std::optional<AffineForm> affine_form(const Expr& e) {
  if (!e || e->type != DType::i64) return std::nullopt;
  const Ranges none;
  const Poly p = Canon(none, false).poly(e);
  if (p.overflow) return std::nullopt;
  std::vector<std::pair<std::string, Poly>> terms;
  Poly rest;
  for (const Term& t : p.terms) {
    Term q = t;
    const auto at = std::find_if(q.atoms.begin(), q.atoms.end(), [](const Expr& a) { return a->op == Op::k_iter; });
    std::string name;
    if (at != q.atoms.end()) {
      name = (*at)->name;
      q.atoms.erase(at);
    }
    if (std::any_of(q.atoms.begin(), q.atoms.end(), has_iterator)) return std::nullopt;
    Poly one;
    one.terms.push_back(std::move(q));
    if (name.empty()) {
      rest = add(rest, one);
      continue;
    }
    auto slot = std::lower_bound(terms.begin(), terms.end(), name,
                                 [](const auto& a, const std::string& n) { return a.first < n; });
    if (slot == terms.end() || slot->first != name) slot = terms.insert(slot, {name, Poly()});
    slot->second = add(slot->second, one);
  }
  AffineForm form;
  for (const auto& [name, coef] : terms) form.terms.emplace_back(name, to_expr(coef));
  form.rest = to_expr(rest);
  return form;
}

bool uses(const Expr& e, const std::string& name) {
  if (!e) return false;
  if (e->name == name) return true;
  return std::any_of(e->args.begin(), e->args.end(), [&](const Expr& a) { return uses(a, name); });
}

namespace {
// value_of: the value of a name, or null.
template <class F>
std::optional<int64_t> evaluate_with(const Expr& e, const F& value_of) {
  if (!e) return std::nullopt;
  switch (e->op) {
    case Op::k_const_int:
      return e->ival;
    case Op::k_iter:
    case Op::k_symbol:
      return value_of(e->name);
    case Op::k_select: {
      const auto c = evaluate_with(e->args[0], value_of);
      return c ? evaluate_with(e->args[*c != 0 ? 1 : 2], value_of) : std::nullopt;
    }
    case Op::k_cast:
      return e->type == DType::i64 && !is_float(e->args[0]->type) ? evaluate_with(e->args[0], value_of) : std::nullopt;
    default:
      break;
  }
  if (e->args.empty() || e->args.size() > 2 || is_float(e->type)) return std::nullopt;
  const auto a = evaluate_with(e->args[0], value_of);
  if (!a) return std::nullopt;
  if (e->args.size() == 1) {
    if (e->op == Op::k_neg) return apply(Op::k_sub, 0, *a);
    if (e->op == Op::k_abs) return *a < 0 ? apply(Op::k_sub, 0, *a) : a;
    return e->op == Op::k_logical_not ? std::optional<int64_t>(*a == 0) : std::nullopt;
  }
  const auto b = evaluate_with(e->args[1], value_of);
  return b ? apply(e->op, *a, *b) : std::nullopt;
}
}  // namespace

std::optional<int64_t> evaluate(const Expr& e, const SymbolValues& env) {
  return evaluate_with(e, [&](const std::string& name) -> std::optional<int64_t> {
    const auto found = env.find(name);
    return found == env.end() ? std::nullopt : std::optional(found->second);
  });
}

std::optional<int64_t> evaluate_at(const Expr& e, const Ranges& ranges, int point) {
  return evaluate_with(e, [&](const std::string& name) { return ranges.value_at(name, point); });
}

bool negative_somewhere(const Poly& p, const Ranges& ranges) {
  for (int point = 0; point < Ranges::kPoints && !p.overflow; ++point) {
    int64_t total = 0;
    bool known = true;
    for (const Term& t : p.terms) {
      int64_t product = t.coef;
      for (const Expr& a : t.atoms) {
        const std::optional<int64_t> value = known ? evaluate_at(a, ranges, point) : std::nullopt;
        known = value && !__builtin_mul_overflow(product, *value, &product);
        if (!known) break;
      }
      known = known && !__builtin_add_overflow(total, product, &total);
      if (!known) break;
    }
    if (known && total < 0) return true;
  }
  return false;
}

std::optional<std::vector<int64_t>> evaluate_dims(const std::vector<Expr>& dims, const SymbolValues& env) {
  std::vector<int64_t> out;
  for (const Expr& d : dims) {
    const auto v = evaluate(d, env);
    if (!v || *v < 0) return std::nullopt;
    out.push_back(*v);
  }
  return out;
}

}  // namespace lathe::ir
