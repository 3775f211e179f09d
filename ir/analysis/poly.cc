// Arithmetic on canonical sums: see canon.h.
#include <algorithm>
#include <iterator>

#include "ir/analysis/canon.h"

namespace lathe::ir {

namespace {
bool is_name(const Expr& e) { return e->op == Op::k_iter || e->op == Op::k_symbol; }

using Atoms = InlineVector<Expr, 2>;

int compare_atoms(const Atoms& a, const Atoms& b) {
  if (a.empty() || b.empty()) return a.empty() == b.empty() ? 0 : (a.empty() ? 1 : -1);
  const size_t n = std::min(a.size(), b.size());
  for (size_t i = 0; i < n; ++i) {
    if (int c = compare(a[i], b[i])) return c;
  }
  return a.size() == b.size() ? 0 : (a.size() < b.size() ? -1 : 1);
}

// Appends a term that is larger than the last one.
void append(Poly& p, int64_t coef, Atoms atoms) {
  if (coef != 0) p.terms.push_back({coef, std::move(atoms)});
}

void normalize(Poly& p) {
  const auto before = [](const Term& a, const Term& b) { return compare_atoms(a.atoms, b.atoms) < 0; };
  if (!std::is_sorted(p.terms.begin(), p.terms.end(), before)) std::stable_sort(p.terms.begin(), p.terms.end(), before);
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
  p.terms.shrink(out);
}

// e is what term_expr() makes.
bool is_term(const Term& t, int64_t coef, const Expr& e) {
  if (e->type != DType::i64) return false;
  if (t.atoms.empty()) return is_const_int(e, coef);
  const Expr* at = &e;
  for (size_t i = t.atoms.size(); i-- > 1; at = &(*at)->args[0]) {
    if ((*at)->op != Op::k_mul || !equal((*at)->args[1], t.atoms[i])) return false;
  }
  if (coef == 1) return equal(*at, t.atoms[0]);
  if (coef == -1) return (*at)->op == Op::k_neg && equal((*at)->args[0], t.atoms[0]);
  return (*at)->op == Op::k_mul && is_const_int((*at)->args[0], coef) && equal((*at)->args[1], t.atoms[0]);
}

// The term that stands in front: a positive one where there is one.
size_t first_term(const Poly& p) {
  for (size_t i = 0; i < p.terms.size(); ++i) {
    if (p.terms[i].coef >= 0) return i;
  }
  return 0;
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
  Term t;
  t.coef = 1;
  t.atoms.push_back(std::move(e));
  Poly p;
  p.terms.push_back(std::move(t));
  return p;
}

int64_t Poly::constant_part() const { return !terms.empty() && terms.back().atoms.empty() ? terms.back().coef : 0; }

Poly add(Poly a, Poly b, int64_t scale) {
  if (b.terms.empty() && !b.overflow) return a;
  if (b.terms.size() == 1 && b.terms[0].atoms.empty()) {
    int64_t constant = 0;
    a.overflow |=
        b.overflow || __builtin_mul_overflow(b.terms[0].coef, scale, &constant) || !add_term(a, Expr(), constant);
    return a;
  }
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
    append(out, coef, std::move(order <= 0 ? a.terms[i].atoms : b.terms[j].atoms));
    if (order <= 0) ++i;
    if (order >= 0) ++j;
  }
  return out;
}

bool add_term(Poly& p, const Expr& atom, int64_t coef) {
  if (coef == 0) return true;
  // Of a term and the one to be added, as compare_atoms() says.
  const auto order = [&](const Atoms& a) {
    if (a.empty() || !atom) return a.empty() && !atom ? 0 : (a.empty() ? 1 : -1);
    const int c = compare(a[0], atom);
    return c != 0 || a.size() == 1 ? c : 1;
  };
  size_t at = p.terms.size();
  for (; at > 0; --at) {
    const int c = order(p.terms[at - 1].atoms);
    if (c < 0) break;
    if (c > 0) continue;
    Term& same = p.terms[at - 1];
    if (__builtin_add_overflow(same.coef, coef, &same.coef)) return false;
    if (same.coef == 0) p.terms.erase(&same);
    return true;
  }
  Term added;
  added.coef = coef;
  if (atom) added.atoms.push_back(atom);
  p.terms.push_back(std::move(added));
  std::rotate(p.terms.begin() + at, p.terms.end() - 1, p.terms.end());
  return true;
}

Poly scaled(Poly a, int64_t by) {
  if (by == 0) {
    a.terms.clear();
    return a;
  }
  for (Term& t : a.terms) a.overflow |= __builtin_mul_overflow(t.coef, by, &t.coef);
  return a;
}

Poly mul(Poly a, Poly b) {
  if (b.is_constant() || a.is_constant()) {
    const Poly& factor = b.is_constant() ? b : a;
    Poly out = scaled(std::move(b.is_constant() ? a : b), factor.constant_part());
    out.overflow |= factor.overflow;
    return out;
  }
  Poly out;
  out.overflow = a.overflow || b.overflow;
  for (const Term& x : a.terms) {
    for (const Term& y : b.terms) {
      Term t;
      out.overflow |= __builtin_mul_overflow(x.coef, y.coef, &t.coef);
      t.atoms.reserve(x.atoms.size() + y.atoms.size());
      std::merge(x.atoms.begin(), x.atoms.end(), y.atoms.begin(), y.atoms.end(), std::back_inserter(t.atoms),
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
  const size_t first = first_term(p);
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

bool is_expr_of(const Poly& p, const Expr& e) {
  if (p.terms.empty()) return e->type == DType::i64 && is_const_int(e, 0);
  const size_t first = first_term(p);
  const Expr* at = &e;  // what remains after the terms looked at, the last first
  for (size_t i = p.terms.size(); i-- > 0;) {
    if (i == first) continue;
    const Term& t = p.terms[i];
    const bool minus = t.coef < 0 && t.coef != INT64_MIN;
    if ((*at)->op != (minus ? Op::k_sub : Op::k_add) || (*at)->type != DType::i64) return false;
    if (!is_term(t, minus ? -t.coef : t.coef, (*at)->args[1])) return false;
    at = &(*at)->args[0];
  }
  return is_term(p.terms[first], p.terms[first].coef, *at);
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
