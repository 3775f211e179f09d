// Vector math: see vector_math.h. Coefficients are minimax fits of the quotient left after the
// leading terms (relative error of the whole function), rounded one after another. Errors of whole
// functions are in vector_math.def.
//
// Levels give equal bits, but for what AVX2 makes 0 below 2^-126: exp2, exp2_bf16 and normal_cdf, where softmax and
// gelu spend their time. exp, tanh, sin and cos round to integers by adding 1.5 * 2^23 and some: the sum holds the
// integer in its low bits, so a shift by 23 makes a power of 2 of it. scalef (not on AVX2) rounds p 2^n once, whatever
// n; exp without it takes two factors, the first product being exact.
//
//   exp x      n = round(x / ln 2), r = x - n ln 2 in two parts, e^r = 1 + r + r^2 q(r), times 2^n.
//   exp2 x     n = round(x), f = x - n exactly, 2^f of degree 5, times 2^n: scalef knows what is too large, and
//              infinities. By pairs of terms: three steps wait for each other instead of five. AVX2: n goes into the
//              exponent bits.
//   exp2_bf16  the same of degree 3: within 1.02e-4, and rounding to bf16 within 3.9e-3.
//   tanh x     m = expm1(2|x|) = 2^n (r + r^2 q(r)) + (2^n - 1); m / (m + 2) with the sign of x.
//   sigmoid x  1 / (1 + 2^t), t = -x log2 e rounded: off by 5e-8 |x| where it is small, 0 where 2^t is infinite
//              (x < -88.7).
//   normal_cdf x  e = 2^g(|x|), g fitted to log2 of the function at -|x|; e or, for x >= 0, 1 - e. Within 1.6e-7, and
//              2e-3 of itself down to x = -7. x normal_cdf(x) is max(x, 0) - |x| e below kAllOne, x beyond.
//   log x      x = 2^k m, m in [sqrt(1/2), sqrt 2), f = m - 1; f - f^2/2 + f^3 p(f) + k ln 2 in two parts.
//   erf x      |x| < 0.9: x + x q(x^2); else 1 - exp(g(|x|)), g fitted to log erfc up to 3.95, where erf rounds to 1.
//   sin, cos   r = x - n pi/2 in three parts, polynomials on [-pi/4, pi/4] swapped and signed by n; beyond 1e5 r comes
//              from far_angle, in a branch that is taken where a lane needs it.
#include "jit/lower/vector_math.h"

#include <initializer_list>
#include <limits>
#include <utility>

namespace lathe::jit {
namespace {

using ir::Op;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLn2High = 0.693147182f, kLn2Low = -1.90465421e-9f;
constexpr float kBelow128 = 127.999992f;
constexpr float kAllOne = 6.5f;  // from here on normal_cdf rounds to 1
constexpr uint32_t kSign = 0x80000000u;
constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23
constexpr int kBias = 127;               // of the exponent field

class Math {
 public:
  explicit Math(Emitter& e) : e_(e), has_scalef_(has_scalef(e.program())) {}

  int exp(int x) {
    // The clamps keep infinities out of the reduction; both orders let NaN through.
    const Reduced r = reduce_ln2(clamp(-105.0f, x, 89.0f), 2 * kBias);
    const int p = exp_of_rest(r.r);
    return has_scalef_ ? op(LeafOp::k_scalef, p, r.n) : times_any_power(p, r.sum);
  }

  int exp2(int x, bool for_bf16) {
    const int inside = for_bf16 ? exp2_bf16_inside(x) : exp2_inside(x);
    if (has_scalef_) return inside;
    const int big = blend(less(x, constant(128.0f)), constant(kInfinity), inside);
    const int normal = blend(less(x, constant(-126.0f)), big, constant(0.0f));
    return blend(e_.compare(LeafOp::k_cmp_unord, x, x), normal, x);
  }

