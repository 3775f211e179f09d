// Attention of bf16 in tiles of the CPU's own (tile_bf16): which sizes get them by default, and right results there, on
// level amx.
#include <gmock/gmock.h>

#include <algorithm>

#include "ops/lower.h"
#include "search/moves/schedule.h"
#include "search/sketches/recipe.h"
#include "tests/common/machines.h"
#include "tests/sweep/sweep_case.h"

namespace lathe::runtime {
namespace {

struct Prefill {
  int64_t queries, keys, depth = 64, columns = 64;
  int64_t heads = 2, kept = 1;
  bool causal = false;
  std::string symbols = {};  // S: queries and keys are one; S,T: each its own
  double cap = 0;
  int64_t window = 0;
  int threads = 1;
};

std::string text(const Prefill& c) {
  return fmt::format("{}/{} heads, {} of {} keys {}, depth {}, {} columns, causal {}, window {}, {} threads", c.heads,
                     c.kept, c.queries, c.keys, c.symbols, c.depth, c.columns, c.causal, c.window, c.threads);
}

ops::Graph graph_of(const Prefill& c) {
  const auto F = ops::fixed_dim;
  ops::Graph g;
  const ops::DimDesc queries = c.symbols.empty() ? F(c.queries) : ops::symbol_dim("S", 1, 1024, {{c.queries, 1}}),
                     keys = c.symbols.empty()  ? F(c.keys)
                            : c.symbols == "S" ? queries
                                               : ops::symbol_dim("T", 1, 1024, {{c.keys, 1}});
  const std::vector<int> in = {ops::add_tensor(g, "q", {F(c.heads), queries, F(c.depth)}, false, ir::DType::bf16),
                               ops::add_tensor(g, "k", {F(c.kept), keys, F(c.depth)}, false, ir::DType::bf16),
                               ops::add_tensor(g, "v", {F(c.kept), keys, F(c.columns)}, false, ir::DType::bf16)};
  std::vector<ops::Attr> attrs = {{"causal", c.causal}};
  if (c.window > 0) attrs.push_back({"window", c.window});
  if (c.cap > 0) attrs.push_back({"soft_cap", c.cap});
  g.outputs = {ops::add_node(g, "attention", in, "y", attrs)};
  return *ops::finish(std::move(g));
}

bool in_tiles(const std::string& schedule) {
  return schedule.find("tensorize de tile_bf16") != std::string::npos &&
         schedule.find("tensorize j2e tile_bf16") != std::string::npos;
}

std::string schedule(const Prefill& c, const ir::Target& t, uint32_t classes) {
  search::Problem p;
  p.kernel = ops::lower(graph_of(c))->kernels.at(0).kernel;
  p.dims = {{"S", c.queries}, {"T", c.keys}};
  p.allowed = classes;
  p.threads = c.threads;
  return search::to_text(search::default_schedule(p, t));
}

// Blocks that are not whole, and ends of keys inside of a tile, are tiles as well.
const std::vector<Prefill>& served() {
  static const std::vector<Prefill> kAll = [] {
    std::vector<Prefill> out;
    for (const bool causal : {false, true}) {
      for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{8, 64},
                                          {15, 63},
                                          {16, 64},
                                          {17, 65},
                                          {31, 31},
                                          {32, 32},
                                          {33, 63},
                                          {63, 63},
                                          {64, 64},
                                          {65, 65},
                                          {65, 96},
                                          {512, 512}})
        out.push_back({queries, keys, 64, 64, 2, 1, causal});
      out.push_back({70, 70, 128, 128, 8, 2, causal});
      out.push_back({70, 100, 96, 80, 2, 2, causal});
      out.push_back({64, 64, 256, 16, 2, 1, causal});
      out.push_back({70, 70, 64, 64, 2, 1, causal, {}, 15.0});
      out.push_back({64, 64, 64, 64, 4, 4, causal, {}, 0, 0, 2});
      out.push_back({65, 65, 64, 64, 8, 2, causal, {}, 0, 0, 2});
      out.push_back({100, 100, 64, 64, 2, 1, causal, "S"});
      out.push_back({77, 77, 64, 64, 8, 2, causal, "S", 0, 0, 2});
    }
    out.push_back({100, 100, 64, 64, 2, 1, false, "S,T"});
    return out;
  }();
  return kAll;
}

TEST(AttentionTiles, AreTheDefaultWhereTheCallerAllowsThem) {
  const ir::Target t = test::find_machine("xeon")->target;
  const uint32_t all = kDefaultAllowed | ir::kBf16Dots;
  for (const Prefill& c : served()) {
    SCOPED_TRACE(text(c));
    EXPECT_TRUE(in_tiles(schedule(c, t, all))) << schedule(c, t, all);
    EXPECT_FALSE(in_tiles(schedule(c, t, kDefaultAllowed)));
    EXPECT_FALSE(in_tiles(schedule(c, t.cap(ir::IsaLevel::avx512), all)));
  }
}

