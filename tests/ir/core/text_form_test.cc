// The text form: the examples of docs/ir.md print as they parse, structure survives, errors say where.
#include "ir/core/text_form.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/common/kernel_builder.h"

namespace lathe::ir {
namespace {

void expect_identity(const std::string& text) {
  Result<Kernel> first = parse_kernel(text);
  ASSERT_TRUE(first.ok()) << first.status().to_string() << "\n" << text;
  EXPECT_EQ(print(*first), text);
}

// The expression of a statement among loops a, b and c, with a symbol N and operands x and y.
Result<Expr> parse_value(const std::string& text) {
  LATHE_ASSIGN(const Kernel kernel,
               parse_kernel("kernel t(x: f32[N] in, y: f32[N] in, z: i8[N] out) where N in 1..9\n"
                            "  for a < N:\n    for b < N:\n      for c < N:\n        for d < N:\n          z[a] = i8(" +
                            text + ")\n"));
  const Stmt* s = &kernel.body[0];
  while (s->kind == Stmt::Kind::scope) s = &s->body[0];
  return s->value->args.at(0);  // of the cast
}

TEST(TextForm, NaiveSoftmax) {
  expect_identity(
      "kernel softmax(s: f32[B, N] in, d: f32[B, N] out) family row where B in 0..65536, N in 1..32768 multiple 4\n"
      "  m: f32[B] heap\n"
      "  a: f32[B] heap\n"
      "  for b < B [row]:\n"
      "    m[b] = -inf\n"
      "    for n < N [col]:\n"
      "      m[b] fmax= s[b, n]\n"
      "    a[b] = 0.0\n"
      "    for n1 < N [col]:\n"
      "      d[b, n1] = exp(s[b, n1] - m[b])\n"
      "      a[b] += d[b, n1]\n"
      "    for n2 < N [col]:\n"
      "      d[b, n2] = d[b, n2] / a[b]\n");
}

TEST(TextForm, ScheduledMatmul) {
  expect_identity(
      "kernel gate(x: f32[M, 896] in, w: f32[4864, 896] const layout [0/32, 1:96, 0%32], "
      "b: f32[4864] const pad [32], y: f32[M, 4864] out strides [lda, 1]) family matmul where M in 1..4096, "
      "lda in 4864..9000 numeric contract\n"
      "  c: f32[8, 32] reg\n"
      "  for n0 < 152 [n] @parallel:\n"
      "    for m0 < ceildiv(M, 8) [m]:\n"
      "      for m1 < min(8, M - 8*m0) [m] @unroll:\n"
      "        for n1 < 2 [n] @unroll:\n"
      "          for n2 < 16 [n] @vector:\n"
      "            c[m1, 16*n1 + n2] = 0.0\n"
      "      for k < 896 [k] @tensor(mma):\n"
      "        prefetch w ahead 8192 lines 8\n"
      "        prefetch w next m0 lines 4 to l2\n"
      "        for m1b < min(8, M - 8*m0) [m] @unroll:\n"
      "          for n1b < 2 [n] @unroll:\n"
      "            for n2b < 16 [n] @vector:\n"
      "              c[m1b, 16*n1b + n2b] += x[8*m0 + m1b, k] * w[32*n0 + 16*n1b + n2b, k]\n"
      "      for m1c < min(8, M - 8*m0) [m] @unroll:\n"
      "        for n1c < 2 [n] @unroll:\n"
      "          for n2c < 16 [n] @vector:\n"
      "            y[8*m0 + m1c, 32*n0 + 16*n1c + n2c] = 0.5 * (c[m1c, 16*n1c + n2c] + b[32*n0 + 16*n1c + n2c]) * "
      "(1.0 + erf(c[m1c, 16*n1c + n2c] * 0.70710677))\n");
}

TEST(TextForm, Leaf) {
  const std::string text =
      "kernel leaf(p0: f32[_, _] in strides [?, 1], p1: f32[_, _] out strides [?, 1]) family leaf where e0 in "
      "0..9223372036854775807, e1 in 0..9223372036854775807\n"
      "  r0: f32[] reg\n"
      "  r1: f32[2, 32] reg\n"
      "  for i0 < e0:\n"
      "    r0[] = -inf\n"
      "    prefetch p1 lines 8\n"
      "    for i1 < ceildiv(e1, 16):\n"
      "      for i2 < min(16, e1 - 16*i1) @vector:\n"
      "        r0[] fmax= p0[i0, 16*i1 + i2]\n"
      "        p1[i0, 16*i1 + i2] = exp(p0[i0, 16*i1 + i2] - r0[])\n";
  expect_identity(text);
  Result<Kernel> k = parse_kernel(text);
  ASSERT_TRUE(k.ok());
  EXPECT_FALSE(k->buffers[0].dims[0]);
  EXPECT_FALSE(k->buffers[0].strides[0]);
  EXPECT_TRUE(is_const_int(k->buffers[0].strides[1], 1));
}

TEST(TextForm, ExpressionsKeepTheirTree) {
  for (const char* text : {"a - (b - c)",
                           "a - b - c",
                           "a * (b + c)",
                           "-a * b",
                           "-(a * b)",
                           "--a",
                           "-(5)",
                           "-(-5)",
                           "a + -5",
                           "a - -5",
                           "1 - (2 - 3)",
                           "-9223372036854775808",
                           "not a < b",
                           "(not a) < b",
                           "a and not b or c",
                           "a < b and c <= d",
                           "min(a, max(b, 3))",
                           "N // 16",
                           "N % 16 + ceildiv(N, 3)",
                           "select(a == b, x[a], -inf)",
                           "f16(x[a] * 2.0)",
                           "i32(a)",
                           "8:i32",
                           "1.5:f64",
                           "-inf:f16",
                           "nan",
                           "1e-05",
                           "0.70710677",
                           "3.4028235e+38",
                           "1e-45",
                           "x[y[a, b], 3*c]",
                           "x[]",
                           "true",
                           "a // (b // 2)",
                           "a*(b*c)",
                           "fma(x[], 2.0, 1.0)",
                           "(a + b) % 4",
                           "sigmoid(-x[a])",
                           "fmax(x[], abs(x[a]))"}) {
    Result<Expr> e = parse_value(text);
    ASSERT_TRUE(e.ok()) << text << ": " << e.status().to_string();
    const std::string canonical = print(*e);
    Result<Expr> again = parse_value(canonical);
    ASSERT_TRUE(again.ok()) << canonical << ": " << again.status().to_string();
    EXPECT_TRUE(equal(*e, *again)) << text << " -> " << canonical << " -> " << print(*again);
    // As written, but for blanks and for brackets that say nothing.
    auto dense = [](std::string t) {
      std::erase(t, ' ');
      return t;
    };
    EXPECT_EQ(dense(canonical), text[0] == '(' ? dense(canonical) : dense(text));
  }
}

TEST(TextForm, ConstantsTakeTheTypeOfTheirContext) {
  Result<Kernel> k =
      parse_kernel("kernel t(x: f64[4] in, y: f64[4] out)\n  for i < 4:\n    y[i] = 0.1\n    y[i] = 0.1 * x[i]\n");
  ASSERT_TRUE(k.ok()) << k.status().to_string();
  EXPECT_EQ(k->body[0].body[0].value->type, DType::f64);
  EXPECT_EQ(k->body[0].body[1].value->args[0]->type, DType::f64);
  Result<Kernel> again = parse_kernel(print(*k));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(print(*again), print(*k));
}

TEST(TextForm, ErrorsSayWhere) {
  struct Case {
    const char* text;
    const char* message;
  };
  const std::string head = "kernel t(x: f32[N] in, y: f32[N] out) where N in 1..8\n";
  const Case cases[] = {
      {"  for i N:\n", "line 2, column 9: expected '<', found 'N'"},
      {"  for i < N\n", "line 2, column 12: expected ':', found the end of the text"},
      {"  for i < N:\n    y[i] = x[j]\n",
       "line 3, column 14: expected a symbol or an enclosing iterator, 'j' is neither"},
      {"  for i < N:\n   y[i] = x[i]\n", "line 3, column 4: expected an indentation of 4, found 3"},
      {"  z[0] = 1.0\n", "line 2, column 3: expected a buffer, 'z' is not declared"},
      {"  y[0] = z[0]\n", "line 2, column 10: expected a buffer before '[', 'z' is not declared"},
      {"  y[0] - 1.0\n", "line 2, column 8: expected =, +=, *=, max=, min= or fmax=, found '-'"},
      {"  y[0] = exp(x[0], x[1])\n", "line 2, column 10: exp takes 1 argument, found 2"},
      {"  y[9223372036854775808] = 1.0\n", "line 2, column 5: the integer is too large"},
      {"  y[99999999999999999999] = 1.0\n", "line 2, column 5: the integer is too large"},
      {"  y[0] = 1e99\n", "line 2, column 10: the constant is out of range of f32"},
      {"  y[0] = x[0] < x[1] < x[2]\n", "line 2, column 22: expected no second comparison (write 'and'), found '<'"},
      {"\ty[0] = 1.0\n", "line 2, column 1: expected spaces, found a tab"},
      {"  z: f32[K] heap\n", "line 2, column 10: expected a symbol, 'K' is not declared after 'where'"},
      {"  z: f33[N] heap\n", "line 2, column 6: expected a dtype, found 'f33'"},
      {"  z: f32[N] in\n", "line 2, column 13: expected heap, stack, reg or shared, found 'in'"},
      {"  y[0] = x\n", "line 2, column 10: expected '[' after buffer x"},
      {"  y[0] = 1.0 2\n", "line 2, column 14: expected the end of the line, found '2'"},
      {"  y[0] = \x80\n", "line 2, column 10: unexpected byte 128"},
      {"  for inf < 3:\n", "line 2, column 7: expected an iterator name, 'inf' is reserved"},
      {"  for as < 3:\n", "line 2, column 7: expected an iterator name, 'as' is reserved"},
  };
  for (const Case& c : cases) {
    Result<Kernel> k = parse_kernel(head + c.text);
    ASSERT_FALSE(k.ok()) << c.text;
    EXPECT_EQ(k.status().message(), c.message) << c.text;
  }
}

TEST(TextForm, DepthIsLimited) {
  std::string nested = "a", chain = "a", minus = "a";
  for (int i = 0; i < 100000; ++i) {
    nested = nested.size() < 1000 ? "(" + nested : nested;
    chain += " + a";
    minus = minus.size() < 5000 ? "-" + minus : minus;
  }
  EXPECT_FALSE(parse_value(std::string(100000, '(') + "a").ok());
  EXPECT_FALSE(parse_value(nested).ok());
  EXPECT_FALSE(parse_value(chain).ok());
  EXPECT_FALSE(parse_value(minus).ok());
  std::string scopes = "kernel t(y: f32[] out)\n";
  for (int i = 1; i < 2000; ++i) scopes += std::string(2 * i, ' ') + "for i" + std::to_string(i) + " < 2:\n";
  EXPECT_FALSE(parse_kernel(scopes).ok());
}

TEST(Builder, ReadsLikeTheNest) {
  Builder b("rowsum", "row");
  const Expr B = b.sym("B", 1, 4096);
  const Expr N = b.sym("N", 1, 4096, 4);
  const BufferRef s = b.in("s", DType::f32, {B, N});
  const BufferRef t = b.heap("t", DType::f32, {B});
  const BufferRef d = b.out("d", DType::f32, {B});
  b.loop("b", B, "row", [&](const Expr& i) {
    b.set(t(i), const_float(0));
    b.loop("n", N, "col", [&](const Expr& n) { b.add(t(i), math::exp(s(i, n) - const_float(0.1))); });
    b.set(d(i), t(i) * const_float(2));
  });
  EXPECT_EQ(print(b.build()),
            "kernel rowsum(s: f32[B, N] in, d: f32[B] out) family row where B in 1..4096, N in 1..4096 multiple 4\n"
            "  t: f32[B] heap\n"
            "  for b < B [row]:\n"
            "    t[b] = 0.0\n"
            "    for n < N [col]:\n"
            "      t[b] += exp(s[b, n] - 0.1)\n"
            "    d[b] = t[b] * 2.0\n");
}

}  // namespace
}  // namespace lathe::ir
