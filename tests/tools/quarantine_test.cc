// A candidate that really crashed its worker is held back, listed by the command line, lifted by it, and tried again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/core/text_form.h"
#include "jit/host/host_cpu.h"
#include "runtime/base/stats.h"
#include "runtime/measure/worker_client.h"
#include "runtime/store/store.h"
#include "search/sketches/recipe.h"
#include "tests/common/generators.h"
#include "tests/tools/process.h"
#include "tests/worker/plant.h"

namespace lathe::tools {
namespace {

using nlohmann::json;
using runtime::CandidateSpec;
using search::Outcome;
using testing::HasSubstr;

const char* const kRelu = R"(
kernel relu(x: f32[8, 40] in, y: f32[8, 40] out) family elementwise
  for i < 8 [row]:
    for j < 40 [col]:
      y[i, j] = max(x[i, j], 0.0)
)";

// What becomes of a second candidate beside the Kernel as it is.
runtime::CandidateResult second(const std::string& store_path, const std::string& schedule,
                                const std::string& path = {}) {
  runtime::Stats stats;
  runtime::StoreOptions options;
  options.layers = {{store_path, runtime::LayerMode::private_rw}};
  const std::unique_ptr<runtime::Store> store = std::move(runtime::Store::open(options, &stats)).value();
  runtime::WorkerOptions worker;
  worker.path = path;
  worker.store = store.get();
  runtime::WorkerClient client(worker);
  runtime::EvaluateTask task;
  task.kernel_text = kRelu;
  const auto evaluation = client.begin(task);
  EXPECT_TRUE(evaluation.ok()) << evaluation.status().to_string();
  search::Schedule naive;
  naive.family = "elementwise";
  const auto results = (*evaluation)->screen({{search::to_text(naive), true}, {schedule, true}});
  EXPECT_TRUE(results.ok()) << results.status().to_string();
  return (*results)[1];
}

TEST(Quarantine, WhatCrashedIsHeldBackUntilItIsLifted) {
  if (!test::generates()) GTEST_SKIP() << "no native level on this machine";
  const TempDir dir;
  search::Problem problem;
  problem.kernel = ir::parse_kernel(kRelu).value();
  const std::string schedule =
      runtime::planted(search::to_text(search::default_schedule(problem, jit::host_target())), "crash");
  EXPECT_EQ(second(dir.path, schedule, LATHE_PLANTING_WORKER_PATH).outcome, Outcome::crashed);
  // The product's worker plants nothing, but nobody tries.
  const runtime::CandidateResult held = second(dir.path, schedule);
  EXPECT_EQ(held.outcome, Outcome::crashed);
  EXPECT_THAT(held.reason, HasSubstr("quarantined"));

  const Finished listed = lathe({"store", "quarantine", "--json", "--store", dir.path});
  ASSERT_EQ(listed.code, 0) << listed.err;
  ASSERT_EQ(listed.rows().size(), 1u);
  const json row = listed.rows()[0];
  EXPECT_THAT(row["why"].get<std::string>(), HasSubstr("crashed"));
  EXPECT_FALSE(row["lifted"].get<bool>());
  EXPECT_EQ(lathe({"store", "quarantine", "--json", "--store", dir.path, "--lift", "0nobody"}).code, 1);
  EXPECT_THAT(second(dir.path, schedule).reason, HasSubstr("quarantined"));

  const Finished lifted = lathe(
      {"store", "quarantine", "--json", "--store", dir.path, "--lift", row["name"].get<std::string>().substr(0, 8)});
  ASSERT_EQ(lifted.code, 0) << lifted.err;
  EXPECT_EQ(lifted.summary()["lifted"], 1);
  EXPECT_EQ(lifted.summary()["quarantined"], 0);
  const runtime::CandidateResult tried = second(dir.path, schedule);
  EXPECT_EQ(tried.outcome, Outcome::timed) << tried.reason;
  EXPECT_TRUE(lathe({"store", "quarantine", "--json", "--store", dir.path}).rows().empty());
}

}  // namespace
}  // namespace lathe::tools
