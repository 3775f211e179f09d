// What warps do together on tensor cores: the device program says it, its verifier refuses what no GPU does, and the
// emulator finds mistakes in who has what.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "ir/analysis/analysis.h"
#include "jit/cuda/compile/tile_counts.h"
#include "jit/cuda/lower/lower_device.h"
#include "jit/cuda/text/cuda_text.h"
#include "search/cut/launch_cut.h"
#include "search/gpu/tensor/tensor_schedule.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/emulated.h"
#include "tests/gpu/memory/mutations.h"
#include "tests/gpu/tensor/group_programs.h"
#include "tests/gpu/tensor/tensor_products.h"

namespace lathe::test {
namespace {

using jit::DeviceProgram;
using jit::DeviceStmt;
using jit::WarpOp;
using ::testing::HasSubstr;
using Kind = DeviceStmt::Kind;

struct Made {
  ir::Kernel kernel;
  DeviceProgram program;
};
Made made(bool turn_a, bool turn_b, const search::TensorTile& tile = {32, 32, 32, 16, 32}) {
  const search::GeneralKernel general = search::general_kernel(kernel_of(tensor_product("bf16", turn_a, turn_b)));
  const auto scheduled = search::tensor_schedule(general, tile);
  EXPECT_TRUE(scheduled.ok()) << scheduled.status().to_string();
  const auto cut = search::cut_launches(scheduled->kernel);
  EXPECT_TRUE(cut.ok()) << cut.status().to_string();
  return {scheduled->kernel, jit::lower_device(cut->leaves[0]).value()};
}

// The n-th statement of a kind.
DeviceStmt* find(std::vector<DeviceStmt>& list, Kind kind, int n, std::vector<DeviceStmt>** holder = nullptr) {
  DeviceStmt* found = nullptr;
  const std::function<void(std::vector<DeviceStmt>&)> visit = [&](std::vector<DeviceStmt>& body) {
    for (DeviceStmt& s : body) {
      if (s.kind == kind && n-- == 0) {
        found = &s;
        if (holder != nullptr) *holder = &body;
      }
      visit(s.body);
      visit(s.otherwise);
    }
  };
  visit(list);
  return found;
}
constexpr int kLoadB = 0, kLoadA = 1, kProduct16 = 2;

TEST(TensorCode, IsWrittenOut) {
  const Made m = made(false, true, {16, 16, 32, 16, 16});
  const std::string text = print(m.program);
  EXPECT_THAT(text, HasSubstr("program leaf threads 32 (p0: bf16 in, p1: bf16 in, p2: bf16 out, e0, e1, e2)\n"
                              "  local r0[8]\n"
                              "  local bf16 r3[16]\n"
                              "  local bf16 r4[16]\n"
                              "  local bf16 r5[8]\n"
                              "  local bf16 r6[8]\n"
                              "  shared bf16 s1[640]\n"));
  EXPECT_THAT(text, HasSubstr("    barrier\n"));
  EXPECT_THAT(text,
              HasSubstr("      for i36_w < 2 unrolled 2:\n"
                        "        for i37_w < 1 unrolled 1:\n"
                        "          ldmatrix r6[0], r6[2], r6[4], r6[6] from s2[16*i36_w + 40*(thread % 8) + "
                        "8*(thread // 8 % 2) + 320*(thread // 16 % 2)]\n"
                        "        for i40_w < 1 unrolled 1:\n"
                        "          ldmatrix r5[0], r5[4], r5[2], r5[6] from s1[16*i36_w + 40*(thread % 8) + "
                        "320*(thread // 8 % 2) + 8*(thread // 16 % 2)]\n"
                        "        for i43_w < 1 unrolled 1:\n"
                        "          for i44_w < 2 unrolled 2:\n"
                        "            mma_bf16 r0[2*i44_w], r0[2*i44_w + 1], r0[2*i44_w + 4], r0[2*i44_w + 5] from "
                        "r5[0], r5[4], r5[2], r5[6], r6[4*i44_w], r6[4*i44_w + 2]\n"));
  const std::string code = jit::cuda_text(m.program, "lathe_leaf");
  for (const char* line :
       {"  LT_SHARED(lt_bf16, s1, 640);\n", "  unsigned r5[4];\n", "const lt_b8 w1 = lt_load_bits8(a.p1 + ",
        "lt_put_bits8(s1 + ((((320ll * i28) + (40ll * i30)) + (160ll * i31)) + (8ll * i32)), v7_0, v7_1, v7_2, "
        "v7_3);\n",
        "lt_ldmatrix(0, r6[0ll], r6[1ll], r6[2ll], r6[3ll], s2 + ",
        "lt_mma_bf16(2, r0[(2ll * i44_w)], r0[((2ll * i44_w) + 1ll)], r0[((2ll * i44_w) + 4ll)], r0[((2ll * i44_w) + "
        "5ll)], "
        "r5[0ll], r5[2ll], r5[1ll], r5[3ll], r6[(2ll * i44_w)], r6[((2ll * i44_w) + 1ll)]);\n"})
    EXPECT_THAT(code, HasSubstr(line));
  // Terms last or first, of either operand.
  const std::string turned = print(made(true, false).program);
  EXPECT_THAT(turned, HasSubstr("ldmatrix_trans"));
  EXPECT_EQ(turned.find("ldmatrix r"), std::string::npos);
}

// Of each kind as many as the program has in all copies of unrolled loops; a file that shows no instructions is taken.
TEST(TensorCode, CodeThatLacksTilesIsRefused) {
  const jit::TileCounts warps = jit::tile_counts(made(false, true).program),
                        groups = jit::tile_counts(group_program(false, true, {128, 64, 64, 4}).program);
  EXPECT_EQ(warps.mma, 12) << "of whole steps, of others, and of the last one";
  EXPECT_EQ(warps.matrix_loads, 9);
  EXPECT_EQ(warps.group_mma + warps.box_copies, 0);
  EXPECT_EQ(groups.group_mma, 8) << "of the loop, and of the last step";
  EXPECT_EQ(groups.box_copies, 4);
  EXPECT_EQ(groups.mma + groups.matrix_loads, 0);
  jit::CubinInfo of_warps, of_groups;
  of_warps.instructions = of_groups.instructions = 500;
  of_warps.mma = 12;
  of_warps.matrix_loads = 10;  // one of them again
  of_groups.group_mma = 8;
  of_groups.box_copies = 4;
  EXPECT_EQ(missed_tiles(warps, of_warps), "");
  EXPECT_EQ(missed_tiles(groups, of_groups), "");
  EXPECT_EQ(missed_tiles(groups, of_warps), "0 of 8 HGMMA");
  of_warps.matrix_loads = 8;
  EXPECT_EQ(missed_tiles(warps, of_warps), "8 of 9 LDSM");
  of_warps.mma = 11;
  EXPECT_EQ(missed_tiles(warps, of_warps), "11 of 12 HMMA or IMMA");
  of_groups.box_copies = 2;
  EXPECT_EQ(missed_tiles(groups, of_groups), "2 of 4 UTMALDG");
  EXPECT_EQ(missed_tiles(groups, {}), "");
}

TEST(TensorCode, EveryRuleRefuses) {
  struct Case {
    const char* message;
    std::function<void(DeviceProgram&)> change;
  };
  const auto warp = [](DeviceProgram& p, int n) -> DeviceStmt& { return *find(p.body, Kind::warp, n); };
  const auto apart = [](DeviceProgram& p, int n) {
    std::vector<DeviceStmt>* holder = nullptr;
    DeviceStmt* s = find(p.body, Kind::warp, n, &holder);
    DeviceStmt when;
    when.kind = Kind::when;
    when.integer = ir::make(ir::Op::k_lt, {ir::iter("thread"), ir::Expr(16)});
    when.body = {*s};
    *s = when;
    (void)holder;
  };
  const Case cases[] = {
      {"warp: ldmatrix by 48 threads, expected whole warps", [&](DeviceProgram& p) { p.threads = 48; }},
      {"warp: mma_bf16 has 9 places, expected 10", [&](DeviceProgram& p) { warp(p, kProduct16).places.pop_back(); }},
      {"warp: r5 is no operand 0 of mma_bf16",
       [&](DeviceProgram& p) { warp(p, kProduct16).places[0] = warp(p, kProduct16).places[4]; }},
      {"warp: r0 is no operand 9 of mma_bf16",
       [&](DeviceProgram& p) { warp(p, kProduct16).places[9] = warp(p, kProduct16).places[0]; }},
      {"warp: r6 is no operand 9 of mma_f16", [&](DeviceProgram& p) { warp(p, kProduct16).warp = WarpOp::k_mma_f16; }},
      {"warp: s2 is no operand 0 of ldmatrix",
       [&](DeviceProgram& p) { warp(p, kLoadB).places[0] = warp(p, kLoadB).places[4]; }},
      {"warp: ldmatrix changes the type of s2", [&](DeviceProgram& p) { p.locals[4].type = ir::DType::f16; }},
      {"warp: mma_bf16 has two results in r0[2*i44_w]",
       [&](DeviceProgram& p) { warp(p, kProduct16).places[1] = warp(p, kProduct16).places[0]; }},
      {"bits: r6[8*i37_w + 1] may be a part of a register",
       [&](DeviceProgram& p) {
         auto& at = warp(p, kLoadB).places[0];
         at.offset = ir::simplify(at.offset + ir::Expr(1));
       }},
      {"locals: r6[8*i37_w + 12] may lie outside of 16 elements",
       [&](DeviceProgram& p) {
         auto& at = warp(p, kLoadB).places[0];
         at.offset = ir::simplify(at.offset + ir::Expr(12));
       }},
      {"access: 16 bytes of s2[16*i36_w + 640*i37_w + 40*(thread % 8) + 8*(thread // 8 % 2) + 320*(thread // 16 % 2) + "
       "4] "
       "at once, and nothing says that they are aligned",
       [&](DeviceProgram& p) {
         auto& at = warp(p, kLoadB).places[4];
         at.offset = ir::simplify(at.offset + ir::Expr(4));
       }},
      {"access: there is no shared memory 9", [&](DeviceProgram& p) { warp(p, kLoadB).places[4].index = 9; }},
      {"wait: ldmatrix, which not all threads reach", [&](DeviceProgram& p) { apart(p, kLoadA); }},
      {"wait: mma_bf16, which not all threads reach", [&](DeviceProgram& p) { apart(p, kProduct16); }},
      {"bits: p1 holds f32, expected elements of 2 bytes",
       [&](DeviceProgram& p) { p.params[1].type = ir::DType::f32; }},
      {"bits: a constant other than 0",
       [&](DeviceProgram& p) {
         DeviceStmt* s = nullptr;
         for (int n = 0; s == nullptr || s->operands[0].value >= 0 || !s->bits; ++n) s = find(p.body, Kind::store, n);
         s->operands[0].constant = 1;
       }},
      {"lanes: 16, expected 1, 2, 4 or 8",
       [&](DeviceProgram& p) {
         DeviceStmt* s = nullptr;
         for (int n = 0; s == nullptr || !s->bits; ++n) s = find(p.body, Kind::load, n);
         s->lanes = 16;
       }},
  };
  const DeviceProgram sound = made(false, true).program;
  ASSERT_TRUE(verify(sound).ok());
  for (const Case& c : cases) {
    DeviceProgram broken = sound;
    c.change(broken);
    EXPECT_EQ(verify(broken).message(), c.message);
  }
}

// Mistakes in who has which element, and in who waits: each shows in results or stops the emulator.
TEST(TensorCode, PlantedMistakesAreFound) {
  const Made sound = made(false, true);
  const ir::SymbolValues symbols = {{"D0", 32}, {"D1", 35}, {"D2", 64}};
  constexpr double kBound = 1.0 / 128;
  ASSERT_EQ(failure_of(sound.program, sound.kernel, symbols, kBound), "");
  const auto warp = [](DeviceProgram& p, int n) -> DeviceStmt& { return *find(p.body, Kind::warp, n); };
  const auto exchange = [&](int n, size_t i, size_t j) {
    return [=](DeviceProgram& p) { std::swap(warp(p, n).places[i], warp(p, n).places[j]); };
  };
  const auto next_lane = [&](int n) {
    return [=](DeviceProgram& p) {
      auto& at = warp(p, n).places[4];
      at.offset = ir::substitute(at.offset, {{"thread", ir::iter("thread") + ir::Expr(1)}});
    };
  };
  const std::pair<const char*, std::function<void(DeviceProgram&)>> mistakes[] = {
      {"rows of b one lane on", next_lane(kLoadB)},
      {"rows of a one lane on", next_lane(kLoadA)},
      {"squares of b exchanged", exchange(kLoadB, 1, 2)},
      {"squares of a exchanged", exchange(kLoadA, 1, 2)},
      {"registers of a exchanged", exchange(kProduct16, 5, 6)},
      {"registers of b exchanged", exchange(kProduct16, 8, 9)},
      {"columns of sums exchanged", exchange(kProduct16, 0, 1)},
      {"rows of sums exchanged", exchange(kProduct16, 1, 2)},
      {"a square turned", [&](DeviceProgram& p) { warp(p, kLoadA).warp = WarpOp::k_ldmatrix_trans; }},
      {"another type", [&](DeviceProgram& p) { warp(p, kProduct16).warp = WarpOp::k_mma_f16; }},
      {"a product left out",
       [&](DeviceProgram& p) {
         std::vector<DeviceStmt>* holder = nullptr;
         find(p.body, Kind::warp, kProduct16, &holder);
         holder->clear();
       }},
      {"half of a warp",
       [&](DeviceProgram& p) {
         DeviceStmt& s = warp(p, kProduct16);
         DeviceStmt when;
         when.kind = Kind::when;
         when.integer = ir::make(ir::Op::k_lt, {ir::mod(ir::iter("thread"), ir::Expr(32)), ir::Expr(16)});
         when.body = {s};
         s = when;
       }},
      {"no barrier before the squares are read",
       [&](DeviceProgram& p) {
         std::vector<DeviceStmt>* holder = nullptr;
         DeviceStmt* s = find(p.body, Kind::barrier, 0, &holder);
         holder->erase(holder->begin() + (s - holder->data()));
       }},
      {"no barrier after they are read",
       [&](DeviceProgram& p) {
         std::vector<DeviceStmt>* holder = nullptr;
         DeviceStmt* s = find(p.body, Kind::barrier, 1, &holder);
         holder->erase(holder->begin() + (s - holder->data()));
       }},
  };
  PlantedBugs bugs;
  bugs.make_each(sound.program, mistakes,
                 [&](const DeviceProgram& p) { return failure_of(p, sound.kernel, symbols, kBound); });
}

// Leaves in which the threads of a warp do not have what its instruction wants.
TEST(TensorCode, RefusesOtherShares) {
  const auto why = [](const std::string& copy, const std::string& block = "for w < 2 @block:") {
    const std::string text =
        "kernel leaf(p0: bf16[64, 16] in, p1: f32[32, 8] out) family device\n"
        "  a: bf16[16, 16] reg\n  b: bf16[16, 8] reg\n  c: f32[32, 8] reg\n"
        "  for g < 1 @grid:\n"
        "    for w0 < 2 @block:\n      for t < 8 @block:\n        for i < 2 @unroll:\n          for u < 4 @block:\n"
        "            for v < 2 @vector:\n              c[16*w0 + 8*i + t, 2*u + v] = 0.0\n"
        "    " +
        block + "\n" + copy +
        "      for t2 < 8 @block:\n        for k2 < 2 @unroll:\n          for u2 < 4 @block:\n            for v2 < 2 "
        "@vector:\n"
        "              b[8*k2 + 2*u2 + v2, t2] = p0[t2, 8*k2 + 2*u2 + v2]\n"
        "      for k < 16 @tensor(mma_bf16):\n        for m < 16:\n          for n < 8:\n"
        "            c[16*w + m, n] += f32(a[m, k]) * f32(b[k, n])\n"
        "    for w3 < 2 @block:\n      for t3 < 8 @block:\n        for i3 < 2 @unroll:\n          for u3 < 4 @block:\n"
        "            for v3 < 2 @vector:\n              p1[16*w3 + 8*i3 + t3, 2*u3 + v3] = c[16*w3 + 8*i3 + t3, 2*u3 + "
        "v3]\n";
    const auto kernel = ir::parse_kernel(text);
    EXPECT_TRUE(kernel.ok()) << kernel.status().to_string() << text;
    if (!kernel.ok()) return std::string();
    return jit::lower_device({*kernel, text}).status().message();
  };
  const auto copy = [](const char* rows, const char* terms) {
    return std::string(
               "      for t1 < 8 @block:\n        for i1 < 2 @unroll:\n          for k1 < 2 @unroll:\n"
               "            for u1 < 4 @block:\n              for v1 < 2 @vector:\n                a[") +
           rows + ", " + terms + "] = p0[16*w + " + rows + ", " + terms + "]\n";
  };
  const std::string right = copy("8*i1 + t1", "8*k1 + 2*u1 + v1");
  EXPECT_EQ(why(right), "");
  EXPECT_EQ(why(copy("2*t1 + i1", "8*k1 + 2*u1 + v1")), "a is divided among threads in two ways");
  EXPECT_EQ(why(copy("8*i1 + t1", "8*k1 + u1 + 4*v1")), "a is divided among threads in two ways");
  EXPECT_EQ(why(right, "for w < 2:"), "c is divided among threads in two ways");
  const auto plain = [](const std::string& text) {
    return jit::lower_device({kernel_of(text), text}).status().message();
  };
  const std::string half =
      "kernel leaf(p0: bf16[16, 16] in, p1: f32[16, 16] out) family device\n  s: bf16[16, 16] shared\n"
      "  a: bf16[16, 16] reg\n  for g < 1 @grid:\n"
      "    for i < 16 @block:\n      for j < 4 @block:\n        for v < 4 @vector:\n          s[i, 4*j + v] = p0[i, "
      "4*j + v]\n"
      "    for k < 16 @tensor(ldmatrix):\n      for m < 16:\n        a[k, m] = s[k, m]\n"
      "    for i1 < 16 @block:\n      for j1 < 4 @block:\n        for v1 < 4 @vector:\n"
      "          p1[i1, 4*j1 + v1] = f32(s[i1, 4*j1 + v1])\n";
  EXPECT_EQ(plain(half), "64 threads share out ldmatrix in scope k, expected a warp");
  EXPECT_EQ(plain("kernel leaf(p0: f32[4, 4] in, p1: f32[4] in, p2: f32[4] out) family device\n  for g < 1 @grid:\n"
                  "    for k < 4 @tensor(mma):\n      for n < 4 @vector:\n        p2[n] += p0[k, n] * p1[k]\n"),
            "scope k is mma, which no GPU has");
}

}  // namespace
}  // namespace lathe::test
