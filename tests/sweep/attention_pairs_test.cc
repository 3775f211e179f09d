// Attention of bf16 whose caller allows pairs gets them for weights and values, however many keys there are; and decode
// takes keys in steps, whether their number is fixed or not. Results: tests/sweep/bf16_dots_test.cc.
#include <gtest/gtest.h>

#include "ops/lower.h"
#include "search/moves/schedule.h"
#include "search/sketches/recipe.h"

namespace lathe::runtime {
namespace {

using ops::DimDesc;

DimDesc F(int64_t n) { return ops::fixed_dim(n); }
DimDesc symbol(const char* name) { return ops::symbol_dim(name, 0, 4096); }

search::Problem attention(const DimDesc& queries, const DimDesc& keys, bool causal, int64_t window) {
  ops::Graph g;
  const std::vector<int> in = {ops::add_tensor(g, "q", {F(8), queries, F(64)}, false, ir::DType::bf16),
                               ops::add_tensor(g, "k", {F(2), keys, F(64)}, false, ir::DType::bf16),
                               ops::add_tensor(g, "v", {F(2), keys, F(64)}, false, ir::DType::bf16)};
  std::vector<ops::Attr> attrs = {{"causal", causal}};
  if (window > 0) attrs.push_back({"window", window});
  g.outputs = {ops::add_node(g, "attention", in, "y", attrs)};
  search::Problem p;
  p.kernel = ops::lower(*ops::finish(g))->kernels.at(0).kernel;
  p.dims = {{"S", 128}, {"T", 128}};
  p.allowed = ir::kReassociate | ir::kContract | ir::kBf16Dots;
  return p;
}

std::string schedule(const search::Problem& p) {
  ir::Target t = ir::bare_target(ir::IsaLevel::avx512);
  t.extra |= ir::kCpu_avx512bf16;
  return search::to_text(search::default_schedule(p, t));
}

// Where causal queries are not as many as keys that calls choose, and with a window, scores alone are pairs.
TEST(AttentionPairs, HoweverManyKeysThereAre) {
  const DimDesc s = symbol("S"), t = symbol("T");
  const DimDesc sizes[][2] = {{F(64), F(64)}, {F(64), F(67)}, {F(63), F(63)}, {s, s}, {F(64), t}, {s, F(65)}, {s, t}};
  for (const auto& [queries, keys] : sizes) {
    for (const bool causal : {false, true}) {
      for (const int64_t window : {0, 20}) {
        if (window > 0 && !causal) continue;
        const std::string text = schedule(attention(queries, keys, causal, window));
        const bool alike = ops::dim_text(queries) == ops::dim_text(keys) || (queries.fixed() && keys.fixed());
        SCOPED_TRACE(fmt::format("{} queries, {} keys, causal {}, window {}\n{}", ops::dim_text(queries),
                                 ops::dim_text(keys), causal, window, text));
        EXPECT_EQ(text.find("tensorize j2e dot2_bf16") != std::string::npos, window == 0 && (!causal || alike));
        EXPECT_NE(text.find("tensorize de dot2_bf16"), std::string::npos) << "not the simplest setting";
      }
    }
  }
}

TEST(AttentionPairs, DecodeTakesStepsOfKeys) {
  for (const DimDesc& keys : {F(64), F(67), symbol("T")}) {
    for (const bool causal : {false, true}) {
      EXPECT_NE(schedule(attention(F(1), keys, causal, 0)).find(" jr=4 "), std::string::npos)
          << ops::dim_text(keys) << " keys, causal " << causal;
    }
  }
}

}  // namespace
}  // namespace lathe::runtime
