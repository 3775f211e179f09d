// Weights of few bits that integers choose: in every format the default is that of one weight, in products of bytes and
// of floats, on one thread and two; it can be built, and weights lie packed one after another.
#include <gtest/gtest.h>

#include <utility>

#include "jit/host/host_cpu.h"
#include "ops/lower.h"
#include "ops/op_table.h"
#include "ops/quant_formats.h"
#include "ops/samples.h"
#include "runtime/compile/compiler.h"
#include "tests/common/generators.h"

namespace lathe::runtime {
namespace {

using ir::LayoutDim;

void check_defaults(const ops::OpRow& row, const ir::Target& t, uint32_t allowed, int threads) {
  LeafCache leaves(LeafCacheOptions{}, nullptr, nullptr);
  int variant = 0;  // of a format as constants; as inputs, where it permits that, it is the next
  for (const ops::QuantFormat& format : ops::quant_formats()) {
    SCOPED_TRACE(fmt::format("{} {} {} threads", row.name, format.name, threads));
    const auto sample =
        ops::sample_graph(row, 0, std::exchange(variant, variant + (format.made ? 1 : 2)),
                          {ops::symbol_dim("S", 0, 64, {{16, 1}}), {ops::fixed_dim(70), ops::fixed_dim(4)}});
    ASSERT_TRUE(sample.ok()) << sample.status().to_string();
    const auto graph = ops::finish(*sample);
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    search::Problem p;
    p.kernel = ops::lower(*graph)->kernels[0].kernel;
    p.dims = {{"S", 16}};
    p.allowed = allowed;
    p.threads = threads;
    p.cold = true;
    const search::Scheduled made = search::default_scheduled(p, t);
    const bool deep = format.block > 1 || format.grouped;  // samples of others have too few weights for groups
    const bool bytes = deep && (allowed & ir::kQuantisedActivations) != 0;
    EXPECT_EQ(made.schedule.recipe, bytes ? "dots.1" : "quantised.1");
    const auto stage = build_stage(p.kernel, made, t, leaves, {.llvm = false, .portable = !test::generates(t)});
    EXPECT_TRUE(stage.ok()) << search::to_text(made.schedule) << stage.status().to_string();
    for (const ir::Buffer& b : made.kernel.buffers) {
      if (b.place != ir::Place::constant) continue;
      ASSERT_GE(b.layout.size(), 2u) << b.name;
      EXPECT_TRUE(b.layout[0].dim == 0 && b.layout[0].part == LayoutDim::Part::whole) << b.name;
      EXPECT_TRUE(b.layout[1].part == LayoutDim::Part::outer) << b.name;
    }
  }
}

TEST(QuantisedExperts, DefaultsAreThoseOfOneWeight) {
  const ir::Target t = jit::host_target();
  if (!t.has(ir::IsaLevel::avx2)) GTEST_SKIP() << "needs AVX2: nothing is generated for this machine";
  for (const char* op : {"quantized_expert_matmul", "quantized_grouped_matmul"}) {
    for (const uint32_t more : {0u, static_cast<uint32_t>(ir::kQuantisedActivations)}) {
      for (const int threads : {1, 2}) check_defaults(*ops::find_op(op), t, more, threads);
    }
  }
}

}  // namespace
}  // namespace lathe::runtime
