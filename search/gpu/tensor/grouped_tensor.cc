// See grouped_tensor.h.
#include "search/gpu/tensor/grouped_tensor.h"

#include "search/gpu/tensor/tensor_moves.h"
#include "search/gpu/tile_moves.h"
#include "search/gpu/weights/group_form.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kHalves = 8;  // elements of 2 bytes in an access of 16

Status check_types(const Kernel& kernel, const GroupForm& form) {
  const DType rows = kernel.find_buffer(form.rows)->type, weights = kernel.find_buffer(form.weights)->type;
  const bool halves = rows == DType::bf16 || rows == DType::f16;
  return halves && rows == weights && form.made.empty()
             ? Status()
             : unsupported("{}: expected operands of bf16, or of f16", kernel.name);
}

}  // namespace

Result<Scheduled> grouped_tensor(const GeneralKernel& general, const TensorTile& tile) {
  LATHE_RETURN_IF_ERROR(check_tile(tile));
  if (tile.terms != 0) return invalid("parts of {} terms, expected the sums of groups to be whole", tile.terms);
  LATHE_ASSIGN(const GroupForm g, group_form(general.kernel));
  LATHE_RETURN_IF_ERROR(check_types(general.kernel, g));
  const ProductForm product = product_of(g);
  const std::string &m = g.m->iter, &n = g.n->iter, &k = g.k->iter;
  MoveList list(general.kernel, "groups_tensor.1");
  TensorMoves moves(list, general.kernel, product, tile);
  moves.knobs();
  clear_rows(list, g);
  list.move("parallelize_grid {}", g.t->iter);
  list.move("tile_scope {0} {1} tail=mask as {0}b,{0}i", n, moves.result_columns());
  list.move("swap_scopes {} {}b", m, n);
  list.move("tile_scope {0} {1} tail=mask as {0}b,{0}i", m, moves.result_rows());
  TileMoves(list, m, n, k).apart(g.sum, m + "b");
  list.move("tile_scope {0} {1} tail=mask as {0}0,{0}1", k, tile.depth);
  moves.stage(true);
  list.move("parallelize_grid {}b", n);
  moves.share();
  moves.compute();
  return list.finish();
}

Result<std::vector<TensorTile>> grouped_tiles_of(const GeneralKernel& general, const SymbolValues& sizes,
                                                 const GpuTarget& target) {
  LATHE_ASSIGN(const GroupForm g, group_form(general.kernel));
  LATHE_RETURN_IF_ERROR(check_types(general.kernel, g));
  ProductShape shape = group_shape(g, sizes);
  shape.copied = shape.depth % kHalves == 0 && (g.terms_last || shape.columns % kHalves == 0);
  std::vector<TensorTile> tiles = ranked_tensor_tiles(shape, target);
  for (TensorTile& t : tiles) {
    t.terms = 0;
    t.swizzled = false;  // groups need the registers
  }
  constexpr int64_t kMostOfWarp = 64 * 32;
  std::erase_if(tiles, [&](const TensorTile& t) {
    return t.warp_rows * t.warp_columns > kMostOfWarp || shared_bytes(t) > most_shared(target) || !check_tile(t).ok();
  });
  return tiles;
}

Result<Scheduled> grouped_tensor(const GeneralKernel& general, const SymbolValues& sizes, const GpuTarget& target) {
  LATHE_ASSIGN(const std::vector<TensorTile> tiles, grouped_tiles_of(general, sizes, target));
  return grouped_tensor(general, tiles.front());
}

}  // namespace lathe::search
