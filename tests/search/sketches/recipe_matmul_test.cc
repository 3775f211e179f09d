// The matmul recipe's panels of a row-major B: which settings copy them, what that keeps, and when the model thinks
// that it pays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "search/sketches/matmul_model.h"
#include "search/strategy/space.h"
#include "tests/search/model/problems.h"
#include "tests/search/sketches/kept_values.h"

namespace lathe::search {
namespace {

using testing::HasSubstr;

// y[b, m, n] with a B that is no constant, m x k x n; a size of 0 is a symbol.
Problem product(int64_t m, int64_t k, int64_t n, const ir::SymbolValues& dims = {}, bool transposed = false) {
  std::string symbols;
  const auto size = [&](const char* name, int64_t value) {
    if (value != 0) return fmt::format("{}", value);
    symbols += fmt::format("{} {} in 1..512", symbols.empty() ? " where" : ",", name);
    return std::string(name);
  };
  const std::string rows = size("M", m), columns = size("N", n), depth = size("K", k);
  Problem p;
  p.kernel = kernel_of(
      fmt::format(R"(kernel product(x: f32[2, {0}, {2}] in, w: f32[2, {3}] in, y: f32[2, {0}, {1}] out) family matmul{4}
  c: f32[2, {0}, {1}] heap
  for b < 2 [batch]:
    for m < {0} [m]:
      for n < {1} [n]:
        c[b, m, n] = 0.0
        for k < {2} [k]:
          c[b, m, n] += x[b, m, k] * w[b, {5}]
        y[b, m, n] = c[b, m, n]
)",
                  rows, columns, depth, transposed ? columns + ", " + depth : depth + ", " + columns, symbols,
                  transposed ? "n, k" : "k, n"));
  p.dims = dims;
  return p;
}

Knobs knobs_of(int64_t mr, int64_t nr, const Knobs& others) {
  Knobs out = {{"mr", mr}, {"nr", nr}, {"st", 1}, {"kc", 0}, {"mc", 0}, {"pa", 0}, {"pf", 0}, {"pb", 1}};
  for (const auto& [name, value] : others) out[name] = value;
  return out;
}

// One over, one under and exactly tiles and blocks; fixed and symbols; with every other knob that moves loops.
TEST(CopiedPanels, KeepTheValues) {
  struct Case {
    Problem problem;
    int64_t mr, nr;
    Knobs others;
  };
  const Case cases[] = {
      {product(13, 9, 37), 4, 16, {}},
      {product(12, 9, 32), 4, 16, {}},
      {product(11, 9, 31), 4, 16, {}},
      {product(12, 9, 33), 4, 16, {{"mu", 1}}},
      {product(0, 9, 33, {{"M", 13}}), 4, 16, {}},
      {product(13, 0, 33, {{"K", 7}}), 4, 16, {}},
      {product(13, 9, 0, {{"N", 33}}), 4, 16, {}},
      {product(0, 0, 0, {{"M", 13}, {"K", 7}, {"N", 33}}), 4, 16, {}},
      {product(200, 5, 19), 5, 16, {{"mc", 96}}},
      {product(200, 5, 19), 5, 16, {{"mc", 96}, {"pa", 1}}},
      {product(13, 300, 19), 4, 8, {{"kc", 256}}},
  };
  const ir::Target t = machine("laptop").target;
  for (const Case& c : cases) {
    const Knobs knobs = knobs_of(c.mr, c.nr, c.others);
    const std::optional<Made> made = expect_values_kept(c.problem, knobs, t);
    ASSERT_TRUE(made);
    ASSERT_NE(made->kernel.find_buffer("bp"), nullptr);
    EXPECT_EQ(made->kernel.find_buffer("bp")->place, ir::Place::stack) << "each thread has its own";
  }
}

TEST(CopiedPanels, AreRefusedWhereThereIsNothingToCopy) {
  const ir::Target t = machine("laptop").target;
  const auto refused = [&](const Problem& p, int64_t mr, int64_t nr) {
    return kMatmulRecipe.accepts(knobs_of(mr, nr, {}), p, t).to_string();
  };
  EXPECT_THAT(refused(product(13, 9, 37, {}, true), 4, 16), HasSubstr("pb 1: B does not lie row-major"));
  EXPECT_THAT(refused(matmul_problem(13, 37, 9), 4, 16), HasSubstr("pb 1: B does not lie row-major"));
  EXPECT_THAT(refused(product(4, 9, 37), 4, 16), HasSubstr("pb 1: one tile walks a panel"));
  EXPECT_THAT(refused(product(13, 9, 16), 4, 16), HasSubstr("or a panel is all of B"));
  EXPECT_THAT(refused(product(13, 1, 37), 4, 16), HasSubstr("or one row"));
  for (const KnobDomain& d : kMatmulRecipe.knobs(matmul_problem(13, 37, 9), t))
    EXPECT_NE(d.name, "pb") << "a constant B has no such knob";
}

// y[m, n] with a w of [n, k].
Problem along_depth(int64_t m, int64_t n, int64_t k, const char* result = "c[m, n]") {
  Problem p;
  p.kernel = kernel_of(fmt::format(
      R"(kernel product(x: f32[{0}, {2}] in, w: f32[{1}, {2}] in, h: f32[{1}] in, y: f32[{0}, {1}] out) family matmul
  c: f32[{0}, {1}] heap
  for m < {0} [m]:
    for n < {1} [n]:
      c[m, n] = 0.0
      for k < {2} [k]:
        c[m, n] += x[m, k] * w[n, k]
      y[m, n] = {3}
)",
      m, n, k, result));
  return p;
}

