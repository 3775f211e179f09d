// Products of matrices of bf16, f16 or bytes on tensor cores, with what is fused around them.
#pragma once
#include "ir/base/gpu_target.h"
#include "search/gpu/general_kernel.h"
#include "search/gpu/product_form.h"
#include "search/gpu/tensor/tensor_tiles.h"
#include "search/moves/schedule.h"

namespace lathe::search {

// UNSUPPORTED: it is no sum of products of two matrices of one type of 2 bytes, each a factor that is widened.
ir::Result<ProductForm> tensor_form(const ir::Kernel& kernel);
// In that nest; those before it make temporaries.
ir::Result<ProductForm> tensor_form(const ir::Kernel& kernel, size_t nest);

// Tiles for it, the best first. UNSUPPORTED: it is no sum of products of two matrices of bf16, of f16, or of bytes that
// lie term by term.
ir::Result<std::vector<TensorTile>> tensor_tiles_of(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                                    const ir::GpuTarget& target);
// By the best tile.
ir::Result<Scheduled> tensor_schedule(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                      const ir::GpuTarget& target);
// By a tile of the caller's choice. UNSUPPORTED also: stages of an operand that is made; parts of sums of integers.
ir::Result<Scheduled> tensor_schedule(const GeneralKernel& general, const TensorTile& tile);

}  // namespace lathe::search
