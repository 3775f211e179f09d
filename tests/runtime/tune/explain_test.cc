// What explain says of operators that no decision serves.
#include "runtime/tune/explain.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/manifest.h"

namespace lathe::runtime {
namespace {

std::shared_ptr<Operator> operator_of(const std::string& graph, ContextConfig config = {}) {
  const auto items = ops::parse_manifest(fmt::format(
      R"({{"name":"op","graph":{},"dims":{{}},"threads":1,"cache":"hot","allowed":[],"weight":1}})", graph));
  EXPECT_TRUE(items.ok()) << items.status().to_string();
  return Operator::create(Context::create(std::move(config)).value(), ops::finish((*items)[0].graph).value()).value();
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

// A record with the right key, environment and epoch whose Schedule does not hold serves nobody, and so says explain.
TEST(Explain, ARecordThatDoesNotHoldIsAMissWithItsReason) {
  const std::string graph =
      R"({"tensors":{"x":{"dtype":"f32","dims":[64,96]}},"nodes":[{"op":"softmax","in":["x"],"out":"y"}],)"
      R"("outputs":["y"]})";
  const PrepareRequest request;
  const auto usual = explain(*operator_of(graph), {}, request, 0);
  ASSERT_TRUE(usual.ok()) << usual.status().to_string();
  const std::string serves = usual->front().schedule;
  const std::string head = serves.substr(0, serves.find('\n'));
  const std::vector<std::pair<std::string, std::string>> forged = {
      {"no Schedule", "corrupt"},
      {head + "\ntile_scope nowhere 16 tail=mask as a,b", "refused"},
      {head.substr(0, head.find(" class ")) + " class approximate", "numeric"}};
  for (const auto& [schedule, reason] : forged) {
    ContextConfig config;
    ASSERT_TRUE(config.options.set(ir::OptionId::cache, "off").ok());
    const auto op = operator_of(graph, std::move(config));
    Decision decision;
    decision.schedule = schedule;
    decision.op = "row";
    decision.kernel = "softmax";
    decision.oracle.gate = "table";
    decision.best_us = 1;
    op->context().record_decision(op->query(0, {}, request), decision);
    const auto explained = explain(*op, {}, request, 0);
    ASSERT_TRUE(explained.ok()) << schedule << ": " << explained.status().to_string();
    const ExplainedKernel& e = explained->front();
    EXPECT_FALSE(e.stored) << schedule;
    EXPECT_TRUE(e.miss.starts_with(reason)) << schedule << ": " << e.miss;
    EXPECT_EQ(e.schedule, serves) << schedule;
    EXPECT_EQ(e.measured_us, 0) << schedule;
  }
}

}  // namespace
}  // namespace lathe::runtime
