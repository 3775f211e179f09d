// Who touched which element of memory, by the address at which it begins. Lines are made once and serve block after
// block: what is older than the turn that asks counts for nothing.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>

namespace lathe::test {

struct Touch {
  int64_t turn = 0;  // barriers before it, from 1 on
  int writer = -1, reader = -1;
  bool readers = false;           // more than one
  bool warps = false;             // readers of several warps
  int32_t written = 0, read = 0;  // barriers of the writer's and of the reader's warp before that
};

class TouchMap {
 public:
  // Untouched, if it was not in this turn.
  Touch& at(uintptr_t address, int64_t turn) {
    Touch& t = line(address / kLine)[address % kLine];
    if (t.turn != turn) {
      t = {};
      t.turn = turn;
    }
    return t;
  }
  // Elements that begin in [from, from + bytes) are untouched.
  void forget(uintptr_t from, uintptr_t bytes) {
    for (uintptr_t at = from; at < from + bytes; ++at) line(at / kLine)[at % kLine].turn = 0;
  }
  int64_t last_turn = 0;  // of the blocks before

 private:
  static constexpr uintptr_t kLine = 128;
  using Line = std::array<Touch, kLine>;
  Line& line(uintptr_t number) {
    if (last_ != nullptr && number == last_number_) return *last_;
    std::unique_ptr<Line>& known = lines_[number];
    if (known == nullptr) known = std::make_unique<Line>();
    last_number_ = number;
    last_ = known.get();
    return *last_;
  }
  std::unordered_map<uintptr_t, std::unique_ptr<Line>> lines_;
  uintptr_t last_number_ = 0;
  Line* last_ = nullptr;
};

}  // namespace lathe::test
