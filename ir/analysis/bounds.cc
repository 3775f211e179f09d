// Ranges, intervals and divisibility of index expressions: see analysis.h. The symbolic proofs are in proofs.cc.
#include <algorithm>
#include <numeric>

#include "ir/analysis/answers.h"
#include "ir/analysis/canon.h"

namespace lathe::ir {

namespace {
constexpr int64_t kMinusInf = INT64_MIN, kPlusInf = INT64_MAX;

bool infinite(int64_t v) { return v == kMinusInf || v == kPlusInf; }
int64_t sat_add(int64_t a, int64_t b) {
  int64_t out = 0;
  if (!__builtin_add_overflow(a, b, &out)) return out;
  return a < 0 ? kMinusInf : kPlusInf;
}
int64_t sat_mul(int64_t a, int64_t b) {
  int64_t out = 0;
  if (!__builtin_mul_overflow(a, b, &out)) return out;
  return (a < 0) != (b < 0) ? kMinusInf : kPlusInf;
}

Interval sum(Interval a, Interval b) {
  Interval out;
  out.lo = a.lo == kMinusInf || b.lo == kMinusInf ? kMinusInf : sat_add(a.lo, b.lo);
  out.hi = a.hi == kPlusInf || b.hi == kPlusInf ? kPlusInf : sat_add(a.hi, b.hi);
  return out;
}
Interval product(Interval a, Interval b) {
  if (b.lo == b.hi) std::swap(a, b);
  if (a.lo == a.hi && a.lo >= 0) return {sat_mul(a.lo, b.lo), sat_mul(a.lo, b.hi)};
  const int64_t c[] = {sat_mul(a.lo, b.lo), sat_mul(a.lo, b.hi), sat_mul(a.hi, b.lo), sat_mul(a.hi, b.hi)};
  return {*std::min_element(c, c + 4), *std::max_element(c, c + 4)};
}
int64_t floor_div(int64_t a, int64_t b) {
  if (infinite(a)) return a;
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
int64_t ceil_div(int64_t a, int64_t b) {
  if (infinite(a)) return a;
  return a / b + (a % b != 0 && (a > 0) == (b > 0));
}
Interval quotient(Interval a, Interval d, int64_t (*div)(int64_t, int64_t)) {
  const int64_t lo = std::max<int64_t>(d.lo, 1), hi = std::max(d.hi, lo);
  const int64_t c[] = {div(a.lo, lo), div(a.lo, hi), div(a.hi, lo), div(a.hi, hi)};
  return {*std::min_element(c, c + 4), *std::max_element(c, c + 4)};
}
Interval remainder(Interval a, Interval d) {
  Interval out{0, d.hi == kPlusInf ? kPlusInf : std::max<int64_t>(d.hi, 1) - 1};
  if (a.lo >= 0) {
    if (a.hi < std::max<int64_t>(d.lo, 1)) return a;
    out.hi = std::min(out.hi, a.hi);
  }
  return out;
}
Interval of_dtype(DType type) {
  switch (dtype_kind(type)) {
    case DTypeKind::kBool:
      return {0, 1};
    case DTypeKind::kUInt:
      return {0, (int64_t{1} << dtype_bits(type)) - 1};
    case DTypeKind::kInt:
      if (dtype_bits(type) < 64) {
        const int64_t top = int64_t{1} << (dtype_bits(type) - 1);
        return {-top, top - 1};
      }
      return {};
    default:
      return {};
  }
}
Interval meet(Interval a, Interval b) { return {std::max(a.lo, b.lo), std::min(a.hi, b.hi)}; }
}  // namespace

// So many fit what malloc keeps at hand.
static constexpr size_t kUsualNames = 9;

Ranges::Ranges(const Ranges& other) {
  entries_.reserve(std::max(kUsualNames, other.entries_.size() + 1));
  entries_ = other.entries_;
}

Ranges::Ranges(const Kernel& kernel) {
  entries_.reserve(kUsualNames);
  for (const Symbol& s : kernel.symbols) set(s.name, {s.min, s.max}, s.multiple_of);
  for (const Buffer& b : kernel.buffers) {
    if (!b.values.lo || !b.values.hi) continue;
    const Interval range{interval(b.values.lo, *this).lo, interval(b.values.hi, *this).hi};
    Expr extent = simplify(b.values.hi + Expr(1), *this);
    Entry& entry = entries_.emplace_back();
    entry.name = b.name;
    entry.tag = name_tag(b.name);
    entry.extent = std::move(extent);
    entry.range = range;
  }
}

void Ranges::set(const std::string& name, Interval range, int64_t multiple) {
  multiple = std::max<int64_t>(multiple, 1);
  if (multiple > 1) {  // the ends are values
    if (!infinite(range.lo)) range.lo = sat_mul(ceil_div(range.lo, multiple), multiple);
    if (!infinite(range.hi)) range.hi = floor_div(range.hi, multiple) * multiple;
  }
  Entry entry;
  entry.name = name;
  entry.tag = name_tag(name);
  entry.multiple = multiple;
  entry.range = range;
  if (!infinite(range.lo) && !infinite(range.hi) && range.lo <= range.hi) {
    // The smallest but 0, where tails are short; the largest, twice; the one before, where they are long.
    const int64_t next = range.lo == 0 ? std::min(multiple, range.hi) : range.lo;
    const bool two =
        static_cast<uint64_t>(range.hi) - static_cast<uint64_t>(range.lo) >= static_cast<uint64_t>(multiple);
    entry.at.value = {next, range.hi, range.hi, two ? range.hi - multiple : range.hi};
    entry.at.known.fill(true);
  }
  const Entry* known = entry_of(name);
  if (known == nullptr) {
    entries_.push_back(std::move(entry));
    return;
  }
  entries_[static_cast<size_t>(known - entries_.data())] = std::move(entry);
  // Extents may have the name.
  for (Entry& e : entries_) {
    if (e.follows) e.has_range = e.has_points = false;
  }
}

void Ranges::enter(const std::string& iter, const Expr& extent) {
  if (const Entry* outer = entry_of(iter)) {
    // What extents have said so far they said of the outer one.
    for (const Entry& e : entries_) (void)points_of(e), (void)range_of(e);
    entries_.erase(entries_.begin() + (outer - entries_.data()));
  }
  entries_.reserve(kUsualNames);
  Entry& entry = entries_.emplace_back();
  entry.name = iter;
  entry.tag = name_tag(iter);
  entry.extent = extent;
  if (!is_const_int(extent)) {
    entry.follows = true;
    entry.has_range = entry.has_points = false;
    return;
  }
  const int64_t last = extent->ival - 1;
  entry.range = {0, infinite(extent->ival) ? extent->ival : std::max<int64_t>(last, 0)};
  entry.at.value = {last, 0, last, last};
  entry.at.known.fill(last >= 0);
}

// Nothing is known meanwhile of an iterator whose extent has a name of its own.
Interval Ranges::range_of(const Entry& entry) const {
  if (!entry.has_range) {
    entry.has_range = true;
    entry.range = {};
    const int64_t most = interval(entry.extent, *this).hi;
    entry.range = {0, infinite(most) ? most : std::max<int64_t>(most - 1, 0)};
  }
  return entry.range;
}

const Points& Ranges::points_of(const Entry& entry) const {
  if (!entry.has_points) {
    entry.has_points = true;
    entry.at = {};
    const Points trips = evaluate_at(entry.extent, *this);
    for (size_t i = 0; i < Points::kCount; ++i) {  // the first iteration at one point, else the last
      entry.at.known[i] = trips.known[i] && trips.value[i] >= 1;
      entry.at.value[i] = i == 1 ? 0 : trips.value[i] - 1;
    }
  }
  return entry.at;
}

void Ranges::learn(const Expr& e, int64_t k) {
  constexpr int64_t kMost = int64_t{1} << 31;
  if (k > kMost || k < -kMost) return;
  if (e->op == Op::k_symbol) {
    const std::optional<Interval> known = find(e->name);
    if (known && known->lo < k && k <= known->hi) set(e->name, {k, known->hi}, multiple_of(e->name));
    return;
  }
  if (e->args.size() != 2) return;
  const Expr &a = e->args[0], &b = e->args[1];
  if (e->op == Op::k_min) {
    learn(a, k);
    learn(b, k);
    return;
  }
  if (!is_const_int(b) || b->ival <= 0 || b->ival > kMost) return;
  if (e->op == Op::k_add) learn(a, k - b->ival);
  if (e->op == Op::k_sub) learn(a, k + b->ival);
  if (e->op == Op::k_floordiv && k >= 0) learn(a, k * b->ival);
  if (e->op == Op::k_ceildiv && k >= 1) learn(a, (k - 1) * b->ival + 1);
}

const Ranges::Entry* Ranges::entry_of(const std::string& name) const {
  const uint64_t tag = name_tag(name);
  for (const Entry& e : entries_) {
    if (e.tag == tag && (name.size() < sizeof(tag) || e.name == name)) return &e;
  }
  return nullptr;
}

const Points* Ranges::points_of(const std::string& name) const {
  const Entry* e = entry_of(name);
  return e != nullptr ? &points_of(*e) : nullptr;
}

std::optional<Interval> Ranges::find(const std::string& name) const {
  const Entry* e = entry_of(name);
  return e != nullptr ? std::optional(range_of(*e)) : std::nullopt;
}

int64_t Ranges::multiple_of(const std::string& name) const {
  const Entry* e = entry_of(name);
  return e != nullptr ? e->multiple : 1;
}

const Expr* Ranges::extent_of(const std::string& iter) const {
  const Entry* e = entry_of(iter);
  return e != nullptr && e->extent ? &e->extent : nullptr;
}

int Ranges::depth_of(const std::string& name) const {
  const Entry* e = entry_of(name);
  return e != nullptr ? static_cast<int>(e - entries_.data()) : -1;
}

// Canonical atoms only: their arguments need no further simplification.
Interval interval_of_atom(const Expr& e, const Ranges& ranges) {
  const auto arg = [&](size_t i) { return interval_of_atom(e->args[i], ranges); };
  switch (e->op) {
    case Op::k_const_int:
      return {e->ival, e->ival};
    case Op::k_iter:
    case Op::k_symbol:
      return ranges.find(e->name).value_or(Interval{});
    case Op::k_load:
      return meet(ranges.find(e->name).value_or(Interval{}), of_dtype(e->type));
    case Op::k_select: {
      const Interval x = arg(1), y = arg(2);
      return {std::min(x.lo, y.lo), std::max(x.hi, y.hi)};
    }
    case Op::k_cast: {
      if (is_float(e->args[0]->type)) return of_dtype(e->type);
      // A cast that may saturate still ends inside its type.
      const Interval x = meet(arg(0), of_dtype(e->args[0]->type)), t = of_dtype(e->type);
      return {std::clamp(x.lo, t.lo, t.hi), std::clamp(x.hi, t.lo, t.hi)};
    }
    default:
      break;
  }
  if (e->type != DType::i64) return of_dtype(e->type);
  switch (e->op) {
    case Op::k_add:
      return sum(arg(0), arg(1));
    case Op::k_sub:
      return sum(arg(0), product({-1, -1}, arg(1)));
    case Op::k_neg:
      return product({-1, -1}, arg(0));
    case Op::k_mul:
      return product(arg(0), arg(1));
    case Op::k_floordiv:
      return quotient(arg(0), arg(1), floor_div);
    case Op::k_ceildiv:
      return quotient(arg(0), arg(1), ceil_div);
    case Op::k_mod:
      return remainder(arg(0), arg(1));
    case Op::k_min: {
      const Interval a = arg(0), b = arg(1);
      return {std::min(a.lo, b.lo), std::min(a.hi, b.hi)};
    }
    case Op::k_max: {
      const Interval a = arg(0), b = arg(1);
      return {std::max(a.lo, b.lo), std::max(a.hi, b.hi)};
    }
    default:
      return {};
  }
}

Interval interval_of(const Poly& p, const Ranges& ranges) {
  if (p.overflow) return {};
  Interval total{0, 0};
  for (const Term& t : p.terms) {
    Interval v{t.coef, t.coef};
    for (const Expr& a : t.atoms) v = product(v, interval_of_atom(a, ranges));
    total = sum(total, v);
  }
  return total;
}

// Operations that are monotone in each operand, on names of which none stands twice: the ends of the operands give the
// ends of the result, and no canonical form bounds it better. A remainder counts where it is one of a name of which
// nothing more is known.
using Names = InlineVector<const std::string*, 4>;
static bool each_name_once(const Expr& e, const Ranges& ranges, Names& seen) {
  switch (e->op) {
    case Op::k_const_int:
      return true;
    case Op::k_iter:
    case Op::k_symbol:
      if (std::any_of(seen.begin(), seen.end(), [&](const std::string* s) { return *s == e->name; })) return false;
      seen.push_back(&e->name);
      return true;
    case Op::k_mod:
      if (e->args[0]->op != Op::k_iter && e->args[0]->op != Op::k_symbol) return false;
      if (!is_const_int(e->args[1]) || ranges.multiple_of(e->args[0]->name) != 1) return false;
      return each_name_once(e->args[0], ranges, seen);
    case Op::k_add:
    case Op::k_sub:
    case Op::k_neg:
    case Op::k_mul:
    case Op::k_floordiv:
    case Op::k_ceildiv:
    case Op::k_min:
    case Op::k_max:
      return std::all_of(e->args.begin(), e->args.end(),
                         [&](const Expr& a) { return a->type == DType::i64 && each_name_once(a, ranges, seen); });
    default:
      return false;
  }
}

Interval interval(const Expr& e, const Ranges& ranges) {
  if (!e) return {};
  if (e->args.empty()) return interval_of_atom(e, ranges);
  if (e->type != DType::i64) return of_dtype(e->type);
  if (Names names; each_name_once(e, ranges, names)) return interval_of_atom(e, ranges);
  return Answers<Asked::interval, Interval, 512>::get(
      Question(e, ranges), [&] { return interval_of(Canon(ranges, false).poly(e), ranges); });
}

int64_t multiple_of_atom(const Expr& e, const Ranges& ranges) {
  switch (e->op) {
    case Op::k_const_int:
      return e->ival < 0 ? -(e->ival + (e->ival == INT64_MIN)) : e->ival;
    case Op::k_iter:
    case Op::k_symbol:
      return ranges.multiple_of(e->name);
    case Op::k_min:
    case Op::k_max:
    case Op::k_mod: {
      if (e->type != DType::i64) return 1;
      const Canon canon(ranges, false);
      return std::gcd(multiple_of(canon.poly(e->args[0]), ranges), multiple_of(canon.poly(e->args[1]), ranges));
    }
    case Op::k_floordiv: {
      if (!is_const_int(e->args[1]) || e->args[1]->ival <= 0) return 1;
      const int64_t m = multiple_of(Canon(ranges, false).poly(e->args[0]), ranges);
      return m % e->args[1]->ival == 0 ? m / e->args[1]->ival : 1;
    }
    default:
      return 1;
  }
}

int64_t multiple_of(const Poly& p, const Ranges& ranges) {
  if (p.overflow) return 1;
  int64_t all = 0;
  for (const Term& t : p.terms) {
    int64_t m = t.coef == INT64_MIN ? 1 : std::abs(t.coef);
    for (const Expr& a : t.atoms) {
      if (__builtin_mul_overflow(m, multiple_of_atom(a, ranges), &m)) m = 1;
    }
    all = std::gcd(all, m);
  }
  return all;
}

bool proves_divisible(const Expr& e, int64_t by, const Ranges& ranges) {
  if (!e || by == 0) return false;
  return multiple_of(Canon(ranges, false).poly(e), ranges) % by == 0;
}

static bool reads_inputs(const Expr& e) { return e && (e->holds & kHoldsLoad) != 0; }

// Whether it grows, or stays, where operands that read inputs do; of a difference, where the second one falls.
static bool follows_inputs(const Expr& e, const Ranges& ranges) {
  const auto& args = e->args;
  switch (e->op) {
    case Op::k_add:
    case Op::k_sub:
    case Op::k_min:
    case Op::k_max:
    case Op::k_cast:
      return true;
    case Op::k_mul:
      return (!reads_inputs(args[0]) || interval(args[1], ranges).lo >= 0) &&
             (!reads_inputs(args[1]) || interval(args[0], ranges).lo >= 0);
    case Op::k_floordiv:
    case Op::k_ceildiv:
      return is_const_int(args[1]) && args[1]->ival > 0;
    default:
      return false;
  }
}

static Expr with_inputs(const Expr& e, bool largest, const Ranges& ranges, bool& known) {
  if (!reads_inputs(e)) return e;
  const Expr& load = e->op == Op::k_cast ? e->args[0] : e;
  if (load->op == Op::k_load) {
    const Expr* extent = ranges.extent_of(load->name);
    const auto values = ranges.find(load->name);
    known &= extent != nullptr && *extent && values && !infinite(values->lo);
    return !known ? e : largest ? *extent - Expr(1) : Expr(values->lo);
  }
  known &= follows_inputs(e, ranges);
  size_t operand = 0;
  return with_args(e, [&](const Expr& a) {
    const bool subtracted = e->op == Op::k_sub && operand++ == 1;
    return with_inputs(a, largest != subtracted, ranges, known);
  });
}

Expr with_largest_inputs(const Expr& e, const Ranges& ranges) {
  bool known = true;
  const Expr out = with_inputs(e, true, ranges, known);
  return known ? simplify(out, ranges) : Expr();
}

}  // namespace lathe::ir
