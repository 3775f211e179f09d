// What the recipes serve before anything is measured, where a rule of theirs decides (measured in bench/tables).
#include <gtest/gtest.h>

#include "search/sketches/recipe.h"
#include "search/strategy/space.h"
#include "tests/search/model/problems.h"

namespace lathe::search {
namespace {

// The tables were measured there.
ir::Target target() { return machine("zen5").target; }

Problem fixed(const std::string& text, int threads = 1) {
  Problem p;
  p.kernel = kernel_of(text);
  p.threads = threads;
  return p;
}

Problem transpose(int64_t rows, int64_t columns) {
  return fixed(fmt::format(R"(kernel transpose(s: f32[{0}, {1}] in, d: f32[{1}, {0}] out) family transpose
  for i < {1} [row]:
    for j < {0} [col]:
      d[i, j] = s[j, i]
)",
                           rows, columns));
}

Problem layernorm(int64_t rows, int64_t columns, int threads = 1, const char* type = "f32") {
  return fixed(fmt::format(R"(kernel norm(s: {2}[{0}, {1}] in, g: {2}[{1}] const, d: {2}[{0}, {1}] out) family row
  u: f32[{0}] heap
  v: f32[{0}] heap
  r: f32[{0}] heap
  for b < {0} [row]:
    u[b] = 0.0
    for n < {1} [col]:
      u[b] += f32(s[b, n])
    u[b] = u[b] / 768.0
    v[b] = 0.0
    for n1 < {1} [col]:
      v[b] += (f32(s[b, n1]) - u[b]) * (f32(s[b, n1]) - u[b])
    r[b] = rsqrt(v[b] / 768.0 + 0.1)
    for n2 < {1} [col]:
      d[b, n2] = {2}((f32(s[b, n2]) - u[b]) * r[b] * f32(g[n2]))
)",
                           rows, columns, type),
               threads);
}

Problem gelu(int64_t elements) {
  return fixed(fmt::format(R"(kernel gelu(x: f32[{0}] in, y: f32[{0}] out) family elementwise
  for j < {0} [col]:
    y[j] = x[j] * normal_cdf(x[j])
)",
                           elements));
}

Problem scores(int64_t rows, int64_t depth) {
  return fixed(fmt::format(
      R"(kernel scores(x: f32[12, {0}, {1}] in, w: f32[12, {0}, {1}] in, y: f32[12, {0}, {0}] out) family matmul
  c: f32[12, {0}, {0}] heap
  for b < 12 [batch]:
    for m < {0} [m]:
      for n < {0} [n]:
        c[b, m, n] = 0.0
        for k < {1} [k]:
          c[b, m, n] += x[b, m, k] * w[b, n, k]
        y[b, m, n] = c[b, m, n]
)",
      rows, depth));
}

// symbols: what a column symbol ranges over; none where columns are a number.
Problem softmax_of(int64_t rows, int threads, const std::string& columns, const char* type, const char* symbols) {
  return fixed(fmt::format(R"(kernel softmax(s: {2}[{0}, {1}] in, d: {2}[{0}, {1}] out) family row{3}
  m: f32[{0}] heap
  a: f32[{0}] heap
  r: f32[{0}] heap
  e: f32[{0}, {1}] heap
  for b < {0} [row]:
    m[b] = -inf
    for n < {1} [col]:
      m[b] fmax= f32(s[b, n])
    a[b] = 0.0
    for n1 < {1} [col]:
      e[b, n1] = exp(f32(s[b, n1]) - m[b])
      a[b] += e[b, n1]
    r[b] = 1.0 / a[b]
    for n2 < {1} [col]:
      d[b, n2] = {2}(e[b, n2] * r[b])
)",
                           rows, columns, type, symbols),
               threads);
}

Problem softmax(int64_t rows, int threads, int64_t columns = 1024, const char* type = "f32") {
  return softmax_of(rows, threads, std::to_string(columns), type, "");
}

