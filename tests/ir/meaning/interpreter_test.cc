// The interpreter: values by hand in each arithmetic, every error, sampling, and a speed floor.
#include "ir/meaning/interpreter.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <ctime>
#include <random>

#include "ir/core/text_form.h"

namespace lathe::ir {
namespace {

using Tensors = std::map<std::string, Tensor>;
using Sizes = SymbolValues;

Kernel parsed(const std::string& text) {
  Result<Kernel> k = parse_kernel(text);
  EXPECT_TRUE(k.ok()) << k.status().to_string() << "\n" << text;
  return k.ok() ? *k : Kernel();
}
Status run(const Kernel& k, Tensors& t, const Sizes& sizes = {}, Arithmetic arithmetic = Arithmetic::native) {
  InterpreterOptions options;
  options.arithmetic = arithmetic;
  return interpret(k, sizes, t, options);
}
// One statement `y[] = expr` over scalars a, b, c of one type.
double eval(const std::string& expr, const std::string& type, double a = 0, double b = 0, double c = 0,
            const std::string& result = {}, Arithmetic arithmetic = Arithmetic::native) {
  const Kernel k = parsed("kernel t(a: " + type + "[] in, b: " + type + "[] in, c: " + type +
                          "[] in, y: " + (result.empty() ? type : result) + "[] out)\n  y[] = " + expr + "\n");
  Tensors t = {{"a", {{}, {a}}}, {"b", {{}, {b}}}, {"c", {{}, {c}}}};
  const Status s = run(k, t, {}, arithmetic);
  EXPECT_TRUE(s.ok()) << s.to_string();
  return s.ok() ? t["y"].data[0] : NAN;
}

const char kSoftmax[] =
    "kernel softmax(s: f32[B, N] in, d: f32[B, N] out) family row where B in 0..64, N in 1..64\n"
    "  m: f32[B] heap\n"
    "  a: f32[B] heap\n"
    "  for b < B:\n"
    "    m[b] = -inf\n"
    "    for n < N:\n"
    "      m[b] fmax= s[b, n]\n"
    "    a[b] = 0.0\n"
    "    for n1 < N:\n"
    "      d[b, n1] = exp(s[b, n1] - m[b])\n"
    "      a[b] += d[b, n1]\n"
    "    for n2 < N:\n"
    "      d[b, n2] = d[b, n2] / a[b]\n";

const char kMatmul[] =
    "kernel mm(x: f32[M, K] in, w: f32[N, K] const, y: f32[M, N] out) where M in 0..64, N in 0..64, K in 0..64\n"
    "  for m < M:\n"
    "    for n < N:\n"
    "      y[m, n] = 0.0\n"
    "      for k < K:\n"
    "        y[m, n] += x[m, k] * w[n, k]\n";

// The same in masked tiles with a register tile, k outermost inside the tile.
const char kTiled[] =
    "kernel mm(x: f32[M, K] in, w: f32[N, K] const, y: f32[M, N] out) where M in 0..64, N in 0..64, K in 0..64\n"
    "  c: f32[4, 8] reg\n"
    "  for n0 < ceildiv(N, 8) @parallel:\n"
    "    for m0 < ceildiv(M, 4):\n"
    "      for m1 < min(4, M - 4*m0) @unroll:\n"
    "        for n1 < min(8, N - 8*n0) @vector:\n"
    "          c[m1, n1] = 0.0\n"
    "      for k < K:\n"
    "        for m2 < min(4, M - 4*m0) @unroll:\n"
    "          for n2 < min(8, N - 8*n0) @vector:\n"
    "            c[m2, n2] += x[4*m0 + m2, k] * w[8*n0 + n2, k]\n"
    "      for m3 < min(4, M - 4*m0) @unroll:\n"
    "        for n3 < min(8, N - 8*n0) @vector:\n"
    "          y[4*m0 + m3, 8*n0 + n3] = c[m3, n3]\n";

Tensor random_tensor(std::vector<int64_t> dims, uint64_t seed) {
  std::mt19937_64 rng(seed);
  Tensor t{std::move(dims), {}};
  int64_t n = 1;
  for (int64_t d : t.dims) n *= d;
  for (int64_t i = 0; i < n; ++i)
    t.data.push_back(static_cast<float>(std::uniform_real_distribution<double>(-2, 2)(rng)));
  return t;
}
Tensors matmul_inputs(int64_t m, int64_t n, int64_t k) {
  return {{"x", random_tensor({m, k}, 1)}, {"w", random_tensor({n, k}, 2)}};
}

bool same(const Tensor& a, const Tensor& b) {
  if (a.dims != b.dims || a.data.size() != b.data.size()) return false;
  for (size_t i = 0; i < a.data.size(); ++i) {
    if (a.data[i] != b.data[i] && !(std::isnan(a.data[i]) && std::isnan(b.data[i]))) return false;
  }
  return true;
}

TEST(Interpreter, SoftmaxByHand) {
  Tensors t = {{"s", {{2, 3}, {0, 0, 0, 1, 2, 3}}}};
  ASSERT_TRUE(run(parsed(kSoftmax), t, {{"B", 2}, {"N", 3}}, Arithmetic::real).ok());
  const Tensor& d = t["d"];
  EXPECT_NEAR(d.data[0], 1.0 / 3, 1e-15);
  EXPECT_NEAR(d.data[5], std::exp(3.0) / (std::exp(1.0) + std::exp(2.0) + std::exp(3.0)), 1e-15);
}

TEST(Interpreter, EmptyExtentsRunNothing) {
  Tensors t = {{"s", {{0, 3}, {}}}};
  ASSERT_TRUE(run(parsed(kSoftmax), t, {{"B", 0}, {"N", 3}}).ok());
  EXPECT_TRUE(t["d"].data.empty());
  Tensors u = matmul_inputs(3, 5, 0);
  ASSERT_TRUE(run(parsed(kMatmul), u, {{"M", 3}, {"N", 5}, {"K", 0}}).ok());
  EXPECT_EQ(u["y"].data, std::vector<double>(15, 0.0));
}

TEST(Interpreter, CellsNeverWrittenAreNaN) {
  const Kernel k = parsed("kernel t(y: f32[4] out)\n  for i < 3:\n    y[i] = 1.0\n");
  Tensors t = {{"y", {{4}, {7, 7, 7, 7}}}};
  ASSERT_TRUE(run(k, t).ok());
  EXPECT_TRUE(std::isnan(t["y"].data[3]));
  InterpreterOptions options;
  options.keep_contents = true;
  t["y"] = {{4}, {7, 7, 7, 7}};
  ASSERT_TRUE(interpret(k, {}, t, options).ok());
  EXPECT_EQ(t["y"].data, (std::vector<double>{1, 1, 1, 7}));
}

TEST(Interpreter, TemporariesComeBackIfAskedFor) {
  Tensors t = {{"s", {{1, 2}, {5, 9}}}, {"m", {}}};
  ASSERT_TRUE(run(parsed(kSoftmax), t, {{"B", 1}, {"N", 2}}).ok());
  EXPECT_EQ(t["m"].data, std::vector<double>{9});
  EXPECT_EQ(t.count("a"), 0u);
}

TEST(Interpreter, TailsEqualTheNaiveKernelBitForBit) {
  for (const auto& [m, n, k] :
       std::vector<std::tuple<int, int, int>>{{1, 1, 1}, {4, 8, 3}, {5, 9, 7}, {7, 23, 16}, {3, 7, 0}}) {
    Tensors a = matmul_inputs(m, n, k), b = a;
    const Sizes sizes = {{"M", m}, {"N", n}, {"K", k}};
    ASSERT_TRUE(run(parsed(kMatmul), a, sizes).ok());
    ASSERT_TRUE(run(parsed(kTiled), b, sizes).ok());
    EXPECT_TRUE(same(a["y"], b["y"])) << m << " " << n << " " << k;
  }
}

TEST(Interpreter, AddOfAProductIsOneFma) {
  const Kernel k = parsed("kernel t(a: f32[] in, b: f32[] in, y: f32[] out)\n  y[] = -1.0\n  y[] += a[] * b[]\n");
  const float x = 1.0f + 0x1p-12f;
  Tensors t = {{"a", {{}, {x}}}, {"b", {{}, {x}}}};
  ASSERT_TRUE(run(k, t).ok());
  EXPECT_EQ(t["y"].data[0], std::fmaf(x, x, -1.0f));
  EXPECT_NE(t["y"].data[0], x * x - 1.0f);
  EXPECT_EQ(eval("a[] * b[] + c[]", "f32", x, x, -1), static_cast<float>(x * x) - 1.0f);
  EXPECT_EQ(eval("fma(a[], b[], c[])", "f32", x, x, -1), std::fmaf(x, x, -1.0f));
}

TEST(Interpreter, RoundsToTheType) {
  EXPECT_EQ(eval("a[] + b[]", "f32", 1, 0x1p-24), 1);
  EXPECT_EQ(eval("a[] + b[]", "f64", 1, 0x1p-24), 1 + 0x1p-24);
  EXPECT_EQ(eval("a[] + b[]", "f16", 2048, 1), 2048);
  EXPECT_EQ(eval("a[] + b[]", "f16", 2048, 3), 2052);
  EXPECT_EQ(eval("a[] * b[]", "f16", 256, 256), INFINITY);
  EXPECT_EQ(eval("a[] + b[]", "f16", 65504, 15), 65504);
  EXPECT_EQ(eval("a[] * b[]", "f16", 0x1p-24, 0.5), 0);
  EXPECT_EQ(eval("a[] * b[]", "f16", 0x1p-24, 0.75), 0x1p-24);
  EXPECT_EQ(eval("a[] + b[]", "bf16", 256, 1), 256);
  EXPECT_EQ(eval("a[] + b[]", "bf16", 256, 3), 260);
  EXPECT_EQ(eval("a[] / b[]", "f32", 1, 3), 1.0f / 3.0f);
  EXPECT_EQ(eval("a[] + b[]", "f32", 1, 0x1p-24, 0, {}, Arithmetic::real), 1 + 0x1p-24);
  // One rounding in a 16-bit fma.
  EXPECT_EQ(eval("fma(a[], b[], c[])", "f16", 0x1p-24, 0x1p-24, 2048), 2048);
  EXPECT_EQ(eval("fma(a[], b[], c[])", "bf16", 7, 37, -0x1p-60), 258);  // just below the tie 259
  EXPECT_EQ(eval("fma(a[], b[], c[])", "bf16", 7, 37, 0), 260);
  EXPECT_EQ(eval("fma(a[], b[], c[])", "f16", 1025, 1 + 0x1p-10, 0), 1026);
}

TEST(Interpreter, RoundToAgreesWithTheConversions) {
  std::mt19937 rng(5);
  for (int i = 0; i < 200000; ++i) {
    const float v = std::bit_cast<float>(static_cast<uint32_t>(rng()));
    if (std::isnan(v)) continue;
    ASSERT_EQ(round_to(DType::f16, v), f16_to_f32(f32_to_f16(v))) << v;
    ASSERT_EQ(round_to(DType::bf16, v), bf16_to_f32(f32_to_bf16(v))) << v;
  }
  EXPECT_EQ(round_to(DType::f16, 2049.0 + 0x1p-40), 2050);
  EXPECT_EQ(round_to(DType::i8, 2.5), 2);
}

TEST(Interpreter, Casts) {
  EXPECT_EQ(eval("i8(a[])", "f32", 200, 0, 0, "i8"), 127);
  EXPECT_EQ(eval("i8(a[])", "f32", -200, 0, 0, "i8"), -128);
  EXPECT_EQ(eval("u8(a[])", "f32", -3, 0, 0, "u8"), 0);
  EXPECT_EQ(eval("i8(a[])", "f32", 2.5, 0, 0, "i8"), 2);
  EXPECT_EQ(eval("i32(a[])", "f32", NAN, 0, 0, "i32"), 0);
  EXPECT_EQ(eval("i32(a[])", "f32", INFINITY, 0, 0, "i32"), 2147483647);
  EXPECT_EQ(eval("f16(a[])", "f32", 65520, 0, 0, "f16"), INFINITY);
  EXPECT_EQ(eval("f32(a[])", "i32", 16777217, 0, 0, "f32"), 16777216);
  EXPECT_EQ(eval("a[] * b[]", "i32", 65536, 65536), 0);
  EXPECT_EQ(eval("a[] + b[]", "i8", 127, 1), -128);
}

TEST(Interpreter, NaNAndTheMaxima) {
  EXPECT_TRUE(std::isnan(eval("max(a[], b[])", "f32", NAN, 1)));
  EXPECT_TRUE(std::isnan(eval("max(a[], b[])", "f32", 1, NAN)));
  EXPECT_TRUE(std::isnan(eval("min(a[], b[])", "f32", 1, NAN)));
  EXPECT_EQ(eval("fmax(a[], b[])", "f32", NAN, 1), 1);
  EXPECT_TRUE(std::isnan(eval("fmax(a[], b[])", "f32", 1, NAN)));
  const Kernel k = parsed(
      "kernel t(x: f32[3] in, p: f32[] out, q: f32[] out)\n  p[] = -inf\n  q[] = -inf\n  for i < 3:\n    p[] fmax= "
      "x[i]\n    q[] max= x[i]\n");
  Tensors t = {{"x", {{3}, {2, NAN, 1}}}};
  ASSERT_TRUE(run(k, t).ok());
  EXPECT_EQ(t["p"].data[0], 2);
  EXPECT_TRUE(std::isnan(t["q"].data[0]));
  EXPECT_EQ(eval("select(a[] < b[], 1.0, 2.0)", "f32", NAN, 1), 2);
  EXPECT_EQ(eval("select(a[] != b[], 1.0, 2.0)", "f32", NAN, NAN), 1);
  EXPECT_EQ(eval("select(not (a[] == b[]), 1.0, 2.0)", "f32", 1, 1), 2);
}

TEST(Interpreter, Functions) {
  EXPECT_EQ(eval("exp(a[])", "f32", 1), static_cast<float>(std::exp(1.0)));
  EXPECT_EQ(eval("rsqrt(a[])", "f32", 4), 0.5);
  EXPECT_EQ(eval("sigmoid(a[])", "f32", 0), 0.5);
  EXPECT_EQ(eval("round(a[])", "f32", 2.5), 2);
  EXPECT_EQ(eval("floor(a[])", "f32", -2.5), -3);
  EXPECT_EQ(eval("abs(-a[])", "f32", 3), 3);
  EXPECT_EQ(eval("erf(a[])", "f16", 0.5), round_to(DType::f16, std::erf(0.5)));
}

TEST(Interpreter, GuardedLoadsStayInside) {
  const Kernel guarded =
      parsed("kernel t(x: f32[3] in, y: f32[5] out)\n  for i < 5:\n    y[i] = select(i < 3, x[i], 0.0)\n");
  Tensors t = {{"x", {{3}, {1, 2, 3}}}};
  ASSERT_TRUE(run(guarded, t).ok());
  EXPECT_EQ(t["y"].data, (std::vector<double>{1, 2, 3, 0, 0}));
  const Status s = run(parsed("kernel t(x: f32[3] in, y: f32[5] out)\n  for i < 5:\n    y[i] = x[i]\n"), t);
  EXPECT_EQ(s.code(), Code::kINTERNAL);
  EXPECT_NE(s.message().find("buffer x"), std::string::npos) << s.message();
  EXPECT_NE(s.message().find("y[i] = x[i]"), std::string::npos) << s.message();
}

TEST(Interpreter, GathersAndUnwrittenIntegers) {
  const Kernel k = parsed("kernel t(x: f32[4] in, p: i64[2] in, y: f32[2] out)\n  for i < 2:\n    y[i] = x[p[i]]\n");
  Tensors t = {{"x", {{4}, {1, 2, 3, 4}}}, {"p", {{2}, {3, 0}}}};
  ASSERT_TRUE(run(k, t).ok());
  EXPECT_EQ(t["y"].data, (std::vector<double>{4, 1}));
  t["p"].data = {3, 4};
  EXPECT_EQ(run(k, t).code(), Code::kINTERNAL);
  const Kernel u = parsed("kernel t(y: i32[] out)\n  y[] += i32(1)\n");
  Tensors v;
  for (const Arithmetic a : {Arithmetic::native, Arithmetic::finite_field})
    EXPECT_EQ(run(u, v, {}, a).code(), Code::kINTERNAL);
}

TEST(Interpreter, WrongArguments) {
  const Kernel k = parsed(kMatmul);
  const Sizes sizes = {{"M", 2}, {"N", 2}, {"K", 2}};
  Tensors none;
  EXPECT_EQ(run(k, none, sizes).code(), Code::kINVALID);
  Tensors bad = matmul_inputs(2, 2, 3);
  EXPECT_EQ(run(k, bad, sizes).code(), Code::kINVALID);
  Tensors good = matmul_inputs(2, 2, 2);
  EXPECT_EQ(run(k, good, {{"M", 2}, {"N", 2}}).code(), Code::kINVALID);
  InterpreterOptions options;
  options.max_steps = 5;
  EXPECT_EQ(interpret(k, sizes, good, options).code(), Code::kUNSUPPORTED);
}

TEST(Interpreter, SampledScopes) {
  Tensors full = matmul_inputs(6, 5, 3), part = full;
  const Sizes sizes = {{"M", 6}, {"N", 5}, {"K", 3}};
  ASSERT_TRUE(run(parsed(kMatmul), full, sizes).ok());
  InterpreterOptions options;
  options.only = {{"m", {0, 5, 9}}, {"n", {2}}};
  ASSERT_TRUE(interpret(parsed(kMatmul), sizes, part, options).ok());
  int written = 0;
  for (int m = 0; m < 6; ++m) {
    for (int n = 0; n < 5; ++n) {
      const double got = part["y"].data[m * 5 + n];
      if (std::isnan(got)) continue;
      ++written;
      EXPECT_EQ(got, full["y"].data[m * 5 + n]);
    }
  }
  EXPECT_EQ(written, 2);
}

TEST(Interpreter, MagnitudeBoundsTheTerms) {
  Tensors t = {{"x", {{1, 3}, {1, -2, 3}}}, {"w", {{1, 3}, {-4, 5, 6}}}};
  ASSERT_TRUE(run(parsed(kMatmul), t, {{"M", 1}, {"N", 1}, {"K", 3}}, Arithmetic::magnitude).ok());
  EXPECT_EQ(t["y"].data[0], 4 + 10 + 18);
  EXPECT_EQ(eval("a[] - b[]", "f32", 3, 5, 0, {}, Arithmetic::magnitude), 8);
  EXPECT_EQ(eval("a[] + -2.0", "f32", -3, 5, 0, {}, Arithmetic::magnitude), 5);
}

// Parts of indices, values and extents that depend on outer loops follow these: also where a loop between them stays at
// the same value, or stands beside another one.
TEST(Interpreter, OuterLoopsShowInWhatIsInside) {
  const Kernel k = parsed(
      "kernel t(y: f32[24, 40] out)\n"
      "  for i < 24:\n"
      "    for j < 40:\n"
      "      y[i, j] = 0.0\n"
      "  for a < 5:\n"
      "    for b < a % 3:\n"
      "      y[a + b, 7 * b] += 1.0\n"
      "      for c < 3:\n"
      "        y[(2 * a + b) // 2 + c, (a + b) % 3 * 4 + c] += f32((a * 3 + b) // 2)\n"
      "        for d < 2 + b:\n"
      "          y[2 * a + c + d, 3 * b + 5 * d + (a + c) % 2] += f32(select((a + b + c) % 2 < 1, a, b * d))\n"
      "      for e < 2:\n"
      "        y[3 * a + b + e, (a + b) // 2 + 2 * e] += 2.0\n"
      "    for f < 1:\n"
      "      for g < 2:\n"
      "        y[4 * a + f + g, (a + f) % 4 * 9 + g] += f32((a + f) % 3)\n");
  std::vector<double> want(24 * 40, 0.0);
  const auto add = [&](int64_t row, int64_t column, int64_t value) {
    want[static_cast<size_t>(row * 40 + column)] += static_cast<double>(value);
  };
  for (int64_t a = 0; a < 5; ++a) {
    for (int64_t b = 0; b < a % 3; ++b) {
      add(a + b, 7 * b, 1);
      for (int64_t c = 0; c < 3; ++c) {
        add((2 * a + b) / 2 + c, (a + b) % 3 * 4 + c, (a * 3 + b) / 2);
        for (int64_t d = 0; d < 2 + b; ++d)
          add(2 * a + c + d, 3 * b + 5 * d + (a + c) % 2, (a + b + c) % 2 < 1 ? a : b * d);
      }
      for (int64_t e = 0; e < 2; ++e) add(3 * a + b + e, (a + b) / 2 + 2 * e, 2);
    }
    for (int64_t g = 0; g < 2; ++g) add(4 * a + g, a % 4 * 9 + g, a % 3);
  }
  Tensors t;
  const Status done = run(k, t);
  ASSERT_TRUE(done.ok()) << done.to_string();
  EXPECT_EQ(t["y"].data, want);
}

// A loop of one assignment gives what its turns give, one by one, as they are where a scope is restricted.
TEST(Interpreter, LinesAreTheirTurns) {
  const Kernel k = parsed(
      "kernel t(x: f32[N] in, h: bf16[N] in, w: f32[3, N] in, y: f32[N] out, z: bf16[N] out, s: f32[4] out, "
      "p: f32[N] out) where N in 1..1000\n"
      "  for i < N:\n"
      "    y[N - 1 - i] = x[i] * f32(h[i]) - 2.0\n"
      "  for j < 4:\n"
      "    s[j] = 1.0\n"
      "  for a < 3:\n"
      "    for b < N:\n"
      "      s[a % 2] += x[b] * w[a, b]\n"
      "  for c < N:\n"
      "    s[2] max= -x[c] * 0.25\n"
      "  for d < N:\n"
      "    s[3] *= f32(h[d]) * 2.0 / x[d]\n"
      "  p[0] = x[0]\n"
      "  for e < N - 1:\n"
      "    p[e + 1] = p[e] + x[e]\n"
      "  for f < N:\n"
      "    z[f] = bf16(exp(x[f]) + 1.0)\n");
  for (const Arithmetic arithmetic : {Arithmetic::native, Arithmetic::real, Arithmetic::magnitude,
                                      Arithmetic::error_bound, Arithmetic::finite_field}) {
    for (const int64_t n : {1, 3, 4, 5, 63, 64, 65, 130}) {
      Tensors lines = {{"x", random_tensor({n}, 1)}, {"w", random_tensor({3, n}, 2)}, {"h", random_tensor({n}, 3)}};
      for (double& h : lines["h"].data) h = round_to(DType::bf16, h);
      Tensors turns = lines;
      InterpreterOptions options;
      options.arithmetic = arithmetic;
      ASSERT_TRUE(interpret(k, {{"N", n}}, lines, options).ok());
      std::vector<int64_t> all(static_cast<size_t>(n) + 3);
      for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
      for (const char* iter : {"i", "j", "a", "b", "c", "d", "e", "f"}) options.only[iter] = all;
      ASSERT_TRUE(interpret(k, {{"N", n}}, turns, options).ok());
      for (const char* name : {"y", "z", "s", "p"}) {
        const std::vector<double>&a = lines[name].data, &b = turns[name].data;
        ASSERT_EQ(a.size(), b.size());
        for (size_t i = 0; i < a.size(); ++i)
          EXPECT_TRUE(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) << name << " " << i << " of " << n;
      }
    }
  }
  InterpreterOptions few;
  few.max_steps = 7;
  Tensors t = {{"x", random_tensor({8}, 1)}};
  EXPECT_EQ(
      interpret(parsed("kernel t(x: f32[8] in, y: f32[8] out)\n  for i < 8:\n    y[i] = x[i]\n"), {}, t, few).code(),
      Code::kUNSUPPORTED);
  // What lies outside in one turn is an error of that turn.
  const Status outside = run(parsed("kernel t(x: f32[8] in, y: f32[8] out)\n  for i < 8:\n    y[i] = x[i + 1]\n"), t);
  EXPECT_EQ(outside.code(), Code::kINTERNAL);
  EXPECT_NE(outside.message().find("index 8, size is 8"), std::string::npos) << outside.message();
}

TEST(Interpreter, RealRunsTwentyMillionStepsASecond) {
  const Kernel k = parsed(kMatmul);
  Tensors t = {{"x", random_tensor({64, 64}, 1)}, {"w", random_tensor({64, 64}, 2)}};
  const Sizes sizes = {{"M", 64}, {"N", 64}, {"K", 64}};
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    const std::clock_t start = std::clock();
    ASSERT_TRUE(run(k, t, sizes, Arithmetic::real).ok());
    best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  const double rate = 64.0 * 64 * 64 / best / 1e6;
  RecordProperty("million_steps_per_second", std::to_string(rate));
  EXPECT_GT(rate, 1.0);  // a release build on an idle core does 20 and more
}

}  // namespace
}  // namespace lathe::ir
