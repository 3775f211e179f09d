// Proofs of a <= b for all values in range. The goal is p >= 0 for a canonical sum p. Steps, until the interval of p
// settles it:
//   q*min(a, b), q >= 0    both branches must hold      -q*min(a, b)   one branch suffices, after that   (max mirrored)
//   q*x[..], x an input    its least value if q >= 0, its largest (symbolic) if q <= 0, both if unknown
//   q*i, i innermost       i := 0 if q >= 0, i := extent - 1 (symbolic, else the largest value) if q <= 0, both if
//                          unknown
//   q*(x // d)             0 if q >= 0 and x >= 0 suffice, 1 of a ceildiv if x >= 1 does; else multiply by d:
//                          d*(x // d) in [x - d + 1, x], exactly where q is 1 or -1; ceildiv and mod alike
//   q*N, N a symbol        its smallest, largest value by the sign of q
// A sum that is negative at one of the points of the ranges is given up at once. Sound and incomplete: a budget bounds
// the work. Does not use facts such as `extent >= 1 inside a scope`.
#include <algorithm>

#include "ir/analysis/answers.h"
#include "ir/analysis/canon.h"
#include "ir/analysis/verifier.h"

namespace lathe::ir {

namespace {
constexpr int kBudget = 512;  // sums looked at in one proof

class Prover {
 public:
  explicit Prover(const Ranges& ranges) : ranges_(ranges), canon_(ranges, false) {}

  // What needs no search; null: it does.
  std::optional<bool> seen(const Poly& p) const {
    if (p.overflow) return false;
    const Interval v = interval_of(p, ranges_);
    if (v.lo >= 0) return true;
    if (p.is_constant()) return false;
    // A loop that an input ends may never run, whatever the interval of its iterator says.
    if (v.hi < 0 && find(p, [&](const Expr& a) { return runs_to_loaded(a); }) == nullptr) return false;
    return negative_somewhere(p, ranges_) ? std::optional(false) : std::nullopt;
  }
  // Of a sum that needs it.
  bool searched(const Poly& p) {
    --budget_;
    if (const Expr* atom = find(p, is_lattice)) {
      // First what loses nothing.
      const Expr* both = find(p, [&](const Expr& a) { return is_lattice(a) && needs_both(p, a); });
      return split_lattice(p, both != nullptr ? *both : *atom);
    }
    // Iterators that run as far as an input says, before that input.
    const bool runs = find(p, [&](const Expr& a) { return runs_to_loaded(a); }) != nullptr;
    if (const Expr* atom = runs ? nullptr : find(p, [&](const Expr& a) { return has_values(loaded(a)); })) {
      const Expr input = *atom;
      const Expr* holder = find(p, [&](const Expr& a) { return is_division(a) && uses(a, loaded(input)->name); });
      return holder != nullptr ? relax(p, Expr(*holder)) : eliminate(p, input, loaded(input)->name);
    }
    // What an input may be is said by symbols: it goes before them.
    const Expr* name = innermost(p);
    if (!runs && (name == nullptr || (*name)->op == Op::k_symbol)) {
      const Expr* holder = find(p, [&](const Expr& a) { return is_division(a) && loads_values(a); });
      if (holder != nullptr) return relax(p, Expr(*holder));
    }
    if (name != nullptr) {
      const Expr atom = *name;
      const Expr* holder = find(p, [&](const Expr& a) { return !is_name(a) && uses(a, atom->name); });
      if (holder != nullptr && has_values(loaded(*holder))) return eliminate(p, Expr(*holder), loaded(*holder)->name);
      return holder ? relax(p, Expr(*holder)) : eliminate(p, atom, atom->name);
    }
    if (const Expr* atom = find(p, [](const Expr& a) { return is_division(a); })) return relax(p, *atom);
    return false;
  }

 private:
  bool nonnegative(const Poly& p) {
    if (p.overflow || budget_ <= 0) return false;
    const std::optional<bool> known = seen(p);
    if (known) --budget_;
    return known ? *known : searched(p);
  }

  enum class Sign { positive, negative, unknown };

