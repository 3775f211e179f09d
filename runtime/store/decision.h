// A decision: which Schedule serves a Kernel over a range of shapes on a kind of machine, why,
// and what else was tried. The record behind tier T2, as text (docs/store.md). Plain values and
// pure functions; the store only sees the text.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/status.h"
#include "runtime/store/key.h"

namespace lathe::runtime {

// verified: measured, equal to the oracle. provisional: still to be verified or measured again.
// tie: nothing beat the default.
enum class DecisionStatus : uint8_t { verified, provisional, tie };
const char* decision_status_name(DecisionStatus status);

struct CandidateTime {
  std::string schedule_hash;
  int64_t rounds = 0;
  double min_us = 0, median_us = 0;
  double interval_lo = 0, interval_hi = 0;  // of the paired difference to the default, in percent
};

struct OracleSummary {
  int64_t data_sets = 0;
  double worst_err_over_bound = 0;
  std::string gate;  // exact, bound, table
};

struct Decision {
  std::string key;          // base-ranges, as the object's name
  std::string environment;  // hash of the decision environment
  std::string op;           // for people: "matmul M=1..1"
  int64_t epoch = 0;
  uint32_t numeric = 0;
  DecisionStatus status = DecisionStatus::provisional;
  // A guess: nobody timed it.
  bool unmeasured() const { return status == DecisionStatus::provisional && best_us <= 0; }
  double default_us = 0, best_us = 0;
  OracleSummary oracle;
  std::string kernel;    // its name
  std::string schedule;  // its text, lines
  std::vector<std::string> leaf_keys;
  std::vector<CandidateTime> candidates;
};

// Where decisions of a kind of machine stand, and the epoch of the code that they are about.
struct DecisionHome {
  Identity environment;
  int64_t epoch = 0;
};

std::string print_decision(const Decision& decision);
// INVALID with the line. Accepts exactly what print_decision writes: fixed order, no unknown line,
// finite numbers.
ir::Result<Decision> parse_decision(std::string_view text);

}  // namespace lathe::runtime
