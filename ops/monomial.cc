// Products of constants and symbols: see monomial.h.
#include "ops/monomial.h"

#include <fmt/format.h>

#include <algorithm>

namespace lathe::ops {

using ir::Expr;

std::optional<Monomial> monomial(const Expr& e) {
  if (!e) return std::nullopt;
  if (e->op == ir::Op::k_const_int) {
    if (e->ival < 0) return std::nullopt;
    return Monomial{e->ival, {}};
  }
  if (e->op == ir::Op::k_symbol) return Monomial{1, {e->name}};
  if (e->op != ir::Op::k_mul) return std::nullopt;
  const auto a = monomial(e->args[0]), b = monomial(e->args[1]);
  if (!a || !b) return std::nullopt;
  return product(*a, *b);
}

std::optional<Monomial> product(const Monomial& a, const Monomial& b) {
  Monomial out = a;
  if (__builtin_mul_overflow(a.coeff, b.coeff, &out.coeff)) return std::nullopt;
  out.symbols.insert(out.symbols.end(), b.symbols.begin(), b.symbols.end());
  std::sort(out.symbols.begin(), out.symbols.end());
  if (out.coeff == 0) out.symbols.clear();
  return out;
}

Expr to_expr(const Monomial& m) {
  Expr out;
  for (const std::string& s : m.symbols) out = out ? out * ir::symbol(s) : ir::symbol(s);
  if (!out) return Expr(m.coeff);
  return m.coeff == 1 ? out : Expr(m.coeff) * out;
}

std::string to_text(const Monomial& m) {
  std::string out = m.coeff == 1 && !m.symbols.empty() ? "" : fmt::format("{}", m.coeff);
  for (const std::string& s : m.symbols) out += (out.empty() ? "" : "*") + s;
  return out;
}

std::optional<int64_t> evaluate(const Monomial& m, const std::function<int64_t(const std::string&)>& value) {
  int64_t out = m.coeff;
  for (const std::string& s : m.symbols) {
    if (__builtin_mul_overflow(out, value(s), &out)) return std::nullopt;
  }
  return out;
}

Expr multiply(const Expr& a, const Expr& b) {
  const auto x = monomial(a), y = monomial(b);
  const auto p = x && y ? product(*x, *y) : std::nullopt;
  return p ? to_expr(*p) : a * b;
}

}  // namespace lathe::ops
