// Expressions that simplify() found in canonical form, so that it need not prove that again. The moves of a Schedule
// meet the same extents one after the other: most of what they ask is known. No result depends on it.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "ir/analysis/analysis.h"

namespace lathe::ir {

// In force on the thread that makes it until it ends. One within another adds nothing: the outer one goes on. Keeps few
// expressions alive, the latest ones.
class SimplifyMemo {
 public:
  SimplifyMemo();
  ~SimplifyMemo();
  SimplifyMemo(const SimplifyMemo&) = delete;
  SimplifyMemo& operator=(const SimplifyMemo&) = delete;

  static SimplifyMemo* current();  // null: none is in force on this thread
  // Whether this very node was learnt where all that counts was known as it is here.
  bool knows(const Expr& e, const Ranges& ranges) const;
  void learn(const Expr& e, const Ranges& ranges);

 private:
  // What is known of a name: the expression has it, or an extent that counts does.
  struct Fact {
    std::string name;
    bool known = false;
    int depth = -1;
    Interval range;
    int64_t multiple = 1;
    Expr extent;
    Points at;
    bool holds(const Ranges& ranges) const;
  };
  struct Canonical {
    Expr e;
    std::vector<Fact> facts;  // outer names first
  };
  static void collect(const Expr& e, const Ranges& ranges, std::vector<Fact>& facts);

  SimplifyMemo* const outer_;
  std::array<Canonical, 24> canonical_;
  size_t next_ = 0;
};

}  // namespace lathe::ir