// Rows of any length, of 1024 columns at the hint.
Problem softmax_of_any(int64_t rows) {
  Problem p = softmax_of(rows, 1, "L", "f32", " where L in 0..4096");
  p.dims["L"] = 1024;
  return p;
}

// Of `length` queries and as many keys.
Problem attention(int64_t heads, int64_t length, bool cold = false) {
  Problem p = fixed(
      fmt::format(R"(kernel attention(q: f32[{0}, {1}, 64] in, k: f32[{0}, {1}, 64] in, v: f32[{0}, {1}, 64] in, )"
                  R"(y: f32[{0}, {1}, 64] out) family attention
  m: f32[{0}, {1}] heap
  a: f32[{0}, {1}] heap
  r: f32[{0}, {1}] heap
  c: f32[{0}, {1}, {1}] heap
  s: f32[{0}, {1}, {1}] heap
  o: f32[{0}, {1}, 64] heap
  for t < {0} [batch]:
    for i < {1} [row]:
      m[t, i] = -3.4028235e+38
      for j < {1} [key]:
        c[t, i, j] = 0.0
        for d < 64 [k]:
          c[t, i, j] += q[t, i, d] * k[t, j, d]
        s[t, i, j] = c[t, i, j] * 0.125
        m[t, i] fmax= s[t, i, j]
      a[t, i] = 0.0
      for j1 < {1} [key]:
        s[t, i, j1] = exp2((s[t, i, j1] - m[t, i]) * 1.442695)
        a[t, i] += s[t, i, j1]
      r[t, i] = select(a[t, i] == 0.0, 0.0, 1.0 / a[t, i])
      for n < 64 [n]:
        o[t, i, n] = 0.0
        for j2 < {1} [key]:
          o[t, i, n] += s[t, i, j2] * v[t, j2, n]
        y[t, i, n] = o[t, i, n] * r[t, i]
)",
                  heads, length));
  p.cold = cold;
  return p;
}

// Few rows by a B that lies as it is.
Problem values(int64_t length) {
  Problem p = fixed(
      fmt::format(R"(kernel values(x: f32[2, 7, {0}] in, w: f32[2, {0}, 64] in, y: f32[2, 7, 64] out) family matmul
  c: f32[2, 7, 64] heap
  for b < 2 [batch]:
    for m < 7 [m]:
      for n < 64 [n]:
        c[b, m, n] = 0.0
        for k < {0} [k]:
          c[b, m, n] += x[b, m, k] * w[b, k, n]
        y[b, m, n] = c[b, m, n]
)",
                  length));
  p.cold = true;  // of constants, of which there are none
  return p;
}

struct Case {
  const char* name;
  Problem problem;
  Knobs want;
};

