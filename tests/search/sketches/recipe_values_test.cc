// Every Schedule a recipe proposes replays, keeps the values of its Kernel (marked scopes run
// backwards) and cuts into leaves.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "ir/core/text_form.h"
#include "search/cut/cut.h"
#include "search/cut/safe_kernel.h"
#include "search/sketches/recipe.h"
#include "tests/common/machines.h"
#include "tests/search/moves/walk.h"

namespace lathe::search {
namespace {

struct Case {
  const char* name;
  const char* text;
  std::vector<ir::SymbolValues> shapes;
  bool all = true;  // try every candidate
};

const Case kCases[] = {
    {"constant_weight",
     R"(
kernel gate(x: f32[M, 9] in, w: f32[40, 9] const, b: f32[40] const, y: f32[M, 40] out) family matmul where M in 1..64
  c: f32[M, 40] heap
  for m < M [m]:
    for n < 40 [n]:
      c[m, n] = 0.0
      for k < 9 [k]:
        c[m, n] += x[m, k] * w[n, k]
      y[m, n] = c[m, n] + b[n]
)",
     {{{"M", 1}}, {{"M", 5}}, {{"M", 17}}},
     false},
    {"transposed_operand",
     R"(
kernel scores(x: f32[2, M, 8] in, w: f32[2, L, 8] in, y: f32[2, M, L] out) family matmul where M in 1..64, L in 1..64
  c: f32[2, M, L] heap
  for b < 2 [batch]:
    for m < M [m]:
      for n < L [n]:
        c[b, m, n] = 0.0
        for k < 8 [k]:
          c[b, m, n] += x[b, m, k] * w[b, n, k]
        y[b, m, n] = c[b, m, n] * 0.125
)",
     {{{"M", 1}, {"L", 40}}, {{"M", 7}, {"L", 33}}},
     false},
    {"plain_operand",
     R"(
kernel pv(x: f32[2, M, L] in, w: f32[2, L, 32] in, y: f32[2, M, 32] out) family matmul where M in 1..64, L in 1..64
  c: f32[2, M, 32] heap
  for b < 2 [batch]:
    for m < M [m]:
      for n < 32 [n]:
        c[b, m, n] = 0.0
        for k < L [k]:
          c[b, m, n] += x[b, m, k] * w[b, k, n]
        y[b, m, n] = c[b, m, n]
)",
     {{{"M", 1}, {"L", 9}}, {{"M", 7}, {"L", 3}}},
     false},
    {"short_sums",
     R"(
kernel scores(x: f32[2, 12, 8] in, w: f32[2, 40, 8] in, y: f32[2, 12, 40] out) family matmul
  c: f32[2, 12, 40] heap
  for b < 2 [batch]:
    for m < 12 [m]:
      for n < 40 [n]:
        c[b, m, n] = 0.0
        for k < 8 [k]:
          c[b, m, n] += x[b, m, k] * w[b, n, k]
        y[b, m, n] = c[b, m, n] * 0.125
)",
     {{}}},
    {"k_blocks",
     R"(
kernel deep(x: f32[M, 1100] in, w: f32[20, 1100] const, y: f32[M, 20] out) family matmul where M in 1..400
  c: f32[M, 20] heap
  for m < M [m]:
    for n < 20 [n]:
      c[m, n] = 0.0
      for k < 1100 [k]:
        c[m, n] += x[m, k] * w[n, k]
      y[m, n] = c[m, n]
)",
     {{{"M", 3}}, {{"M", 9}}},
     false},
    {"softmax",
     R"(
kernel softmax(s: f32[B, N] in, d: f32[B, N] out) family row where B in 0..65536, N in 1..32768
  m: f32[B] heap
  a: f32[B] heap
  for b < B [row]:
    m[b] = -inf
    for n < N [col]:
      m[b] fmax= s[b, n]
    a[b] = 0.0
    for n1 < N [col]:
      d[b, n1] = exp(s[b, n1] - m[b])
      a[b] += d[b, n1]
    for n2 < N [col]:
      d[b, n2] = d[b, n2] / a[b]
)",
     {{{"B", 3}, {"N", 5}}, {{"B", 9}, {"N", 130}}}},
    {"softmax_kept",
     R"(
kernel softmax(s: f32[B, N] in, d: f32[B, N] out) family row where B in 1..65536, N in 1..32768
  m: f32[B] heap
  a: f32[B] heap
  e: f32[B, N] heap
  for b < B [row]:
    m[b] = -inf
    for n < N [col]:
      m[b] fmax= s[b, n]
    a[b] = 0.0
    for n1 < N [col]:
      e[b, n1] = exp(s[b, n1] - m[b])
      a[b] += e[b, n1]
    a[b] = 1.0 / a[b]
    for n2 < N [col]:
      d[b, n2] = e[b, n2] * a[b]
)",
     {{{"B", 3}, {"N", 5}}, {{"B", 9}, {"N", 130}}}},
    {"softmax_fixed",
     R"(
kernel softmax(s: f32[2, 4, 256] in, d: f32[2, 4, 256] out) family row
  m: f32[2, 4] heap
  a: f32[2, 4] heap
  r: f32[2, 4] heap
  e: f32[2, 4, 256] heap
  for h < 2 [row]:
    for b < 4 [row]:
      m[h, b] = -inf
      for n < 256 [col]:
        m[h, b] fmax= s[h, b, n]
      a[h, b] = 0.0
      for n1 < 256 [col]:
        e[h, b, n1] = exp(s[h, b, n1] - m[h, b])
        a[h, b] += e[h, b, n1]
      r[h, b] = 1.0 / a[h, b]
      for n2 < 256 [col]:
        d[h, b, n2] = e[h, b, n2] * r[h, b]
)",
     {{}}},
    {"softmax_odd",
     R"(
kernel softmax(s: f32[3, 77] in, d: f32[3, 77] out) family row
  m: f32[3] heap
  a: f32[3] heap
  e: f32[3, 77] heap
  for b < 3 [row]:
    m[b] = -inf
    for n < 77 [col]:
      m[b] fmax= s[b, n]
    a[b] = 0.0
    for n1 < 77 [col]:
      e[b, n1] = exp(s[b, n1] - m[b])
      a[b] += e[b, n1]
    a[b] = 1.0 / a[b]
    for n2 < 77 [col]:
      d[b, n2] = e[b, n2] * a[b]
)",
     {{}}},
    {"layernorm",
     R"(
kernel norm(s: f32[B, 40] in, g: f32[40] const, d: f32[B, 40] out) family row where B in 1..4096
  u: f32[B] heap
  v: f32[B] heap
  r: f32[B] heap
  for b < B [row]:
    u[b] = 0.0
    for n < 40 [col]:
      u[b] += s[b, n]
    u[b] = u[b] / 40.0
    v[b] = 0.0
    for n1 < 40 [col]:
      v[b] += (s[b, n1] - u[b]) * (s[b, n1] - u[b])
    r[b] = rsqrt(v[b] / 40.0 + 0.1)
    for n2 < 40 [col]:
      d[b, n2] = (s[b, n2] - u[b]) * r[b] * g[n2]
)",
     {{{"B", 1}}, {{"B", 7}}}},
    {"turn",
     R"(
kernel turn(s: f32[2, L, 45] in, d: f32[2, 45, L] out) family transpose where L in 1..4096
  for h < 2 [row]:
    for i < 45 [row]:
      for j < L [col]:
        d[h, i, j] = s[h, j, i]
)",
     {{{"L", 5}}, {{"L", 70}}}},
    {"chain",
     R"(
kernel gate(x: f32[N] in, u: f32[N] in, y: f32[N] out) family elementwise where N in 1..100000
  for j < N [col]:
    y[j] = x[j] * sigmoid(x[j]) * u[j]
)",
     {{{"N", 5}}, {{"N", 3000}}}},
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class RecipeValues : public testing::TestWithParam<Case> {};

