// Causal attention with room for an odd number of keys, or for few: the tiles that rank best are proven and lowered, so
// tensor cores serve it, and the emulator gives what the oracle does.
#include <gtest/gtest.h>

#include <string_view>

#include "search/cut/safe_kernel.h"
#include "search/gpu/attention/attention_tiles.h"
#include "search/gpu/choice/device_candidates.h"
#include "tests/gpu/attention/tensor_attentions.h"

namespace lathe::search {
namespace {

using ir::SymbolValues;
using test::attention_text;
using test::AttentionText;

constexpr int64_t kRooms[] = {1, 15, 16, 17, 31, 32, 33, 63, 65}, kWindows[] = {0, 20};
constexpr size_t kTried = 5;

// As many queries as keys, known or up to so many.
struct Room {
  ir::Kernel naive;
  SymbolValues symbols;
};
struct Form {
  int64_t keys, window;
  const char* type = "bf16";
  int64_t sequences = 1, depth = 32;
};
Room known(const Form& f) {
  const ir::DType type = std::string_view(f.type) == "f16" ? ir::DType::f16 : ir::DType::bf16;
  return {test::fixed_attention({f.sequences, f.keys, f.keys, true, f.window, type}, f.depth), {}};
}
Room up_to(const Form& f) {
  const SymbolValues symbols = {{"B", f.sequences}, {"S", f.keys}, {"T", f.keys}};
  const AttentionText text = {f.type, 4, 2, f.depth, f.depth, true, f.window};
  return {test::up_to(test::kernel_of(attention_text(text)), symbols), symbols};
}

// What is tried first; whether tensor cores serve it.
bool expect_proven(const Room& room, const char* gpu) {
  const GeneralKernel general = general_kernel(room.naive);
  const SymbolValues sizes = test::sizes_of(general, room.symbols);
  const ir::GpuTarget target = *ir::find_gpu_target(gpu);
  const auto tiles = attention_tiles_of(general, sizes, target, ir::kBf16Dots);
  const auto ranked = device_candidates(general, sizes, target, kTried, ir::kBf16Dots);
  EXPECT_TRUE(tiles.ok() && ranked.ok()) << tiles.status().to_string() << ranked.status().to_string();
  if (!tiles.ok() || !ranked.ok()) return false;
  for (const Scheduled& made : *ranked) {
    SCOPED_TRACE(to_text(made.schedule));
    const ir::Status safe = check_safe(general.kernel, made.kernel);
    EXPECT_TRUE(safe.ok()) << safe.to_string();
    const auto cut = cut_launches(made.kernel);
    EXPECT_TRUE(cut.ok()) << cut.status().to_string();
    for (size_t i = 0; cut.ok() && i < cut->leaves.size(); ++i) {
      const auto program = jit::lower_device(cut->leaves[i]);
      EXPECT_TRUE(program.ok()) << program.status().to_string();
    }
  }
  const bool tensor_cores = ranked->front().schedule.recipe == "tensor_attention.1";
  EXPECT_EQ(tensor_cores, !tiles->empty());  // a tile that ranks first is one that can be made
  return tensor_cores;
}

void expect_all_proven(Room (*room_of)(const Form&)) {
  int on_tensor_cores = 0;
  for (const int64_t keys : kRooms) {
    for (const int64_t window : kWindows) {
      for (const char* gpu : {"h100", "a100"}) {
        SCOPED_TRACE(testing::Message() << keys << " keys, window " << window << ", " << gpu);
        on_tensor_cores += expect_proven(room_of({keys, window, "bf16", 4, 128}), gpu);
      }
    }
  }
  EXPECT_GE(on_tensor_cores, 10);
}

TEST(OddRooms, WhatRanksBestIsProvenOfKnownRooms) { expect_all_proven(known); }
TEST(OddRooms, WhatRanksBestIsProvenOfRoomsUpTo) { expect_all_proven(up_to); }

void expect_right(const Room& room) {
  const GeneralKernel general = general_kernel(room.naive);
  const SymbolValues sizes = test::sizes_of(general, room.symbols);
  const auto made = device_schedule(general, sizes, *ir::find_gpu_target("h100"), ir::kBf16Dots);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  SCOPED_TRACE(to_text(made->schedule));
  test::expect_values_kept(room.naive, general, made, room.symbols, test::kRoundedWeights);
  test::expect_as_interpreted(made->kernel, sizes, test::kRoundedWeights);
}

TEST(OddRooms, KnownRoomsAreRight) {
  for (const int64_t keys : kRooms) {
    for (const int64_t window : kWindows) {
      SCOPED_TRACE(testing::Message() << keys << " keys, window " << window);
      expect_right(known({keys, window}));
      if (window == 0) expect_right(known({keys, window, "f16"}));
    }
  }
}

TEST(OddRooms, RoomsUpToAreRight) {
  for (const int64_t keys : kRooms) {
    for (const int64_t window : kWindows) {
      SCOPED_TRACE(testing::Message() << keys << " keys, window " << window);
      Room room = up_to({keys, window});
      expect_right(room);
      room.symbols = {{"B", 1}, {"S", 1}, {"T", keys}};  // of the same Kernel
      expect_right(room);
      if (window == 0) expect_right(up_to({keys, window, "f16"}));
    }
  }
}

}  // namespace
}  // namespace lathe::search
