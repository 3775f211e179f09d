// Who touched which element of memory, by the address at which it begins. Lines are made once and serve block after
// block: what is older than the turn that asks counts for nothing.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>

namespace lathe::test {

// Small: most of the emulator's time goes by with reading these.
struct Touch {
  uint32_t turn = 0;  // barriers before it, from 1 on
  int16_t writer = -1, reader = -1;
  uint32_t written : 31 = 0;  // barriers of the writer's warp before that
  uint32_t readers : 1 = 0;   // more than one
  uint32_t read : 31 = 0;     // barriers of the reader's warp before that
  uint32_t warps : 1 = 0;     // readers of several warps
};

class TouchMap {
 public:
  // f(touch) of each element of an access, untouched, if it was not in this turn.
  template <class F>
  void each(uintptr_t from, uintptr_t bytes, uintptr_t element, uint32_t turn, F f) {
    for (uintptr_t at = from; at < from + bytes;) {
      Line& touches = line(at / kLine);
      for (const uintptr_t end = std::min(from + bytes, (at / kLine + 1) * kLine); at < end; at += element) {
        Touch& t = touches[at % kLine];
        if (t.turn != turn) {
          t = {};
          t.turn = turn;
        }
        f(t);
      }
    }
  }
  // Elements that begin in [from, from + bytes) are untouched.
  void forget(uintptr_t from, uintptr_t bytes) {
    for (uintptr_t at = from; at < from + bytes; ++at) line(at / kLine)[at % kLine].turn = 0;
  }
  uint32_t last_turn = 0;  // of the blocks before

 private:
  static constexpr uintptr_t kLine = 128, kRecent = 256;
  using Line = std::array<Touch, kLine>;
  Line& line(uintptr_t number) {
    Recent& recent = recent_[number % kRecent];
    if (recent.line == nullptr || recent.number != number) recent = {number, &known(number)};
    return *recent.line;
  }
  Line& known(uintptr_t number) {
    std::unique_ptr<Line>& out = lines_[number];
    if (out == nullptr) out = std::make_unique<Line>();
    return *out;
  }
  struct Recent {
    uintptr_t number = 0;
    Line* line = nullptr;
  };
  std::unordered_map<uintptr_t, std::unique_ptr<Line>> lines_;
  std::array<Recent, kRecent> recent_;
};

}  // namespace lathe::test
