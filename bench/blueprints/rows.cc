// Blueprints of row kernels in f32: softmax, layernorm, rmsnorm, gelu (both forms), swiglu. Rows that fit the caches
// run with the passes of neighbouring rows in one loop where that pays; larger ones store past the caches. Rows are
// whole vectors.
//
//   softmax    max(r + 1) beside exp, sum(r) -> stash; scale from the stash
//   norms      one pass of sums from L1, one of results; four accumulators
//   chains     straight through, four vectors a step
#include <algorithm>

#include "bench/blueprints/case.h"

#if defined(__x86_64__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // of the header itself
#include <immintrin.h>

namespace lathe::blueprints {
namespace {

constexpr double kStreamFrom = 16 << 20;  // bytes of input and output: below, the caches hold them

#define INLINE BLUEPRINT_AVX512 __attribute__((always_inline)) inline

INLINE __m512 constant(float v) { return _mm512_set1_ps(v); }

// 2^t: t - round(t) through degree 5, scaled. No clamps: the scaling knows infinities.
INLINE __m512 exp2_of(__m512 t) {
  const __m512 n = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), f = _mm512_sub_ps(t, n);
  __m512 p = constant(0.00132647273f);
  for (const float c : {0.00967151299f, 0.0555073358f, 0.240222424f, 0.693147004f, 1.0f})
    p = _mm512_fmadd_ps(p, f, constant(c));
  return _mm512_scalef_ps(p, n);
}
// 1 / (1 + e^-x)
INLINE __m512 sigmoid_of(__m512 x) {
  return _mm512_div_ps(constant(1), _mm512_add_ps(constant(1), exp2_of(_mm512_mul_ps(x, constant(-1.44269504f)))));
}

template <bool kStream>
INLINE void put(float* to, __m512 v) {
  if constexpr (kStream) {
    _mm512_stream_ps(to, v);
  } else {
    _mm512_storeu_ps(to, v);
  }
}

INLINE __m512 row_max(const float* x, int64_t n) {
  __m512 m[4];
  for (__m512& v : m) v = constant(-__builtin_inff());
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    for (int u = 0; u < 4; ++u) m[u] = _mm512_max_ps(_mm512_loadu_ps(x + i + 16 * u), m[u]);
  }
  for (; i < n; i += 16) m[0] = _mm512_max_ps(_mm512_loadu_ps(x + i), m[0]);
  return constant(_mm512_reduce_max_ps(_mm512_max_ps(_mm512_max_ps(m[0], m[1]), _mm512_max_ps(m[2], m[3]))));
}

template <bool kStream>
BLUEPRINT_AVX512 void softmax(const float* x, float* y, float* e, int64_t rows, int64_t n) {
  const __m512 log2e = constant(1.44269504f);
  __m512 m = row_max(x, n), scale = constant(0);
  for (int64_t r = 0; r <= rows; ++r) {
    const float *now = x + std::min(r, rows - 1) * n, *next = x + std::min(r + 1, rows - 1) * n;
    float* before = y + std::max<int64_t>(r - 1, 0) * n;
    __m512 low[2] = {constant(-__builtin_inff()), constant(-__builtin_inff())}, sum[2] = {constant(0), constant(0)};
    if (r == rows) {
#pragma GCC unroll 4
      for (int64_t i = 0; i < n; i += 16) put<kStream>(before + i, _mm512_mul_ps(_mm512_loadu_ps(e + i), scale));
      break;
    }
    for (int64_t i = 0; i < n; i += 32) {
#pragma GCC unroll 2
      for (int u = 0; u < 2; ++u) {
        const int64_t at = i + 16 * u;
        if (r > 0) put<kStream>(before + at, _mm512_mul_ps(_mm512_loadu_ps(e + at), scale));
        low[u] = _mm512_max_ps(_mm512_loadu_ps(next + at), low[u]);
        const __m512 v = exp2_of(_mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(now + at), m), log2e));
        _mm512_storeu_ps(e + at, v);
        sum[u] = _mm512_add_ps(sum[u], v);
      }
    }
    m = constant(_mm512_reduce_max_ps(_mm512_max_ps(low[0], low[1])));
    scale = constant(1.0f / _mm512_reduce_add_ps(_mm512_add_ps(sum[0], sum[1])));
  }
  if (kStream) _mm_sfence();
}

