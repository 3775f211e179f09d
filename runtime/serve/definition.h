// What an operator is: its finished graph, the Kernels it lowers to, its arguments, and what is asked of search and
// store for it. Immutable, no lock: knows nothing of stages, shapes or calls.
#pragma once
#include <chrono>
#include <functional>
#include <vector>

#include "ops/lower.h"
#include "runtime/compile/arithmetic.h"
#include "runtime/compile/compiler.h"
#include "runtime/serve/context.h"

namespace lathe::runtime {

using ir::SymbolRanges;

struct PrepareRequest {
  int threads = 1;
  bool cold = false;
  uint32_t allowed = 0;  // NumericClass bits; 0: reassociate + contract
  bool llvm = false;     // leaves that xbyak refuses go to LLVM (warm-up), else to T0
  // Only what the next calls are likely to need: where constants are packed, what reads them as they lie is made for
  // the first such call; images are written later (LeafCache::publish).
  bool caller_waits = false;
  int device = 0;        // 0: the CPU; n: GPU n - 1
  bool compile = false;  // for a GPU: code that is not stored is compiled
  // Compiling for a GPU ends then, or when this says so: asked by any thread, may be empty.
  std::chrono::steady_clock::time_point ends = std::chrono::steady_clock::time_point::max();
  std::function<bool()> cancelled;
  bool behind = false;  // nobody waits for it
};

inline constexpr uint32_t kDefaultAllowed = ir::kReassociate | ir::kContract;
inline uint32_t allowed_classes(const PrepareRequest& request) {
  return request.allowed == 0 ? kDefaultAllowed : request.allowed;
}

class Definition {
 public:
  static ir::Result<Definition> of(const ops::Graph& finished, const ir::Target& target);

  const ops::Graph& graph() const { return graph_; }
  const ops::Lowered& lowered() const { return lowered_; }
  // What its Kernels may use, by the classes that the request allows.
  Arithmetic arithmetic(const PrepareRequest& request) const {
    return arithmetic_of(graph_, lowered_, allowed_classes(request));
  }
  // Tensors of the graph by argument: inputs, then outputs.
  const std::vector<int>& arg_tensors() const { return arg_tensors_; }
  // What the Kernels that read a tensor as it is given take its elements to be; none: anything.
  std::vector<ir::ValueRange> values_of(int tensor) const;
  // Whether they must not fall along its last dimension.
  bool rises(int tensor) const;
  // Whether loops have as many iterations as its elements say.
  bool counts(int tensor) const;
  // The hinted combinations of symbol values; one with every symbol's largest value where nothing is hinted.
  std::vector<SymbolValues> hinted_dims() const;
  // Of each symbol of the Kernel the default range that holds its value.
  std::vector<SymbolRange> ranges_at(int kernel, const SymbolValues& dims) const;
  // The Kernel's problem at these dims: symbols restricted to the range that serves them.
  search::Problem problem(int kernel, const SymbolValues& dims, const PrepareRequest& request) const;
  DecisionQuery query(int kernel, const SymbolValues& dims, const PrepareRequest& request) const;
  // The same over ranges of the Kernel's symbols, in their order.
  search::Problem problem_in(int kernel, const std::vector<SymbolRange>& ranges, const SymbolValues& dims,
                             const PrepareRequest& request) const;
  DecisionQuery query_in(int kernel, const std::vector<SymbolRange>& ranges, const PrepareRequest& request) const;
  // The Kernel's problem over its whole range, for the largest hint; plain: constants as they lie.
  search::Problem general_problem(int kernel, bool packed, const PrepareRequest& request) const;
  // The values of symbols that the problem is for.
  SymbolRanges range_of(int kernel, const search::Problem& problem) const;

 private:
  Definition() = default;
  ir::Target target_;
  ops::Graph graph_;
  ops::Lowered lowered_;
  std::vector<int> arg_tensors_;
};

}  // namespace lathe::runtime