TEST(RecipeDefaults, FollowTheShape) {
  const Case cases[] = {
      {"lines that share sets: short blocks", transpose(512, 768), {{"bt", 32}, {"bf", 32}, {"along", 0}}},
      {"short rows: many", transpose(333, 1000), {{"bt", 0}, {"bf", 128}}},
      {"in the caches as it lies", transpose(64, 96), {{"bt", 0}, {"bf", 0}}},
      {"whole steps of eight", layernorm(128, 768), {{"unroll", 8}, {"rows", 1}, {"overlap", 1}}},
      {"no whole steps", layernorm(128, 800), {{"unroll", 4}, {"overlap", 1}}},
      {"three passes take short whole steps", softmax(600, 1, 80), {{"unroll", 1}, {"overlap", 2}}},
      {"three passes, a rest in any case", softmax(600, 1, 83), {{"unroll", 4}, {"overlap", 2}}},
      {"columns that vary have no long steps", softmax_of_any(600), {{"unroll", 1}, {"overlap", 1}}},
      {"few rows: pieces of two vectors", values(1024), {{"mr", 7}, {"nr", 32}}},
      {"rows too long to overlap go in pairs", layernorm(64, 4096), {{"unroll", 4}, {"rows", 2}, {"overlap", 0}}},
      {"long narrow ones overlap all the same", layernorm(64, 16384, 1, "bf16"), {{"unroll", 8}, {"overlap", 1}}},
      {"one row has no other", layernorm(1, 4096), {{"unroll", 8}, {"rows", 1}}},
      {"longer blocks where each thread gets several", layernorm(128, 4096, 2), {{"grain", 16}}},
      {"and the longest", layernorm(512, 4096, 2), {{"grain", 64}}},
      {"few rows", layernorm(64, 4096, 2), {{"grain", 4}}},
      {"blocks that three passes overlap in are whole", softmax(512, 2), {{"grain", 64}, {"overlap", 2}}},
      {"shorter ones, then", softmax(528, 2), {{"grain", 16}, {"overlap", 2}}},
      {"or the shortest", softmax(1000, 2), {{"grain", 4}, {"overlap", 2}}},
      {"an odd one would be half a pair", layernorm(65, 4096), {{"rows", 1}}},
      {"rows from memory are prefetched", softmax(8192, 1), {{"stream", 1}, {"pf", 8192}, {"overlap", 2}}},
      {"those in the caches are not", softmax(2048, 1), {{"stream", 0}, {"pf", 0}}},
      {"short rows go in fours", softmax(512, 1, 128), {{"unroll", 2}, {"rows", 4}, {"overlap", 0}}},
      {"if they are whole fours", softmax(514, 1, 128), {{"rows", 1}, {"overlap", 2}}},
      {"longer ones do not", softmax(512, 1, 256), {{"rows", 1}, {"overlap", 2}}},
      {"narrow ones in eights", softmax(512, 1, 512, "bf16"), {{"unroll", 1}, {"rows", 8}, {"overlap", 0}}},
      {"narrow norms in eights", layernorm(64, 1024, 1, "bf16"), {{"unroll", 1}, {"rows", 8}}},
      {"if what is prefetched is of other rows", layernorm(16384, 1024, 1, "bf16"), {{"rows", 1}, {"pf", 8192}}},
      {"eights from memory", softmax(65536, 1, 512, "bf16"), {{"rows", 8}, {"pf", 8192}}},
      {"longer narrow ones do not", softmax(512, 1, 1024, "bf16"), {{"rows", 1}, {"overlap", 2}}},
      {"registers for three", gelu(12288), {{"unroll", 3}}},
      {"no whole steps of three", gelu(12289), {{"unroll", 4}}},
      {"four tiles of short sums", scores(32, 64), {{"mr", 8}, {"nr", 32}, {"mu", 1}}},
      {"sixteen tiles", scores(128, 64), {{"mu", 0}}},
      {"queries that stay near are read where they lie", attention(14, 128), {{"qc", 0}}},
      {"those of many heads are prefetched with the next head", attention(32, 128), {{"qc", 0}, {"fn", 1}}},
      {"and long ones", attention(8, 512), {{"qc", 0}, {"fn", 1}}},
      {"and what comes from memory", attention(14, 128, true), {{"qc", 0}, {"fn", 1}}},
      {"keys of two heads do not stay", attention(2, 4096), {{"qc", 1}, {"fn", 0}}},
      {"no head follows", attention(1, 8192), {{"qc", 1}}},
      {"blocks that are not whole are long ones, without the next head", attention(32, 100), {{"mb", 32}, {"fn", 0}}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const Recipe* recipe = find_recipe(c.problem);
    ASSERT_NE(recipe, nullptr);
    const Knobs knobs = recipe->defaults(c.problem, target());
    EXPECT_TRUE(recipe->accepts(knobs, c.problem, target()).ok());
    EXPECT_TRUE(recipe->build(knobs, c.problem, target()).ok());
    for (const auto& [name, value] : c.want) EXPECT_EQ(knob_of(knobs, name, -7), value) << name;
  }
}

// Zen 4 fetches streams alone; side by side, several pieces of half a KB hinder it.
TEST(RecipeDefaults, ShortRowsFromMemoryGoInTurnWhereTheCoreFetchesThem) {
  const auto rows = [](const Problem& p, const char* name) {
    return knob_of(find_recipe(p)->defaults(p, machine(name).target), "rows");
  };
  for (const Problem& p : {softmax(65536, 1, 256, "bf16"), softmax(65536, 1, 128), layernorm(65536, 256, 1, "bf16")}) {
    EXPECT_EQ(rows(p, "zen4"), 1);
    EXPECT_GE(rows(p, "zen5"), 4);
  }
  const Problem eights = softmax(65536, 1, 255, "bf16");
  EXPECT_EQ(rows(eights, "zen4"), 8);
  EXPECT_EQ(knob_of(find_recipe(eights)->defaults(eights, machine("zen4").target), "pf"), 0)
      << "eight that lie in one piece are a stream";
}

// The row that is read first is two ahead of the one that is stored; four vectors of it lie in four lines.
TEST(RecipeDefaults, RowsFromMemoryArePrefetchedWhereTheyAreReadFirst) {
  const Problem p = softmax(8192, 1);
  const ir::Result<Scheduled> scheduled = kRowRecipe.script(kRowRecipe.defaults(p, target()), p, target());
  ASSERT_TRUE(scheduled.ok()) << scheduled.status().to_string();
  const std::string text = ir::print(scheduled->kernel);
  const size_t loop = text.find("for b < 8190 [row]:"), ahead = text.find("prefetch s ahead 8192 lines 4");
  ASSERT_NE(ahead, std::string::npos) << text;
  EXPECT_LT(loop, ahead) << text;
  EXPECT_EQ(text.find("prefetch", ahead + 1), std::string::npos) << "once a step\n" << text;
  EXPECT_LT(text.find("s[b + 2", ahead), text.find("s[b + 1", ahead)) << text;
}

// A weight from memory times M rows.
Problem product(const char* rows, const char* symbols, int64_t m) {
  Problem p = fixed(fmt::format(
      R"(kernel mm(x: f32[{0}, 896] in, w: f32[896, 896] const, y: f32[{0}, 896] out) family matmul{1}
  c: f32[{0}, 896] heap
  for m < {0} [m]:
    for n < 896 [n]:
      c[m, n] = 0.0
      for k < 896 [k]:
        c[m, n] += x[m, k] * w[k, n]
      y[m, n] = c[m, n]
)",
      rows, symbols));
  p.dims["M"] = m;
  p.cold = p.one_layout = true;
  return p;
}

