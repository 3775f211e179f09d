// See grouped_weight.h.
#include "ir/analysis/grouped_weight.h"

#include <algorithm>
#include <cstdlib>

namespace lathe::ir {

namespace {

Expr real(double v) { return const_float(v, DType::f32); }
Expr times(const Expr& a, const Expr& b) { return a ? a * b : b; }
Expr plus(const Expr& a, const Expr& b) { return a ? a + b : b; }

Interval of_type(DType type) {
  switch (type) {
    case DType::u8:
      return {0, 255};
    case DType::i8:
      return {-128, 127};
    case DType::b8:
      return {0, 1};
    default:
      return {INT32_MIN, INT32_MAX};
  }
}

}  // namespace

Interval range_of_i32(const Expr& e) {
  const Interval any = of_type(DType::i32);
  const auto within = [&](int64_t lo, int64_t hi) { return lo < any.lo || hi > any.hi ? any : Interval{lo, hi}; };
  if (e->op == Op::k_const_int) return {e->ival, e->ival};
  if (e->op == Op::k_cast)
    return is_const_int(e->args[0]) ? Interval{e->args[0]->ival, e->args[0]->ival} : of_type(e->args[0]->type);
  if (e->op == Op::k_select) {
    const Interval x = range_of_i32(e->args[1]), y = range_of_i32(e->args[2]);
    return {std::min(x.lo, y.lo), std::max(x.hi, y.hi)};
  }
  if (e->type != DType::i32 || e->args.size() != 2) return any;
  const Interval x = range_of_i32(e->args[0]);
  if (e->op == Op::k_shift_right || e->op == Op::k_shift_left) {
    const Expr& count = e->args[1];
    if (e->op == Op::k_shift_right)
      return x.lo < 0 ? any : Interval{0, is_const_int(count) ? x.hi >> count->ival : x.hi};
    return x.lo < 0 || !is_const_int(count) ? any : within(0, x.hi << count->ival);
  }
  const Interval y = range_of_i32(e->args[1]);
  switch (e->op) {
    case Op::k_add:
      return within(x.lo + y.lo, x.hi + y.hi);
    case Op::k_sub:
      return within(x.lo - y.hi, x.hi - y.lo);
    case Op::k_bit_and:
      if (x.lo < 0 && y.lo < 0) return any;
      return {0, x.lo < 0 ? y.hi : y.lo < 0 ? x.hi : std::min(x.hi, y.hi)};
    case Op::k_bit_or: {
      if (x.lo < 0 || y.lo < 0) return any;
      int64_t bits = 0;
      while (bits < std::max(x.hi, y.hi)) bits = 2 * bits + 1;
      return {0, bits};
    }
    default:
      return any;
  }
}

namespace {

// factor * f32(integer) + rest
struct Weight {
  Expr factor, integer, rest;
};

std::optional<Weight> weight_of(const Expr& e, const std::string& k) {
  const auto varies = [&](const Expr& x) { return uses(x, k); };
  if (!varies(e) || e->type != DType::f32) return {};
  if (e->op == Op::k_cast) {
    const Expr& from = e->args[0];
    if (from->type == DType::i32) return Weight{{}, from, {}};
    if (from->type == DType::i8 || from->type == DType::u8) return Weight{{}, cast(DType::i32, from), {}};
    return {};
  }
  if (e->op == Op::k_neg) {
    std::optional<Weight> w = weight_of(e->args[0], k);
    if (w) w->factor = times(w->factor, real(-1));
    if (w && w->rest) w->rest = -w->rest;
    return w;
  }
  if (e->args.size() != 2) return {};
  const bool first = varies(e->args[0]);
  if (first && varies(e->args[1])) return {};
  const Expr& stays = e->args[first ? 1 : 0];
  std::optional<Weight> w = weight_of(e->args[first ? 0 : 1], k);
  if (!w) return {};
  switch (e->op) {
    case Op::k_mul:
      w->factor = times(w->factor, stays);
      if (w->rest) w->rest = w->rest * stays;
      return w;
    case Op::k_add:
      w->rest = plus(w->rest, stays);
      return w;
    case Op::k_sub:
      if (first) {
        w->rest = w->rest ? w->rest - stays : -stays;
      } else {
        w->factor = times(w->factor, real(-1));
        w->rest = w->rest ? stays - w->rest : stays;
      }
      return w;
    default:
      return {};
  }
}

// The integer as byte - zero; what else is taken off goes to the rest.
std::optional<GroupedWeight> byte_weight(Weight w, const std::string& k) {
  GroupedWeight out;
  const auto is_byte = [](const Expr& e) {
    const Interval i = range_of_i32(e);
    return i.lo >= 0 && i.hi <= 255;
  };
  out.byte = w.integer;
  if (!is_byte(out.byte) && out.byte->op == Op::k_sub && is_byte(out.byte->args[0]) && !uses(out.byte->args[1], k)) {
    const Expr zero = out.byte->args[1];
    if (is_const_int(zero)) {
      out.zero = zero->ival;
    } else {
      w.rest = plus(w.rest, times(w.factor, -cast(DType::f32, zero)));
    }
    out.byte = out.byte->args[0];
  } else if (const Interval i = range_of_i32(out.byte); !is_byte(out.byte) && i.lo >= -128 && i.hi <= 127) {
    out.zero = 128;
    out.byte = out.byte + const_int(128, DType::i32);
  }
  if (!is_byte(out.byte) || std::abs(out.zero) > 255) return {};
  out.factor = w.factor;
  out.rest = w.rest;
  return out;
}

// k as group * g + k, where what divides it tells groups apart, or places in them, already:
//   k // D = g // (D / group),  k % D = group * (g % (D / group)) + k,  k % C // D = k // D % (C / D)
Expr by_groups(const Expr& e, const std::string& k, const std::string& g, int64_t group) {
  const Expr place = iter(k);
  const auto same = [&](const Expr& x) { return x->op == Op::k_iter && x->name == k; };
  if (same(e)) return Expr(group) * iter(g) + place;
  const bool divides = (e->op == Op::k_floordiv || e->op == Op::k_mod) && is_const_int(e->args[1]);
  const int64_t by = divides ? e->args[1]->ival : 0;
  if (by > 0) {
    const Expr& x = e->args[0];
    const bool nested = e->op == Op::k_floordiv && x->op == Op::k_mod && is_const_int(x->args[1]);
    if (nested && x->args[1]->ival % by == 0)
      return by_groups(mod(floordiv(x->args[0], Expr(by)), Expr(x->args[1]->ival / by)), k, g, group);
    if (same(x) && by % group == 0) {
      const Expr groups(by / group);
      return e->op == Op::k_floordiv ? floordiv(iter(g), groups) : Expr(group) * mod(iter(g), groups) + place;
    }
  }
  return with_args(e, [&](const Expr& a) { return by_groups(a, k, g, group); });
}

// Indices, counts and conditions as short as the ranges allow.
Expr simplify_all(const Expr& e, const Ranges& ranges) {
  if (e->type == DType::i64) return simplify(e, ranges);
  return with_args(e, [&](const Expr& a) { return simplify_all(a, ranges); });
}

}  // namespace

std::optional<GroupedWeight> grouped_weight(const Expr& weight, const std::string& k, int64_t depth, int64_t group,
                                            const std::string& group_name, Ranges ranges) {
  ranges.enter(group_name, Expr(depth / group));
  ranges.enter(k, Expr(group));
  std::optional<Weight> linear = weight_of(simplify_all(by_groups(weight, k, group_name, group), ranges), k);
  return linear ? byte_weight(std::move(*linear), k) : std::nullopt;
}

Expr signed_byte(const GroupedWeight& weight) {
  const Expr& byte = weight.byte;
  if (byte->op != Op::k_add || !is_const_int(byte->args[1], weight.zero)) return {};
  const Expr& is = byte->args[0];
  const bool lies = is->op == Op::k_cast && is->args[0]->op == Op::k_load && is->args[0]->type == DType::i8;
  return lies ? is : Expr();
}

}  // namespace lathe::ir
