// Loops that load several vectors of a line at a time: where lines begin at multiples of 16 bytes is asked once, before
// the loop. Run on the emulator against the interpreter, where they do and where they do not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jit/cuda/lower/lower_device.h"
#include "search/cut/launch_cut.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/emulated.h"

namespace lathe::test {
namespace {

using jit::DeviceProgram;
using jit::DeviceStmt;
using ::testing::HasSubstr;
using ::testing::Not;

// Copies of a row's elements in registers, four vectors at a time, and their sums.
const char kLines[] =
    "kernel lines(x: T[M, N] in, y: f32[M] out) family row where M in 0..1000, N in 0..1000 numeric reassociate\n"
    "  a: f32[] reg\n"
    "  r: T[4*W] reg\n"
    "  for b < ceildiv(M, 32) @grid:\n"
    "    for t < min(32, M - 32*b) @block:\n"
    "      a[] = 0.0\n"
    "      for n < ceildiv(N, 4*W):\n"
    "        for u < ceildiv(min(4*W, N - 4*W*n), W) @unroll:\n"
    "          for v < min(W, min(4*W, N - 4*W*n) - W*u) @vector:\n"
    "            r[W*u + v] = x[32*b + t, 4*W*n + W*u + v]\n"
    "        for u1 < ceildiv(min(4*W, N - 4*W*n), W) @unroll:\n"
    "          for v1 < min(W, min(4*W, N - 4*W*n) - W*u1) @vector:\n"
    "            a[] += f32(r[W*u1 + v1])\n"
    "      y[32*b + t] = a[]\n";

ir::Kernel lines(const std::string& type) {
  std::string text = kLines;
  const int64_t vector = type == "f32" ? 4 : 8;
  const auto replace = [&](const std::string& of, const std::string& by) {
    for (size_t at = 0; (at = text.find(of, at)) != std::string::npos; at += by.size()) text.replace(at, of.size(), by);
  };
  if (type == "f32") replace("f32(r[W*u1 + v1])", "r[W*u1 + v1]");
  replace("4*W", std::to_string(4 * vector));
  replace("W", std::to_string(vector));
  replace(": T[", ": " + type + "[");
  return kernel_of(text.c_str());
}

DeviceProgram program_of(const ir::Kernel& kernel) {
  const auto cut = search::cut_launches(kernel);
  EXPECT_TRUE(cut.ok()) << cut.status().to_string();
  auto out = jit::lower_device(cut->leaves[0]);
  EXPECT_TRUE(out.ok()) << out.status().to_string();
  return std::move(*out);
}

DeviceStmt* find_aligned(std::vector<DeviceStmt>& list) {
  for (DeviceStmt& s : list) {
    if (s.kind == DeviceStmt::Kind::aligned) return &s;
    if (DeviceStmt* found = find_aligned(s.body)) return found;
  }
  return nullptr;
}

DeviceStmt* find_load(std::vector<DeviceStmt>& list) {
  for (DeviceStmt& s : list) {
    if (s.kind == DeviceStmt::Kind::load && s.lanes > 1) return &s;
    if (DeviceStmt* found = find_load(s.body)) return found;
  }
  return nullptr;
}

TEST(LineCode, LinesAreAskedForOnce) {
  for (const char* type : {"f32", "bf16"}) {
    DeviceProgram program = program_of(lines(type));
    const std::string lanes = type == std::string("f32") ? "4" : "8";
    EXPECT_THAT(print(program), HasSubstr("if e1 % " + lanes + " == 0 and aligned x16 p0[0]:\n"));
    DeviceStmt* lines = find_aligned(program.body);
    ASSERT_NE(lines, nullptr);
    DeviceProgram with = program, without = program;
    with.body = lines->body;
    without.body = lines->otherwise;
    EXPECT_THAT(print(with), Not(HasSubstr("aligned")));
    EXPECT_THAT(print(with), HasSubstr("load "));
    EXPECT_THAT(print(without), HasSubstr("aligned x" + lanes));
  }
}

TEST(LineCode, RowsOfAnyLength) {
  for (const char* type : {"f32", "bf16", "f16"}) {
    const ir::Kernel kernel = lines(type);
    for (const int64_t n : {0, 1, 3, 4, 7, 8, 9, 24, 31, 32, 33, 40, 63, 64, 65, 100, 104})
      expect_as_interpreted(kernel, {{"M", 35}, {"N", n}}, 1e-5);
  }
}

TEST(LineCode, WhatDoesNotFollowIsRefused) {
  struct Case {
    const char* what;
    void (*change)(DeviceStmt& lines);
  };
  const Case cases[] = {
      {"no multiple of the size", [](DeviceStmt& s) { s.integer = {}; }},
      {"a smaller multiple",
       [](DeviceStmt& s) {
         s.integer = ir::make(ir::Op::k_eq, {ir::mod(ir::symbol("e1"), ir::Expr(2)), ir::Expr(0)});
       }},
      {"one over a multiple",
       [](DeviceStmt& s) {
         s.integer = ir::make(ir::Op::k_eq, {ir::mod(ir::symbol("e1"), ir::Expr(4)), ir::Expr(1)});
       }},
      {"another size",
       [](DeviceStmt& s) {
         s.integer = ir::make(ir::Op::k_eq, {ir::mod(ir::symbol("e0"), ir::Expr(4)), ir::Expr(0)});
       }},
      {"a place that is not the first", [](DeviceStmt& s) { s.places[0].offset = ir::Expr(1); }},
      {"no place", [](DeviceStmt& s) { s.places.clear(); }},
      {"fewer lanes", [](DeviceStmt& s) { s.lanes = 2; }},
      {"a load between", [](DeviceStmt& s) { find_load(s.body)->places[0].offset = ir::Expr(2) * ir::iter("b"); }},
      {"where they do not begin so", [](DeviceStmt& s) { std::swap(s.body, s.otherwise); }},
  };
  const DeviceProgram sound = program_of(lines("f32"));
  ASSERT_TRUE(verify(sound).ok());
  for (const Case& c : cases) {
    DeviceProgram broken = sound;
    c.change(*find_aligned(broken.body));
    EXPECT_FALSE(verify(broken).ok()) << c.what;
  }
}

}  // namespace
}  // namespace lathe::test
