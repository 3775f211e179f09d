// What the measuring worker and its client say to each other: one JSON object a line. Candidates are numbered as
// Evaluation numbers them (evaluate.h), from the last `begin`.
//   client → worker
//     {"begin": task} | {"screen": [candidates]} | {"decide": [numbers], "incumbent": number}
//   worker → client
//     {"progress": candidate, "phase": n}      work on a candidate starts (in the timing: at its first sample, then
//                                              seldom)
//     {"settled": candidate, "result": {...}}  what came of it; the last word on it holds
//     {"fault": candidate, "signal": n, "what": "x + 4096"}   last words, from the signal handler; signal 0: a GPU
//                                              failed, and `what` says how
//     {"done": true} | {"decision": {...}} | {"error": message, "code": n}   the answer; one each
#pragma once
#include <string>
#include <string_view>

#include "ir/base/status.h"
#include "runtime/measure/evaluate.h"

namespace lathe::runtime {

struct WorkerRequest {
  enum class Kind : uint8_t { begin, screen, decide };
  Kind kind = Kind::begin;
  EvaluateTask task;
  std::vector<CandidateSpec> batch;
  std::vector<int> finalists;
  int incumbent = -1;
};

struct WorkerMessage {
  enum class Kind : uint8_t { progress, settled, fault, done, decision, error };
  Kind kind = Kind::progress;
  int candidate = -1;
  EvaluatePhase phase = EvaluatePhase::build;
  CandidateResult result;
  int signal = 0;
  std::string what;  // fault, error
  ir::Code code = ir::Code::kINTERNAL;
  FinalResult decision;
};

// Each with its newline.
std::string encode_begin(const EvaluateTask& task);
std::string encode_screen(const std::vector<CandidateSpec>& batch);
std::string encode_decide(const std::vector<int>& finalists, int incumbent);
std::string encode_progress(int candidate, EvaluatePhase phase);
std::string encode_settled(int candidate, const CandidateResult& result);
std::string encode_fault(int candidate, const std::string& what);  // of a GPU
std::string encode_done();
std::string encode_decision(const FinalResult& decision);
std::string encode_error(const ir::Status& status);
// INVALID: not what the other side writes.
ir::Result<WorkerRequest> decode_request(std::string_view line);
ir::Result<WorkerMessage> decode_message(std::string_view line);

}  // namespace lathe::runtime
