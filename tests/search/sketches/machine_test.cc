// The machine that this run takes itself for (LATHE_TEST_MACHINE) is one that is described; the defaults of the recipes
// are settings on all of them.
#include <gtest/gtest.h>

#include "search/sketches/recipe.h"
#include "tests/search/model/problems.h"

namespace lathe::search {
namespace {

TEST(Machine, the_name_is_that_of_a_description) {
  const std::string name = test::machine_wanted();
  if (name.empty()) return;
  ASSERT_NE(test::find_machine(name), nullptr)
      << "LATHE_TEST_MACHINE=" << name << ": expected a row of tests/common/machines.def";
}

TEST(Machine, defaults_are_settings_on_every_one) {
  for (const test::Machine& m : test::machines()) {
    for (const ir::IsaLevel level : {ir::IsaLevel::portable, ir::IsaLevel::avx2, m.target.level}) {
      const ir::Target t = m.target.cap(level);
      SCOPED_TRACE(m.name + " " + t.to_string());
      for (const int threads : {1, 2}) {
        for (const Problem& p :
             {matmul_problem(4, 52, 70, false, threads), matmul_problem(1, 4096, 4096, true, threads),
              matmul_problem(300, 300, 2048, false, threads), softmax_problem(128, 1000, threads),
              softmax_problem(7, 4096, threads)}) {
          const Recipe* r = find_recipe(p);
          ASSERT_NE(r, nullptr);
          const Knobs knobs = r->defaults(p, t);
          EXPECT_TRUE(r->accepts(knobs, p, t).ok()) << p.kernel.name;
          const auto schedule = r->build(knobs, p, t);
          ASSERT_TRUE(schedule.ok()) << schedule.status().to_string();
          EXPECT_TRUE(replay(p.kernel, *schedule).ok()) << p.kernel.name;
        }
      }
    }
  }
}

// A stream from memory that the arithmetic waits for: Zen 4's core brings it alone, Zen 5's does not.
TEST(Machine, few_rows_are_prefetched_where_the_core_does_not) {
  const Problem p = matmul_problem(4, 4096, 4096, true);
  const Recipe* r = find_recipe(p);
  ASSERT_NE(r, nullptr);
  EXPECT_EQ(r->defaults(p, test::find_machine("zen4")->target).at("pf"), 0);
  EXPECT_GT(r->defaults(p, test::find_machine("zen5")->target).at("pf"), 0);
  const Problem more = matmul_problem(14, 4096, 4096, true);
  EXPECT_GT(r->defaults(more, test::find_machine("zen4")->target).at("pf"), 0) << "arithmetic takes turns with memory";
}

// Where few lines are on their way to L1 at once, all prefetches are to L2.
TEST(Machine, prefetches_are_to_l2_where_the_core_fetches_streams) {
  Problem row;
  row.kernel = kernel_of(R"(kernel twice(x: f32[16777216] in, y: f32[16777216] out) family elementwise
  for j < 16777216 [col]:
    y[j] = x[j] * 2.0
)");
  for (const Problem& p : {row, plain_product(4, false), plain_product(4, true), plain_product(14, false),
                           plain_product(128, true), matmul_problem(16, 4096, 4096, true)}) {
    for (const char* name : {"zen4", "zen5"}) {
      const ir::Target t = machine(name).target;
      const Recipe* recipe = find_recipe(p);
      const auto schedule = recipe->build(recipe->defaults(p, t), p, t);
      ASSERT_TRUE(schedule.ok()) << schedule.status().to_string();
      int near = 0, far = 0;
      for (const Move& move : schedule->moves) {
        if (move.name == "prefetch") (move.options.contains("to") ? far : near) += 1;
      }
      EXPECT_EQ(near > 0, name == std::string("zen5")) << p.kernel.name;
      EXPECT_EQ(far > 0, name == std::string("zen4")) << p.kernel.name;
    }
  }
}

// Such a core reads few rows of B together, and is told of the next ones at the same columns.
TEST(Machine, few_plain_rows_prefetch_the_next_rows_where_the_core_fetches_streams) {
  const ir::Target t = machine("zen4").target;
  for (const int64_t m : {1, 2, 3, 4}) {
    const Problem p = plain_product(m, false);
    const Recipe* recipe = find_recipe(p);
    const Knobs k = recipe->defaults(p, t);
    EXPECT_TRUE(recipe->build(k, p, t).ok()) << m;
    EXPECT_EQ(k.at("kc"), 8) << m;
    EXPECT_EQ(k.at("nr"), 64) << m;
    EXPECT_EQ(k.at("pf"), 8 * 4096 * 4) << m;
  }
  const Problem one = plain_product(1, true), four = plain_product(4, true);
  EXPECT_EQ(find_recipe(one)->defaults(one, t).at("pf"), 1024);
  EXPECT_EQ(find_recipe(four)->defaults(four, t).at("pf"), 2048);
}

}  // namespace
}  // namespace lathe::search
