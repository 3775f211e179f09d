// What the analyses found out, so that they need not find it out again: expressions that simplify() found in canonical
// form, and what is known of an iterator in its scope. The moves of a Schedule meet the same scopes and extents one
// after the other: most of what they ask is known. No result depends on it.
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

  // A name that joins ranges, which have a number. What is known of the name follows from its extent, if it has one.
  struct Place {
    uint64_t outer = 0;  // of ranges that know nothing
    std::string name;
    Expr extent;
    Interval range;
    int64_t multiple = 1;
    Points at;
    uint64_t id = 0;
  };
  // Of an iterator with that extent in the ranges of that number; null: it is not known.
  const Place* scope(uint64_t outer, const std::string& name, const Expr& extent) const;
  // The number of ranges that end with a name, of which that is known.
  uint64_t id_of(uint64_t outer, const std::string& name, const Expr& extent, const Interval& range, int64_t multiple,
                 const Points& at);

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

  static constexpr size_t kPlaces = 192, kSlots = 509;
  static size_t slot_of(uint64_t outer, const std::string& name);
  const Place* place_at(size_t slot, uint64_t outer, const std::string& name, const Expr& extent) const;

  SimplifyMemo* const outer_;
  std::array<Canonical, 24> canonical_;
  size_t next_ = 0;
  std::vector<Place> places_;  // the latest
  size_t next_place_ = 0;
  std::array<uint8_t, kSlots> slots_{};  // 1 + where a place is that was learnt last of those with this slot
  uint64_t last_id_ = 0;
};

}  // namespace lathe::ir
