// Moves that Schedules of products share which stage both factors as f32 in shared memory: 16 x 16 threads have a tile
// of the result, each some rows of 4 columns.
#pragma once
#include <algorithm>
#include <string>

#include "search/gpu/move_list.h"

namespace lathe::search {

class TileMoves {
 public:
  static constexpr int64_t kSide = 16, kThreads = kSide * kSide, kColumns = 64, kFloats = 4;

  TileMoves(MoveList& list, std::string m, std::string n, std::string k)
      : list_(list), m_(std::move(m)), n_(std::move(n)), k_(std::move(k)) {}

  // Sums start, grow and are used apart from each other, and are kept at `at`.
  void apart(const std::string& sum, const std::string& at) {
    for (const std::string& s : {n_, m_}) {
      list_.move("split_scope {0}i after=1 as {0}ie", s);
      list_.move("split_scope {0}i after=0 as {0}ik", s);
    }
    list_.move("move_to_register {} {}", sum, at);
    list_.move("swap_scopes {}ik {}", n_, k_);
    list_.move("swap_scopes {}ik {}", m_, k_);
  }

  // The copy of a factor whose terms are neighbours in memory: threads of a warp have the same terms of neighbouring
  // lines, so that they store to different banks. turn() follows.
  void copy_terms(const std::string& x, int64_t lines, int64_t depth) {
    list_.move("tile_scope {0}_1 {1} tail=mask as {0}_1c,{0}_1v", x, kFloats);
    list_.move("tile_scope {0}_0 {1} tail=mask as {0}_0r,{0}_0t", x, std::min(lines, kThreads * kFloats / depth));
    list_.move("swap_scopes {0}_0t {0}_1c", x);
    list_.move("unroll_scope {}_0r", x);
    list_.move("parallelize_block {}_1c", x);
    list_.move("parallelize_block {}_0t", x);
    list_.move("vectorize_scope {}_1v", x);
  }
  // Of one whose lines are.
  void copy_lines(const std::string& x, int64_t lines, int64_t depth) {
    list_.move("tile_scope {0}_1 {1} tail=mask as {0}_1c,{0}_1v", x, kFloats);
    list_.move("tile_scope {0}_0 {1} tail=mask as {0}_0r,{0}_0t", x, std::min(depth, kThreads * kFloats / lines));
    list_.move("unroll_scope {}_0r", x);
    list_.move("parallelize_block {}_0t", x);
    list_.move("parallelize_block {}_1c", x);
    list_.move("vectorize_scope {}_1v", x);
  }
  // What lines are read of at once lies together, and neighbours in the depth in different banks.
  void turn(const std::string& x) {
    list_.move("swap_dims {} 0 1", x);
    list_.move("repeat_padding {} 0 {}", x, kFloats);
  }

  // for mi: for ni  ->  for threads of rows: for threads of columns: for rows: for lanes. terms: the scope that both
  // are inside of, or none.
  void threads(const std::string& part, int64_t rows, const std::string& terms, bool exact) {
    const std::string m = m_ + part, n = n_ + part;
    list_.move("tile_scope {0} {1} tail={2} as {0}t,{0}r", m, rows, exact ? "exact" : "mask");
    list_.move("tile_scope {0} {1} tail={2} as {0}t,{0}v", n, kFloats, exact ? "exact" : "mask");
    if (exact) list_.move("swap_scopes {}r {}t", m, n);
    if (!terms.empty()) {
      list_.move("swap_scopes {} {}t", terms, m);
      list_.move("swap_scopes {} {}t", terms, n);
    }
    list_.move("parallelize_block {}t", m);
    list_.move("parallelize_block {}t", n);
    list_.move("unroll_scope {}r", m);
    list_.move("vectorize_scope {}v", n);
  }

 private:
  MoveList& list_;
  const std::string m_, n_, k_;
};

}  // namespace lathe::search
