// Products of a constant and symbols: what sizes and strides of the ops floor are. A canonical
// form, so that equal products compare equal; general expressions are the business of
// ir/analysis/analysis.h.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ir/core/expr.h"

namespace lathe::ops {

struct Monomial {
  int64_t coeff = 1;
  std::vector<std::string> symbols;  // sorted, repeated for powers; empty if coeff is 0
  bool operator==(const Monomial&) const = default;
};

// Null unless e is a non-negative constant, a symbol or a product of such that fits 64 bits.
std::optional<Monomial> monomial(const ir::Expr& e);
std::optional<Monomial> product(const Monomial& a, const Monomial& b);  // null on overflow
ir::Expr to_expr(const Monomial& m);                                    // 64*L: the constant first
std::string to_text(const Monomial& m);
// The value with each symbol replaced; null on overflow.
std::optional<int64_t> evaluate(const Monomial& m, const std::function<int64_t(const std::string&)>& value);

// a * b as a canonical product of size or stride expressions.
ir::Expr multiply(const ir::Expr& a, const ir::Expr& b);

}  // namespace lathe::ops
