// Parts of K that are summed apart: what they keep, where they are refused, and when the model thinks that they pay.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "search/strategy/space.h"
#include "tests/search/model/problems.h"
#include "tests/search/sketches/kept_values.h"

namespace lathe::search {
namespace {

using testing::HasSubstr;

// y = 2 (x w) + x's first column; w a constant or not, as it lies or transposed. 0 rows: a symbol.
Problem product(int64_t m, int64_t n, int64_t k, bool constant, bool transposed = false) {
  Problem p;
  const std::string rows = m == 0 ? "M" : fmt::format("{}", m);
  p.kernel = kernel_of(fmt::format(
      R"(kernel product(x: f32[{0}, {2}] in, w: f32[{4}] {3}, y: f32[{0}, {1}] out) family matmul{6}
  c: f32[{0}, {1}] heap
  for m < {0} [m]:
    for n < {1} [n]:
      c[m, n] = 0.0
      for k < {2} [k]:
        c[m, n] += x[m, k] * w[{5}]
      y[m, n] = 2.0 * c[m, n] + x[m, 0]
)",
      rows, n, k, constant ? "const" : "in", transposed ? fmt::format("{}, {}", n, k) : fmt::format("{}, {}", k, n),
      transposed ? "n, k" : "k, n", m == 0 ? " where M in 1..32" : ""));
  if (m == 0) p.dims = {{"M", 5}};
  return p;
}

Knobs knobs_of(int64_t mr, int64_t nr, int64_t parts, const Knobs& others = {}) {
  Knobs out = {{"mr", mr}, {"nr", nr}, {"st", 1}, {"kc", 0}, {"mc", 0}, {"pa", 0}, {"pf", 0}, {"sk", parts}};
  for (const auto& [name, value] : others) out[name] = value;
  return out;
}

// Whole and cut tiles, panels and parts; with the other knobs that move what is summed.
TEST(DepthParts, KeepTheValues) {
  struct Case {
    Problem problem;
    int64_t mr, nr, parts;
    Knobs others;
  };
  const Case cases[] = {
      {product(1, 16, 2048, true), 1, 16, 2, {}},           {product(1, 33, 2048, true), 1, 16, 2, {}},
      {product(3, 33, 2050, true), 2, 16, 2, {}},           {product(4, 32, 4100, true), 4, 32, 4, {{"pf", 4096}}},
      {product(9, 32, 3001, true), 4, 32, 2, {{"pf", -1}}}, {product(5, 20, 2056, true), 4, 16, 2, {{"pa", 1}}},
      {product(0, 32, 2048, true), 4, 16, 2, {}},           {product(3, 40, 2048, false), 2, 16, 2, {}},
      {product(5, 40, 2048, false, true), 4, 16, 2, {}},    {product(4, 64, 2048, true), 4, 16, 2, {{"st", 2}}},
  };
  const ir::Target t = machine("zen5").target;
  for (const Case& c : cases) {
    SCOPED_TRACE(fmt::format("mr {} nr {} sk {}", c.mr, c.nr, c.parts));
    const std::optional<Made> made = expect_values_kept(c.problem, knobs_of(c.mr, c.nr, c.parts, c.others), t);
    ASSERT_TRUE(made);
    EXPECT_NE(made->kernel.numeric & ir::kReassociate, 0U) << "sums in another order";
    EXPECT_NE(made->kernel.find_buffer("cp"), nullptr);
  }
}

TEST(DepthParts, AreRefusedWhereTheyHelpNobody) {
  const ir::Target t = machine("zen5").target;
  const auto refused = [&](const Problem& p, const Knobs& knobs) {
    return kMatmulRecipe.accepts(knobs, p, t).to_string();
  };
  EXPECT_THAT(refused(product(4, 32, 2000, true), knobs_of(4, 32, 2)), HasSubstr("sk 2: parts of 1000, expected"));
  EXPECT_THAT(refused(product(4, 32, 8192, true), knobs_of(4, 32, 2, {{"kc", 512}})),
              HasSubstr("sk 2: expected tiles"));
  EXPECT_THAT(refused(product(32, 4096, 65536, true), knobs_of(4, 32, 16)), HasSubstr("sk 16: too many sums wait"));
  EXPECT_THAT(refused(product(4, 32, 65536, true), knobs_of(4, 32, 65)), HasSubstr("sk 65: expected 1 to 64"));
  EXPECT_THAT(refused(product(4, 32, 65536, true), knobs_of(4, 32, 0)), HasSubstr("sk 0: expected 1 to 64"));
}

std::vector<int64_t> values_of(const Problem& p, const ir::Target& t) {
  for (const KnobDomain& d : kMatmulRecipe.knobs(p, t)) {
    if (d.name == "sk") return d.values;
  }
  return {};
}

TEST(DepthParts, AreAskedWhereThreadsHaveNothingElseToShare) {
  const ir::Target t = machine("zen5").target;
  EXPECT_EQ(values_of(matmul_problem(4, 32, 16384, true, 1), t), std::vector<int64_t>{}) << "one thread";
  EXPECT_EQ(values_of(matmul_problem(4, 4096, 16384, true, 8), t), std::vector<int64_t>{}) << "panels enough";
  EXPECT_EQ(values_of(matmul_problem(4, 32, 1024, true, 8), t), std::vector<int64_t>{}) << "a short K";
  EXPECT_EQ(values_of(matmul_problem(4, 32, 16384, true, 2), t), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(values_of(matmul_problem(4, 64, 65536, true, 16), t), (std::vector<int64_t>{1, 2, 4, 8, 16}));
}

TEST(DepthParts, AreTheDefaultForFewColumnsOfALongK) {
  const ir::Target t = machine("zen5").target;
  const auto parts = [&](int64_t m, int64_t n, int64_t k, int threads) {
    const Knobs k_of = kMatmulRecipe.defaults(matmul_problem(m, n, k, true, threads), t);
    EXPECT_FALSE(k_of.empty());
    const auto at = k_of.find("sk");
    return at == k_of.end() ? 1 : at->second;
  };
  EXPECT_EQ(parts(4, 32, 32768, 1), 1);
  EXPECT_EQ(parts(4, 16, 32768, 2), 2);
  for (const int64_t m : {2, 8, 16}) EXPECT_GE(parts(m, 64, 32768, 16), 4) << m;
  EXPECT_EQ(parts(16, 4096, 4096, 16), 1);
}

TEST(DepthParts, KeepTheSpaceSearchable) {
  for (const char* name : {"zen5", "laptop"}) {
    const ir::Target t = machine(name).target;
    for (const auto& [m, n, k] : {std::tuple{1, 64, 65536}, std::tuple{4, 64, 16384}, std::tuple{16, 512, 32768}}) {
      const Problem p = matmul_problem(m, n, k, true, 64);
      const size_t points = kMatmulRecipe.sketch(p, t)->accepted().size();
      EXPECT_GE(points, 50U) << ir::print(p.kernel);
      EXPECT_LE(points, 5000U) << ir::print(p.kernel);
    }
  }
}

}  // namespace
}  // namespace lathe::search
