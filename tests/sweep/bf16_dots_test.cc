// Products of bf16 where the caller allows bf16_dots, of matmul and of attention: native code on every level that
// generates any, pairs where the CPU has the instruction, right at sizes around tiles and for an odd K.
#include "search/moves/schedule.h"
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
    bool pairs;  // where the CPU has the instruction
  };
  for (const Size size : {Size{64, 64, true}, {33, 130, true}, {31, 2, false}, {95, 63, false}, {1, 64, false}}) {
    for (const ops::DimDesc& m : {ops::fixed_dim(0), ops::fixed_dim(1), ops::fixed_dim(9), ops::fixed_dim(40),
                                  ops::symbol_dim("M", 1, 512, {{1, 1}, {13, 1}})}) {
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
          const bool pairs = allows && size.pairs && m.max > 0 && level.context->target().has(ir::kCpu_avx512bf16);
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

enum class Weights { groups, experts, batches };

// y = a x b, where offsets or ids say which of `weights` a row has, or each weight has rows of its own. Weights lie as
// [weights, K, N], or turned as [weights, N, K].
ops::Graph of_weights(Weights kind, const ops::DimDesc& rows, int64_t weights, int64_t n, int64_t k, bool turned) {
  const auto F = ops::fixed_dim;
  ops::Graph g;
  std::vector<ops::DimDesc> a = {rows, F(k)};
  if (kind == Weights::batches) a.insert(a.begin(), F(weights));
  std::vector<int> in = {
      ops::add_tensor(g, "a", a, false, ir::DType::bf16),
      ops::add_tensor(g, "b", {F(weights), F(turned ? n : k), F(turned ? k : n)}, true, ir::DType::bf16)};
  if (kind == Weights::groups) in.push_back(ops::add_tensor(g, "offsets", {F(weights + 1)}, false, ir::DType::i32));
  if (kind == Weights::experts) in.push_back(ops::add_tensor(g, "ids", {rows}, false, ir::DType::i32));
  const char* name = kind == Weights::groups ? "grouped_matmul" : kind == Weights::experts ? "expert_matmul" : "matmul";
  g.outputs = {ops::add_node(g, name, in, "y", {{"transpose_b", turned}})};
  return g;
}

TEST(Bf16Dots, ServeSeveralWeightsWhereTheCallerAllowsThem) {
  struct Size {
    int64_t n, k;
    bool pairs;
  };
  const ops::DimDesc rows[] = {ops::fixed_dim(0), ops::fixed_dim(1), ops::fixed_dim(40),
                               ops::symbol_dim("M", 0, 512, {{1, 1}, {37, 1}})};
  for (const Weights kind : {Weights::groups, Weights::experts, Weights::batches}) {
    for (const Size size : {Size{64, 64, true}, {33, 130, true}, {31, 2, false}, {95, 63, false}, {1, 64, false}}) {
      for (const ops::DimDesc& m : rows) {
        for (const bool turned : {false, true}) {
          if (turned && !size.pairs) continue;  // plain products, as they are without the class
          const auto graph = ops::finish(of_weights(kind, m, 3, size.n, size.k, turned));
          ASSERT_TRUE(graph.ok()) << graph.status().to_string();
          for (const Level& level : levels()) {
            SCOPED_TRACE(fmt::format("{} {} of 3 {} x {}{} on {}", graph->nodes[0].op, ops::dim_text(m), size.n, size.k,
                                     turned ? " turned" : "", level.name));
            auto op = Operator::create(level.context, *graph);
            ASSERT_TRUE(op.ok()) << op.status().to_string();
            PrepareRequest request;
            request.allowed = kDefaultAllowed | ir::kBf16Dots;
            ASSERT_TRUE((*op)->stages().prepare(request).ok());
            const Stage& stage = (*op)->stages().of(0)[0]->stage;
            const search::Problem problem = (*op)->general_problem(0, true, request);
            const bool rows_at_all = kind == Weights::experts || m.max > 0;
            const bool any = size.pairs && rows_at_all && level.context->target().has(ir::kCpu_avx512bf16);
            EXPECT_EQ((stage.schedule.numeric & ir::kBf16Dots) != 0, any) << search::to_text(stage.schedule);
            EXPECT_EQ(stage.portable, !test::generates(level.context->target())) << refusal(problem, level);
            for (const int64_t rows_now : {0, 1, 37, 300}) {
              if (m.fixed() && rows_now != 0) continue;
              const SymbolValues dims = m.fixed() ? SymbolValues{} : SymbolValues{{"M", rows_now}};
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
  }
}

// What is summed in pairs where those of the CPU pay: weights only with values of bf16.
enum Pairs { kNone, kScores, kBoth };

struct Prefill {
  int64_t heads, kept, queries, keys, depth, columns;
  Pairs pairs;
  bool causal = true;
  int64_t window = 0;
  std::string symbols = {};  // S: queries and keys are one; S,T: each its own
};

ops::Graph attention(const Prefill& c, ir::DType values) {
  const auto F = ops::fixed_dim;
  ops::Graph g;
  const ops::DimDesc queries = c.symbols.empty() ? F(c.queries) : ops::symbol_dim("S", 1, 512, {{c.queries, 1}}),
                     keys = c.symbols.empty()  ? F(c.keys)
                            : c.symbols == "S" ? queries
                                               : ops::symbol_dim("T", 1, 512, {{c.keys, 1}});
  const std::vector<int> in = {ops::add_tensor(g, "q", {F(c.heads), queries, F(c.depth)}, false, ir::DType::bf16),
                               ops::add_tensor(g, "k", {F(c.kept), keys, F(c.depth)}, false, ir::DType::bf16),
                               ops::add_tensor(g, "v", {F(c.kept), keys, F(c.columns)}, false, values)};
  std::vector<ops::Attr> attrs = {{"causal", c.causal}};
  if (c.window > 0) attrs.push_back({"window", c.window});
  g.outputs = {ops::add_node(g, "attention", in, "y", attrs)};
  return g;
}

// Sizes of symbols: around tiles, blocks and vectors, and all parities.
std::vector<SymbolValues> sizes_of(const Prefill& c, bool all) {
  if (c.symbols.empty()) return {{}};
  std::vector<SymbolValues> out;
  for (const int64_t n : all ? std::vector<int64_t>{1, 2, 7, 16, 33, 64, 65} : std::vector<int64_t>{c.queries}) {
    out.push_back({{"S", n}});
    if (c.symbols == "S") continue;
    out.back().emplace_back("T", n + 1);
    if (all) out.push_back({{"S", n}, {"T", n + 29}});
    if (all) out.push_back({{"S", n + 1}, {"T", n}});
  }
  return out;
}

// Scores in pairs where the depth is even, weights and values of bf16 in pairs of keys, however many there are.
TEST(Bf16Dots, ServeAttentionWhereTheCallerAllowsThem) {
  const std::vector<Prefill> cases = {{4, 2, 64, 64, 32, 32, kBoth},
                                      {2, 2, 32, 32, 16, 33, kBoth},
                                      {2, 1, 33, 33, 16, 16, kBoth},
                                      {2, 1, 34, 34, 18, 20, kBoth},
                                      {2, 2, 32, 41, 16, 16, kBoth},
                                      {2, 1, 32, 96, 16, 16, kBoth},
                                      {2, 2, 37, 64, 4, 5, kBoth, false},
                                      {1, 1, 4, 4, 8, 8, kBoth, false},
                                      {2, 1, 64, 64, 32, 16, kScores, true, 20},
                                      {2, 2, 31, 62, 15, 32, kNone, false},
                                      {2, 1, 37, 37, 16, 16, kBoth, false},
                                      {2, 1, 37, 37, 16, 16, kScores, true, 5},
                                      {2, 1, 40, 40, 16, 16, kBoth, true, 0, "S"},
                                      {2, 1, 64, 64, 16, 33, kBoth, false, 0, "S"},
                                      {2, 2, 64, 64, 16, 16, kScores, true, 20, "S"},
                                      {2, 1, 40, 40, 16, 16, kScores, true, 0, "S,T"},
                                      {2, 1, 40, 40, 16, 16, kBoth, false, 0, "S,T"}};
  for (const Prefill& c : cases) {
    for (const ir::DType values : {ir::DType::bf16, ir::DType::f32}) {
      const auto graph = ops::finish(attention(c, values));
      ASSERT_TRUE(graph.ok()) << graph.status().to_string();
      for (const Level& level : levels()) {
        for (const bool allows : {true, false}) {
          SCOPED_TRACE(fmt::format("{}/{} heads, {} of {} keys, depth {}, {} columns of {}, on {}", c.heads, c.kept,
                                   c.queries, c.keys, c.depth, c.columns, ir::dtype_name(values), level.name));
          auto op = Operator::create(level.context, *graph);
          ASSERT_TRUE(op.ok()) << op.status().to_string();
          PrepareRequest request;
          request.allowed = allows ? kDefaultAllowed | ir::kBf16Dots : 0;
          ASSERT_TRUE((*op)->stages().prepare(request).ok());
          const Stage& stage = (*op)->stages().of(0)[0]->stage;
          const search::Problem problem = (*op)->general_problem(0, true, request);
          const ir::Target& t = level.context->target();
          const bool pay = allows && t.has(ir::kCpu_avx512bf16) && !t.slow_pairs();
          const bool scores = pay && c.pairs != kNone;
          EXPECT_EQ((stage.schedule.numeric & ir::kBf16Dots) != 0, scores) << search::to_text(stage.schedule);
          const bool weights = pay && c.pairs == kBoth && values == ir::DType::bf16;
          EXPECT_EQ(!search::redefining_moves(stage.schedule).empty(), weights) << search::to_text(stage.schedule);
          EXPECT_EQ(stage.portable, !test::generates(level.context->target())) << refusal(problem, level);
          for (const SymbolValues& dims : sizes_of(c, weights)) {
            auto oracle = Oracle::create({problem.kernel, dims, 1, 3, 60'000}, nullptr);
            ASSERT_TRUE(oracle.ok()) << oracle.status().to_string();
            const auto verdict = (*oracle)->verify(stage);
            ASSERT_TRUE(verdict.ok()) << verdict.status().to_string();
            std::string at;
            for (const auto& [name, value] : dims) at += fmt::format(" {} {}", name, value);
            EXPECT_TRUE(verdict->ok) << verdict->reason << at;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace lathe::runtime