  static bool is_name(const Expr& a) { return a->op == Op::k_iter || a->op == Op::k_symbol; }
  // What a cast to i64 widens, else the expression itself.
  static const Expr& loaded(const Expr& a) { return a->op == Op::k_cast && a->type == DType::i64 ? a->args[0] : a; }
  bool has_values(const Expr& a) const { return a->op == Op::k_load && ranges_.extent_of(a->name) != nullptr; }
  bool loads_values(const Expr& a) const {
    bool loads = false;
    if ((a->holds & kHoldsLoad) == 0) return loads;
    for_each_node(
        a, [&](const ExprNode& n) { loads = loads || (n.op == Op::k_load && ranges_.extent_of(n.name) != nullptr); });
    return loads;
  }
  // Whether an iterator in it does.
  bool runs_to_loaded(const Expr& a) const {
    bool loads = false;
    for_each_node(a, [&](const ExprNode& n) {
      const Expr* extent = n.op == Op::k_iter ? ranges_.extent_of(n.name) : nullptr;
      loads = loads || (extent != nullptr && ((*extent)->holds & kHoldsLoad) != 0);
    });
    return loads;
  }
  static bool is_division(const Expr& a) {
    return a->type == DType::i64 && (a->op == Op::k_floordiv || a->op == Op::k_ceildiv || a->op == Op::k_mod);
  }

  template <class F>
  static const Expr* find(const Poly& p, F&& f) {
    for (const Term& t : p.terms) {
      for (const Expr& a : t.atoms) {
        if (f(a)) return &a;
      }
    }
    return nullptr;
  }

  // The name entered last, looking inside the atoms too; it must be of finite depth.
  const Expr* innermost(const Poly& p) {
    const Expr* best = nullptr;
    int depth = -1;
    for (const Term& t : p.terms) {
      for (const Expr& a : t.atoms) find_innermost(a, best, depth);
    }
    return best;
  }
  void find_innermost(const Expr& e, const Expr*& best, int& depth) {
    if (is_name(e)) {
      const int d = ranges_.depth_of(e->name);
      if (d > depth) {
        depth = d;
        best = &e;
      }
    }
    for (const Expr& a : e->args) find_innermost(a, best, depth);
  }

  Sign sign(const Poly& q) const {
    const Interval v = interval_of(q, ranges_);
    if (v.lo >= 0) return Sign::positive;
    return v.hi <= 0 ? Sign::negative : Sign::unknown;
  }

  static bool is_lattice(const Expr& a) { return a->op == Op::k_min || a->op == Op::k_max; }
  static Sign one_suffices(const Expr& lattice) { return lattice->op == Op::k_min ? Sign::negative : Sign::positive; }
  bool needs_both(const Poly& p, const Expr& lattice) const {
    const Split s = split_atom(p, lattice);
    return s.linear && sign(s.coef) != one_suffices(lattice);
  }
  bool split_lattice(const Poly& p, const Expr& atom) {
    const Split s = split_atom(p, atom);
    if (!s.linear) return false;
    const Poly a = canonical(add(s.rest, mul(s.coef, canon_.poly(atom->args[0]))));
    const Poly b = canonical(add(s.rest, mul(s.coef, canon_.poly(atom->args[1]))));
    if (sign(s.coef) == one_suffices(atom)) return nonnegative(a) || nonnegative(b);
    return nonnegative(a) && nonnegative(b);
  }

  bool eliminate(const Poly& p, const Expr& atom, const std::string& name) {
    const Split s = split_atom(p, atom);
    if (!s.linear) return false;
    const Interval range = ranges_.find(name).value_or(Interval{});
    const Sign q = sign(s.coef);
    const auto at = [&](const Poly& value) { return nonnegative(canonical(add(s.rest, mul(s.coef, value)))); };
    if (q != Sign::negative && (range.lo == INT64_MIN || !at(Poly::constant(range.lo)))) return false;
    if (q == Sign::positive) return true;
    if (const Expr* extent = ranges_.extent_of(name)) {
      if (at(add(canon_.poly(*extent), Poly::constant(1), -1))) return true;
      if (is_const_int(*extent)) return false;
    }
    return range.hi != INT64_MAX && at(Poly::constant(range.hi));
  }