TEST(RecipeDefaults, TilesAreLowWhereRowsVaryAndACallerWaits) {
  const auto rows = [](Problem p, bool unhurried) {
    p.unhurried = unhurried;
    const Knobs k = kMatmulRecipe.defaults(p, target());
    EXPECT_TRUE(kMatmulRecipe.accepts(k, p, target()).ok());
    EXPECT_TRUE(kMatmulRecipe.build(k, p, target()).ok());
    return knob_of(k, "mr");
  };
  const Problem several = product("M", " where M in 33..64", 64), few = product("M", " where M in 1..4096", 8),
                one = product("M", " where M in 1..4096", 1);
  EXPECT_LE(rows(several, false), 4);
  EXPECT_GE(rows(several, true), 8);
  EXPECT_EQ(rows(few, false), 8);
  EXPECT_EQ(rows(one, true), 1);
  const Problem known = product("8", "", 8);
  EXPECT_EQ(rows(known, false), 8);
  EXPECT_EQ(rows(known, true), 8);
}

// Between two ways to read the weight that are nearly as good, what is measured decides: all rows in one tile with its
// own stream where they fit, as panels of whole vectors, K in one piece.
TEST(RecipeDefaults, AWeightFromMemoryIsReadOnceByATileOfAllRows) {
  for (const int64_t m : {6, 8, 12, 14}) {
    Problem p = product(fmt::format("{}", m).c_str(), "", m);
    p.one_layout = false;
    const Knobs k = kMatmulRecipe.defaults(p, target());
    EXPECT_EQ(knob_of(k, "mr"), m);
    EXPECT_EQ(knob_of(k, "kc"), 0) << m;
    EXPECT_GE(knob_of(k, "pf"), 8192) << m;
    EXPECT_LE(knob_of(k, "pf"), m < 12 ? 10240 : 16384) << m << ": what is fetched further ahead leaves L1 again";
  }
}

