// What a search starts from: the family's rows and rates always, a model if there is one or training is allowed.
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
  ASSERT_NE(task.history, nullptr);
  EXPECT_FALSE(task.history->empty()) << "the starter pack's";
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

}  // namespace
}  // namespace lathe::runtime
