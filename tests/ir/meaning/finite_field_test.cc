// The finite-field arithmetic as a witness: equal kernels give equal values, a dropped or doubled contribution does
// not.
#include "ir/meaning/finite_field.h"

#include <gtest/gtest.h>

#include "ir/core/text_form.h"
#include "ir/meaning/interpreter.h"

namespace lathe::ir {
namespace {

std::vector<double> field_run(const std::string& text, const std::map<std::string, Tensor>& inputs,
                              const std::string& out, Code want = Code::kOK) {
  const Result<Kernel> k = parse_kernel(text);
  EXPECT_TRUE(k.ok()) << k.status().to_string();
  if (!k.ok()) return {};
  std::map<std::string, Tensor> t = inputs;
  InterpreterOptions options;
  options.arithmetic = Arithmetic::finite_field;
  const Status s = interpret(*k, {{"N", 11}}, t, options);
  EXPECT_EQ(s.code(), want) << s.to_string();
  return t[out].data;
}
std::map<std::string, Tensor> row() {
  Tensor x{{11}, {}};
  for (int i = 0; i < 11; ++i) x.data.push_back(0.25 * i - 1);
  return {{"x", x}};
}
std::string sum(const std::string& body) {
  return "kernel t(x: f32[N] in, y: f32[] out) where N in 1..64\n  y[] = 0.0\n" + body;
}

TEST(FiniteField, ThePrimesAndTheGenerator) {
  for (const uint32_t m : {field::kP, field::kQ}) {
    for (uint32_t d = 2; uint64_t{d} * d <= m; ++d) ASSERT_NE(m % d, 0u);
  }
  EXPECT_EQ(field::kP, 2 * field::kQ + 1);
  EXPECT_EQ(field::pow_mod(field::kG, field::kQ, field::kP), 1u);
  EXPECT_NE(field::kG, 1u);
}

TEST(FiniteField, ConstantsKeepTheirAlgebra) {
  const auto value = [](double v) { return field::from_double(v); };
  const auto same = [](FieldValue a, FieldValue b) { return a.p == b.p && a.q == b.q; };
  EXPECT_TRUE(same(field::add(value(0.5), value(0.25)), value(0.75)));
  EXPECT_TRUE(same(field::mul(value(-1.5), value(3)), value(-4.5)));
  EXPECT_TRUE(same(field::div(value(3), value(8)), value(0.375)));
  EXPECT_TRUE(same(field::mul(field::div(value(7), value(3)), value(3)), value(7)));
  EXPECT_TRUE(same(field::from_int(-5), value(-5)));
}

TEST(FiniteField, CatchesDroppedAndDoubledTerms) {
  const auto right = field_run(sum("  for n < N:\n    y[] += x[n] * x[n]\n"), row(), "y");
  EXPECT_EQ(
      field_run(
          sum("  for n0 < ceildiv(N, 4):\n    for n1 < min(4, N - 4*n0):\n      y[] += x[4*n0 + n1] * x[4*n0 + n1]\n"),
          row(), "y"),
      right);
  EXPECT_EQ(field_run(sum("  for n < N:\n    y[] += x[N - 1 - n] * x[N - 1 - n]\n"), row(), "y"), right);
  EXPECT_NE(field_run(sum("  for n < N - 1:\n    y[] += x[n] * x[n]\n"), row(), "y"), right);
  EXPECT_NE(field_run(sum("  for n0 < ceildiv(N, 4):\n    for n1 < 4:\n      y[] += x[min(4*n0, N - 4) + n1] * "
                          "x[min(4*n0, N - 4) + n1]\n"),
                      row(), "y"),
            right);
  EXPECT_NE(field_run(sum("  for n < N:\n    y[] += x[n] * x[0]\n"), row(), "y"), right);
}

const char kHead[] =
    "kernel t(x: f32[N] in, y: f32[N] out) where N in 1..64\n  m: f32[] heap\n  a: f32[] heap\n  o: f32[] heap\n  m[] "
    "= -inf\n  a[] = 0.0\n";

TEST(FiniteField, RescaledSoftmaxEqualsThePlainOne) {
  const std::string tail = "  for n2 < N:\n    y[n2] = exp(x[n2] - m[]) / a[]\n";
  const std::string plain =
      std::string(kHead) + "  for n < N:\n    m[] fmax= x[n]\n  for n1 < N:\n    a[] += exp(x[n1] - m[])\n" + tail;
  const std::string online =
      std::string(kHead) +
      "  for n < N:\n    o[] = m[]\n    m[] fmax= x[n]\n    a[] = a[] * exp(o[] - m[]) + exp(x[n] - m[])\n" + tail;
  const auto want = field_run(plain, row(), "y");
  ASSERT_FALSE(std::isnan(want[0]));
  EXPECT_EQ(field_run(online, row(), "y"), want);
  std::string wrong = online;
  wrong.replace(wrong.find("exp(o[] - m[])"), 14, "exp(m[] - o[])");
  EXPECT_NE(field_run(wrong, row(), "y"), want);
}

TEST(FiniteField, OtherFunctionsAreFixedButArbitrary) {
  const std::string gelu =
      "kernel t(x: f32[N] in, y: f32[N] out) where N in 1..64\n  for n < N:\n    y[n] = 0.5 * x[n] * (1.0 + erf(x[n] * "
      "0.5))\n";
  const std::string same =
      "kernel t(x: f32[N] in, y: f32[N] out) where N in 1..64\n  for n < N:\n    y[n] = x[n] * 0.5 + erf(0.5 * x[n]) * "
      "x[n] * 0.5\n";
  EXPECT_EQ(field_run(gelu, row(), "y"), field_run(same, row(), "y"));
}

TEST(FiniteField, SaysWhatHasNoMeaning) {
  const std::string head = "kernel t(x: f32[N] in, y: f32[N] out) where N in 1..64\n  for n < N:\n    y[n] = ";
  field_run(head + "exp(exp(x[n]))\n", row(), "y", Code::kUNSUPPORTED);
  field_run(head + "select(x[n] < 0.0, 0.0, x[n])\n", row(), "y", Code::kUNSUPPORTED);
  field_run(head + "f32(i32(x[n]))\n", row(), "y", Code::kUNSUPPORTED);
}

}  // namespace
}  // namespace lathe::ir