// The next block shares L2 with a block of A, whatever K is: blocks of K pay for two tiles of rows and for many.
TEST(RecipeDefaults, BlocksOfKAreFetchedAheadForAsManyTilesAsThereAre) {
  for (const char* type : {"f32", "bf16"}) {
    for (const int64_t m : {16, 32, 64}) {
      Problem p = fixed(fmt::format(
          R"(kernel mm(x: {1}[{0}, 4096] in, w: {1}[4096, 4096] const, y: f32[{0}, 4096] out) family matmul
  c: f32[{0}, 4096] heap
  for m < {0} [m]:
    for n < 4096 [n]:
      c[m, n] = 0.0
      for k < 4096 [k]:
        c[m, n] += {2}(x[m, k]) * {2}(w[k, n])
      y[m, n] = c[m, n]
)",
          m, type, type == std::string("f32") ? "" : "f32"));
      p.cold = true;
      p.allowed = ir::kBf16Dots;
      const Knobs k = kMatmulRecipe.defaults(p, target());
      EXPECT_EQ(knob_of(k, "mr"), 8) << type << m;
      EXPECT_EQ(knob_of(k, "nr"), 48) << type << m;
      EXPECT_EQ(knob_of(k, "kc"), type == std::string("f32") ? 512 : 1024) << m;
      EXPECT_EQ(knob_of(k, "pf"), -1) << type << m;
    }
  }
}

// A first call waits for the code of tiles of all heights, but low tiles would read a group's weight again and again.
TEST(RecipeDefaults, TilesOfGroupsAreAsHighAsTheirRowsNeed) {
  for (const auto& [rows, want] : {std::pair(16, 2), std::pair(32, 4), std::pair(64, 8), std::pair(128, 8)}) {
    Problem p =
        fixed(fmt::format(R"(kernel g(a: f32[{0}, 2048] in, b: f32[8, 2048, 2048] const, o: i32[9] in values 0..{0}, )"
                          R"(y: f32[{0}, 2048] out) family experts
  c: f32[{0}, 2048] heap
  for zm < {0} [clear]:
    for zn < 2048 [clear]:
      y[zm, zn] = 0.0
  for t < 8 [batch]:
    for m < i64(o[t + 1]) - i64(o[t]) [m]:
      for n < 2048 [n]:
        c[i64(o[t]) + m, n] = 0.0
        for k < 2048 [k]:
          c[i64(o[t]) + m, n] += a[i64(o[t]) + m, k] * b[t, k, n]
        y[i64(o[t]) + m, n] = c[i64(o[t]) + m, n]
)",
                          rows));
    p.cold = true;
    const Knobs k = kMatmulRecipe.defaults(p, target());
    EXPECT_EQ(knob_of(k, "mr"), want) << rows;
    EXPECT_EQ(knob_of(k, "kc"), 0) << rows << ": blocks of K are more code";
    EXPECT_TRUE(kMatmulRecipe.build(k, p, target()).ok()) << rows;
  }
}