  int tanh(int x) {
    const int sign = op(LeafOp::k_bit_and, x, bits(kSign));
    const int a = op(LeafOp::k_bit_andnot, bits(kSign), x);
    const int y = op(LeafOp::k_min, constant(20.0f), op(LeafOp::k_add, a, a));
    const Reduced r = reduce_ln2(y, kBias);
    const int q = op(LeafOp::k_mul,
                     polynomial(r.r, {0.00138378609f, 0.00836731866f, 0.0416677408f, 0.166665375f, 0.49999997f}), r.r);
    const int power = power_of_two(r.sum);
    const int m = fma(power, fma(q, r.r, r.r), op(LeafOp::k_sub, power, constant(1.0f)));
    return op(LeafOp::k_bit_or, op(LeafOp::k_div, m, op(LeafOp::k_add, m, constant(2.0f))), sign);
  }

  // a / (1 + e^-x)
  int sigmoid(int a, int x) {
    int t = op(LeafOp::k_mul, x, constant(-1.44269502f));
    if (has_scalef_) return op(LeafOp::k_div, a, op(LeafOp::k_add, exp2_inside(t), constant(1.0f)));
    t = op(LeafOp::k_max, constant(-126.0f), t);
    const int e = exp2_inside(op(LeafOp::k_min, constant(kBelow128), t));
    const int y = op(LeafOp::k_div, a, op(LeafOp::k_add, e, constant(1.0f)));
    return blend(less(constant(kBelow128), t), y, op(LeafOp::k_mul, a, constant(0.0f)));
  }

  int normal_cdf(int x) {
    const int e = lower_tail(op(LeafOp::k_bit_andnot, bits(kSign), x));
    return blend(less(x, constant(0.0f)), op(LeafOp::k_sub, constant(1.0f), e), e);
  }

  // Infinities as the product has them: NaN below, itself above.
  int times_own_normal_cdf(int x) {
    const int a = op(LeafOp::k_bit_andnot, bits(kSign), x), positive = op(LeafOp::k_max, constant(0.0f), x);
    return blend(less(x, constant(kAllOne)), x, fnma(a, lower_tail(a), positive));
  }

  int log(int x) {
    const int tiny = less(x, constant(1.17549435e-38f));
    const int scaled = blend(tiny, x, op(LeafOp::k_mul, x, constant(8388608.0f)));
    const int from = op(LeafOp::k_isub, scaled, bits(0x3f3504f3u));
    const int k = e_.op(LeafOp::k_shift_right_arith, {from}, 23);
    const int m = op(LeafOp::k_isub, scaled, e_.op(LeafOp::k_shift_left, {k}, 23));
    const int exponent =
        op(LeafOp::k_add, e_.op(LeafOp::k_cvt_i32_f32, {k}), blend(tiny, constant(0.0f), constant(-23.0f)));
    const int f = op(LeafOp::k_sub, m, constant(1.0f));
    const int p = polynomial(f, {-0.0756455883f, 0.127546564f, -0.131669834f, 0.142007545f, -0.166232258f, 0.200012654f,
                                 -0.250008255f, 0.333333313f, -0.5f});
    const int square = op(LeafOp::k_mul, f, f);
    const int rest = fma(exponent, constant(kLn2Low), op(LeafOp::k_mul, square, p));
    int y = fma(exponent, constant(kLn2High), op(LeafOp::k_add, f, rest));
    y = blend(less(x, constant(kInfinity)), x, y);
    y = blend(less(x, constant(0.0f)), y, constant(std::numeric_limits<float>::quiet_NaN()));
    return blend(e_.compare(LeafOp::k_cmp_eq, x, constant(0.0f)), y, constant(-kInfinity));
  }

  // Ordered for few live registers: x and the small branch are all that waits while the large one
  // is made.
  int erf(int x) {
    const int q = polynomial(op(LeafOp::k_mul, x, x), {-0.000600380707f, 0.00499585411f, -0.0267685801f, 0.11281877f,
                                                       -0.376125008f, 0.128379151f});
    const int small = fma(q, x, x);
    const int a = op(LeafOp::k_bit_andnot, bits(kSign), x);
    const int is_large = less(constant(0.9f), a);
    const int g = polynomial(op(LeafOp::k_min, constant(3.95f), a),
                             {0.000198220121f, -0.00306549738f, 0.0223152377f, -0.104113713f, -0.636976063f,
                              -1.12779725f, -0.000166448051f});
    const int size = op(LeafOp::k_sub, constant(1.0f), exp_inside(g));
    return blend(is_large, small, op(LeafOp::k_bit_or, size, op(LeafOp::k_bit_and, x, bits(kSign))));
  }

