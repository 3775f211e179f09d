// What every generated leaf owes its caller: no byte outside its tensors (guard pages at both ends, inputs read-only),
// callee-saved registers, MXCSR and direction flag kept, at most 1 KB of stack, and no instruction beyond its level.
#include "jit/host/abi_probe.h"
#include "jit/image/image.h"
#include "tests/common/guard_buffer.h"
#include "tests/jit/program/random_program.h"

namespace lathe::jit {
namespace {
using namespace x64_test;
using test::GuardBuffer;

class X64Contract : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!can_run(shape())) GTEST_SKIP() << "the machine lacks " << ir::isa_name(shape().level);
  }
  Shape shape() const { return all_shapes()[static_cast<size_t>(GetParam())]; }
};

// d[n] = a[n] + b[n] * s[0] over e0 elements, whole vectors and a masked tail: what lowering makes of an elementwise
// row.
LeafProgram masked_row(const Shape& shape) {
  LeafProgram p = empty_program(shape, "row", 4);
  Node loop;
  loop.kind = Node::Kind::loop;
  loop.var = 0;
  loop.step = shape.lanes;
  loop.extent.arg = 0;
  Inst scalar = load(2, 2);
  scalar.op = LeafOp::k_load_bcast;
  loop.body = {inst(load(0, 0, 0)), inst(load(1, 1, 0)), inst(arith(LeafOp::k_fma, 3, 1, 2, 0)), inst(store(3, 3, 0))};
  Node tail;
  tail.kind = Node::Kind::if_less;
  tail.var = 0;
  tail.extent.arg = 0;
  Inst mask{LeafOp::k_mask_tail, 0};
  mask.var = 0;
  mask.extent.arg = 0;
  tail.body = {inst(mask), inst(load(0, 0, 0, 0)), inst(load(1, 1, 0, 0)), inst(arith(LeafOp::k_fma, 3, 1, 2, 0)),
               inst(store(3, 3, 0, 0))};
  p.body = {inst(scalar), loop, tail};
  return p;
}

TEST_P(X64Contract, TouchesNothingOutsideItsTensors) {
  const LeafProgram p = masked_row(shape());
  const auto image = compile_xbyak(p);
  ASSERT_TRUE(image.ok()) << image.status().to_string();
  const auto code = loader().load(*image);
  ASSERT_TRUE(code.ok()) << code.status().to_string();
  for (const auto side : {GuardBuffer::Side::ends_at_guard, GuardBuffer::Side::starts_after_guard}) {
    for (size_t n = 0; n < 70; ++n) {
      GuardBuffer a(4 * n, side), b(4 * n, side), s(4, side), d(4 * n, side);
      for (size_t i = 0; i < n; ++i) {
        a.data<float>()[i] = static_cast<float>(i);
        b.data<float>()[i] = 0.5f * static_cast<float>(i % 7);
      }
      *s.data<float>() = 3.0f;
      for (GuardBuffer* input : {&a, &b, &s}) input->make_read_only();
      ir::LeafArgs args{};
      const GuardBuffer* operands[] = {&a, &b, &s, &d};
      for (int i = 0; i < 4; ++i) args.op[i].ptr = operands[i]->data<char>();
      args.extent[0] = static_cast<int64_t>(n);
      call(code->entry, args);
      EXPECT_TRUE(d.canaries_intact()) << n;
      for (size_t i = 0; i < n; ++i) {
        ASSERT_EQ(d.data<float>()[i], static_cast<float>(i) + 1.5f * static_cast<float>(i % 7)) << n << " " << i;
      }
    }
  }
}

TEST_P(X64Contract, GuardPagesCatchAnUnmaskedTail) {
  LeafProgram p = masked_row(shape());
  for (Node& n : p.body[2].body) n.inst.mask = -1;
  const auto image = compile_xbyak(p);
  ASSERT_TRUE(image.ok());
  const auto code = loader().load(*image);
  ASSERT_TRUE(code.ok());
  EXPECT_DEATH(
      {
        GuardBuffer a(12, GuardBuffer::Side::ends_at_guard);
        ir::LeafArgs args{};
        for (int i = 0; i < 4; ++i) args.op[i].ptr = a.data<char>();
        args.extent[0] = 3;
        call(code->entry, args);
      },
      "");
}

