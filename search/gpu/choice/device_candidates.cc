// See device_candidates.h.
#include "search/gpu/choice/device_candidates.h"

#include <algorithm>

#include "search/gpu/attention/attention_schedule.h"
#include "search/gpu/attention/attention_tiles.h"
#include "search/gpu/attention/tensor_attention.h"
#include "search/gpu/gemv_schedule.h"
#include "search/gpu/product_schedule.h"
#include "search/gpu/rows/append_schedule.h"
#include "search/gpu/rows/chain_schedule.h"
#include "search/gpu/tensor/decoded_tensor.h"
#include "search/gpu/tensor/grouped_tensor.h"
#include "search/gpu/tensor/hopper_schedule.h"
#include "search/gpu/tensor/tensor_schedule.h"
#include "search/gpu/weights/decoded_lines.h"
#include "search/gpu/weights/decoded_schedule.h"

namespace lathe::search {

using ir::Result;

namespace {

// Threads of a block, beside the default's. More of them share less work each; fewer leave room for other blocks.
constexpr int64_t kBlocks[] = {128, 512, 64, 1024};
constexpr size_t kWithoutTensorCores = 2;  // Schedules of attention
constexpr size_t kOtherTiles = 2;          // of one warp's instructions, where groups of warps have their own
constexpr size_t kLines = 2;               // of few bits, where few rows may need no tensor cores
constexpr size_t kDecodedTiles = 1;        // of few bits, which need fewer registers than lines of all rows

}  // namespace

Result<std::vector<Scheduled>> device_candidates(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                                 const ir::GpuTarget& target, size_t most, uint32_t allowed) {
  std::vector<Scheduled> out(1);
  LATHE_ASSIGN(out[0], device_schedule(general, sizes, target, allowed));
  const auto known = [&](const Scheduled& made) {
    const std::string text = to_text(made.schedule);
    return std::any_of(out.begin(), out.end(), [&](const Scheduled& s) { return to_text(s.schedule) == text; });
  };
  const auto add = [&](Result<Scheduled> made) {
    if (made.ok() && !known(*made)) out.push_back(std::move(*made));
  };
  if (most <= 1) return out;
  if (is_attention(general)) {
    const auto tiles = attention_tiles_of(general, sizes, target, allowed);
    for (size_t i = 0; tiles.ok() && i < tiles->size(); ++i) {
      if (out.size() + kWithoutTensorCores < most) add(tensor_attention(general, (*tiles)[i]));
    }
    const auto floats = float_tiles_of(general, sizes, target);
    for (size_t i = 0; floats.ok() && i < floats->size(); ++i) {
      if (out.size() + kWithoutTensorCores < most) add(float_attention(general, (*floats)[i]));
    }
    LATHE_ASSIGN(const std::vector<int64_t> parts, key_parts(general, sizes, target));
    for (const int64_t part : parts) {
      if (out.size() < most) add(attention_schedule(general, part));
    }
    return out;
  }
  if (appends(general)) {
    for (const bool together : {false, true}) {
      if (out.size() < most) add(append_schedule(general, sizes, together));
    }
    return out;
  }
  if (const Result<Scheduled> chain = chain_schedule(general, sizes); chain.ok() && known(*chain)) {
    for (const int64_t block : kBlocks) {
      if (out.size() < most) add(chain_schedule(general, sizes, block));
    }
  }
  const std::string recipe = out[0].schedule.recipe;
  if (const auto tiles = grouped_tiles_of(general, sizes, target); tiles.ok()) {
    for (const TensorTile& tile : *tiles) {
      if (out.size() < most) add(grouped_tensor(general, tile));
    }
  }
  const bool rounded = (allowed & ir::kQuantisedActivations) != 0;
  if (const auto tiles = decoded_tiles_of(general, sizes, target, rounded); tiles.ok()) {
    for (const TensorTile& tile : *tiles) {
      if (out.size() + kLines < most) add(decoded_tensor(general, tile, rounded));
    }
  }
  if (const auto lines = decoded_lines_of(general, sizes, target); lines.ok()) {
    for (const DecodedLines& l : *lines) {
      if (out.size() + kDecodedTiles < most) add(decoded_lines(general, l));
    }
  }
  if (const auto tiles = decoded_rows_of(general, sizes, target); tiles.ok()) {
    for (const DecodedTile& tile : *tiles) {
      if (out.size() < most) add(decoded_schedule(general, tile));
    }
  }
  constexpr const char* kProducts[] = {"lines.1", "groups.1", "tensor.1", "tiles.1", "integers.1"};
  if (std::find(std::begin(kProducts), std::end(kProducts), recipe) == std::end(kProducts)) return out;
  add(gemv_schedule(general, sizes, target));
  for (const int64_t vectors : kOthersAtOnce) {
    if (out.size() < most) add(gemv_schedule(general, sizes, target, vectors));
  }
  if (const auto tiles = group_tiles_of(general, sizes, target); tiles.ok()) {
    for (const GroupTile& tile : *tiles) {
      if (out.size() + kOtherTiles < most) add(hopper_schedule(general, tile));
    }
  }
  const auto integers = tiles_of_integers(general, sizes, target);
  if (const auto tiles = tensor_tiles_of(general, sizes, target); tiles.ok()) {
    for (const TensorTile& tile : *tiles) {
      if (out.size() + integers.ok() < most) add(tensor_schedule(general, tile));
    }
    if (integers.ok() && out.size() < most) add(integer_schedule(general, integers->front()));
  } else if (integers.ok()) {
    for (const ProductTile& tile : *integers) {
      if (out.size() < most) add(integer_schedule(general, tile));
    }
  } else {
    LATHE_ASSIGN(const std::vector<ProductTile> plain, tiles_of_product(general, sizes, target));
    for (const ProductTile& tile : plain) {
      if (out.size() < most) add(product_schedule(general, tile));
    }
  }
  return out;
}

}  // namespace lathe::search
