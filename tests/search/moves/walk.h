// Random legal walks over kernels, each step compared with the interpreter on the naive kernel.
// Used by the property test and by the mutation self-test. Marks have no meaning to the
// interpreter, so marked scopes run backwards here: what @parallel and @vector allow.
#pragma once
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "ir/meaning/interpreter.h"
#include "search/moves/schedule.h"

namespace lathe::search {

struct WalkKernel {
  std::string name;
  ir::Kernel kernel;
};
// tests/search/kernels/*.lir; `operators`: only those that real operators look like, not the ones
// made to trip a wrong move.
std::vector<WalkKernel> walk_kernels(bool operators);

using Tensors = std::map<std::string, ir::Tensor>;
// Whole numbers for every in and constant parameter, the same at each call.
Tensors whole_inputs(const ir::Kernel& kernel, const ir::SymbolValues& symbols);
// The kernel's outputs, or an error of the interpreter.
ir::Result<Tensors> outputs(const ir::Kernel& kernel, const ir::SymbolValues& symbols, const Tensors& inputs);
// Bit for bit (NaN equals NaN) if tolerance is 0. Empty if equal, else the first difference.
std::string difference(const Tensors& want, const Tensors& got, double tolerance);
// @parallel and @vector scopes in reverse, what is in @role scopes ahead of the rest; of two values streamed to one
// cell the first.
ir::Kernel reversed(const ir::Kernel& kernel);

struct WalkOptions {
  std::string row;                 // preferred row; empty: any
  int disabled_precondition = -1;  // of that row
  int max_moves = 12;
};
// One walk from the seed. Empty: every step gave the same values; else what went wrong and how to
// get there. `applied` counts by row.
std::string walk(const WalkKernel& start, uint64_t seed, const WalkOptions& options,
                 std::map<std::string, int>& applied);

}  // namespace lathe::search
