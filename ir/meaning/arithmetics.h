// The arithmetics of the interpreter as policies of one runner: how float values are born, combined and given back.
// Value is what a cell of a buffer holds. Integers are int64 in every mode, and wrap as their type does.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>

#include "ir/meaning/finite_field.h"
#include "ir/meaning/interpreter.h"

namespace lathe::ir {

inline int64_t wrapped(DType type, int64_t v) {
  switch (type) {
    case DType::i8:
      return static_cast<int8_t>(v);
    case DType::u8:
      return static_cast<uint8_t>(v);
    case DType::i32:
      return static_cast<int32_t>(v);
    case DType::b8:
      return v != 0;
    default:
      return v;
  }
}
inline int64_t wrap_op(Op op, int64_t a, int64_t b) {
  const uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  return static_cast<int64_t>(op == Op::k_add ? x + y : op == Op::k_sub ? x - y : x * y);
}

inline double math_function(Op op, double x) {
  switch (op) {
    case Op::k_exp:
      return std::exp(x);
    case Op::k_exp2:
    case Op::k_exp2_bf16:
      return std::exp2(x);
    case Op::k_log:
      return std::log(x);
    case Op::k_tanh:
      return std::tanh(x);
    case Op::k_erf:
      return std::erf(x);
    case Op::k_sqrt:
      return std::sqrt(x);
    case Op::k_rsqrt:
      return 1.0 / std::sqrt(x);
    case Op::k_normal_cdf:
      return 0.5 * std::erfc(-x * 0.70710678118654752);
    case Op::k_sigmoid:
      return 1.0 / (1.0 + std::exp(-x));
    case Op::k_sin:
      return std::sin(x);
    case Op::k_cos:
      return std::cos(x);
    case Op::k_floor:
      return std::floor(x);
    case Op::k_round:
      return std::nearbyint(x);
    default:
      return NAN;
  }
}

// What real, native and magnitude share: values are doubles.
struct DoubleArithmetic {
  using Value = double;
  static constexpr bool kOrdered = true;  // comparisons of floats and casts to integers have a meaning
  static Value undefined() { return NAN; }
  static double output(Value v) { return v; }
  static double output_int(Value v) { return v; }
  static Value store_int(int64_t v) { return static_cast<double>(v); }
  static bool load_int(Value v, int64_t* out) {
    if (std::isnan(v)) return false;
    *out = static_cast<int64_t>(v);
    return true;
  }
  static Value max(DType, Value a, Value b) { return std::isnan(a) || std::isnan(b) ? NAN : a > b ? a : b; }
  static Value min(DType, Value a, Value b) { return std::isnan(a) || std::isnan(b) ? NAN : a < b ? a : b; }
  static Value fmax(DType, Value a, Value b) { return a > b ? a : b; }
  static bool lt(Value a, Value b) { return a < b; }
  static bool eq(Value a, Value b) { return a == b; }
  static bool math_defined(Op, Value) { return true; }
  static int64_t to_int(DType type, Value v) {
    v = round_to(type, v);
    return v >= 0x1p63 ? INT64_MAX : static_cast<int64_t>(v);
  }
  static Value store_cast(DType type, Value v) { return store_int(to_int(type, v)); }
};

struct RealArithmetic : DoubleArithmetic {
  static Value input(DType, double v) { return v; }
  static Value constant(DType, double v) { return v; }
  static Value from_int(DType, int64_t v) { return static_cast<double>(v); }
  static Value convert(DType, Value v) { return v; }
  static Value add(DType, Value a, Value b) { return a + b; }
  static Value sub(DType, Value a, Value b) { return a - b; }
  static Value mul(DType, Value a, Value b) { return a * b; }
  static Value div(DType, Value a, Value b) { return a / b; }
  static Value fma(DType, Value a, Value b, Value c) { return a * b + c; }
  static Value neg(DType, Value a) { return -a; }
  static Value abs(DType, Value a) { return std::abs(a); }
  static Value math(Op op, DType, Value a) { return math_function(op, a); }
};

// One rounding an operation. For + - * / sqrt on f32, f16 and bf16 the f64 result rounds again without harm: 53 >= 2*24
// + 2.
struct NativeArithmetic : DoubleArithmetic {
  static Value round(DType type, double v) { return type == DType::f32 ? static_cast<float>(v) : round_to(type, v); }
  static Value input(DType, double v) { return v; }
  static Value constant(DType, double v) { return v; }
  static Value from_int(DType type, int64_t v) {
    if (type == DType::f32) return static_cast<float>(v);
    return round(type, to_odd(v));
  }
  static Value convert(DType type, Value v) { return round(type, v); }
  static Value add(DType type, Value a, Value b) { return round(type, a + b); }
  static Value sub(DType type, Value a, Value b) { return round(type, a - b); }
  static Value mul(DType type, Value a, Value b) { return round(type, a * b); }
  static Value div(DType type, Value a, Value b) { return round(type, a / b); }
  static Value fma(DType type, Value a, Value b, Value c) {
    if (type == DType::f32) return std::fmaf(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c));
    if (type == DType::f64) return std::fma(a, b, c);
    // The product of two 16-bit floats is exact in f64; the sum is rounded to odd, so that the second rounding is the
    // only one.
    const double product = a * b, sum = product + c;
    if (!std::isfinite(sum)) return sum;
    const double back = sum - product, error = (product - (sum - back)) + (c - back);
    return round(type, error == 0 ? sum : nudged(sum, error));
  }
  static Value neg(DType, Value a) { return -a; }
  static Value abs(DType, Value a) { return std::abs(a); }
  static Value math(Op op, DType type, Value a) { return round(type, math_function(op, a)); }