  // quarter 0: sin, 1: cos.
  int sin_cos(int x, uint32_t quarter) {
    const int rounder = constant(kRounder + static_cast<float>(quarter)), sum = fma(x, constant(0.636619747f), rounder);
    const int n = op(LeafOp::k_sub, sum, rounder);
    int r = fnma(n, constant(1.57079637f), x);
    r = fnma(n, constant(-4.37113883e-8f), r);
    r = fnma(n, constant(-1.71512451e-15f), r);
    const Wave near = wave(r, sum);
    const int y = e_.home();
    e_.op_into(y, LeafOp::k_bit_xor, {near.size, near.sign});
    const int is_far = less(constant(1e5f), op(LeafOp::k_bit_andnot, bits(kSign), x));
    e_.amend(y, is_far, [&] {
      const Angle angle = far_angle(x);
      const Wave far = wave(angle.r, quarter == 0 ? angle.quarters : op(LeafOp::k_iadd, angle.quarters, bits(quarter)));
      return op(LeafOp::k_bit_xor, far.size, far.sign);
    });
    return y;
  }

 private:
  struct Reduced {
    int sum, n, r;  // sum: n + bias in the low bits
  };
  struct Angle {
    int r, quarters;  // quarters pi/2 + r, modulo 2 pi
  };
  struct Wave {
    int size, sign;
  };
  int op(LeafOp o, int a, int b) { return e_.op(o, {a, b}); }
  int fma(int a, int b, int c) { return e_.op(LeafOp::k_fma, {a, b, c}); }
  int fnma(int a, int b, int c) { return e_.op(LeafOp::k_fnma, {a, b, c}); }
  int constant(float v) { return e_.constant(v); }
  int bits(uint32_t v) { return e_.constant_bits(v); }
  int less(int a, int b) { return e_.compare(LeafOp::k_cmp_lt, a, b); }
  int blend(int mask, int off, int on) { return e_.op(LeafOp::k_blend, {off, on}, 0, mask); }

