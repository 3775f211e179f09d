// Where @grid and @block scopes may stand, and what they do to buffers that each thread has of its own.
#include "ir/analysis/launch_check.h"

#include <gtest/gtest.h>

#include "ir/analysis/verifier.h"
#include "ir/base/gpu_target.h"
#include "ir/core/text_form.h"

namespace lathe::ir {
namespace {

std::string verdict(const std::string& body, const std::string& temporaries = {}) {
  const Result<Kernel> k = parse_kernel(
      "kernel t(x: f32[N, M] in, y: f32[N, M] out) where N in 1..100000, M in 1..64\n" + temporaries + body);
  if (!k.ok()) return "does not parse: " + k.status().message();
  EXPECT_EQ(print(*parse_kernel(print(*k))), print(*k));
  const Status status = verify(*k);
  return status.ok() ? "ok" : status.message();
}

TEST(LaunchCheck, Accepts) {
  EXPECT_EQ(verdict("  for i < N @grid:\n    for j < M @grid:\n      y[i, j] = x[i, j]\n"), "ok");
  EXPECT_EQ(verdict("  for i < N @grid:\n    for j < M @block:\n      y[i, j] = x[i, j]\n"), "ok");
  EXPECT_EQ(verdict("  for j < M @grid:\n    for b < ceildiv(N, 128):\n      for t < min(128, N - 128*b) @block:\n"
                    "        y[128*b + t, j] = x[128*b + t, j]\n"),
            "ok");
  EXPECT_EQ(verdict("  for i < N @grid:\n    for j < M @block:\n      y[i, j] = x[i, j]\n"
                    "    for k < M @block:\n      y[i, k] = x[i, k]\n"),
            "ok");
}

TEST(LaunchCheck, Refuses) {
  EXPECT_EQ(verdict("  for i < N:\n    for j < M @grid:\n      y[i, j] = x[i, j]\n"),
            "launch: @grid scope j stands inside i, which is none");
  EXPECT_EQ(verdict("  for i < N @grid:\n    for j < M @grid:\n      y[i, j] = x[i, j]\n    y[i, 0] = 0.0\n"),
            "launch: @grid scope i holds more than @grid scope j");
  EXPECT_EQ(verdict("  for i < N @parallel:\n    for j < M @grid:\n      y[i, j] = x[i, j]\n"),
            "launch: @grid scope j stands inside a @parallel scope");
  EXPECT_EQ(verdict("  for i < N @grid:\n    for j < M @parallel:\n      y[i, j] = x[i, j]\n"),
            "launch: @parallel scope j stands inside a @grid scope");
  EXPECT_EQ(verdict("  for i < N:\n    for j < M @block:\n      y[i, j] = x[i, j]\n"),
            "launch: @block scope j stands outside of @grid scopes");
  EXPECT_EQ(verdict("  for j < M @grid:\n    for i < N @block:\n      y[i, j] = x[i, j]\n"),
            "launch: @block scope i: no constant bounds its extent N");
  EXPECT_EQ(verdict("  for i < N @grid:\n    for j < M @vector:\n      for k < 1 @block:\n        y[i, j] = x[i, j]\n"),
            "launch: @block scope k stands inside a @vector or @tensor scope");
  const auto role = [](const std::string& around, const char* times) {
    return around + "for r < " + times +
           " @role:\n        for a < N:\n          for b < M:\n            y[a, b] = x[a, b]\n";
  };
  EXPECT_EQ(verdict(role("  for g < 1:\n    for h < 1:\n      ", "1")),
            "launch: @role scope r stands outside of @grid scopes");
  EXPECT_EQ(verdict(role("  for g < 1 @grid:\n    for h < 1 @block:\n      ", "1")),
            "launch: @role scope r stands inside a @block scope");
  EXPECT_EQ(verdict(role("  for g < 1 @grid:\n    for h < 1 @role:\n      ", "1")),
            "launch: @role scope r stands inside a @role scope");
  EXPECT_EQ(verdict(role("  for g < 1 @grid:\n    for h < 1:\n      ", "2")),
            "launch: @role scope r runs 2 times, expected once");
  EXPECT_EQ(verdict(role("  for g < 1 @grid:\n    for h < 1:\n      ", "1")), "ok");
  const auto persistent = [](const std::string& around, const char* times, const char* beside = "") {
    return around + "for r < " + times +
           " @persistent:\n        for a < N:\n          for b < M:\n            y[a, b] = x[a, b]\n" + beside;
  };
  EXPECT_EQ(verdict(persistent("  for g < 1:\n    for h < 1:\n      ", "1")),
            "launch: @persistent scope r does not stand inside @grid scopes alone");
  EXPECT_EQ(verdict(persistent("  for g < 1 @grid:\n    for h < 1:\n      ", "1")),
            "launch: @persistent scope r does not stand inside @grid scopes alone");
  EXPECT_EQ(verdict(persistent("  for g < 1 @grid:\n    for h < 1 @grid:\n      ", "2")),
            "launch: @persistent scope r runs 2 times, expected once");
  EXPECT_EQ(verdict(persistent("  for g < 1 @grid:\n    for h < 1 @grid:\n      ", "1")), "ok");
  EXPECT_EQ(verdict(persistent("  for g < 1 @grid:\n    for h < 1 @grid:\n      ", "1", "      y[0, 0] = 0.0\n")),
            "launch: @grid scope h holds more than @persistent scope r");
  const auto cluster = [](const std::string& around, const char* times, const char* beside = "") {
    return around + "for r < " + times +
           " @cluster:\n      for a < N:\n        for b < M:\n          y[a, b] = x[a, b]\n" + beside;
  };
  EXPECT_EQ(verdict(cluster("  for g < 1:\n    ", "2")),
            "launch: @cluster scope r does not stand inside @grid scopes alone");
  EXPECT_EQ(verdict("  for r < 2 @cluster:\n    y[0, 0] = 0.0\n"),
            "launch: @cluster scope r does not stand inside @grid scopes alone");
  EXPECT_EQ(verdict("  for g < 1 @grid:\n    for h < 2 @cluster:\n      for r < 2 @cluster:\n        y[0, 0] = 0.0\n"),
            "launch: @cluster scope r does not stand inside @grid scopes alone");
  EXPECT_EQ(verdict(cluster("  for g < 1 @grid:\n    ", "3")), "launch: @cluster scope r runs 3 times, expected 2");
  EXPECT_EQ(verdict(cluster("  for g < 1 @grid:\n    ", "2", "    y[0, 0] = 0.0\n")),
            "launch: @grid scope g holds more than @cluster scope r");
  EXPECT_EQ(verdict("  for g < 1 @grid:\n    for h < 2 @cluster:\n      for r < 2 @grid:\n        y[0, 0] = 0.0\n"),
            "launch: @grid scope r stands inside h, which is none");
  EXPECT_EQ(verdict(cluster("  for g < 1 @grid:\n    ", "2")), "ok");
  EXPECT_EQ(verdict("  for g < 1 @grid:\n    for h < 2 @cluster:\n      for r < 1 @persistent:\n        for a < N:\n"
                    "          for b < M:\n            y[a, b] = x[a, b]\n"),
            "ok");
  // A warp's instruction is a GPU's.
  const auto copied = [](const char* mark) {
    return std::string("  for g < 1") + mark +
           ":\n    for i < 16 @tensor(ldmatrix):\n      for j < 16:\n        t[i, j] = t[i, j]\n"
           "  for a < N:\n    for b < M:\n      y[a, b] = x[a, b]\n";
  };
  EXPECT_EQ(verdict(copied(""), "  t: bf16[16, 16] stack\n"),
            "launch: @tensor(ldmatrix) scope i stands outside of @grid scopes");
  EXPECT_EQ(verdict("  for i < N @tensor(tma_2d):\n    for j < M:\n      y[i, j] = x[i, j]\n"),
            "launch: @tensor(tma_2d) scope i stands outside of @grid scopes");
}

TEST(LaunchCheck, BlocksAlongAScope) {
  Ranges ranges;
  ranges.enter("g", Expr(100));
  const auto along = [&](const Expr& extent) {
    const Expr out = blocks_along(make_scope("i", extent, {}), ranges);
    return out ? print(out) : "none";
  };
  EXPECT_EQ(along(symbol("N")), "N");
  EXPECT_EQ(along(min(Expr(8), symbol("N") - Expr(8) * iter("g"))), "8");
  EXPECT_EQ(along(min(Expr(100), symbol("N") - iter("g"))), "none");
  EXPECT_EQ(along(symbol("N") - iter("g")), "none");
}

TEST(LaunchCheck, BlocksAlongWhatInputsSay) {
  const Kernel kernel = parse_kernel(
                            "kernel k(l: i32[4] in values 2..64, u: i32[4] in, x: f32[N] in, y: f32[N] out) "
                            "family row where N in 1..1000\n  for i < N:\n    y[i] = x[i]\n")
                            .value();
  Ranges ranges(kernel);
  ranges.enter("g", Expr(4));
  const Expr l = cast(DType::i64, load("l", {iter("g")}, DType::i32));
  const auto along = [&](const Expr& extent) {
    const Expr out = blocks_along(make_scope("i", extent, {}), ranges);
    return out ? print(out) : "none";
  };
  EXPECT_EQ(along(l), "64");
  EXPECT_EQ(along(Expr(100) - l), "98");
  EXPECT_EQ(along(make(Op::k_ceildiv, {l * symbol("N"), Expr(16)})), "4*N");
  EXPECT_EQ(along(min(Expr(16), l - Expr(5))), "16");
  // It is not largest where the input is.
  EXPECT_EQ(along(make(Op::k_mod, {l, Expr(32)})), "none");
  EXPECT_EQ(along(make(Op::k_mul, {Expr(-1), l}) + Expr(100)), "none");
  EXPECT_EQ(along(make(Op::k_floordiv, {Expr(256), l})), "none");
  EXPECT_EQ(along(cast(DType::i64, load("u", {iter("g")}, DType::i32))), "none");
}

TEST(LaunchCheck, WhatAThreadHasOfItsOwnStaysInIt) {
  const std::string own = "  t: f32[64] stack\n";
  EXPECT_EQ(
      verdict("  for i < N @grid:\n    for j < M:\n      t[j] = x[i, j]\n    for k < M:\n      y[i, k] = t[k]\n", own),
      "ok");
  EXPECT_EQ(
      verdict("  for i < N @grid:\n    for j < M:\n      t[j] = x[i, j]\n    for k < M @block:\n      y[i, k] = t[k]\n",
              own),
      "threads: t, a stack buffer, is read in @block scope k, but not written there");
}

TEST(GpuTarget, RowsAndDrivers) {
  const auto h200 = find_gpu_target("h200");
  ASSERT_TRUE(h200.has_value());
  EXPECT_EQ(h200->sm, 90);
  EXPECT_EQ(h200->architecture, "sm_90a");
  EXPECT_FALSE(find_gpu_target("h20").has_value());
  for (const std::string_view name : gpu_target_names()) {
    const GpuTarget row = *find_gpu_target(name),
                    driver = gpu_target(row.name, row.sm / 10, row.sm % 10, row.multiprocessors,
                                        (uint64_t(row.memory_gib) << 30) - (uint64_t{3} << 29));
    EXPECT_EQ(driver.architecture, row.architecture) << name;
    EXPECT_GE(row.sm, kLeastSm) << name;
  }
}

}  // namespace
}  // namespace lathe::ir