  // p = q*op(x, d) + r. Sound because d >= 1 wherever the operation is legal.
  bool relax(const Poly& p, const Expr& atom) {
    if (!is_division(atom)) {
      const Split s = split_atom(p, atom);
      const Interval v = interval_of_atom(atom, ranges_);
      const Sign q = sign(s.coef);
      if (!s.linear) return false;
      const auto at = [&](int64_t value) { return nonnegative(add(s.rest, s.coef, value)); };
      if (q != Sign::negative && (v.lo == INT64_MIN || !at(v.lo))) return false;
      return q == Sign::positive || (v.hi != INT64_MAX && at(v.hi));
    }
    const Split s = split_atom(p, atom);
    const Sign q = sign(s.coef);
    if (!s.linear || q == Sign::unknown) return false;
    const Poly x = canon_.poly(atom->args[0]), d = canon_.poly(atom->args[1]);
    const Poly top = add(d, Poly::constant(1), -1);  // d - 1
    const bool up = q == Sign::positive;             // the smallest value of the atom is wanted
    const bool one = s.coef.is_constant() && std::abs(s.coef.constant_part()) == 1;
    if (one && atom->op != Op::k_mod) {
      // x // d <= r where x <= d*r + d - 1, x // d >= r where x >= d*r; ceildiv mirrored.
      const bool room = (atom->op == Op::k_floordiv) != up;
      Poly sum = add(mul(s.rest, d), mul(s.coef, x));
      if (room) sum = add(sum, top);
      if (nonnegative(canonical(std::move(sum)))) return true;
    }
    if (atom->op == Op::k_mod) {
      if (up) return nonnegative(s.rest);
      if (nonnegative(canonical(add(s.rest, mul(s.coef, top))))) return true;
      return interval_of(x, ranges_).lo >= 0 && nonnegative(canonical(add(s.rest, mul(s.coef, x))));
    }
    const int64_t lo = up ? interval_of_atom(atom, ranges_).lo : 0;
    if (lo < 0 && nonnegative(s.rest) && nonnegative(x)) return true;
    const bool some = lo < 0 && atom->op == Op::k_ceildiv && nonnegative(add(s.rest, s.coef));
    if (some && nonnegative(add(x, Poly::constant(1), -1))) return true;
    Poly bound = x;  // of d * atom
    const bool exact = d.is_constant() && d.constant_part() > 0 && multiple_of(x, ranges_) % d.constant_part() == 0;
    if (!exact && atom->op == Op::k_floordiv && up) bound = add(x, top, -1);
    if (!exact && atom->op == Op::k_ceildiv && !up) bound = add(x, top);
    return nonnegative(canonical(add(mul(s.rest, d), mul(s.coef, bound))));
  }

  // Substitution may have made divisions that simplify; sums alone stay canonical.
  Poly canonical(Poly p) const {
    if (p.overflow || !find(p, is_division)) return p;
    return canon_.poly(to_expr(p));
  }

