// A whole list of candidates through an Evaluation: one batch, then the decision among its best.
#pragma once
#include <vector>

#include "runtime/measure/evaluate.h"

namespace lathe::runtime {

struct EvaluateResult {
  std::vector<CandidateResult> candidates;
  FinalResult decision;
  int measurements = 0;  // candidates timed
};

inline ir::Result<EvaluateResult> evaluate_all(Evaluation& evaluation, const std::vector<CandidateSpec>& candidates,
                                               bool cold) {
  EvaluateResult out;
  LATHE_ASSIGN(out.candidates, evaluation.screen(candidates));
  for (const CandidateResult& c : out.candidates) out.measurements += c.outcome == search::Outcome::timed;
  if (out.measurements == 0) return out;
  LATHE_ASSIGN(out.decision, evaluation.decide(choose_finalists(out.candidates, cold), -1));
  for (const auto& [i, result] : out.decision.finalists) out.candidates[static_cast<size_t>(i)] = result;
  return out;
}

}  // namespace lathe::runtime
