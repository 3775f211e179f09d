// Swizzled shared memory: elements of every size in lines of every width lie where the address function says, so that
// rows meet no banks twice; tiles of products that are swizzled by less than 128 bytes, or instead of padding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jit/cuda/text/cuda_text.h"
#include "search/gpu/choice/device_candidates.h"
#include "search/gpu/tensor/tensor_schedule.h"
#include "tests/gpu/tensor/group_programs.h"

namespace lathe::test {
namespace {

using ir::SymbolValues;
using search::GeneralKernel;
using search::GroupTile;
using search::TensorTile;
using ::testing::HasSubstr;
using ::testing::Not;

// A thread stores a row of so many elements in pieces of 16 bytes, and loads another one so.
std::string rows_of(const char* type, int64_t columns, int64_t lanes, int64_t swizzle) {
  return fmt::format(
      "kernel rows(x: {0}[B, 32, {1}] in, y: {0}[B, 32, {1}] out) where B in 1..9\n"
      "  t: {0}[32, {1}] shared{2}\n"
      "  for b < B @grid:\n"
      "    for i < 32 @block:\n      for j < {3} @unroll:\n        for v < {4} @vector:\n"
      "          t[i, {4}*j + v] = x[b, i, {4}*j + v]\n"
      "    for k < 32 @block:\n      for l < {3} @unroll:\n        for w < {4} @vector:\n"
      "          y[b, k, {4}*l + w] = t[31 - k, {4}*l + w]\n",
      type, columns, swizzle == 0 ? "" : fmt::format(" swizzle {}", swizzle), columns / lanes, lanes);
}

TEST(Swizzle, EveryWidthAndSizeOfElementsOnTheEmulator) {
  int emulated = 0;
  for (const auto& [type, bytes] : {std::pair{"f32", 4}, {"i32", 4}, {"bf16", 2}, {"u8", 1}, {"i64", 8}}) {
    for (const int64_t swizzle : {32, 64, 128}) {
      for (const int64_t lines : {1, 2}) {  // of a row
        const int64_t columns = lines * swizzle / bytes;
        expect_as_interpreted(kernel_of(rows_of(type, columns, 16 / bytes, swizzle)), {{"B", 2}}, 0);
        emulated += 3;
      }
    }
  }
  RecordProperty("emulated", emulated);
}

TEST(Swizzle, RowsOfALineMeetNoBankTwice) {
  for (const int64_t swizzle : {32, 64, 128}) {
    const auto conflicts = [&](int64_t by) {
      return bank_conflicts(kernel_of(rows_of("f32", swizzle / 4, 4, by)), {{"B", 1}}).conflicts;
    };
    // 32 threads store and load each of a row's pieces, eight at a time, of which as many meet as a row has pieces.
    const int64_t pieces = swizzle / 16;
    EXPECT_EQ(conflicts(0), 2 * pieces * 4 * (pieces - 1)) << swizzle;
    EXPECT_EQ(conflicts(swizzle), 0) << swizzle;
  }
}

TEST(Swizzle, IsWrittenOut) {
  const auto text = [](const char* type, int64_t columns, int64_t lanes, int64_t swizzle) {
    const auto cut = search::cut_launches(kernel_of(rows_of(type, columns, lanes, swizzle)));
    EXPECT_TRUE(cut.ok()) << cut.status().to_string();
    const auto program = jit::lower_device(cut->leaves[0]);
    EXPECT_TRUE(program.ok()) << program.status().to_string();
    EXPECT_TRUE(verify(*program).ok()) << verify(*program).to_string();
    return jit::cuda_text(*program, "lathe_leaf");
  };
  EXPECT_THAT(text("f32", 32, 4, 0), Not(HasSubstr("swizzled")));
  const std::string lines = text("f32", 32, 4, 128);
  EXPECT_THAT(lines, HasSubstr("LT_FUNCTION lt_int lt_swizzled_28(lt_int at) { return at ^ (at >> 3 & 28); }\n"));
  EXPECT_THAT(lines, HasSubstr(" + lt_swizzled_28("));
  EXPECT_THAT(text("f32", 32, 4, 32), HasSubstr("return at ^ (at >> 3 & 4); }\n"));
}

// Squares of 16 x 16 are read from swizzled lines as from padded ones: without conflicts, and out of less memory.
TEST(Swizzle, TilesOfWarpsOnTheEmulator) {
  int emulated = 0;
  struct Case {
    TensorTile tile;
    bool turn_a, turn_b;
  };
  for (const Case& c : {Case{{32, 32, 32, 16, 32, 1}, false, true},
                        {{64, 32, 64, 32, 16, 3}, false, true},
                        {{32, 128, 32, 16, 64, 2}, false, false},
                        {{128, 32, 32, 64, 16, 1}, true, false},
                        {{32, 16, 128, 16, 16, 1}, false, true},
                        {{32, 16, 128, 16, 16, 2, true}, false, false},
                        {{64, 8, 64, 32, 8, 2, true}, true, true}}) {
    const ir::Kernel naive = kernel_of(tensor_product("bf16", c.turn_a, c.turn_b));
    const GeneralKernel general = search::general_kernel(naive);
    TensorTile tile = c.tile;
    EXPECT_TRUE(check_tile(tile).ok());
    const int64_t padded = shared_bytes(tile);
    tile.swizzled = true;
    EXPECT_LT(shared_bytes(tile), padded);
    const auto made = tensor_schedule(general, tile);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    EXPECT_THAT(to_text(made->schedule), HasSubstr("swizzle_buffer "));
    for (const SymbolValues& s : {SymbolValues{{"M", 40}, {"N", 136}, {"K", 72}}, {{"M", 33}, {"N", 65}, {"K", 139}}}) {
      expect_values_kept(naive, general, made, s, kBf16);
      expect_as_interpreted(made->kernel, sizes_of(general, s), kBf16);
      emulated += 4;
    }
    const BankCounts counts = bank_conflicts(made->kernel, sizes_of(general, {{"M", 128}, {"N", 128}, {"K", 256}}));
    EXPECT_GT(counts.accesses, 0);
    EXPECT_EQ(counts.conflicts, 0) << to_text(made->schedule);
  }
  RecordProperty("emulated", emulated);
}

// Rows or columns that are neighbours lie in lines of 64 or 32 bytes where they are no multiple of 64.
TEST(Swizzle, NarrowLinesOfGroupsOnTheEmulator) {
  int emulated = 0;
  struct Case {
    GroupTile tile;
    bool turn_a, turn_b, swapped;
    int64_t bytes;
  };
  for (const Case& c : {Case{{64, 96, 96, 3, 0, true}, false, false, false, 64},
                        {{64, 32, 32, 3, 2, true, true}, true, false, false, 64},
                        {{128, 48, 48, 3}, false, false, false, 32},
                        {{64, 32, 32}, false, false, false, 64},
                        {{64, 16, 16, 4, 0, true}, true, true, true, 32},
                        {{64, 96, 96, 3, 0, true}, true, false, true, 64}}) {
    GroupTile tile = c.tile;
    tile.swapped = c.swapped;
    const ir::Kernel naive = kernel_of(tensor_product("bf16", c.turn_a, c.turn_b));
    const GeneralKernel general = search::general_kernel(naive);
    const auto made = hopper_schedule(general, tile);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    EXPECT_THAT(to_text(made->schedule),
                HasSubstr(fmt::format("swizzle_buffer {}_s {}\n", c.swapped ? "a" : "b", c.bytes)));
    const auto program = jit::lower_device(search::cut_launches(made->kernel)->leaves[0]);
    ASSERT_TRUE(program.ok()) << program.status().to_string();
    EXPECT_TRUE(verify(*program).ok()) << verify(*program).to_string();
    EXPECT_THAT(jit::cuda_text(*program, "lathe_leaf"),
                HasSubstr(c.bytes == 64 ? " + (1ull << 62)" : " + (2ull << 62)"));
    for (const SymbolValues& s : {SymbolValues{{"M", 72}, {"N", 104}, {"K", 200}},
                                  {{"M", 16}, {"N", 96}, {"K", 64}},
                                  {{"M", 65}, {"N", 97}, {"K", 67}}}) {
      expect_values_kept(naive, general, made, s, kBf16);
      expect_as_interpreted(made->kernel, sizes_of(general, s), kBf16);
      emulated += tile.stages == 0 ? 4 : 8;
    }
  }
  RecordProperty("emulated", emulated);
}

// Each block of a pair asks for half of the terms of narrow lines.
TEST(Swizzle, NarrowLinesOfPairsOnTheEmulator) {
  GroupTile tile{64, 96, 96, 3, 0, true};
  tile.pairs = search::TilePairs::below;
  const ir::Kernel naive = kernel_of(tensor_product("bf16", false, false));
  const GeneralKernel general = search::general_kernel(naive);
  const auto made = hopper_schedule(general, tile);
  for (const SymbolValues& s : {SymbolValues{{"M", 136}, {"N", 104}, {"K", 200}}, {{"M", 65}, {"N", 97}, {"K", 67}}}) {
    expect_values_kept(naive, general, made, s, kBf16);
    expect_as_interpreted(made->kernel, sizes_of(general, s), kBf16);
  }
  RecordProperty("emulated", 16);
}

// What lies between Schedule and text says it: nothing is derived from who reads a buffer.
TEST(Swizzle, GroupsRefuseWhatIsNotSwizzledAsTheyReadIt) {
  const GeneralKernel general = search::general_kernel(kernel_of(tensor_product("bf16", false, false)));
  const auto why = [&](const GroupTile& tile, const std::string& instead) {
    search::Schedule schedule = hopper_schedule(general, tile)->schedule;
    for (auto move = schedule.moves.begin(); move != schedule.moves.end(); ++move) {
      if (move->name != "swizzle_buffer" || move->args[0] != "b_s") continue;
      if (instead.empty()) {
        schedule.moves.erase(move);
      } else {
        move->args[1] = instead;
      }
      break;
    }
    const auto made = schedule_kernel(general.kernel, schedule);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return std::string(jit::lower_device(search::cut_launches(made->kernel)->leaves[0]).status().message());
  };
  EXPECT_THAT(why({64, 64, 64}, ""), HasSubstr("of wgmma_bf16 is not swizzled"));
  EXPECT_THAT(why({64, 64, 64}, "64"), HasSubstr("does not lie in lines of 32"));
  EXPECT_THAT(why({64, 64, 64, 3}, ""), HasSubstr("is not swizzled, expected lines for boxes"));
  EXPECT_THAT(why({64, 64, 64, 3}, "64"), HasSubstr("does not lie in lines of 32"));
}

// Tiles of narrow lines are timed where they rank first, and serve once that found them to be best.
TEST(Swizzle, NarrowLinesAreCandidates) {
  const GeneralKernel general = search::general_kernel(kernel_of(tensor_product("bf16", false, false)));
  const ir::GpuTarget h200 = *ir::find_gpu_target("h200");
  const auto is_narrow = [](const GroupTile& t) { return t.columns % 64 != 0; };
  int narrow = 0;
  for (const int64_t n : {1536, 2400, 4032, 5120, 6144, 9216}) {
    const auto tiles = search::group_tiles_of(general, sizes_of(general, {{"M", 4096}, {"N", n}, {"K", 4096}}), h200);
    ASSERT_TRUE(tiles.ok()) << tiles.status().to_string();
    EXPECT_FALSE(is_narrow(tiles->front()));
    const auto number = std::count_if(tiles->begin(), tiles->end(), is_narrow);
    EXPECT_LE(number, 1);
    if (number > 0) EXPECT_LE(std::find_if(tiles->begin(), tiles->end(), is_narrow) - tiles->begin(), 4);
    narrow += number > 0;
  }
  EXPECT_GE(narrow, 1);
  const auto tiles = search::tensor_tiles_of(general, sizes_of(general, {{"M", 512}, {"N", 768}, {"K", 512}}), h200);
  ASSERT_TRUE(tiles.ok()) << tiles.status().to_string();
  for (const TensorTile& t : *tiles) EXPECT_EQ(t.swizzled, t.stages > 1);  // what asynchronous copies fill
}

}  // namespace
}  // namespace lathe::test
