// Bodies for all lengths: measured where they were tuned, counted on by near tasks elsewhere, the default where nothing
// is better.
#include "search/strategy/bodies.h"

#include <gtest/gtest.h>

#include <memory>

#include "ir/core/text_form.h"
#include "search/strategy/prior.h"

namespace lathe::search {
namespace {

Problem matmul_of(int64_t m) {
  Problem p;
  p.kernel =
      ir::parse_kernel(
          fmt::format("kernel matmul(a: f32[{0}, 512] in, b: f32[512, 512] const, y: f32[{0}, 512] out) family matmul\n"
                      "  c: f32[{0}, 512] heap\n"
                      "  for m < {0} [m]:\n"
                      "    for n < 512 [n]:\n"
                      "      c[m, n] = 0.0\n"
                      "      for k < 512 [k]:\n"
                      "        c[m, n] += a[m, k] * b[k, n]\n"
                      "      y[m, n] = c[m, n]\n",
                      m))
          .value();
  return p;
}

class Bodies : public ::testing::Test {
 protected:
  Bodies() {
    target_.level = ir::IsaLevel::avx512;
    target_.lanes = 16;
    target_.vector_registers = 32;
    target_.mask_registers = 7;
    for (const int64_t m : {8, 16, 32}) {
      problems_.push_back(std::make_unique<Problem>(matmul_of(m)));
      spaces_.push_back(std::make_unique<RecipeSpace>(*problems_.back(), target_, MachineRates::assumed(target_)));
    }
  }
  // A length whose setting `fast` takes a third of what all others do.
  ServedLength tuned(size_t at, const Knobs& fast) {
    ServedLength out = untuned(at);
    TaskRecord record;
    record.problem = *problems_[at];
    const int standard = spaces_[at]->default_index();
    for (int i = 0; i < spaces_[at]->size(); i += 7) {
      for (const int p : {i == 0 ? standard : i, i == 0 ? spaces_[at]->nearest(fast) : i}) {
        MeasuredRow row;
        row.recipe = "panel.1";
        row.knobs = spaces_[at]->at(p).knobs;
        row.samples_us = {row.knobs == fast ? 100.0 : 300.0};
        out.measured.emplace_back(row.knobs, row.samples_us[0]);
        record.rows.push_back(row);
      }
    }
    history_.push_back(record);
    return out;
  }
  ServedLength untuned(size_t at) {
    ServedLength out;
    out.length = 8 << at;
    out.search.problem = problems_[at].get();
    out.search.target = &target_;
    out.search.space = spaces_[at].get();
    out.search.history = &history_;
    return out;
  }
  ir::Target target_;
  std::vector<std::unique_ptr<Problem>> problems_;
  std::vector<std::unique_ptr<RecipeSpace>> spaces_;
  std::vector<TaskRecord> history_;
};

TEST_F(Bodies, what_is_fast_on_both_sides_serves_between) {
  const Knobs fast = {{"kc", 0}, {"mc", 0}, {"mr", 8}, {"nr", 32}, {"pa", 0}, {"pf", 0}, {"st", 1}};
  ASSERT_EQ(spaces_[1]->at(spaces_[1]->nearest(fast)).knobs, fast);
  ASSERT_NE(spaces_[1]->at(spaces_[1]->default_index()).knobs, fast);
  const ServedLength below = tuned(0, fast), above = tuned(2, fast);
  const BodyPlan plan = plan_bodies({below, untuned(1), above}, 4);
  ASSERT_FALSE(plan.rules.empty());
  EXPECT_TRUE(plan.settings[0].empty());
  for (const int64_t length : {8, 16, 32, 4096}) {
    EXPECT_EQ(plan.settings[static_cast<size_t>(body_for(plan.rules, length))], fast) << length;
  }
  EXPECT_EQ(plan.rules.size(), 1u);
}

TEST_F(Bodies, without_history_every_length_has_its_default) {
  const BodyPlan plan = plan_bodies({untuned(0), untuned(1), untuned(2)}, 4);
  ASSERT_EQ(plan.rules.size(), 1u);
  EXPECT_EQ(plan.rules[0].config, 0);
}

}  // namespace
}  // namespace lathe::search
