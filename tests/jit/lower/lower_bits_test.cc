// Arithmetic of i32 in leaves, and what loops need not repeat: against the interpreter, on every level.
#include <cmath>

#include "ir/meaning/interpreter.h"
#include "tests/jit/lower/leaf_case.h"

namespace lathe::jit {
namespace {

// Runs the leaf with bytes p0, scales p1 (f16) and results p2 of f32, all compact, by the portable executor and by
// generated code.
void expect_interpreted(const std::string& text, std::vector<int64_t> bytes_dims, int64_t scales, int64_t results) {
  const auto kernel = ir::parse_kernel(text);
  ASSERT_TRUE(kernel.ok()) << kernel.status().to_string() << text;
  int64_t bytes = 1;
  for (const int64_t d : bytes_dims) bytes *= d;
  std::mt19937 random(3);
  std::vector<uint8_t> q(static_cast<size_t>(bytes));
  std::vector<uint16_t> d(static_cast<size_t>(scales));
  for (uint8_t& b : q) b = static_cast<uint8_t>(random());
  for (uint16_t& h : d) h = ir::f32_to_f16(static_cast<float>(random() % 1000) / 64 - 7);
  std::map<std::string, ir::Tensor> tensors;
  tensors["p0"] = {bytes_dims, {q.begin(), q.end()}};
  tensors["p1"] = {{scales}, {}};
  for (const uint16_t h : d) tensors["p1"].data.push_back(ir::f16_to_f32(h));
  tensors["p2"] = {{results}, std::vector<double>(static_cast<size_t>(results), 0)};
  ir::Kernel open = *kernel;
  for (ir::Buffer& b : open.buffers) {
    b.strides.clear();
    if (tensors.count(b.name) == 0) continue;
    for (size_t i = 0; i < b.dims.size(); ++i) b.dims[i] = ir::Expr(tensors[b.name].dims[i]);
  }
  const ir::Status ran = ir::interpret(open, {{"e0", 5}}, tensors, {.arithmetic = ir::Arithmetic::native});
  ASSERT_TRUE(ran.ok()) << ran.to_string() << text;
  for (const ir::Target& target : test_targets()) {
    const auto p = lower_leaf(*kernel, target);
    ASSERT_TRUE(p.ok()) << p.status().to_string() << text;
    std::vector<float> out(static_cast<size_t>(results), 0), code_out = out;
    ir::LeafArgs args{};
    args.op[0].ptr = reinterpret_cast<char*>(q.data());
    args.op[1].ptr = reinterpret_cast<char*>(d.data());
    args.op[2].ptr = reinterpret_cast<char*>(out.data());
    int64_t stride = 1;
    for (size_t i = bytes_dims.size(); i-- > 0; stride *= bytes_dims[i]) args.op[0].stride[i] = stride;
    args.extent[0] = 5;
    execute_portable(*p, args);
    for (int64_t i = 0; i < results; ++i)
      ASSERT_EQ(out[static_cast<size_t>(i)], static_cast<float>(tensors["p2"].data[static_cast<size_t>(i)]))
          << i << " at " << ir::isa_name(target.level) << "\n"
          << text << to_text(*p);
    args.op[2].ptr = reinterpret_cast<char*>(code_out.data());
    if (!x64_test::run_generated(*p, args)) continue;
    ASSERT_EQ(out, code_out) << ir::isa_name(target.level) << "\n" << to_text(*p);
  }
}

std::string over_columns(const std::string& value) {
  return "kernel leaf(p0: u8[_] in strides [1], p1: f16[_] in strides [1], p2: f32[_] out strides [1]) family leaf "
         "where e0 in 0..9223372036854775807\n  for i0 < 3 @unroll:\n    for i1 < 16 @vector:\n      p2[16*i0 + i1] "
         "= " +
         value + "\n";
}

TEST(LowerBits, EveryOperatorOfIntegers) {
  for (const char* value :
       {"f32(i32(p0[16*i0 + i1]) >> 4 & 15:i32)", "f32((i32(p0[16*i0 + i1]) & 15:i32) - 8:i32)",
        "f32(i32(p0[16*i0 + i1]) << 3 | i32(p0[16*i0 + i1]) >> 5)", "f32(-i32(p0[16*i0 + i1]) >> 2)",
        "f32(i32(p0[16*i0 + i1]) * -70000:i32)", "f32((i32(p0[16*i0 + i1]) << 24) >> 28)",
        "f32(i32(p0[16*i0 + i1]) << 0 | 256:i32)", "f32(i32(p0[i1 + 16*i0]) + -100:i32 << 31)",
        // a count and a choice that a copy of the unrolled scope makes a number
        "f32(i32(p0[16*i0 + i1]) >> 2*i0 & 3:i32)",
        "f32(select(i0 < 1, i32(p0[16*i0 + i1]) & 63:i32, i32(p0[i1]) >> 6 << 4))",
        "select(i0 == 1, f32(p1[16*i0 + i1]), 2.0)", "select(not i0 <= 1, f32(p1[16*i0 + i1]), 2.0)"})
    ASSERT_NO_FATAL_FAILURE(expect_interpreted(over_columns(value), {48}, 48, 48));
}

TEST(LowerBits, ACountThatNobodyKnowsIsNamed) {
  const auto kernel = ir::parse_kernel(
      "kernel leaf(p0: u8[_] in strides [1], p1: f32[_] out strides [1]) family leaf where e0 in "
      "0..9223372036854775807\n  for i0 < e0:\n    p1[i0] = f32(i32(p0[i0]) >> i0 % 8)\n");
  ASSERT_TRUE(kernel.ok()) << kernel.status().to_string();
  EXPECT_NE(
      lower_leaf(*kernel, test_target(ir::IsaLevel::avx2)).status().to_string().find("a count that is no constant"),
      std::string::npos);
}

// Sums of e0 weights with a scale that no step changes.
std::string sums_with_a_scale() {
  return "kernel leaf(p0: u8[_, _] in strides [32, 1], p1: f16[_] in strides [1], p2: f32[_] out strides [1]) family "
         "leaf where e0 in 0..9223372036854775807\n"
         "  r0: f32[32] reg\n"
         "  for i0 < 2 @unroll:\n    for i1 < 16 @vector:\n      r0[16*i0 + i1] = 0.0\n"
         "  for i2 < e0:\n    for i3 < 2 @unroll:\n      for i4 < 16 @vector:\n"
         "        r0[16*i3 + i4] += 0.5 * (f32(p1[16*i3 + i4]) * f32((i32(p0[i2, 16*i3 + i4]) & 15:i32) - 8:i32))\n"
         "  for i5 < 2 @unroll:\n    for i6 < 16 @vector:\n      p2[16*i5 + i6] = r0[16*i5 + i6]\n";
}

TEST(LowerBits, WhatNoStepChangesIsComputedBeforeTheLoop) {
  const std::string text = sums_with_a_scale();
  ASSERT_NO_FATAL_FAILURE(expect_interpreted(text, {5, 32}, 32, 32));
  const auto p = lower_leaf(*ir::parse_kernel(text), test_target(ir::IsaLevel::avx512));
  ASSERT_TRUE(p.ok()) << p.status().to_string();
  const std::string listing = to_text(*p);
  const size_t loop = listing.find("loop ");
  ASSERT_NE(loop, std::string::npos) << listing;
  EXPECT_LT(listing.find("load.f16"), loop) << listing;
  EXPECT_EQ(listing.find("load.f16", loop), std::string::npos) << listing;
}

// What is computed before a loop is not where the loop has no steps: its operands may have no elements then.
TEST(LowerBits, ALoopWithoutStepsReadsNothing) {
  for (const ir::Target& target : test_targets()) {
    const auto p = lower_leaf(*ir::parse_kernel(sums_with_a_scale()), target);
    ASSERT_TRUE(p.ok()) << p.status().to_string();
    std::vector<float> out(32, 7);
    ir::LeafArgs args{};
    args.op[0].stride[0] = 32, args.op[0].stride[1] = 1;
    args.op[2].ptr = reinterpret_cast<char*>(out.data());
    execute_portable(*p, args);
    EXPECT_EQ(out, std::vector<float>(32, 0)) << to_text(*p);
    out.assign(32, 7);
    if (!x64_test::run_generated(*p, args)) continue;
    EXPECT_EQ(out, std::vector<float>(32, 0)) << to_text(*p);
  }
}

// A loop runs ahead in the operand that it names, from where it reads; nothing else changes.
TEST(LowerBits, ALoopPrefetchesAheadOfWhatItReads) {
  const std::string head =
      "kernel leaf(p0: u8[_, _] in strides [32, 1], p1: f16[_] in strides [1], p2: f32[_] out strides [1]) family leaf "
      "where e0 in 0..9223372036854775807\n  for i0 < e0:\n";
  const std::string rest = "    for i1 < 16 @vector:\n      p2[i1] = f32(p0[i0, i1]) * f32(p1[i1])\n";
  ASSERT_NO_FATAL_FAILURE(expect_interpreted(head + "    prefetch p0 ahead 256 lines 2\n" + rest, {5, 32}, 32, 16));
  const auto p = lower_leaf(*ir::parse_kernel(head + "    prefetch p0 ahead 256 lines 2\n" + rest),
                            test_target(ir::IsaLevel::avx512));
  ASSERT_TRUE(p.ok()) << p.status().to_string();
  const std::string listing = to_text(*p);
  size_t lines = 0;
  for (size_t at = listing.find("prefetch"); at != std::string::npos; at = listing.find("prefetch", at + 1)) ++lines;
  EXPECT_EQ(lines, 2u) << listing;
  EXPECT_NE(listing.find("+ 320"), std::string::npos) << listing;
  const auto none = lower_leaf(*ir::parse_kernel(head + "    prefetch p2 ahead 256 lines 1\n" + rest),
                               test_target(ir::IsaLevel::avx512));
  EXPECT_NE(none.status().to_string().find("does not read it"), std::string::npos);
}

}  // namespace
}  // namespace lathe::jit