// Operands that are no constants, from memory: rows of B along themselves, but for one row of A; rows that are summed
// along K; and of more rows the next block of B.
TEST(RecipeDefaults, PlainOperandsFromMemoryArePrefetchedAlongTheirRows) {
  const auto prefetched = [](int64_t m, bool transposed, bool cold) {
    Problem p = plain_product(m, transposed);
    p.cold = cold;
    const Knobs k = kMatmulRecipe.defaults(p, target());
    EXPECT_TRUE(kMatmulRecipe.build(k, p, target()).ok()) << m;
    if (m <= 4 && !transposed && cold) {
      EXPECT_EQ(knob_of(k, "nb"), 4096) << m << ": the sums of all columns stay near";
      EXPECT_EQ(knob_of(k, "kc"), 16) << m;
      EXPECT_EQ(knob_of(k, "nr"), m == 1 ? 128 : 64) << m << ": a single row has registers for long pieces";
    }
    return knob_of(k, "pf");
  };
  EXPECT_EQ(prefetched(1, false, true), 0);
  EXPECT_EQ(prefetched(2, false, true), 512);
  EXPECT_EQ(prefetched(4, false, true), 512);
  EXPECT_EQ(prefetched(5, false, true), -1);
  EXPECT_EQ(prefetched(128, false, true), -1);
  EXPECT_EQ(prefetched(129, false, true), 256);
  EXPECT_EQ(prefetched(16, false, false), 0);
  EXPECT_EQ(prefetched(4, true, true), 2048);
  EXPECT_EQ(prefetched(4, true, false), 0);
  EXPECT_EQ(prefetched(5, true, true), -1);
  EXPECT_EQ(prefetched(128, true, true), -1);
  EXPECT_EQ(prefetched(129, true, true), 0);
}

// A line of narrow elements takes more instructions: the hardware's prefetcher alone comes late.
TEST(RecipeDefaults, ARowOfNarrowElementsAlongKIsPrefetched) {
  for (const auto& [type, want] : {std::pair("f32", 0), std::pair("bf16", 1024), std::pair("f16", 1024)}) {
    const char* product = type == std::string("f32") ? "x[m, k] * w[n, k]" : "f32(x[m, k]) * f32(w[n, k])";
    Problem p = fixed(fmt::format(
        R"(kernel mm(x: {0}[1, 4096] in, w: {0}[4096, 4096] in, y: f32[1, 4096] out) family matmul
  c: f32[1, 4096] heap
  for m < 1 [m]:
    for n < 4096 [n]:
      c[m, n] = 0.0
      for k < 4096 [k]:
        c[m, n] += {1}
      y[m, n] = c[m, n]
)",
        type, product));
    p.cold = true;
    const Knobs k = kMatmulRecipe.defaults(p, target());
    EXPECT_EQ(knob_of(k, "pf"), want) << type;
    EXPECT_EQ(knob_of(k, "mr"), 6) << type;
    EXPECT_TRUE(kMatmulRecipe.build(k, p, target()).ok()) << type;
    p.cold = false;
    EXPECT_EQ(knob_of(kMatmulRecipe.defaults(p, target()), "pf"), 0) << type;
  }
}

