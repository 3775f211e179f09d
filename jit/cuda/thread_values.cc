// See thread_values.h.
#include "jit/cuda/thread_values.h"

#include <algorithm>
#include <initializer_list>

namespace lathe::jit {

using ir::Expr;
using ir::Interval;
using ir::Op;

namespace {

constexpr int64_t kLeast = INT64_MIN, kMost = INT64_MAX;
using Wide = __int128;

int64_t clamped(Wide x) { return x <= kLeast ? kLeast : x >= kMost ? kMost : static_cast<int64_t>(x); }
bool open(const Interval& a) { return a.lo == kLeast || a.hi == kMost; }
int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

Interval sum(const Interval& a, const Interval& b) {
  return {a.lo == kLeast || b.lo == kLeast ? kLeast : clamped(Wide{a.lo} + b.lo),
          a.hi == kMost || b.hi == kMost ? kMost : clamped(Wide{a.hi} + b.hi)};
}
Interval negated(const Interval& a) { return {a.hi == kMost ? kLeast : -a.hi, a.lo == kLeast ? kMost : -a.lo}; }

Interval product(const Interval& a, const Interval& b) {
  if (a.lo >= 0 && b.lo >= 0)
    return {clamped(Wide{a.lo} * b.lo), a.hi == kMost || b.hi == kMost ? kMost : clamped(Wide{a.hi} * b.hi)};
  if (open(a) || open(b)) return {};
  const auto all = {Wide{a.lo} * b.lo, Wide{a.lo} * b.hi, Wide{a.hi} * b.lo, Wide{a.hi} * b.hi};
  return {clamped(std::min(all)), clamped(std::max(all))};
}

// By a divisor that is known and positive; by others it may be anything.
Interval quotient(const Interval& a, const Interval& b) {
  if (b.lo != b.hi || b.lo <= 0) return {};
  return {a.lo == kLeast ? kLeast : floor_div(a.lo, b.lo), a.hi == kMost ? kMost : floor_div(a.hi, b.lo)};
}
Interval remainder(const Interval& a, const Interval& b) {
  if (b.lo <= 0) return {};
  if (b.lo != b.hi || open(a) || floor_div(a.lo, b.lo) != floor_div(a.hi, b.lo))
    return {0, b.hi == kMost ? kMost : b.hi - 1};
  const int64_t whole = floor_div(a.lo, b.lo) * b.lo;
  return {a.lo - whole, a.hi - whole};
}
Interval truth(bool surely, bool maybe) { return {surely ? 1 : 0, maybe ? 1 : 0}; }

Interval result(Op op, const Interval& a, const Interval& b) {
  switch (op) {
    case Op::k_add:
      return sum(a, b);
    case Op::k_sub:
      return sum(a, negated(b));
    case Op::k_mul:
      return product(a, b);
    case Op::k_floordiv:
      return quotient(a, b);
    case Op::k_ceildiv:
      return negated(quotient(negated(a), b));
    case Op::k_mod:
      return remainder(a, b);
    case Op::k_min:
      return {std::min(a.lo, b.lo), std::min(a.hi, b.hi)};
    case Op::k_max:
      return {std::max(a.lo, b.lo), std::max(a.hi, b.hi)};
    case Op::k_neg:
      return negated(a);
    case Op::k_lt:
      return truth(a.hi < b.lo, a.lo < b.hi);
    case Op::k_le:
      return truth(a.hi <= b.lo, a.lo <= b.hi);
    case Op::k_eq:
      return truth(a.lo == a.hi && b.lo == b.hi && a.lo == b.lo, a.lo <= b.hi && b.lo <= a.hi);
    case Op::k_ne:
      return truth(a.hi < b.lo || b.hi < a.lo, !(a.lo == a.hi && b.lo == b.hi && a.lo == b.lo));
    case Op::k_logical_and:
      return {std::min(a.lo, b.lo), std::min(a.hi, b.hi)};
    case Op::k_logical_or:
      return {std::max(a.lo, b.lo), std::max(a.hi, b.hi)};
    case Op::k_logical_not:
      return truth(a.hi == 0, a.lo == 0);
    default:
      return {};
  }
}

}  // namespace

ThreadValues ThreadNames::of(const Expr& e) const {
  switch (e->op) {
    case Op::k_const_int:
      return {{e->ival, e->ival}};
    case Op::k_iter:
    case Op::k_symbol: {
      const auto known = values_.find(e->name);
      return known == values_.end() ? ThreadValues{{}} : known->second;
    }
    case Op::k_select: {
      const ThreadValues c = of(e->args[0]), a = of(e->args[1]), b = of(e->args[2]);
      ThreadValues out(std::max({c.size(), a.size(), b.size()}));
      for (size_t t = 0; t < out.size(); ++t) {
        const Interval &p = c[c.size() == 1 ? 0 : t], &x = a[a.size() == 1 ? 0 : t], &y = b[b.size() == 1 ? 0 : t];
        out[t] = p.lo > 0 ? x : p.hi == 0 ? y : Interval{std::min(x.lo, y.lo), std::max(x.hi, y.hi)};
      }
      return out;
    }
    default:
      break;
  }
  if (e->args.empty()) return {{}};
  ThreadValues a = of(e->args[0]);
  const ThreadValues b = e->args.size() > 1 ? of(e->args[1]) : ThreadValues{{}};
  if (a.size() < b.size()) a.resize(b.size(), a[0]);
  for (size_t t = 0; t < a.size(); ++t) a[t] = result(e->op, a[t], b[b.size() == 1 ? 0 : t]);
  return a;
}

}  // namespace lathe::jit
