// The bodies of the rules in simplify_rules.h, in the order of the table.
#include "ir/analysis/simplify_rules.h"

#include <algorithm>
#include <numeric>

namespace lathe::ir {

namespace {
int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
int64_t floor_mod(int64_t a, int64_t b) { return a - floor_div(a, b) * b; }

// The constant divisor, or 0.
int64_t divisor(const Division& d) { return d.den.is_constant() ? d.den.constant_part() : 0; }

// A state must stay representable: a rule that would overflow does not fire.
bool commit(Division& d, Division next) {
  if (next.num.overflow || next.den.overflow || next.extra.overflow) return false;
  d = std::move(next);
  return true;
}
}  // namespace

bool rule_by_one(Division& d, const Canon&) {
  if (divisor(d) != 1) return false;
  Division next = d;
  if (d.op != Op::k_mod) next.extra = add(d.extra, d.num, d.scale);
  next.live = false;
  return commit(d, std::move(next));
}

bool rule_exact_terms(Division& d, const Canon&) {
  const int64_t c = divisor(d);
  if (c <= 1) return false;
  Poly quotient, rest;
  for (const Term& t : d.num.terms) {
    const bool constant = t.atoms.empty();
    const int64_t q = constant ? floor_div(t.coef, c) : (t.coef % c == 0 ? t.coef / c : 0);
    const int64_t r = t.coef - q * c;
    if (q != 0) quotient.terms.push_back({q, t.atoms});
    if (r != 0) rest.terms.push_back({r, t.atoms});
  }
  if (quotient.is_zero()) return false;
  Division next = d;
  if (d.op != Op::k_mod) next.extra = add(d.extra, quotient, d.scale);
  next.num = std::move(rest);
  return commit(d, std::move(next));
}

bool rule_one_period(Division& d, const Canon& canon) {
  const int64_t c = divisor(d);
  if (c <= 0) return false;
  const Interval v = interval_of(d.num, canon.ranges());
  if (v.lo == INT64_MIN || v.hi == INT64_MAX) return false;
  const int64_t shift = d.op == Op::k_ceildiv ? 1 : 0;  // ceildiv: (k-1)*c < y <= k*c
  const int64_t k = floor_div(v.lo - shift, c);
  if (floor_div(v.hi - shift, c) != k) return false;
  Division next = d;
  if (d.op == Op::k_mod) {
    Poly offset = scaled(Poly::constant(c), k);
    next.extra = add(d.extra, add(d.num, offset, -1), d.scale);
  } else {
    next.extra = add(d.extra, Poly::constant(k + shift), d.scale);
  }
  next.live = false;
  return commit(d, std::move(next));
}

bool rule_common_factor(Division& d, const Canon&) {
  const int64_t c = divisor(d);
  if (c <= 1) return false;
  int64_t g = c;
  for (const Term& t : d.num.terms) {
    if (!t.atoms.empty()) g = std::gcd(g, t.coef);
  }
  if (g <= 1 || d.num.is_constant()) return false;
  Division next = d;
  next.num.terms.clear();
  int64_t remainder = 0;
  for (const Term& t : d.num.terms) {
    int64_t q = t.coef / g;
    if (t.atoms.empty()) {
      q = floor_div(t.coef, g);
      remainder = floor_mod(t.coef, g);
      if (d.op == Op::k_ceildiv && remainder != 0) ++q;
    }
    if (q != 0) next.num.terms.push_back({q, t.atoms});
  }
  next.den = Poly::constant(c / g);
  if (d.op == Op::k_mod) {
    next.extra = add(d.extra, Poly::constant(remainder), d.scale);
    if (__builtin_mul_overflow(d.scale, g, &next.scale)) return false;
  }
  return commit(d, std::move(next));
}

bool rule_known_multiples(Division& d, const Canon& canon) {
  const int64_t c = divisor(d);
  if (c <= 1) return false;
  Poly exact, rest;
  for (const Term& t : d.num.terms) {
    Poly term;
    term.terms.push_back(t);
    (multiple_of(term, canon.ranges()) % c == 0 ? exact : rest).terms.push_back(t);
  }
  if (exact.is_zero()) return false;
  Division next = d;
  if (d.op == Op::k_mod) {
    next.num = std::move(rest);
    return commit(d, std::move(next));
  }
  if (rest.is_zero()) {
    if (d.op == Op::k_floordiv) return false;
    next.op = Op::k_floordiv;
    return commit(d, std::move(next));
  }
  next.extra = add(d.extra, canon.divide(Op::k_floordiv, std::move(exact), d.den), d.scale);
  next.num = std::move(rest);
  return commit(d, std::move(next));
}

bool rule_nested(Division& d, const Canon& canon) {
  const int64_t c = divisor(d);
  if (c <= 1 || d.op == Op::k_mod || d.num.terms.empty() || d.num.terms.size() > 2) return false;
  const Term& t = d.num.terms[0];
  if (t.coef != 1 || t.atoms.size() != 1 || t.atoms[0]->op != d.op) return false;
  if (d.num.terms.size() == 2 && !d.num.terms[1].atoms.empty()) return false;
  const Poly inner_den = canon.poly(t.atoms[0]->args[1]);
  if (!inner_den.is_constant() || inner_den.constant_part() <= 0) return false;
  Division next = d;
  const Poly shift = scaled(Poly::constant(d.num.constant_part()), inner_den.constant_part());
  next.num = add(canon.poly(t.atoms[0]->args[0]), shift);
  next.den = scaled(d.den, inner_den.constant_part());
  return commit(d, std::move(next));
}

bool rule_mod_of_mod(Division& d, const Canon& canon) {
  const int64_t c = divisor(d);
  if (c <= 1 || d.op != Op::k_mod) return false;
  for (const Term& t : d.num.terms) {
    if (t.atoms.size() != 1 || t.atoms[0]->op != Op::k_mod) continue;
    const Poly den = canon.poly(t.atoms[0]->args[1]);
    if (!den.is_constant() || den.constant_part() % c != 0) continue;
    Division next = d;
    next.num = add(add(d.num, Poly::atom(t.atoms[0]), -t.coef), canon.poly(t.atoms[0]->args[0]), t.coef);
    return commit(d, std::move(next));
  }
  return false;
}

bool rule_rounding(Division& d, const Canon&) {
  const int64_t c = divisor(d);
  if (c <= 1 || d.num.is_constant()) return false;
  const int64_t k = d.num.constant_part();
  Division next = d;
  next.num = add(d.num, Poly::constant(k), -1);
  if (d.op == Op::k_floordiv && k == c - 1) {
    next.op = Op::k_ceildiv;
    return commit(d, std::move(next));
  }
  if (d.op == Op::k_ceildiv && k == 1) {
    next.op = Op::k_floordiv;
    next.extra = add(d.extra, Poly::constant(1), d.scale);
    return commit(d, std::move(next));
  }
  return false;
}

bool rule_symbolic_terms(Division& d, const Canon&) {
  if (d.den.is_constant() || d.den.terms.size() != 1) return false;
  const Term& s = d.den.terms[0];
  Poly quotient, rest;
  const auto before = [](const Expr& a, const Expr& b) { return compare(a, b) < 0; };
  for (const Term& t : d.num.terms) {
    const bool exact =
        t.coef % s.coef == 0 && std::includes(t.atoms.begin(), t.atoms.end(), s.atoms.begin(), s.atoms.end(), before);
    if (!exact) {
      rest.terms.push_back(t);
      continue;
    }
    Term q{t.coef / s.coef, {}};
    std::set_difference(t.atoms.begin(), t.atoms.end(), s.atoms.begin(), s.atoms.end(), std::back_inserter(q.atoms),
                        before);
    Poly one;
    one.terms.push_back(std::move(q));
    quotient = add(quotient, one);
  }
  if (quotient.is_zero()) return false;
  Division next = d;
  if (d.op != Op::k_mod) next.extra = add(d.extra, quotient, d.scale);
  next.num = std::move(rest);
  return commit(d, std::move(next));
}

bool rule_symbolic_period(Division& d, const Canon& canon) {
  if (d.den.is_constant()) return false;
  const Interval v = interval_of(d.num, canon.ranges());
  Division next = d;
  next.live = false;
  if (d.num.is_zero()) return commit(d, std::move(next));
  if (d.op == Op::k_ceildiv || v.lo < 0) return false;
  const Poly slack = add(add(d.den, d.num, -1), Poly::constant(1), -1);
  if (slack.overflow) return false;
  const bool inside =
      interval_of(slack, canon.ranges()).lo >= 0 || (canon.prove() && proves_nonnegative(slack, canon.ranges()));
  if (!inside) return false;
  if (d.op == Op::k_mod) next.extra = add(d.extra, d.num, d.scale);
  return commit(d, std::move(next));
}

}  // namespace lathe::ir
