// Evaluates Schedules of one Kernel at one shape, batch by batch: build and verify what a batch holds, time what is
// right, and in the end decide among the best (docs/measuring.md). evaluation.h does it in this process,
// worker_client.h in a child, which is where what is not trusted belongs; a search drives either through this
// interface.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "runtime/measure/sample.h"
#include "runtime/oracle/oracle.h"
#include "runtime/walk/nest_bind.h"
#include "search/model/outcome.h"

namespace lathe::runtime {

struct EvaluateTask {
  std::string kernel_text;  // naive, restricted to the range it serves
  SymbolValues dims;
  int threads = 1;
  bool cold = false;             // constant operands come from memory
  std::string target;            // the machine it is meant for, ir::Target::to_string(); empty: the host
  int placements = kPlacements;  // of operands that are timed
  uint64_t seed = 0;
  double budget_ms = 0;  // of verifying and timing together; 0: none
  bool aside = false;    // beside other work: shorter samples
  // A GPU: as lathe_policy.device counts them, with the libraries of the options `cuda` and `nvrtc`; 0: the CPU.
  int device = 0;
  std::string cuda, nvrtc;
};

struct CandidateSpec {
  std::string schedule;
  bool time = true;  // false: build and verify only
};

// Who caught it: replay and predicate; finite-field witness; image lint; code on the real shape; after it was timed.
enum class Step : uint8_t { none, V0, V1, V2, V3, after };
const char* step_name(Step step);

struct CandidateResult {
  search::Outcome outcome = search::Outcome::skipped;
  Step step = Step::none;  // that rejected it
  std::string reason;      // unless timed
  Gate gate = Gate::none;
  double err_over_bound = 0;
  std::vector<double> samples_us;  // of the screening, at most 3
  double reference_us = 0;         // the reference's time around then
  bool provisional = false;        // the machine moved under it
  int64_t code_bytes = 0;
  double interval_lo = 0, interval_hi = 0;  // gain over the default in per cent of its time: 95 %
                                            // interval; 0, 0 unless a finalist
  double us(bool cold) const;               // of its samples; 0: none
};

struct FinalResult {
  int winner = -1;  // number of a candidate; the reference: it stays; -1: nothing is right
  bool tie = true;  // nobody beats the reference by 1 % for certain
  int further = 0;  // samples of the whole task beyond the screening's
  double default_us = 0, best_us = 0;
  std::vector<std::pair<int, CandidateResult>> finalists;  // as they are now: intervals, or wrong after timing
};

enum class EvaluatePhase : uint8_t { build, verify, time, confirm };
const char* phase_name(EvaluatePhase phase);

class Evaluation {
 public:
  virtual ~Evaluation() = default;
  // In order. Candidates are numbered as they come, over all batches, from 0; the first right one that is timed (the
  // default should be the first of all) is the reference of all others. One that cannot be right is never timed.
  virtual ir::Result<std::vector<CandidateResult>> screen(const std::vector<CandidateSpec>& batch) = 0;
  // Candidates that were timed, best first; the incumbent (-1: none) is what serves now, if not the default. Screening
  // may go on afterwards as if nothing had been asked.
  virtual ir::Result<FinalResult> decide(const std::vector<int>& finalists, int incumbent) = 0;
};

// The numbers of the best, at most four, the reference left out: by what is believed of them (higher is faster; one for
// each candidate), else by time over the reference's time around then.
std::vector<int> choose_finalists(const std::vector<CandidateResult>& candidates, bool cold,
                                  const std::vector<double>& believed = {});

}  // namespace lathe::runtime
