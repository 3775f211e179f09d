// Products with weights of few bits whose sums wait in tiles of the CPU's own: values of every form at odd numbers of
// rows, against the oracle, on AMX where the host has it, else on the portable tier; where the recipe offers them.
#include <gtest/gtest.h>

#include "ir/core/text_form.h"
#include "jit/host/host_cpu.h"
#include "ops/lower.h"
#include "runtime/compile/compiler.h"
#include "runtime/oracle/oracle.h"
#include "search/sketches/recipe.h"
#include "tests/common/generators.h"
#include "tests/common/machines.h"

namespace lathe::runtime {
namespace {

using ir::DType;

struct Form {
  const char* format;
  int64_t group;
  DType scales = DType::f16;
  bool zeros = true;
  int64_t block_bytes = 0;  // of so many weights as a group; 0: weights, scales and zeros apart
};

ops::DimDesc rows_of(int64_t m) { return m > 0 ? ops::fixed_dim(m) : ops::symbol_dim("M", 1, 4096); }

// m = 0: rows vary.
search::Problem product(const Form& f, int64_t m, int64_t n, int64_t k) {
  const int64_t groups = f.group > 0 ? k / f.group : 1;
  const bool nbits = std::string(f.format) == "nbits_4", awq = std::string(f.format) == "awq",
             channel = std::string(f.format) == "int8_channel";
  ops::Graph g;
  const auto constant = [&](const char* name, DType type, const std::vector<int64_t>& sizes) {
    std::vector<ops::DimDesc> dims;
    for (const int64_t s : sizes) dims.push_back(ops::fixed_dim(s));
    return add_tensor(g, name, dims, true, type);
  };
  std::vector<int> in = {add_tensor(g, "a", {rows_of(m), ops::fixed_dim(k)})};
  if (f.block_bytes > 0) {
    in.push_back(constant("w", DType::u8, {n, groups * f.block_bytes}));
  } else if (channel) {
    in.push_back(constant("w", DType::i8, {n, k}));
    in.push_back(constant("s", f.scales, {n}));
  } else if (nbits) {
    in.push_back(constant("w", DType::u8, {n, groups, f.group / 2}));
    in.push_back(constant("s", f.scales, {n, groups}));
    if (f.zeros) in.push_back(constant("z", DType::u8, {n, (groups + 1) / 2}));
  } else {
    in.push_back(constant("w", DType::i32, awq ? std::vector<int64_t>{k, n / 8} : std::vector<int64_t>{k / 8, n}));
    in.push_back(constant("s", f.scales, {groups, n}));
    in.push_back(constant("z", DType::i32, {groups, n / 8}));
  }
  const std::string format = std::string(f.format) + (nbits && f.zeros ? "_zeros" : "");
  g.outputs = {f.block_bytes > 0 || channel
                   ? add_node(g, "quantized_matmul", in, "y", {{"format", format}})
                   : add_node(g, "quantized_matmul", in, "y", {{"format", format}, {"group", int64_t{f.group}}})};
  search::Problem p;
  const auto graph = ops::finish(g);
  EXPECT_TRUE(graph.ok()) << graph.status().to_string();
  p.kernel = ops::lower(*graph)->kernels[0].kernel;
  p.allowed = ir::kQuantisedActivations;
  p.unhurried = true;
  if (m == 0) p.dims = {{"M", 33}};
  return p;
}

ir::Target amx() {
  const ir::Target host = jit::host_target();
  if (host.has(ir::IsaLevel::amx)) return host;
  return test::find_machine("xeon")->target.with(ir::isa_features(ir::IsaLevel::amx));
}

void expect_right(const search::Problem& p, const std::vector<SymbolValues>& shapes, int64_t rows, int threads = 1) {
  static LeafCache leaves(LeafCacheOptions{}, nullptr, nullptr);
  const ir::Target t = amx();
  ASSERT_TRUE(search::kDotsRecipe.matches(p)) << ir::print(p.kernel);
  search::Knobs knobs = search::kDotsRecipe.defaults(p, t);
  knobs["ti"] = 1;
  knobs["mr"] = rows;
  knobs["parallel"] = threads > 1 ? 1 : 0;
  knobs["sc"] = 32;
  knobs["st"] = 1;
  if (knobs["pf"] == -1 && search::extent_at(search::scopes_with_role(p.kernel, "m")[0]->extent, p) <= rows)
    knobs["pf"] = 0;
  const auto schedule = search::kDotsRecipe.build(knobs, p, t);
  ASSERT_TRUE(schedule.ok()) << ir::print(p.kernel) << schedule.status().to_string();
  const auto stage = build_stage(p.kernel, *schedule, t, leaves, {.llvm = false, .portable = !test::generates(t)});
  ASSERT_TRUE(stage.ok()) << search::to_text(*schedule) << stage.status().to_string();
  for (const SymbolValues& dims : shapes) {
    auto oracle = Oracle::create({p.kernel, dims, threads, 7}, nullptr);
    ASSERT_TRUE(oracle.ok());
    const auto verdict = (*oracle)->verify(*stage);
    ASSERT_TRUE(verdict.ok()) << verdict.status().to_string();
    EXPECT_TRUE(verdict->ok) << ir::print(p.kernel) << search::to_text(*schedule) << verdict->reason;
  }
}

const Form kForms[] = {{"nbits_4", 128, DType::f32, false},
                       {"nbits_4", 128, DType::f16, true},
                       {"nbits_4", 128, DType::bf16, true},
                       {"nbits_4", 256, DType::f16, false},
                       {"awq", 128},
                       {"gptq", 128}};
const Form kShortForms[] = {
    {"nbits_4", 32, DType::f32, false}, {"nbits_4", 32, DType::f16, true}, {"nbits_4", 64, DType::f16, true}};
const Form kBlocks[] = {{"q4_0", 32, DType::f16, false, 18},  {"q4_1", 32, DType::f16, true, 20},
                        {"q5_0", 32, DType::f16, false, 22},  {"q8_0", 32, DType::f16, false, 34},
                        {"q4_k", 256, DType::f16, true, 144}, {"q5_k", 256, DType::f16, true, 176}};

TEST(DotsTiles, every_form_at_odd_numbers_of_rows) {
  constexpr int64_t kRows[] = {2, 15, 16, 17, 31, 33};
  for (size_t i = 0; i < std::size(kForms); ++i) {
    const Form& f = kForms[i];
    for (const size_t j : {i, i + 3}) {
      const int64_t m = kRows[j % std::size(kRows)], n = j % 2 == 0 ? 32 : 96, k = 2 * f.group;
      SCOPED_TRACE(fmt::format("{} {} of {} by {} by {}", f.format, f.group, m, n, k));
      expect_right(product(f, m, n, k), {{}}, std::min<int64_t>(m, 32));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(DotsTiles, groups_of_one_tile_or_half_of_one) {
  for (const Form& f : kShortForms) {
    for (const int64_t m : {2, 17, 32, 33}) {
      SCOPED_TRACE(fmt::format("{} {} of {}", f.format, f.group, m));
      expect_right(product(f, m, 64, 4 * f.group), {{}}, std::min<int64_t>(m, 32));
      if (HasFatalFailure()) return;
    }
  }
  for (const Form& f : kBlocks) {
    SCOPED_TRACE(f.format);
    expect_right(product(f, 18, 32, 512), {{}}, 18);
    if (HasFatalFailure()) return;
  }
}

TEST(DotsTiles, rows_that_vary_and_threads) {
  std::vector<SymbolValues> shapes;
  for (const int64_t m : {1, 15, 17, 32, 33}) shapes.push_back({{"M", m}});
  for (const Form& f : {kForms[0], kForms[4], kShortForms[1]}) {
    SCOPED_TRACE(fmt::format("{} {}", f.format, f.group));
    expect_right(product(f, 0, 32, 2 * f.group), shapes, 16);
    search::Problem p = product(f, 0, 64, 2 * f.group);
    p.threads = 2;
    expect_right(p, shapes, 32, 2);
    if (HasFatalFailure()) return;
  }
}

// Signed bytes with one scale a column: tiles read them where they lie, prefetched in every way.
TEST(DotsTiles, signed_bytes_as_they_lie) {
  for (const DType scales : {DType::f32, DType::f16}) {
    const Form f = {"int8_channel", 0, scales};
    for (const int64_t m : {2, 3, 8, 16, 17, 31, 33, 65}) {
      search::Problem p = product(f, m, m % 2 == 0 ? 32 : 96, m % 3 == 0 ? 128 : 1024);
      SCOPED_TRACE(m);
      for (const bool cold : {false, true}) {
        p.cold = cold;
        expect_right(p, {{}}, std::min<int64_t>(m, 32));
      }
      if (HasFatalFailure()) return;
    }
  }
  std::vector<SymbolValues> shapes;
  for (const int64_t m : {1, 15, 17, 32, 33}) shapes.push_back({{"M", m}});
  search::Problem p = product({"int8_channel", 0, DType::f32}, 0, 64, 192);
  expect_right(p, shapes, 16);
  p.threads = 2;
  expect_right(p, shapes, 32, 2);
}

TEST(DotsTiles, where_signed_bytes_are_read_as_they_lie) {
  const ir::Target t = amx();
  const auto of = [&](int64_t m, int64_t n, int64_t k, bool waits = false) {
    search::Problem p = product({"int8_channel", 0, DType::f32}, m, n, k);
    p.cold = true;
    p.unhurried = !waits;
    return search::kDotsRecipe.defaults(p, t);
  };
  for (const int64_t m : {4, 8, 32}) EXPECT_EQ(of(m, 4096, 4096).at("ti"), 1) << m;
  for (const int64_t m : {1, 2, 3}) EXPECT_EQ(of(m, 4096, 4096).at("ti"), 0) << m << ": these keep up with memory";
  EXPECT_EQ(of(0, 4096, 4096).at("ti"), 1);
  EXPECT_EQ(of(0, 4096, 4096, true).at("ti"), 0) << "a first call waits for code of every number of rows";
  EXPECT_EQ(of(40, 4096, 4096).at("pf"), -1) << "the second tile has its panel from L2";
  EXPECT_FALSE(of(8, 4096, 4064).contains("ti") && of(8, 4096, 4064).at("ti") == 1) << "no whole tiles";
  EXPECT_FALSE(of(8, 4104, 4096).contains("ti") && of(8, 4104, 4096).at("ti") == 1) << "no whole panels";
  search::Problem p = product({"int8_channel", 0, DType::f32}, 8, 4096, 4096);
  const auto schedule = search::kDotsRecipe.build(search::kDotsRecipe.defaults(p, t), p, t);
  ASSERT_TRUE(schedule.ok()) << schedule.status().to_string();
  EXPECT_NE(search::to_text(*schedule).find("tile_s8s8"), std::string::npos);
}

TEST(DotsTiles, where_they_are_offered) {
  const ir::Target t = amx();
  const auto values = [&](const search::Problem& p) {
    for (const search::KnobDomain& d : search::kDotsRecipe.knobs(p, t)) {
      if (d.name == "ti") return d.values;
    }
    return std::vector<int64_t>{};
  };
  for (const Form& f : kForms) {
    const search::Problem p = product(f, 32, 4096, 4096);
    EXPECT_EQ(values(p), (std::vector<int64_t>{0, 1})) << f.format << f.group;
    search::Knobs k = search::kDotsRecipe.defaults(p, t);
    EXPECT_EQ(k.at("ti"), 1) << "the default of more rows than one tile has";
    EXPECT_EQ(search::kDotsRecipe.defaults(product(f, 16, 4096, 4096), t).at("ti"), 0);
    k["mr"] = 33;
    EXPECT_FALSE(search::kDotsRecipe.accepts(k, p, t).ok()) << "more rows than tiles have";
  }
  EXPECT_TRUE(values(product({"awq", 128}, 32, 4104, 4096)).empty()) << "columns that are no whole panels";
  for (const Form& f : kShortForms) {
    const search::Problem p = product(f, 32, 4096, 4096);
    EXPECT_EQ(values(p), (std::vector<int64_t>{0, 1})) << f.group;
    EXPECT_EQ(search::kDotsRecipe.defaults(p, t).at("ti"), f.zeros ? 1 : 0) << f.group;
  }
  for (const Form& f : kBlocks) {
    const auto tiles = [&](int64_t m) { return search::kDotsRecipe.defaults(product(f, m, 4096, 4096), t).at("ti"); };
    EXPECT_EQ(tiles(32), f.zeros ? 1 : 0) << f.format;
    EXPECT_EQ(tiles(24), 0) << f.format;
  }
  EXPECT_TRUE(values(product({"nbits_4", 16, DType::f32, false}, 32, 4096, 4096)).empty()) << "less than half a tile";
}

}  // namespace
}  // namespace lathe::runtime
