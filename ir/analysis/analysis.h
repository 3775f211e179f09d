// Analyses on expressions and kernels: simplification, intervals, affine form, content hashes. Pure and thread-safe.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/base/hash.h"
#include "ir/core/binding.h"
#include "ir/core/kernel.h"

namespace lathe::ir {

// Inclusive range of an index expression; unbounded ends are INT64_MIN / INT64_MAX.
struct Interval {
  int64_t lo = INT64_MIN, hi = INT64_MAX;
};
// What an expression is at each of a few points inside the ranges of its names.
struct Points {
  static constexpr size_t kCount = 4;
  std::array<int64_t, kCount> value{};
  std::array<bool, kCount> known{};
};
// What is known of the names in scope: iterators (0 .. extent-1), symbols, and inputs whose values have a range. Of one
// thread: what follows from an extent is found out when it is first asked for.
class Ranges {
 public:
  Ranges() = default;
  Ranges(const Ranges& other);  // with room for more names
  Ranges& operator=(const Ranges& other) = default;
  Ranges(Ranges&& other) = default;
  Ranges& operator=(Ranges&& other) = default;
  explicit Ranges(const Kernel& kernel);  // its symbols and inputs
  void set(const std::string& name, Interval range, int64_t multiple_of = 1);
  // Enters a scope: iter in 0 .. hi(extent)-1; also remembers the symbolic extent (so that n < N is known).
  void enter(const Stmt& scope) { enter(scope.iter, scope.extent); }
  void enter(const std::string& iter, const Expr& extent);
  // Takes back the last enter(), of an iterator that had not been known.
  void leave() { entries_.pop_back(); }
  // e >= least here: what that says of symbols. A scope whose body runs has an extent of at least 1.
  void learn(const Expr& e, int64_t least);
  std::optional<Interval> find(const std::string& name) const;
  int64_t multiple_of(const std::string& name) const;
  // Of an input: one more than its largest value.
  const Expr* extent_of(const std::string& iter) const;
  int depth_of(const std::string& name) const;  // order of entry: inner iterators are deeper; -1: unknown
  // The name's values at a few points inside the ranges; null: it is unknown.
  const Points* points_of(const std::string& name) const;

 private:
  friend class Question;
  struct Entry {
    std::string name;
    uint64_t tag = 0;  // of the name
    int64_t multiple = 1;
    Expr extent;
    bool follows = false;                              // range and points do from the extent; an input's do not
    mutable bool has_range = true, has_points = true;  // found out
    mutable Interval range{};
    mutable Points at{};
  };
  const Entry* entry_of(const std::string& name) const;
  Interval range_of(const Entry& entry) const;
  const Points& points_of(const Entry& entry) const;
  std::vector<Entry> entries_;
};
Interval interval(const Expr& e, const Ranges& ranges);
// No less than it, whatever the inputs that it reads hold: with the largest value of each, the least where that is
// subtracted. Null: an input states none, or it is not seen that the expression grows with one.
Expr with_largest_inputs(const Expr& e, const Ranges& ranges);
// True only if proven for all values in range.
bool proves_le(const Expr& a, const Expr& b, const Ranges& ranges);  // a <= b
bool proves_lt(const Expr& a, const Expr& b, const Ranges& ranges);
bool proves_divisible(const Expr& e, int64_t by, const Ranges& ranges);

// The load that a cast widens for arithmetic: a bf16 or f16 to f32, a byte to i32; else the expression itself.
const Expr& unwidened(const Expr& e);

// Fixed point of simplify_rules.h: canonical affine form (terms in name order, constants last), floordiv/mod of affine
// forms by constants split with the ranges, min/max resolved where proven. Float expressions are left alone.
Expr simplify(const Expr& e, const Ranges& ranges = {});

// Σ coeff * name + rest, where name runs over iterators (not symbols); coefficients are expressions of symbols. Null
// optional if e is not affine in its iterators.
struct AffineForm {
  std::vector<std::pair<std::string, Expr>> terms;  // in name order
  Expr rest;                                        // free of iterators
  Expr coeff(const std::string& iter) const;        // 0 if absent
};
std::optional<AffineForm> affine_form(const Expr& e);

bool uses(const Expr& e, const std::string& name);  // iterator, symbol or buffer
// Evaluates an index expression; names missing from env give nullopt, as do divisions by zero.
std::optional<int64_t> evaluate(const Expr& e, const SymbolValues& env);
// Sizes of a buffer; nullopt also if one is negative.
std::optional<std::vector<int64_t>> evaluate_dims(const std::vector<Expr>& dims, const SymbolValues& env);

}  // namespace lathe::ir
