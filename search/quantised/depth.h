// How the depth of a weight of few bits is cut, so that what its expression does with the depth - which byte, which
// bits of it - is known where code is made.
//
//   k = block * k0 + level * ko + ... + run * kr + step * kj + ki
//
// Loops over k0, kj and the first level below the block that may be one; the others are unrolled.
#pragma once
#include <string>
#include <vector>

#include "ir/analysis/analysis.h"
#include "search/sketches/recipe.h"

namespace lathe::search {

struct DepthCut {
  // Weights after which the expression begins anew, then what its quotients divide that into, down to the run: weights
  // that differ in their address alone, or by ki. Each divides the one before.
  std::vector<int64_t> levels = {1};
  size_t loop = 0;  // the level below the block that is a loop; 0: none
  int64_t step = 1;
  int64_t copies() const;  // of a weight's code
  int64_t run() const { return levels.back(); }
};

// Whether indices of what the value loads are sums of these iterators, no quotient of one left in them.
bool indices_known(const ir::Expr& value, const ir::Ranges& ranges, const std::vector<std::string>& loops);
// Whether code can be made of the value inside loops over these iterators: counts of shifts and conditions are numbers,
// indices are sums.
bool code_known(const ir::Expr& value, const ir::Ranges& ranges, const std::vector<std::string>& loops);

// Of the values in which `k` occurs. Where nothing else will do, each weight is unrolled.
DepthCut depth_cut(const std::vector<ir::Expr>& values, const std::string& k, int64_t extent);

// Loops of one part of the depth, outermost first, and those among them to be unrolled.
struct DepthPart {
  std::vector<std::string> scopes, unrolled;
};
// Tiles scope `k` of so many iterations: whole blocks first, then what is left of them.
std::vector<DepthPart> cut_depth(Script& s, const std::string& k, int64_t extent, const DepthCut& cut);

}  // namespace lathe::search
