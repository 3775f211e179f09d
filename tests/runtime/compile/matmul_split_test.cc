// Parts of K on threads: right, and the same bits on any number of threads.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "ir/core/text_form.h"
#include "jit/host/host_cpu.h"
#include "runtime/compile/compiler.h"
#include "runtime/oracle/oracle.h"
#include "search/sketches/recipe.h"
#include "tests/common/generators.h"

namespace lathe::runtime {
namespace {

struct Memory {
  explicit Memory(size_t bytes) : size((bytes + 63) / 64 * 64 + 64), data(std::aligned_alloc(64, size), std::free) {}
  float* floats() { return static_cast<float*>(data.get()); }
  size_t size;
  std::unique_ptr<void, void (*)(void*)> data;
};

TEST(MatmulSplit, BitsDoNotDependOnThreads) {
  constexpr int64_t kRows = 5, kColumns = 40, kDepth = 4100;
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
                             kRows, kColumns, kDepth))
                 .value();
  p.threads = 4;
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  Memory a(kRows * kDepth * 4), w(kDepth * kColumns * 4), y(kRows * kColumns * 4);
  for (int64_t i = 0; i < kRows * kDepth; ++i) a.floats()[i] = normal(rng);
  for (int64_t i = 0; i < kDepth * kColumns; ++i) w.floats()[i] = normal(rng);
  for (const ir::IsaLevel level : {ir::IsaLevel::portable, ir::IsaLevel::avx2, ir::IsaLevel::avx512}) {
    const ir::Target t = jit::host_target().cap(level);
    if (t.level != level) continue;
    SCOPED_TRACE(ir::isa_name(level));
    const search::Knobs knobs = {{"mr", 2}, {"nr", 2 * t.lanes}, {"st", 1}, {"kc", 0},
                                 {"mc", 0}, {"pa", 0},           {"pf", 0}, {"sk", 4}};
    const auto schedule = search::kMatmulRecipe.build(knobs, p, t);
    ASSERT_TRUE(schedule.ok()) << schedule.status().to_string();
    LeafCache leaves(LeafCacheOptions{}, nullptr, nullptr);
    const auto stage = build_stage(p.kernel, *schedule, t, leaves, {.llvm = false, .portable = !test::generates(t)});
    ASSERT_TRUE(stage.ok()) << stage.status().to_string();
    const auto verdict = Oracle::create({p.kernel, {}, 3, 7}, nullptr).value()->verify(*stage);
    ASSERT_TRUE(verdict.ok()) << verdict.status().to_string();
    EXPECT_TRUE(verdict->ok) << verdict->reason;
    std::vector<float> first;
    for (const int threads : {1, 2, 3, 4, 7}) {
      const auto bound = stage->executable->bind({}, {}, threads);
      ASSERT_TRUE(bound.ok()) << bound.status().to_string();
      Memory workspace(static_cast<size_t>((*bound)->workspace_bytes()));
      std::memset(workspace.data.get(), 0xff, workspace.size);
      std::memset(y.data.get(), 0xff, y.size);
      ThreadTeam team(TeamOptions{.threads = threads});
      void* args[] = {a.data.get(), w.data.get(), y.data.get()};
      (*bound)->run(args, workspace.data.get(), &team);
      std::vector<float> result(y.floats(), y.floats() + kRows * kColumns);
      if (first.empty()) first = result;
      EXPECT_EQ(std::memcmp(first.data(), result.data(), result.size() * 4), 0) << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace lathe::runtime