Knobs row_lanes(int64_t mr, int64_t nr, int64_t nb, const Knobs& others = {}) {
  Knobs out = {{"mr", mr}, {"nr", nr}, {"nb", nb}, {"rl", 1}};
  for (const auto& [name, value] : others) out[name] = value;
  return out;
}

// One over, one under and exactly vectors, tiles and blocks; with and without an epilogue.
TEST(RowLanes, KeepTheValues) {
  struct Case {
    int64_t m, n, k, mr, nr, nb;
  };
  const ir::Target t = machine("laptop").target;
  for (const Case& c : std::initializer_list<Case>{{8, 64, 9, 4, 8, 32},
                                                   {7, 63, 8, 4, 8, 32},
                                                   {9, 65, 5, 4, 16, 32},
                                                   {16, 33, 7, 5, 16, 32},
                                                   {17, 31, 4, 3, 24, 16},
                                                   {2, 7, 2, 7, 8, 7},
                                                   {31, 67, 3, 2, 32, 67},
                                                   {8, 64, 6, 2, 8, 2}}) {
    for (const char* result : {"c[m, n]", "exp(c[m, n] + h[n])"}) {
      SCOPED_TRACE(fmt::format("{}x{}x{} {}", c.m, c.n, c.k, result));
      const std::optional<Made> made =
          expect_values_kept(along_depth(c.m, c.n, c.k, result), row_lanes(c.mr, c.nr, c.nb), t);
      ASSERT_TRUE(made);
      EXPECT_THAT(to_text(made->schedule), HasSubstr("tensorize k mma"));
      EXPECT_EQ(made->kernel.find_buffer("bt"), nullptr) << "nothing of w is copied";
    }
  }
}

