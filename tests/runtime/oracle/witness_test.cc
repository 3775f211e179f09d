// The witness on every recipe's Schedules: all of them keep the meaning on shapes small enough to interpret, and a
// broken proof shows.
#include "runtime/oracle/witness.h"

#include <gtest/gtest.h>

#include "ir/core/text_form.h"
#include "jit/host/host_cpu.h"
#include "search/sketches/recipe.h"
#include "tests/common/machines.h"

namespace lathe::runtime {
namespace {

const char* const kMatmul = R"(
kernel mm(a: f32[M, 896] in, w: f32[4864, 896] const, e: f32[4864] const, y: f32[M, 4864] out) family matmul where M in 1..64
  c: f32[M, 4864] heap
  for m < M [m]:
    for n < 4864 [n]:
      c[m, n] = 0.0
      for k < 896 [k]:
        c[m, n] += a[m, k] * w[n, k]
      y[m, n] = c[m, n] + e[n]
)";
const char* const kSoftmax = R"(
kernel softmax(x: f32[R, 1000] in, y: f32[R, 1000] out) family row where R in 1..512
  m: f32[R] heap
  s: f32[R] heap
  for b < R [row]:
    m[b] = -inf
    for n < 1000 [col]:
      m[b] fmax= x[b, n]
    s[b] = 0.0
    for n1 < 1000 [col]:
      s[b] += exp(x[b, n1] - m[b])
    for n2 < 1000 [col]:
      y[b, n2] = exp(x[b, n2] - m[b]) / s[b]
)";

// Of every described machine at each of its levels: nothing is run.
std::vector<ir::Target> targets() {
  std::vector<ir::Target> out = {jit::host_target()};
  for (const test::Machine& m : test::machines()) {
    for (const ir::IsaLevel level : {ir::IsaLevel::avx2, ir::IsaLevel::avx512}) {
      if (m.target.has(level)) out.push_back(m.target.cap(level));
    }
  }
  return out;
}

std::vector<search::Schedule> schedules(const char* text, const ir::Target& target, int n) {
  search::Problem problem;
  problem.kernel = ir::parse_kernel(text).value();
  return search::candidates(problem, target, n);
}

TEST(Witness, AgreesWithEveryCandidate) {
  for (const char* text : {kMatmul, kSoftmax}) {
    Witness witness(ir::parse_kernel(text).value());
    int checked = 0;
    for (const ir::Target& target : targets()) {
      const std::vector<search::Schedule> all = schedules(text, target, 12);
      EXPECT_GT(all.size(), 1u);
      for (const search::Schedule& s : all) {
        const Witness::Verdict v = witness.check(s);
        EXPECT_TRUE(v.checked) << target.to_string() << "\n" << search::to_text(s);
        EXPECT_EQ(v.difference, "") << search::to_text(s);
        checked += v.checked;
      }
    }
    EXPECT_LT(witness.interpreted(), checked) << "structures are shared";
  }
}

TEST(Witness, SizesShrinkWithTheirTiles) {
  for (const ir::Target& target : targets()) {
    const search::Schedule s = schedules(kMatmul, target, 1)[0];
    const Shrunken small = shrink(ir::parse_kernel(kMatmul).value(), s, 2);
    const ir::Buffer* w = small.kernel.find_buffer("w");
    EXPECT_LT(w->dims[0]->ival * w->dims[1]->ival, 4864 * 896 / 500) << target.to_string();
    const auto replayed = search::replay(small.kernel, small.schedule);
    EXPECT_TRUE(replayed.ok()) << target.to_string() << replayed.status().to_string() << "\n"
                               << search::to_text(small.schedule);
  }
}

TEST(Witness, SeesABrokenProof) {
  // tile=exact of a size that does not divide: the rest is lost.
  const ir::Kernel kernel = ir::parse_kernel(kMatmul).value();
  const search::Schedule s =
      search::parse_schedule("schedule 1 family matmul\ntile_scope n 48 tail=exact as n0,n1\n").value();
  const auto broken = [](const ir::Kernel& k, const search::Schedule& schedule) -> ir::Result<ir::Kernel> {
    search::TransformParams params;
    params.disabled_precondition = 0;
    LATHE_ASSIGN(search::TransformResult r, search::apply(k, schedule.moves[0], params));
    return r.kernel;
  };
  EXPECT_FALSE(search::replay(kernel, s).ok());
  Witness witness(kernel);
  const Witness::Verdict v = witness.check(s, broken);
  EXPECT_TRUE(v.checked);
  EXPECT_NE(v.difference, "");
}

}  // namespace
}  // namespace lathe::runtime
