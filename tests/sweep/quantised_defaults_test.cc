// Products of weights of few bits at the sizes of models: the default has native code in every format, for few rows and
// for many, and nobody is left to the portable executor.
#include "ops/quant_formats.h"
#include "runtime/compile/packed_places.h"
#include "tests/common/quant_fields.h"
#include "tests/sweep/sweep_case.h"

namespace lathe::runtime {
namespace {

constexpr int64_t kDepth = 2048, kColumns = 512, kGroup = 32;

ops::Graph product(const ops::QuantFormat& format, const ops::DimDesc& m, int64_t columns = kColumns) {
  ops::Graph g;
  std::vector<int> in = {ops::add_tensor(g, "a", {m, ops::fixed_dim(kDepth)})};
  const int64_t group = format.grouped ? kGroup : 0;
  test::add_weight(g, in, format, columns, kDepth, group);
  g.outputs = {ops::add_node(g, "quantized_matmul", in, "y", {{"format", format.name}, {"group", group}})};
  return g;
}

TEST(QuantisedDefaults, HaveNativeCode) {
  for (const ops::QuantFormat& format : ops::quant_formats()) {
    for (const ops::DimDesc& m : {ops::fixed_dim(1), ops::fixed_dim(4), ops::fixed_dim(16), ops::fixed_dim(128),
                                  ops::symbol_dim("M", 1, 512, {{1, 1}, {128, 1}})}) {
      const auto graph = ops::finish(product(format, m));
      ASSERT_TRUE(graph.ok()) << format.name << ": " << graph.status().to_string();
      for (const Level& level : levels()) {
        if (!test::generates(level.context->target())) continue;
        for (const bool cold : {false, true}) {
          auto op = Operator::create(level.context, *graph);
          ASSERT_TRUE(op.ok()) << op.status().to_string();
          PrepareRequest request;
          request.cold = cold;
          const auto info = (*op)->stages().prepare(request);
          ASSERT_TRUE(info.ok()) << format.name << ": " << info.status().to_string();
          EXPECT_EQ(info->tier, 1) << format.name << " of " << ops::dim_text(m) << (cold ? " cold rows: " : " rows: ")
                                   << refusal((*op)->general_problem(0, true, request), level);
          EXPECT_FALSE((*op)->stages().of(0)[0]->stage.packed.empty())
              << format.name << " of " << ops::dim_text(m) << " rows on " << level.name
              << " is read as it lies: " << refusal((*op)->general_problem(0, true, request), level);
        }
      }
    }
  }
}

// Panels of other shapes hold the same numbers; a zero point of four bits is kept as a byte.
TEST(QuantisedDefaults, PackedWeightsTakeHardlyMoreThanTheirFormats) {
  for (const ops::QuantFormat& format : ops::quant_formats()) {
    for (const uint32_t allowed : {0u, kDefaultAllowed | uint32_t{ir::kQuantisedActivations}}) {
      const auto graph = ops::finish(product(format, ops::symbol_dim("M", 1, 512, {{1, 1}, {128, 1}})));
      ASSERT_TRUE(graph.ok()) << format.name << ": " << graph.status().to_string();
      const Level& level = levels().back();
      auto op = Operator::create(level.context, *graph);
      ASSERT_TRUE(op.ok()) << op.status().to_string();
      PrepareRequest request;
      request.allowed = allowed;
      request.cold = true;
      ASSERT_TRUE((*op)->stages().prepare(request).ok());
      const Stage& stage = (*op)->stages().of(0)[0]->stage;
      int64_t given = 0;
      for (const ir::Buffer& b : stage.naive.buffers) {
        if (b.place != ir::Place::constant) continue;
        int64_t elements = 1;
        for (const ir::Expr& d : ir::given_dims(b)) elements *= d->ival;
        given += elements * ir::dtype_bytes(ir::given_type(b));
      }
      std::vector<const PackedParam*> packed;
      for (const PackedParam& p : stage.packed) packed.push_back(&p);
      const auto places = packed_places(packed, {{"M", 1}});
      ASSERT_TRUE(places.ok()) << places.status().to_string();
      const double ratio = static_cast<double>(places->bytes) / static_cast<double>(given);
      SCOPED_TRACE(fmt::format("{}, classes {}", format.name, allowed));
      EXPECT_GT(ratio, 0.9);
      EXPECT_LE(ratio, 1.06);
    }
  }
}

// Where the caller allows quantised activations, sums of bytes in native code, right in every format. One shape has
// columns beyond whole panels.
TEST(QuantisedDefaults, AreSumsOfBytesWhereTheCallerAllowsThem) {
  constexpr uint32_t kAllowed = kDefaultAllowed | ir::kQuantisedActivations;
  for (const ops::QuantFormat& format : ops::quant_formats()) {
    for (const ops::DimDesc& m :
         {ops::fixed_dim(1), ops::fixed_dim(9), ops::symbol_dim("M", 1, 512, {{1, 1}, {13, 1}})}) {
      const auto graph = ops::finish(product(format, m, kColumns + 8));
      ASSERT_TRUE(graph.ok()) << format.name << ": " << graph.status().to_string();
      std::unique_ptr<Oracle> oracle;  // of all levels: what is expected is interpreted once
      for (const Level& level : levels()) {
        auto op = Operator::create(level.context, *graph);
        ASSERT_TRUE(op.ok()) << op.status().to_string();
        PrepareRequest request;
        request.allowed = kAllowed;
        SCOPED_TRACE(fmt::format("{} of {} rows on {}", format.name, ops::dim_text(m), level.name));
        ASSERT_TRUE((*op)->stages().prepare(request).ok());
        const Stage& stage = (*op)->stages().of(0)[0]->stage;
        const search::Problem problem = (*op)->general_problem(0, true, request);
        EXPECT_EQ(stage.schedule.recipe, "dots.1") << refusal(problem, level);
        EXPECT_NE(stage.schedule.numeric & ir::kQuantisedActivations, 0u);
        EXPECT_EQ(stage.portable, !test::generates(level.context->target())) << refusal(problem, level);
        if (oracle == nullptr) {
          const SymbolValues dims = m.fixed() ? SymbolValues{} : SymbolValues{{"M", 13}};
          auto made = Oracle::create({problem.kernel, dims, 1, 3, 60'000}, nullptr);
          ASSERT_TRUE(made.ok()) << made.status().to_string();
          oracle = std::move(*made);
        }
        const auto verdict = oracle->verify(stage);
        ASSERT_TRUE(verdict.ok()) << verdict.status().to_string();
        EXPECT_TRUE(verdict->ok) << verdict->reason;
      }
    }
  }
}

// Groups that share a scale of the activations have sums of their own, in blocks and in panels beside each other too.
TEST(QuantisedDefaults, GroupsThatShareAScaleAreSummedBeforeIt) {
  int parts = 0;
  for (const ops::QuantFormat& format : ops::quant_formats()) {
    const auto graph = ops::finish(product(format, ops::symbol_dim("M", 1, 512, {{5, 1}}), 40));
    ASSERT_TRUE(graph.ok()) << format.name << ": " << graph.status().to_string();
    std::unique_ptr<Oracle> oracle;  // of all levels and scales
    for (const Level& level : levels()) {
      const ir::Target& target = level.context->target();
      if (!test::generates(target)) continue;
      auto op = Operator::create(level.context, *graph);
      ASSERT_TRUE(op.ok()) << op.status().to_string();
      PrepareRequest request;
      request.allowed = kDefaultAllowed | ir::kQuantisedActivations;
      const search::Problem problem = (*op)->general_problem(0, true, request);
      const search::Recipe* recipe = search::find_recipe(problem);
      ASSERT_NE(recipe, nullptr);
      for (const int64_t scale : {64, 256}) {
        const int64_t rows = target.vector_registers < 32 ? 2 : 4;
        const search::Knobs knobs = {{"mr", rows}, {"nr", 2 * target.lanes}, {"sc", scale}};
        if (!recipe->accepts(knobs, problem, target).ok()) continue;
        SCOPED_TRACE(fmt::format("{} of {} rows on {}, sc {}", format.name, rows, level.name, scale));
        const auto scheduled = recipe->script(knobs, problem, target);
        ASSERT_TRUE(scheduled.ok()) << scheduled.status().to_string();
        if (search::to_text(scheduled->schedule).find("sums=scales") == std::string::npos) continue;
        ++parts;
        LeafCache leaves(LeafCacheOptions{}, nullptr, nullptr);
        const auto stage = build_stage(problem.kernel, *scheduled, target, leaves, {.llvm = false, .portable = false});
        ASSERT_TRUE(stage.ok()) << stage.status().to_string();
        if (oracle == nullptr) {
          auto made = Oracle::create({problem.kernel, {{"M", 5}}, 1, 3, 60'000}, nullptr);
          ASSERT_TRUE(made.ok()) << made.status().to_string();
          oracle = std::move(*made);
        }
        const auto verdict = oracle->verify(*stage);
        ASSERT_TRUE(verdict.ok()) << verdict.status().to_string();
        EXPECT_TRUE(verdict->ok) << verdict->reason;
      }
    }
  }
  if (test::generates(levels().back().context->target())) EXPECT_GE(parts, 20);
}

}  // namespace
}  // namespace lathe::runtime
