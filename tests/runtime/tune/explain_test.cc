// What explain says of operators that no decision serves.
#include "runtime/tune/explain.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/manifest.h"

namespace lathe::runtime {
namespace {

std::shared_ptr<Operator> operator_of(const std::string& graph) {
  const auto items = ops::parse_manifest(fmt::format(
      R"({{"name":"op","graph":{},"dims":{{}},"threads":1,"cache":"hot","allowed":[],"weight":1}})", graph));
  EXPECT_TRUE(items.ok()) << items.status().to_string();
  return Operator::create(Context::create({}).value(), ops::finish((*items)[0].graph).value()).value();
}

// Appends to a cache of bytes: with AVX-512 the first default has no leaf form, and a simpler one serves.
TEST(Explain, TellsOfTheScheduleThatServes) {
  const auto op = operator_of(
      R"({"tensors":{"x":{"dtype":"f32","dims":[512,8,128]},"slots":{"dtype":"i32","dims":[512]},)"
      R"("cache":{"dtype":"i8","dims":[4096,8,128]},"scales":{"dtype":"f32","dims":[4096,8]},)"
      R"("cos":{"dtype":"f32","dims":[4096,64]},"sin":{"dtype":"f32","dims":[4096,64]},)"
      R"("positions":{"dtype":"i32","dims":[512]},"norm":{"dtype":"f32","dims":[128]}},)"
      R"("nodes":[{"op":"kv_append_int8","in":["x","slots","cache","scales","cos","sin","positions","norm"],)"
      R"("out":"y"}],"outputs":["y"]})");
  const PrepareRequest request;
  const auto explained = explain(*op, {}, request, 0);
  ASSERT_TRUE(explained.ok()) << explained.status().to_string();
  ASSERT_TRUE(op->stages().prepare(request).ok());
  ASSERT_EQ(explained->size(), op->lowered().kernels.size());
  for (size_t k = 0; k < explained->size(); ++k) {
    const ExplainedKernel& e = (*explained)[k];
    const auto& serving = op->stages().of(static_cast<int>(k));
    ASSERT_EQ(serving.size(), 1u);
    EXPECT_EQ(e.schedule, search::to_text(serving[0]->stage.schedule));
    EXPECT_EQ(e.tier, serving[0]->tier);
    EXPECT_FALSE(e.leaves.empty());
    EXPECT_FALSE(e.stored);
  }
}

}  // namespace
}  // namespace lathe::runtime
