// Evaluates Schedules of one Kernel at one shape: build all, verify all, then time those that are
// right, and verify the winner again. In process; worker_client.h does the same in a child, which
// is where what is not trusted belongs.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ir/status.h"
#include "runtime/leaf_cache.h"
#include "runtime/nest_bind.h"
#include "runtime/oracle.h"

namespace lathe::runtime {

struct EvaluateTask {
  std::string kernel_text;  // naive, restricted to the range it serves
  SymbolValues dims;
  int threads = 1;
  bool cold = false;                   // constant operands come from memory
  std::string isa;                     // caps the host's level; empty: none
  std::vector<std::string> schedules;  // [0]: the default
  uint64_t seed = 0;
  double budget_ms = 0;  // of verifying and timing together; 0: none
  // Fault injection for tests of the gates and the worker, by schedule: see plant.h. Empty in
  // earnest.
  std::vector<std::string> plants;
};

struct CandidateResult {
  enum class Outcome : uint8_t { timed, refused, wrong, crashed, hung, skipped };
  Outcome outcome = Outcome::skipped;
  std::string reason;  // unless timed
  Gate gate = Gate::none;
  double err_over_bound = 0;
  int rounds = 0;
  double min_us = 0, median_us = 0;
  double interval_lo = 0, interval_hi = 0;  // gain over the default in per cent of its time: 95 %
                                            // interval; 0, 0 unless a finalist
};
const char* outcome_name(CandidateResult::Outcome outcome);

struct EvaluateResult {
  std::vector<CandidateResult> candidates;
  int winner = -1;  // index; 0: the default stays; -1: nothing is right
  bool tie = true;  // nobody beats the default by 1 % for certain
  int measurements = 0;
  double default_us = 0, best_us = 0;  // medians
};

enum class EvaluatePhase : uint8_t { build, verify, time, confirm };
const char* phase_name(EvaluatePhase phase);

struct EvaluateHooks {
  std::function<void(int candidate, EvaluatePhase phase)>
      progress;  // before work on a candidate starts
  std::function<void(int candidate, const CandidateResult&)>
      settled;                                // refused, wrong or skipped already
  std::function<void(const Oracle*)> oracle;  // the one in use; null before it goes
};

// INVALID: text that does not parse, no schedule, an unknown ISA.
ir::Result<EvaluateResult> evaluate_in_process(const EvaluateTask& task, LeafCache& leaves,
                                               const EvaluateHooks& hooks = {});

}  // namespace lathe::runtime
