// What rotates when a bench is cold: the constants where they are most of what is read, else every operand, over twice
// the last-level cache; and nothing where it is hot.
#include "runtime/bench/bench_operands.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "runtime/bench/bench.h"
#include "runtime/oracle/data_sets.h"

namespace lathe::runtime {
namespace {

constexpr int64_t kCold = int64_t{2} << 20;

std::shared_ptr<Operator> prepared(const ops::Graph& graph) {
  ContextConfig config;
  EXPECT_TRUE(config.options.set("cache", "off").ok());
  auto op = Operator::create(Context::create(std::move(config)).value(), ops::finish(graph).value()).value();
  EXPECT_TRUE(op->stages().prepare({.cold = true}).ok());
  return op;
}

// y[M, 256] = x[M, 96] * b[96, 256]
std::shared_ptr<Operator> product(bool constant) {
  ops::Graph g;
  g.name = "product";
  const int x = ops::add_tensor(g, "x", {ops::symbol_dim("M", 1, 4096), ops::fixed_dim(96)});
  const int b = ops::add_tensor(g, "b", {ops::fixed_dim(96), ops::fixed_dim(256)});
  g.tensors[static_cast<size_t>(b)].constant = constant;
  g.outputs = {ops::add_node(g, "matmul", {x, b}, "y")};
  return prepared(g);
}

BenchOperandOptions options(bool cold) { return {.cold = cold, .ram = int64_t{1} << 30, .cold_bytes = kCold}; }

// How many places each argument has.
std::vector<size_t> places(const BenchOperands& operands) {
  const size_t n = operands.args().size() / static_cast<size_t>(operands.calls());
  std::vector<std::set<void*>> seen(n);
  for (size_t i = 0; i < operands.args().size(); ++i) seen[i % n].insert(operands.args()[i]);
  std::vector<size_t> out;
  for (const auto& s : seen) out.push_back(s.size());
  return out;
}

TEST(BenchOperands, HotOnesStay) {
  for (const bool constant : {false, true}) {
    const auto op = product(constant);
    BenchOperands operands(*op, options(false));
    ASSERT_TRUE(operands.place({{"M", 3}}).ok());
    EXPECT_EQ(operands.calls(), 1);
    EXPECT_EQ(places(operands), std::vector<size_t>({1, 1, 1}));
  }
}

TEST(BenchOperands, ConstantsThatAreMostOfItRotateAlone) {
  const auto op = product(true);
  BenchOperands operands(*op, options(true));
  ASSERT_TRUE(operands.place({{"M", 8}}).ok());
  EXPECT_FALSE(operands.all_rotate());
  const std::vector<size_t> seen = places(operands);
  EXPECT_EQ(seen[0], 1u);
  EXPECT_EQ(seen[2], 1u);
  EXPECT_GE(seen[1] * 96 * 256 * 4, static_cast<size_t>(kCold));
  EXPECT_EQ(operands.calls(), static_cast<int64_t>(seen[1]));
}

// Weights that are no constants, and rows so many that the constant is the least of what is read.
TEST(BenchOperands, ElseEverythingRotates) {
  for (const bool constant : {false, true}) {
    const auto op = product(constant);
    BenchOperands operands(*op, options(true));
    for (const int64_t m : {int64_t{constant ? 2048 : 8}, int64_t{4096}}) {
      ASSERT_TRUE(operands.place({{"M", m}}).ok());
      EXPECT_TRUE(operands.all_rotate()) << m;
      const std::vector<size_t> seen = places(operands);
      const size_t bytes = static_cast<size_t>(m * 96 + 96 * 256 + m * 256) * 4;
      EXPECT_GE(seen[0] * bytes, static_cast<size_t>(kCold)) << m;
      EXPECT_EQ(seen[0], seen[2]) << m;
      EXPECT_GE(seen[1], seen[0]) << m;
    }
  }
}

// Every copy has contents, also those that a later shape needs more of: pages that nobody wrote are one page.
TEST(BenchOperands, EveryCopyIsFilled) {
  const auto op = product(false);
  BenchOperands operands(*op, options(true));
  for (const int64_t m : {64, 1, 0, 33}) {
    ASSERT_TRUE(operands.place({{"M", m}}).ok()) << m;
    const size_t bytes = static_cast<size_t>(m) * 96 * 4;
    std::vector<char> wanted(bytes + 1);
    fill_tame(ir::DType::f32, 0, wanted.data(), static_cast<int64_t>(bytes));
    for (size_t i = 0; i < operands.args().size(); i += 3)
      ASSERT_EQ(std::memcmp(operands.args()[i], wanted.data(), bytes), 0) << m << ", call " << i / 3;
  }
}

TEST(BenchOperands, TooLargeOnesAreRefusedByName) {
  const auto op = product(false);
  BenchOperands operands(*op, {.cold = true, .ram = 1 << 20, .cold_bytes = kCold});
  const ir::Status status = operands.place({{"M", 4096}});
  EXPECT_EQ(status.code(), ir::Code::kUNSUPPORTED);
  EXPECT_NE(status.to_string().find("x is too large to time"), std::string::npos) << status.to_string();
}

// Lengths are the whole room, offsets evenly apart, and pages all different.
TEST(BenchOperands, LengthsOffsetsAndPages) {
  ops::Graph g;
  g.name = "ragged";
  constexpr int kSequences = 4, kPages = 3, kRows = 8;
  const auto add = [&](const char* name, std::vector<ops::DimDesc> dims, ir::DType type) {
    return ops::add_tensor(g, name, std::move(dims), false, type);
  };
  const auto f = ops::fixed_dim;
  const std::vector<ops::DimDesc> cache = {f(kSequences * kPages), f(1), f(16), f(16)};
  g.outputs = {ops::add_node(
      g, "ragged_attention",
      {add("q", {f(kRows), f(2), f(16)}, ir::DType::f32), add("k", cache, ir::DType::f32),
       add("v", cache, ir::DType::f32), add("lengths", {f(kSequences)}, ir::DType::i32),
       add("pages", {f(kSequences), f(kPages)}, ir::DType::i32), add("offsets", {f(kSequences + 1)}, ir::DType::i64)},
      "y")};
  const auto op = prepared(g);
  BenchOperands operands(*op, options(false));
  ASSERT_TRUE(operands.place({}).ok());
  const auto* lengths = static_cast<const int32_t*>(operands.args()[3]);
  const auto* pages = static_cast<const int32_t*>(operands.args()[4]);
  const auto* offsets = static_cast<const int64_t*>(operands.args()[5]);
  for (int b = 0; b < kSequences; ++b) EXPECT_EQ(lengths[b], 16 * kPages);
  for (int b = 0; b <= kSequences; ++b) EXPECT_EQ(offsets[b], 2 * b);
  const std::set<int32_t> seen(pages, pages + kSequences * kPages);
  EXPECT_EQ(seen.size(), static_cast<size_t>(kSequences * kPages));
  EXPECT_EQ(*seen.begin(), 0);
  EXPECT_EQ(*seen.rbegin(), kSequences * kPages - 1);
}

}  // namespace
}  // namespace lathe::runtime
