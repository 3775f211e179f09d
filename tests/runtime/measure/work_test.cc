// What a call moves: operands whole, and of those of which rows are chosen so many rows.
#include "runtime/measure/work.h"

#include <gtest/gtest.h>

#include "ops/lower.h"
#include "runtime/serve/definition.h"
#include "tests/common/machines.h"

namespace lathe::runtime {
namespace {

TEST(Work, OfATableItIsTheRowsThatAreRead) {
  ops::Graph g;
  const ops::DimDesc p = ops::symbol_dim("P", 1, 100000), t = ops::symbol_dim("T", 1, 64);
  const int table = ops::add_tensor(g, "table", {p, ops::fixed_dim(10)}, true, ir::DType::bf16),
            ids = ops::add_tensor(g, "ids", {t}, false, ir::DType::i64);
  g.outputs = {ops::add_node(g, "gather", {table, ids}, "y")};
  const Work work = work_at(*ops::finish(g), {{"P", 50000}, {"T", 8}});
  EXPECT_EQ(work.read_bytes, 8 * 10 * 2 + 8 * 8);
  EXPECT_EQ(work.constant_bytes, 8 * 10 * 2);
  EXPECT_EQ(work.write_bytes, 8 * 10 * 2);
}

// Of what several nodes read, what most is.
TEST(Work, OfATableThatIsReadWholeBesidesItIsAll) {
  ops::Graph g;
  const int table = ops::add_tensor(g, "table", {ops::fixed_dim(50), ops::fixed_dim(10)}),
            ids = ops::add_tensor(g, "ids", {ops::fixed_dim(4)}, false, ir::DType::i32);
  g.outputs = {ops::add_node(g, "gather", {table, ids}, "y"), ops::add_node(g, "exp", {table}, "z")};
  EXPECT_EQ(work_at(*ops::finish(g), {}).read_bytes, 50 * 10 * 4 + 4 * 4);
}

ops::Graph square(const char* op, ir::DType type, int64_t n) {
  ops::Graph g;
  const int a = ops::add_tensor(g, "a", {ops::fixed_dim(n), ops::fixed_dim(n)}, false, type),
            b = ops::add_tensor(g, "b", {ops::fixed_dim(n), ops::fixed_dim(n)}, true, type);
  g.outputs = {ops::add_node(g, op, {a, b}, "y")};
  return ops::finish(g).value();
}
double least_us(const ops::Graph& g, uint32_t allowed, const MachineProfile& profile, const ir::Target& target) {
  const Arithmetic arithmetic = arithmetic_of(g, ops::lower(g).value(), allowed);
  return roofline_us(work_at(g, {}), arithmetic, profile, target, false, 1);
}

// What is multiplied in bytes, pairs or tiles is not compared with f32's peak: a search would end before it began.
TEST(Work, TheLeastTimeIsByTheArithmeticThatMayBeUsed) {
  const test::Machine &zen5 = *test::find_machine("zen5"), &xeon = *test::find_machine("xeon");
  const ops::Graph f32 = square("matmul", ir::DType::f32, 512), bf16 = square("matmul", ir::DType::bf16, 512),
                   bytes = square("matmul_integer", ir::DType::i8, 512);
  constexpr uint32_t kPairs = kDefaultAllowed | ir::kBf16Dots;
  const double flops = 2.0 * 512 * 512 * 512;
  const auto expect = [&](const ops::Graph& g, uint32_t allowed, const test::Machine& m, double gflops) {
    EXPECT_DOUBLE_EQ(least_us(g, allowed, {m.rates}, m.target), flops / gflops * 1e-3) << m.name;
  };
  expect(f32, kPairs, zen5, 260);
  expect(bf16, kDefaultAllowed, zen5, 260);
  expect(bf16, kPairs, zen5, 520);
  expect(bytes, kDefaultAllowed, zen5, 1040);
  expect(f32, kPairs, xeon, 192);
  expect(bf16, kPairs, xeon, 3072);
  expect(bytes, kDefaultAllowed, xeon, 6144);
  // 4-bit weights in blocks of 32, which no tiles take: beside dots scales take a ninth of the pipes.
  constexpr int64_t n = 2048;
  ops::Graph low;
  const int x = ops::add_tensor(low, "x", {ops::fixed_dim(n), ops::fixed_dim(n)}),
            w = ops::add_tensor(low, "w", {ops::fixed_dim(n), ops::fixed_dim(n / 32 * 18)}, true, ir::DType::u8);
  low.outputs = {ops::add_node(low, "quantized_matmul", {x, w}, "y", {{"format", std::string("q4_0")}})};
  const ops::Graph q4_0 = ops::finish(low).value();
  constexpr uint32_t kBytes = kDefaultAllowed | ir::kQuantisedActivations;
  const auto q4_0_gflops = [&](uint32_t allowed, const test::Machine& m) {
    return 2.0 * n * n * n / least_us(q4_0, allowed, {m.rates}, m.target) * 1e-3;
  };
  EXPECT_NEAR(q4_0_gflops(kBytes, zen5), 1040 * 16 / 18.0, 1e-6);
  EXPECT_NEAR(q4_0_gflops(kBytes, xeon), 768 * 16 / 18.0, 1e-6);
  EXPECT_NEAR(q4_0_gflops(kDefaultAllowed, zen5), 260, 1e-6);
  // An older profile does not say what bytes take: then the bytes that are moved say the least, here from L3.
  MachineProfile old{zen5.rates};
  std::erase_if(old.values, [](const auto& v) { return v.first == "vpdpbusd"; });
  EXPECT_DOUBLE_EQ(least_us(bytes, kDefaultAllowed, old, zen5.target), (2 + 4) * 512 * 512 / 98.0 * 1e-3);
  EXPECT_EQ(least_us(bytes, kDefaultAllowed, {}, zen5.target), 0);
}

}  // namespace
}  // namespace lathe::runtime
