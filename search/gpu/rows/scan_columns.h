// Sums up to each element along another axis than the last, on a GPU: neighbouring columns have a sum each.
//
//   for b: for c: a[b, c] = 0; for n: for m: {a[b, m] += x[b, n, m]; y[b, n, m] = f(a)}
//     -> for b @grid: for cb @grid: for ct @block: for cv: a = 0
//          for nb: x_r = x; for ni: for mv: {a += x_r; y = f(a)}      of many columns
//     -> for b: for c: a[b, c] = 0; for n: {a[b, c] += x[b, n, c]; ...}    rows, of few (scan_schedule.h)
#pragma once
#include <string>
#include <vector>

#include "search/gpu/general_kernel.h"
#include "search/moves/schedule.h"

namespace lathe::search {

struct ColumnSums {
  std::vector<std::string> nest;             // iterators around, outermost first
  std::vector<std::string> starts, columns;  // iterators of the same extents, where sums start and where they grow
  const ir::Stmt* along = nullptr;
  const ir::Stmt* last = nullptr;  // the innermost scope of columns
  std::string sum;
};
// UNSUPPORTED: it is anything else.
ir::Result<ColumnSums> column_sums(const ir::Kernel& kernel);
// With each column a row.
ir::Result<ir::Kernel> columns_as_rows(const ir::Kernel& kernel, const ColumnSums& sums);
// sizes: see chain_schedule.h. UNSUPPORTED: columns are too few for a thread each.
ir::Result<Scheduled> scan_columns_schedule(const GeneralKernel& general, const ColumnSums& sums,
                                            const ir::SymbolValues& sizes);

}  // namespace lathe::search
