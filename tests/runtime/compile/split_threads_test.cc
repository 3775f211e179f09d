// Sums whose parts threads share out, of a K and of keys: right, and the same bits on any number of threads.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "ir/core/text_form.h"
#include "jit/host/host_cpu.h"
#include "ops/lower.h"
#include "runtime/compile/compiler.h"
#include "runtime/oracle/oracle.h"
#include "search/sketches/recipe.h"
#include "tests/common/aligned.h"
#include "tests/common/generators.h"

namespace lathe::runtime {
namespace {

// `kernel` has f32 operands of fixed sizes, of which the last is written.
void expect_same_bits(const ir::Kernel& kernel, const search::Schedule& schedule, const ir::Target& t) {
  LeafCache leaves(LeafCacheOptions{}, nullptr, nullptr);
  const auto stage = build_stage(kernel, schedule, t, leaves, {.llvm = false, .portable = !test::generates(t)});
  ASSERT_TRUE(stage.ok()) << stage.status().to_string();
  const auto verdict = Oracle::create({kernel, {}, 3, 7}, nullptr).value()->verify(*stage);
  ASSERT_TRUE(verdict.ok()) << verdict.status().to_string();
  EXPECT_TRUE(verdict->ok) << verdict->reason;
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  std::vector<test::Aligned> operands;
  std::vector<void*> args;
  for (const ir::Buffer& b : kernel.buffers) {
    if (b.place != ir::Place::in && b.place != ir::Place::out) continue;
    size_t count = 1;
    for (const ir::Expr& dim : b.dims) count *= static_cast<size_t>(dim->ival);
    operands.emplace_back(count * 4);
    for (size_t i = 0; i < count; ++i) static_cast<float*>(operands.back().memory)[i] = normal(rng);
    args.push_back(operands.back().memory);
  }
  const test::Aligned& y = operands.back();
  std::vector<char> first;
  for (const int threads : {1, 2, 3, 4, 7}) {
    const auto bound = stage->executable->bind({}, {}, threads);
    ASSERT_TRUE(bound.ok()) << bound.status().to_string();
    const test::Aligned workspace(static_cast<size_t>((*bound)->workspace_bytes()));
    std::memset(workspace.memory, 0xff, workspace.size);
    std::memset(y.memory, 0xff, y.size);
    ThreadTeam team(TeamOptions{.threads = threads});
    (*bound)->run(args.data(), workspace.memory, &team);
    const char* bytes = static_cast<const char*>(y.memory);
    const std::vector<char> result(bytes, bytes + y.size);
    if (first.empty()) first = result;
    EXPECT_EQ(first, result) << threads << " threads";
  }
}

// The levels this machine has.
std::vector<ir::Target> levels() {
  std::vector<ir::Target> out;
  for (const ir::IsaLevel level : {ir::IsaLevel::portable, ir::IsaLevel::avx2, ir::IsaLevel::avx512}) {
    const ir::Target t = jit::host_target().cap(level);
    if (t.level == level) out.push_back(t);
  }
  return out;
}

TEST(SplitThreads, BitsOfPartsOfKDoNotDependOnThreads) {
  search::Problem p;
  p.kernel = ir::parse_kernel(
                 fmt::format(R"(kernel mm(a: f32[{0}, {2}] in, w: f32[{2}, {1}] in, y: f32[{0}, {1}] out) family matmul
  c: f32[{0}, {1}] heap
  for m < {0} [m]:
    for n < {1} [n]:
      c[m, n] = 0.0
      for k < {2} [k]:
        c[m, n] += a[m, k] * w[k, n]
      y[m, n] = max(c[m, n], 0.0)
)",
                             5, 40, 4100))
                 .value();
  p.threads = 4;
  for (const ir::Target& t : levels()) {
    SCOPED_TRACE(ir::isa_name(t.level));
    const search::Knobs knobs = {{"mr", 2}, {"nr", 2 * t.lanes}, {"st", 1}, {"kc", 0},
                                 {"mc", 0}, {"pa", 0},           {"pf", 0}, {"sk", 4}};
    const auto schedule = search::kMatmulRecipe.build(knobs, p, t);
    ASSERT_TRUE(schedule.ok()) << schedule.status().to_string();
    expect_same_bits(p.kernel, *schedule, t);
  }
}

// One query of `heads` heads over one head of keys: too few groups for the threads, so that keys are in parts.
TEST(SplitThreads, BitsOfPartsOfKeysDoNotDependOnThreads) {
  for (const int64_t keys : {1024, 1031, 1537}) {
    for (const int64_t heads : {2, 5}) {
      ops::Graph g;
      const auto add = [&](const char* name, int64_t heads_of, int64_t rows) {
        return ops::add_tensor(g, name, {ops::fixed_dim(heads_of), ops::fixed_dim(rows), ops::fixed_dim(20)});
      };
      const std::vector<int> in = {add("q", heads, 1), add("k", 1, keys), add("v", 1, keys)};
      g.outputs = {ops::add_node(g, "attention", in, "y", {})};
      search::Problem p;
      p.kernel = ops::lower(*ops::finish(g))->kernels.at(0).kernel;
      p.threads = 4;
      for (const ir::Target& t : levels()) {
        SCOPED_TRACE(fmt::format("{} keys, {} heads, {}", keys, heads, ir::isa_name(t.level)));
        const search::Schedule schedule = search::default_schedule(p, t);
        ASSERT_NE(search::to_text(schedule).find("split_softmax"), std::string::npos) << search::to_text(schedule);
        expect_same_bits(p.kernel, schedule, t);
      }
    }
  }
}

}  // namespace
}  // namespace lathe::runtime
