// Stores of bf16 that lie side by side: rounded and stored in pairs where nothing between them touches what they store,
// to the same bytes as one by one. Loads of bf16 in a loop, whose elements one permutation makes lanes.
#include <cmath>

#include "ir/base/dtype.h"
#include "tests/jit/x64/x64_test_util.h"

namespace lathe::jit {
namespace {
using namespace x64_test;

constexpr int kLanes = 16, kBytes = 2 * kLanes;
constexpr const char* kPairs = "vcvtne2ps2bf16";

class PairStores : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_run(kShape) || !(host_features() & kCpu_avx512bf16)) GTEST_SKIP() << "the machine lacks AVX512_BF16";
  }
  static constexpr Shape kShape{ir::IsaLevel::avx512, kLanes};

  static LeafProgram program(int operands) {
    LeafProgram p = empty_program(kShape, "pairs", operands);
    p.extra = kCpu_avx512bf16;
    p.num_vregs = 8;
    return p;
  }
  static Node load_at(int reg, int slot, int vector, MemType type = MemType::b32) {
    Inst i = load(reg, slot);
    i.type = type;
    i.mem.disp = vector * kLanes * (type == MemType::b32 ? 4 : 2);
    return inst(i);
  }
  static Node store_at(int reg, int slot, int bytes, LeafOp op = LeafOp::k_store, MemType type = MemType::bf16) {
    Inst i = store(reg, slot);
    i.op = op;
    i.type = type;
    i.mem.disp = bytes;
    return inst(i);
  }
  // How many pairs the code has.
  static int pairs_in(const LeafProgram& p) {
    EXPECT_TRUE(verify_program(p).ok()) << verify_program(p).to_string() << to_text(p);
    const auto image = compile_xbyak(p);
    EXPECT_TRUE(image.ok()) << image.status().to_string();
    if (!image.ok()) return -1;
    EXPECT_EQ(image->features & ~p.features(), 0u);
    const std::string text = disassemble({image->code.begin(), image->code.begin() + image->text_bytes});
    if (text.empty()) return -1;
    int found = 0;
    for (size_t at = text.find(kPairs); at != std::string::npos; at = text.find(kPairs, at + 1)) ++found;
    return found;
  }
  static bool has_disassembler() { return !disassemble({0xc3}).empty(); }
  // Generated code leaves the same bytes in all operands as the portable executor. `shift`: bytes from a line's start.
  static void expect_same(const LeafProgram& p, const std::vector<std::vector<uint8_t>>& in, size_t shift = 0,
                          int64_t extent = 0) {
    std::vector<std::vector<uint8_t>> left[2];
    for (int who = 0; who < 2; ++who) {
      ir::LeafArgs args{};
      args.extent[0] = extent;
      std::vector<uint8_t*> at;
      for (size_t s = 0; s < in.size(); ++s) {
        left[who].emplace_back(in[s].size() + 128, uint8_t{0x5a});
        const auto begin = reinterpret_cast<uintptr_t>(left[who].back().data());
        at.push_back(reinterpret_cast<uint8_t*>(((begin + 63) & ~uintptr_t{63}) + shift));
        std::copy(in[s].begin(), in[s].end(), at.back());
        args.op[s].ptr = reinterpret_cast<char*>(at.back());
      }
      if (who == 0) {
        execute_portable(p, args);
      } else {
        ASSERT_TRUE(run_generated(p, args));
      }
      for (size_t s = 0; s < in.size(); ++s) left[who][s] = {at[s], at[s] + in[s].size()};
    }
    for (size_t s = 0; s < in.size(); ++s) {
      for (size_t i = 0; i + 1 < in[s].size(); i += 2) {  // which NaN a bf16 is is not said
        for (auto* side : {left, left + 1}) {
          uint8_t* half = (*side)[s].data() + i;
          if ((half[1] & 0x7f) == 0x7f && half[0] > 0x80) half[0] = half[1] = 0xff;
        }
      }
      ASSERT_EQ(left[0][s], left[1][s]) << "operand " << s << "\n" << to_text(p);
    }
  }
  static std::vector<uint8_t> bytes_of(const std::vector<float>& values) {
    const auto* p = reinterpret_cast<const uint8_t*>(values.data());
    return {p, p + 4 * values.size()};
  }
};

