// What `lathe verify` builds where candidates have no code.
#include "runtime/tune/verify.h"

#include <gtest/gtest.h>

namespace lathe::runtime {
namespace {

// Bytes whose columns vary in number: sums of columns would read packed steps of four, so no candidate has code, and
// what serves in the place of the default is checked on every tier.
TEST(Verify, WhereNoCandidateHasCodeTheDefaultIsChecked) {
  if (!jit::backend_built(jit::Backend::xbyak)) GTEST_SKIP() << "built with LATHE_XBYAK=OFF";
  const std::vector<ops::Workload> items =
      ops::parse_manifest(
          R"({"name":"bytes","graph":{"tensors":{"a":{"dtype":"i8","dims":[3,100]},)"
          R"("b":{"dtype":"u8","dims":["N",100],"const":true},"za":{"dtype":"i8","dims":[1]},)"
          R"("zb":{"dtype":"u8","dims":["N"],"const":true}},"nodes":[{"op":"matmul_integer",)"
          R"("in":["a","b","za","zb"],"out":"y","attrs":{"transpose_b":true}}],"outputs":["y"]},)"
          R"("dims":{"N":{"min":1,"max":64,"multiple_of":1,"hints":[{"value":33,"weight":1}]}},"threads":1,)"
          R"("cache":"hot","allowed":[],"weight":1})")
          .value();
  const auto report = run_verify(Context::create({}).value(), items, {}, [](const VerifyRow& row) {
    EXPECT_TRUE(row.ok) << "tier " << row.tier << " " << ir::isa_name(row.level) << ": " << row.reason;
  });
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_GT(report->checked, 0);
  EXPECT_EQ(report->failed + report->refused, 0);
}

}  // namespace
}  // namespace lathe::runtime
