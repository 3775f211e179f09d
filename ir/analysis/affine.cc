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
  Poly p = Canon(none, false).poly(e);
  if (p.overflow) return std::nullopt;
  if (std::all_of(p.terms.begin(), p.terms.end(), [](const Term& t) { return t.atoms.size() <= 1; })) {
    AffineForm form;
    Poly rest;
    for (Term& t : p.terms) {
      if (!t.atoms.empty() && t.atoms[0]->op == Op::k_iter) {
        form.terms.emplace_back(t.atoms[0]->name, Expr(t.coef));
        continue;
      }
      if (!t.atoms.empty() && has_iterator(t.atoms[0])) return std::nullopt;
      rest.terms.push_back(std::move(t));
    }
    form.rest = to_expr(rest);
    return form;
  }
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

static bool uses_name(const Expr& e, const std::string& name, uint64_t bit) {
  if (!e || (e->holds & bit) == 0) return false;
  if (e->name == name) return true;
  return std::any_of(e->args.begin(), e->args.end(), [&](const Expr& a) { return uses_name(a, name, bit); });
}
bool uses(const Expr& e, const std::string& name) { return uses_name(e, name, holds_name(name)); }

namespace {
std::optional<int64_t> of_one(Op op, int64_t a) {
  if (op == Op::k_neg || (op == Op::k_abs && a < 0)) return apply(Op::k_sub, 0, a);
  if (op == Op::k_abs) return a;
  return op == Op::k_logical_not ? std::optional<int64_t>(a == 0) : std::nullopt;
}

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
  if (e->args.size() == 1) return of_one(e->op, *a);
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

// a op b where both are known; sums and products, the most of what is asked, without a look at the operation for each
// point.
static Points applied(Op op, const Points& a, const Points& b) {
  Points out;
  const auto each = [&](const auto& overflows) {
    for (size_t i = 0; i < Points::kCount; ++i) {
      int64_t value = 0;
      out.known[i] = a.known[i] && b.known[i] && !overflows(a.value[i], b.value[i], value);
      out.value[i] = out.known[i] ? value : 0;
    }
    return out;
  };
  switch (op) {
    case Op::k_add:
      return each([](int64_t x, int64_t y, int64_t& value) { return __builtin_add_overflow(x, y, &value); });
    case Op::k_sub:
      return each([](int64_t x, int64_t y, int64_t& value) { return __builtin_sub_overflow(x, y, &value); });
    case Op::k_mul:
      return each([](int64_t x, int64_t y, int64_t& value) { return __builtin_mul_overflow(x, y, &value); });
    case Op::k_min:
      return each([](int64_t x, int64_t y, int64_t& value) { return value = std::min(x, y), false; });
    case Op::k_max:
      return each([](int64_t x, int64_t y, int64_t& value) { return value = std::max(x, y), false; });
    default:
      return each([op](int64_t x, int64_t y, int64_t& value) {
        const std::optional<int64_t> known = apply(op, x, y);
        value = known.value_or(0);
        return !known;
      });
  }
}

// As evaluate_with(), at all points at once.
static void evaluate_points(const Expr& e, const Ranges& ranges, Points& out) {
  switch (e->op) {
    case Op::k_const_int:
      out.value.fill(e->ival);
      out.known.fill(true);
      return;
    case Op::k_iter:
    case Op::k_symbol:
      if (const Points* points = ranges.points_of(e->name)) out = *points;
      return;
    case Op::k_select: {
      const Points c = evaluate_at(e->args[0], ranges), x = evaluate_at(e->args[1], ranges),
                   y = evaluate_at(e->args[2], ranges);
      for (size_t i = 0; i < Points::kCount; ++i) {
        const Points& chosen = c.value[i] != 0 ? x : y;
        out.known[i] = c.known[i] && chosen.known[i];
        out.value[i] = out.known[i] ? chosen.value[i] : 0;
      }
      return;
    }
    case Op::k_cast:
      if (e->type == DType::i64 && !is_float(e->args[0]->type)) evaluate_points(e->args[0], ranges, out);
      return;
    default:
      break;
  }
  if (e->args.empty() || e->args.size() > 2 || is_float(e->type)) return;
  const Points a = evaluate_at(e->args[0], ranges);
  if (e->args.size() == 2) {
    out = applied(e->op, a, evaluate_at(e->args[1], ranges));
    return;
  }
  for (size_t i = 0; i < Points::kCount; ++i) {
    const std::optional<int64_t> value = a.known[i] ? of_one(e->op, a.value[i]) : std::nullopt;
    out.known[i] = value.has_value();
    out.value[i] = value.value_or(0);
  }
}

Points evaluate_at(const Expr& e, const Ranges& ranges) {
  Points out;
  if (e) evaluate_points(e, ranges, out);
  return out;
}

bool negative_somewhere(const Poly& p, const Ranges& ranges) {
  if (p.overflow) return false;
  Points total;
  total.known.fill(true);
  for (const Term& t : p.terms) {
    Points product;
    product.value.fill(t.coef);
    product.known = total.known;
    for (const Expr& a : t.atoms) {
      const Points atom = evaluate_at(a, ranges);
      for (size_t i = 0; i < Points::kCount; ++i) {
        product.known[i] = product.known[i] && atom.known[i] &&
                           !__builtin_mul_overflow(product.value[i], atom.value[i], &product.value[i]);
      }
    }
    for (size_t i = 0; i < Points::kCount; ++i) {
      total.known[i] = product.known[i] && !__builtin_add_overflow(total.value[i], product.value[i], &total.value[i]);
    }
  }
  for (size_t i = 0; i < Points::kCount; ++i) {
    if (total.known[i] && total.value[i] < 0) return true;
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
