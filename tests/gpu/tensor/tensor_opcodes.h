// The instructions in a cubin that a tile of a product on tensor cores predicts.
#pragma once
#include <string>

#include "jit/cuda/compile/cubin.h"
#include "search/gpu/tensor/tensor_tiles.h"

namespace lathe::test {

// Empty: they are as predicted, and nothing lies in local memory or is multiplied elsewhere, the last terms neither.
// Products of 16 x 8 x 16 and squares of 16 x 16 of a step, each once, and once more for the last steps where there are
// stages, and at most as often as in the loop in one for tiles that are not whole; the copies of a step by 16 bytes,
// ahead of the loop once for each step, and in both loops. Where results are staged, a thread
// stores 16 bytes of 16 bits each to global memory, two to shared memory at a time, as what is made of operands may be,
// and loads four from there.
inline std::string not_as_predicted(const jit::CubinInfo& info, const search::TensorTile& t, int fma = 0) {
  const auto loops = t.stages > 1 ? 2 : 1;
  const auto squares = static_cast<int>((t.warp_rows / 16 + (t.warp_columns + 8) / 16) * t.depth / 16 * loops);
  const auto products = static_cast<int>(t.warp_rows / 16 * (t.warp_columns / 8) * t.depth / 16 * loops);
  const auto of_operand = [&](int64_t lines) { return (lines * t.depth / 8 + t.threads() - 1) / t.threads(); };
  const auto copies = static_cast<int>(t.stages == 1 ? 0 : (of_operand(t.rows) + of_operand(t.columns)) * t.stages);
  const auto results = static_cast<int>(t.staged ? t.warp_rows * t.warp_columns / 32 : 0);
  const bool staged = results == 0 || (info.stores.bits128 == results / 8 && info.shared_stores.bits64 >= results / 2 &&
                                       info.shared_loads.bits128 == results / 4);
  const auto once_more = [](int is, int of, int more) { return is >= of && is <= of + more; };
  const bool as_predicted = staged && info.local == 0 && once_more(info.mma, products, products / loops) &&
                            once_more(info.matrix_loads, squares, squares / loops) &&
                            once_more(info.async_copies, copies, copies) && info.fma == fma;
  if (as_predicted) return "";
  return fmt::format(
      "{} products of {}, {} squares of {}, {} copies of {}, {} multiplied elsewhere of {}, {} local, {} stores of "
      "results of {}, {} and {} shared",
      info.mma, products, info.matrix_loads, squares, info.async_copies, copies, info.fma, fma, info.local,
      info.stores.bits128, results / 8, info.shared_stores.bits64, info.shared_loads.bits128);
}

}  // namespace lathe::test