  // Horner, highest power first.
  int polynomial(int x, std::initializer_list<float> coefficients) {
    int y = -1;
    for (float c : coefficients) y = y < 0 ? constant(c) : fma(y, x, constant(c));
    return y;
  }
  // NaN comes out as it went in.
  int clamp(float low, int x, float high) {
    return op(LeafOp::k_max, constant(low), op(LeafOp::k_min, constant(high), x));
  }
  // x = n ln 2 + r; an even bias rounds ties to even.
  Reduced reduce_ln2(int x, int bias) {
    const int rounder = constant(kRounder + static_cast<float>(bias)), sum = fma(x, constant(1.44269502f), rounder);
    const int n = op(LeafOp::k_sub, sum, rounder);
    return {sum, n, fnma(n, constant(kLn2Low), fnma(n, constant(kLn2High), x))};
  }
  // 2^n from a sum with bias 127.
  int power_of_two(int sum) { return e_.op(LeafOp::k_shift_left, {sum}, 23); }
  // p 2^n, n from -150 to 128, from a sum with twice the bias: the halves of n + 254 are the exponent fields of two
  // factors.
  int times_any_power(int p, int sum) {
    const int half = op(LeafOp::k_bit_and, e_.op(LeafOp::k_shift_left, {sum}, 22), bits(0xff800000u));
    const int rest = op(LeafOp::k_isub, e_.op(LeafOp::k_shift_left, {sum}, 23), half);
    return op(LeafOp::k_mul, op(LeafOp::k_mul, p, half), rest);
  }
  // The sine of quarters pi/2 + r, from the low two bits of `quarters`: bit 30 (2.0 or 0.0) chooses the polynomial, bit
  // 31 is the sign.
  Wave wave(int r, int quarters) {
    const int z = op(LeafOp::k_mul, r, r);
    const int s = fma(op(LeafOp::k_mul, polynomial(z, {-0.000195068467f, 0.00833210163f, -0.166666538f}), z), r, r);
    const int c = fma(polynomial(z, {2.44300845e-5f, -0.00138872978f, 0.0416666456f, -0.5f}), z, constant(1.0f));
    const int top = e_.op(LeafOp::k_shift_left, {quarters}, 30);
    const int odd = e_.compare(LeafOp::k_cmp_ne, top, constant(0.0f));
    return {blend(odd, s, c), op(LeafOp::k_bit_and, top, bits(kSign))};
  }
  // Any finite x of 1e5 or more in size. x / 2 pi by eight pieces of 1 / 2 pi, each product exact as two floats: whole
  // turns fall away, what is left goes into a fixed point of 2^-31 turns that wraps, and what lies below that into
  // `rest`. Within 2^-23 of r.
  Angle far_angle(int x) {
    constexpr float kPieces[] = {0x1.45f306p+61f, 0x1.b93910p+36f, 0x1.529fc0p+10f, 0x1.3abe88p-13f,
                                 0x1.ea69bap-35f, 0x1.81b6c4p-59f, 0x1.2b3278p-83f, 0x1.0e4104p-108f};  // times 2^64
    constexpr int kWhole = 6, kLast = 7;  // from piece 6 on products are below half a turn, from 7 on below 2^-42
    const int scaled = op(LeafOp::k_mul, x, constant(0x1p-64f));
    int turns = bits(0), rest = constant(0.0f);
    const auto collect = [&](int t, bool whole, LeafOp on_turns, LeafOp on_rest) {
      if (whole) t = op(LeafOp::k_sub, t, e_.op(LeafOp::k_round, {t}));
      const int fixed = e_.op(LeafOp::k_cvt_f32_i32, {op(LeafOp::k_mul, t, constant(0x1p31f))});
      turns = op(on_turns, turns, fixed);
      rest = op(on_rest, rest, fnma(e_.op(LeafOp::k_cvt_i32_f32, {fixed}), constant(0x1p-31f), t));
    };
    for (int i = 0; i <= kLast; ++i) {
      const int piece = constant(kPieces[i]), high = op(LeafOp::k_mul, scaled, piece);
      const int over = i < kLast ? fnma(scaled, piece, high)
                                 : -1;  // by what `high` is too large: as large as the next piece's product
      if (i < kLast)
        collect(high, i < kWhole, LeafOp::k_iadd, LeafOp::k_add);
      else
        rest = op(LeafOp::k_add, rest, high);
      if (i + 1 < kLast)
        collect(over, i + 1 < kWhole, LeafOp::k_isub, LeafOp::k_sub);
      else if (i < kLast)
        rest = op(LeafOp::k_sub, rest, over);
    }
    // In 2^-32 turns; the eighth of a turn rounds to the nearest quarter.
    const int eighths = op(LeafOp::k_iadd, e_.op(LeafOp::k_shift_left, {turns}, 1), bits(0x20000000u));
    const int left = op(LeafOp::k_isub, op(LeafOp::k_bit_and, eighths, bits(0x3fffffffu)), bits(0x20000000u));
    const int high = e_.op(LeafOp::k_cvt_i32_f32, {left});
    const int low = e_.op(LeafOp::k_cvt_i32_f32, {op(LeafOp::k_isub, left, e_.op(LeafOp::k_cvt_f32_i32, {high}))});
    constexpr float kUnit = 0x1.921fb6p-30f, kUnitLow = -0x1.777a5cp-55f;  // 2 pi / 2^32
    const int r =
        fma(high, constant(kUnit),
            fma(high, constant(kUnitLow), fma(low, constant(kUnit), op(LeafOp::k_mul, rest, constant(6.28318548f)))));
    return {r, e_.op(LeafOp::k_shift_right, {eighths}, 30)};
  }
  // normal_cdf(-a) for a >= 0.
  int lower_tail(int a) {
    // By squares of a, which halves the wait for each other; the first three as they come, so that infinity stays minus
    // infinity.
    const int square = op(LeafOp::k_mul, a, a);
    int g = polynomial(a, {-5.82123708e-7f, 1.08120949e-5f, -4.5145155e-5f});
    for (const auto& [odd, even] : {std::pair(-0.000482853618f, 0.00751066066f),
                                    std::pair(-0.052794415f, -0.459115511f), std::pair(-1.15111565f, -0.999999808f)}) {
      const int pair = polynomial(a, {odd, even});
      g = fma(g, square, pair);
    }
    const int e = exp2_inside(g);
    return has_scalef_ ? e : blend(less(g, constant(-126.0f)), e, constant(0.0f));
  }
  // 2^x for x whose result is finite and normal; with scalef for any x.
  int exp2_inside(int x) {
    const int n = e_.op(LeafOp::k_round, {x});
    const int f = op(LeafOp::k_sub, x, n);
    const int square = op(LeafOp::k_mul, f, f), high = polynomial(f, {0.00132647273f, 0.00967151299f});
    const int low = polynomial(f, {0.0555073358f, 0.240222424f}), one = polynomial(f, {0.693147004f, 1.0f});
    return times_power_inside(fma(fma(high, square, low), square, one), n);
  }
  // The same within 1.02e-4 of itself; powers of 2 are exact.
  int exp2_bf16_inside(int x) {
    const int n = e_.op(LeafOp::k_round, {x});
    const int f = op(LeafOp::k_sub, x, n);
    return times_power_inside(polynomial(f, {0.0550089106f, 0.242210969f, 0.693282962f, 1.0f}), n);
  }
  // p 2^n, if that is finite and normal; with scalef for any n.
  int times_power_inside(int p, int n) {
    if (has_scalef_) return op(LeafOp::k_scalef, p, n);
    return op(LeafOp::k_iadd, p, e_.op(LeafOp::k_shift_left, {e_.op(LeafOp::k_cvt_f32_i32, {n})}, 23));
  }
  // e^r, |r| <= ln 2 / 2.
  int exp_of_rest(int r) {
    return polynomial(r, {0.00138378609f, 0.00836731866f, 0.0416677408f, 0.166665375f, 0.49999997f, 1.0f, 1.0f});
  }
  // e^x for x whose result is finite and normal.
  int exp_inside(int x) {
    const Reduced r = reduce_ln2(x, kBias);
    return op(LeafOp::k_mul, exp_of_rest(r.r), power_of_two(r.sum));
  }

