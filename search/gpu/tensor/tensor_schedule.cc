// See tensor_schedule.h. A block of threads has a tile of the result (tensor_moves.h).
//
//   for m: for n: c = 0; for k: c += f32(a[m, k]) * f32(b[k, n]); y = f(c)
//     -> for mb @grid: for nb @grid: {the tile}
#include "search/gpu/tensor/tensor_schedule.h"

#include <algorithm>
#include <cmath>

#include "ir/analysis/analysis.h"
#include "search/gpu/move_list.h"
#include "search/gpu/product_form.h"
#include "search/gpu/split_sum.h"
#include "search/gpu/tensor/staged_results.h"
#include "search/gpu/tensor/tensor_moves.h"
#include "search/gpu/thread_schedule.h"
#include "search/gpu/tile_rounds.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kHalves = 8;         // elements of 2 bytes in an access of 16
constexpr int64_t kMostOfWarp = 2048;  // sums of integers, 64 of a thread
constexpr int64_t kMostStaged = 96;    // bytes that a thread has on their way, each in a register

// whole: what the Schedule is of. kernel: that, or what it is once blocks share its sums over `summed`.
Result<Scheduled> scheduled(const Kernel& whole, const Kernel& kernel, const ProductForm& product,
                            const TensorTile& tile, const std::string& summed) {
  MoveList list(whole, "tensor.1");
  TensorMoves moves(list, kernel, product, tile);
  moves.knobs();
  if (kernel.find_buffer(product.sum)->type == DType::i32) LATHE_RETURN_IF_ERROR(share_out_before(list, kernel));
  if (tile.terms > 0) split_sum(list, summed, tile.terms);
  tile_result(list, product, moves.result_rows(), moves.result_columns(), moves.depth(), false);
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

namespace {

// Of integers of 8 bits, both of which lie term by term: no instruction turns bytes round.
Result<ProductForm> bytes_form(const Kernel& kernel) {
  LATHE_ASSIGN(ProductForm out, integer_form(kernel));
  const auto fits = [&](const ProductOperand& o) {
    return o.dims == 2 && o.terms_last && dtype_bytes(kernel.find_buffer(o.buffer)->type) == 1;
  };
  const bool both = out.operands.size() == 2 && out.operands[0].of_rows != out.operands[1].of_rows;
  if (!both || !std::all_of(out.operands.begin(), out.operands.end(), fits))
    return unsupported("{} is no product of two matrices of bytes that lie term by term", kernel.name);
  return out;
}

// Of floats, or of bytes.
Result<ProductForm> any_form(const Kernel& kernel) {
  const Result<ProductForm> bytes = bytes_form(kernel);
  return bytes.ok() ? bytes : tensor_form(kernel);
}

// With more sums, addresses of lines that are clamped to the last one do not fit beside them.
bool has_registers(const TensorTile& t) {
  const int64_t staged = t.stages == 1 ? (t.rows + t.columns) * 2 * t.depth / t.threads() : 0;
  return t.warp_rows * t.warp_columns <= kMostOfWarp && staged <= kMostStaged;
}

bool is_of_bytes(const Kernel& kernel, const ProductForm& product) {
  return kernel.find_buffer(product.sum)->type == DType::i32;
}

}  // namespace

Result<Scheduled> tensor_schedule(const GeneralKernel& general, const TensorTile& tile) {
  LATHE_RETURN_IF_ERROR(check_tile(tile));
  LATHE_ASSIGN(const ProductForm product, any_form(general.kernel));
  if (is_of_bytes(general.kernel, product) && (tile.terms > 0 || tile.staged))
    return unsupported("sums of integers have no parts and go to memory as they are");
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
  LATHE_ASSIGN(const ProductForm product, any_form(general.kernel));
  ProductShape shape = shape_of(product, sizes, general.most);
  const bool bytes = is_of_bytes(general.kernel, product);
  const int64_t in_access = bytes ? 2 * kHalves : kHalves;
  // Lines of other lengths begin anywhere.
  shape.copied = is_given(general.kernel, product) &&
                 std::all_of(product.operands.begin(), product.operands.end(), [&](const ProductOperand& o) {
                   return (o.terms_last ? shape.depth : o.of_rows ? shape.rows : shape.columns) % in_access == 0;
                 });
  shape.lines = !bytes && has_lines(general.kernel, product) && shape.columns % kHalves == 0;
  if (bytes) {  // two take what one of 2 bytes does
    shape.depth = (shape.depth + 1) / 2;
    shape.most_results = HUGE_VAL;  // no room for parts
  }
  std::vector<TensorTile> out = ranked_tensor_tiles(shape, target);
  if (bytes) std::erase_if(out, [](const TensorTile& t) { return !has_registers(t); });
  if (out.empty()) return unsupported("{}: no tile of bytes has the registers", general.kernel.name);
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
