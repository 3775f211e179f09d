// The algebra of floordiv, ceildiv and mod as a table. A rule rewrites the state `scale * op(num, den) + extra`
// (or, once `live` is false, just `extra`) into one of equal value; divide() runs the table to a fixed point. The test
// applies each row alone to random states and evaluates both sides. den is positive by the rules of expr.h.
#pragma once
#include "ir/analysis/canon.h"

namespace lathe::ir {

struct Division {
  Op op = Op::k_floordiv;
  Poly num, den;
  int64_t scale = 1;
  Poly extra;
  bool live = true;
};

struct DivisionRule {
  const char* name;
  const char* picture;                     // before -> after; c, d constants, x, y expressions, S a symbolic divisor
  bool (*apply)(Division&, const Canon&);  // true if it changed the state
};

bool rule_by_one(Division&, const Canon&);
bool rule_exact_terms(Division&, const Canon&);
bool rule_one_period(Division&, const Canon&);
bool rule_common_factor(Division&, const Canon&);
bool rule_known_multiples(Division&, const Canon&);
bool rule_nested(Division&, const Canon&);
bool rule_mod_of_mod(Division&, const Canon&);
bool rule_rounding(Division&, const Canon&);
bool rule_symbolic_terms(Division&, const Canon&);
bool rule_symbolic_period(Division&, const Canon&);

inline constexpr DivisionRule kDivisionRules[] = {
    {"by_one", "x // 1 -> x; x % 1 -> 0", rule_by_one},
    {"exact_terms", "(c*x + y) // c -> x + y // c; % -> y % c", rule_exact_terms},
    {"one_period", "y // c -> k, y % c -> y - k*c where k*c <= y < (k+1)*c", rule_one_period},
    {"common_factor", "(d*x + k) // (d*c) -> (x + k//d) // c; % -> d * ((x + k//d) % c) + k%d", rule_common_factor},
    {"known_multiples", "(x + y) // c -> x // c + y // c where c divides every x", rule_known_multiples},
    {"nested", "(x // d + k) // c -> (x + k*d) // (d*c); ceildiv alike", rule_nested},
    {"mod_of_mod", "(x % (d*c) + y) % c -> (x + y) % c", rule_mod_of_mod},
    {"rounding", "(x + c-1) // c -> ceildiv(x, c); ceildiv(x + 1, c) -> x // c + 1", rule_rounding},
    {"symbolic_terms", "(S*x + y) // S -> x + y // S; % -> y % S", rule_symbolic_terms},
    {"symbolic_period", "y // S -> 0, y % S -> y where 0 <= y < S", rule_symbolic_period},
};

}  // namespace lathe::ir
