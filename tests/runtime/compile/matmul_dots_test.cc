// Products whose last columns, or only one, are summed along K: values on every level of this CPU and on the portable
// tier, operands between guard pages; what the default picks, and what it takes of the numeric class.
#include <gtest/gtest.h>

#include "ir/core/text_form.h"
#include "jit/host/host_cpu.h"
#include "runtime/compile/compiler.h"
#include "runtime/oracle/oracle.h"
#include "search/sketches/recipe.h"
#include "tests/common/generators.h"
#include "tests/common/machines.h"

namespace lathe::runtime {
namespace {

using search::Knobs;
using search::Problem;

enum class Weight { packed, plain, transposed };

Problem product(int64_t m, int64_t n, int64_t k, Weight weight, const char* out = "c[m, n]",
                const std::string& rows = "") {
  Problem p;
  p.kernel =
      ir::parse_kernel(
          fmt::format(
              R"(kernel mm(a: f32[{0}, {2}] in, w: f32[{3}] {4}, v: f32[{1}] const, y: f32[{0}, {1}] out) family matmul{6}
  c: f32[{0}, {1}] heap
  for m < {0} [m]:
    for n < {1} [n]:
      c[m, n] = 0.0
      for k < {2} [k]:
        c[m, n] += a[m, k] * w[{5}]
      y[m, n] = {7}
)",
              rows.empty() ? std::to_string(m) : rows, n, k,
              weight == Weight::transposed ? fmt::format("{}, {}", n, k) : fmt::format("{}, {}", k, n),
              weight == Weight::packed ? "const" : "in", weight == Weight::transposed ? "n, k" : "k, n",
              rows.empty() ? "" : fmt::format(" where {} in 0..4096", rows), out))
          .value();
  if (!rows.empty()) p.dims = {{rows, m}};
  return p;
}

Problem heads(int64_t m, int64_t n, int64_t k, bool transposed) {
  Problem p;
  p.kernel =
      ir::parse_kernel(
          fmt::format(R"(kernel mm(a: f32[3, {0}, {2}] in, w: f32[3, {3}] in, y: f32[3, {0}, {1}] out) family matmul
  c: f32[3, {0}, {1}] heap
  for b < 3 [batch]:
    for m < {0} [m]:
      for n < {1} [n]:
        c[b, m, n] = 0.0
        for k < {2} [k]:
          c[b, m, n] += a[b, m, k] * w[b, {4}]
        y[b, m, n] = c[b, m, n]
)",
                      m, n, k, transposed ? fmt::format("{}, {}", n, k) : fmt::format("{}, {}", k, n),
                      transposed ? "n, k" : "k, n"))
          .value();
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

Knobs dots(const Problem& p, const ir::Target& t) {
  Knobs k = search::kMatmulRecipe.defaults(p, t);
  if (search::knob_of(k, "dk", -1) < 0) return {};
  k["dk"] = 1;
  if (search::kMatmulRecipe.accepts(k, p, t).ok()) return k;
  // No columns stay: one tile to choose.
  k = {{"mr", 1}, {"nr", 2 * t.lanes}, {"dk", 1}};
  return search::kMatmulRecipe.accepts(k, p, t).ok() ? k : Knobs{};
}

// Serves one problem on every level, each Schedule once.
class Check {
 public:
  Check(const Problem& p, const std::vector<SymbolValues>& shapes = {{}}) : p_(p) {
    for (const SymbolValues& dims : shapes) {
      auto oracle = Oracle::create({p.kernel, dims, 1, 7}, nullptr);
      EXPECT_TRUE(oracle.ok());
      if (oracle.ok()) oracles_.push_back(std::move(*oracle));
    }
  }
  void expect_right(const search::Schedule& schedule, const ir::Target& t, LeafCache& leaves) {
    LeafPolicy policy;
    policy.llvm = false;
    policy.portable = !test::generates(t);
    const auto stage = build_stage(p_.kernel, schedule, t, leaves, policy);
    ASSERT_TRUE(stage.ok()) << ir::print(p_.kernel) << search::to_text(schedule) << stage.status().to_string();
    EXPECT_EQ(stage->portable, policy.portable) << ir::print(p_.kernel) << search::to_text(schedule);
    for (const auto& oracle : oracles_) {
      const auto verdict = oracle->verify(*stage);
      ASSERT_TRUE(verdict.ok()) << verdict.status().to_string();
      EXPECT_TRUE(verdict->ok) << ir::print(p_.kernel) << search::to_text(schedule) << verdict->reason;
    }
  }
  // With the columns summed along K.
  void expect_right(const Knobs& knobs, const ir::Target& t, LeafCache& leaves) {
    const auto schedule = search::kMatmulRecipe.build(knobs, p_, t);
    ASSERT_TRUE(schedule.ok()) << ir::print(p_.kernel) << schedule.status().to_string();
    expect_right(*schedule, t, leaves);
  }

