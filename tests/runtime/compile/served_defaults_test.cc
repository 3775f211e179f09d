// The default setting of each recipe makes a Schedule for every workload that ships, on every machine that tests know:
// where its moves are refused, something slower serves in its place and no other test notices.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "ir/core/text_form.h"
#include "runtime/serve/operator.h"
#include "search/cut/cut.h"
#include "search/sketches/recipe.h"
#include "tests/common/machines.h"
#include "tests/common/workload_rows.h"

namespace lathe::runtime {
namespace {

std::vector<std::string> workloads() {
  std::vector<std::string> out;
  for (const auto& file : std::filesystem::directory_iterator(std::string(LATHE_SOURCE_DIR) + "/bench/workloads")) {
    if (file.path().extension() == ".jsonl") out.push_back(file.path().stem().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

// Empty: it makes one whose leaves can be cut.
std::string refusal(const search::Problem& problem, const ir::Target& target) {
  const search::Recipe* recipe = search::find_recipe(problem);
  if (recipe == nullptr) return "";
  const std::unique_ptr<search::Sketch> sketch = recipe->sketch(problem, target);
  const search::Knobs standard = sketch->defaults();
  if (standard.empty()) return std::string(recipe->name) + ": no setting is accepted";
  const ir::Result<search::Scheduled> scheduled = sketch->script(standard);
  if (!scheduled.ok()) return std::string(recipe->name) + ": " + scheduled.status().to_string();
  const auto cut = search::cut(scheduled->kernel);
  return cut.ok() ? "" : std::string(recipe->name) + ": " + cut.status().to_string();
}

class ServedDefaults : public testing::TestWithParam<std::string> {};

TEST_P(ServedDefaults, AreNotRefused) {
  const std::shared_ptr<Context> context = Context::create({}).value();
  std::set<std::string> seen;
  int checked = 0;
  const auto check = [&](const search::Problem& problem, const std::string& row) {
    const std::string form = fmt::format("{}{} {}", ir::print(problem.kernel), problem.cold, problem.threads);
    if (!seen.insert(form).second) return;
    for (const test::Machine& machine : test::machines()) {
      const std::string why = refusal(problem, machine.target);
      EXPECT_TRUE(why.empty()) << why << "\n" << row << " on " << machine.name << ", " << problem.threads << " threads";
      ++checked;
    }
  };
  for (const ops::Workload& item : test::workload_rows(GetParam())) {
    const std::shared_ptr<Operator> op = Operator::create(context, ops::finish(item.graph).value()).value();
    for (const int threads : {1, 2}) {
      PrepareRequest request;
      request.threads = threads;
      request.cold = item.cache == ops::CacheState::cold;
      for (int k = 0; k < static_cast<int>(op->lowered().kernels.size()); ++k) {
        check(op->general_problem(k, true, request), item.name);
        for (const SymbolValues& dims : op->hinted_dims()) check(op->problem(k, dims, request), item.name);
      }
    }
  }
  EXPECT_GT(checked, 0);
}

INSTANTIATE_TEST_SUITE_P(All, ServedDefaults, testing::ValuesIn(workloads()), [](const auto& info) {
  std::string name = info.param;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
});

}  // namespace
}  // namespace lathe::runtime