INLINE float sum_of(const float* x, int64_t n) {
  __m512 s[4];
  for (__m512& v : s) v = constant(0);
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    for (int u = 0; u < 4; ++u) s[u] = _mm512_add_ps(s[u], _mm512_loadu_ps(x + i + 16 * u));
  }
  for (; i < n; i += 16) s[0] = _mm512_add_ps(s[0], _mm512_loadu_ps(x + i));
  return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(s[0], s[1]), _mm512_add_ps(s[2], s[3])));
}
INLINE float squares_of(const float* x, int64_t n, float mean) {
  const __m512 u = constant(mean);
  __m512 s[4];
  for (__m512& v : s) v = constant(0);
  int64_t i = 0;
  const auto step = [&](int64_t at, int to) BLUEPRINT_AVX512 __attribute__((always_inline)) {
    const __m512 d = _mm512_sub_ps(_mm512_loadu_ps(x + at), u);
    s[to] = _mm512_fmadd_ps(d, d, s[to]);
  };
  for (; i + 64 <= n; i += 64) {
    for (int k = 0; k < 4; ++k) step(i + 16 * k, k);
  }
  for (; i < n; i += 16) step(i, 0);
  return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(s[0], s[1]), _mm512_add_ps(s[2], s[3])));
}

template <bool kStream, bool kCentred>
BLUEPRINT_AVX512 void norm(const float* x, const float* g, const float* h, float* y, int64_t rows, int64_t n) {
  const float count = static_cast<float>(n);
  for (int64_t r = 0; r < rows; ++r, x += n, y += n) {
    const float mean = kCentred ? sum_of(x, n) / count : 0;
    const float scale = 1 / __builtin_sqrtf(squares_of(x, n, mean) / count + 1e-5f);
    const __m512 u = constant(mean), s = constant(scale);
#pragma GCC unroll 4
    for (int64_t i = 0; i < n; i += 16) {
      __m512 v = _mm512_loadu_ps(x + i);
      if (kCentred) v = _mm512_sub_ps(v, u);
      v = _mm512_mul_ps(_mm512_mul_ps(v, s), _mm512_loadu_ps(g + i));
      if (kCentred) v = _mm512_add_ps(v, _mm512_loadu_ps(h + i));
      put<kStream>(y + i, v);
    }
  }
  if (kStream) _mm_sfence();
}

// x / (1 + e^(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3)
struct GeluTanh {
  INLINE __m512 operator()(__m512 x, __m512) const {
    const __m512 u =
        _mm512_mul_ps(x, _mm512_fmadd_ps(_mm512_mul_ps(x, x), constant(0.0713548163f), constant(1.59576912f)));
    return _mm512_mul_ps(x, sigmoid_of(u));
  }
};
// x Phi(x), Phi through the complementary error function of |x|: a rational form of Abramowitz and Stegun, 7.1.26
// (1.5e-7).
struct GeluErf {
  INLINE __m512 operator()(__m512 x, __m512) const {
    const __m512 a = _mm512_abs_ps(x);
    const __m512 t = _mm512_div_ps(constant(1), _mm512_fmadd_ps(a, constant(0.3275911f * 0.70710678f), constant(1)));
    __m512 p = constant(0.5f * 1.061405429f);
    for (const float c : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f})
      p = _mm512_fmadd_ps(p, t, constant(0.5f * c));
    const __m512 e = exp2_of(_mm512_mul_ps(_mm512_mul_ps(x, x), constant(-0.72134752f)));
    const __m512 tail = _mm512_mul_ps(_mm512_mul_ps(p, t), e);  // Phi(-|x|)
    return _mm512_fnmadd_ps(a, tail, _mm512_max_ps(x, constant(0)));
  }
};
struct Swiglu {
  INLINE __m512 operator()(__m512 x, __m512 u) const { return _mm512_mul_ps(_mm512_mul_ps(x, sigmoid_of(x)), u); }
};

