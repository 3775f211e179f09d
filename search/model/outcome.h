// What comes of a candidate, from the proposal to the store: one list for strategies, evaluations, workers and records.
#pragma once
#include <cstdint>

namespace lathe::search {

enum class Outcome : uint8_t {
  timed,
  refused,  // its moves, its code, or what the caller can serve
  wrong,
  crashed,
  hung,
  skipped,  // not asked: the same as another one, or there was no time left
};
inline constexpr const char* kOutcomeNames[] = {"timed", "refused", "wrong", "crashed", "hung", "skipped"};
inline const char* outcome_name(Outcome outcome) { return kOutcomeNames[static_cast<int>(outcome)]; }
// It ran, or would have run, and may not.
inline bool rejected(Outcome outcome) {
  return outcome == Outcome::wrong || outcome == Outcome::crashed || outcome == Outcome::hung;
}

}  // namespace lathe::search
