// A Script ends with the Kernel that a replay of its moves makes, so nobody has to apply them again.
#include <gtest/gtest.h>

#include "search/sketches/recipe.h"
#include "tests/search/model/problems.h"

namespace lathe::search {
namespace {

Problem transpose_problem(int64_t rows, int64_t columns) {
  Problem p;
  p.kernel = kernel_of(fmt::format(R"(kernel transpose(s: f32[{0}, {1}] in, d: f32[{1}, {0}] out) family transpose
  for i < {0} [row]:
    for j < {1} [col]:
      d[j, i] = s[i, j]
)",
                                   rows, columns));
  return p;
}

std::vector<Problem> problems() {
  std::vector<Problem> out = {
      matmul_problem(1, 96, 64), matmul_problem(33, 100, 70), matmul_problem(200, 512, 2048, true, 2),
      softmax_problem(64, 640),  softmax_problem(7, 77, 2),   transpose_problem(33, 70)};
  Problem in_place = matmul_problem(33, 100, 70);
  in_place.kernel.buffers[1].place = ir::Place::in;
  out.push_back(in_place);
  return out;
}

// Also where the move changes nothing but a mark.
TEST(Script, WhatItHandsOutEndsWithTheNextMove) {
#ifdef NDEBUG
  GTEST_SKIP() << "checked builds only";
#else
  const Problem problem = transpose_problem(33, 70);
  Script script(problem.kernel);
  const auto statement = [&] { return reinterpret_cast<uintptr_t>(find_scope(script.kernel(), "j")); };
  const auto buffer = [&] { return reinterpret_cast<uintptr_t>(script.kernel().find_buffer("d")); };
  const uintptr_t scope = statement(), result = buffer();
  script.move("parallelize i");
  ASSERT_TRUE(script.ok());
  EXPECT_NE(statement(), scope);
  EXPECT_NE(buffer(), result);
#endif
}

TEST(Script, EndsWithTheKernelThatItsMovesMake) {
  int compared = 0;
  for (const Problem& problem : problems()) {
    const Recipe* recipe = find_recipe(problem);
    ASSERT_NE(recipe, nullptr);
    for (const ir::Target& target :
         {ir::Target{}, test::find_machine("laptop")->target, test::find_machine("zen5")->target}) {
      const Knobs first = recipe->defaults(problem, target);
      std::vector<Knobs> settings = {first};
      for (const KnobDomain& domain : recipe->knobs(problem, target)) {
        for (const int64_t value : {domain.values.front(), domain.values.back()}) {
          settings.push_back(first);
          settings.back()[domain.name] = value;
        }
      }
      for (const Knobs& knobs : settings) {
        if (!recipe->accepts(knobs, problem, target).ok()) continue;
        const ir::Result<Scheduled> made = recipe->script(knobs, problem, target);
        if (!made.ok()) continue;
        const ir::Result<ir::Kernel> replayed = replay(problem.kernel, made->schedule);
        ASSERT_TRUE(replayed.ok()) << replayed.status().to_string();
        EXPECT_EQ(ir::print(made->kernel), ir::print(*replayed)) << to_text(made->schedule);
        EXPECT_EQ(made->schedule.numeric, replayed->numeric);
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 80);
}

TEST(Script, AppliesEachMoveOnce) {
  for (const Problem& problem : problems()) {
    const uint64_t before = moves_applied();
    const Scheduled scheduled = default_scheduled(problem, test::find_machine("zen5")->target);
    ASSERT_FALSE(scheduled.schedule.moves.empty());
    EXPECT_EQ(moves_applied() - before, scheduled.schedule.moves.size());
  }
}

// swap_scopes edits before it knows that it may not.
TEST(Script, ARefusedMoveLeavesWhatThoseBeforeItMade) {
  const ir::Kernel kernel = kernel_of(R"(kernel shift(x: f32[9] in, a: f32[9, 9] out)
  for p < 9:
    for q < 9:
      a[p, q] = x[q]
  for i < 8:
    for j < 8:
      a[i + 1, j] = a[i, j + 1]
)");
  Script s(kernel);
  s.move("tile_scope p 3 tail=exact as p0,p1");
  ASSERT_TRUE(s.ok());
  const std::string before = ir::print(s.kernel());
  s.move("swap_scopes i j");
  EXPECT_FALSE(s.ok());
  EXPECT_EQ(ir::print(s.kernel()), before);
  s.move("unroll_scope q");
  EXPECT_EQ(ir::print(s.kernel()), before);
  const ir::Result<Scheduled> made = std::move(s).finish(kMatmulRecipe, {});
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.status().message().find("swap_scopes"), std::string::npos) << made.status().message();
}

}  // namespace
}  // namespace lathe::search