TEST(RowLanes, AreRefusedWhereRowsDoNotFillAPanelOrWaitForBlocks) {
  const ir::Target t = machine("zen5").target;
  const auto refused = [&](const Problem& p, const Knobs& knobs) {
    return kMatmulRecipe.accepts(knobs, p, t).to_string();
  };
  const Problem p = along_depth(16, 64, 9);
  EXPECT_THAT(refused(product(16, 9, 64), row_lanes(4, 16, 32)), HasSubstr("rl 1: expected few rows"));
  EXPECT_THAT(refused(along_depth(65, 64, 9), row_lanes(4, 80, 32)), HasSubstr("rl 1: expected few rows"));
  EXPECT_THAT(refused(p, row_lanes(4, 32, 32)), HasSubstr("rl 1: expected a panel of all rows"));
  EXPECT_THAT(refused(p, row_lanes(4, 16, 32, {{"kc", 8}})), HasSubstr("rl 1: expected a panel of all rows"));
  EXPECT_THAT(refused(p, row_lanes(4, 16, 0)), HasSubstr("nb 0: n is 64"));
  EXPECT_THAT(refused(p, row_lanes(4, 16, 65)), HasSubstr("nb 65: n is 64"));
  EXPECT_THAT(refused(p, row_lanes(32, 16, 32)), HasSubstr("mr 32: registers"));
  EXPECT_THAT(refused(p, row_lanes(1, 16, 32)), HasSubstr("or a single column"));
  EXPECT_EQ(refused(p, row_lanes(31, 16, 32)), "OK");
  for (const KnobDomain& d : kMatmulRecipe.knobs(matmul_problem(16, 64, 9), t)) {
    EXPECT_NE(d.name, "rl") << "a constant B has no such knob";
  }
}

// Three heads to one w: y[b, h, m, n].
Problem grouped(int64_t m, int64_t k, int64_t n, bool transposed, int64_t batch = 2) {
  Problem p;
  p.kernel = kernel_of(fmt::format(
      R"(kernel product(x: f32[{3}, 3, {0}, {2}] in, w: f32[{3}, {4}] in, y: f32[{3}, 3, {0}, {1}] out) family matmul
  c: f32[{3}, 3, {0}, {1}] heap
  for b < {3} [batch]:
    for h < 3 [batch]:
      for m < {0} [m]:
        for n < {1} [n]:
          c[b, h, m, n] = 0.0
          for k < {2} [k]:
            c[b, h, m, n] += x[b, h, m, k] * w[b, {5}]
          y[b, h, m, n] = c[b, h, m, n]
)",
      m, n, k, batch, transposed ? fmt::format("{}, {}", n, k) : fmt::format("{}, {}", k, n),
      transposed ? "n, k" : "k, n"));
  return p;
}

// Heads that share B walk each panel in turn: it is transposed or copied once for all of them.
TEST(SharedPanels, KeepTheValues) {
  const ir::Target t = machine("laptop").target;
  for (const bool transposed : {true, false}) {
    for (const int64_t joined : {0, 1}) {
      const Problem p = grouped(12, 9, 37, transposed);
      Knobs knobs = knobs_of(4, 16, {{"pb", transposed ? 0 : 1}, {"gh", 1}, {"mu", joined}});
      SCOPED_TRACE(fmt::format("transposed {} joined {}", transposed, joined));
      const std::optional<Made> made = expect_values_kept(p, knobs, t);
      ASSERT_TRUE(made);
      const ir::Result<ir::CutKernel> pieces = cut(made->kernel);
      ASSERT_TRUE(pieces.ok()) << pieces.status().to_string();
      // b { n0 { panel; h { tiles } } }
      const ir::NestNode& panels = pieces->nest.phases[0].body[0];
      ASSERT_EQ(panels.body.size(), 2u) << ir::print(made->kernel);
      EXPECT_EQ(panels.body[0].kind == ir::NestNode::Kind::call || panels.body[0].iter != "h", true);
      // Heads and whole tiles are loops of one leaf.
      ASSERT_EQ(panels.body[1].kind, ir::NestNode::Kind::call);
      const ir::NestCall& heads = panels.body[1].call;
      ASSERT_FALSE(heads.extents.empty());
      EXPECT_EQ(ir::print(heads.extents[0]), "3");
    }
  }
}

