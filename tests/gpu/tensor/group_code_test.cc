// What groups of four warps do while their threads go on: the device program says it with every fence and wait, its
// verifier refuses what no GPU does, and the emulator finds mistakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "jit/cuda/text/cuda_text.h"
#include "tests/gpu/tensor/group_programs.h"

namespace lathe::test {
namespace {

using jit::DeviceProgram;
using jit::DeviceStmt;
using jit::WarpOp;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Kind = DeviceStmt::Kind;

GroupProgram made(bool turn_a, bool turn_b, const search::GroupTile& tile = {128, 64, 64}) {
  return group_program(turn_a, turn_b, tile);
}
const ir::SymbolValues kSizes = {{"D0", 100}, {"D1", 64}, {"D2", 229}};  // rows, columns, terms

DeviceStmt& product(DeviceProgram& p) { return *find(p, Kind::warp, 0); }

// Of a wait, a fence and a barrier.
void wait_behind_barrier(std::vector<DeviceStmt>& list, size_t i) {
  const auto at = list.begin() + static_cast<std::ptrdiff_t>(i);
  if (i + 2 < list.size() && list[i + 2].kind == Kind::barrier) std::rotate(at, at + 1, at + 3);
}

TEST(GroupCode, IsWrittenOut) {
  const GroupProgram m = made(false, true);
  const std::string text = print(m.program);
  EXPECT_THAT(text, HasSubstr("program leaf threads 256 (p0: bf16 in, p1: bf16 in, p2: bf16 out, e0, e1, e2)\n"
                              "  local r0[32]\n"));
  EXPECT_THAT(text, HasSubstr("  shared bf16 s1[16384] swizzle 128\n"));
  EXPECT_THAT(text, HasSubstr("  shared bf16 s3[8192] swizzle 128\n"));
  // The next terms are loaded before the products of the last ones are waited for, and stored while new ones go on.
  EXPECT_THAT(text, HasSubstr("    await products 0\n    fence shared\n    barrier\n"));
  EXPECT_THAT(text,
              ContainsRegex("    fence sums\n    for i[0-9]+ < 4 unrolled 4:\n      wgmma_bf16 r0\\[0\\] x64 from "
                            "s1\\[.*\\] along 512, s3\\[.*\\] along 512\n    commit products\n"));
  EXPECT_EQ(count_of(m.program, Kind::barrier), 4) << text;  // in the loop, after it, and two of the last terms
  EXPECT_EQ(count_of(m.program, Kind::await_products), 3) << text;
  const std::string code = jit::cuda_text(m.program, "lathe_leaf");
  for (const char* line :
       {"#define LT_WGMMA_64\n#include", "LT_DYNAMIC_SHARED(lt_all, ", "s1 + ((2048ll * i23) + lt_swizzled(",
        "lt_fence_sums();\n", "lt_fence_shared();\n", "lt_wgmma_bf16_64<0, 0>("})
    EXPECT_THAT(code, HasSubstr(line));
  // Rows last: lines of 64 rows, two panels of them.
  EXPECT_THAT(print(made(true, false).program), ContainsRegex("\\] across 512, s3\\[.*\\] across 512\n"));
  EXPECT_THAT(print(made(true, false, {64, 128, 128}).program), ContainsRegex("s3\\[.*\\] across 512 4096\n"));
  EXPECT_THAT(jit::cuda_text(made(true, false).program, "lathe_leaf"), HasSubstr("lt_wgmma_bf16_64<1, 1>("));
}

TEST(GroupCode, EveryRuleRefuses) {
  struct Case {
    const char* message;
    std::function<void(DeviceProgram&)> change;
  };
  const auto apart = [](DeviceStmt& s) {
    DeviceStmt when;
    when.kind = Kind::when;
    when.integer = ir::make(ir::Op::k_lt, {ir::iter("thread"), ir::Expr(128)});
    when.body = {s};
    s = when;
  };
  const Case cases[] = {
      {"warp: wgmma_bf16 by 64 threads, expected whole groups", [](DeviceProgram& p) { p.threads = 64; }},
      {"wait: wgmma_bf16, which not all threads reach", [&](DeviceProgram& p) { apart(product(p)); }},
      {"warp: wgmma_bf16 has 2 places and 2 tiles, expected 3 and 2",
       [](DeviceProgram& p) { product(p).places.pop_back(); }},
      {"warp: wgmma_bf16 of 260 columns, expected 8..256, by 8", [](DeviceProgram& p) { product(p).columns = 260; }},
      {"warp: wgmma_bf16 of 0 columns", [](DeviceProgram& p) { product(p).columns = 0; }},
      {"may lie outside of 32 elements", [](DeviceProgram& p) { product(p).columns = 72; }},
      {"warp: s1 is no operand 0 of wgmma_bf16", [](DeviceProgram& p) { product(p).places[0] = product(p).places[1]; }},
      {"warp: r0 is no operand 1 of wgmma_bf16", [](DeviceProgram& p) { product(p).places[1] = product(p).places[0]; }},
      {"warp: s1 is no operand 1 of wgmma_f16", [](DeviceProgram& p) { product(p).warp = WarpOp::k_wgmma_f16; }},
      {"warp: s1, a factor of wgmma_bf16, is not swizzled", [](DeviceProgram& p) { p.shared[0].swizzle = 0; }},
      {"shared: s1 is swizzled by 128, expected 32, 64 or 128", [](DeviceProgram& p) { p.shared[0].count = 8100; }},
      {"shared: s1 is swizzled by 256, expected 32, 64 or 128", [](DeviceProgram& p) { p.shared[0].swizzle = 256; }},
      {"is not where lines of a tile begin",
       [](DeviceProgram& p) { product(p).places[1].offset = product(p).places[1].offset + ir::Expr(8); }},
      {"is not where lines of a tile begin",
       [](DeviceProgram& p) { product(p).places[2].offset = product(p).places[2].offset + ir::Expr(64); }},
      {"is not where lines of a tile begin", [](DeviceProgram& p) { product(p).tiles[0].lines = 256; }},
      {"warp: s1 of wgmma_bf16 has panels of 512", [](DeviceProgram& p) { product(p).tiles[0].panels = 512; }},
      {"may lie outside of 8192 elements", [](DeviceProgram& p) { product(p).tiles[1].lines = 2048; }},
      {"products: s1[0..9223372036854775807] may lie outside of 16384 elements",
       [](DeviceProgram& p) {
         auto& at = product(p).places[1];
         at.offset = at.offset + ir::Expr(4096) * ir::symbol("e0");
       }},
      {"do not agree where s1 lies",
       [](DeviceProgram& p) {
         product(p).places[1].offset = product(p).places[1].offset + ir::Expr(512) * ir::iter("thread");
       }},
      {"products: a fence or a wait that not all threads reach",
       [&](DeviceProgram& p) { apart(*find(p, Kind::await_products, 0)); }},
      {"products: a fence or a wait that not all threads reach",
       [&](DeviceProgram& p) { apart(*find(p, Kind::fence_sums, 0)); }},
      {"products: 9 groups on their way, expected 0..8",
       [](DeviceProgram& p) { find(p, Kind::await_products, 0)->groups = 9; }},
      {"products: wgmma_bf16 adds to r0, which no fence has handed over",
       [](DeviceProgram& p) { p = without(p, Kind::fence_sums, 0); }},
      {"products: wgmma_bf16 reads s1, which no fence and barrier have handed over",
       [](DeviceProgram& p) { p = without(p, Kind::fence_shared, 0); }},
      {"products: sums are handed over while some are on their way",
       [](DeviceProgram& p) { p = without(p, Kind::commit_products, 0); }},
      {"products: some are on their way at the end",
       [](DeviceProgram& p) {
         const auto last = std::find_if(p.body.begin(), p.body.end(),
                                        [](const DeviceStmt& s) { return s.kind == Kind::await_products; });
         p.body.erase(last, p.body.end());
       }},
      {"is touched while its sums are on their way", [](DeviceProgram& p) { p = without(p, Kind::await_products, 2); }},
      {"products: sums are handed over while some are on their way",
       [](DeviceProgram& p) { p = without(p, Kind::await_products, 1); }},
      {"products: sums are handed over while some are on their way",
       [](DeviceProgram& p) { p = without(p, Kind::await_products, 0); }},
      {"wait: thread 0 and others may touch s3[",
       [](DeviceProgram& p) { visit(p.body, Kind::await_products, wait_behind_barrier); }},
  };
  const DeviceProgram sound = made(false, true).program;
  ASSERT_TRUE(verify(sound).ok()) << verify(sound).to_string();
  for (const Case& c : cases) {
    DeviceProgram broken = sound;
    c.change(broken);
    EXPECT_THAT(std::string(verify(broken).message()), HasSubstr(c.message));
  }
}

// Each fence, commit, wait and barrier left out, found by the emulator and without it.
TEST(GroupCode, EverySynchronisationIsNeeded) {
  PlantedBugs bugs;
  for (const bool turned : {false, true}) {
    const GroupProgram sound = made(turned, !turned);
    bugs.leave_out(sound.program,
                   {Kind::fence_sums, Kind::fence_shared, Kind::commit_products, Kind::await_products, Kind::barrier},
                   [&](const DeviceProgram& p) { return failure_of(p, sound.kernel, kSizes, kGroupBound); });
  }
}

// Mistakes in who has what and in how factors lie, which show in results or stop the emulator.
TEST(GroupCode, PlantedMistakesAreFound) {
  const GroupProgram sound = made(true, false);
  const std::pair<const char*, std::function<void(DeviceProgram&)>> mistakes[] = {
      {"a not swizzled as it is stored", [](DeviceProgram& p) { p.shared[0].swizzle = 0; }},
      {"a swizzled by half of its lines", [](DeviceProgram& p) { p.shared[0].swizzle = 64; }},
      {"a read along its lines", [](DeviceProgram& p) { product(p).tiles[0].across = false; }},
      {"terms of a too far apart", [](DeviceProgram& p) { product(p).tiles[0].lines = 1024; }},
      {"b one step of terms on",
       [](DeviceProgram& p) {
         product(p).places[2].offset = ir::mod(product(p).places[2].offset + ir::Expr(1024), ir::Expr(4096));
       }},
      {"groups exchanged",
       [](DeviceProgram& p) {
         product(p).places[1].offset = ir::mod(product(p).places[1].offset + ir::Expr(4096), ir::Expr(8192));
       }},
      {"another type", [](DeviceProgram& p) { product(p).warp = WarpOp::k_wgmma_f16; }},
      {"fewer columns", [](DeviceProgram& p) { product(p).columns = 56; }},
      {"a wait for one group too few", [](DeviceProgram& p) { find(p, Kind::await_products, 0)->groups = 1; }},
      {"the last wait for one group too few", [](DeviceProgram& p) { find(p, Kind::await_products, 2)->groups = 1; }},
      {"the wait behind the barrier",
       [](DeviceProgram& p) { visit(p.body, Kind::await_products, wait_behind_barrier); }},
      {"the fence behind the barrier",
       [](DeviceProgram& p) {
         visit(p.body, Kind::fence_shared, [](std::vector<DeviceStmt>& list, size_t i) {
           if (i + 1 < list.size() && list[i + 1].kind == Kind::barrier) std::swap(list[i], list[i + 1]);
         });
       }},
  };
  PlantedBugs bugs;
  bugs.make_each(sound.program, mistakes,
                 [&](const DeviceProgram& p) { return failure_of(p, sound.kernel, kSizes, kGroupBound); });
}

TEST(GroupCode, NoConflictsOfBanks) {
  for (const bool turned : {false, true}) {
    const BankCounts counts = bank_conflicts(made(turned, !turned).kernel, {{"D0", 128}, {"D1", 64}, {"D2", 128}});
    EXPECT_GT(counts.accesses, 0);
    EXPECT_EQ(counts.conflicts, 0);
  }
}

}  // namespace
}  // namespace lathe::test
