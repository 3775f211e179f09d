// The recipe of products of bytes: whatever it accepts of every format has features, and can be built.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "jit/host/host_cpu.h"
#include "ops/lower.h"
#include "ops/manifest.h"
#include "runtime/compile/compiler.h"
#include "search/strategy/space.h"
#include "tests/common/generators.h"
#include "tests/common/machines.h"

namespace lathe::runtime {
namespace {

// Every third point or so, the first among them.
constexpr int kStride = 4;
void check_spaces(const ir::Target& t) {
  std::ifstream in(LATHE_SOURCE_DIR "/bench/workloads/low_bits_bytes.jsonl");
  std::stringstream text;
  text << in.rdbuf();
  const auto workloads = ops::parse_manifest(text.str());
  ASSERT_TRUE(workloads.ok()) << workloads.status().to_string();
  int spaces = 0;
  for (const ops::Workload& w : *workloads) {
    const auto graph = ops::finish(w.graph);
    ASSERT_TRUE(graph.ok()) << w.name;
    const auto lowered = ops::lower(*graph);
    ASSERT_TRUE(lowered.ok()) << w.name;
    search::Problem p;
    p.kernel = lowered->kernels[0].kernel;
    p.allowed = w.allowed;
    p.cold = true;
    const search::Recipe* recipe = search::find_recipe(p);
    ASSERT_NE(recipe, nullptr) << w.name;
    ASSERT_STREQ(recipe->name, "dots") << w.name;
    const search::RecipeSpace space(p, t, search::MachineRates::assumed(t));
    ASSERT_GT(space.size(), 3) << w.name;
    ++spaces;
    LeafCache leaves(LeafCacheOptions{}, nullptr, nullptr);
    for (int point = 0; point < space.size(); point += 1 + point % kStride) {
      const auto scheduled = space.scheduled(point);
      ASSERT_TRUE(scheduled.ok()) << w.name << scheduled.status().to_string();
      const auto stage = build_stage(p.kernel, *scheduled, t, leaves, {.llvm = false, .portable = !test::generates(t)});
      ASSERT_TRUE(stage.ok()) << w.name << search::to_text(scheduled->schedule) << stage.status().to_string();
    }
  }
  EXPECT_GE(spaces, 60);
}

TEST(DotsRecipe, whatever_it_accepts_has_features_and_can_be_built) {
  const ir::Target t = jit::host_target();
  if (!t.has(ir::IsaLevel::avx2)) GTEST_SKIP() << "needs AVX2: nothing is generated for this machine";
  check_spaces(t);
  if (t.has(ir::IsaLevel::avx512)) check_spaces(t.cap(ir::IsaLevel::avx2));
}

// Whatever the host has: AVX2 with 16 registers, of which a product of four bytes without VNNI takes some.
TEST(DotsRecipe, sixteen_registers_suffice_without_vnni) {
  const ir::Target host = jit::host_target();
  if (!test::generates(host) || !host.has(ir::IsaLevel::avx2)) GTEST_SKIP() << "no code is made for AVX2";
  const ir::Target t = host.cap(ir::IsaLevel::avx2).without(ir::kCpu_avx_vnni);
  using ir::DType;
  struct Weight {
    const char* format;
    std::vector<std::pair<DType, std::vector<int64_t>>> fields;  // of 2048 terms and 520 outputs, in groups of 32
  };
  const Weight weights[] = {{"q5_k", {{DType::u8, {520, 1408}}}},
                            {"q8_0", {{DType::u8, {520, 2176}}}},
                            {"awq", {{DType::i32, {2048, 65}}, {DType::f16, {64, 520}}, {DType::i32, {64, 65}}}},
                            {"gptq", {{DType::i32, {256, 520}}, {DType::f16, {64, 520}}, {DType::i32, {64, 65}}}}};
  LeafCache leaves(LeafCacheOptions{}, nullptr, nullptr);
  for (const Weight& w : weights) {
    for (const int64_t rows : {1, 2, 4, 9}) {
      SCOPED_TRACE(fmt::format("{} of {} rows", w.format, rows));
      ops::Graph g;
      std::vector<int> in = {add_tensor(g, "a", {ops::fixed_dim(rows), ops::fixed_dim(2048)})};
      for (const auto& [type, dims] : w.fields) {
        std::vector<ops::DimDesc> sizes;
        for (const int64_t d : dims) sizes.push_back(ops::fixed_dim(d));
        in.push_back(add_tensor(g, fmt::format("f{}", in.size()), sizes, true, type));
      }
      std::vector<ops::Attr> attrs = {{"format", std::string(w.format)}};
      if (w.fields.size() > 1) attrs.push_back({"group", int64_t{32}});
      g.outputs = {add_node(g, "quantized_matmul", in, "y", attrs)};
      const auto graph = ops::finish(g);
      ASSERT_TRUE(graph.ok()) << graph.status().to_string();
      search::Problem p;
      p.kernel = ops::lower(*graph)->kernels[0].kernel;
      p.allowed |= ir::kQuantisedActivations;
      p.cold = true;
      const search::Scheduled scheduled = search::default_scheduled(p, t);
      EXPECT_EQ(scheduled.schedule.recipe, "dots.1");
      const auto stage = build_stage(p.kernel, scheduled, t, leaves, {.llvm = false, .portable = false});
      EXPECT_TRUE(stage.ok()) << stage.status().to_string();
    }
  }
}

// The default Schedule for so many rows of that format, from memory; columns: of the weights, if not as many as named.
std::string default_of(const char* machine, const std::string& name, int64_t columns = 0) {
  std::ifstream in(LATHE_SOURCE_DIR "/bench/workloads/limits-llm.jsonl");
  std::stringstream text;
  text << in.rdbuf();
  const auto workloads = ops::parse_manifest(text.str());
  for (ops::Workload w : *workloads) {
    if (w.name != name) continue;
    if (columns != 0) w.graph.tensors.at(1).dims.at(0) = ops::fixed_dim(columns);
    search::Problem p;
    p.kernel = ops::lower(*ops::finish(w.graph))->kernels[0].kernel;
    p.allowed = w.allowed;
    p.cold = true;
    return search::to_text(search::default_scheduled(p, test::find_machine(machine)->target).schedule);
  }
  return "";
}

// Zen 4's prefetcher keeps up with memory where few rows wait for it - of groups in blocks one, of others two, of bytes
// that are the weights two to four -; one row of the last, more rows, or a Zen 5, are asked ahead.
TEST(DotsRecipe, few_rows_are_prefetched_where_the_core_does_not) {
  for (const char* format : {"q4_0", "q8_0", "q5_k"}) {
    for (const int rows : {1, 2, 4}) {
      const std::string name = fmt::format("gemv_{}_{}x4096x4096", format, rows);
      const std::string alone = default_of("zen4", name), asked = default_of("zen5", name);
      const bool plain = format == std::string("q8_0");
      const bool left = plain ? rows != 1 : rows <= (format == std::string("q5_k") ? 1 : 2);
      EXPECT_EQ(alone.find(" pf=0 ps=0 ") != std::string::npos, left) << alone.substr(0, 200);
      EXPECT_EQ(alone.find(" ps=1 "), std::string::npos) << alone.substr(0, 200);
      EXPECT_EQ(asked.find(" pf=0 "), std::string::npos) << asked.substr(0, 200);
      EXPECT_NE(asked.find(" pf="), std::string::npos) << asked.substr(0, 200);
    }
  }
  EXPECT_NE(default_of("zen5", "gemv_q8_0_2x4096x4096").find(" ps=1 "), std::string::npos);
}

// Two streams of bytes that are weights, where columns are whole panels of both.
TEST(DotsRecipe, two_rows_read_plain_bytes_as_two_streams) {
  for (const int rows : {1, 2, 4}) {
    const std::string own = default_of("zen4", fmt::format("gemv_q8_0_{}x4096x4096", rows));
    EXPECT_EQ(own.find(" st=2") != std::string::npos, rows == 2) << own.substr(0, 200);
  }
  EXPECT_NE(default_of("zen4", "gemv_q8_0_1x4096x4096").find(" pf=4096 "), std::string::npos);
  EXPECT_NE(default_of("zen4", "gemv_q4_0_1x4096x4096").find(" st=1"), std::string::npos);
  EXPECT_NE(default_of("zen5", "gemv_q8_0_1x4096x4096").find(" st=1"), std::string::npos);
}

// Which loops prefetch, and how many lines, does not depend on whether columns are whole panels.
TEST(DotsRecipe, odd_columns_are_prefetched_as_whole_panels_are) {
  const auto prefetches = [](const std::string& schedule) {
    std::vector<std::string> out;
    std::istringstream in(schedule);
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with("prefetch ")) out.push_back(line);
    }
    return out;
  };
  for (const char* name : {"gemv_q4_0_4", "gemv_q4_k_4", "gemv_q5_k_4", "gemv_q6_k_4", "low_q8_0_8", "low_q8_0_16"}) {
    const std::string full = fmt::format("{}x4096x4096", name);
    const std::vector<std::string> whole = prefetches(default_of("zen4", full));
    EXPECT_FALSE(whole.empty()) << name;
    for (const int64_t columns : {4090, 4099, 4128, 26215}) {
      EXPECT_EQ(prefetches(default_of("zen4", full, columns)), whole) << name << ", " << columns;
    }
  }
}