 private:
  // The neighbour with an odd last bit among the two f64 around sum + error.
  static double nudged(double sum, double error) {
    if (std::bit_cast<uint64_t>(sum) & 1) return sum;
    return std::nextafter(sum, error > 0 ? INFINITY : -INFINITY);
  }
  static double to_odd(int64_t v) {
    const double d = static_cast<double>(v);
    if (d >= 0x1p63) return nudged(d, -1);
    const int64_t back = static_cast<int64_t>(d);
    return back == v ? d : nudged(d, v > back ? 1 : -1);
  }
};

// S = sum |a||b|: no term cancels another. min and max bound both sides; an infinite start value counts nothing.
struct MagnitudeArithmetic : RealArithmetic {
  static constexpr bool kOrdered = false;
  static Value input(DType, double v) { return std::abs(v); }
  static Value constant(DType, double v) { return std::isinf(v) ? 0.0 : std::abs(v); }
  static Value from_int(DType, int64_t v) { return std::abs(static_cast<double>(v)); }
  static Value sub(DType, Value a, Value b) { return a + b; }
  static Value neg(DType, Value a) { return a; }
  static Value min(DType type, Value a, Value b) { return max(type, a, b); }
  static Value math(Op op, DType, Value a) { return std::abs(math_function(op, a)); }
};