TEST_P(X64Contract, KeepsRegistersAndStack) {
  AbiProbe probe;
  size_t deepest = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    RandomProgram random(shape(), seed);
    const auto image = compile_xbyak(random.program());
    if (!image.ok()) continue;
    const auto code = loader().load(*image);
    ASSERT_TRUE(code.ok());
    AbiReport report;
    after(random.operands(), [&](const ir::LeafArgs& args) { report = probe.call(code->entry, &args); });
    EXPECT_EQ(report.broken, "") << "seed " << seed;
    EXPECT_LE(report.stack_bytes, image->stack_bytes) << "seed " << seed;
    EXPECT_LE(report.stack_bytes, kMaxLeafStack);
    deepest = std::max(deepest, report.stack_bytes);
  }
  EXPECT_GT(deepest, 6 * 8u) << "no program needed the stack: the test is blind";
}

// The probe sees a leaf that breaks the rules: it changes rbx, r15 and MXCSR, sets the direction flag and uses 2 KB of
// stack.
TEST(AbiProbe, SeesABrokenLeaf) {
  CodeImage bad;
  bad.symbol = "bad";
  bad.code = {0x31, 0xdb,                                                  // xor ebx, ebx
              0x45, 0x31, 0xff,                                            // xor r15d, r15d
              0xc7, 0x84, 0x24, 0x00, 0xf8, 0xff, 0xff, 0x80, 0x9f, 0, 0,  // mov dword [rsp - 2048], 0x9f80
              0x0f, 0xae, 0x94, 0x24, 0x00, 0xf8, 0xff, 0xff,              // ldmxcsr [rsp - 2048]
              0xfd, 0xc3};                                                 // std; ret
  bad.text_bytes = static_cast<uint32_t>(bad.code.size());
  const auto code = loader().load(bad);
  ASSERT_TRUE(code.ok()) << code.status().to_string();
  const ir::LeafArgs args{};
  AbiProbe probe;
  const uint32_t mxcsr = __builtin_ia32_stmxcsr();
  const AbiReport report = probe.call(code->entry, &args);
  __builtin_ia32_ldmxcsr(mxcsr);
  EXPECT_EQ(report.broken, " rbx r15 mxcsr df");
  EXPECT_EQ(report.stack_bytes, 2048u);
}

// Code of LLVM keeps vectors on the stack where a caller aligns it.
thread_local uintptr_t frame_of_leaf = 0;
void note_frame(const ir::LeafArgs*) { frame_of_leaf = reinterpret_cast<uintptr_t>(__builtin_frame_address(0)); }

TEST(AbiProbe, CallsWithAnAlignedStack) {
  const ir::LeafArgs args{};
  AbiProbe probe;
  EXPECT_EQ(probe.call(note_frame, &args).broken, "");
  EXPECT_NE(frame_of_leaf, 0u);
  EXPECT_EQ(frame_of_leaf % 16, 0u);
}

TEST_P(X64Contract, UsesOnlyItsLevelsInstructions) {
  if (disassemble(compile_xbyak(masked_row(shape()))->code).empty()) GTEST_SKIP() << "objdump is not installed";
  for (unsigned seed = 0; seed < 40; ++seed) {
    const RandomProgram random(shape(), seed);
    const auto image = compile_xbyak(random.program());
    if (!image.ok()) continue;
    const std::string text = disassemble({image->code.begin(), image->code.begin() + image->text_bytes});
    EXPECT_EQ(forbidden_words(text, shape()), "") << "seed " << seed << "\n" << text;
    EXPECT_NE(text.find("endbr64"), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, X64Contract, testing::Range(0, 3),
                         [](const auto& info) { return all_shapes()[static_cast<size_t>(info.param)].name(); });

}  // namespace
}  // namespace lathe::jit