TEST(SharedPanels, AreRefusedWhereNothingIsShared) {
  const ir::Target t = machine("laptop").target;
  const auto refused = [&](const Problem& p, const Knobs& others) {
    return kMatmulRecipe.accepts(knobs_of(4, 16, others), p, t).to_string();
  };
  EXPECT_THAT(refused(product(13, 9, 37), {{"gh", 1}}), HasSubstr("gh 1: no heads share panels"));
  EXPECT_THAT(refused(grouped(13, 9, 37, false), {{"pb", 0}, {"gh", 1}}), HasSubstr("gh 1: no heads share panels"));
  EXPECT_THAT(refused(grouped(13, 9, 37, false), {{"pa", 1}, {"gh", 1}}), HasSubstr("packed rows, are one head's"));
  EXPECT_THAT(refused(grouped(200, 9, 37, false), {{"mc", 96}, {"gh", 1}}), HasSubstr("are one head's"));
}

// Threads take panels where all heads share.
TEST(SharedPanels, AreSharedOutToThreads) {
  Problem p;
  p.kernel = kernel_of(R"(kernel product(x: f32[3, 12, 9] in, w: f32[37, 9] in, y: f32[3, 12, 37] out) family matmul
  c: f32[3, 12, 37] heap
  for h < 3 [batch]:
    for m < 12 [m]:
      for n < 37 [n]:
        c[h, m, n] = 0.0
        for k < 9 [k]:
          c[h, m, n] += x[h, m, k] * w[n, k]
        y[h, m, n] = c[h, m, n]
)");
  Knobs knobs = knobs_of(4, 16, {{"pb", 0}, {"gh", 1}});
  const ir::Result<Schedule> together = kMatmulRecipe.build(knobs, p, machine("laptop").target);
  ASSERT_TRUE(together.ok()) << together.status().to_string();
  EXPECT_THAT(to_text(*together), HasSubstr("parallelize n0"));
  knobs["gh"] = 0;
  const ir::Result<Schedule> apart = kMatmulRecipe.build(knobs, p, machine("laptop").target);
  ASSERT_TRUE(apart.ok()) << apart.status().to_string();
  EXPECT_THAT(to_text(*apart), HasSubstr("parallelize h"));
}

TEST(SharedPanels, AreTheDefaultForFewRows) {
  const ir::Target t = machine("laptop").target;
  EXPECT_EQ(knob_of(kMatmulRecipe.defaults(grouped(32, 64, 512, true), t), "gh"), 1);
  EXPECT_EQ(knob_of(kMatmulRecipe.defaults(grouped(1400, 64, 512, true), t), "gh"), 0)
      << "the rows of all heads leave the caches";
}

// Older records say nothing of pb: panels are read where they lie.
TEST(CopiedPanels, AreNotWhatOlderRecordsMean) {
  const Problem p = product(13, 9, 37);
  Knobs older = knobs_of(4, 16, {});
  older.erase("pb");
  const ir::Result<Schedule> schedule = kMatmulRecipe.build(older, p, machine("laptop").target);
  ASSERT_TRUE(schedule.ok());
  EXPECT_THAT(to_text(*schedule), testing::Not(HasSubstr("bp")));
}

// What a tile reads again and again has strides that the code knows.
TEST(CopiedPanels, HaveConstantStrides) {
  const Problem p = product(13, 9, 37);
  const ir::Result<Schedule> schedule = kMatmulRecipe.build(knobs_of(4, 16, {}), p, machine("laptop").target);
  ASSERT_TRUE(schedule.ok());
  const ir::Result<ir::CutKernel> pieces = cut(*replay(p.kernel, *schedule));
  ASSERT_TRUE(pieces.ok());
  int tiles = 0;
  for (const ir::Leaf& leaf : pieces->leaves) {
    if (leaf.text.find("@tensor(mma)") == std::string::npos) continue;
    EXPECT_THAT(leaf.text, HasSubstr("p1: f32[_, _] in strides [16, 1]"));
    ++tiles;
  }
  EXPECT_GT(tiles, 0);
}