// Denormals, NaN and infinities in either vector or in both, at every offset from a line.
TEST_F(PairStores, EveryKindOfNumberRoundsAsAlone) {
  std::mt19937 random(21);
  for (const LeafOp op : {LeafOp::k_store, LeafOp::k_store_stream}) {
    LeafProgram p = program(2);
    p.body = {load_at(0, 0, 0), load_at(1, 0, 1), store_at(0, 1, 0, op), store_at(1, 1, kBytes, op)};
    if (has_disassembler()) EXPECT_EQ(pairs_in(p), 1);
    for (int round = 0; round < 400; ++round) {
      std::vector<float> in = test_values(random, 96);
      std::shuffle(in.begin(), in.end(), random);
      in.resize(2 * kLanes);
      for (size_t i = 0; i < in.size(); ++i) {
        const bool kept = round % 4 == 3 || (round % 4 == (i < kLanes ? 1 : 2));
        if (!kept && std::fpclassify(in[i]) == FP_SUBNORMAL) in[i] = 1.5f;
      }
      const uint32_t tie = static_cast<uint32_t>(random()) << 16 | 0x8000u;
      std::memcpy(&in[random() % in.size()], &tie, 4);
      expect_same(p, {bytes_of(in), std::vector<uint8_t>(2 * kBytes, 0x5a)}, round % 5 == 0 ? round % 64 : 0);
      if (HasFailure()) return;
    }
  }
}

TEST_F(PairStores, OneAfterAnother) {
  std::mt19937 random(3);
  std::vector<float> in = test_values(random, 5 * kLanes);
  in.resize(5 * kLanes);
  const std::vector<uint8_t> out(5 * kBytes + 4, 0x5a);
  LeafProgram p = program(2);
  for (int v = 0; v < 5; ++v) {  // two pairs and one left
    p.body.push_back(load_at(v, 0, v));
    p.body.push_back(store_at(v, 1, v * kBytes));
  }
  if (has_disassembler()) EXPECT_EQ(pairs_in(p), 2);
  expect_same(p, {bytes_of(in), out});
  // Not side by side, or the later one below the earlier one.
  for (const int bytes : {0, 2, kBytes - 2, kBytes + 2, kBytes + 4, 2 * kBytes}) {
    LeafProgram apart = program(2);
    apart.body = {load_at(0, 0, 0), load_at(1, 0, 1), store_at(0, 1, 0), store_at(1, 1, bytes)};
    if (has_disassembler()) EXPECT_EQ(pairs_in(apart), 0) << bytes;
    expect_same(apart, {bytes_of(in), out});
    LeafProgram down = apart;
    std::swap(down.body[2], down.body[3]);
    if (has_disassembler()) EXPECT_EQ(pairs_in(down), 0) << bytes;
    expect_same(down, {bytes_of(in), out});
  }
  // Halves as they were read are not rounded.
  LeafProgram copies = program(2);
  copies.body = {load_at(0, 0, 0, MemType::bf16), load_at(1, 0, 1, MemType::bf16), store_at(0, 1, 0),
                 store_at(1, 1, kBytes)};
  if (has_disassembler()) EXPECT_EQ(pairs_in(copies), 0);
  expect_same(copies, {bytes_of(in), out});
}

