// Integer arithmetic of lanes (imul, dot4_u8s8) against a scalar reference, bit for bit: extreme bytes, sums that wrap,
// at every level with the instruction and without, the second source in a register, folded and broadcast from memory.
#include "tests/jit/x64/lane_program.h"

namespace lathe::jit {
namespace {
using namespace x64_test;

constexpr int kVectors = 32;

uint32_t reference(LeafOp op, uint32_t a, uint32_t b, uint32_t c) {
  if (op == LeafOp::k_imul) return static_cast<uint32_t>(uint64_t{a} * b);
  int64_t sum = static_cast<int32_t>(c);
  for (int j = 0; j < 4; ++j) sum += int64_t{static_cast<uint8_t>(a >> 8 * j)} * static_cast<int8_t>(b >> 8 * j);
  return static_cast<uint32_t>(sum);
}

// Every pair of these bytes meets in every place, then all is random.
std::vector<Lanes> operands(size_t n) {
  static constexpr uint8_t kUnsigned[] = {0, 1, 127, 128, 254, 255}, kSigned[] = {0x80, 0x81, 0xff, 0, 1, 0x7f};
  static constexpr uint32_t kSums[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0x7fff0000};
  std::mt19937 random(3);
  std::vector<Lanes> in(3, Lanes(n));
  for (size_t i = 0; i < n; ++i) {
    for (int j = 0; j < 32; j += 8) {
      const bool same = i < n / 4;  // the largest products, with nothing between to make up for them
      const size_t u = same ? i % 6 : random() % 6, s = same ? i / 6 % 6 : random() % 6;
      in[0][i] |= static_cast<uint32_t>(kUnsigned[u]) << j;
      in[1][i] |= static_cast<uint32_t>(kSigned[s]) << j;
    }
    in[2][i] = kSums[(i + i / 6) % 6];
    if (i < 3 * n / 4) continue;
    for (Lanes& lanes : in) lanes[i] = static_cast<uint32_t>(random());
  }
  return in;
}

bool uses_dot4_instruction(const CodeImage& image) { return (image.features & (kCpu_avx512vnni | kCpu_avx_vnni)) != 0; }

class IntegerOps : public testing::TestWithParam<LeafOp> {};

TEST_P(IntegerOps, equal_the_scalar_reference) {
  const LeafOp op = GetParam();
  for (const Shape& shape : shapes_of(op)) {
    const size_t n = static_cast<size_t>(kVectors * shape.lanes);
    const std::vector<Lanes> in = operands(n);
    for (const Second second : {Second::in_register, Second::folded, Second::broadcast}) {
      Lanes want(n);
      for (size_t i = 0; i < n; ++i) {
        const size_t b = second == Second::broadcast ? i / shape.lanes * shape.lanes : i;
        want[i] = reference(op, in[0][i], in[1][b], in[2][i]);
      }
      for (const bool in_place : {false, true}) {
        SCOPED_TRACE(fmt::format("{} second {} in place {}", shape.name(), static_cast<int>(second), in_place));
        const LeafProgram p = program_of(shape, op, second, in_place);
        ASSERT_TRUE(verify_program(p).ok()) << verify_program(p).to_string();
        EXPECT_EQ(results(in, [&](const ir::LeafArgs& a) { execute_portable(p, a); }), want) << "portable";
        const auto x64 = compile_xbyak(p);
        ASSERT_TRUE(x64.ok()) << x64.status().to_string();
        EXPECT_EQ(uses_dot4_instruction(*x64), shape.extra != 0);
        EXPECT_EQ(x64->features & ~p.features(), 0u) << feature_names(x64->features);
        const auto llvm = compile_llvm(p, "");
        if (!can_run(shape)) continue;
        const Loaded code(*x64);
        EXPECT_EQ(results(in, [&](const ir::LeafArgs& a) { code(a); }), want) << "x64";
        if (!llvm.ok()) continue;  // a build without it
        EXPECT_EQ(uses_dot4_instruction(*llvm), shape.extra != 0);
        const Loaded other(*llvm);
        EXPECT_EQ(results(in, [&](const ir::LeafArgs& a) { other(a); }), want) << "llvm";
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(All, IntegerOps, testing::Values(LeafOp::k_imul, LeafOp::k_dot4_u8s8),
                         [](const auto& info) { return leaf_op_name(info.param); });

// One instruction, its bytes of the second source from memory, the sum where it was.
TEST(IntegerOps, dot4_is_one_instruction_where_there_is_one) {
  if (disassemble({0xc3}).empty()) GTEST_SKIP() << "objdump is not installed";
  for (const Shape& shape : dot4_shapes()) {
    const bool evex = shape.level == ir::IsaLevel::avx512;
    const auto image =
        compile_xbyak(program_of(shape, LeafOp::k_dot4_u8s8, evex ? Second::broadcast : Second::folded, true));
    ASSERT_TRUE(image.ok()) << image.status().to_string();
    const std::string text = disassemble(std::vector<uint8_t>(image->code.begin(), image->code.end()));
    const size_t at = text.find("vpdpbusd");
    ASSERT_EQ(at != std::string::npos, shape.extra != 0) << shape.name() << "\n" << text;
    if (shape.extra == 0) continue;
    const std::string line = text.substr(at, text.find('\n', at) - at);
    EXPECT_NE(line.find(evex ? "DWORD" : "YMMWORD"), std::string::npos) << line;
    EXPECT_EQ(text.find("vmovaps"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace lathe::jit
