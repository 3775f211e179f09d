// Each move of a Schedule has a reason, and it is the right one.
#include "search/strategy/why.h"

#include <gtest/gtest.h>

#include "ir/core/text_form.h"
#include "tests/common/machines.h"

namespace lathe::search {
namespace {

TEST(Why, MovesFollowFromTheirKnobs) {
  Problem problem;
  const auto kernel = ir::parse_kernel(R"(
kernel gate(x: f32[32, 64] in, w: f32[96, 64] const, y: f32[32, 96] out) family matmul
  c: f32[32, 96] heap
  for m < 32 [m]:
    for n < 96 [n]:
      c[m, n] = 0.0
      for k < 64 [k]:
        c[m, n] += x[m, k] * w[n, k]
      y[m, n] = c[m, n]
)");
  ASSERT_TRUE(kernel.ok()) << kernel.status().to_string();
  problem.kernel = *kernel;
  const ir::Target target = test::find_machine("laptop")->target;  // tiles of rows, several of them
  Schedule schedule = default_schedule(problem, target);
  ASSERT_FALSE(schedule.recipe.empty());
  schedule.moves.push_back(*parse_move("increment_padding x 1 128"));
  const std::vector<MoveReason> reasons = move_reasons(problem, target, schedule);
  ASSERT_EQ(reasons.size(), schedule.moves.size());
  const std::string mr = fmt::format("mr={}", schedule.knobs.at("mr"));
  bool by_mr = false, by_recipe = false;
  for (const MoveReason& r : reasons) {
    EXPECT_FALSE(r.why.empty()) << r.move;
    EXPECT_FALSE(r.picture.empty()) << r.move;
    if (r.move.starts_with("tile_scope m ")) by_mr |= r.why.find(mr) != std::string::npos;
    by_recipe |= r.why == "recipe " + schedule.recipe;
  }
  EXPECT_TRUE(by_mr);
  EXPECT_TRUE(by_recipe);
  EXPECT_EQ(reasons.back().why, "added by search");

  schedule.recipe.clear();
  schedule.knobs.clear();
  for (const MoveReason& r : move_reasons(problem, target, schedule)) EXPECT_EQ(r.why, "as written");
}

}  // namespace
}  // namespace lathe::search