// What stands between two stores and touches their operand keeps them apart; what touches another one does not.
TEST_F(PairStores, WhatIsBetweenSeesWhatWasStored) {
  std::mt19937 random(5);
  std::vector<float> in = test_values(random, 3 * kLanes);
  in.resize(3 * kLanes);
  const std::vector<std::vector<uint8_t>> operands = {bytes_of(in), std::vector<uint8_t>(3 * kBytes, 0x11),
                                                      std::vector<uint8_t>(4 * kBytes, 0x22)};
  const auto check = [&](const std::vector<Node>& between, int pairs) {
    LeafProgram p = program(3);
    p.body = {load_at(0, 0, 0), load_at(1, 0, 1), load_at(3, 0, 2), store_at(0, 1, 0)};
    p.body.insert(p.body.end(), between.begin(), between.end());
    p.body.push_back(store_at(1, 1, kBytes));
    if (has_disassembler()) EXPECT_EQ(pairs_in(p), pairs) << to_text(p);
    expect_same(p, operands);
  };
  check({}, 1);
  check({store_at(3, 2, 0, LeafOp::k_store, MemType::b32)}, 1);
  check({load_at(2, 2, 0), store_at(2, 2, 2 * kBytes, LeafOp::k_store, MemType::b32)}, 1);
  check({load_at(2, 1, 0, MemType::bf16), store_at(2, 2, 0, LeafOp::k_store, MemType::b32)}, 0);
  check({store_at(3, 1, 2)}, 0);
  check({store_at(3, 1, 0, LeafOp::k_store, MemType::b32)}, 0);
  check({inst(arith(LeafOp::k_add, 0, 3, 1))}, 0);  // the value is another one by then
  check({inst(arith(LeafOp::k_add, 2, 3, 1)), store_at(2, 2, 0), store_at(3, 2, kBytes)}, 2);
  // Another pointer into the same operand.
  LeafProgram moved = program(2);
  moved.ptrs.push_back({});
  Node set;
  set.kind = Node::Kind::set_ptr;
  set.from = 1;
  set.steps = {{2, 4, {}}};
  moved.body = {set,
                load_at(0, 0, 0),
                load_at(1, 0, 1),
                load_at(3, 0, 2),
                store_at(0, 1, 0),
                store_at(3, 2, 0),
                store_at(1, 1, kBytes)};
  if (has_disassembler()) EXPECT_EQ(pairs_in(moved), 0);
  expect_same(moved, {operands[0], operands[1]});
}

// In a loop the indices of the permutation sit in a register; every half, in both vectors of a step.
TEST_F(PairStores, LoadsInLoops) {
  std::vector<uint8_t> halves(2 * 0x10000);
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const uint16_t half = static_cast<uint16_t>(i * 0x9e37u);
    std::memcpy(&halves[2 * i], &half, 2);
  }
  LeafProgram p = program(3);
  p.num_vars = 1;
  Node loop;
  loop.kind = Node::Kind::loop;
  loop.var = 0;
  loop.extent.arg = 0;
  loop.body = {load_at(0, 0, 0, MemType::bf16),
               load_at(1, 0, 1, MemType::bf16),
               inst(arith(LeafOp::k_mul, 2, 0, 1)),
               inst(arith(LeafOp::k_mul, 3, 1, 1)),
               store_at(2, 1, 0),
               store_at(3, 1, kBytes),
               store_at(0, 2, 0, LeafOp::k_store, MemType::b32),
               store_at(1, 2, 4 * kLanes, LeafOp::k_store, MemType::b32)};
  loop.steps = {{0, 2 * kBytes, {}}, {1, 2 * kBytes, {}}, {2, 8 * kLanes, {}}};
  p.body = {loop};
  if (has_disassembler()) {
    EXPECT_EQ(pairs_in(p), 1);
    const auto image = compile_xbyak(p);
    ASSERT_TRUE(image.ok());
    const std::string text = disassemble({image->code.begin(), image->code.begin() + image->text_bytes});
    EXPECT_NE(text.find("vpermw"), std::string::npos);
    EXPECT_EQ(text.find("vpmovzxwd"), std::string::npos);
  }
  const int64_t steps = 0x10000 / (2 * kLanes);
  expect_same(p, {halves, std::vector<uint8_t>(halves.size()), std::vector<uint8_t>(2 * halves.size())}, 0, steps);
}

// Loads behind the loop, too. The last one reads the indices after its elements are in the register of its result, so
// that is another register than theirs, however many values are alive.
TEST_F(PairStores, LoadsBehindALoop) {
  std::vector<uint8_t> halves(8 * kBytes);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint8_t>(i * 37 % 120);
  for (int behind = 1; behind <= 7; ++behind) {
    LeafProgram p = program(2);
    p.num_vars = 1;
    Node loop;
    loop.kind = Node::Kind::loop;
    loop.var = 0;
    loop.extent.arg = 0;
    loop.body = {load_at(0, 0, 0, MemType::bf16), store_at(0, 1, 0, LeafOp::k_store, MemType::b32)};
    p.body = {loop};
    for (int v = 0; v < behind; ++v) p.body.push_back(load_at(v, 0, v, MemType::bf16));
    for (int v = 0; v < behind; ++v) p.body.push_back(store_at(v, 1, 4 * kLanes * v, LeafOp::k_store, MemType::b32));
    expect_same(p, {halves, std::vector<uint8_t>(2 * halves.size(), 0x5a)}, 0, 2);
  }
}

}  // namespace
}  // namespace lathe::jit
