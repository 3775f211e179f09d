// Traffic against counts by hand, features against what knobs say, the analytic stage's refit, and the starter pack.
#include "search/model/features.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "search/model/starter_pack.h"
#include "search/strategy/space.h"
#include "tests/search/model/problems.h"

namespace lathe::search {
namespace {

float value(const Features& x, Feature f) { return x[static_cast<size_t>(f)]; }

// y[m, n] += a[m, k] * b[k, n], 64^3 floats: 16 KB each.
TEST(Traffic, of_the_naive_matmul) {
  const ProblemFacts facts = facts_of(matmul_problem(64, 64, 64));
  const Structure& s = facts.naive;
  EXPECT_EQ(s.flops, 2.0 * 64 * 64 * 64);
  EXPECT_EQ(facts.compulsory_bytes, 3.0 * 64 * 64 * 4);
  const double kb = 1024;
  // Everything fits: nothing moves.
  for (const double bytes : traffic(s, 100 * kb, 64)) EXPECT_EQ(bytes, 0);
  // A row of A and all of B fit (m's body): A and the output once, B stays.
  const std::vector<double> some = traffic(s, 24 * kb, 64);
  EXPECT_EQ(some[0], 16 * kb);
  EXPECT_EQ(some[1], 16 * kb);
  // Not even that: B is read for each of the 64 rows.
  const std::vector<double> little = traffic(s, 8 * kb, 64);
  EXPECT_EQ(little[0], 16 * kb);
  EXPECT_GE(little[1], 64 * 16 * kb);
}

TEST(Traffic, cold_buffers_move_at_least_once) {
  const ProblemFacts facts = facts_of(matmul_problem(64, 64, 64, true));
  const std::vector<double> bytes = traffic(facts.naive, 1 << 20, 64);
  EXPECT_EQ(bytes[0], 0);
  EXPECT_EQ(bytes[1], 64.0 * 64 * 4);
}

TEST(Traffic, tiles_cut_what_is_read_again) {
  const ir::Target t = run_target();
  const Problem p = matmul_problem(256, 2048, 2048);
  const Featurizer f(p, t, run_rates(), find_recipe(p));
  Knobs narrow{{"mr", 2}, {"nr", 32}, {"kc", 0}, {"mc", 0}, {"pf", 0}}, wide = narrow;
  wide["mr"] = 8;
  EXPECT_LT(value(f.of(wide).x, Feature::k_b_l1), value(f.of(narrow).x, Feature::k_b_l1))
      << "B is walked by fewer tiles";
  EXPECT_LT(f.of(wide).us, f.of(narrow).us);
  Knobs blocked = wide;
  blocked["kc"] = 512;
  EXPECT_GT(value(f.of(blocked).x, Feature::k_c_l1), value(f.of(wide).x, Feature::k_c_l1))
      << "partial sums wait in memory";
  EXPECT_EQ(value(f.of(blocked).x, Feature::k_block_depth), static_cast<float>(std::log2(513)));
}

TEST(Features, say_what_the_knobs_say) {
  const ir::Target t = machine("zen5").target;  // sixteen lanes; memory decides
  const Problem p = matmul_problem(16, 4096, 4096, true, 2);
  const Featurizer f(p, t, MachineRates::assumed(t), find_recipe(p));
  const Features x = f.of({{"mr", 7}, {"nr", 48}, {"kc", 1024}, {"mc", 0}, {"pf", 8192}}).x;
  EXPECT_EQ(value(x, Feature::k_tile_rows), 3);
  EXPECT_EQ(value(x, Feature::k_tile_vectors), 2);
  EXPECT_EQ(value(x, Feature::k_prefetch_bytes), static_cast<float>(std::log2(8193)));
  EXPECT_EQ(value(x, Feature::k_cold), 1);
  EXPECT_EQ(value(x, Feature::k_bottleneck), 4) << "weights from memory";
  EXPECT_EQ(value(x, Feature::k_padded), 1) << "the last panel is one vector, and whole";
  EXPECT_EQ(value(x, Feature::k_rows), static_cast<float>(std::log2(17)));
  const Features free = features(p, t, MachineRates::assumed(t), find_recipe(p),
                                 {{"mr", 7}, {"nr", 48}, {"kc", 1024}, {"pf", 8192}, {"mc", 0}});
  EXPECT_EQ(free, x);
}

// Those that the structure of a candidate does not say are features by their own names.
TEST(Features, say_every_knob) {
  for (const Recipe& r : recipes()) {
    for (const Knob& k : r.table()) {
      const auto& table = feature_table();
      const bool named = std::any_of(table.begin(), table.end(),
                                     [&](const FeatureInfo& f) { return f.name == std::string_view(k.name); });
      EXPECT_TRUE(k.seen || named) << r.name << ": " << k.name;
    }
  }
  const ir::Target t = run_target();
  const Problem p = softmax_problem(64, 1024);
  const Featurizer f(p, t, run_rates(), find_recipe(p));
  Knobs knobs = find_recipe(p)->defaults(p, t);
  knobs["online"] = 1;
  knobs["overlap"] = 2;
  knobs["again"] = 0;
  const Features x = f.of(knobs).x;
  EXPECT_EQ(value(x, Feature::k_online), 1);
  EXPECT_EQ(value(x, Feature::k_overlap), static_cast<float>(std::log2(3)));
  EXPECT_EQ(value(x, Feature::k_recompute), 0);
  EXPECT_EQ(value(x, Feature::k_keys), 0) << "a knob of another recipe";
}

TEST(Features, of_a_scheduled_kernel_agree_with_the_knobs_on_the_tile) {
  const ir::Target t = run_target();
  const Problem p = matmul_problem(16, 512, 512, true);
  const Featurizer f(p, t, run_rates(), find_recipe(p));
  const Knobs k{{"mr", 8}, {"nr", 32}, {"kc", 0}, {"mc", 0}, {"pf", 0}};
  Knobs all = find_recipe(p)->defaults(p, t);
  for (const auto& [name, v] : k) all[name] = v;
  const auto schedule = find_recipe(p)->build(all, p, t);
  ASSERT_TRUE(schedule.ok());
  const auto kernel = replay(p.kernel, *schedule);
  ASSERT_TRUE(kernel.ok());
  const Features by_knobs = f.of(all).x, by_kernel = f.of(*kernel).x;
  for (const Feature same : {Feature::k_tile_rows, Feature::k_tile_vectors, Feature::k_tasks, Feature::k_flops,
                             Feature::k_padded, Feature::k_parallel_axis}) {
    EXPECT_NEAR(value(by_knobs, same), value(by_kernel, same), 1e-3) << feature_table()[static_cast<size_t>(same)].name;
  }
  EXPECT_EQ(f.of(all, *kernel, *kernel).x, by_knobs);
}

TEST(Features, the_table_has_every_group_and_no_name_twice) {
  std::set<std::string> names, groups;
  for (const FeatureInfo& f : feature_table()) {
    names.insert(f.name);
    groups.insert(f.group);
  }
  EXPECT_EQ(static_cast<int>(names.size()), kFeatures);
  EXPECT_THAT(groups, testing::UnorderedElementsAre("problem", "analytic", "locality", "structure", "memory", "policy",
                                                    "knob"));
  EXPECT_EQ(feature_hash().size(), 16u);
}

TEST(StarterPack, parses_and_is_small) {
  EXPECT_LT(starter_pack_text().size(), 300u << 10);
  const auto parsed = parse_records(starter_pack_text());
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(starter_pack().size(), parsed->size());
  for (const TaskRecord& r : *parsed) {
    EXPECT_FALSE(r.rows.empty());
    EXPECT_FALSE(r.environment.empty());
    EXPECT_NE(find_recipe(r.problem), nullptr) << r.problem.kernel.name;
  }
}

}  // namespace
}  // namespace lathe::search