  const Ranges& ranges_;
  Canon canon_;
  int budget_ = kBudget;
};
}  // namespace

bool proves_nonnegative(const Poly& p, const Ranges& ranges) {
  Prover prover(ranges);
  if (const std::optional<bool> seen = prover.seen(p)) return *seen;
  return Answers<Asked::nonnegative, bool, 2048>::get(Question(p, ranges), [&] { return prover.searched(p); });
}

bool proves_le(const Expr& a, const Expr& b, const Ranges& ranges) {
  if (!a || !b) return false;
  const Canon canon(ranges, false);
  return proves_nonnegative(add(canon.poly(b), canon.poly(a), -1), ranges);
}

bool proves_lt(const Expr& a, const Expr& b, const Ranges& ranges) {
  if (!a || !b) return false;
  // x // c < b where x < b * c.
  if (a->op == Op::k_floordiv && is_const_int(a->args[1]) && is_const_int(b) && a->args[1]->ival > 0 &&
      std::abs(b->ival) < INT32_MAX && a->args[1]->ival < INT32_MAX)
    return proves_lt(a->args[0], Expr(b->ival * a->args[1]->ival), ranges);
  const Canon canon(ranges, false);
  return proves_nonnegative(add(add(canon.poly(b), canon.poly(a), -1), Poly::constant(1), -1), ranges);
}

// An iterator that can only be 0 is left out of indices, and with it what its scope says: that its extent is at least
// 1 here.
static bool runs_once(const Stmt& s, const Ranges& ranges) {
  return !is_const_int(s.extent) && ranges.find(s.iter).value_or(Interval{}).hi == 0;
}

// index < size holds where index + extent - 1 < size does.
static bool ends_inside(const Expr& index, const Expr& size, const Ranges& ranges,
                        const std::vector<const Stmt*>& scopes) {
  return std::any_of(scopes.begin(), scopes.end(), [&](const Stmt* s) {
    return runs_once(*s, ranges) && proves_lt(index + s->extent - Expr(1), size, ranges);
  });
}

// What divides e, or e less a constant; 0: nothing does.
static int64_t divisor_of(const Expr& e) {
  const Expr& quotient = e->op == Op::k_add && is_const_int(e->args[1]) ? e->args[0] : e;
  if (quotient->op != Op::k_floordiv && quotient->op != Op::k_ceildiv) return 0;
  return is_const_int(quotient->args[1]) ? std::max<int64_t>(quotient->args[1]->ival, 0) : 0;
}
// 0 <= index holds where n * (e - least) <= index does of an n above 0 and an e that is at least so much because a
// scope runs.
static bool begins_after(const Expr& e, int64_t least, const Expr& index, const Ranges& ranges) {
  constexpr int64_t kMost = int64_t{1} << 31;
  if (least > kMost || least < -kMost) return false;
  if (proves_le(e - Expr(least), index, ranges)) return true;
  if (e->op == Op::k_min) {
    return std::any_of(e->args.begin(), e->args.end(), [&](const Expr& side) {
      const int64_t size = divisor_of(side);
      return begins_after(side, least, index, ranges) ||
             (size > 0 && proves_le(Expr(size) * (e - Expr(least)), index, ranges));
    });
  }
  if (e->args.size() != 2 || !is_const_int(e->args[1])) return false;
  const Expr& whole = e->args[0];
  const int64_t by = e->args[1]->ival;
  if (by > kMost || by < -kMost) return false;
  switch (e->op) {
    case Op::k_add:
      return begins_after(whole, least - by, index, ranges);
    case Op::k_sub:
      return begins_after(whole, least + by, index, ranges);
    case Op::k_floordiv:
      return by > 0 && begins_after(whole, least * by, index, ranges);
    case Op::k_ceildiv:
      return by > 0 && begins_after(whole, (least - 1) * by + 1, index, ranges);
    default:
      return false;
  }
}
bool proves_begun(const Expr& index, const Ranges& ranges, const std::vector<const Stmt*>& scopes) {
  if (proves_le(Expr(0), index, ranges)) return true;
  for (const Stmt* s : scopes) {
    const bool other = ranges.find(s->iter).value_or(Interval{}).hi == 0 || !uses(index, s->iter);
    if (other && begins_after(s->extent, 1, index, ranges)) return true;
  }
  return (index->op == Op::k_min || index->op == Op::k_add || index->op == Op::k_floordiv) &&
         proves_begun(index->args[0], ranges, scopes) && proves_begun(index->args[1], ranges, scopes);
}

// Intervals settle most at little cost; the prover knows more of edges.
bool proves_inside(const Expr& index, const Expr& size, const Ranges& ranges, const std::vector<const Stmt*>& scopes) {
  const Interval at = interval_of_atom(index, ranges);
  if (at.lo >= 0 && at.hi < interval_of_atom(size, ranges).lo) return true;
  if (at.lo < 0 && !proves_begun(index, ranges, scopes)) return false;
  return proves_lt(index, size, ranges) || ends_inside(index, size, ranges, scopes);
}

}  // namespace lathe::ir
