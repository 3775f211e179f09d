// Device programs: how leaves become them, their text, their rules, and the text that compilers get.
#include "jit/cuda/device_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jit/cuda/lower/lower_device.h"
#include "jit/cuda/text/cuda_text.h"
#include "tests/gpu/chains.h"

namespace lathe::jit {
namespace {

using ::testing::HasSubstr;

ir::Result<DeviceProgram> lowered(const std::string& text) {
  const ir::Kernel kernel = test::kernel_of(text);
  return lower_device({kernel, text});
}

const char kLeaf[] =
    "kernel leaf(p0: f32[e0] in, p1: f32[e0] out) family device where e0 in 1..1099511627776\n"
    "  for i0 < ceildiv(ceildiv(e0, 4), 256) @grid:\n"
    "    for i1 < min(256, ceildiv(e0, 4) - 256*i0) @block:\n"
    "      for i2 < min(4, e0 - 1024*i0 - 4*i1) @vector:\n"
    "        p1[1024*i0 + 4*i1 + i2] = p0[1024*i0 + 4*i1 + i2] * sigmoid(p0[1024*i0 + 4*i1 + i2])\n";

TEST(DeviceProgram, IsWrittenOut) {
  const auto program = lowered(kLeaf);
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  EXPECT_EQ(print(*program),
            "program leaf threads 256 (p0: in, p1: out, e0)\n"
            "  let i0 = block\n"
            "  let i1 = thread\n"
            "  if i1 < ceildiv(e0, 4) - 256*i0:\n"
            "    if 3 < e0 - 1024*i0 - 4*i1 and aligned x4 p0[1024*i0 + 4*i1], p1[1024*i0 + 4*i1]:\n"
            "      v3 = load x4 p0[1024*i0 + 4*i1]\n"
            "      v4 = sigmoid v3\n"
            "      v5 = mul v3 v4\n"
            "      store x4 p1[1024*i0 + 4*i1] v5\n"
            "    else:\n"
            "      for i2 < min(4, e0 - 1024*i0 - 4*i1):\n"
            "        v0 = load p0[1024*i0 + 4*i1 + i2]\n"
            "        v1 = sigmoid v0\n"
            "        v2 = mul v0 v1\n"
            "        store p1[1024*i0 + 4*i1 + i2] v2\n");
}

// What two dimensions share out: blocks with the last grid scope fastest, threads likewise; what is the same in all
// lanes is loaded once, what lies apart one by one.
TEST(DeviceProgram, SharesOutBlocksAndThreads) {
  const auto program = lowered(
      "kernel leaf(p0: f32[e0, e1] in strides [1, e2], p1: f32[e0, 1] in, p2: f32[e0, e1] out) family device where e0 "
      "in "
      "1..4096, e1 in 1..4096, e2 in 1..4096\n"
      "  for i0 < ceildiv(e0, 8) @grid:\n"
      "    for i1 < ceildiv(e1, 128) @grid:\n"
      "      for i2 < min(8, e0 - 8*i0) @block:\n"
      "        for i3 < min(32, ceildiv(e1, 4) - 32*i1) @block:\n"
      "          for i4 < min(4, e1 - 128*i1 - 4*i3) @vector:\n"
      "            p2[8*i0 + i2, 128*i1 + 4*i3 + i4] = p0[8*i0 + i2, 128*i1 + 4*i3 + i4] + p1[8*i0 + i2, 0]\n");
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  EXPECT_EQ(program->threads, 256);
  const std::string text = print(*program);
  EXPECT_THAT(text, HasSubstr("let i1 = block % ceildiv(e1, 128)\n"));
  EXPECT_THAT(text, HasSubstr("let b1 = block // ceildiv(e1, 128)\n  let i0 = b1\n"));
  EXPECT_THAT(text, HasSubstr("let i2 = thread // 32\n"));
  EXPECT_THAT(text, HasSubstr("let i3 = thread % 32\n"));
  EXPECT_THAT(text, HasSubstr("= load x4 step e2 p0["));
  EXPECT_THAT(text, HasSubstr("= load p1[8*i0 + i2]\n"));
  EXPECT_THAT(text, HasSubstr("aligned x4 p2["));
}

TEST(DeviceProgram, RefusesWhatADeviceLacks) {
  const auto why = [](const std::string& value) {
    return lowered(
               "kernel leaf(p0: f32[e0] in, p1: f32[e0] out) family device where e0 in 1..99\n"
               "  for i0 < e0 @grid:\n    p1[i0] = " +
               value + "\n")
        .status()
        .message();
  };
  EXPECT_EQ(why("p0[i0]"), "");
  EXPECT_THAT(why("f32(f64(p0[i0]))"), HasSubstr("f64(p0[i0]) has no function on a device"));
  EXPECT_EQ(why("f32(i0)"), "");
}

// A program that is sound, and one change that breaks a rule.
TEST(DeviceProgram, EveryRuleRefuses) {
  using Kind = DeviceStmt::Kind;
  struct Case {
    const char* message;
    void (*change)(DeviceProgram&);
  };
  const auto inner = [](DeviceProgram& p) -> DeviceStmt& { return p.body[2].body[0]; };
  static const auto& wide = *new auto(inner);
  const Case cases[] = {
      {"block: 2000 threads, expected 1..1024", [](DeviceProgram& p) { p.threads = 2000; }},
      {"names: i0 is defined twice", [](DeviceProgram& p) { p.body[1].name = "i0"; }},
      {"names: i0 is not known in i1 < ceildiv(e0, 4) - 256*i0", [](DeviceProgram& p) { p.body[0].name = "i9"; }},
      {"names: value v3 is defined twice", [](DeviceProgram& p) { wide(p).body[1].value = 3; }},
      {"names: value v7 is not known here", [](DeviceProgram& p) { wide(p).body[3].operands[0].value = 7; }},
      {"values: mul has 1 operands, expected 2", [](DeviceProgram& p) { wide(p).body[2].operands.pop_back(); }},
      {"logical_and: values: v3 is f, expected b",
       [](DeviceProgram& p) { wide(p).body[2].op = DeviceOp::k_logical_and; }},
      {"lanes: 3, expected 1, 2, 4, 8 or 16", [](DeviceProgram& p) { wide(p).body[1].lanes = 3; }},
      {"store", [](DeviceProgram& p) { wide(p).body[3].lanes = 2; }},
      {"access: p0 is stored to, it is only read",
       [](DeviceProgram& p) { wide(p).body[3].places = wide(p).body[0].places; }},
      {"access: 4 lanes of p0[1024*i0 + 4*i1] at once, and nothing says that they are aligned",
       [](DeviceProgram& p) { wide(p).places.erase(wide(p).places.begin()); }},
      {"access: 4 lanes of p0[1024*i0 + 4*i1] at once, and nothing says that they are aligned",
       [](DeviceProgram& p) { std::swap(wide(p).body, wide(p).otherwise); }},
      {"access: 4 lanes of p0[1024*i0 + 4*i1] at once, and nothing says that they are aligned",
       [](DeviceProgram& p) { wide(p).lanes = 2; }},
      {"names: i0 is i64, expected b8", [](DeviceProgram& p) { p.body[2].integer = ir::iter("i0"); }},
      {"access: there is no parameter 2", [](DeviceProgram& p) { wide(p).places[0].index = 2; }},
  };
  const DeviceProgram sound = lowered(kLeaf).value();
  ASSERT_TRUE(verify(sound).ok());
  ASSERT_EQ(sound.body[2].kind, Kind::when);
  for (const Case& c : cases) {
    DeviceProgram broken = sound;
    c.change(broken);
    EXPECT_FALSE(verify(broken).ok()) << c.message;
    if (c.message != std::string("store")) {
      EXPECT_EQ(verify(broken).message(), c.message);
    }
  }
}

TEST(CudaText, IsPlainCpp) {
  const std::string text = cuda_text(lowered(kLeaf).value(), "lathe_x");
  EXPECT_EQ(
      text,
      "#include \"lathe_prelude.h\"\n"
      "struct lt_args {\n"
      "  const float* p0;\n"
      "  float* p1;\n"
      "  lt_int e0;\n"
      "};\n"
      "LT_KERNEL(lathe_x, 256, 1, lt_args, a) {\n"
      "  const lt_int i0 = lt_block();\n"
      "  const lt_int i1 = lt_thread();\n"
      "  if ((i1 < (lt_ceildiv(a.e0, 4ll) - (256ll * i0)))) {\n"
      "    if ((3ll < ((a.e0 - (1024ll * i0)) - (4ll * i1))) && "
      "lt_aligned(a.p0 + ((1024ll * i0) + (4ll * i1)), 16) && lt_aligned(a.p1 + ((1024ll * i0) + (4ll * i1)), 16)) {\n"
      "      const lt_f4 w3 = lt_load4(a.p0 + ((1024ll * i0) + (4ll * i1)));\n"
      "      const float v3_0 = w3.x;\n"
      "      const float v3_1 = w3.y;\n"
      "      const float v3_2 = w3.z;\n"
      "      const float v3_3 = w3.w;\n"
      "      const float v4_0 = lt_sigmoid(v3_0);\n"
      "      const float v4_1 = lt_sigmoid(v3_1);\n"
      "      const float v4_2 = lt_sigmoid(v3_2);\n"
      "      const float v4_3 = lt_sigmoid(v3_3);\n"
      "      const float v5_0 = lt_mul(v3_0, v4_0);\n"
      "      const float v5_1 = lt_mul(v3_1, v4_1);\n"
      "      const float v5_2 = lt_mul(v3_2, v4_2);\n"
      "      const float v5_3 = lt_mul(v3_3, v4_3);\n"
      "      lt_store4(a.p1 + ((1024ll * i0) + (4ll * i1)), v5_0, v5_1, v5_2, v5_3);\n"
      "    } else {\n"
      "      LT_LOOP\n"
      "      for (lt_int i2 = 0; i2 < lt_least(4ll, ((a.e0 - (1024ll * i0)) - (4ll * i1))); ++i2) {\n"
      "        const float v0_0 = lt_load1(a.p0 + (((1024ll * i0) + (4ll * i1)) + i2));\n"
      "        const float v1_0 = lt_sigmoid(v0_0);\n"
      "        const float v2_0 = lt_mul(v0_0, v1_0);\n"
      "        lt_store1(a.p1 + (((1024ll * i0) + (4ll * i1)) + i2), v2_0);\n"
      "      }\n"
      "    }\n"
      "  }\n"
      "}\n");
  for (const char* word : {"asm", "__global__", "blockIdx", "threadIdx", "float4"})
    EXPECT_EQ(text.find(word), std::string::npos) << word;
}

}  // namespace
}  // namespace lathe::jit