 private:
  const Problem& p_;
  std::vector<std::unique_ptr<Oracle>> oracles_;
};

TEST(MatmulDots, ComputeWhatTheProductIs) {
  LeafCache leaves(LeafCacheOptions{}, nullptr, nullptr);
  int built = 0;
  for (const Weight weight : {Weight::packed, Weight::plain, Weight::transposed}) {
    for (const int64_t n : {1, 17, 33, 34, 49, 65, 81}) {
      for (const int64_t k : {1, 7, 64, 100, 129}) {
        for (const int64_t m : {1, 5, 31, 61}) {
          const Problem p = product(m, n, k, weight, "c[m, n] + v[n]");
          Check check(p);
          for (const ir::Target& t : levels()) {
            const search::Schedule usual = search::default_schedule(p, t);
            check.expect_right(usual, t, leaves);
            const Knobs knobs = dots(p, t);
            if (knobs.empty()) continue;
            if (knobs != usual.knobs) check.expect_right(knobs, t, leaves);
            ++built;
          }
        }
      }
    }
  }
  EXPECT_GT(built, 150 * static_cast<int>(levels().size()));
}

TEST(MatmulDots, OfHeads) {
  LeafCache leaves(LeafCacheOptions{}, nullptr, nullptr);
  for (const bool transposed : {false, true}) {
    for (const int64_t n : {1, 18, 33}) {
      const Problem p = heads(13, n, 70, transposed);
      Check check(p);
      for (const ir::Target& t : levels()) {
        const Knobs knobs = dots(p, t);
        ASSERT_FALSE(knobs.empty());
        check.expect_right(knobs, t, leaves);
      }
    }
  }
}

TEST(MatmulDots, OneColumnOfRowsThatVary) {
  std::vector<SymbolValues> shapes;
  for (const int64_t m : {0, 1, 2, 7, 8, 9, 100}) shapes.push_back({{"M", m}});
  LeafCache leaves(LeafCacheOptions{}, nullptr, nullptr);
  for (const Weight weight : {Weight::packed, Weight::plain, Weight::transposed}) {
    for (const int64_t mc : {0, 96}) {
      Problem p = product(500, 1, 70, weight, "c[m, n] + v[n]", "M");
      p.threads = mc == 0 ? 1 : 2;
      Check check(p, shapes);
      for (const ir::Target& t : levels()) {
        Knobs knobs = dots(p, t);
        ASSERT_FALSE(knobs.empty());
        knobs["mc"] = mc;
        ASSERT_TRUE(search::kMatmulRecipe.accepts(knobs, p, t).ok())
            << search::kMatmulRecipe.accepts(knobs, p, t).to_string();
        check.expect_right(knobs, t, leaves);
      }
    }
  }
}

TEST(MatmulDots, AreTheDefaultWhereAVectorWouldHoldAFewColumns) {
  const ir::Target zen5 = test::find_machine("zen5")->target;
  for (const Weight weight : {Weight::packed, Weight::plain, Weight::transposed}) {
    const auto picked = [&](int64_t m, int64_t n, int64_t k) {
      return search::knob_of(search::kMatmulRecipe.defaults(product(m, n, k, weight), zen5), "dk", -1);
    };
    EXPECT_EQ(picked(31, 33, 64), 1);
    EXPECT_EQ(picked(61, 65, 128), 1);
    EXPECT_EQ(picked(64, 1, 256), 1);
    EXPECT_EQ(picked(32, 32, 64), -1) << "whole vectors";
    EXPECT_EQ(picked(32, 48, 64), -1);
    EXPECT_EQ(picked(31, 33, 1), -1) << "sums of one term";
    EXPECT_EQ(picked(31, 45, 64), -1) << "many columns";
    EXPECT_EQ(picked(31, 33, 3), 0) << "sums so short that adding lanes is all there is";
  }
}

// Who does not allow sums in another order gets tiles, not the naive loops.
TEST(MatmulDots, HaveASimplerScheduleThatKeepsTheOrder) {
  const ir::Target zen5 = test::find_machine("zen5")->target;
  const Problem p = product(31, 33, 64, Weight::packed);
  EXPECT_NE(search::default_schedule(p, zen5).numeric & ir::kReassociate, 0u);
  const std::vector<search::Scheduled> simpler = search::simpler_schedules(p, zen5);
  ASSERT_GT(simpler.size(), 1u);
  EXPECT_EQ(simpler[0].schedule.numeric & ir::kReassociate, 0u);
  EXPECT_EQ(search::knob_of(simpler[0].schedule.knobs, "dk", -1), 0);
}

}  // namespace
}  // namespace lathe::runtime
