// The way of one candidate from proposal to service, as a state machine: which state may follow which, and when each
// was entered. Pure: the time is handed in; whoever drives it measures, swaps and rolls back (online_tuner.h).
//
//   proposed -> verified -> faster -> [shadow -> canary] -> active
//   exits: rejected, tie, quarantined, rolled_back
//
// The bracket is walked exactly if the host lets real calls be used for trials.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ir/base/status.h"

namespace lathe::runtime {

enum class PromotionState : uint8_t {
#define LATHE_PROMOTION(id, final, help) id,
#include "runtime/live/promotion_states.def"
#undef LATHE_PROMOTION
};
#define LATHE_PROMOTION(id, final, help) +1
inline constexpr int kPromotionStates = 0
#include "runtime/live/promotion_states.def"
    ;
#undef LATHE_PROMOTION

const char* promotion_name(PromotionState state);
bool promotion_final(PromotionState state);
// Whether `to` may follow `from`; trials: real calls may be used.
bool may_follow(PromotionState from, PromotionState to, bool trials);

class Promotion {
 public:
  explicit Promotion(bool trials);

  PromotionState state() const { return steps_.back().state; }
  bool final() const { return promotion_final(state()); }
  bool trials() const { return trials_; }
  // STATE: `to` may not follow; nothing changes.
  ir::Status advance(PromotionState to, std::string reason = {});

  struct Step {
    PromotionState state;
    std::string reason;
  };
  const std::vector<Step>& steps() const { return steps_; }

 private:
  bool trials_;
  std::vector<Step> steps_;
};

}  // namespace lathe::runtime
