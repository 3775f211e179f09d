// What the measuring worker and its client say to each other: one JSON object a line.
//   client → worker   a task
//   worker → client   {"progress": candidate, "phase": "verify"}   work on a candidate starts (in
//   the timing: at its first sample, then seldom)
//                     {"fault": candidate, "signal": n, "what": "x + 4096"}   last words, from the
//                     signal handler
//                     {"result": ...} or {"error": message, "code": n}
#pragma once
#include <string>
#include <string_view>

#include "ir/status.h"
#include "runtime/evaluate.h"

namespace lathe::runtime {

struct WorkerMessage {
  enum class Kind : uint8_t { progress, fault, result, error };
  Kind kind = Kind::progress;
  int candidate = -1;
  EvaluatePhase phase = EvaluatePhase::build;
  int signal = 0;
  std::string what;  // fault, error
  ir::Code code = ir::Code::kINTERNAL;
  EvaluateResult result;
};

// Each with its newline.
std::string encode_task(const EvaluateTask& task);
std::string encode_progress(int candidate, EvaluatePhase phase);
std::string encode_result(const EvaluateResult& result);
std::string encode_error(const ir::Status& status);
// INVALID: not what the other side writes.
ir::Result<EvaluateTask> decode_task(std::string_view line);
ir::Result<WorkerMessage> decode_message(std::string_view line);

}  // namespace lathe::runtime
