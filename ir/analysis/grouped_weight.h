// A weight of few bits as an integer with factors that groups of weights share. Pure and thread-safe.
#pragma once
#include <optional>
#include <string>

#include "ir/analysis/analysis.h"

namespace lathe::ir {

// factor * f32(byte - zero) + rest, where `byte` is i32 of 0 to 255 and all else is the same within a group of so many
// weights: functions of the group's number and of the place in it.
struct GroupedWeight {
  Expr factor, byte, rest;  // f32, i32, f32; factor null: 1; rest null: 0
  int64_t zero = 0;
};
// Of an expression of iterator `k`, which becomes the place in the group; `ranges` know what stands around. Null: it is
// nothing of the kind.
std::optional<GroupedWeight> grouped_weight(const Expr& weight, const std::string& k, int64_t depth, int64_t group,
                                            const std::string& group_name, Ranges ranges);

// The weight's integer as a signed byte that lies in memory, of which `byte` is the unsigned one; null: it is none.
Expr signed_byte(const GroupedWeight& weight);

// What an i32 value may be, by the types that it is made of and its own operations.
Interval range_of_i32(const Expr& e);

// Visits the loads that a value is made of, and not those that their indices are made of.
template <class F>
void for_each_value_load(const Expr& value, const F& f) {
  if (value->op == Op::k_load) return f(*value);
  for (const Expr& a : value->args) for_each_value_load(a, f);
}

}  // namespace lathe::ir
