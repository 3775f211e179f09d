// Dependence rules on kernels in text: which accesses may meet in different iterations, which statements may be
// exchanged.
#include "ir/analysis/dependence.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ir/core/text_form.h"

namespace lathe::ir {
namespace {

Kernel parsed(const std::string& text) {
  Result<Kernel> k = parse_kernel(text);
  EXPECT_TRUE(k.ok()) << k.status().to_string() << "\n" << text;
  return k.ok() ? *k : Kernel();
}
// A kernel over x, y (inputs and outputs of N and of N x K cells) with this body.
Kernel with(const std::string& body) {
  return parsed(
      "kernel t(x: f32[N] in, p: i64[N] in, y: f32[N] out, z: f32[N, K] out, f: f32[_] out) where N in 16..4096, K in "
      "1..4096\n"
      "  h: f32[N] heap\n  s: f32[8] stack\n  c: f32[] reg\n  q: i64[] reg\n" +
      body);
}
// May no two accesses below scope `iter` meet in different iterations of it? Registers do not count: each iteration has
// its own.
bool independent(const std::string& body, const std::string& iter, bool reductions = false) {
  const Kernel k = with(body);
  std::vector<Access> inside = collect_accesses(k.body);
  std::erase_if(inside, [&](const Access& a) {
    const bool below = std::any_of(a.scopes.begin(), a.scopes.end(), [&](const Stmt* s) { return s->iter == iter; });
    return !below || k.find_buffer(a.buffer)->place == Place::reg;
  });
  EXPECT_FALSE(inside.empty()) << "no scope " << iter;
  for (size_t i = 0; i < inside.size(); ++i) {
    for (size_t j = i; j < inside.size(); ++j) {
      if (may_conflict_across(k, iter, inside[i], inside[j], reductions)) return false;
    }
  }
  return true;
}

TEST(Dependence, PlainAndStridedWrites) {
  EXPECT_TRUE(independent("  for i < N:\n    y[i] = x[i]\n", "i"));
  EXPECT_FALSE(independent("  for i < N:\n    y[0] = x[i]\n", "i"));
  EXPECT_TRUE(independent("  for i < N // 2:\n    y[2*i] = x[i]\n    y[2*i + 1] = x[i]\n", "i"));
  EXPECT_FALSE(independent("  for i < N - 1:\n    y[i] = x[i]\n    y[i + 1] = x[i]\n", "i"));
  EXPECT_FALSE(independent("  for i < N - 1:\n    y[i] = y[i + 1]\n", "i"));
  EXPECT_TRUE(independent("  for i < 8:\n    y[i] = y[i + 8]\n", "i"));
  EXPECT_TRUE(independent("  for i < 1:\n    y[0] = x[i]\n", "i"));
  EXPECT_TRUE(independent("  for i < N:\n    y[N - 1 - i] = x[i]\n", "i"));
}

TEST(Dependence, TilesAndTails) {
  const std::string masked = "  for i < ceildiv(N, 8):\n    for j < min(8, N - 8*i):\n      y[8*i + j] = x[8*i + j]\n";
  EXPECT_TRUE(independent(masked, "i"));
  EXPECT_TRUE(independent(masked, "j"));
  const std::string wide = "  for i < ceildiv(N, 8):\n    for j < min(9, N - 8*i):\n      y[8*i + j] = x[8*i + j]\n";
  EXPECT_FALSE(independent(wide, "i"));
  EXPECT_TRUE(independent(wide, "j"));
  const std::string clamped = "  for i < ceildiv(N, 16):\n    for j < 16:\n      y[min(16*i, N - 16) + j] = x[j]\n";
  EXPECT_FALSE(independent(clamped, "i"));
  EXPECT_TRUE(independent(clamped, "j"));
  EXPECT_TRUE(independent("  for i < N:\n    for j < K:\n      f[i*K + j] = x[i]\n", "i"));
  EXPECT_TRUE(independent("  for i < N:\n    for j < K:\n      f[i*K + j] = x[i]\n", "j"));
  EXPECT_FALSE(independent("  for i < N:\n    for j < K + 1:\n      f[i*K + j] = x[i]\n", "i"));
  // A step is more than what all scopes inside can add up to, or it is not.
  const auto nested = [](const char* j, const char* k, const char* index) {
    return fmt::format("  for i < ceildiv(N, 32):\n    for j < {}:\n      for k < {}:\n        f[{}] = x[0]\n", j, k,
                       index);
  };
  EXPECT_TRUE(independent(nested("4", "min(8, N - 32*i)", "32*i + 8*j + k"), "i"));
  EXPECT_FALSE(independent(nested("4", "min(9, N - 32*i)", "32*i + 8*j + k"), "i"));
  EXPECT_FALSE(independent(nested("5", "8", "32*i + 8*j + k"), "i"));
  EXPECT_TRUE(independent(nested("4", "8", "32*i - 8*j + k"), "i"));
  EXPECT_FALSE(independent(nested("4", "10", "32*i - 8*j + k"), "i"));
  EXPECT_FALSE(independent(nested("4", "K", "32*i + 8*j + k"), "i"));
  EXPECT_TRUE(independent(nested("0", "K", "32*i + 8*j"), "i"));
  EXPECT_FALSE(independent(nested("4", "8", "8*j + k"), "i"));
}

TEST(Dependence, FusedIndicesAreJointlyInjective) {
  const std::string fused = "  for i < N*K:\n    z[i // 8, i % 8] = 1.0\n";
  EXPECT_TRUE(independent(fused, "i"));
  EXPECT_FALSE(independent("  for i < N:\n    z[i // 8, i % 4] = 1.0\n", "i"));
  EXPECT_FALSE(independent("  for i < N:\n    y[i // 2] = 1.0\n", "i"));
}

TEST(Dependence, ReductionsOnlyIfAllowed) {
  const std::string sum = "  for i < N:\n    y[0] += x[i]\n";
  EXPECT_FALSE(independent(sum, "i"));
  EXPECT_TRUE(independent(sum, "i", true));
  EXPECT_FALSE(independent("  for i < N:\n    y[0] += x[i]\n    y[0] max= x[i]\n", "i", true));
  EXPECT_FALSE(independent("  for i < N:\n    y[0] += y[0] * x[i]\n", "i", true));
  EXPECT_FALSE(independent("  for i < N:\n    y[0] += x[i]\n    h[i] = y[0]\n", "i", true));
}

TEST(Dependence, GathersAreMaybes) {
  EXPECT_FALSE(independent("  for i < N:\n    y[p[i]] = x[i]\n", "i"));
  EXPECT_TRUE(independent("  for i < N:\n    y[i] = x[p[i]]\n", "i"));
  EXPECT_TRUE(independent("  for j < N:\n    for i < N:\n      f[i + p[j]] = x[i]\n", "i"));
  // Each iteration has its own q: what it loads differs.
  EXPECT_FALSE(independent("  for i < N:\n    q[] = p[i]\n    f[i + q[]] = x[i]\n", "i"));
  EXPECT_TRUE(independent("  for i < N:\n    q[] = p[i]\n    y[i] = x[q[]]\n", "i"));
}

TEST(Dependence, Exchange) {
  const auto exchange = [](const std::string& body) {
    const Kernel k = with(body);
    std::string why;
    return may_exchange(k, k.body[0].body[0], k.body[0].body[1], {&k.body[0]}, &why);
  };
  EXPECT_TRUE(exchange("  for i < N:\n    y[i] = x[i]\n    h[i] = x[i]\n"));
  EXPECT_FALSE(exchange("  for i < N:\n    h[i] = x[i]\n    y[i] = h[i]\n"));
  EXPECT_FALSE(exchange("  for i < N:\n    y[i] = h[i]\n    h[i] = x[i]\n"));
  EXPECT_FALSE(exchange("  for i < N:\n    y[i] = 0.0\n    y[i] = x[i]\n"));
  EXPECT_TRUE(exchange("  for i < N - 1:\n    y[i] = 0.0\n    y[i + 1] = x[i]\n"));
  EXPECT_FALSE(exchange("  for i < N:\n    y[i] += 1.0\n    y[i] += x[i]\n"));
  EXPECT_TRUE(exchange("  for i < 2:\n    for j < 4:\n      y[2*j] = 0.0\n    for k < 4:\n      y[2*k + 1] = 0.0\n"));
}

TEST(Dependence, AccessesInProgramOrder) {
  const Kernel k = with("  for i < N:\n    y[i] += x[p[i]]\n");
  const std::vector<Access> all = collect_accesses(k.body);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].buffer, "p");
  EXPECT_EQ(all[1].buffer, "x");
  EXPECT_EQ(all[2].buffer, "y");
  EXPECT_TRUE(all[2].write && all[2].reduction);
  EXPECT_EQ(all[2].op, AssignOp::add);
  ASSERT_EQ(all[0].scopes.size(), 1u);
  EXPECT_EQ(all[0].scopes[0]->iter, "i");
}

}  // namespace
}  // namespace lathe::ir