// Rows whose lines belong to two panels cost L1 twice as much: beyond it a copy pays, inside it and for few tiles it
// does not.
TEST(CopiedPanels, AreTheDefaultWhereLinesAreSharedBeyondL1) {
  const ir::Target t = machine("laptop").target;
  const auto copied = [&](const Problem& p) { return knob_of(kMatmulRecipe.defaults(p, t), "pb"); };
  EXPECT_EQ(copied(product(385, 300, 399)), 1);
  EXPECT_EQ(copied(product(127, 256, 127)), 1);
  EXPECT_EQ(copied(product(37, 96, 49)), 0);
  EXPECT_EQ(copied(product(12, 300, 399)), 0) << "two tiles";
  EXPECT_EQ(copied(product(0, 300, 399, {{"M", 385}})), 1);
}

TEST(CopiedPanels, AreKnownToTheAnalyticStage) {
  for (const int64_t n : {399, 49}) {
    const Problem p = product(n - 14, n == 399 ? 300 : 96, n);
    RecipeSpace space(p, machine("laptop").target, MachineRates::assumed(machine("laptop").target));
    Knobs knobs = knobs_of(4, 16, {{"nb", 0}});
    if (n == 49) knobs["mu"] = knobs["dk"] = 0;
    const int copy = space.nearest(knobs);
    ASSERT_EQ(space.at(copy).knobs, knobs);
    knobs["pb"] = 0;
    const int in_place = space.nearest(knobs);
    ASSERT_EQ(space.at(in_place).knobs, knobs);
    EXPECT_EQ(space.at(copy).estimate_us < space.at(in_place).estimate_us, n == 399) << n;
  }
}

// Of blocks of rows the last has the rows that are left, not as many as the others.
// Blocks of columns walk K in blocks: one over, one under and exactly tiles and blocks, a row, and few columns.
TEST(ColumnBlocks, KeepTheValues) {
  struct Case {
    Problem problem;
    int64_t mr, nr, nb, kc;
    Knobs others;
  };
  const Case cases[] = {
      {product(13, 33, 96), 4, 16, 32, 16, {}},
      {product(12, 32, 97), 4, 16, 32, 16, {}},
      {product(12, 31, 95), 4, 16, 32, 16, {}},
      {product(11, 40, 80), 4, 16, 32, 16, {{"pa", 1}}},
      {product(5, 64, 70), 5, 16, 64, 16, {}},
      {product(1, 33, 96), 1, 16, 32, 16, {}},
      {product(1, 48, 35), 1, 8, 16, 24, {}},
      {product(1, 33, 300), 1, 128, 256, 16, {}},
      {product(1, 31, 256), 1, 128, 256, 16, {}},
      {product(3, 33, 1100), 3, 64, 1024, 16, {{"pf", 512}}},
      {product(2, 64, 64), 2, 32, 64, 32, {}},
      {product(0, 33, 96, {{"M", 13}}), 4, 16, 32, 16, {}},
      {product(0, 33, 96, {{"M", 1}}), 4, 16, 32, 16, {}},
      {product(7, 0, 70, {{"K", 37}}), 4, 16, 32, 16, {}},
      // Panels of a block copied or transposed, and the next block fetched meanwhile.
      {product(13, 33, 96), 4, 16, 32, 16, {{"pb", 1}, {"pf", -1}}},
      {product(12, 32, 97), 4, 16, 32, 16, {{"pb", 1}, {"pa", 1}, {"pf", -1}}},
      {product(11, 40, 79), 4, 16, 32, 16, {{"pf", -1}}},
      {product(1, 33, 96), 1, 16, 32, 16, {{"pf", -1}}},
      {product(0, 33, 96, {{"M", 13}}), 4, 16, 32, 16, {{"pb", 1}, {"pf", -1}}},
      // The first tile copies what it reads: two tiles, several, a last one that is short, cut vectors and blocks.
      {product(8, 32, 96), 4, 16, 32, 16, {{"pb", 2}, {"pf", -1}}},
      {product(13, 33, 96), 4, 16, 32, 16, {{"pb", 2}, {"pa", 1}, {"pf", -1}}},
      {product(12, 31, 97), 4, 16, 32, 16, {{"pb", 2}}},
      {product(5, 37, 79), 4, 16, 64, 16, {{"pb", 2}, {"pa", 1}, {"pf", -1}}},
      {product(2, 33, 70), 1, 16, 32, 16, {{"pb", 2}, {"pf", -1}}},
      {product(13, 33, 96, {}, true), 4, 16, 32, 16, {{"pf", -1}}},
      {product(12, 32, 97, {}, true), 4, 16, 32, 16, {{"pa", 1}, {"pf", -1}}},
      {product(11, 40, 79, {}, true), 4, 16, 32, 16, {}},
      {product(7, 0, 70, {{"K", 37}}, true), 4, 16, 32, 16, {{"pf", -1}}},
  };
  for (const char* const name : {"laptop", "xeon"}) {
    const ir::Target t = machine(name).target;
    for (const Case& c : cases) {
      if (c.nr < t.lanes || c.nr > 8 * t.lanes || (c.mr > 1 && c.nr > 4 * t.lanes)) continue;
      Knobs knobs = knobs_of(c.mr, c.nr, {{"pb", 0}, {"nb", c.nb}, {"kc", c.kc}});
      for (const auto& [knob, value] : c.others) knobs[knob] = value;
      const std::optional<Made> made = expect_values_kept(c.problem, knobs, t);
      ASSERT_TRUE(made);
      const std::string text = ir::print(made->kernel);
      EXPECT_NE(text.find("@tensor(mma)"), std::string::npos);
      EXPECT_EQ(text.find("prefetch w next k0") != std::string::npos, knobs["pf"] == -1) << text;
      const size_t copies = text.find("for bp_0 <");
      EXPECT_EQ(copies != std::string::npos && text.find("@tensor(mma)", copies) < text.find('\n', copies),
                knobs["pb"] == 2)
          << text;
    }
  }
}

