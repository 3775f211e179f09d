// The child that a shadow runs in, from its host's side: standing still while tuning is switched off, and what it is
// charged for. What it compares is tested with the promotions (online_test.cc).
#include <gtest/gtest.h>

#include "ir/core/text_form.h"
#include "runtime/live/shadow.h"
#include "runtime/oracle/data_sets.h"
#include "runtime/serve/context.h"
#include "runtime/serve/operator.h"
#include "runtime/serve/recorded_calls.h"
#include "tests/worker/plant.h"

namespace lathe::runtime {
namespace {

struct Case {
  Case() {
    ContextConfig config;
    (void)config.options.set(ir::OptionId::cache, "off").ok();
    context = Context::create(std::move(config)).value();
    ops::Graph g;
    g.name = "shadowed";
    const int x = ops::add_tensor(g, "x", {ops::fixed_dim(4), ops::fixed_dim(64)});
    g.outputs = {ops::add_node(g, "relu", {x}, "y")};
    const auto op = Operator::create(context, ops::finish(g).value()).value();
    const search::Problem problem = op->problem(0, {}, {});
    std::vector<RecordedParam> params;
    SymbolValues none;
    const std::vector<OperandShape> shapes = operand_shapes(problem.kernel, &none).value();
    for (const OperandShape& s : shapes) {
      params.push_back({s.place == ir::Place::out ? RecordedParam::Kind::out : RecordedParam::Kind::in, s.bytes()});
    }
    calls = RecordedCalls::create(params, 2).value();
    task.kernel_text = ir::print(problem.kernel);
    task.schedule = search::to_text(search::default_schedule(problem, context->target()));
    task.recorded = calls->path();
    task.schedule = planted(task.schedule, "hang");
    child.path = LATHE_PLANTING_WORKER_PATH;
    child.silence_ms = 300;
    child.used = [this](int64_t cpu_ns) { used += cpu_ns; };
  }
  std::shared_ptr<Context> context;
  std::unique_ptr<RecordedCalls> calls;
  ShadowTask task;
  ShadowChild child;
  int64_t used = 0;
  int asked = 0;
};

TEST(ShadowChild, standing_still_is_not_hanging) {
  Case c;
  constexpr int kPaused = 10;  // three times what would be silence
  c.child.paused = [&c] { return ++c.asked <= kPaused; };
  const ir::Result<ShadowResult> result = shadow_in_child(c.task, c.child);
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  EXPECT_EQ(result->outcome, ShadowResult::Outcome::hung) << result->reason;
  EXPECT_GT(c.asked, kPaused) << "it goes on, and only then hangs";
  EXPECT_EQ(c.used, result->cpu_ns);
}

TEST(ShadowChild, one_that_is_cancelled_is_charged_for) {
  Case c;
  c.child.silence_ms = 20'000;
  c.child.cancelled = [&c] { return c.used > 0 && ++c.asked >= 2; };
  const ir::Result<ShadowResult> result = shadow_in_child(c.task, c.child);
  EXPECT_EQ(result.status().code(), ir::Code::kCANCELLED);
  EXPECT_GT(c.used, 0);
}

}  // namespace
}  // namespace lathe::runtime