// A depth or columns that are no whole tiles, a window, queries and keys that calls choose apart where not all are
// seen; and few keys, of which a tile would hold more than there are.
TEST(AttentionTiles, LeaveTheRestAsItIs) {
  const ir::Target t = test::find_machine("xeon")->target;
  const std::vector<Prefill> others = {{64, 64, 80},
                                       {64, 64, 32},
                                       {64, 64, 64, 40},
                                       {64, 64, 64, 64, 2, 1, true, {}, 0, 20},
                                       {100, 100, 64, 64, 2, 1, true, "S,T"},
                                       {33, 33},
                                       {4, 32}};
  for (const Prefill& c : others) EXPECT_FALSE(in_tiles(schedule(c, t, kDefaultAllowed | ir::kBf16Dots))) << text(c);
}

TEST(AttentionTiles, ABlockIsOneTile) {
  const ir::Target t = test::find_machine("xeon")->target;
  search::Problem p;
  p.kernel = ops::lower(graph_of({70, 70, 64, 48, 4, 2, true}))->kernels.at(0).kernel;
  p.allowed = kDefaultAllowed | ir::kBf16Dots;
  const search::Knobs standard = search::kQueryTilesRecipe.defaults(p, t);
  EXPECT_EQ(search::knob_of(standard, "dp"), 2);
  EXPECT_EQ(search::knob_of(standard, "mb"), 24) << "three blocks of nearly as many";
  EXPECT_EQ(search::knob_of(standard, "vr"), 16);
  const auto refused = [&](const search::Knobs& others) {
    search::Knobs knobs = standard;
    for (const auto& [name, value] : others) knobs[name] = value;
    return search::kQueryTilesRecipe.accepts(knobs, p, t).to_string();
  };
  EXPECT_THAT(refused({{"mr", 8}}), testing::HasSubstr("dp 2: a block is one tile"));
  EXPECT_THAT(refused({{"qc", 1}}), testing::HasSubstr("dp 2: a block is one tile, of queries in place"));
  EXPECT_THAT(refused({{"mr", 16}, {"mb", 48}}), testing::HasSubstr("dp 2: a block is one tile"));
  EXPECT_THAT(refused({{"mr", 48}, {"mb", 48}}), testing::HasSubstr("expected 1 to 32"));
  EXPECT_THAT(refused({{"nr", 48}}), testing::HasSubstr("nr 48: no part of a tile of 32"));
  EXPECT_THAT(refused({{"vr", 32}}), testing::HasSubstr("vr 32: no whole tiles"));
  p.allowed = kDefaultAllowed;
  EXPECT_THAT(refused({}), testing::HasSubstr("dp 2: no tiles here"));
}

TEST(AttentionTiles, AreRight) {
  const auto level = std::find_if(levels().begin(), levels().end(), [](const Level& l) { return l.name == "amx"; });
  if (level == levels().end()) GTEST_SKIP() << "this CPU has no tiles";
  for (const Prefill& c : served()) {
    SCOPED_TRACE(text(c));
    auto op = Operator::create(level->context, graph_of(c));
    ASSERT_TRUE(op.ok()) << op.status().to_string();
    PrepareRequest request;
    request.allowed = kDefaultAllowed | ir::kBf16Dots;
    request.threads = c.threads;
    ASSERT_TRUE((*op)->stages().prepare(request).ok());
    const Stage& stage = (*op)->stages().of(0)[0]->stage;
    const search::Problem problem = (*op)->general_problem(0, true, request);
    EXPECT_TRUE(in_tiles(search::to_text(stage.schedule))) << search::to_text(stage.schedule);
    EXPECT_NE(stage.schedule.numeric & ir::kBf16Dots, 0u);
    EXPECT_FALSE(stage.portable) << refusal(problem, *level);
    std::vector<SymbolValues> sizes = {{}};
    if (!c.symbols.empty()) {
      sizes.clear();
      for (const int64_t n : {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 512}) {
        sizes.push_back({{"S", n}});
        if (c.symbols == "S,T") sizes.back().emplace_back("T", (7 * n) % 100 + 1);
      }
    }
    for (const SymbolValues& dims : sizes) {
      auto oracle = Oracle::create({problem.kernel, dims, c.threads, 3, 60'000}, nullptr);
      ASSERT_TRUE(oracle.ok()) << oracle.status().to_string();
      const auto verdict = (*oracle)->verify(stage);
      ASSERT_TRUE(verdict.ok()) << verdict.status().to_string();
      std::string at;
      for (const auto& [name, value] : dims) at += fmt::format(" {} {}", name, value);
      EXPECT_TRUE(verdict->ok) << verdict->reason << at;
    }
  }
}

}  // namespace
}  // namespace lathe::runtime