TEST(ColumnBlocks, AreRefusedWhereTheyAreNoWholePanels) {
  const ir::Target t = machine("xeon").target;
  const auto refused = [&](const Problem& p, const Knobs& others) {
    Knobs knobs = knobs_of(4, 16, {{"pb", 0}, {"nb", 32}, {"kc", 16}});
    for (const auto& [name, value] : others) knobs[name] = value;
    return kMatmulRecipe.accepts(knobs, p, t).to_string();
  };
  EXPECT_EQ(refused(product(13, 33, 96), {}), "OK");
  EXPECT_EQ(refused(product(13, 33, 96, {}, true), {}), "OK");
  EXPECT_THAT(refused(product(13, 33, 0, {{"N", 96}}), {}), HasSubstr("or n varies"));
  EXPECT_THAT(refused(product(13, 33, 96), {{"kc", 0}}), HasSubstr("expected a block of K"));
  EXPECT_EQ(refused(product(13, 33, 96), {{"pb", 1}}), "OK");
  EXPECT_EQ(refused(product(13, 33, 96), {{"pb", 2}}), "OK");
  EXPECT_THAT(refused(product(13, 33, 96), {{"pb", 2}, {"nb", 0}}), HasSubstr("pb 2: expected blocks of columns"));
  EXPECT_THAT(refused(product(13, 33, 96), {{"pb", 2}, {"mr", 13}}), HasSubstr("pb 2: one tile walks a panel"));
  EXPECT_THAT(refused(product(0, 33, 96, {{"M", 13}}), {{"pb", 2}}), HasSubstr("rows that do not vary"));
  EXPECT_THAT(refused(product(13, 33, 96, {}, true), {{"pb", 2}}), HasSubstr("pb 2: B does not lie row-major"));
  EXPECT_THAT(refused(product(13, 33, 96), {{"nb", 0}, {"kc", 0}, {"pf", -1}}), HasSubstr("or in blocks"));
  EXPECT_THAT(refused(product(13, 33, 96), {{"nb", 24}}), HasSubstr("nb 24: n is 96, nr 16"));
  EXPECT_THAT(refused(product(13, 33, 31), {}), HasSubstr("nb 32: n is 31"));
  EXPECT_THAT(refused(product(13, 33, 65536), {{"nb", 32768}}), HasSubstr("too many sums of 13 rows wait"));
}

