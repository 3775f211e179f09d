// A search end to end, evaluated in process: what is recorded, what is counted, what is never timed.
#include <gtest/gtest.h>

#include "ir/core/text_form.h"
#include "runtime/measure/evaluation.h"
#include "runtime/tune/warmup_search.h"

namespace lathe::runtime {
namespace {

const char* const kMatmul = R"(
kernel mm(a: f32[24, 96] in, w: f32[80, 96] const, y: f32[24, 80] out) family matmul
  c: f32[24, 80] heap
  for m < 24 [m]:
    for n < 80 [n]:
      c[m, n] = 0.0
      for k < 96 [k]:
        c[m, n] += a[m, k] * w[n, k]
      y[m, n] = c[m, n]
)";

struct Bed {
  std::shared_ptr<Context> context = [] {
    ContextConfig config;
    (void)config.options.set(ir::OptionId::cache, "off").ok();
    return Context::create(config).value();
  }();
  LeafCache leaves{{}, nullptr, nullptr};
  int begun = 0;

  SearchTask task() const {
    SearchTask t;
    t.problem.kernel = ir::parse_kernel(kMatmul).value();
    t.query.structure = ir::print(t.problem.kernel);
    t.query.allowed = ir::kReassociate | ir::kContract;
    t.candidates = 6;
    t.ram = int64_t{1} << 30;
    return t;
  }
  ir::Result<SearchOutcome> search(const SearchTask& t) {
    return search_and_record(
        *context, t,
        [this](const EvaluateTask& job) {
          ++begun;
          return begin_evaluation(job, leaves);
        },
        std::nullopt);
  }
};

TEST(SearchAndRecord, CountsAndRecords) {
  Bed bed;
  SearchTask task = bed.task();
  search::TaskRecord kept;
  task.keep = [&](const search::TaskRecord& r) { kept = r; };
  const ir::Result<SearchOutcome> out = bed.search(task);
  ASSERT_TRUE(out.ok()) << out.status().to_string();
  EXPECT_TRUE(out->measured && out->recorded);
  EXPECT_GE(out->measurements, 2);
  EXPECT_LE(out->measurements, 6);
  EXPECT_LE(out->further, 64);
  EXPECT_GE(out->proposals, out->measurements);
  EXPECT_EQ(out->rejected, 0);
  const std::optional<Decision> decision = bed.context->find_decision(task.query);
  ASSERT_TRUE(decision);
  EXPECT_EQ(decision->schedule, search::to_text(out->winner.schedule));
  EXPECT_EQ(decision->status, out->tie ? DecisionStatus::tie : DecisionStatus::verified);
  EXPECT_EQ(decision->candidates.size(), static_cast<size_t>(out->measurements));
  // The rows are the memory of later searches.
  ASSERT_EQ(kept.rows.size(), static_cast<size_t>(out->measurements + out->rejected));
  EXPECT_EQ(kept.policy, "hot");
  const ir::Result<search::TaskRecord> back = search::parse_record(search::print_record(kept));
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(back->rows.size(), kept.rows.size());
}

// Without a worker a similar problem's winner serves, but not where other ranges have their constants packed otherwise.
TEST(SearchAndRecord, ASimilarWinnerServesWhereItsLayoutsFit) {
  const search::Schedule naive = search::parse_schedule("schedule 1 family matmul class exact\n").value();
  for (const bool one_layout : {false, true}) {
    Bed bed;
    SearchTask task = bed.task();
    task.problem.one_layout = one_layout;
    const auto no_worker = [](const EvaluateTask&) -> ir::Result<std::unique_ptr<Evaluation>> {
      return ir::make_error(ir::Code::kIO, "no worker");
    };
    const ir::Result<SearchOutcome> out = search_and_record(*bed.context, task, no_worker, naive);
    ASSERT_TRUE(out.ok()) << out.status().to_string();
    EXPECT_FALSE(out->measured);
    EXPECT_EQ(out->winner.schedule.moves.empty(), !one_layout);
  }
}

// A search of one range does not pack a constant in another way than those that other ranges read.
TEST(SearchAndRecord, ACandidateThatPacksOtherwiseIsRefusedWhereOtherRangesReadTheConstant) {
  for (const bool one_layout : {false, true}) {
    Bed bed;
    SearchTask task = bed.task();
    task.problem.one_layout = one_layout;
    task.candidates = 1;
    task.incumbent = search::parse_schedule("schedule 1 family matmul\ntile_buffer w 0 5\n").value();
    const ir::Result<SearchOutcome> out = bed.search(task);
    ASSERT_TRUE(out.ok()) << out.status().to_string();
    EXPECT_EQ(out->refused, one_layout ? 1 : 0);
    EXPECT_EQ(out->measurements, one_layout ? 1 : 2);
    // Named by who serves: it may pack as it likes.
    if (!one_layout) continue;
    task.pinned = task.incumbent;
    const ir::Result<SearchOutcome> pinned = bed.search(task);
    EXPECT_TRUE(pinned.ok()) << pinned.status().to_string();
  }
}

TEST(SearchAndRecord, LibertiesThatAreNotAllowedAreNotTaken) {
  Bed bed;
  SearchTask task = bed.task();
  task.query.allowed = 0;
  const ir::Result<SearchOutcome> out = bed.search(task);
  ASSERT_TRUE(out.ok()) << out.status().to_string();
  EXPECT_GT(out->refused, 0);
  const std::optional<Decision> decision = bed.context->find_decision(task.query);
  ASSERT_TRUE(decision);
  EXPECT_EQ(decision->numeric, 0u);
}

TEST(SearchAndRecord, APinnedScheduleIsVerifiedAndServes) {
  Bed bed;
  SearchTask task = bed.task();
  const std::string naive = "schedule 1 family matmul class exact\n";
  task.pinned = search::parse_schedule(naive).value();
  const ir::Result<SearchOutcome> out = bed.search(task);
  ASSERT_TRUE(out.ok()) << out.status().to_string();
  EXPECT_EQ(search::to_text(out->winner.schedule), naive);
  EXPECT_EQ(out->measurements, 2) << "the default and itself";
  EXPECT_EQ(bed.context->find_decision(task.query)->schedule, naive);
  task.pinned = search::parse_schedule(naive + "tile_scope q 4 tail=mask as a,b\n").value();
  EXPECT_EQ(bed.search(task).status().code(), ir::Code::kUNSUPPORTED);
}

TEST(SearchAndRecord, AnIncumbentIsMeasuredToo) {
  Bed bed;
  SearchTask task = bed.task();
  task.incumbent = search::parse_schedule("schedule 1 family matmul\n").value();  // far slower than the default
  const ir::Result<SearchOutcome> out = bed.search(task);
  ASSERT_TRUE(out.ok()) << out.status().to_string();
  EXPECT_FALSE(out->winner.schedule.moves.empty());
  EXPECT_LE(out->measurements, 6);
}

TEST(SearchAndRecord, CancelledAndTooLarge) {
  Bed bed;
  SearchTask task = bed.task();
  task.cancelled = [] { return true; };
  EXPECT_EQ(bed.search(task).status().code(), ir::Code::kCANCELLED);
  task = bed.task();
  task.ram = 1000;
  const int before = bed.begun;
  const ir::Result<SearchOutcome> out = bed.search(task);
  ASSERT_TRUE(out.ok());
  EXPECT_FALSE(out->measured);
  EXPECT_TRUE(out->recorded);
  EXPECT_EQ(bed.begun, before);
}

}  // namespace
}  // namespace lathe::runtime
