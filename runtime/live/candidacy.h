// One Kernel of one hot shape on its way to a better Schedule while calls run: proposes (search_and_record in the
// measuring worker), then moves its Promotion from state to state as evidence comes in: recorded calls, then a few real
// ones; swaps, and rolls back. Owns no thread; driven by online_tuner.h. Not thread-safe.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/live/promotion.h"
#include "runtime/live/trial_judge.h"
#include "runtime/serve/operator.h"
#include "runtime/tune/search_knowledge.h"
#include "runtime/tune/warmup_search.h"

namespace lathe::runtime {

struct CandidacyRules {
  int candidates = 8;  // of a search, the default among them
  int shadow_calls = 32;
  int64_t ram = int64_t{1} << 30;  // operands beyond a quarter of it are not timed
  TrialRules trial;
  double cpu_share = 0.02;  // of the children
};

// What it works with, for the length of a call.
struct CandidacyTools {
  Context& context;
  const CandidacyRules& rules;
  const Evaluator& evaluate;
  std::function<bool()> cancelled;
  std::function<bool()> paused;  // switched off for a while: what runs stands still
  std::function<int64_t()> now_ns;
  std::function<void(int64_t cpu_ns)> charge;  // CPU time of a child that nobody else counts
  SearchKnowledge* knowledge = nullptr;        // what a search starts from; null: nothing
  bool search = true;                          // false: only what is recorded already
  bool trials = false;                         // the host lets real calls be used
};

// Bytes of workspace that a call of the scheduled Kernel takes; of what cannot be bound more than there are.
int64_t workspace_of(const ir::Kernel& naive, const ir::Kernel& scheduled, const SymbolValues& dims, int threads);

class Candidacy {
 public:
  Candidacy(const std::shared_ptr<Operator>& op, const PrepareRequest& request, int kernel, LiveShape shape);

  // Finds a candidate. False: nothing was proposed (no record where searching is not allowed, cancelled); it may be
  // tried again later.
  bool propose(const CandidacyTools& tools);
  // Takes in what calls have shown; costly only if ready().
  void poll(const CandidacyTools& tools);
  // The next poll runs the worker.
  bool ready() const;
  // Real calls are used no more. A candidate that serves stays.
  void end_trial();

  bool proposed() const { return promotion_ != nullptr; }
  PromotionState state() const { return promotion_->state(); }
  bool settled() const {
    return promotion_ != nullptr && (promotion_->final() || promotion_->state() == PromotionState::active);
  }
  const Promotion* promotion() const { return promotion_.get(); }
  const HotShape* heat() const { return shape_.heat; }
  int kernel() const { return kernel_; }
  const SymbolValues& dims() const { return shape_.call.symbols; }
  double ratio() const { return judge_.median(); }

 private:
  void enter(const CandidacyTools& tools, PromotionState state, std::string reason = {});
  bool find(const CandidacyTools& tools, Operator& op);
  bool judge_search(const CandidacyTools& tools, const SearchOutcome& found);
  void take_up(const CandidacyTools& tools, Operator& op);
  void start_shadow(const CandidacyTools& tools, Operator& op);
  void run_shadow(const CandidacyTools& tools, Operator& op);
  void start_pairs(Operator& op, const BoundOp* other);
  void poll_canary(const CandidacyTools& tools, Operator& op);
  void watch(const CandidacyTools& tools, Operator& op);
  void disown(const CandidacyTools& tools, Operator& op);

  std::weak_ptr<Operator> op_;
  PrepareRequest request_;
  int kernel_;
  LiveShape shape_;
  const ServedStage* serving_;  // when this began
  search::Problem problem_;
  DecisionQuery query_;
  std::unique_ptr<Promotion> promotion_;
  search::Scheduled scheduled_;  // the candidate
  std::string text_;             // of its Schedule, as recorded: what the shadow gets
  const ServedStage* candidate_ = nullptr;
  const BoundOp* after_ = nullptr;  // the shape with it
  Trial* trial_ = nullptr;
  TrialJudge judge_;
};

}  // namespace lathe::runtime
