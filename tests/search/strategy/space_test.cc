// The space of a recipe: the same set as brute force, its default in it, neighbours and nearest as promised; features
// sane.
#include "search/strategy/space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/search/model/problems.h"

namespace lathe::search {
namespace {

RecipeSpace space_of(const Problem& p) { return RecipeSpace(p, run_target(), run_rates()); }

TEST(Space, holds_exactly_what_the_predicate_accepts) {
  const ir::Target t = run_target();
  for (const Problem& p :
       {matmul_problem(16, 512, 512, true), matmul_problem(300, 300, 2048), softmax_problem(128, 1000, 2)}) {
    const RecipeSpace space = space_of(p);
    const Recipe* r = find_recipe(p);
    std::vector<Knobs> all{{}};
    for (const KnobDomain& d : r->knobs(p, t)) {
      std::vector<Knobs> next;
      for (const Knobs& k : all) {
        for (const int64_t v : d.values) {
          next.push_back(k);
          next.back()[d.name] = v;
        }
      }
      all = std::move(next);
    }
    std::set<Knobs> accepted{r->defaults(p, t)}, held;
    for (const Knobs& k : all) {
      if (r->accepts(k, p, t).ok()) accepted.insert(k);
    }
    for (int i = 0; i < space.size(); ++i) held.insert(space.at(i).knobs);
    EXPECT_EQ(held, accepted) << p.kernel.name;
    EXPECT_EQ(static_cast<int>(held.size()), space.size());
    EXPECT_EQ(space.at(space.default_index()).knobs, r->defaults(p, t));
  }
}

TEST(Space, norms_sum_in_short_rows) {
  Problem p;
  p.kernel = kernel_of(R"(kernel norm(x: f32[128, 896] in, y: f32[128, 896] out) family row
  s: f32[128] heap
  for i < 128 [row]:
    s[i] = 0.0
    for n < 896 [col]:
      s[i] += x[i, n] * x[i, n]
    for n1 < 896 [col]:
      y[i, n1] = x[i, n1] * rsqrt(s[i])
)");
  ir::Target t = machine("zen5").target;
  const Recipe* r = find_recipe(p);
  const Knobs one = {{"unroll", 1}, {"grain", 0}}, two = {{"unroll", 2}, {"grain", 0}};
  EXPECT_TRUE(r->accepts(one, p, t).ok()) << "56 terms a lane";
  t.lanes = 8;
  EXPECT_FALSE(r->accepts(one, p, t).ok()) << "112";
  EXPECT_TRUE(r->accepts(two, p, t).ok());
  EXPECT_TRUE(r->accepts(r->defaults(p, t), p, t).ok());
}

TEST(Space, features_are_finite_and_vary_with_the_knobs) {
  for (const Problem& p : {matmul_problem(16, 4096, 4096, true), matmul_problem(300, 300, 2048, false, 2),
                           softmax_problem(128, 1000, 2)}) {
    const RecipeSpace space = space_of(p);
    std::set<std::vector<float>> distinct;
    for (int i = 0; i < space.size(); ++i) {
      for (size_t f = 0; f < space.at(i).features.size(); ++f) {
        ASSERT_TRUE(std::isfinite(space.at(i).features[f])) << feature_table()[f].name;
        ASSERT_GE(space.at(i).features[f], -100);
      }
      ASSERT_GT(space.at(i).estimate_us, 0);
      distinct.emplace(space.at(i).features.begin(), space.at(i).features.end());
    }
    EXPECT_EQ(static_cast<int>(distinct.size()), space.size()) << "two configurations that no feature tells apart";
  }
}

TEST(Space, neighbours_are_one_knob_away) {
  const Problem problem = matmul_problem(16, 512, 2048, true);
  RecipeSpace space = space_of(problem);
  const int start = space.default_index();
  int moves = 0;
  const std::vector<int> near = space.neighbours(start);
  EXPECT_GE(near.size(), 3u);
  EXPECT_EQ(space.neighbours(start), near);
  for (const int n : near) {
    if (!space.at(n).extra.empty()) {
      ++moves;
      const auto scheduled = space.scheduled(n);
      ASSERT_TRUE(scheduled.ok()) << scheduled.status().to_string();
      const auto replayed = replay(problem.kernel, scheduled->schedule);
      ASSERT_TRUE(replayed.ok()) << replayed.status().to_string();
      EXPECT_EQ(ir::print(*replayed), ir::print(scheduled->kernel));
      continue;
    }
    int changed = 0;
    for (const auto& [name, value] : space.at(n).knobs) changed += space.at(start).knobs.at(name) != value;
    EXPECT_EQ(changed, 1);
  }
  EXPECT_GE(moves, 5);
}

TEST(Space, knobs_step_by_one_accepted_value) {
  Problem p;
  p.kernel = kernel_of(R"(kernel scale(x: f32[B, 256] in, y: f32[B, 256] out) family row where B in 1..64
  for b < B [row]:
    for n < 256 [col]:
      y[b, n] = x[b, n] * 2.0
)");
  p.dims = {{"B", 8}};
  const ir::Target t = machine("zen5").target;
  RecipeSpace space(p, t, MachineRates::assumed(t));
  const Knobs& from = space.at(space.default_index()).knobs;
  ASSERT_EQ(from.at("unroll"), 4);
  const std::vector<int> near = space.neighbours(space.default_index());
  ASSERT_GE(near.size(), 2u);
  EXPECT_EQ(space.at(near[0]).knobs.at("unroll"), 6);
  EXPECT_EQ(space.at(near[1]).knobs.at("unroll"), 3);
  for (size_t i = 2; i < near.size(); ++i) EXPECT_TRUE(space.at(near[i]).knobs.empty()) << "moves, and of no recipe";
}

TEST(Space, a_kernel_without_a_recipe_has_generic_schedules) {
  Problem p;
  p.kernel = kernel_of(R"(kernel own(x: f32[64, 96] in, y: f32[64, 96] out)
  for i < 64:
    for j < 96:
      y[i, j] = x[i, j] * x[i, j]
)");
  ASSERT_EQ(find_recipe(p), nullptr);
  RecipeSpace space = space_of(p);
  EXPECT_GE(space.size(), 2);
  EXPECT_TRUE(space.domains().empty());
  EXPECT_TRUE(space.scheduled(space.default_index())->schedule.moves.empty());
  EXPECT_EQ(space.nearest({}), -1);
  const int before = space.size();
  const std::vector<int> near = space.neighbours(1);
  EXPECT_FALSE(near.empty());
  EXPECT_GE(space.size(), before);
  for (int i = 0; i < space.size(); ++i) {
    for (const float x : space.at(i).features) ASSERT_TRUE(std::isfinite(x));
  }
}

TEST(Space, nearest_is_itself_or_the_least_change) {
  RecipeSpace space = space_of(matmul_problem(16, 512, 2048, true));
  const Knobs k = space.at(space.size() / 2).knobs;
  EXPECT_EQ(space.nearest(k), space.size() / 2);
  Knobs odd = k;
  odd["unheard_of"] = 3;
  EXPECT_EQ(space.nearest(odd), space.size() / 2);
  odd["kc"] = 700;
  const int n = space.nearest(odd);
  ASSERT_GE(n, 0);
  EXPECT_EQ(space.at(n).knobs.at("kc"), 512);
}

TEST(Space, a_schedule_from_elsewhere_becomes_a_point) {
  RecipeSpace space = space_of(matmul_problem(16, 512, 2048, true));
  const int start = space.default_index(), before = space.size();
  const auto scheduled = space.scheduled(start);
  ASSERT_TRUE(scheduled.ok()) << scheduled.status().to_string();
  EXPECT_EQ(space.add(scheduled->schedule), start);
  Schedule bare = scheduled->schedule;
  bare.recipe.clear();
  bare.knobs.clear();
  const int added = space.add(bare);
  EXPECT_EQ(added, before);
  EXPECT_EQ(space.add(bare), added);
  EXPECT_EQ(to_text(space.scheduled(added)->schedule), to_text(bare));
  bare.moves.push_back(*parse_move("swap_scopes no_such other"));
  EXPECT_EQ(space.add(bare), -1);
  EXPECT_EQ(space.size(), before + 1);
}

TEST(Space, distance_of_knobs) {
  EXPECT_EQ(knob_distance({{"a", 4}}, {{"a", 4}}), 0);
  EXPECT_EQ(knob_distance({{"a", 4}}, {{"a", 16}}), 2);
  EXPECT_EQ(knob_distance({{"a", 0}}, {{"a", 512}}), 3);
  EXPECT_EQ(knob_distance({{"a", 0}}, {{"a", -1}}), 3);
  EXPECT_EQ(knob_distance({{"a", 4}}, {{"b", 4}}), 6);
  EXPECT_EQ(knob_distance({{"a", 4}}, {{"a", 4}, {"b", 4}}), 3);
}

}  // namespace
}  // namespace lathe::search