// Groups of 16 leave registers to taller tiles where a panel is one vector, which pays where products take their pipe
// for two cycles.
TEST(DotsRecipe, short_groups_lie_in_narrow_panels_of_halves) {
  for (const int rows : {1, 2, 4, 8, 16, 32}) {
    const std::string name = fmt::format("{}_q6_k_{}x4096x4096", rows < 8 ? "gemv" : "low", rows);
    const std::string halves = default_of("zen4", name), whole = default_of("zen5", name);
    EXPECT_NE(halves.find(" nr=16 "), std::string::npos) << halves.substr(0, 200);
    EXPECT_EQ(halves.find(" st=4") != std::string::npos, rows == 1) << halves.substr(0, 200);
    EXPECT_NE(halves.find(fmt::format(" mr={} ", std::min(rows, 8))), std::string::npos) << halves.substr(0, 200);
    EXPECT_NE(whole.find(" nr=32 "), std::string::npos) << whole.substr(0, 200);
  }
}

// Zen 4 fetches the next panel too slowly where arithmetic takes no longer than that, and its L1 keeps less of what
// is fetched ahead.
TEST(DotsRecipe, the_next_panel_is_fetched_where_that_comes_in_time) {
  struct Case {
    const char* name;
    int64_t alone, asked;
  };
  for (const Case& c : {Case{"low_q4_0_8x4096x4096", 8192, -1},
                        {"low_q4_0_16x4096x4096", -1, -1},
                        {"low_q4_0_32x4096x4096", -1, -1},
                        {"low_g32_8x4096x4096", 8192, -1},
                        {"low_q8_0_8x4096x4096", 8192, 16384},
                        {"low_q8_0_16x4096x4096", 8192, -1},
                        {"int8_channel_8x4096x4096", 8192, 16384},
                        {"int8_channel_16x4096x4096", 8192, -1},
                        {"int8_channel_32x4096x4096", -1, -1},
                        {"int8_given_8x4096x4096", 8192, 10240},
                        {"mm_bf16_8x4096x4096", 8192, 10240}}) {
    const std::string alone = default_of("zen4", c.name), asked = default_of("zen5", c.name);
    EXPECT_NE(alone.find(fmt::format(" pf={} ", c.alone)), std::string::npos) << c.name << alone.substr(0, 200);
    EXPECT_NE(asked.find(fmt::format(" pf={} ", c.asked)), std::string::npos) << c.name << asked.substr(0, 200);
  }
}

