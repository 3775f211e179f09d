// The transpose recipe's predicate is its space: every configuration it accepts is made by the generators and moves
// each element to its place; what it refuses is no setting.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "ir/core/text_form.h"
#include "jit/host/host_cpu.h"
#include "runtime/compile/compiler.h"
#include "runtime/oracle/oracle.h"
#include "runtime/walk/threads.h"
#include "search/sketches/recipe.h"
#include "tests/common/generators.h"

namespace lathe::runtime {
namespace {

using search::Knobs;
using search::kTransposeRecipe;
using search::Problem;

Problem plain(int threads) {
  Problem p;
  p.kernel = ir::parse_kernel(R"(kernel turn(s: f32[75, 100] in, d: f32[100, 75] out) family transpose
  for i < 100 [row]:
    for j < 75 [col]:
      d[i, j] = s[j, i]
)")
                 .value();
  p.threads = threads;
  return p;
}

Problem batched(int threads) {
  Problem p;
  p.kernel =
      ir::parse_kernel(R"(kernel turn(s: f32[L, 3, 70] in, d: f32[70, 3, L] out) family transpose where L in 1..200
  for i < 70 [row]:
    for i1 < 3 [row]:
      for j < L [col]:
        d[i, i1, j] = s[j, i1, i]
)")
          .value();
  p.dims = {{"L", 48}};
  p.threads = threads;
  return p;
}

Problem copy() {
  Problem p;
  p.kernel = ir::parse_kernel(R"(kernel copy(s: f32[9, 40] in, d: f32[9, 40] out) family transpose
  for i < 9 [row]:
    for j < 40 [col]:
      d[i, j] = s[i, j]
)")
                 .value();
  return p;
}

std::vector<Knobs> accepted(const Problem& p, const ir::Target& t) {
  std::vector<Knobs> out;
  const std::vector<search::KnobDomain> domains = kTransposeRecipe.knobs(p, t);
  Knobs k;
  const std::function<void(size_t)> visit = [&](size_t d) {
    if (d == domains.size()) {
      if (kTransposeRecipe.accepts(k, p, t).ok()) out.push_back(k);
      return;
    }
    for (const int64_t v : domains[d].values) {
      k[domains[d].name] = v;
      visit(d + 1);
    }
  };
  visit(0);
  return out;
}

TEST(TransposeRecipe, AcceptsWhatTheGeneratorsMakeAndMovesEveryElement) {
  if (!jit::host_target().has(ir::IsaLevel::avx2)) GTEST_SKIP() << "needs AVX2: nothing is generated for this machine";
  TeamOptions options;
  options.threads = 2;
  ThreadTeam team(options);
  for (const ir::IsaLevel level : {ir::IsaLevel::avx2, ir::IsaLevel::avx512}) {
    ir::Target t = jit::host_target().cap(level);
    if (t.level != level) continue;
    t.l3_bytes = 1 << 10;  // these exceed it: streaming stores come in
    for (const Problem& p : {plain(1), batched(2)}) {
      auto oracle = Oracle::create({p.kernel, p.dims, p.threads, 3}, &team);
      ASSERT_TRUE(oracle.ok()) << oracle.status().to_string();
      const std::vector<Knobs> all = accepted(p, t);
      ASSERT_GT(all.size(), 20u);
      LeafCache leaves(LeafCacheOptions{}, nullptr, nullptr);
      std::set<std::string> distinct;
      for (const Knobs& k : all) {
        const auto schedule = kTransposeRecipe.build(k, p, t);
        ASSERT_TRUE(schedule.ok()) << schedule.status().to_string();
        distinct.insert(search::to_text(*schedule));
        const auto stage =
            build_stage(p.kernel, *schedule, t, leaves, {.llvm = false, .portable = !test::generates(t)});
        ASSERT_TRUE(stage.ok()) << search::to_text(*schedule) << stage.status().to_string();
        const auto verdict = (*oracle)->verify(*stage);
        ASSERT_TRUE(verdict.ok()) << verdict.status().to_string();
        EXPECT_TRUE(verdict->ok) << search::to_text(*schedule) << verdict->reason;
      }
      EXPECT_EQ(distinct.size(), all.size());
    }
  }
}

// Two threads share out blocks where the squares alone could not be.
TEST(TransposeRecipe, TheDefaultIsAcceptedAndSharedOut) {
  const ir::Target t = jit::host_target();
  for (const Problem& p : {plain(1), plain(2), batched(1), batched(2), copy()}) {
    const Knobs k = kTransposeRecipe.defaults(p, t);
    EXPECT_TRUE(kTransposeRecipe.accepts(k, p, t).ok());
    const auto schedule = kTransposeRecipe.build(k, p, t);
    ASSERT_TRUE(schedule.ok()) << schedule.status().to_string();
    EXPECT_EQ(search::to_text(*schedule).find("parallelize") != std::string::npos, p.threads > 1);
  }
}

// Elements of a lane or less: rows that end within a vector, on each side.
TEST(TransposeRecipe, TheDefaultOfEveryTypeGoesBySquares) {
  if (!jit::host_target().has(ir::IsaLevel::avx2)) GTEST_SKIP() << "needs AVX2: nothing is generated for this machine";
  for (const ir::IsaLevel level : {ir::IsaLevel::avx2, ir::IsaLevel::avx512}) {
    const ir::Target t = jit::host_target().cap(level);
    if (t.level != level) continue;
    for (const char* type : {"f32", "bf16", "f16", "i32", "i8", "u8", "b8"}) {
      Problem p;
      p.kernel = ir::parse_kernel(fmt::format("kernel turn(s: {0}[35, 257] in, d: {0}[257, 35] out) family transpose\n"
                                              "  for i < 257 [row]:\n"
                                              "    for j < 35 [col]:\n"
                                              "      d[i, j] = s[j, i]\n",
                                              type))
                     .value();
      const auto schedule = kTransposeRecipe.build(kTransposeRecipe.defaults(p, t), p, t);
      ASSERT_TRUE(schedule.ok()) << type << " " << schedule.status().to_string();
      EXPECT_NE(search::to_text(*schedule).find("tensorize"), std::string::npos) << type;
      LeafCache leaves(LeafCacheOptions{}, nullptr, nullptr);
      const auto stage = build_stage(p.kernel, *schedule, t, leaves, {.llvm = false, .portable = !test::generates(t)});
      ASSERT_TRUE(stage.ok()) << type << " " << stage.status().to_string();
      auto oracle = Oracle::create({p.kernel, p.dims, p.threads, 3}, nullptr);
      ASSERT_TRUE(oracle.ok()) << oracle.status().to_string();
      const auto verdict = (*oracle)->verify(*stage);
      ASSERT_TRUE(verdict.ok()) << verdict.status().to_string();
      EXPECT_TRUE(verdict->ok) << type << " " << verdict->reason;
    }
  }
}

TEST(TransposeRecipe, RefusesWhatIsNoSetting) {
  const ir::Target t = jit::host_target();
  const Problem p = plain(1);
  const std::pair<const char*, int64_t> bad[] = {{"bt", -32}, {"bt", 20},  {"bt", 96},
                                                 {"bf", 128}, {"walk", 1}, {"stream", 1}};
  for (const auto& [name, value] : bad) {
    Knobs k = {{"parallel", 0}, {"bt", 0}, {"bf", 0}, {"along", 0}, {"walk", 0}, {"stream", 0}};
    EXPECT_TRUE(kTransposeRecipe.accepts(k, p, t).ok());
    k[name] = value;
    EXPECT_FALSE(kTransposeRecipe.accepts(k, p, t).ok()) << name << " " << value;
  }
  EXPECT_FALSE(kTransposeRecipe.accepts({{"parallel", 0}, {"bt", 32}}, copy(), t).ok());
}

}  // namespace
}  // namespace lathe::runtime