template <class F, bool kStream, bool kTwo>
BLUEPRINT_AVX512 void chain(const float* x, const float* u, float* y, int64_t n) {
  for (int64_t i = 0; i < n; i += 64) {
#pragma GCC unroll 4
    for (int k = 0; k < 64; k += 16) {
      const __m512 v = _mm512_loadu_ps(x + i + k);
      put<kStream>(y + i + k, F()(v, kTwo ? _mm512_loadu_ps(u + i + k) : v));
    }
  }
  if (kStream) _mm_sfence();
}

template <class F, bool kTwo>
void run_chain(float* const* a, int64_t n, bool stream) {
  (stream ? chain<F, true, kTwo> : chain<F, false, kTwo>)(a[0], a[1], a[kTwo ? 2 : 1], n);
}

Case make(const char* name, const char* op, int64_t rows, int64_t n) {
  Case c;
  c.name = std::string(name) + "_" + std::to_string(rows) + "x" + std::to_string(n);
  c.op = op;
  c.inputs = {{"x", {rows, n}}};
  c.result = {rows, n};
  c.bytes = 8.0 * static_cast<double>(rows * n);
  return c;
}

}  // namespace

void add_row_cases(Cases* cases) {
  for (const auto& [rows, n] : {std::pair<int64_t, int64_t>{128, 896}, {4096, 1024}}) {
    const bool stream = 8.0 * static_cast<double>(rows * n) > kStreamFrom;
    Case s = make("softmax", "softmax", rows, n);
    s.scratch_floats = n;
    s.run = [rows = rows, n = n, stream](float* const* a, float* scratch) {
      (stream ? softmax<true> : softmax<false>)(a[0], a[1], scratch, rows, n);
    };
    cases->push_back(s);
    Case l = make("layernorm", "layernorm", rows, n);
    l.inputs.push_back({"scale", {n}, true});
    l.inputs.push_back({"bias", {n}, true});
    l.run = [rows = rows, n = n, stream](float* const* a, float*) {
      (stream ? norm<true, true> : norm<false, true>)(a[0], a[1], a[2], a[3], rows, n);
    };
    cases->push_back(l);
    Case r = make("rmsnorm", "rmsnorm", rows, n);
    r.inputs.push_back({"scale", {n}, true});
    r.run = [rows = rows, n = n, stream](float* const* a, float*) {
      (stream ? norm<true, false> : norm<false, false>)(a[0], a[1], nullptr, a[2], rows, n);
    };
    cases->push_back(r);
    const int64_t all = rows * n;
    Case e = make("gelu_erf", "gelu", rows, n);
    e.run = [all, stream](float* const* a, float*) { run_chain<GeluErf, false>(a, all, stream); };
    cases->push_back(e);
    Case t = make("gelu_tanh", "gelu", rows, n);
    lathe_attr form = {};
    form.name = "approximate";
    form.type = LATHE_ATTR_STRING;
    form.s = "tanh";
    t.attributes.push_back(form);
    t.run = [all, stream](float* const* a, float*) { run_chain<GeluTanh, false>(a, all, stream); };
    cases->push_back(t);
    Case g = make("swiglu", "swiglu", rows, n);
    g.inputs.push_back({"u", {rows, n}});
    g.bytes *= 1.5;
    g.run = [all, stream](float* const* a, float*) { run_chain<Swiglu, true>(a, all, stream); };
    cases->push_back(g);
  }
}

}  // namespace lathe::blueprints

#else

namespace lathe::blueprints {
void add_row_cases(Cases*) {}
}  // namespace lathe::blueprints

#endif