// A tile reads its rows side by side: they must not share sets of the first cache.
TEST(DotsRecipe, rows_of_bytes_lie_on_sets_of_their_own) {
  for (const int64_t depth : {896, 960, 1024, 2048, 2080}) {
    ops::Graph g;
    const int a = add_tensor(g, "a", {ops::fixed_dim(9), ops::fixed_dim(depth)});
    const int w = add_tensor(g, "w", {ops::fixed_dim(64), ops::fixed_dim(depth / 32 * 34)}, true, ir::DType::u8);
    g.outputs = {add_node(g, "quantized_matmul", {a, w}, "y", {{"format", std::string("q8_0")}})};
    search::Problem p;
    p.kernel = ops::lower(*ops::finish(g))->kernels[0].kernel;
    p.allowed = ir::kQuantisedActivations;
    const search::Scheduled scheduled = search::default_scheduled(p, test::find_machine("zen4")->target);
    const ir::Buffer* bytes = scheduled.kernel.find_buffer("a_q");
    ASSERT_NE(bytes, nullptr) << depth;
    const int64_t more = bytes->padding.empty() ? 0 : bytes->padding.back();
    EXPECT_EQ(more, depth % 1024 == 0 ? 64 : 0) << depth;
  }
}

}  // namespace
}  // namespace lathe::runtime