// What is read where it lies goes in long pieces of few rows, what is transposed panel by panel. Sums of many rows lie
// tile by tile, if all blocks are whole.
TEST(RecipeDefaults, TilesOfPlainOperandsFetchTheNextBlock) {
  struct Row {
    int64_t m, n;
    bool transposed;
    const char* knobs;
    bool gathered;
  };
  for (const Row& r :
       std::initializer_list<Row>{{5, 4096, false, "kc=128 mc=0 mr=5 nb=512 nr=32 pa=1 pb=0 pf=-1", false},
                                  {14, 4096, false, "kc=128 mc=0 mr=14 nb=512 nr=32 pa=1 pb=0 pf=-1", true},
                                  {16, 4096, false, "kc=64 mc=0 mr=8 nb=1024 nr=32 pa=1 pb=2 pf=-1", true},
                                  {17, 4096, false, "kc=64 mc=0 mr=9 nb=1024 nr=32 pa=1 pb=2 pf=-1", true},
                                  {16, 4608, false, "kc=128 mc=0 mr=8 nb=512 nr=32 pa=1 pb=0 pf=-1", true},
                                  {32, 4096, false, "kc=64 mc=0 mr=11 nb=1024 nr=32 pa=1 pb=2 pf=-1", true},
                                  {32, 4608, false, "kc=128 mc=0 mr=11 nb=512 nr=32 pa=1 pb=2 pf=-1", true},
                                  {128, 4096, false, "kc=512 mc=0 mr=13 nb=256 nr=32 pa=1 pb=2 pf=-1", true},
                                  {5, 4096, true, "kc=128 mc=0 mr=5 nb=32 nr=32 pa=1 pf=-1", false},
                                  {13, 4096, true, "kc=128 mc=0 mr=13 nb=32 nr=32 pa=1 pf=-1 rl=0", false},
                                  {14, 4096, true, "kc=0 mc=0 mr=11 nb=1024 nr=16 pa=0 pf=0 rl=1", false},
                                  {16, 4097, true, "kc=0 mc=0 mr=11 nb=1024 nr=16 pa=0 pf=0 rl=1", false},
                                  {32, 4096, true, "kc=0 mc=0 mr=11 nb=1024 nr=32 pa=0 pf=0 rl=1", false},
                                  {19, 4096, true, "kc=128 mc=0 mr=10 nb=32 nr=32 pa=1 pf=-1", false},
                                  {128, 4096, true, "kc=256 mc=0 mr=13 nb=32 nr=32 pa=1 pf=-1", false}}) {
    Problem p = fixed(fmt::format(
        R"(kernel mm(x: f32[{0}, 4096] in, w: f32[{1}] in, y: f32[{0}, {2}] out) family matmul
  c: f32[{0}, {2}] heap
  for m < {0} [m]:
    for n < {2} [n]:
      c[m, n] = 0.0
      for k < 4096 [k]:
        c[m, n] += x[m, k] * w[{3}]
      y[m, n] = c[m, n]
)",
        r.m, r.transposed ? fmt::format("{}, 4096", r.n) : fmt::format("4096, {}", r.n), r.n,
        r.transposed ? "n, k" : "k, n"));
    p.cold = true;
    const Knobs k = kMatmulRecipe.defaults(p, target());
    const ir::Result<Schedule> schedule = kMatmulRecipe.build(k, p, target());
    ASSERT_TRUE(schedule.ok()) << schedule.status().to_string();
    const std::string text = to_text(*schedule);
    EXPECT_NE(text.find(r.knobs), std::string::npos) << r.m << " rows, " << r.n << " columns: " << text.substr(0, 160);
    EXPECT_EQ(text.find("tile_buffer c 1 32") != std::string::npos, r.gathered)
        << r.m << " rows, " << r.n << " columns";
  }
}

TEST(RecipeDefaults, TilesAreJoinedOnlyWhereTheyAreFewWholeAndShort) {
  const auto joined = [](int64_t rows, int64_t depth, int64_t mr) {
    const Problem p = scores(rows, depth);
    Knobs knobs = {{"mr", mr}, {"nr", 16}, {"st", 1}, {"kc", 0}, {"mc", 0}, {"pa", 0}, {"pf", 0}, {"mu", 0}};
    EXPECT_TRUE(kMatmulRecipe.accepts(knobs, p, target()).ok());
    knobs["mu"] = 1;
    return kMatmulRecipe.accepts(knobs, p, target()).ok();
  };
  EXPECT_TRUE(joined(32, 64, 8));
  EXPECT_TRUE(joined(16, 128, 8));
  EXPECT_FALSE(joined(32, 64, 12)) << "the last one is short";
  EXPECT_FALSE(joined(8, 64, 8)) << "there is one";
  EXPECT_FALSE(joined(64, 64, 8)) << "there are eight";
  EXPECT_FALSE(joined(32, 512, 8)) << "calls do not tell";
}

TEST(RecipeDefaults, TheAnalyticStageKnowsThatJoinedTilesAreOneCall) {
  const Problem p = scores(32, 64);
  RecipeSpace space(p, target(), MachineRates::assumed(target()));
  Knobs knobs = space.at(space.default_index()).knobs;
  ASSERT_EQ(knobs.at("mu"), 1);
  const double joined = space.at(space.nearest(knobs)).estimate_us;
  knobs["mu"] = 0;
  const int apart = space.nearest(knobs);
  ASSERT_EQ(space.at(apart).knobs, knobs);
  EXPECT_LT(joined, space.at(apart).estimate_us);
}

}  // namespace
}  // namespace lathe::search
