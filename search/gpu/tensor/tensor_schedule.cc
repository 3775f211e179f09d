// See tensor_schedule.h. A block of threads has a tile of the result (tensor_moves.h).
//
//   for m: for n: c = 0; for k: c += f32(a[m, k]) * f32(b[k, n]); y = f(c)
//     -> for mb @grid: for nb @grid: {the tile}
#include "search/gpu/tensor/tensor_schedule.h"

#include <algorithm>

#include "ir/analysis/analysis.h"
#include "search/gpu/move_list.h"
#include "search/gpu/product_form.h"
#include "search/gpu/split_sum.h"
#include "search/gpu/tensor/staged_results.h"
#include "search/gpu/tensor/tensor_moves.h"
#include "search/gpu/tile_rounds.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kHalves = 8;  // elements of 2 bytes in an access of 16

// whole: what the Schedule is of. kernel: that, or what it is once blocks share its sums over `summed`.
Result<Scheduled> scheduled(const Kernel& whole, const Kernel& kernel, const ProductForm& product,
                            const TensorTile& tile, const std::string& summed) {
  MoveList list(whole, "tensor.1");
  TensorMoves moves(list, kernel, product, tile);
  moves.knobs();
  if (tile.terms > 0) split_sum(list, summed, tile.terms);
  tile_result(list, product, moves.result_rows(), moves.result_columns(), tile.depth, false);
  moves.stage();
  for (const Stmt* b : product.batch) list.move("parallelize_grid {}", b->iter);
  for (const std::string& s : tiles_in_order(list, product, tile.raster)) list.move("parallelize_grid {}", s);
  moves.share();
  moves.compute();
  if (tile.terms > 0) add_up_parts(list, kernel);
  return list.finish();
}

}  // namespace

Result<ProductForm> tensor_form(const Kernel& kernel, size_t nest) {
  LATHE_ASSIGN(ProductForm out, product_form(kernel, nest));
  const Stmt& term = out.k->body[0];
  const auto no = [&](const char* why) {
    return unsupported("{} is no product for tensor cores: {}", kernel.name, why);
  };
  if (out.operands.size() != 2 || out.operands[0].of_rows == out.operands[1].of_rows)
    return no("expected one operand of rows and one of columns");
  for (const Expr& factor : term.value->args) {
    const bool widened = factor->op == Op::k_cast && factor->type == DType::f32 && factor->args[0]->op == Op::k_load;
    if (!widened) return no("expected factors that are loaded and widened");
  }
  const DType type = kernel.find_buffer(out.operands[0].buffer)->type;
  if ((type != DType::bf16 && type != DType::f16) || kernel.find_buffer(out.operands[1].buffer)->type != type)
    return no("expected operands of bf16, or of f16");
  if (out.operands[0].dims != 2 || out.operands[1].dims != 2) return no("expected matrices");
  return out;
}

Result<ProductForm> tensor_form(const Kernel& kernel) {
  return tensor_form(kernel, std::max<size_t>(kernel.body.size(), 1) - 1);
}

Result<Scheduled> tensor_schedule(const GeneralKernel& general, const TensorTile& tile) {
  LATHE_RETURN_IF_ERROR(check_tile(tile));
  LATHE_ASSIGN(const ProductForm product, tensor_form(general.kernel));
  if (tile.stages > 1 && !is_given(general.kernel, product))
    return unsupported("{} makes an operand of its product, which goes to shared memory in one stage",
                       general.kernel.name);
  return whole_or_split(general.kernel, product, tile.terms, tensor_form,
                        [&](const Kernel& kernel, const ProductForm& form, const std::string& summed) {
                          return scheduled(general.kernel, kernel, form, tile, summed);
                        });
}

Result<std::vector<TensorTile>> tensor_tiles_of(const GeneralKernel& general, const SymbolValues& sizes,
                                                const GpuTarget& target) {
  LATHE_ASSIGN(const ProductForm product, tensor_form(general.kernel));
  ProductShape shape = shape_of(product, sizes, general.most);
  // Lines of other lengths begin anywhere.
  shape.copied = is_given(general.kernel, product) &&
                 std::all_of(product.operands.begin(), product.operands.end(), [&](const ProductOperand& o) {
                   return (o.terms_last ? shape.depth : o.of_rows ? shape.rows : shape.columns) % kHalves == 0;
                 });
  shape.lines = has_lines(general.kernel, product) && shape.columns % kHalves == 0;
  std::vector<TensorTile> out = ranked_tensor_tiles(shape, target);
  for (TensorTile& t : out) {
    const int64_t below = ceil_div(shape.rows, t.swapped ? t.columns : t.rows);
    const int64_t tiles = shape.batch * below * ceil_div(shape.columns, t.swapped ? t.rows : t.columns);
    if (t.stages > 1 && t.terms == 0) t.raster = raster_of(below, tiles, target);
  }
  return out;
}

Result<Scheduled> tensor_schedule(const GeneralKernel& general, const SymbolValues& sizes, const GpuTarget& target) {
  LATHE_ASSIGN(const std::vector<TensorTile> tiles, tensor_tiles_of(general, sizes, target));
  return tensor_schedule(general, tiles.front());
}

}  // namespace lathe::search
