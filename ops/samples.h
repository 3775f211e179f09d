// Graphs of one operator at given or random sizes: what a sweep over shapes and random workloads are made of. The
// operands are the family's (ops/family.h), so a new operator is covered without a line here.
#pragma once
#include <cstdint>
#include <random>
#include <vector>

#include "ops/family.h"

namespace lathe::ops {

// `others` has at least samples.least_others of the row's family. Unfinished, its output named.
ir::Result<Graph> sample_graph(const OpRow& row, size_t axis, int variant, const SampleSizes& sizes);

// Random choices; equal seeds, equal choices.
class Draw {
 public:
  explicit Draw(uint64_t seed) : rng_(seed) {}

  int64_t below(int64_t n) { return static_cast<int64_t>(rng_() % static_cast<uint64_t>(n)); }
  bool chance(int64_t one_in) { return below(one_in) == 0; }
  template <class List>
  const auto& one_of(const List& list) {
    return list[static_cast<size_t>(below(std::ssize(list)))];
  }
  // Around tile sizes, or anything.
  int64_t size(int64_t most);
  // A size, or a symbol where the graph has one.
  DimDesc swept(int64_t most);
  // From now on swept sizes are symbols.
  void vary() { vary_ = true; }

 private:
  std::mt19937_64 rng_;
  bool vary_ = false;
};

// One operator of the table, its sizes, variant and, at times, riders behind its result. Unfinished.
Graph random_graph(Draw& draw);

// For the families: takes one of `n` choices from the variant's number.
int take(int& variant, int n);
ir::DType take_dtype(int& variant, const OpRow& row, size_t operand);
std::vector<DimDesc> with_last(const std::vector<DimDesc>& others, const DimDesc& last);
// Sizes of tensors of any rank: the last dimension is swept.
inline constexpr SampleAxis kLastAxis[] = {{"last"}};
inline constexpr std::initializer_list<int64_t> kAnyAround[] = {{5},    {1}, {},  {5, 5},    {5, 1},
                                                                {1, 5}, {5}, {0}, {1, 1, 5}, {5, 0}};
SampleSizes any_sizes(Draw& draw, size_t axis);

}  // namespace lathe::ops
