// Elements of memory that are not lanes (jit/program/mem_types.def): the generators against the portable executor, that
// one against ir's conversions; every tail, nothing touched beside what is on.
#include <cmath>

#include "ir/base/dtype.h"
#include "tests/jit/x64/x64_test_util.h"

namespace lathe::jit {
namespace {
using namespace x64_test;

constexpr int kElements = 16;
constexpr MemType kTypes[] = {MemType::b32, MemType::u8, MemType::i8, MemType::u16, MemType::f16, MemType::bf16};

// operand 1 = operand 0, lanes stored whole; or the other way round, whole lanes stored as `type`.
LeafProgram one(const Shape& shape, LeafOp op, MemType type, bool masked, bool bf16 = false) {
  LeafProgram p = empty_program(shape, fmt::format("{}_{}", leaf_op_name(op), mem_type_name(type)), 2);
  if (bf16) p.extra = kCpu_avx512bf16;
  if (masked) {
    Inst tail{LeafOp::k_mask_tail, 0};
    tail.extent.arg = 0;
    p.body.push_back(inst(tail));
  }
  const bool loads = leaf_op_kind(op) == LeafOpKind::kLoad;
  Inst from = load(0, 0), to = store(0, 1);
  (loads ? from : to).op = op;
  (loads ? from : to).type = type;
  (loads ? from : to).mask = masked ? 0 : -1;
  p.body.push_back(inst(from));
  p.body.push_back(inst(to));
  return p;
}

// What is left in operand 1, every byte of which was 0x5a; operand 0 holds `bytes` and ends at its end.
template <class Run>
std::vector<uint8_t> bytes_after(std::vector<uint8_t> bytes, int64_t extent, size_t room, Run&& run) {
  std::vector<uint8_t> out(room + 64, 0x5a);
  auto at = reinterpret_cast<uintptr_t>(out.data());
  at = (at + 63) & ~uintptr_t{63};
  ir::LeafArgs args{};
  args.op[0].ptr = reinterpret_cast<char*>(bytes.data());
  args.op[1].ptr = reinterpret_cast<char*>(at);
  args.extent[0] = extent;
  run(args);
  return {reinterpret_cast<uint8_t*>(at), reinterpret_cast<uint8_t*>(at) + room};
}

// Which NaN a bf16 is is not said.
std::vector<uint8_t> comparable(const LeafProgram& p, std::vector<uint8_t> bytes) {
  const Inst& last = p.body.back().inst;
  for (size_t i = 0; last.type == MemType::bf16 && i + 1 < bytes.size(); i += 2) {
    if ((bytes[i + 1] & 0x7f) == 0x7f && bytes[i] > 0x80) bytes[i] = bytes[i + 1] = 0xff;
  }
  return bytes;
}

void expect_same(const LeafProgram& p, const std::vector<uint8_t>& in, int64_t extent, size_t room) {
  ASSERT_TRUE(verify_program(p).ok()) << verify_program(p).to_string() << to_text(p);
  const auto after = [&](auto&& run) { return comparable(p, bytes_after(in, extent, room, run)); };
  const auto want = after([&](const ir::LeafArgs& a) { execute_portable(p, a); });
  if (p.level == ir::IsaLevel::portable) return;
  const auto image = compile_xbyak(p);
  ASSERT_TRUE(image.ok()) << image.status().to_string();
  EXPECT_EQ(image->features & ~p.features(), 0u) << p.name;
  const auto code = loader().load(*image);
  ASSERT_TRUE(code.ok()) << code.status().to_string();
  EXPECT_EQ(want, after([&](const ir::LeafArgs& a) { call(code->entry, a); })) << "x64, extent " << extent << "\n"
                                                                               << to_text(p);
  const auto llvm = compile_llvm(p, "");
  if (!llvm.ok()) return;  // a build without it
  const Loaded other(*llvm);
  EXPECT_EQ(want, after([&](const ir::LeafArgs& a) { other(a); })) << "llvm, extent " << extent << "\n" << to_text(p);
}

std::vector<uint8_t> bytes_of(const std::vector<float>& values) {
  const auto* p = reinterpret_cast<const uint8_t*>(values.data());
  return {p, p + 4 * values.size()};
}

class NarrowMemory : public testing::TestWithParam<int> {
 protected:
  Shape shape() const { return all_shapes()[static_cast<size_t>(GetParam())]; }
  void SetUp() override {
    if (!can_run(shape())) GTEST_SKIP() << "the machine lacks " << shape().name();
  }
};

TEST_P(NarrowMemory, EveryTailOfEveryType) {
  std::mt19937 random(5);
  for (const MemType type : kTypes) {
    const size_t element = static_cast<size_t>(kMemTypeBytes[static_cast<int>(type)]);
    for (int64_t extent = 0; extent <= shape().lanes; ++extent) {
      // No byte behind the last element that is on belongs to the operand: a sanitizer build would see it read.
      std::vector<uint8_t> in(element * static_cast<size_t>(extent));
      for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint8_t>(i % 2 ? random() % 0x78 : random());
      expect_same(one(shape(), LeafOp::k_load, type, true), in, extent, 64);
      expect_same(one(shape(), LeafOp::k_store, type, true), bytes_of(test_values(random, kElements)), extent, 80);
    }
    std::vector<uint8_t> in(64);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint8_t>(i % 2 ? random() % 0x78 : random());
    expect_same(one(shape(), LeafOp::k_load, type, false), in, 0, 64);
    expect_same(one(shape(), LeafOp::k_load_bcast, type, false), in, 0, 64);
    for (const LeafOp op : {LeafOp::k_store, LeafOp::k_store_stream, LeafOp::k_store_lane0}) {
      if (op == LeafOp::k_store_stream && element == 1) continue;
      for (int round = 0; round < 4; ++round)
        expect_same(one(shape(), op, type, false), bytes_of(test_values(random, kElements)), 0, 80);
    }
  }
  std::vector<uint8_t> in(64);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint8_t>(random());
  expect_same(one(shape(), LeafOp::k_load_bcast, MemType::b64, false), in, 0, 64);
  expect_same(one(shape(), LeafOp::k_store_lane0, MemType::b64, false), in, 0, 64);
}

// With the instruction and without it, vectors with denormals among them and vectors without: the same elements.
TEST_P(NarrowMemory, Bf16RoundsAlikeWithTheInstructionAndWithout) {
  std::mt19937 random(9);
  for (const bool bf16 : {false, true}) {
    if (bf16 && (shape().level != ir::IsaLevel::avx512 || !(host_features() & kCpu_avx512bf16))) continue;
    for (const LeafOp op : {LeafOp::k_store, LeafOp::k_store_stream, LeafOp::k_store_lane0}) {
      for (int round = 0; round < 300; ++round) {
        std::vector<float> in = test_values(random, 64);
        std::shuffle(in.begin(), in.end(), random);
        in.resize(kElements);
        const uint32_t tie = static_cast<uint32_t>(random()) << 16 | 0x8000u;
        std::memcpy(&in[static_cast<size_t>(random() % 16)], &tie, 4);
        for (float& f : in) f = round % 2 == 0 && std::fpclassify(f) == FP_SUBNORMAL ? 1.5f : f;
        expect_same(one(shape(), op, MemType::bf16, false, bf16), bytes_of(in), 0, 80);
        if (op == LeafOp::k_store)
          expect_same(one(shape(), op, MemType::bf16, true, bf16), bytes_of(in), round % 17, 80);
        if (HasFailure()) return;
      }
    }
  }
}

// What a store as bf16 leaves out is not needed: halves as they were read, numbers and NaN of each kind after
// arithmetic, after bits were set, and in a register that two types of elements share.
TEST_P(NarrowMemory, Bf16StoresLeaveOutWhatIsNotNeeded) {
  const uint32_t all_ones[] = {0x7fffffff, 0xffffffff, 0x7fff8000, 0xffff8000, 0x7f800001, 0xff800001, 0x7fffe000};
  std::vector<uint8_t> floats(64), f16(64, 0xff), every(64);
  for (size_t i = 0; i < 16; ++i) std::memcpy(&floats[4 * i], &all_ones[i % std::size(all_ones)], 4);
  for (const bool bf16 : {false, true}) {
    if (bf16 && (shape().level != ir::IsaLevel::avx512 || !(host_features() & kCpu_avx512bf16))) continue;
    const auto check = [&](MemType from, const std::vector<uint8_t>& in, const std::vector<Inst>& between) {
      LeafProgram p = one(shape(), LeafOp::k_store, MemType::bf16, false, bf16);
      p.num_vregs = 4;
      p.body[0].inst.type = from;
      const Node last = p.body.back();
      p.body.pop_back();
      for (const Inst& i : between) p.body.push_back(inst(i));
      p.body.push_back(last);
      p.body.back().inst.src[0] = between.empty() ? 0 : between.back().dst;
      expect_same(p, in, 0, 80);
    };
    const auto constant = [](int dst, uint32_t bits) {
      Inst i{LeafOp::k_constant, dst};
      i.imm = bits;
      return i;
    };
    const Inst one_more = constant(1, 0x3f800000), tie = constant(1, 0x3f808000), sign = constant(1, 0x80000000),
               low = constant(1, 0x00008001);
    const auto of = [](LeafOp op) { return Inst{op, 2, {0, 1, -1}}; };
    for (const auto& [type, in] : {std::pair(MemType::b32, floats), std::pair(MemType::f16, f16)}) {
      check(type, in, {});
      check(type, in, {one_more, of(LeafOp::k_mul)});
      check(type, in, {one_more, of(LeafOp::k_max)});
      check(type, in, {sign, of(LeafOp::k_bit_xor)});
      check(type, in, {sign, Inst{LeafOp::k_bit_andnot, 2, {1, 0, -1}}});
    }
    // Every NaN, and numbers of all sizes.
    for (uint32_t first = 0; first < 0x10000; first += 16) {
      if ((first & 0x7fff) < 0x7f80 && first % 0x2000 != 0) continue;
      for (uint32_t i = 0; i < 16; ++i) {
        const uint16_t half = static_cast<uint16_t>(first + i);
        std::memcpy(&every[2 * i], &half, 2);
      }
      check(MemType::bf16, every, {});
      check(MemType::bf16, every, {sign, of(LeafOp::k_bit_xor)});
      check(MemType::bf16, every, {one_more, of(LeafOp::k_min)});
      check(MemType::bf16, every, {tie, of(LeafOp::k_mul)});
      if (HasFailure()) return;
    }
    check(MemType::bf16, floats, {low, of(LeafOp::k_bit_or)});
    check(MemType::bf16, floats, {low, of(LeafOp::k_iadd)});
    check(MemType::bf16, floats, {load(0, 0)});
  }
}

// All 65,536 halves, and all that lies around each on the way back: ties, denormals, overflow, NaN.
TEST_P(NarrowMemory, HalvesAreExactAndRoundToNearestEven) {
  const int lanes = shape().lanes;
  const LeafProgram read = one(shape(), LeafOp::k_load, MemType::f16, false),
                    write = one(shape(), LeafOp::k_store, MemType::f16, false);
  const auto read_code = loader().load(*compile_xbyak(read)), write_code = loader().load(*compile_xbyak(write));
  for (uint32_t first = 0; first < 0x10000; first += static_cast<uint32_t>(lanes)) {
    std::vector<uint16_t> halves(16);
    for (int i = 0; i < lanes; ++i)
      halves[static_cast<size_t>(i)] = static_cast<uint16_t>(first + static_cast<uint32_t>(i));
    float lane[2][16], near[16];
    uint16_t back[2][16];
    for (int who = 0; who < 2; ++who) {
      ir::LeafArgs args{};
      args.op[0].ptr = reinterpret_cast<char*>(halves.data());
      args.op[1].ptr = reinterpret_cast<char*>(lane[who]);
      who == 0 ? execute_portable(read, args) : call(read_code->entry, args);
    }
    for (int step = -1; step <= 2; ++step) {
      for (int i = 0; i < lanes; ++i) {
        const float x = lane[0][i], next = ir::f16_to_f32(static_cast<uint16_t>(halves[static_cast<size_t>(i)] + 1));
        near[i] = step == 2 ? (x + next) / 2 : step == 0 ? x : std::nextafter((x + next) / 2, step < 0 ? x : next);
      }
      for (int who = 0; who < 2; ++who) {
        ir::LeafArgs args{};
        args.op[0].ptr = reinterpret_cast<char*>(near);
        args.op[1].ptr = reinterpret_cast<char*>(back[who]);
        who == 0 ? execute_portable(write, args) : call(write_code->entry, args);
      }
      for (int i = 0; i < lanes; ++i) {
        ASSERT_EQ(std::memcmp(&lane[0][i], &lane[1][i], 4), 0) << halves[static_cast<size_t>(i)];
        ASSERT_EQ(back[0][i], back[1][i]) << near[i];
        if (std::isnan(near[i])) {
          ASSERT_TRUE(std::isnan(ir::f16_to_f32(back[0][i])));
          continue;
        }
        if (step == 0) {
          ASSERT_EQ(lane[0][i], ir::f16_to_f32(halves[static_cast<size_t>(i)]));
        }
        ASSERT_EQ(back[0][i], ir::f32_to_f16(near[i])) << near[i];
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, NarrowMemory, testing::Range(0, static_cast<int>(all_shapes().size())),
                         [](const auto& info) {
                           std::string name = all_shapes()[static_cast<size_t>(info.param)].name();
                           for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

TEST(NarrowMemory, WhatHasNoFormIsRefused) {
  const Shape shape{ir::IsaLevel::avx2, 8};
  LeafProgram p = one(shape, LeafOp::k_store_stream, MemType::u8, false);
  EXPECT_NE(verify_program(p).to_string().find("store_stream of u8"), std::string::npos);
  p = one(shape, LeafOp::k_load, MemType::b64, false);
  EXPECT_NE(verify_program(p).to_string().find("load of b64"), std::string::npos);
  p = one(shape, LeafOp::k_load, MemType::u16, false);
  p.body.back().inst.type = static_cast<MemType>(kMemTypeCount);
  EXPECT_FALSE(verify_program(p).ok());
  p = one(shape, LeafOp::k_load, MemType::f16, false);
  const std::vector<uint8_t> bytes = serialise(p);
  const auto back = deserialise(bytes.data(), bytes.size());
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(to_text(*back), to_text(p));
  EXPECT_NE(to_text(p).find("load.f16"), std::string::npos);
}

}  // namespace
}  // namespace lathe::jit
