// What weights of few bits are multiplied by before anything is measured: one stream of panels where they come from
// memory, as many as hide the sums' latency where they lie in the caches.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string_view>

#include "jit/host/host_cpu.h"
#include "runtime/serve/operator.h"

namespace lathe::runtime {
namespace {

search::Knobs defaults(const char* format, int64_t bytes, int64_t rows, bool cold, uint32_t allowed = 0) {
  ops::Graph g;
  const int x = add_tensor(g, "x", {ops::fixed_dim(rows), ops::fixed_dim(2048)});
  const int w = add_tensor(g, "w", {ops::fixed_dim(2048), ops::fixed_dim(bytes)}, true, ir::DType::u8);
  g.outputs = {add_node(g, "quantized_matmul", {x, w}, "y", {{"format", std::string(format)}})};
  const auto op = Operator::create(Context::create({}).value(), ops::finish(g).value()).value();
  search::Problem problem = op->general_problem(0, true, {.cold = cold});
  problem.allowed |= allowed;
  const search::Recipe* recipe = search::find_recipe(problem);
  const search::Knobs out = recipe->defaults(problem, op->context().target());
  EXPECT_TRUE(recipe->accepts(out, problem, op->context().target()).ok());
  EXPECT_TRUE(recipe->build(out, problem, op->context().target()).ok());
  return out;
}

TEST(QuantisedDefaults, OneStreamComesFromMemory) {
  struct Format {
    const char* name;
    int64_t bytes;  // of a row
  };
  for (const Format& f : {Format{"q8_0", 2176}, Format{"q4_0", 1152}, Format{"q5_0", 1408}, Format{"q4_k", 1152}}) {
    for (const int64_t rows : {1, 2, 4, 16}) {
      SCOPED_TRACE(fmt::format("{} {}", f.name, rows));
      const search::Knobs knobs = defaults(f.name, f.bytes, rows, true);
      EXPECT_EQ(search::knob_of(knobs, "st", -1), 1);
      EXPECT_EQ(search::knob_of(knobs, "pf", -1), 8192);
    }
  }
}

// Up to four rows the weights' bytes take longer than the arithmetic that wider scales save.
TEST(QuantisedDefaults, FewRowsFromMemoryKeepTheScalesOfGroups) {
  if (jit::host_target().vector_registers < 32) GTEST_SKIP() << "needs the registers of AVX-512";
  const bool alone = jit::host_target().prefetches_alone;
  for (const auto& [name, bytes] :
       {std::pair{"q4_0", 1152}, {"q4_1", 1280}, {"q5_0", 1408}, {"q8_0", 2176}, {"q4_k", 1152}, {"q5_k", 1408}}) {
    for (const int64_t rows : {1, 2, 3, 4}) {
      SCOPED_TRACE(fmt::format("{} {}", name, rows));
      const search::Knobs knobs = defaults(name, bytes, rows, true, ir::kQuantisedActivations);
      EXPECT_EQ(search::knob_of(knobs, "sc", -1), 32);
      EXPECT_EQ(search::knob_of(knobs, "mr", -1), rows);
      const std::string_view format = name;
      const bool bytes_are_weights = format == "q8_0";
      EXPECT_EQ(search::knob_of(knobs, "st", -1), alone && bytes_are_weights && rows == 2 ? 2 : 1);
      const int64_t of_few_bits = rows > (format == "q5_k" ? 1 : 2) ? 16384 : 0;
      const int64_t of_bytes = rows == 1 ? 4096 : 0;
      const int64_t left_alone = bytes_are_weights ? of_bytes : of_few_bits;
      EXPECT_EQ(search::knob_of(knobs, "pf", -1), alone ? left_alone : rows > 2 ? 8192 : 6144);
      const bool starts = !alone && !format.ends_with("_k") && rows <= (format == "q8_0" ? 2 : 1);
      EXPECT_EQ(search::knob_of(knobs, "ps", -1), starts);
    }
  }
}

// A residual is read with the results: tiles fetch it for the next one where both leave the caches between panels.
TEST(QuantisedDefaults, AResidualIsFetchedWhereItIsFar) {
  for (const int64_t rows : {1, 8, 512}) {
    ops::Graph g;
    const int x = add_tensor(g, "x", {ops::fixed_dim(rows), ops::fixed_dim(512)});
    const int w = add_tensor(g, "w", {ops::fixed_dim(4096), ops::fixed_dim(288)}, true, ir::DType::u8);
    const int r = add_tensor(g, "r", {ops::fixed_dim(rows), ops::fixed_dim(4096)});
    const int y = add_node(g, "quantized_matmul", {x, w}, "y", {{"format", std::string("q4_k")}});
    g.outputs = {add_node(g, "add", {y, r}, "z")};
    const auto op = Operator::create(Context::create({}).value(), ops::finish(g).value()).value();
    search::Problem problem = op->general_problem(0, true, {.cold = true});
    problem.allowed |= ir::kQuantisedActivations;
    const search::Schedule own = search::default_schedule(problem, op->context().target());
    const bool fetched = to_text(own).find("prefetch e0 ") != std::string::npos;
    EXPECT_EQ(fetched, rows == 512) << to_text(own);
  }
}

TEST(QuantisedDefaults, SeveralHideTheLatencyInTheCaches) {
  if (jit::host_target().vector_registers < 32) GTEST_SKIP() << "needs the registers of AVX-512";
  const search::Knobs knobs = defaults("q8_0", 2176, 1, false);
  EXPECT_GT(search::knob_of(knobs, "st", -1), 1);
  EXPECT_EQ(search::knob_of(knobs, "pf", -1), 0);
}

}  // namespace
}  // namespace lathe::runtime
