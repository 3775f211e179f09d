// An Evaluation (evaluate.h) in this process. What is not trusted is evaluated in a child: worker_client.h.
#pragma once
#include "runtime/compile/leaf_cache.h"
#include "runtime/measure/evaluate.h"
#include "runtime/oracle/stage_maker.h"

namespace lathe::runtime {

struct EvaluationHooks {
  std::function<void(int candidate, EvaluatePhase phase)> progress;  // before work on a candidate starts
  // Around the compilation of each of several at once, on the thread that compiles; progress() comes from it as well.
  std::function<void(int candidate, bool begins)> compiles;
  std::function<void(int candidate, const CandidateResult&)> settled;
  std::function<void(const Oracle*)> oracle;  // the one in use; null before it goes
  std::shared_ptr<StageMaker> stages = std::make_shared<StageMaker>();
};

// INVALID: a kernel that does not parse, an unknown ISA. leaves outlives it; made with keep_images, images are linted.
ir::Result<std::unique_ptr<Evaluation>> begin_evaluation(EvaluateTask task, LeafCache& leaves,
                                                         EvaluationHooks hooks = {});

}  // namespace lathe::runtime
