// Products of bf16 where the caller allows bf16_dots: native code on every level that generates any, pairs where the
// CPU has the instruction, right at sizes around tiles and for an odd K.
#include "tests/sweep/sweep_case.h"

namespace lathe::runtime {
namespace {

ops::Graph product(const ops::DimDesc& m, int64_t n, int64_t k) {
  ops::Graph g;
  const std::vector<int> in = {ops::add_tensor(g, "a", {m, ops::fixed_dim(k)}, false, ir::DType::bf16),
                               ops::add_tensor(g, "b", {ops::fixed_dim(k), ops::fixed_dim(n)}, true, ir::DType::bf16)};
  g.outputs = {ops::add_node(g, "matmul", in, "y", {})};
  return g;
}

TEST(Bf16Dots, ServeWhereTheCallerAllowsThem) {
  struct Size {
    int64_t n, k;
  };
  for (const Size size : {Size{64, 64}, Size{33, 130}, Size{31, 2}, Size{95, 63}, Size{1, 64}}) {
    for (const ops::DimDesc& m :
         {ops::fixed_dim(1), ops::fixed_dim(9), ops::fixed_dim(40), ops::symbol_dim("M", 1, 512, {{1, 1}, {13, 1}})}) {
      const auto graph = ops::finish(product(m, size.n, size.k));
      ASSERT_TRUE(graph.ok()) << graph.status().to_string();
      for (const Level& level : levels()) {
        for (const bool allows : {true, false}) {
          SCOPED_TRACE(fmt::format("{} x {} x {} on {}", ops::dim_text(m), size.n, size.k, level.name));
          auto op = Operator::create(level.context, *graph);
          ASSERT_TRUE(op.ok()) << op.status().to_string();
          PrepareRequest request;
          request.allowed = allows ? kDefaultAllowed | ir::kBf16Dots : 0;
          ASSERT_TRUE((*op)->stages().prepare(request).ok());
          const Stage& stage = (*op)->stages().of(0)[0]->stage;
          const search::Problem problem = (*op)->general_problem(0, true, request);
          const bool pairs =
              allows && size.n > 1 && size.k % 2 == 0 && size.k > 2 && level.context->target().has(ir::kCpu_avx512bf16);
          EXPECT_EQ((stage.schedule.numeric & ir::kBf16Dots) != 0, pairs) << search::to_text(stage.schedule);
          EXPECT_EQ(stage.portable, !test::generates(level.context->target())) << refusal(problem, level);
          const SymbolValues dims = m.fixed() ? SymbolValues{} : SymbolValues{{"M", 13}};
          auto oracle = Oracle::create({problem.kernel, dims, 1, 3, 60'000}, nullptr);
          ASSERT_TRUE(oracle.ok()) << oracle.status().to_string();
          const auto verdict = (*oracle)->verify(stage);
          ASSERT_TRUE(verdict.ok()) << verdict.status().to_string();
          EXPECT_TRUE(verdict->ok) << verdict->reason;
        }
      }
    }
  }
}

}  // namespace
}  // namespace lathe::runtime
