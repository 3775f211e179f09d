// Integers in device programs: what the emulator makes of them is what the interpreter does, and the real compiler
// takes them for every architecture.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gpu/emulated.h"
#include "tests/gpu/integers/integer_kernels.h"

namespace lathe::test {
namespace {

using ::testing::HasSubstr;

const std::vector<MatrixForm>& forms() {
  static const std::vector<MatrixForm> out = {
      {converting("f32", "i8", "i8(x[j])"), {{"N", 100000}}, 1},
      {converting("f32", "i8", "i8(x[j] * 0.5)"), {{"N", 100001}}},
      {converting("u8", "f32", "f32(x[j])"), {{"N", 100000}}, 1},
      {converting("i32", "bf16", "bf16(x[j])"), {{"N", 100000}}, 1},
      {converting("i32", "i8", "i8(x[j])"), {{"N", 100000}}, 1},
      {converting("b8", "i32", "i32(x[j])"), {{"N", 100000}}, 1},
      {converting("bf16", "b8", "b8(f32(x[j]))"), {{"N", 100000}}, 1},
      {kMasked, {{"M", 100}, {"N", 1000}}, 1},
      {kBits, {{"N", 100000}}, 1},
      {kArgmax, {{"B", 1000}, {"N", 1000}}, 1},
      {kSumOfI32, {{"B", 1000}, {"N", 5000}}, 1},
      {kCumsum, {{"B", 1000}, {"N", 1000}}},
      {kNested, {{"B", 1000}}},
      {top_k("8"), {{"B", 1000}, {"N", 1000}}, 1},
      {top_k("8", "bf16"), {{"B", 1000}, {"N", 128}}, 1},
      {moved("u8"), {{"M", 1000}, {"N", 1000}}},
      {moved("i64"), {{"M", 1000}, {"N", 1000}}, 1},
      {moved("b8"), {{"M", 4}, {"N", 1000}}},
  };
  return out;
}

TEST(IntegerCode, IsWhatTheInterpreterSays) {
  for (const MatrixForm& form : forms()) {
    const search::GeneralKernel general = search::general_kernel(kernel_of(form.text));
    const auto made = best_of(general, form.dims);
    ASSERT_TRUE(made.ok()) << made.status().to_string() << form.text;
    for (const int64_t n : {0, 1, 7, 33, 97}) {
      ir::SymbolValues dims = form.dims;
      for (auto& [name, size] : dims) size = name == "N" ? n : name == "B" ? 3 : 5;
      expect_as_interpreted(made->kernel, sizes_of(general, dims));
    }
  }
}

TEST(IntegerCode, ThreadsHaveRowsThatNothingElseFits) {
  const auto made = best_of(search::general_kernel(kernel_of(kNested)), {{"B", 1000}});
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ(made->schedule.recipe, "threads.1");
}

// Running sums in parts of as many threads and neighbours as knobs say; others make no code.
TEST(IntegerCode, RunningSumsAreReplayed) {
  const search::GeneralKernel general = search::general_kernel(kernel_of(kCumsum));
  for (const int64_t n : {7, 1000, 100000}) {
    const auto made = best_of(general, {{"B", 3}, {"N", n}});
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    search::Schedule schedule = made->schedule;
    EXPECT_EQ(schedule.recipe, "scan.1");
    const auto again = search::replay_on_device(general, schedule);
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_EQ(print(again->kernel), print(made->kernel));
    for (const auto& [knob, value] : {std::pair<const char*, int64_t>{"threads", 0}, {"threads", 257}, {"run", -1}}) {
      schedule = made->schedule;
      schedule.knobs[knob] = value;
      EXPECT_FALSE(search::replay_on_device(general, schedule).ok());
    }
    for (const int64_t length : {0, 1, 127, 129, 4095, 8193})
      expect_as_interpreted(made->kernel, sizes_of(general, {{"B", 2}, {"N", length}}));
  }
}

// A device program says what it does with them.
TEST(IntegerCode, AProgramOfIntegers) {
  const search::GeneralKernel general = search::general_kernel(kernel_of(kBits));
  const auto made = best_of(general, {{"N", 100000}});
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const auto program = jit::lower_device(search::cut_launches(made->kernel)->leaves[0]);
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  const std::string text = print(*program);
  EXPECT_THAT(text, HasSubstr("p0: u8 in"));
  EXPECT_THAT(text, HasSubstr("and_i32"));
  EXPECT_THAT(text, HasSubstr("shift_right_i32"));
  jit::DeviceProgram wrong = *program;
  wrong.params[0].type = ir::DType::f32;
  EXPECT_THAT(jit::verify(wrong).message(), HasSubstr("is f, expected i"));
  wrong = *program;
  wrong.params[0].type = ir::DType::i64;
  EXPECT_THAT(jit::verify(wrong).message(), HasSubstr("whose elements of 64 bits are taken or moved"));
}

// Refusals name the expression or the buffer.
TEST(IntegerCode, WhatADeviceDoesNotHave) {
  const auto status_of = [](const std::string& text) {
    const search::GeneralKernel general = search::general_kernel(kernel_of(text));
    const auto made = best_of(general, {{"N", 100}});
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return jit::lower_device(search::cut_launches(made->kernel)->leaves[0]).status();
  };
  EXPECT_THAT(status_of(converting("f64", "f64", "x[j] + x[j]")).message(), HasSubstr("only moved on a device"));
  EXPECT_THAT(status_of(converting("f32", "f32", "f32(f64(x[j]))")).message(), HasSubstr("has no function on a device"));
  // Threads add up together as often as each of them has been told.
  const auto cut = search::cut_launches(kernel_of(
      "kernel k(o: i32[N] in values 0..9, x: f32[9] in, y: f32[N] out) where N in 1..99\n  s: f32[] reg\n"
      "  for i < ceildiv(N, 32) @grid:\n    for t < min(32, N - 32*i) @block:\n      s[] = 0.0\n"
      "      for j < i64(o[32*i + t]) @block:\n        s[] += x[j]\n      y[32*i + t] = f32(o[32*i + t]) * s[]\n"));
  ASSERT_TRUE(cut.ok()) << cut.status().to_string();
  const auto program = jit::lower_device(cut->leaves[0]);
  EXPECT_EQ(program.status().code(), ir::Code::kUNSUPPORTED);
  EXPECT_THAT(program.status().message(), HasSubstr("which differs inside of a block"));
}

// Each thread goes through a scope as often as an integer of its own says.
TEST(IntegerCode, LoopsThatIntegersCount) {
  const ir::Kernel k = kernel_of(
      "kernel k(o: i32[N] in values 0..9, x: f32[9] in, y: f32[N] out) where N in 1..99\n"
      "  for i < ceildiv(N, 32) @grid:\n    for t < min(32, N - 32*i) @block:\n      y[32*i + t] = f32(o[32*i + t])\n"
      "      for j < i64(o[32*i + t]):\n        y[32*i + t] += x[j]\n");
  for (const int64_t n : {1, 31, 32, 33, 99}) expect_as_interpreted(k, {{"N", n}});
}

class IntegerMatrix : public KernelMatrix {};
TEST_P(IntegerMatrix, CompilesWithoutSpills) { compile_all(forms()); }
INSTANTIATE_TEST_SUITE_P(Gpus, IntegerMatrix, testing::Values("a100", "l40s", "h200", "rtx5090"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lathe::test
