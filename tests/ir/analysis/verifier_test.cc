// The verifier: what docs/ir.md shows is accepted; for every rule a kernel that breaks only that rule is refused.
#include "ir/analysis/verifier.h"

#include <gtest/gtest.h>

#include "ir/analysis/intrinsics.h"
#include "ir/core/text_form.h"

namespace lathe::ir {
namespace {

std::string verdict(const std::string& text) {
  Result<Kernel> k = parse_kernel(text);
  if (!k.ok()) return "does not parse: " + k.status().message();
  const Status status = verify(*k);
  return status.ok() ? "ok" : status.message();
}

TEST(Verifier, Accepts) {
  const char* const good[] = {
      // tails as extents
      "kernel t(x: f32[N] in, y: f32[N] out) where N in 1..100\n"
      "  for n0 < ceildiv(N, 16):\n    for n1 < min(16, N - 16*n0) @vector:\n      y[16*n0 + n1] = x[16*n0 + n1]\n",
      // peeled
      "kernel t(x: f32[N] in, y: f32[N] out) where N in 1..100\n"
      "  for n0 < N // 16:\n    for n1 < 16 @vector:\n      y[16*n0 + n1] = x[16*n0 + n1]\n"
      "  for n2 < N % 16:\n    y[16*(N // 16) + n2] = x[16*(N // 16) + n2]\n",
      // clamped
      "kernel t(x: f32[N] in, y: f32[N] out) where N in 16..100\n"
      "  for n0 < ceildiv(N, 16):\n    for n1 < 16 @vector:\n      y[min(16*n0, N - 16) + n1] = x[min(16*n0, N - 16) + "
      "n1]\n",
      // exact
      "kernel t(x: f32[N] in, y: f32[N] out) where N in 16..96 multiple 16\n"
      "  for n0 < N // 16:\n    for n1 < 16:\n      y[16*n0 + n1] = x[16*n0 + n1]\n",
      // guarded loads, gathers, casts
      "kernel t(x: f32[N] in, i: i32[N] in, y: f32[N] out) where N in 1..9\n"
      "  for n < N:\n    y[n] = select(n < N - 1, x[n + 1], 0.0) + x[i64(i[n])] + f32(i[n])\n",
      // leaf
      "kernel leaf(p0: f32[_, _] in strides [?, 1], p1: f32[_] out strides [1]) family leaf where e0 in "
      "0..9223372036854775807, "
      "seglen in 0..9223372036854775807\n"
      "  r0: f32[16] reg\n"
      "  for i3 < 16 @vector:\n    r0[i3] = 0.0\n"
      "  for i0 < seglen @tensor(mma):\n    prefetch p0 lines 8\n    for i1 < 16 @vector:\n      r0[i1] += p0[i0, i1] "
      "* p0[0, i1]\n"
      "  for i2 < 16 @vector:\n    p1[i2] = r0[i2]\n",
      "kernel t(w: f32[N, 8] const layout [0/32, 1, 0%32] pad [0, 8], y: f32[] out) where N in 1..9\n  y[] = w[0, 7]\n",
  };
  for (const char* text : good) EXPECT_EQ(verdict(text), "ok") << text;
  for (const Intrinsic& row : intrinsics()) EXPECT_EQ(verdict(row.meaning), "ok") << row.name;
}

// The base is accepted; one replacement breaks one rule.
const char* const kBase =
    "kernel t(x: f32[N, 8] in, w: f32[8] const, y: f32[N, 8] out) family row where N in 1..64, L in 0..9\n"
    "  t: f32[N] heap\n"
    "  r: f32[4] reg\n"
    "  for i < N [row]:\n"
    "    t[i] = 0.0\n"
    "    for j < 8 [col] @vector:\n"
    "      t[i] += x[i, j] * w[j]\n"
    "    for k < 8 [col]:\n"
    "      prefetch x next i lines 1\n"
    "      y[i, k] = x[i, k] + t[i]\n";

TEST(Verifier, EveryRuleRefuses) {
  ASSERT_EQ(verdict(kBase), "ok");
  struct Case {
    const char* from;
    const char* to;
    const char* message;
  };
  const Case cases[] = {
      {"for j < 8 [col] @vector:\n      t[i] += x[i, j] * w[j]",
       "for k < 8 [col] @vector:\n      t[i] += x[i, k] * w[k]", "names: k is used twice"},
      {"r: f32[4] reg", "x: f32[4] reg", "names: x is used twice"},
      {"L in 0..9", "N in 0..9", "names: N is used twice"},
      {"for j < 8 [col] @vector:\n      t[i] += x[i, j] * w[j]",
       "for t < 8 [col] @vector:\n      t[i] += x[i, t] * w[t]", "names: t is used twice"},
      {"L in 0..9", "L in 10..9", "symbols: L in 10..9: expected 0 <= min <= max"},
      {"L in 0..9", "L in -1..9", "symbols: L in -1..9: expected 0 <= min <= max"},
      {"L in 0..9", "L in 0..9 multiple 0", "symbols: L: multiple 0, expected at least 1"},
      {"L in 0..9", "L in 5..7 multiple 4", "symbols: L: no multiple of 4 in 5..7"},
      {"t[i] = 0.0", "w[i] = 0.0", "parameters: w is written, it is const"},
      {"y[i, k] = x", "x[i, k] = x", "parameters: x is written, it is in"},
      {"y[i, k] = x", "t[i] = x", "parameters: output y is never written"},
      {"+ t[i]", "+ r[0]", "parameters: r is read and never written"},
      {"r: f32[4] reg", "r: f32[N] reg", "buffer r: sizes: N: a reg buffer has constant sizes"},
      {"r: f32[4] reg", "r: f32[-4] reg", "buffer r: sizes: -4 is negative"},
      {"r: f32[4] reg", "r: f32[_] reg", "buffer r: sizes: only parameters leave sizes out"},
      {"t: f32[N] heap", "t: f32[N] heap strides [1]", "buffer t: sizes: only parameters have strides"},
      {"x: f32[N, 8] in", "x: f32[N, 8] in strides [8]", "buffer x: sizes: 1 strides, expected 2"},
      {"x: f32[N, 8] in", "x: f32[N, 8] in strides [-8, 1]", "buffer x: sizes: stride -8 is negative"},
      {"x: f32[N, 8] in", "x: f32[N, 8] in pad [0, 1] strides [9, 1]",
       "buffer x: sizes: strides with a layout or padding"},
      {"y: f32[N, 8] out", "y: f32[N, 8] out strides [0, 1]", "buffer y: sizes: stride 0 in an output"},
      {"t: f32[N] heap", "t: f32[2.0] heap", "buffer t: types: index 2.0 is f32, expected i64"},
      {"w: f32[8] const", "w: f32[8] const pad [1, 2]", "padding: buffer w has 2 amounts, expected 1"},
      {"w: f32[8] const", "w: f32[8] const pad [-1]", "padding: buffer w: -1 is negative"},
      {"w: f32[8] const", "w: f32[8] const layout [1]", "layout: buffer w has no dimension 1"},
      {"w: f32[8] const", "w: f32[8] const layout [0, 0]", "layout: buffer w: dimension 0 appears twice"},
      {"w: f32[8] const", "w: f32[8] const layout [0/0, 0%0]",
       "layout: buffer w: tile 0 of dimension 0, expected at least 1"},
      {"w: f32[8] const", "w: f32[8] const layout [0/4]",
       "layout: buffer w: expected dimension 0 whole, or above and inside one tile"},
      {"w: f32[8] const", "w: f32[8] const layout [0/4, 0%8]",
       "layout: buffer w: expected dimension 0 whole, or above and inside one tile"},
      {"w: f32[8] const", "w: f32[8] const, v: f32[4, 8] const layout [0:7, 1]",
       "layout: buffer v: step 7, expected at least the size of what is inside, 8"},
      {"w: f32[8] const", "w: f32[8] const, v: f32[4, 8] const layout [0:14, 1:2]",
       "layout: buffer v: step 14, expected at least the size of what is inside, 15"},
      {"x: f32[N, 8] in", "x: f32[N, 8] in layout [0:8, 1]", "layout: buffer x: steps, expected a constant"},
      {"x: f32[N, 8] in", "x: f32[N, 8] in layout [1]",
       "layout: buffer x: expected dimension 0 whole, or above and inside one tile"},
      {"for k < 8", "for k < 8.0", "scope k: types: index 8.0 is f32, expected i64"},
      {"for i < N [row]", "for i < N [row] @vector", "ok"},
      {"@vector", "@tensor(nothing)", "scopes: j: no intrinsic is called nothing"},
      {"x[i, k] + t[i]", "x[i] + t[i]", "statement on y: ranks: x[i] has 1 indices, expected 2"},
      {"y[i, k] = x", "y[i] = x", "ranks: y has 1 indices, expected 2"},
      {"y[i, k] = x", "y[i, x[i, k]] = x", "statement on y: types: index x[i, k] is f32, expected i64"},
      {"x[i, k] + t[i]", "x[i, k] + 1", "statement on y: types: x[i, k] + 1: expected operands of one type"},
      {"x[i, k] + t[i]", "f64(x[i, k])", "types: y is f32, its value is f64"},
      {"x[i, k] + t[i]", "exp(i)", "statement on y: types: exp(i): expected an operand of float type"},
      {"x[i, k] + t[i]", "select(x[i, k], 1.0, 2.0)",
       "statement on y: types: select(x[i, k], 1.0, 2.0): expected a condition of type b8"},
      {"x[i, k] + t[i]", "x[i, k // 0]", "statement on y: types: k // 0: expected a positive divisor"},
      {"x[i, k] + t[i]", "x[i, k % L]", "statement on y: types: k % L: expected a positive divisor"},
      {"x[i, k] + t[i]", "f32(x[i, k] / 2.0 // 2.0)",
       "statement on y: types: x[i, k] / 2.0 // 2.0: expected operands of type i64"},
      {"x[i, k] + t[i]", "f32(3 / k)", "statement on y: types: 3 / k: expected operands of one float type"},
      {"x[i, k] + t[i]", "f32(not k)", "statement on y: types: not k: expected operands of type b8"},
      {"x[i, k] + t[i]", "f32(x[i, k] < k)", "statement on y: types: x[i, k] < k: expected operands of one type"},
      {"x[i, k] + t[i]", "x[i, k + 1]",
       "statement on y: bounds: buffer x: dimension 1: index k + 1 reaches 8 at k = 7, the size is 8"},
      {"x[i, k] + t[i]", "x[i + 1, k]",
       "statement on y: bounds: buffer x: dimension 0: index i + 1 reaches 1 at N = 1, i = 0, the size is 1"},
      {"x[i, k] + t[i]", "x[i, k - 1]",
       "statement on y: bounds: buffer x: dimension 1: index k - 1 reaches -1 at k = 0, the size is 8"},
      {"for k < 8", "for k < 9",
       "statement on y: bounds: buffer x: dimension 1: index k reaches 8 at k = 8, the size is 8"},
      {"y[i, k] = x", "y[i, 2*k] = x", "bounds: buffer y: dimension 1: index 2*k reaches 14 at k = 7, the size is 8"},
      {"x[i, k] + t[i]", "select(x[i, k + 1] < 0.0, 1.0, 2.0)",
       "statement on y: bounds: buffer x: dimension 1: index k + 1 reaches 8 at k = 7, the size is 8"},
      {"prefetch x next i", "prefetch x next j", "prefetch: x: j is not an enclosing iterator"},
      {"prefetch x next i", "prefetch x ahead -1 next i", "prefetch: x: a negative amount"},
  };
  for (const Case& c : cases) {
    std::string text = kBase;
    ASSERT_NE(text.find(c.from), std::string::npos) << c.from;
    text.replace(text.find(c.from), std::string(c.from).size(), c.to);
    EXPECT_EQ(verdict(text), c.message) << c.from << " -> " << c.to;
  }
}

// A tail of one element at most: its iterator is always 0, and canonical text leaves it out of the index.
TEST(Verifier, ProvesTailsOfOneElement) {
  const auto proven = [](const std::string& extent, const std::string& tail, const std::string& index) {
    Result<Kernel> k = parse_kernel("kernel t(x: f32[1031] in, y: f32[1031] out)\n  for p < 3:\n    for j < " + extent +
                                    tail + ":\n      y[" + index + "] = x[" + index + "]\n");
    EXPECT_TRUE(k.ok()) << k.status().to_string();
    const Status status = verify(*k, Bounds::proven);
    return status.ok() ? "ok" : status.message();
  };
  const std::string keys = "min(512, 1031 - 512*p)";
  EXPECT_EQ(proven(keys, " % 2", "512*p + 2*(" + keys + " // 2)"), "ok");
  EXPECT_EQ(proven(keys, " // 512", "512*p + " + keys + " - 1"), "ok");
  EXPECT_NE(proven(keys, " % 2", "512*p + 2*(" + keys + " // 2) + 1").find("bounds: buffer"), std::string::npos);
  EXPECT_NE(proven(keys, " % 3", "512*p + 3*(" + keys + " // 3) + 1").find("bounds: buffer"), std::string::npos);
  EXPECT_NE(proven(keys, " % 2", "512*p + " + keys).find("bounds: buffer"), std::string::npos);
}

// A scope that runs once says where what is in it begins, with its extent as a ceildiv and as that is simplified.
TEST(Verifier, ProvesWhereWhatRunsOnceBegins) {
  const auto proven = [](const std::string& extent, const std::string& index) {
    Result<Kernel> k =
        parse_kernel("kernel t(x: f32[N] in, y: f32[N] out) where N in 1..64, M in 1..64\n  for i < M:\n" +
                     ("    for p < min(1, " + extent) + "):\n      y[" + index + "] = x[" + index + "]\n");
    EXPECT_TRUE(k.ok()) << k.status().to_string();
    const Status status = verify(*k, Bounds::proven);
    return status.ok() ? "ok" : status.message();
  };
  for (const char* extent : {"ceildiv(N - M + i + 1, 32)", "(N - M + i) // 32 + 1", "min(2, (N - M + i) // 32 + 1)"}) {
    EXPECT_EQ(proven(extent, "min(3, N - M + i)"), "ok") << extent;
    EXPECT_EQ(proven(extent, "N - M + i"), "ok") << extent;
    EXPECT_NE(proven(extent, "min(3, N - M + i - 1)").find("bounds: buffer"), std::string::npos) << extent;
  }
  EXPECT_NE(proven("(N - M + i) // 32 + 2", "min(3, N - M + i)").find("bounds: buffer"), std::string::npos);
  // As many blocks of 16 as come after the first one, or the first two.
  for (const char* extent : {"ceildiv(N - M + i + 1, 16) - 1", "(N - M + i) // 16"}) {
    EXPECT_EQ(proven(extent, "min(3, N - M + i - 16) + 2"), "ok") << extent;
    EXPECT_EQ(proven(extent, "N - M + i - 16"), "ok") << extent;
    EXPECT_NE(proven(extent, "min(3, N - M + i - 17)").find("bounds: buffer"), std::string::npos) << extent;
  }
  EXPECT_EQ(proven("(N - M + i) // 16 - 1", "N - M + i - 32"), "ok");
  EXPECT_NE(proven("(N - M + i) // 16 - 1", "N - M + i - 33").find("bounds: buffer"), std::string::npos);
  EXPECT_NE(proven("(N - M + i) // M + 1", "min(3, N - M + i)").find("bounds: buffer"), std::string::npos);
}

// So does one that may run more often, of what its iterator is not in.
TEST(Verifier, ProvesWhereWhatDoesNotFollowAScopeBegins) {
  const auto proven = [](const std::string& index) {
    Result<Kernel> k = parse_kernel(
        "kernel t(x: f32[N] in, y: f32[N] out) where N in 0..64, M in 0..64\n  for i < M:\n"
        "    for p < (N - M + i) // 16 - 1:\n      y[" +
        index + "] = x[" + index + "]\n");
    EXPECT_TRUE(k.ok()) << k.status().to_string();
    const Status status = verify(*k, Bounds::proven);
    return status.ok() ? "ok" : status.message();
  };
  EXPECT_EQ(proven("N - M + i"), "ok");
  EXPECT_EQ(proven("N - M + i - 32"), "ok");
  EXPECT_NE(proven("N - M + i - 33").find("bounds: buffer"), std::string::npos);
}

TEST(Verifier, WhatAThreadHasOfItsOwnStaysInIt) {
  const std::string text =
      "kernel t(x: f32[8] in, y: f32[8] out)\n"
      "  t: f32[8] stack\n"
      "  for i < 8:\n    t[i] = x[i]\n"
      "  for j < 8:\n    y[j] = t[j]\n";
  const auto marked = [&](const std::string& scope) {
    std::string out = text;
    return out.replace(out.find(scope), scope.size(), scope.substr(0, scope.size() - 1) + " @parallel:");
  };
  EXPECT_EQ(verdict(text), "ok");
  EXPECT_EQ(verdict(marked("for i < 8:")),
            "threads: t, a stack buffer, is read outside of @parallel scopes, but written inside one");
  EXPECT_EQ(verdict(marked("for j < 8:")),
            "threads: t, a stack buffer, is read in @parallel scope j, but not written there");
  EXPECT_EQ(verdict("kernel t(x: f32[8] in, y: f32[8] out)\n  t: f32[1] stack\n"
                    "  for i < 8 @parallel:\n    t[0] = x[i]\n    y[i] = t[0]\n"),
            "ok");
}

// What the text form cannot say.
TEST(Verifier, RefusesWhatDoesNotPrint) {
  const auto broken = [](const std::function<void(Kernel&)>& edit) {
    Kernel k = *parse_kernel(kBase);
    edit(k);
    return verify(k).message();
  };
  EXPECT_EQ(broken([](Kernel& k) { k.name = "a b"; }), "names: 'a b' cannot name a kernel");
  EXPECT_EQ(broken([](Kernel& k) { k.buffers[0].name = "inf"; }), "names: 'inf' cannot name a buffer");
  EXPECT_EQ(broken([](Kernel& k) {
              k.buffers[3].place = Place::out;
              std::swap(k.buffers[3], k.buffers[4]);
            }),
            "parameters: t comes after a temporary");
  EXPECT_EQ(broken([](Kernel& k) { k.body[0].body[0].value = Expr(); }),
            "statement on t: expressions: a part is missing");
  EXPECT_EQ(broken([](Kernel& k) {
              k.body[0].mark = Mark::grid;
              k.body[0].body[0].value = make_typed(Op::k_select, DType::f32, {Expr(), Expr(), Expr()});
            }),
            "statement on t: expressions: a part is missing");
  EXPECT_EQ(broken([](Kernel& k) { k.body[0].body[0].target = "q"; }), "names: buffer q is not declared");
  EXPECT_EQ(broken([](Kernel& k) { k.body[0].body[0].value = load("q", {}, DType::f32); }),
            "statement on t: names: buffer q is not declared");
  EXPECT_EQ(broken([](Kernel& k) { k.body[0].body[0].index[0] = symbol("Q"); }),
            "statement on t: names: symbol Q is not declared");
  EXPECT_EQ(broken([](Kernel& k) { k.body[0].body[0].index[0] = iter("k"); }),
            "statement on t: names: iterator k is used outside its scope");
  EXPECT_EQ(broken([](Kernel& k) { k.body[0].body[0].value = make(Op::k_exp, {}); }),
            "statement on t: expressions: exp has 0 arguments, expected 1");
  EXPECT_EQ(broken([](Kernel& k) { k.body[0].body[0].value = const_float(0, DType::i32); }),
            "statement on t: types: 0.0:i32: expected a float type");
  EXPECT_EQ(broken([](Kernel& k) { k.body[0].intrinsic = "mma"; }),
            "scopes: i: @tensor and only it names an intrinsic");
  EXPECT_EQ(broken([](Kernel& k) {
              k.symbols[0].max = 4096;
              k.body[0].mark = Mark::vector;
            }),
            "scopes: i: extent N of a vector scope may exceed 1024");
  EXPECT_EQ(broken([](Kernel& k) { k.buffers[3].dims[0] = load("w", {Expr(0)}, DType::f32); }),
            "buffer t: types: index w[0] is f32, expected i64");
  EXPECT_EQ(broken([](Kernel& k) {
              Expr e = const_float(0);
              for (int i = 0; i < 500; ++i) e = e + const_float(0);
              k.body[0].body[0].value = e;
            }),
            "statement on t: expressions: deeper than 400");
}

}  // namespace
}  // namespace lathe::ir
