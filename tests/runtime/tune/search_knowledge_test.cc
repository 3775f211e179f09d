// What a search starts from: rates always, the family's model if there is one or training is allowed; where it leaves
// what it measured.
#include "runtime/tune/search_knowledge.h"

#include <gtest/gtest.h>

#include "ir/core/text_form.h"
#include "runtime/tune/tuning_history.h"

namespace lathe::runtime {
namespace {

std::shared_ptr<Context> bare() {
  ContextConfig config;
  (void)config.options.set(ir::OptionId::cache, "off").ok();
  return Context::create(config).value();
}

SearchTask row_task() {
  SearchTask task;
  task.problem.kernel = ir::parse_kernel(R"(
kernel scale(x: f32[64, 256] in, y: f32[64, 256] out) family row
  for b < 64 [row]:
    for n < 256 [col]:
      y[b, n] = x[b, n] * 2.0
)")
                            .value();
  return task;
}

TEST(SearchKnowledge, WithoutTrainingAModelIsUsedIfItIsThere) {
  const std::shared_ptr<Context> context = bare();
  SearchTask task = row_task();
  SearchKnowledge never(*context, SearchKnowledge::Training::never);
  never.equip(&task);
  EXPECT_NE(task.rates, nullptr);
  EXPECT_EQ(task.model, nullptr) << "nothing was trained";

  SearchTask trained = row_task();
  SearchKnowledge(*context).equip(&trained);
  ASSERT_NE(trained.model, nullptr);
  ASSERT_TRUE(trained.model->trusted());
  SearchTask later = row_task();
  SearchKnowledge(*context, SearchKnowledge::Training::never).equip(&later);
  ASSERT_NE(later.model, nullptr) << "as another search left it";
  EXPECT_TRUE(later.model->trusted());
}

TEST(SearchKnowledge, WhatASearchMeasuredIsHistoryForTheNext) {
  const std::shared_ptr<Context> context = bare();
  SearchTask task = row_task();
  SearchKnowledge knowledge(*context, SearchKnowledge::Training::never);
  knowledge.equip(&task);
  const auto rows = [&] { return load_history(context->store(), "row", context->environment()); };
  const size_t before = rows().size();
  search::TaskRecord record;
  record.problem = task.problem;
  record.rows.push_back({"rows.1", {}, {}, search::Outcome::timed, {5.0}, 0});
  record.isa = "avx512";
  record.policy = "hot";
  task.keep(record);
  ASSERT_EQ(rows().size(), before + 1);
  EXPECT_EQ(rows()[0].environment, context->environment()) << "own rows come first";
}

}  // namespace
}  // namespace lathe::runtime
