// Legality questions of the moves, put to ir/analysis/dependence.h: independence of iterations, with buffers
// that live and die inside one iteration left out, and what a read finds in a buffer. Conservative:
// "yes" is a proof.
#pragma once
#include <string>
#include <vector>

#include "ir/analysis/dependence.h"
#include "search/moves/transform_util.h"

namespace lathe::search {

struct Answer {
  bool ok = true;
  bool reassociates = false;  // only because a float sum or product may be taken in another order
  std::string why;            // of a refusal
};

struct IndependenceQuery {
  bool allow_reductions = false;
  std::string private_to;          // temporaries whose whole life is inside one iteration of this scope do not count
  std::vector<std::string> apart;  // nor do these, of which each iteration has its own
};
// May the iterations of the scope run in any order?
Answer independent(const ir::Kernel& kernel, const std::string& iter, const IndependenceQuery& query);

// May all of the scope's children [0, at) run, for every iteration, before its children [at, end)?
// Asked of the scope that has both: before a fission, or after a fusion. The buffers in `apart` do
// not count.
Answer separable(const ir::Kernel& kernel, const std::string& iter, size_t at,
                 const std::vector<std::string>& apart = {});

// Is every cell `reads` may touch certainly written by `writes`, in one iteration of their first `fixed` common scopes?
bool covers(const ir::Kernel& kernel, const ir::Access& writes, const ir::Access& reads, size_t fixed);
// The same of two writes together, of which the second begins in one dimension no later than the first one ends.
bool covers(const ir::Kernel& kernel, const ir::Access& first, const ir::Access& second, const ir::Access& reads,
            size_t fixed);

// Is every read of the buffer inside the scope preceded, in the same iteration of the scope, by a
// plain write of the same cell, and is no access outside the scope? An empty path: of the Kernel.
bool lives_inside(const ir::Kernel& kernel, const std::string& buffer, const ScopePath& path, std::string* why);

// Does no value that is read of the buffer come from a cell that nothing wrote, as a copy of such a cell does?
bool has_values(const ir::Kernel& kernel, const std::string& buffer, std::string* why);

// A load of a buffer that starts from finite numbers, alone or in maxima, and takes maxima, which leave out NaN: it may
// rise to infinity, but it is never -inf.
bool is_above_minus_infinity(const ir::Kernel& kernel, const ir::Expr& e);

// Two float sums or products in another order round differently; max and min, and integers, do not.
bool order_matters(const ir::Kernel& kernel, const ir::Access& access);

// The buffers that each iteration touches in its segment alone: rows of its own, from one integer to the next.
//
//   for t < 5: for m < off[t + 1] - off[t]: y[off[t] + m] = ...
//   for t < B: for m < off[t, 1] - off[t, 0]: y[off[t, 0] + m] = ...
//
// Such integers rise: callers are held to it or warned.
std::vector<std::string> in_segments(const ir::Stmt& scope);

// Whether a buffer is given, or all of it is made by one nest before the statement `before` of the Kernel.
bool is_whole(const ir::Kernel& kernel, const ir::Buffer& b, size_t before);

}  // namespace lathe::search