// Rows of several pages from memory, that few rows of A need once.
TEST(ColumnBlocks, AreTheDefaultForFewRowsFromMemory) {
  for (const char* const name : {"zen5", "xeon"}) {
    for (const int64_t m : {1, 4, 16}) {
      Problem p = product(m, 4096, 4096);
      p.cold = true;
      const ir::Target t = machine(name).target;
      EXPECT_GT(knob_of(kMatmulRecipe.defaults(p, t), "nb"), 0) << name << " " << m;
      p.cold = false;
      p.kernel = product(m, 64, 2048).kernel;
      EXPECT_EQ(knob_of(kMatmulRecipe.defaults(p, t), "nb"), 0) << name << " " << m;
    }
  }
}

// One row by columns that lie in one piece each, which are summed where they lie.
TEST(OneRow, TakesThePartOfTheColumn) {
  const ir::Target t = machine("laptop").target;
  for (const int64_t n : {2, 7, 8, 9, 33, 200, 0}) {
    for (const int64_t k : {7, 8, 37}) {
      const Problem p = product(1, k, n, n == 0 ? ir::SymbolValues{{"N", 21}} : ir::SymbolValues{}, true);
      const Knobs knobs = kMatmulRecipe.defaults(p, t);
      SCOPED_TRACE(fmt::format("{} columns, K {}", n, k));
      const std::optional<Made> made = expect_values_kept(p, knobs, t);
      ASSERT_TRUE(made);
      EXPECT_THAT(to_text(made->schedule), testing::Not(HasSubstr("transpose"))) << "no panel is made";
    }
  }
  EXPECT_EQ(knob_of(kMatmulRecipe.defaults(product(1, 64, 500, {}, true), t), "dk"), 1);
  EXPECT_THAT(to_text(*kMatmulRecipe.build(kMatmulRecipe.defaults(product(2, 37, 200, {}, true), t),
                                           product(2, 37, 200, {}, true), t)),
              HasSubstr("transpose"))
      << "two rows";
}

// Two to four rows by a B whose columns lie in one piece, if sums are long: the same, a column of A's rows each.
TEST(FewRows, TakeThePartOfColumns) {
  const ir::Target t = machine("laptop").target;
  for (const int64_t m : {2, 3, 4, 5}) {
    for (const int64_t k : {255, 256, 259}) {
      for (const int64_t n : {3, 5, 33, 64}) {
        const Problem p = product(m, k, n, {}, true);
        const Knobs knobs = kMatmulRecipe.defaults(p, t);
        SCOPED_TRACE(fmt::format("{} rows, {} columns, K {}", m, n, k));
        const std::optional<Made> made = expect_values_kept(p, knobs, t);
        ASSERT_TRUE(made);
        const bool along = m <= 4 && n > 4 && k >= 256;
        if (along) EXPECT_EQ(knob_of(knobs, "dk"), 1);
        EXPECT_EQ(to_text(made->schedule).find("transpose") == std::string::npos, along);
      }
    }
  }
}

TEST(MatmulModel, TheLastBlockOfRowsIsItsOwn) {
  MatmulWork w;
  w.m = 210;
  w.n = 200;
  w.k = 96;
  w.mr = 5;
  w.vectors = 2;
  w.row_bytes = 4 * w.k;
  const ir::Target t = machine("laptop").target;
  const double whole = matmul_cycles(w, t).compute;
  w.mc = 100;
  EXPECT_NEAR(matmul_cycles(w, t).compute / whole, 1, 0.02);
}

}  // namespace
}  // namespace lathe::search
