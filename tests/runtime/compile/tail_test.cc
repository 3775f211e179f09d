// Products and rows whose sizes no tile and no vector divides: values on every level of this CPU and on the portable
// tier, exact on integers, operands between guard pages, for the default Schedule and for tiles of each kind of last
// panel.
#include <gtest/gtest.h>

#include "ir/core/text_form.h"
#include "jit/host/host_cpu.h"
#include "runtime/compile/compiler.h"
#include "runtime/oracle/oracle.h"
#include "search/sketches/recipe.h"
#include "tests/common/generators.h"

namespace lathe::runtime {
namespace {

using search::Knobs;
using search::Problem;

enum class Weight { packed, plain, transposed };

Problem product(int64_t m, int64_t n, int64_t k, Weight weight, const std::string& symbol = "") {
  const std::string columns = symbol.empty() ? std::to_string(n) : symbol;
  Problem p;
  p.kernel = ir::parse_kernel(
                 fmt::format(R"(kernel mm(a: f32[{0}, {2}] in, w: f32[{3}] {4}, y: f32[{0}, {1}] out) family matmul{6}
  c: f32[{0}, {1}] heap
  for m < {0} [m]:
    for n < {1} [n]:
      c[m, n] = 0.0
      for k < {2} [k]:
        c[m, n] += a[m, k] * w[{5}]
      y[m, n] = c[m, n]
)",
                             m, columns, k,
                             weight == Weight::transposed ? fmt::format("{}, {}", columns, k)
                                                          : fmt::format("{}, {}", k, columns),
                             weight == Weight::packed ? "const" : "in", weight == Weight::transposed ? "n, k" : "k, n",
                             symbol.empty() ? "" : " where N in 1..4096"))
                 .value();
  if (!symbol.empty()) p.dims = {{symbol, n}};
  return p;
}

std::vector<ir::Target> levels() {
  std::vector<ir::Target> out;
  for (const ir::IsaLevel level : {ir::IsaLevel::portable, ir::IsaLevel::avx2, ir::IsaLevel::avx512}) {
    const ir::Target t = jit::host_target().cap(level);
    if (t.level == level) out.push_back(t);
  }
  return out;
}

LeafPolicy policy_for(const ir::Target& t) {
  LeafPolicy policy;
  policy.llvm = false;
  policy.portable = !test::generates(t);
  return policy;
}

void expect_right(const Problem& p, const search::Schedule& schedule, const ir::Target& t, LeafCache& leaves,
                  const std::vector<SymbolValues>& shapes) {
  const auto stage = build_stage(p.kernel, schedule, t, leaves, policy_for(t));
  ASSERT_TRUE(stage.ok()) << ir::print(p.kernel) << search::to_text(schedule) << stage.status().to_string();
  for (const SymbolValues& dims : shapes) {
    const auto oracle = Oracle::create({p.kernel, dims, 1, 7}, nullptr);
    ASSERT_TRUE(oracle.ok());
    const auto verdict = (*oracle)->verify(*stage);
    ASSERT_TRUE(verdict.ok()) << verdict.status().to_string();
    EXPECT_TRUE(verdict->ok) << ir::print(p.kernel) << search::to_text(schedule) << verdict->reason;
  }
}

TEST(Tails, ProductsOfEveryWidth) {
  for (const ir::Target& t : levels()) {
    LeafCache leaves(LeafCacheOptions{}, nullptr, nullptr);
    for (const Weight weight : {Weight::packed, Weight::plain, Weight::transposed}) {
      for (int64_t n = 2; n <= 2 * 4 * t.lanes + 1; n += n < 3 * t.lanes ? 1 : 7) {
        const Problem p = product(1 + n % 7, n, 3 + n % 5, weight);
        expect_right(p, search::default_schedule(p, t), t, leaves, {{}});
      }
    }
  }
}

// Each width of panels with one, some and all but one of the last panel's columns; rows that fill their tiles and rows
// that do not.
TEST(Tails, EveryKindOfLastPanel) {
  for (const ir::Target& t : levels()) {
    LeafCache leaves(LeafCacheOptions{}, nullptr, nullptr);
    for (const Weight weight : {Weight::packed, Weight::plain, Weight::transposed}) {
      for (const int64_t vectors : {2, 3, 4}) {
        const int64_t nr = vectors * t.lanes;
        int built = 0;
        for (const int64_t rest : std::initializer_list<int64_t>{1, t.lanes - 1, t.lanes, t.lanes + 1, nr - 1}) {
          for (const int64_t m : {1, 3, 7}) {
            const Problem p = product(m, 2 * nr + rest, 9, weight);
            for (const int64_t mr : {1, 2, 3}) {
              const Knobs k = {{"mr", mr}, {"nr", nr}, {"st", 1}, {"kc", 0}, {"mc", 0}, {"pa", 0}, {"pf", 0}};
              if (!search::kMatmulRecipe.accepts(k, p, t).ok()) continue;
              const auto schedule = search::kMatmulRecipe.build(k, p, t);
              ASSERT_TRUE(schedule.ok()) << schedule.status().to_string();
              expect_right(p, *schedule, t, leaves, {{}});
              ++built;
            }
          }
        }
        EXPECT_GT(built, 10);
      }
    }
  }
}

TEST(Tails, ColumnsThatVary) {
  for (const ir::Target& t : levels()) {
    LeafCache leaves(LeafCacheOptions{}, nullptr, nullptr);
    std::vector<SymbolValues> shapes;
    for (int64_t n = 1; n <= 4 * t.lanes + 1; ++n) shapes.push_back({{"N", n}});
    for (const Weight weight : {Weight::plain, Weight::transposed}) {
      const Problem p = product(5, 3 * t.lanes, 11, weight, "N");
      expect_right(p, search::default_schedule(p, t), t, leaves, shapes);
    }
  }
}

// A panel that is whole takes no masks, so its tiles are as high as where columns fill them.
TEST(Tails, OneColumnMoreLeavesTilesAsHigh) {
  ir::Target avx2;
  avx2.level = ir::IsaLevel::avx2;
  Knobs k = {{"mr", 6}, {"nr", 16}, {"st", 1}, {"kc", 0}, {"mc", 0}, {"pa", 0}, {"pf", 0}};
  for (const int64_t n : {64, 65, 79})
    EXPECT_TRUE(search::kMatmulRecipe.accepts(k, product(60, n, 64, Weight::packed), avx2).ok()) << n;
}

}  // namespace
}  // namespace lathe::runtime
