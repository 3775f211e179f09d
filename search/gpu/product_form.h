// The sums of products that Schedules of matmul take: what their scopes and operands are.
#pragma once
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/core/binding.h"
#include "ir/core/kernel.h"
#include "search/gpu/move_list.h"
#include "search/gpu/product_tiles.h"

namespace lathe::search {

// An operand: a matrix of rows (or columns) of the result by terms, or the other way round.
struct ProductOperand {
  std::string buffer;
  bool of_rows = false;
  int dims = 0;             // that vary in a tile, of which there are one or two
  bool terms_last = false;  // neighbours in memory are terms
};

// for batch: for m: for n: c = 0; for k: c += a * b; y = f(c). Pointers are into the Kernel.
struct ProductForm {
  std::vector<const ir::Stmt*> batch;
  const ir::Stmt *m = nullptr, *n = nullptr, *k = nullptr;
  std::string sum;
  std::vector<ProductOperand> operands;  // at least one of rows and one of columns
  std::vector<std::string> made;         // temporaries that earlier nests make
};
// Whether statements are c = 0; for k: c += a * b; and what uses c.
bool has_sum(const std::vector<ir::Stmt>& body);
bool uses_load(const ir::Expr& e);
// UNSUPPORTED: it is anything else.
ir::Result<ProductForm> product_form(const ir::Kernel& kernel);
// Of that nest; those before it make temporaries.
ir::Result<ProductForm> product_form(const ir::Kernel& kernel, size_t nest);
// Of integers, in the last nest: what those before it sum, of rows and of columns, is used with the results.
ir::Result<ProductForm> integer_form(const ir::Kernel& kernel);
// The columns and the terms of the sums of products in the last nest, whose rows may be those of groups that integers
// divide. UNSUPPORTED: there are none. Pointers are into the Kernel.
struct ProductSum {
  const ir::Stmt *n = nullptr, *k = nullptr;
};
ir::Result<ProductSum> product_sum(const ir::Kernel& kernel);
// Whether all operands are matrices that lie in memory as they are read.
bool is_given(const ir::Kernel& kernel, const ProductForm& form);
// Of those sizes of its symbols; most: their largest values in calls.
ProductShape shape_of(const ProductForm& form, const ir::SymbolValues& sizes, const ir::SymbolValues& most);

// Tiles of the result, where sums start, grow and are used apart from each other, and steps of so many terms:
//   mb { nb { mi { ni } | k0 { k1 { mik { nik } } } k2 { .. } | mie { nie } } }
// apart: the last terms, k2; else the last step is a short one. pairs: two tiles, one below the other or beside it,
// have a scope of their own in nb, mc or nc; the second one may have nothing to do.
enum class TilePairs : uint8_t { none, below, beside };
void tile_result(MoveList& list, const ProductForm& form, int64_t rows, int64_t columns, int64_t depth, bool apart,
                 TilePairs pairs = TilePairs::none);
// The scopes of tiles, the outermost first, with so many tiles below each other before those beside them; 0: as they
// are.
std::vector<std::string> tiles_in_order(MoveList& list, const ProductForm& form, int64_t raster);
// The scope of which an iteration is one tile.
std::string block_of(const ProductForm& form, TilePairs pairs);

}  // namespace lathe::search