TEST_P(RecipeValues, AreThoseOfTheNaiveKernel) {
  const ir::Result<ir::Kernel> kernel = ir::parse_kernel(GetParam().text);
  ASSERT_TRUE(kernel.ok()) << kernel.status().to_string();
  std::map<std::string, ir::Kernel> made;  // by Schedules, which are the same for every shape
  for (const ir::IsaLevel level : {ir::IsaLevel::avx512, ir::IsaLevel::avx2}) {
    ir::Target target = test::this_machine().target.cap(level);
    if (!target.has(level)) continue;
    for (const auto& shape : GetParam().shapes) {
      const Problem problem{*kernel, shape, 2, false};
      const Tensors inputs = whole_inputs(*kernel, shape);
      const ir::Result<Tensors> want = outputs(*kernel, shape, inputs);
      ASSERT_TRUE(want.ok()) << want.status().to_string();
      ASSERT_FALSE(default_schedule(problem, target).moves.empty());
      target.l3_bytes = 1 << 10;  // large shapes exceed it
      for (const Schedule& schedule : candidates(problem, target, GetParam().all ? 1000 : 16)) {
        const auto [known, is_new] = made.try_emplace(to_text(schedule));
        ir::Kernel& scheduled = known->second;
        if (is_new) {
          const ir::Result<ir::Kernel> replayed = replay(*kernel, schedule);
          ASSERT_TRUE(replayed.ok()) << replayed.status().to_string() << "\n" << known->first;
          scheduled = *replayed;
          const ir::Status safe = check_safe(*kernel, scheduled);
          EXPECT_TRUE(safe.ok()) << safe.to_string() << "\n" << ir::print(scheduled);
          const ir::Result<ir::CutKernel> pieces = cut(scheduled);
          EXPECT_TRUE(pieces.ok()) << pieces.status().to_string() << "\n" << ir::print(scheduled);
        }
        const ir::Result<Tensors> got = outputs(reversed(scheduled), shape, inputs);
        ASSERT_TRUE(got.ok()) << got.status().to_string() << "\n" << ir::print(scheduled);
        EXPECT_EQ(difference(*want, *got, 1e-5), "") << known->first << ir::print(scheduled);
        if (HasFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, RecipeValues, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lathe::search
