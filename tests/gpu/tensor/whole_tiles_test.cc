// Results of whole tiles: their threads ask once, and do what the threads of others do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gpu/tensor/group_programs.h"

namespace lathe::test {
namespace {

using jit::DeviceStmt;
using search::GroupTile;
using ::testing::HasSubstr;
using Kind = DeviceStmt::Kind;

constexpr GroupTile kTile = {64, 64, 64, 3, 0, true, true, true};

// The statement that asks; its body is of whole tiles.
DeviceStmt* question(jit::DeviceProgram& p) {
  DeviceStmt* out = nullptr;
  visit(p.body, Kind::aligned, [&](std::vector<DeviceStmt>& list, size_t i) {
    if (out == nullptr || list[i].body.size() > out->body.size()) out = &list[i];
  });
  return out;
}

TEST(WholeTiles, AskOnce) {
  GroupProgram made = group_program(false, true, kTile);
  const std::string text = print(made.program);
  EXPECT_THAT(text, HasSubstr("if 63 < e0 - 64*i0 and 63 < e1 - 64*i1 and e1 % 8 == 0 and aligned x8 p2["));
  DeviceStmt* asks = question(made.program);
  ASSERT_NE(asks, nullptr) << text;
  int conditions = 0;
  for (const Kind kind : {Kind::when, Kind::aligned})
    visit(asks->body, kind, [&](std::vector<DeviceStmt>&, size_t) { ++conditions; });
  EXPECT_EQ(conditions, 0) << text;
  EXPECT_TRUE(verify(made.program).ok()) << verify(made.program).to_string();
}

// Where the number of the warp is known before, and where blocks meet behind the results.
TEST(WholeTiles, AllWarpsAskAlike) {
  for (const search::TilePairs pairs : {search::TilePairs::none, search::TilePairs::below, search::TilePairs::beside}) {
    GroupProgram made = group_program(false, true, {64, 64, 64, 3, 0, true, false, true, pairs});
    EXPECT_TRUE(verify(made.program).ok()) << verify(made.program).to_string();
    DeviceStmt* asks = question(made.program);
    ASSERT_NE(asks, nullptr);
    EXPECT_FALSE(ir::uses(asks->integer, "thread")) << print(made.program);
    for (const auto& [m, n] : {std::pair{128, 128}, {72, 136}}) {
      EXPECT_EQ(failure_of(made.program, made.kernel, {{"D0", m}, {"D1", n}, {"D2", 72}}, kGroupBound), "");
    }
  }
}

// Whole tiles and others, and lines that begin anywhere.
TEST(WholeTiles, OnTheEmulator) {
  const GroupProgram made = group_program(false, true, kTile);
  for (const auto& [m, n] : {std::pair{64, 64}, {128, 128}, {129, 72}, {63, 128}, {64, 65}, {128, 132}}) {
    EXPECT_EQ(failure_of(made.program, made.kernel, {{"D0", m}, {"D1", n}, {"D2", 72}}, kGroupBound), "")
        << m << " x " << n;
  }
  const search::GeneralKernel general = search::general_kernel(kernel_of(kTensorEpilogue));
  const auto fused = search::hopper_schedule(general, kTile);
  ASSERT_TRUE(fused.ok()) << fused.status().to_string();
  for (const auto& [m, n] : {std::pair{64, 64}, {128, 64}, {65, 72}}) {
    expect_as_interpreted(fused->kernel, sizes_of(general, {{"M", m}, {"N", n}, {"K", 72}}), kBf16);
  }
}

// That lines between the first and an access are of whole vectors is not known if it is not asked.
TEST(WholeTiles, VerifierWantsAlignedLines) {
  GroupProgram made = group_program(false, true, kTile);
  DeviceStmt* asks = question(made.program);
  ASSERT_NE(asks, nullptr);
  asks->integer = ir::rewrite(asks->integer, [&](const ir::Expr& e) -> ir::Expr {
    return e->op == ir::Op::k_eq ? ir::make(ir::Op::k_eq, {ir::mod(ir::symbol("e1"), ir::Expr(4)), ir::Expr(0)})
                                 : ir::Expr();
  });
  EXPECT_THAT(std::string(verify(made.program).message()), HasSubstr("nothing says that they are aligned"));
}

}  // namespace
}  // namespace lathe::test
