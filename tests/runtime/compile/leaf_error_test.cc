// What a leaf refuses is told with the names that the Kernel's author gave, never with a leaf's own.
#include "runtime/base/leaf_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/core/text_form.h"
#include "runtime/compile/compiler.h"
#include "search/cut/cut.h"

namespace lathe::runtime {
namespace {

using testing::HasSubstr;
using testing::Not;

ir::Target avx2() {
  ir::Target t;
  t.level = ir::IsaLevel::avx2;
  t.lanes = 8;
  t.vector_registers = 16;
  return t;
}

const char* const kColumns = R"(
kernel columns(gain: f32[64] in, pixels: f32[64, 64] in, out: f32[64] out) family elementwise
  for i < 64 [col]:
    out[i] = gain[i] * pixels[i, 3]
)";
// In a type that no leaf computes in.
const char* const kDoubles = R"(
kernel doubles(pixels: f64[64] in, shades: f64[64] out) family elementwise
  for i < 64 [col]:
    shades[i] = pixels[i] * pixels[i]
)";

TEST(LeafError, NamesTheTensorThatTheLeafRefuses) {
  const ir::Kernel k = ir::parse_kernel(kDoubles).value();
  search::Schedule s;
  s.family = k.family;
  LeafCache leaves({}, nullptr, nullptr);
  const auto stage = build_stage(k, s, avx2(), leaves, LeafPolicy{});
  ASSERT_FALSE(stage.ok());
  EXPECT_THAT(stage.status().message(), testing::StartsWith("pixels["));
  EXPECT_THAT(stage.status().message(), HasSubstr("f64"));
  EXPECT_THAT(stage.status().message(), Not(HasSubstr("leaf")));
}

TEST(LeafError, EveryCanonicalNameIsTranslated) {
  ir::CutKernel cut = search::cut(ir::parse_kernel(kColumns).value()).value();
  ASSERT_EQ(cut.nest.phases.size(), 1u);
  const auto said = [&](const char* message) { return leaf_error(ir::unsupported("{}", message), cut, 0).message(); };
  const std::string first = cut.kernel.buffers[static_cast<size_t>(cut.nest.phases[0].call.operands[0].buffer)].name;
  EXPECT_EQ(said("leaf: p0: read where no value has reached"), first + ": read where no value has reached");
  EXPECT_EQ(said("leaf: scope i1: extent 3 of a vector scope"), "a loop: extent 3 of a vector scope");
  EXPECT_EQ(said("leaf: r0: every lane writes one element"), "a register: every lane writes one element");
  EXPECT_EQ(said("step2: p99 and top1"), "step2: p99 and top1");
  cut.nest.phases[0].call.extents = {ir::Expr(7)};
  EXPECT_EQ(said("leaf: scope i0: extent e0 of a loop"), "a loop: extent 7 of a loop");
}

}  // namespace
}  // namespace lathe::runtime
