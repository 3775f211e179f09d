// The records of families: complete, found by name, and asked for what the rest of the library used to know by name.
#include "ops/family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "ops/samples.h"

namespace lathe::ops {
namespace {

// A record that lacks a role does not compile: no field has a value of its own, and none takes a null.
template <class T>
constexpr bool kStandsEmpty = std::is_default_constructible_v<T> || std::is_constructible_v<T, std::nullptr_t>;
static_assert(!kStandsEmpty<decltype(Family::name)>);
static_assert(!kStandsEmpty<decltype(Family::operand_dtypes)>);
static_assert(!kStandsEmpty<decltype(Family::infer)>);
static_assert(!kStandsEmpty<decltype(Family::lower)>);
static_assert(!kStandsEmpty<decltype(Family::flops)>);
static_assert(!kStandsEmpty<decltype(Family::share_read)>);
static_assert(!kStandsEmpty<decltype(Family::updates)>);
static_assert(!kStandsEmpty<decltype(Family::results)>);
static_assert(!kStandsEmpty<decltype(Family::in_place)>);
static_assert(!kStandsEmpty<decltype(Family::error_rule)>);
static_assert(!kStandsEmpty<decltype(Family::fusion)>);
static_assert(!kStandsEmpty<decltype(Family::samples)>);

template <class Roles>
concept CompilesWhole = requires {
  Roles{.element = std::nullopt, .followed = true, .preceded = 0u, .packed = 0u, .stored = false, .f32_alone = true};
};
template <class Roles>
concept CompilesWithoutPreceded =
    requires { Roles{.element = std::nullopt, .followed = true, .packed = 0u, .stored = false, .f32_alone = true}; };
template <class Roles>
concept CompilesWithANull = requires {
  Roles{.element = nullptr, .followed = true, .preceded = 0u, .packed = 0u, .stored = false, .f32_alone = true};
};
static_assert(CompilesWhole<FusionRoles>);
static_assert(!CompilesWithoutPreceded<FusionRoles>);
static_assert(!CompilesWithANull<FusionRoles>);

TEST(Family, every_row_has_a_record_of_its_name) {
  std::set<std::string_view> names;
#define LATHE_FAMILY(id)                      \
  EXPECT_EQ(families::id.name.get(), #id);    \
  EXPECT_EQ(find_family(#id), &families::id); \
  EXPECT_TRUE(names.insert(#id).second) << #id;
#include "ops/families.def"
#undef LATHE_FAMILY
  EXPECT_EQ(all_families().size(), names.size());
  EXPECT_EQ(find_family("pack"), nullptr);
  for (const OpRow& row : op_rows()) EXPECT_TRUE(names.count(row.family->name)) << row.name;
}

TEST(Family, samples_meet_their_own_conditions) {
  for (const OpRow& row : op_rows()) {
    const Samples& samples = row.family->samples;
    EXPECT_GE(samples.variants(row), 1) << row.name;
    ASSERT_FALSE(samples.axes.get().empty()) << row.name;
    for (const auto& others : samples.around.get()) EXPECT_GE(others.size(), samples.least_others) << row.name;
    for (size_t axis = 0; axis < samples.axes.get().size(); ++axis) {
      for (uint64_t seed = 0; seed < 20; ++seed) {
        Draw draw(seed);
        const auto graph = sample_graph(row, axis, 0, samples.sizes(draw, axis));
        ASSERT_TRUE(graph.ok()) << graph.status().to_string();
        EXPECT_TRUE(finish(*graph).ok()) << finish(*graph).status().to_string();
      }
    }
  }
  SampleSizes few{fixed_dim(3), {fixed_dim(3)}};
  EXPECT_EQ(sample_graph(*find_op("matmul"), 0, 0, few).status().to_string(),
            "INVALID: 1 other sizes for matmul, expected 2");
}

TEST(Family, random_graphs_have_every_operator_and_riders) {
  std::map<std::string, int> seen;
  int symbols = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Draw draw(seed), again(seed);
    const Graph g = random_graph(draw);
    ASSERT_EQ(g, random_graph(again));
    const auto finished = finish(g);
    ASSERT_TRUE(finished.ok()) << seed << " " << finished.status().to_string();
    symbols += !finished->symbols.empty();
    bool behind = false;  // the operator that the graph is named by
    for (const Node& node : finished->nodes) {
      ++seen[(behind ? "after: " : "") + node.op];
      behind |= node.op == finished->name;
    }
  }
  for (const OpRow& row : op_rows()) {
    EXPECT_GT(seen[row.name], 0) << row.name;
    const bool takes_f32 = row.family->operand_dtypes(row, 0)[0] == ir::DType::f32;
    const bool follows = row.family->rides() && takes_f32 && std::string(row.name) != "exp";
    EXPECT_EQ(seen["after: " + std::string(row.name)] > 0, follows) << row.name;
  }
  EXPECT_GT(seen["matmul"] + seen["matmul_integer"], 400);
  EXPECT_GT(symbols, 800);
  EXPECT_LT(symbols, 1200);
}

TEST(Family, flops) {
  Node node;
  node.attrs = {{"transpose_a", false}, {"transpose_b", true}};
  EXPECT_EQ(find_family("matmul")->flops(node, {{{2, 3, 5}, {7, 5}}, {2, 3, 7}}), 2.0 * 2 * 3 * 7 * 5);
  node.attrs = {{"transpose_a", true}, {"transpose_b", false}};
  EXPECT_EQ(find_family("matmul")->flops(node, {{{5, 3}, {5, 7}}, {3, 7}}), 2.0 * 3 * 7 * 5);
  EXPECT_EQ(find_family("row")->flops(node, {{{4, 6}}, {4}}), 24);
  EXPECT_EQ(find_family("elementwise")->flops(node, {{{4, 1}, {6}}, {4, 6}}), 24);
}

TEST(Family, share_that_is_read) {
  Node node;
  EXPECT_EQ(find_family("row")->share_read(node, {{{4, 6}}, {4}}, 0), 1);
  EXPECT_EQ(find_family("gather")->share_read(node, {{{40, 6}, {2, 5}}, {2, 5, 6}}, 0), 0.25);
  EXPECT_EQ(find_family("gather")->share_read(node, {{{40, 6}, {2, 5}}, {2, 5, 6}}, 1), 1);
  EXPECT_EQ(find_family("gather")->share_read(node, {{{4, 6}, {10}}, {10, 6}}, 0), 1);
  EXPECT_EQ(find_family("gather")->share_read(node, {{{0, 6}, {0}}, {0, 6}}, 0), 0);
  EXPECT_EQ(find_family("rope")->share_read(node, {{{5, 3, 8}, {5, 4}, {5, 4}}, {5, 3, 8}}, 1), 1);
  EXPECT_EQ(find_family("rope")->share_read(node, {{{5, 3, 8}, {20, 4}, {20, 4}, {5}}, {5, 3, 8}}, 0), 1);
  EXPECT_EQ(find_family("rope")->share_read(node, {{{5, 3, 8}, {20, 4}, {20, 4}, {5}}, {5, 3, 8}}, 2), 0.25);
  EXPECT_EQ(find_family("rope")->share_read(node, {{{5, 3, 8}, {20, 4}, {20, 4}, {5}}, {5, 3, 8}}, 3), 1);
  node.op = "quantized_gather";
  node.attrs = {{"format", std::string("q4_0")}};
  EXPECT_EQ(find_family("quantised")->share_read(node, {{{40, 36}, {10}}, {10, 64}}, 0), 0.25);
  node.op = "dequantize";
  EXPECT_EQ(find_family("quantised")->share_read(node, {{{40, 36}}, {40, 64}}, 0), 1);
}

}  // namespace
}  // namespace lathe::ops
