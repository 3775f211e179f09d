// The proof before code refuses no Schedule that a recipe makes: the defaults of every shipped workload, over the whole
// range and the hinted ones, and what the search would try first, for each vector level.
#include <gtest/gtest.h>

#include <set>

#include "ir/core/text_form.h"
#include "runtime/serve/operator.h"
#include "search/cut/safe_kernel.h"
#include "tests/common/workload_rows.h"

namespace lathe::runtime {
namespace {

// Generated code of that level, whatever the host has.
ir::Target target_of(ir::IsaLevel level) {
  ir::Target t;
  t.level = level;
  t.lanes = level == ir::IsaLevel::avx512 ? 16 : 8;
  t.vector_registers = level == ir::IsaLevel::avx512 ? 32 : 16;
  return t;
}

int check(const search::Problem& problem, std::set<std::string>& seen) {
  if (!seen.insert(ir::print(problem.kernel) + (problem.cold ? "cold" : "")).second) return 0;
  int checked = 0;
  for (const ir::IsaLevel level : {ir::IsaLevel::avx512, ir::IsaLevel::avx2, ir::IsaLevel::portable}) {
    for (const search::Schedule& s : search::candidates(problem, target_of(level), 3)) {
      const ir::Result<ir::Kernel> scheduled = search::replay(problem.kernel, s);
      EXPECT_TRUE(scheduled.ok()) << scheduled.status().to_string();
      if (!scheduled.ok()) continue;
      const ir::Status safe = search::check_safe(problem.kernel, *scheduled);
      EXPECT_TRUE(safe.ok()) << safe.to_string() << "\n"
                             << ir::print(problem.kernel) << search::to_text(s) << ir::print(*scheduled);
      ++checked;
    }
  }
  return checked;
}

class ProvenSchedules : public testing::TestWithParam<const char*> {};

TEST_P(ProvenSchedules, OfTheWorkload) {
  const std::shared_ptr<Context> context = Context::create({}).value();
  std::set<std::string> seen;
  int checked = 0;
  for (const ops::Workload& item : test::workload_rows(GetParam())) {
    const std::shared_ptr<Operator> op = Operator::create(context, ops::finish(item.graph).value()).value();
    PrepareRequest request;
    request.threads = item.threads;
    request.cold = item.cache == ops::CacheState::cold;
    for (int k = 0; k < static_cast<int>(op->lowered().kernels.size()); ++k) {
      for (const bool packed : {true, false}) checked += check(op->general_problem(k, packed, request), seen);
      for (const SymbolValues& dims : op->hinted_dims()) checked += check(op->problem(k, dims, request), seen);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(checked, 0);
}

INSTANTIATE_TEST_SUITE_P(All, ProvenSchedules,
                         testing::Values("limits", "minilm-l6", "bert-base", "smollm2-135m", "qwen2.5-0.5b",
                                         "llama3-8b-layer"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace lathe::runtime
