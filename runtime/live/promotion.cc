// See promotion.h.
#include "runtime/live/promotion.h"

#include <algorithm>
#include <initializer_list>

namespace lathe::runtime {
namespace {

using S = PromotionState;

struct Row {
  const char* name;
  bool final;
};
constexpr Row kRows[] = {
#define LATHE_PROMOTION(id, final, help) {#id, final},
#include "runtime/live/promotion_states.def"
#undef LATHE_PROMOTION
};

std::initializer_list<S> followers(S from, bool trials) {
  static constexpr std::initializer_list<S> kProposed = {S::verified, S::rejected, S::tie, S::quarantined};
  static constexpr std::initializer_list<S> kVerified = {S::faster, S::rejected, S::tie};
  static constexpr std::initializer_list<S> kFaster = {S::active, S::rejected};
  static constexpr std::initializer_list<S> kFasterTrials = {S::shadow, S::rejected};
  static constexpr std::initializer_list<S> kShadow = {S::canary, S::rejected, S::quarantined};
  static constexpr std::initializer_list<S> kCanary = {S::active, S::rejected, S::tie, S::rolled_back};
  static constexpr std::initializer_list<S> kActive = {S::rolled_back};
  switch (from) {
    case S::proposed:
      return kProposed;
    case S::verified:
      return kVerified;
    case S::faster:
      return trials ? kFasterTrials : kFaster;
    case S::shadow:
      return kShadow;
    case S::canary:
      return kCanary;
    case S::active:
      return kActive;
    default:
      return {};
  }
}

}  // namespace

const char* promotion_name(PromotionState state) { return kRows[static_cast<int>(state)].name; }
bool promotion_final(PromotionState state) { return kRows[static_cast<int>(state)].final; }

bool may_follow(PromotionState from, PromotionState to, bool trials) {
  const std::initializer_list<S> next = followers(from, trials);
  return std::find(next.begin(), next.end(), to) != next.end();
}

Promotion::Promotion(bool trials) : trials_(trials), steps_{{S::proposed, {}}} {}

ir::Status Promotion::advance(PromotionState to, std::string reason) {
  if (!may_follow(state(), to, trials_)) {
    return ir::make_error(ir::Code::kSTATE, "{} cannot follow {}{}", promotion_name(to), promotion_name(state()),
                          trials_ ? " with trials" : "");
  }
  steps_.push_back({to, std::move(reason)});
  return {};
}

}  // namespace lathe::runtime
