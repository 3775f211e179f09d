// Copies of straight code in turns: the order that comes out, and what keeps it as it was.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "jit/lower/lower_emit.h"

namespace lathe::jit {
namespace {

struct Bench {
  explicit Bench(int vector_registers = 32) : e(&program, std::pmr::get_default_resource()) {
    program.level = ir::IsaLevel::avx512;
    program.lanes = 16;
    program.vector_registers = vector_registers;
    program.mask_registers = 7;
  }
  void copy() { begins.push_back(e.mark().node); }
  Access at(int slot, int64_t bytes) {
    Access a;
    a.slot = slot;
    a.base.bytes = bytes;
    a.lane.bytes = 4;
    return a;
  }
  // The operations after the first `begins`, as names; stores as "store <bytes>".
  std::vector<std::string> order() const {
    std::vector<std::string> out;
    for (size_t i = begins[0]; i < program.body.size(); ++i) {
      const Inst& inst = program.body[i].inst;
      const bool store = leaf_op_kind(inst.op) == LeafOpKind::kStore;
      out.push_back(store ? "store " + std::to_string(inst.mem.disp)
                          : std::to_string(static_cast<int>(inst.op)) + " -> v" + std::to_string(inst.dst));
    }
    return out;
  }
  LeafProgram program;
  Emitter e;
  std::vector<size_t> begins;
};

// sqrt of the load at 64 * n, its square, stored to 64 * n.
void chain(Bench& b, int n) {
  b.copy();
  const int x = b.e.load(b.at(0, 64 * n), -1), root = b.e.op(LeafOp::k_sqrt, {x});
  b.e.store(b.at(1, 64 * n), b.e.op(LeafOp::k_mul, {root, root}), -1);
}

TEST(Interleave, CopiesTakeTurns) {
  Bench b;
  for (int n = 0; n < 2; ++n) chain(b, n);
  const std::vector<std::string> before = b.order();
  b.e.interleave(b.begins, {}, {});
  const std::vector<std::string> expected = {before[0], before[4], before[1], before[5],
                                             before[2], before[6], before[3], before[7]};
  EXPECT_EQ(b.order(), expected);
}

TEST(Interleave, FourAtATimeAndAllOfThem) {
  Bench b;
  for (int n = 0; n < 6; ++n) chain(b, n);
  std::vector<std::string> before = b.order();
  b.e.interleave(b.begins, {}, {});
  std::vector<std::string> after = b.order();
  for (int n = 0; n < 4; ++n) EXPECT_EQ(after[n], before[4 * n]) << "the loads of four copies first";
  EXPECT_EQ(after[16], before[16]) << "then the other two";
  EXPECT_EQ(after[17], before[20]);
  std::sort(before.begin(), before.end());
  std::sort(after.begin(), after.end());
  EXPECT_EQ(after, before);
}

TEST(Interleave, StoresKeepTheirOrder) {
  Bench b;
  b.copy();  // a longer first copy: its store comes late
  int x = b.e.load(b.at(0, 0), -1);
  for (int n = 0; n < 6; ++n) x = b.e.op(LeafOp::k_sqrt, {x});
  b.e.store(b.at(1, 0), x, -1);
  chain(b, 1);
  b.e.interleave(b.begins, {}, {});
  const std::vector<std::string> after = b.order();
  EXPECT_EQ(after[after.size() - 2], "store 0");
  EXPECT_EQ(after.back(), "store 64");
}

TEST(Interleave, WhatAnEarlierCopyMadeComesFirst) {
  Bench b;
  b.copy();
  const int shared = b.e.op(LeafOp::k_sqrt, {b.e.load(b.at(0, 0), -1)});
  b.e.store(b.at(1, 0), b.e.op(LeafOp::k_sqrt, {shared}), -1);
  b.copy();
  b.e.store(b.at(1, 64), b.e.op(LeafOp::k_mul, {shared, shared}), -1);
  b.e.interleave(b.begins, {}, {});
  std::vector<bool> made(64);
  for (size_t i = b.begins[0]; i < b.program.body.size(); ++i) {
    const Inst& inst = b.program.body[i].inst;
    for (int s = 0; s < leaf_op_sources(inst.op); ++s) EXPECT_TRUE(made[inst.src[s]]) << "node " << i;
    if (inst.dst >= 0) made[inst.dst] = true;
  }
}

TEST(Interleave, ACopyThatChangesWhatAnotherUsesStays) {
  Bench b;
  const int home = b.e.home();
  b.e.set_constant(home, 1, b.e.level());
  for (int n = 0; n < 2; ++n) {
    b.copy();
    const int x = b.e.op(LeafOp::k_sqrt, {b.e.load(b.at(0, 64 * n), -1)});
    b.e.op_into(home, LeafOp::k_add, {home, x});
  }
  const std::vector<std::string> before = b.order();
  b.e.interleave(b.begins, {}, {});
  EXPECT_EQ(b.order(), before);
}

// A dot product that goes on with another copy's sum waits for it anyway, and meanwhile weights would fill registers.
TEST(Interleave, SumsOfBytesThatGoOnStay) {
  for (const bool goes_on : {true, false}) {
    Bench b;
    int sum = b.e.load(b.at(1, 0), -1);
    for (int n = 0; n < 2; ++n) {
      b.copy();
      const int x = b.e.load(b.at(0, 64 * n), -1), y = b.e.load(b.at(0, 64 * n + 256), -1);
      const int next = b.e.op(LeafOp::k_dot4_u8s8, {x, y, sum});
      if (goes_on) sum = next;
    }
    const std::vector<std::string> before = b.order();
    b.e.interleave(b.begins, {}, {});
    EXPECT_EQ(b.order() == before, goes_on);
  }
}

// Two groups of so many sums of bytes each, two vectors of weights for each of them, and what is done with the sums.
void groups_of_sums(Bench& b, int sums) {
  EXPECT_TRUE(b.e.await_groups());
  EXPECT_FALSE(b.e.await_groups()) << "awaited already";
  for (int n = 0; n < 2; ++n) {
    b.copy();
    std::vector<int> sum;
    Access start = b.at(1, 0);
    start.lane = {};
    for (int i = 0; i < sums; ++i) {
      start.base.bytes = 4 * (n * sums + i);
      sum.push_back(b.e.load(start, -1));
    }
    for (int w = 0; w < 2; ++w) {
      const int weights = b.e.load(b.at(0, 128 * n + 64 * w), -1);
      for (int& s : sum) s = b.e.op(LeafOp::k_dot4_u8s8, {weights, weights, s});
    }
    const int scale = b.e.load(b.at(0, 512 + 64 * n), -1);
    // Copies within the group, which wait.
    std::vector<size_t> inner;
    for (const int s : sum) {
      inner.push_back(b.e.mark().node);
      const int root = b.e.op(LeafOp::k_mul, {s, scale});
      b.e.store(b.at(2, 64 * (n * sums + static_cast<int>(inner.size()))), b.e.op(LeafOp::k_mul, {root, root}), -1);
    }
    b.e.interleave(inner, {}, {});
  }
}

TEST(InterleaveGroups, WeightsInTurn) {
  Bench b;
  groups_of_sums(b, 8);
  const std::vector<std::string> before = b.order();
  b.e.interleave_groups(b.begins, {}, {});
  const std::vector<std::string> after = b.order();
  const size_t group = before.size() / 2;
  std::vector<std::string> expected;
  size_t begin = 0;
  for (const size_t end : {size_t{8 + 1 + 8}, size_t{8 + 2 * (1 + 8)}, group}) {  // to the next weights, to the scale
    for (const size_t copy : {size_t{0}, group})
      for (size_t i = begin; i < end; ++i) expected.push_back(before[copy + i]);
    begin = end;
  }
  EXPECT_EQ(after, expected);
  EXPECT_TRUE(b.e.await_groups()) << "nothing is awaited afterwards";
}

TEST(InterleaveGroups, OthersAreInterleavedWithin) {
  for (const auto& [sums, registers] : {std::pair{12, 26}, std::pair{8, 16}}) {
    Bench b(registers);
    groups_of_sums(b, sums);
    const std::vector<std::string> before = b.order();
    b.e.interleave_groups(b.begins, {}, {});
    const std::vector<std::string> after = b.order();
    const size_t ends = static_cast<size_t>(3 * sums + 3);
    for (size_t i = 0; i < ends; ++i) EXPECT_EQ(after[i], before[i]) << sums;
    EXPECT_EQ(after[ends + 1], before[ends + 3]) << "the second of the copies within";
  }
}

TEST(Interleave, OnlyAsFarAsRegistersGo) {
  Bench b(4);
  for (int n = 0; n < 4; ++n) chain(b, n);
  const std::vector<std::string> before = b.order();
  b.e.interleave(b.begins, {}, {});
  EXPECT_EQ(b.order(), before) << "one value and what three operands want is all there is room for";
  Bench two(5);
  for (int n = 0; n < 4; ++n) chain(two, n);
  two.e.interleave(two.begins, {}, {});
  EXPECT_EQ(two.order()[1], before[4]) << "two at a time";
  EXPECT_EQ(two.order()[2], before[1]);
}

}  // namespace
}  // namespace lathe::jit