// First-order bound of what rounding, and summing in any order, may do to a value: v the real value, s the magnitude of
// the sum that made it, e the bound. A function is within kFunctionUlps (sigmoid, through a power of 2: more where it
// is small; normal_cdf: of 1/2 at least; exp2_bf16: kShortPowerUlps; below 2^-126 the result may be 0) and monotone
// around its argument, or changes no faster than it.
struct ErrorArithmetic {
  struct Value {
    double v, s, e;
  };
  static constexpr bool kOrdered = true;
  static constexpr double kFunctionUlps = 4, kShortPowerUlps = 1720;
  static double unit(DType type) {
    switch (type) {
      case DType::f32:
        return 0x1p-24;
      case DType::f16:
        return 0x1p-11;
      case DType::bf16:
        return 0x1p-8;
      default:
        return 0x1p-53;
    }
  }
  static Value undefined() { return {NAN, NAN, NAN}; }
  static double output(Value v) { return v.e; }
  static double output_int(Value v) { return v.e; }
  static Value exact(double v) { return {v, std::abs(v), 0}; }
  static Value rounded(DType type, double v, double e) { return {v, std::abs(v), e + unit(type) * std::abs(v)}; }
  static Value store_int(int64_t v) { return exact(static_cast<double>(v)); }
  static bool load_int(Value v, int64_t* out) { return DoubleArithmetic::load_int(v.v, out); }
  static Value input(DType, double v) { return exact(v); }
  static Value constant(DType, double v) { return exact(v); }
  static Value from_int(DType type, int64_t v) { return rounded(type, static_cast<double>(v), 0); }
  // Half of the step between the least numbers.
  static double least(DType type) { return type == DType::f16 ? 0x1p-25 : type == DType::bf16 ? 0x1p-134 : 0; }
  static Value convert(DType type, Value v) {
    const bool exact = unit(type) <= 0x1p-24 || (v.v == 0 && v.e == 0);
    return exact ? v : Value{v.v, v.s, v.e + std::max(unit(type) * std::abs(v.v), least(type))};
  }
  // Infinity of an infinite operand is as sure as that one is.
  static bool infinite(double v, Value a, Value b) { return std::isinf(v) && (std::isinf(a.v) || std::isinf(b.v)); }
  static Value as_sure(double v, Value a, Value b) {
    return {v, std::abs(v), (std::isinf(a.v) ? a.e : 0) + (std::isinf(b.v) ? b.e : 0)};
  }
  static Value sum(DType type, Value a, Value b, double v) {
    if (infinite(v, a, b)) return as_sure(v, a, b);
    const double s = a.s + b.s;
    return {v, s, std::isinf(s) ? a.e + b.e : a.e + b.e + unit(type) * s};
  }
  static Value add(DType type, Value a, Value b) { return sum(type, a, b, a.v + b.v); }
  static Value sub(DType type, Value a, Value b) { return sum(type, a, b, a.v - b.v); }
  static double product_error(Value a, Value b) { return std::abs(a.v) * b.e + std::abs(b.v) * a.e + a.e * b.e; }
  static Value mul(DType type, Value a, Value b) {
    const double v = a.v * b.v;
    return infinite(v, a, b) ? as_sure(v, a, b) : rounded(type, v, product_error(a, b));
  }
  static Value div(DType type, Value a, Value b) {
    const double v = a.v / b.v;
    return rounded(type, v, (a.e + std::abs(v) * b.e) / std::max(std::abs(b.v) - b.e, 0x1p-1000));
  }
  static Value fma(DType type, Value a, Value b, Value c) {
    const double v = a.v * b.v;
    const Value product = infinite(v, a, b) ? as_sure(v, a, b) : Value{v, std::abs(v), product_error(a, b)};
    return sum(type, product, c, product.v + c.v);
  }
  static Value neg(DType, Value a) { return {-a.v, a.s, a.e}; }
  static Value abs(DType, Value a) { return {std::abs(a.v), a.s, a.e}; }
  // One of the two, so no sum: the lowest number that a maximum starts from has no part in what it is taken from.
  static Value pick(double v, Value a, Value b) { return {v, std::isinf(v) ? 0 : std::abs(v), std::max(a.e, b.e)}; }
  static Value max(DType type, Value a, Value b) { return pick(DoubleArithmetic::max(type, a.v, b.v), a, b); }
  static Value min(DType type, Value a, Value b) { return pick(DoubleArithmetic::min(type, a.v, b.v), a, b); }
  static Value fmax(DType, Value a, Value b) { return a.v > b.v ? pick(a.v, a, b) : pick(b.v, b, a.v == a.v ? a : b); }
  static bool lt(Value a, Value b) { return a.v < b.v; }
  static bool eq(Value a, Value b) { return a.v == b.v; }
  static bool math_defined(Op, Value) { return true; }
  static int64_t to_int(DType type, Value v) { return DoubleArithmetic::to_int(type, v.v); }
  // An integer to store: where the bound reaches the next one, it may be that.
  static Value store_cast(DType type, Value v) {
    const auto at = [&](double x) { return static_cast<double>(DoubleArithmetic::to_int(type, x)); };
    const double n = at(v.v);
    return {n, std::abs(n), v.e == 0 ? 0 : std::max(std::abs(at(v.v + v.e) - n), std::abs(n - at(v.v - v.e)))};
  }
  static Value math(Op op, DType type, Value a) {
    const double v = math_function(op, a.v);
    if (op == Op::k_sqrt || op == Op::k_floor || op == Op::k_round) return rounded(type, v, spread(op, a, v));
    const double ulps =
        op == Op::k_exp2_bf16 ? kShortPowerUlps : kFunctionUlps + (op == Op::k_sigmoid ? 0.5 * std::abs(a.v) : 0);
    const double size = op == Op::k_normal_cdf ? std::max(std::abs(v), 0.5) : std::abs(v);
    const double flushed = std::abs(v) < 0x1p-126 ? std::abs(v) : 0;
    return {v, std::abs(v), spread(op, a, v) + 2 * ulps * unit(type) * size + flushed};
  }

