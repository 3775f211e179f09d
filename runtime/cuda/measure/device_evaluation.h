// An Evaluation (runtime/measure/evaluate.h) of Schedules for a GPU, in this process: V0 replay, V1 the witness, V2
// what the compiler's log and the cubin say, V3 the device's results against the oracle's, then times of launches in a
// graph. A GPU that fails takes everything of this process on it along: a child is where this belongs.
#pragma once
#include <functional>
#include <memory>

#include "runtime/measure/evaluation.h"

namespace lathe::runtime {

// lost, if not empty: the device failed under that candidate, and this process can do nothing more on it; a worker says
// so and ends. Else the candidate crashed, and so do all after it. DEVICE: no such device.
ir::Result<std::unique_ptr<Evaluation>> begin_device_evaluation(
    EvaluateTask task, EvaluationHooks hooks = {},
    std::function<void(int candidate, const std::string& what)> lost = {});

}  // namespace lathe::runtime