  Emitter& e_;
  const bool has_scalef_;
};

// max(a, b) and min(a, b) give b where either is NaN; a NaN in a is put back.
int with_nan_of(Emitter& e, int a, int result) {
  return e.op(LeafOp::k_blend, {result, a}, 0, e.compare(LeafOp::k_cmp_unord, a, a));
}

}  // namespace

int emit_times_sigmoid(Emitter& e, int a, int x) { return Math(e).sigmoid(a, x); }
int emit_times_own_normal_cdf(Emitter& e, int x) { return Math(e).times_own_normal_cdf(x); }

int emit_max(Emitter& e, int a, int b) { return with_nan_of(e, a, e.op(LeafOp::k_max, {a, b})); }
int emit_min(Emitter& e, int a, int b) { return with_nan_of(e, a, e.op(LeafOp::k_min, {a, b})); }

int emit_math(Emitter& e, Op op, int x) {
  Math m(e);
  switch (op) {
    case Op::k_exp:
      return m.exp(x);
    case Op::k_exp2:
      return m.exp2(x, false);
    case Op::k_exp2_bf16:
      return m.exp2(x, true);
    case Op::k_log:
      return m.log(x);
    case Op::k_tanh:
      return m.tanh(x);
    case Op::k_erf:
      return m.erf(x);
    case Op::k_sigmoid:
      return m.sigmoid(e.constant(1.0f), x);
    case Op::k_normal_cdf:
      return m.normal_cdf(x);
    case Op::k_sin:
      return m.sin_cos(x, 0);
    case Op::k_cos:
      return m.sin_cos(x, 1);
    case Op::k_sqrt:
      return e.op(LeafOp::k_sqrt, {x});
    case Op::k_rsqrt:
      return e.op(LeafOp::k_div, {e.constant(1.0f), e.op(LeafOp::k_sqrt, {x})});
    case Op::k_floor:
      return e.op(LeafOp::k_floor, {x});
    case Op::k_round:
      return e.op(LeafOp::k_round, {x});
    default:
      return -1;
  }
}

}  // namespace lathe::jit