 private:
  static double spread(Op op, Value a, double v) {
    if (a.e == 0) return 0;
    if (op == Op::k_sin || op == Op::k_cos) return a.e;
    const double up = std::abs(math_function(op, a.v + a.e) - v), down = std::abs(v - math_function(op, a.v - a.e));
    return std::isnan(up) || std::isnan(down) ? INFINITY : std::max(up, down);
  }
};

struct FieldArithmetic {
  using Value = FieldValue;
  static constexpr bool kOrdered = false;
  static Value undefined() { return field::kNone; }
  static double output(Value v) {
    if (v.p == field::kUndefined) return NAN;
    if (field::infinite(v)) return v.p == field::kMinusInf ? -INFINITY : INFINITY;
    return v.p;
  }
  static double output_int(Value v) {
    int64_t out = 0;
    return load_int(v, &out) ? static_cast<double>(out) : NAN;
  }
  static Value store_int(int64_t v) { return std::bit_cast<Value>(v); }
  static bool load_int(Value v, int64_t* out) {
    *out = std::bit_cast<int64_t>(v);
    return v.p != field::kNone.p || v.q != field::kNone.q;
  }
  static Value input(DType, double v) {
    if (!std::isfinite(v)) return field::from_double(v);
    return field::hashed(std::bit_cast<uint64_t>(v == 0 ? 0.0 : v), 1);
  }
  static Value constant(DType, double v) { return field::from_double(v); }
  static Value from_int(DType, int64_t v) { return field::from_int(v); }
  static Value convert(DType, Value v) { return v; }
  static Value add(DType, Value a, Value b) { return field::add(a, b); }
  static Value sub(DType, Value a, Value b) { return field::add(a, field::neg(b)); }
  static Value mul(DType, Value a, Value b) { return field::mul(a, b); }
  static Value div(DType, Value a, Value b) { return field::div(a, b); }
  static Value fma(DType, Value a, Value b, Value c) { return field::add(field::mul(a, b), c); }
  static Value neg(DType, Value a) { return field::neg(a); }
  static Value abs(DType, Value a) { return other(Op::k_abs, a); }
  static Value max(DType, Value a, Value b) {
    if (a.p == field::kUndefined || b.p == field::kUndefined) return field::kNone;
    return field::less(a, b) ? b : a;
  }
  static Value min(DType, Value a, Value b) {
    if (a.p == field::kUndefined || b.p == field::kUndefined) return field::kNone;
    return field::less(a, b) ? a : b;
  }
  static Value fmax(DType type, Value a, Value b) { return max(type, a, b); }
  static bool lt(Value, Value) { return false; }
  static bool eq(Value, Value) { return false; }
  static int64_t to_int(DType, Value) { return 0; }
  // exp and exp2 (powers of one base here) of a value without a residue mod q are not defined; math_defined() says so.
  static bool is_power(Op op) { return op == Op::k_exp || op == Op::k_exp2 || op == Op::k_exp2_bf16; }
  static bool math_defined(Op op, Value a) { return !is_power(op) || field::special(a) || a.q != field::kUndefined; }
  static Value math(Op op, DType, Value a) {
    if (!is_power(op)) return other(op, a);
    if (field::special(a)) return a.p == field::kMinusInf ? Value{0, field::kUndefined} : field::kNone;
    return {field::pow_mod(field::kG, a.q, field::kP), field::kUndefined};
  }

 private:
  static Value other(Op op, Value a) {
    return field::special(a) ? field::kNone : field::hashed(a.p, 2 + static_cast<uint64_t>(op));
  }
};

}  // namespace lathe::ir
