// What every sketch promises of its table of knobs, and what records of older tables mean.
#include "search/sketches/sketch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/search/model/problems.h"

namespace lathe::search {
namespace {

std::vector<Problem> problems() {
  std::vector<Problem> out = {matmul_problem(1, 96, 64), matmul_problem(33, 100, 70, true, 2), softmax_problem(64, 640),
                              softmax_problem(7, 77, 2)};
  Problem transpose;
  transpose.kernel = kernel_of(R"(kernel transpose(s: f32[130, 70] in, d: f32[70, 130] out) family transpose
  for i < 130 [row]:
    for j < 70 [col]:
      d[j, i] = s[i, j]
)");
  out.push_back(transpose);
  return out;
}

TEST(Sketch, KnobsHaveOneNameAndOneSymbolEach) {
  for (const Recipe& r : recipes()) {
    std::set<std::string> spellings;
    for (const Knob& k : r.table()) {
      EXPECT_TRUE(spellings.insert(k.name).second) << r.name << " " << k.name;
      const bool fresh = std::string(k.name) == k.symbol || spellings.insert(k.symbol).second;
      EXPECT_TRUE(fresh) << r.name << " " << k.symbol;
      EXPECT_STRNE(k.text, "");
      EXPECT_LT(k.least, k.most) << k.name;
      EXPECT_EQ(find_knob(r.table(), k.name)->symbol, find_knob(r.table(), k.symbol)->symbol);
    }
  }
  EXPECT_EQ(find_knob(recipes()[0].table(), "colour"), nullptr);
}

TEST(Sketch, ValuesAreWithinTheirLimitsAndTheDefaultHasOneOfEachDomain) {
  for (const Problem& p : problems()) {
    const Recipe* r = find_recipe(p);
    ASSERT_NE(r, nullptr);
    const auto sketch = r->sketch(p, machine("zen5").target);
    const Knobs standard = sketch->defaults();
    const std::vector<KnobDomain> domains = sketch->domains();
    EXPECT_EQ(standard.size(), domains.size());
    for (const KnobDomain& d : domains) {
      const Knob* knob = find_knob(r->table(), d.name);
      ASSERT_NE(knob, nullptr) << d.name;
      for (const int64_t v : d.values) EXPECT_TRUE(v >= knob->least && v <= knob->most) << d.name << " " << v;
      EXPECT_TRUE(standard.contains(d.name)) << d.name;
    }
    for (const Knobs& k : sketch->accepted()) ASSERT_TRUE(sketch->accepts(k).ok());
  }
}

TEST(Sketch, ANumberOutOfItsLimitsIsRefusedWithThem) {
  const Problem p = matmul_problem(33, 100, 70);
  const auto sketch = kMatmulRecipe.sketch(p, machine("zen5").target);
  Knobs k = sketch->defaults();
  for (const auto& [symbol, value, message] :
       {std::tuple("mr", 0, "mr 0: expected at least 1"), std::tuple("pf", -2, "pf -2: expected at least -1"),
        std::tuple("pa", 2, "pa 2: expected 0 to 1")}) {
    Knobs wrong = k;
    wrong[symbol] = value;
    EXPECT_THAT(sketch->accepts(wrong).message(), testing::HasSubstr(message));
    EXPECT_FALSE(sketch->script(wrong).ok()) << symbol;
  }
}

// Rows and Schedules that were stored before a knob came lack it.
TEST(Sketch, KnobsThatARecordLacksMeanWhatItDidThen) {
  for (const Problem& p : problems()) {
    const Recipe* r = find_recipe(p);
    const auto sketch = r->sketch(p, machine("zen5").target);
    for (const Knob& knob : r->table()) {
      Knobs full = sketch->defaults();
      if (!full.contains(knob.symbol) || knob.older < knob.least) continue;
      full[knob.symbol] = knob.older;
      Knobs older = full;
      older.erase(knob.symbol);
      ASSERT_EQ(sketch->accepts(older).ok(), sketch->accepts(full).ok()) << knob.name;
      const auto now = sketch->script(full), then = sketch->script(older);
      ASSERT_EQ(now.ok(), then.ok());
      if (!now.ok()) continue;
      EXPECT_EQ(ir::print(now->kernel), ir::print(then->kernel)) << knob.name;
      const Featurizer f(p, machine("zen5").target, MachineRates::assumed(machine("zen5").target), r);
      EXPECT_EQ(f.of(full).us, f.of(older).us) << knob.name;
    }
  }
}

TEST(Sketch, AnOriginNamesItsRecipeWhateverTheVersion) {
  const Problem p = matmul_problem(4, 64, 64);
  EXPECT_EQ(recipe_of("panel.1", p), find_recipe(p));
  EXPECT_EQ(recipe_of("panel.7", p), find_recipe(p));
  EXPECT_EQ(recipe_of("rows.2", p), nullptr) << "of another family";
  EXPECT_EQ(recipe_of("", p), nullptr);
  EXPECT_EQ(recipe_of("colour.1", p), nullptr);
}

// Half the bytes: what a rule says in bytes holds for twice the elements.
TEST(Sketch, SizesOfElementsComeFromTheKernel) {
  const ir::Target t = machine("zen5").target;
  const auto turned = [&](const char* type, int64_t rows, int64_t columns) {
    Problem p;
    p.kernel = kernel_of(fmt::format(R"(kernel transpose(s: {0}[{1}, {2}] in, d: {0}[{2}, {1}] out) family transpose
  for i < {2} [row]:
    for j < {1} [col]:
      d[i, j] = s[j, i]
)",
                                     type, rows, columns));
    return kTransposeRecipe.defaults(p, t);
  };
  EXPECT_EQ(turned("f32", 512, 4096), turned("f16", 1024, 4096));
  EXPECT_NE(turned("f32", 512, 4096), turned("f16", 512, 4096));
}

}  // namespace
}  // namespace lathe::search
