// Kernels that no recipe knows, by general rules: every Schedule becomes machine code and computes what its Kernel
// says; their neighbours do, or are refused.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "ir/core/text_form.h"
#include "jit/host/host_cpu.h"
#include "runtime/compile/compiler.h"
#include "runtime/oracle/oracle.h"
#include "search/model/neighbours.h"
#include "search/sketches/generic_schedules.h"
#include "tests/common/generators.h"

namespace lathe::runtime {
namespace {

struct Case {
  const char* name;
  SymbolValues dims;
};
const Case kCases[] = {{"matmul", {{"M", 13}}},
                       {"softmax", {{"R", 7}, {"C", 201}}},
                       {"layernorm", {{"R", 7}, {"C", 201}}},
                       {"rmsnorm", {{"R", 7}, {"C", 201}}},
                       {"transpose", {{"P", 37}, {"Q", 71}}},
                       {"chain", {{"R", 7}, {"C", 201}}},
                       {"gated", {{"M", 5}}}};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class NoRecipe : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!jit::host_target().has(ir::IsaLevel::avx2)) GTEST_SKIP() << "no vector instructions to generate";
    std::ifstream in(std::filesystem::path(LATHE_SOURCE_DIR) / "tests/search/no_recipe" /
                     (std::string(GetParam().name) + ".lir"));
    std::stringstream text;
    text << in.rdbuf();
    ir::Result<ir::Kernel> kernel = ir::parse_kernel(text.str());
    ASSERT_TRUE(kernel.ok()) << kernel.status().to_string();
    problem_.kernel = std::move(*kernel);
    problem_.dims = GetParam().dims;
    ir::Result<std::unique_ptr<Oracle>> oracle = Oracle::create({problem_.kernel, GetParam().dims, 1, 5}, nullptr);
    ASSERT_TRUE(oracle.ok()) << oracle.status().to_string();
    oracle_ = std::move(*oracle);
  }
  // Built by xbyak alone, and right; a refusal is the Status.
  ir::Status check(const search::Schedule& schedule) {
    LeafPolicy policy;
    policy.llvm = false;
    policy.portable = !test::generates();
    LATHE_ASSIGN(const Stage stage, build_stage(problem_.kernel, schedule, jit::host_target(), leaves_, policy));
    LATHE_ASSIGN(const Verdict verdict, oracle_->verify(stage));
    EXPECT_TRUE(verdict.ok) << verdict.reason << "\n" << to_text(schedule);
    return {};
  }

  search::Problem problem_;
  LeafCache leaves_{{}, nullptr, nullptr};
  std::unique_ptr<Oracle> oracle_;
};

TEST_P(NoRecipe, GenericSchedulesBuildAndAreRight) {
  const std::vector<search::Schedule> list = search::candidates(problem_, jit::host_target(), 9);
  ASSERT_GE(list.size(), 2u);
  EXPECT_TRUE(list[0].moves.empty()) << "the Kernel as it is comes first: it is safe";
  int built = 0;
  for (size_t i = 1; i < list.size(); ++i) {
    const ir::Status status = check(list[i]);
    // Sixteen registers do not hold all that the rules unroll: xbyak refuses then, and a search drops the candidate or
    // LLVM spills.
    const bool tight = status.code() == ir::Code::kUNSUPPORTED && jit::host_target().vector_registers == 16 &&
                       status.message().find("vector registers") != std::string::npos;
    EXPECT_TRUE(status.ok() || tight) << status.to_string() << "\n" << to_text(list[i]);
    built += status.ok();
  }
  EXPECT_GE(built, 1);
}

TEST_P(NoRecipe, NeighboursAreRightOrRefused) {
  const std::vector<search::Schedule> start = search::generic_schedules(problem_, jit::host_target(), 1);
  ASSERT_EQ(start.size(), 1u);
  int built = 0;
  for (const search::Neighbour& n : search::neighbours(problem_, jit::host_target(), start[0], 12, 3))
    built += check(n.schedule).ok();
  EXPECT_GE(built, 2);
}
INSTANTIATE_TEST_SUITE_P(All, NoRecipe, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lathe::runtime
