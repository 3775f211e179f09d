// Arithmetic on canonical sums: see poly.h.
#include "ir/poly.h"

#include <algorithm>

namespace lathe::ir {

namespace {
bool is_name(const Expr& e) { return e->op == Op::k_iter || e->op == Op::k_symbol; }

int compare_atoms(const std::vector<Expr>& a, const std::vector<Expr>& b) {
  if (a.empty() || b.empty()) return a.empty() == b.empty() ? 0 : (a.empty() ? 1 : -1);
  const size_t n = std::min(a.size(), b.size());
  for (size_t i = 0; i < n; ++i) {
    if (int c = compare(a[i], b[i])) return c;
  }
  return a.size() == b.size() ? 0 : (a.size() < b.size() ? -1 : 1);
}

// Appends a term that is not smaller than the last one, merging equals.
void append(Poly& p, int64_t coef, const std::vector<Expr>& atoms) {
  if (coef != 0) p.terms.push_back({coef, atoms});
}

void normalize(Poly& p) {
  std::stable_sort(p.terms.begin(), p.terms.end(),
                   [](const Term& a, const Term& b) { return compare_atoms(a.atoms, b.atoms) < 0; });
  size_t out = 0;
  for (size_t i = 0; i < p.terms.size();) {
    size_t j = i + 1;
    int64_t coef = p.terms[i].coef;
    for (; j < p.terms.size() && compare_atoms(p.terms[i].atoms, p.terms[j].atoms) == 0; ++j) {
      p.overflow |= __builtin_add_overflow(coef, p.terms[j].coef, &coef);
    }
    if (coef != 0) {
      if (out != i) p.terms[out].atoms = std::move(p.terms[i].atoms);
      p.terms[out++].coef = coef;
    }
    i = j;
  }
  p.terms.resize(out);
}

Expr term_expr(const Term& t, int64_t coef) {
  if (t.atoms.empty()) return Expr(coef);
  Expr e;
  if (coef == -1) {
    e = -t.atoms[0];
  } else {
    e = coef == 1 ? t.atoms[0] : Expr(coef) * t.atoms[0];
  }
  for (size_t i = 1; i < t.atoms.size(); ++i) e = e * t.atoms[i];
  return e;
}
}  // namespace

int compare(const Expr& a, const Expr& b) {
  if (a.get() == b.get()) return 0;
  if (!a || !b) return a ? 1 : -1;
  const bool name_a = is_name(a), name_b = is_name(b);
  if (name_a != name_b) return name_a ? -1 : 1;
  if (name_a) {
    if (int c = a->name.compare(b->name)) return c < 0 ? -1 : 1;
  }
  if (a->op != b->op) return a->op < b->op ? -1 : 1;
  if (a->type != b->type) return a->type < b->type ? -1 : 1;
  if (a->ival != b->ival) return a->ival < b->ival ? -1 : 1;
  if (a->fval < b->fval || b->fval < a->fval) return a->fval < b->fval ? -1 : 1;
  const bool nan_a = a->fval != a->fval, nan_b = b->fval != b->fval;
  if (nan_a != nan_b) return nan_a ? 1 : -1;
  if (int c = a->name.compare(b->name)) return c < 0 ? -1 : 1;
  if (a->args.size() != b->args.size()) return a->args.size() < b->args.size() ? -1 : 1;
  for (size_t i = 0; i < a->args.size(); ++i) {
    if (int c = compare(a->args[i], b->args[i])) return c;
  }
  return 0;
}

Poly Poly::constant(int64_t value) {
  Poly p;
  append(p, value, {});
  return p;
}

Poly Poly::atom(Expr e) {
  Poly p;
  p.terms.push_back({1, {std::move(e)}});
  return p;
}

int64_t Poly::constant_part() const { return !terms.empty() && terms.back().atoms.empty() ? terms.back().coef : 0; }

Poly add(const Poly& a, const Poly& b, int64_t scale) {
  Poly out;
  out.overflow = a.overflow || b.overflow;
  out.terms.reserve(a.terms.size() + b.terms.size());
  size_t i = 0, j = 0;
  while (i < a.terms.size() || j < b.terms.size()) {
    int order = 0;
    if (i == a.terms.size()) {
      order = 1;
    } else if (j == b.terms.size()) {
      order = -1;
    } else {
      order = compare_atoms(a.terms[i].atoms, b.terms[j].atoms);
    }
    int64_t coef = order <= 0 ? a.terms[i].coef : 0;
    if (order >= 0) {
      int64_t product = 0;
      out.overflow |= __builtin_mul_overflow(b.terms[j].coef, scale, &product);
      out.overflow |= __builtin_add_overflow(coef, product, &coef);
    }
    append(out, coef, order <= 0 ? a.terms[i].atoms : b.terms[j].atoms);
    if (order <= 0) ++i;
    if (order >= 0) ++j;
  }
  return out;
}

Poly scaled(const Poly& a, int64_t by) {
  Poly out = a;
  if (by == 0) {
    out.terms.clear();
    return out;
  }
  for (Term& t : out.terms) out.overflow |= __builtin_mul_overflow(t.coef, by, &t.coef);
  return out;
}

Poly mul(const Poly& a, const Poly& b) {
  if (b.is_constant() || a.is_constant()) {
    const Poly& c = b.is_constant() ? b : a;
    Poly out = scaled(b.is_constant() ? a : b, c.constant_part());
    out.overflow |= c.overflow;
    return out;
  }
  Poly out;
  out.overflow = a.overflow || b.overflow;
  for (const Term& x : a.terms) {
    for (const Term& y : b.terms) {
      Term t;
      out.overflow |= __builtin_mul_overflow(x.coef, y.coef, &t.coef);
      t.atoms.resize(x.atoms.size() + y.atoms.size());
      std::merge(x.atoms.begin(), x.atoms.end(), y.atoms.begin(), y.atoms.end(), t.atoms.begin(),
                 [](const Expr& p, const Expr& q) { return compare(p, q) < 0; });
      out.terms.push_back(std::move(t));
    }
  }
  normalize(out);
  return out;
}

bool equal(const Poly& a, const Poly& b) {
  if (a.terms.size() != b.terms.size() || a.overflow || b.overflow) return false;
  for (size_t i = 0; i < a.terms.size(); ++i) {
    if (a.terms[i].coef != b.terms[i].coef || compare_atoms(a.terms[i].atoms, b.terms[i].atoms) != 0) return false;
  }
  return true;
}

Expr to_expr(const Poly& p) {
  if (p.terms.empty()) return Expr(0);
  size_t first = 0;
  while (first < p.terms.size() && p.terms[first].coef < 0) ++first;
  if (first == p.terms.size()) first = 0;
  Expr e = term_expr(p.terms[first], p.terms[first].coef);
  for (size_t i = 0; i < p.terms.size(); ++i) {
    if (i == first) continue;
    const Term& t = p.terms[i];
    if (t.coef < 0 && t.coef != INT64_MIN) {
      e = e - term_expr(t, -t.coef);
    } else {
      e = e + term_expr(t, t.coef);
    }
  }
  return e;
}

Split split_atom(const Poly& p, const Expr& atom) {
  Split out;
  out.coef.overflow = out.rest.overflow = p.overflow;
  for (const Term& t : p.terms) {
    auto at = std::find_if(t.atoms.begin(), t.atoms.end(), [&](const Expr& a) { return compare(a, atom) == 0; });
    if (at == t.atoms.end()) {
      out.rest.terms.push_back(t);
      continue;
    }
    Term q = t;
    q.atoms.erase(q.atoms.begin() + (at - t.atoms.begin()));
    for (const Expr& a : q.atoms) out.linear &= compare(a, atom) != 0;
    out.coef.terms.push_back(std::move(q));
  }
  normalize(out.coef);
  return out;
}

}  // namespace lathe::ir
