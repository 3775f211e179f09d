// What a single thread does beyond plain assignments: values in registers, updates, loops of any length, conditions on
// indices. Run on the emulator against the interpreter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jit/cuda/lower/lower_device.h"
#include "jit/cuda/text/cuda_text.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/emulated.h"

namespace lathe::test {
namespace {

using ::testing::HasSubstr;

// A row for each thread: its sum, in vectors.
const char kSum[] =
    "kernel sum(x: f32[M, N] in, y: f32[M] out) family row where M in 0..1000, N in 0..1000 numeric reassociate\n"
    "  a: f32[] reg\n"
    "  for b < ceildiv(M, 32) @grid:\n"
    "    for t < min(32, M - 32*b) @block:\n"
    "      a[] = 0.0\n"
    "      for n < ceildiv(N, 4):\n"
    "        for v < min(4, N - 4*n) @vector:\n"
    "          a[] += x[32*b + t, 4*n + v]\n"
    "      y[32*b + t] = a[] / f32(N)\n";

// Squares of a row and its largest element, in registers that a loop of constant length goes through.
const char kKept[] =
    "kernel kept(x: f32[M, 8] in, y: f32[M, 8] out) family row where M in 0..1000 numeric reassociate\n"
    "  r: f32[2, 4] reg\n"
    "  m: f32[] reg\n"
    "  for b < ceildiv(M, 32) @grid:\n"
    "    for t < min(32, M - 32*b) @block:\n"
    "      m[] = -inf\n"
    "      for n < 2 @unroll:\n"
    "        for v < 4 @vector:\n"
    "          r[n, v] = x[32*b + t, 4*n + v] * x[32*b + t, 4*n + v]\n"
    "          m[] fmax= r[n, v]\n"
    "      for n1 < 2 @unroll:\n"
    "        for v1 < 4 @vector:\n"
    "          y[32*b + t, 4*n1 + v1] = r[n1, v1] - m[]\n";

// A tile of a product in registers, over a depth of any length.
const char kTile[] =
    "kernel tile(x: f32[M, K] in, w: f32[K, N] in, y: f32[M, N] out) family matmul "
    "where M in 0..100, N in 0..100, K in 0..100\n"
    "  c: f32[2, 4] reg\n"
    "  for bm < ceildiv(M, 2) @grid:\n"
    "    for t < min(32, ceildiv(N, 4)) @block:\n"
    "      for i < 2 @unroll:\n"
    "        for v < 4 @vector:\n"
    "          c[i, v] = 0.0\n"
    "      for k < K:\n"
    "        for i1 < min(2, M - 2*bm) @unroll:\n"
    "          for v1 < min(4, N - 4*t) @vector:\n"
    "            c[i1, v1] += x[2*bm + i1, k] * w[k, 4*t + v1]\n"
    "      for i2 < min(2, M - 2*bm) @unroll:\n"
    "        for v2 < min(4, N - 4*t) @vector:\n"
    "          y[2*bm + i2, 4*t + v2] = c[i2, v2]\n";

const char kWhere[] =
    "kernel chosen(x: f32[M, N] in, y: f32[M, N] out) family elementwise where M in 0..100, N in 0..100\n"
    "  for b < M @grid:\n"
    "    for t < min(32, ceildiv(N, 4)) @block:\n"
    "      for v < min(4, N - 4*t) @vector:\n"
    "        y[b, 4*t + v] = select(4*t + v <= b and x[b, 4*t + v] < 1.0, x[b, 4*t + v], f32(4*t + v) + f32(b))\n";

TEST(ThreadCode, SumsInRegisters) {
  for (const int64_t m : {1, 31, 33}) {
    for (const int64_t n : {0, 1, 3, 4, 5, 127, 128})
      expect_as_interpreted(kernel_of(kSum), {{"M", m}, {"N", n}}, 1e-6);
  }
}

TEST(ThreadCode, ArraysInRegisters) {
  for (const int64_t m : {1, 31, 32, 33}) expect_as_interpreted(kernel_of(kKept), {{"M", m}});
}

TEST(ThreadCode, TilesOfProducts) {
  for (const int64_t m : {1, 2, 5}) {
    for (const int64_t n : {1, 4, 7, 97, 100}) {
      for (const int64_t k : {0, 1, 17}) expect_as_interpreted(kernel_of(kTile), {{"M", m}, {"N", n}, {"K", k}});
    }
  }
}

TEST(ThreadCode, ConditionsOnIndices) {
  for (const int64_t m : {1, 40}) {
    for (const int64_t n : {1, 4, 7, 97}) expect_as_interpreted(kernel_of(kWhere), {{"M", m}, {"N", n}});
  }
}

// A NaN is no maximum of fmax=, whichever lane it is in.
TEST(ThreadCode, MaximaDropNaN) {
  const ir::Kernel kernel = kernel_of(kKept);
  for (size_t lane = 0; lane < 8; ++lane) {
    Tensors want = inputs_of(kernel, {{"M", 1}});
    want["x"].data = {1, 2, 3, 4, 5, 6, 7, 8};
    want["x"].data[lane] = std::nan("");
    Tensors got = want;
    ASSERT_TRUE(ir::interpret(kernel, {{"M", 1}}, want).ok());
    emulate(kernel, {{"M", 1}}, got);
    for (size_t i = 0; i < 8; ++i) {
      if (i != lane) {
        EXPECT_EQ(got["y"].data[i], want["y"].data[i]) << lane << ": " << i;
      }
    }
  }
}

const char kLeaf[] =
    "kernel leaf(p0: f32[e0, 8] in, p1: f32[e0, 8] out) family device where e0 in 0..1000 numeric reassociate\n"
    "  r0: f32[2, 4] reg\n"
    "  r1: f32[] reg\n"
    "  for i0 < e0 @grid:\n"
    "    r1[] = 0.0\n"
    "    for i1 < 2:\n"
    "      for i2 < 4 @vector:\n"
    "        r0[i1, i2] = p0[i0, 4*i1 + i2]\n"
    "        r1[] += r0[i1, i2] * r0[i1, i2]\n"
    "    for i3 < 2:\n"
    "      for i4 < 4 @vector:\n"
    "        p1[i0, 4*i3 + i4] = r0[i3, i4] * select(i3 < 1, r1[], f32(4*i3 + i4))\n";

jit::DeviceProgram lowered(const char* text) {
  const ir::Kernel kernel = kernel_of(text);
  auto program = jit::lower_device({kernel, text});
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  return *program;
}

TEST(ThreadCode, IsWrittenOut) {
  const jit::DeviceProgram program = lowered(kLeaf);
  EXPECT_EQ(print(program),
            "program leaf threads 1 (p0: in, p1: out, e0)\n"
            "  local r0[8]\n"
            "  local r1[1]\n"
            "  let i0 = block\n"
            "  store r1[0] 0.0\n"
            "  for i1 < 2 unrolled 2:\n"
            "    if aligned x4 p0[8*i0 + 4*i1]:\n"
            "      v5 = load x4 p0[8*i0 + 4*i1]\n"
            "      store x4 r0[4*i1] v5\n"
            "      v6 = load x4 r0[4*i1]\n"
            "      v7 = load x4 r0[4*i1]\n"
            "      v8 = load r1[0]\n"
            "      v9 = fold fma v6 v7 v8\n"
            "      store r1[0] v9\n"
            "    else:\n"
            "      for i2 < 4 unrolled 4:\n"
            "        v0 = load p0[8*i0 + 4*i1 + i2]\n"
            "        store r0[4*i1 + i2] v0\n"
            "        v1 = load r0[4*i1 + i2]\n"
            "        v2 = load r0[4*i1 + i2]\n"
            "        v3 = load r1[0]\n"
            "        v4 = fma v1 v2 v3\n"
            "        store r1[0] v4\n"
            "  for i3 < 2 unrolled 2:\n"
            "    if aligned x4 p1[8*i0 + 4*i3]:\n"
            "      v16 = load x4 r0[4*i3]\n"
            "      v17 = index i3 < 1\n"
            "      v18 = load r1[0]\n"
            "      v19 = index x4 l19 4*i3 + l19\n"
            "      v20 = select v17 v18 v19\n"
            "      v21 = mul v16 v20\n"
            "      store x4 p1[8*i0 + 4*i3] v21\n"
            "    else:\n"
            "      for i4 < 4 unrolled 4:\n"
            "        v10 = load r0[4*i3 + i4]\n"
            "        v11 = index i3 < 1\n"
            "        v12 = load r1[0]\n"
            "        v13 = index 4*i3 + i4\n"
            "        v14 = select v11 v12 v13\n"
            "        v15 = mul v10 v14\n"
            "        store p1[8*i0 + 4*i3 + i4] v15\n");
  const std::string text = jit::cuda_text(program, "f");
  EXPECT_THAT(text, HasSubstr("  float r0[8];\n  float r1[1];\n"));
  EXPECT_THAT(text, HasSubstr("  LT_UNROLL\n  for (lt_int i1 = 0; i1 < 2ll; ++i1) {\n"));
  EXPECT_THAT(text, HasSubstr("r0[(4ll * i1) + 3ll * 1ll] = v5_3;\n"));
  EXPECT_THAT(text, HasSubstr("const float v9_0 = lt_fma(v6_3, v7_3, lt_fma(v6_2, v7_2, lt_fma(v6_1, v7_1, "
                              "lt_fma(v6_0, v7_0, v8_0))));\n"));
  EXPECT_THAT(text, HasSubstr("const float v19_2 = static_cast<float>(((4ll * i3) + 2ll));\n"));
}

// A program that is sound, and one change that breaks a rule.
TEST(ThreadCode, EveryRuleRefuses) {
  using jit::DeviceProgram;
  using jit::DeviceStmt;
  struct Case {
    const char* message;
    void (*change)(DeviceProgram&);
  };
  const auto find = [](std::vector<DeviceStmt>& list, DeviceStmt::Kind kind, int skip) {
    DeviceStmt* found = nullptr;
    const auto visit = [&](const auto& self, std::vector<DeviceStmt>& body) -> void {
      for (DeviceStmt& s : body) {
        if (s.kind == kind && skip-- == 0) found = &s;
        self(self, s.body);
        self(self, s.otherwise);
      }
    };
    visit(visit, list);
    return found;
  };
  using Kind = DeviceStmt::Kind;
  static const auto& at = *new auto(find);
  const Case cases[] = {
      {"locals: r0 has 307 registers, expected at most 224", [](DeviceProgram& p) { p.locals[0].count = 307; }},
      {"locals: 425 registers, expected at most 384",
       [](DeviceProgram& p) {
         p.locals[0].count = 224;
         p.locals.push_back({"more", 200, ir::DType::f32});
       }},
      {"locals: r0 has 0 elements", [](DeviceProgram& p) { p.locals[0].count = 0; }},
      {"names: r0 is defined twice", [](DeviceProgram& p) { p.locals[1].name = "r0"; }},
      {"locals: r0[4*i1] depends on i1, which is no iterator of an unrolled loop",
       [](DeviceProgram& p) { at(p.body, Kind::loop, 0)->unrolled = 0; }},
      {"locals: r0[4*i1 + 3] may lie outside of 7 elements", [](DeviceProgram& p) { p.locals[0].count = 7; }},
      {"loop: 1 copies of i1, which runs 2 times", [](DeviceProgram& p) { at(p.body, Kind::loop, 0)->unrolled = 1; }},
      {"loop: 257 copies of i1, expected at most 256",
       [](DeviceProgram& p) { at(p.body, Kind::loop, 0)->unrolled = 257; }},
      {"locals: r1 is loaded before anything is stored to it",
       [](DeviceProgram& p) { p.body.erase(p.body.begin() + 1); }},
      {"access: there is no local 2", [](DeviceProgram& p) { p.body[1].places[0].index = 2; }},
      {"values: neg folds no lanes", [](DeviceProgram& p) { at(p.body, Kind::fold, 0)->op = jit::DeviceOp::k_neg; }},
      {"values: fma has 0 operands, expected 3", [](DeviceProgram& p) { at(p.body, Kind::fold, 0)->operands.clear(); }},
      {"names: i3 is not known in 8*i0 + 4*i3", [](DeviceProgram& p) { at(p.body, Kind::loop, 2)->name = "i9"; }},
  };
  const DeviceProgram sound = lowered(kLeaf);
  ASSERT_TRUE(verify(sound).ok());
  for (const Case& c : cases) {
    DeviceProgram broken = sound;
    c.change(broken);
    EXPECT_EQ(verify(broken).message(), c.message);
  }
}

TEST(ThreadCode, RefusesWhatIsNoRegister) {
  const auto why = [](const std::string& size, const std::string& loop) {
    const std::string text =
        "kernel leaf(p0: f32[e0] in, p1: f32[e0] out) family device where e0 in 0..1000\n  r0: f32[" + size +
        "] reg\n  for i0 < 1 @grid:\n    for i1 < " + loop + ":\n      r0[i1] = p0[0]\n    p1[0] = r0[0]\n";
    return jit::lower_device({kernel_of(text), text}).status().message();
  };
  EXPECT_EQ(why("8", "8"), "");
  EXPECT_EQ(why("300", "8"), "r0 has more than 224 elements, too many for registers");
}

}  // namespace
}  // namespace lathe::test
