// One search: a strategy's proposals for one Kernel at one shape evaluated batch by batch, the winner compiled into the
// store, the decision recorded. Proposals are replayed here first: what is refused, takes liberties that are not
// allowed or is known already costs no measurement.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/measure/evaluate.h"
#include "runtime/serve/context.h"
#include "search/strategy/strategy.h"

namespace lathe::runtime {

// Begins an evaluation where that is safe. TIMEOUT: the time is up. Anything else: it cannot, and the default stays, as
// a guess.
using Evaluator = std::function<ir::Result<std::unique_ptr<Evaluation>>(const EvaluateTask&)>;
// In the measuring worker. The client outlives it; cancelled may be empty.
class WorkerClient;
Evaluator worker_evaluator(WorkerClient& worker, std::function<bool()> cancelled);

// What a search found out that is cut into pieces: the next piece proposes the same and measures only what is new.
struct SearchMemory {
  struct Known {
    search::Outcome outcome = search::Outcome::timed;
    double share = 0;  // of the default's time
  };
  std::map<std::string, Known> candidates;  // by Schedule text
  std::vector<double> curve;
  // us as the strategy expected it and as it was measured, of the candidates it had an opinion of, in the order of
  // their measurement.
  std::vector<std::pair<double, double>> expected;
  int timed = 0;
};

struct SearchTask {
  search::Problem problem;
  DecisionQuery query;
  SymbolValues dims;
  int candidates =
      16;           // measurements: distinct candidates timed, the default among them, and what is known from before
  int planned = 0;  // what the strategy reckons with, if pieces are to follow; 0: candidates
  SearchMemory memory;  // of the pieces before
  double budget_ms = 0;
  uint64_t seed = 0;
  int64_t ram = 0;                  // operands beyond it are not timed
  std::function<bool()> cancelled;  // may be empty
  // What the caller can serve: nothing else is proposed. Empty: all.
  std::function<bool(const ir::Kernel& scheduled)> admits;
  bool aside = false;                         // beside other work: shorter samples
  std::optional<search::Schedule> pinned;     // to verify, time and record without a search
  std::optional<search::Schedule> incumbent;  // what serves now, as a second reference; none: the default
  bool stop_early = true;                     // the strategy may end before its measurements are spent
  double limit_us = 0;                        // no candidate can be faster (the roofline); 0: unknown
  // What the strategy starts from: the family's model, the machine; null: none, assumed.
  std::shared_ptr<const search::CostModel> model;
  std::shared_ptr<const search::MachineRates> rates;
  std::function<void(const search::TaskRecord&)>
      keep;  // gets the rows of this task when they are all there; may be empty
};

struct SearchOutcome {
  bool recorded = false;
  bool measured = false;   // by evaluation; else the default was recorded as provisional, `note` says why
  bool no_worker = false;  // that is why
  bool tie = true;
  int measurements = 0;  // candidates timed, those of the pieces before included
  SearchMemory memory;   // for the next piece
  int further = 0;       // samples beyond three a candidate: references, re-timing, deciding
  int verifications = 0;
  int proposals = 0;                       // of the strategy
  int refused = 0;                         // by the predicate or in replay
  int duplicates = 0;                      // of a candidate that was evaluated: they cost nothing
  int rejected = 0;                        // wrong, crashed, hung
  std::map<std::string, int> rejected_by;  // refused, duplicate, wrong, crashed, hung: how many
  std::vector<double> curve;               // us, best so far after each measurement
  bool exhausted = false;                  // nothing is left to propose
  double best_us = 0, default_us = 0;
  search::Scheduled winner;
  std::string note;
};

// INTERNAL: no candidate is right; names the first reason. CANCELLED; TIMEOUT: nothing is recorded. `like`: the winner
// of a similar shape, tried where timing is impossible.
ir::Result<SearchOutcome> search_and_record(Context& context, const SearchTask& task, const Evaluator& evaluate,
                                            const std::optional<search::Schedule>& like);

// Bytes of the Kernel's operands at these dims; INT64_MAX if that cannot be said.
int64_t operand_bytes(const ir::Kernel& kernel, const SymbolValues& dims);

}  // namespace lathe::runtime
