// Elementwise chains on a GPU: the general Kernel of a chain, whose sizes and strides are all symbols, so that one
// piece of code serves every shape; and its Schedule: a thread takes four neighbouring elements of a row, a block 256
// threads or as many as there is work for, in rows and columns.
//
//   for i < D0: for j < D1: y = f(x, ...)
//     -> for ib @grid: for jb @grid: for it @block: for jt @block: for v < 4 @vector: y = f(x, ...)
#pragma once
#include "ir/core/binding.h"
#include "search/moves/schedule.h"

namespace lathe::search {

struct GeneralKernel {
  ir::Kernel kernel;
  std::vector<std::pair<std::string, ir::Expr>> sizes;  // its symbols, as expressions of the naive Kernel's
};
// UNSUPPORTED: it is no chain of f32: one nest of plain assignments, each element at its iterators.
ir::Result<GeneralKernel> general_chain(const ir::Kernel& naive);

// sizes: of the general Kernel's symbols, those that most calls have: they choose the shape of the block.
ir::Result<Scheduled> chain_schedule(const GeneralKernel& chain, const ir::SymbolValues& sizes);

}  // namespace lathe::search
