// Values of the interpreter's finite_field mode: a residue mod the safe prime p = 2q + 1 and one mod q. Both are kept
// because exp(x) = g^x, with g of order q mod p, needs the exponent mod q: then exp(a + b) = exp(a) * exp(b) holds, and
// a rescaled softmax equals the plain one. What went through exp has no residue mod q any more. Infinities and
// "undefined" are codes above p.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

#include "ir/analysis/analysis.h"

namespace lathe::ir {

struct FieldValue {
  uint32_t p = 0, q = 0;
};

namespace field {
inline constexpr uint32_t kP = 2147483579, kQ = 1073741789, kG = 4;
inline constexpr uint32_t kUndefined = 0xffffffff, kMinusInf = 0xfffffffe, kPlusInf = 0xfffffffd;
inline constexpr FieldValue kNone{kUndefined, 0x7ffffffe};

inline bool special(FieldValue a) { return a.p >= kP; }
inline bool infinite(FieldValue a) { return a.p == kMinusInf || a.p == kPlusInf; }
inline uint32_t mul_mod(uint32_t a, uint32_t b, uint32_t m) { return static_cast<uint32_t>(uint64_t{a} * b % m); }
inline uint32_t pow_mod(uint32_t base, uint32_t exponent, uint32_t m) {
  uint32_t out = 1;
  for (; exponent != 0; exponent >>= 1, base = mul_mod(base, base, m)) {
    if (exponent & 1) out = mul_mod(out, base, m);
  }
  return out;
}
inline uint32_t int_mod(int64_t v, uint32_t m) {
  const int64_t r = v % static_cast<int64_t>(m);
  return static_cast<uint32_t>(r < 0 ? r + m : r);
}
// Applies f(a, b, modulus) to both residues; the one mod q stays undefined once it is.
template <class F>
FieldValue both(FieldValue a, FieldValue b, F&& f) {
  return {f(a.p, b.p, kP), a.q == kUndefined || b.q == kUndefined ? kUndefined : f(a.q, b.q, kQ)};
}

inline FieldValue neg(FieldValue a) {
  if (a.p == kUndefined) return a;
  if (infinite(a)) return {a.p == kMinusInf ? kPlusInf : kMinusInf, kUndefined};
  return both(a, a, [](uint32_t x, uint32_t, uint32_t m) { return x == 0 ? 0 : m - x; });
}
inline FieldValue add(FieldValue a, FieldValue b) {
  if (special(a) || special(b)) {
    if (a.p == kUndefined || b.p == kUndefined) return kNone;
    if (infinite(a) && infinite(b)) return a.p == b.p ? a : kNone;
    return infinite(a) ? a : b;
  }
  return both(a, b, [](uint32_t x, uint32_t y, uint32_t m) { return static_cast<uint32_t>((uint64_t{x} + y) % m); });
}
inline FieldValue mul(FieldValue a, FieldValue b) { return special(a) || special(b) ? kNone : both(a, b, mul_mod); }
inline FieldValue div(FieldValue a, FieldValue b) {
  if (special(a) || special(b) || b.p == 0) return kNone;
  if (b.q == 0) b.q = kUndefined;
  return both(a, b, [](uint32_t x, uint32_t y, uint32_t m) { return mul_mod(x, pow_mod(y, m - 2, m), m); });
}
// Every finite double is m * 2^e: an exact image in both rings.
inline FieldValue from_double(double v) {
  if (std::isnan(v)) return kNone;
  if (std::isinf(v)) return {v < 0 ? kMinusInf : kPlusInf, kUndefined};
  int e = 0;
  const int64_t m = static_cast<int64_t>(std::ldexp(std::frexp(v, &e), 53));
  e -= 53;
  const FieldValue mantissa{int_mod(m, kP), int_mod(m, kQ)};
  const uint32_t n = static_cast<uint32_t>(e < 0 ? -e : e);
  const FieldValue power{pow_mod(2, n, kP), pow_mod(2, n, kQ)};
  return e < 0 ? div(mantissa, power) : mul(mantissa, power);
}
inline FieldValue from_int(int64_t v) { return {int_mod(v, kP), int_mod(v, kQ)}; }
inline FieldValue hashed(uint64_t bits, uint64_t seed) {
  const uint64_t h = hash_bytes(&bits, sizeof bits, seed);
  return {static_cast<uint32_t>((h & 0xffffffff) % kP), static_cast<uint32_t>((h >> 32) % kQ)};
}
// Total order for max and min: -inf, residues, +inf.
inline bool less(FieldValue a, FieldValue b) {
  const auto rank = [](FieldValue v) {
    return v.p == kMinusInf ? uint64_t{0} : v.p == kPlusInf ? UINT64_MAX : (uint64_t{v.p} << 32 | v.q) + 1;
  };
  return rank(a) < rank(b);
}

}  // namespace field
}  // namespace lathe::ir
