// A naive Kernel at a sample of its independent iterations: an iterator that indexes outputs alone,
// whole dimensions and no sum, may run over a few picked values only, and the dimensions it indexes
// shrink with it. So a reference costs what its cells cost, whatever the size of the operands.
//
//   for m < 4096: for n < 4096: c[m, n] += x[m, k] * w[n, k]     picks m {0, 77, 4095}, n {0, 4095}
//   → for m < 3: for n < 2: c[m, n] += x'[m, k] * w'[n, k]       x', w': the picked rows
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/core/kernel.h"
#include "ir/meaning/interpreter.h"
#include "runtime/oracle/data_sets.h"

namespace lathe::runtime {

class SampledKernel {
 public:
  // Symbols become their values. INVALID: a size without value.
  static ir::Result<SampledKernel> create(const ir::Kernel& naive, const SymbolValues& symbols);

  // Classes: iterators and dimensions that run together and may be sampled.
  int num_classes() const { return static_cast<int>(classes_.size()); }
  int64_t extent(int cls) const { return classes_[cls].extent; }
  // The class of dimension d of a buffer; -1: it is whole.
  int class_of(const std::string& buffer, int d) const;

  // Terms of the longest sum; 1: there is none.
  int64_t longest_sum() const;
  // Terms of the longest sum that is read while it runs; 0: there is none.
  int64_t running_terms() const;
  // Statements to interpret when class c has counts[c] values; sums included. A scope whose extent varies runs half as
  // often as it may. Saturates.
  int64_t steps(const std::vector<int64_t>& counts) const;
  // Elements of an operand then: more than statements where a few rows of it are read. Saturates.
  int64_t largest_operand(const std::vector<int64_t>& counts) const;
  // Values per class so that steps() <= budget and largest_operand() is not too much, where possible: edges of every
  // usual tile first, then random ones; sorted. Cells that cost much take several budgets rather than be too few.
  std::vector<std::vector<int64_t>> choose(int64_t budget, uint64_t seed) const;

  // The Kernel over these picks; symbols are gone.
  ir::Kernel at(const std::vector<std::vector<int64_t>>& picks) const;
  // What `at` needs beside the parameters: the values of iterators that are used as numbers.
  void add_picks(const std::vector<std::vector<int64_t>>& picks, std::map<std::string, ir::Tensor>* tensors) const;
  // Calls f(index in the sampled tensor, logical coordinates) for the picked cells of an operand.
  template <class F>
  void for_each_picked(const OperandShape& shape, const std::vector<std::vector<int64_t>>& picks, F&& f) const {
    const int rank = static_cast<int>(shape.dims.size());
    std::vector<const std::vector<int64_t>*> values(rank, nullptr);
    std::vector<int64_t> counts = shape.dims, at(rank, 0), where(rank, 0);
    int64_t total = 1;
    for (int d = 0; d < rank; ++d) {
      const int c = class_of(shape.name, d);
      if (c >= 0) values[d] = &picks[c];
      if (c >= 0) counts[d] = static_cast<int64_t>(picks[c].size());
      total *= counts[d];
    }
    for (int64_t i = 0; i < total; ++i) {
      int64_t rest = i;
      for (int d = rank - 1; d >= 0; --d) {
        at[d] = rest % counts[d];
        rest /= counts[d];
        where[d] = values[d] ? (*values[d])[at[d]] : at[d];
      }
      f(i, where);
    }
  }

 private:
  struct Class {
    int64_t extent = 0;
    std::vector<std::string> iters;
    std::vector<std::pair<std::string, int>> dims;
  };
  ir::Kernel kernel_;  // symbols replaced, strides gone
  std::vector<Class> classes_;
  std::map<std::string, int64_t> extents_;  // by iterator
  std::map<std::string, int> class_of_iter_;
  std::map<std::pair<std::string, int>, int> class_of_dim_;
};

}  // namespace lathe::runtime
