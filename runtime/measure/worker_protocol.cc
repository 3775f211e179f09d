// See worker_protocol.h. nlohmann's parser runs without exceptions; types are checked field by
// field.
#include "runtime/measure/worker_protocol.h"

#include <nlohmann/json.hpp>

namespace lathe::runtime {
namespace {

using Json = nlohmann::json;

template <class T>
bool take(const Json& j, const char* name, T* out) {
  const auto it = j.find(name);
  if (it == j.end()) return false;
  if constexpr (std::is_same_v<T, std::string>) {
    if (!it->is_string()) return false;
  } else if constexpr (std::is_same_v<T, bool>) {
    if (!it->is_boolean()) return false;
  } else {
    if (!it->is_number()) return false;
  }
  *out = it->template get<T>();
  return true;
}

template <class T>
bool take(const Json& j, const char* name, std::vector<T>* out) {
  const auto it = j.find(name);
  if (it == j.end() || !it->is_array()) return false;
  for (const Json& e : *it) {
    if (!e.is_number()) return false;
    out->push_back(e.get<T>());
  }
  return true;
}

// Infinity has no JSON spelling.
double finite(double v) { return v > 1e300 ? 1e300 : v == v ? v : 0; }

Json candidate_json(const CandidateResult& c) {
  return {{"outcome", static_cast<int>(c.outcome)},
          {"step", static_cast<int>(c.step)},
          {"reason", c.reason},
          {"gate", static_cast<int>(c.gate)},
          {"err", finite(c.err_over_bound)},
          {"samples_us", c.samples_us},
          {"reference_us", c.reference_us},
          {"provisional", c.provisional},
          {"code", c.code_bytes},
          {"lo", finite(c.interval_lo)},
          {"hi", finite(c.interval_hi)}};
}

bool take_candidate(const Json& j, CandidateResult* c) {
  int outcome = -1, gate = -1, step = -1;
  const bool ok = j.is_object() && take(j, "outcome", &outcome) && take(j, "step", &step) &&
                  take(j, "reason", &c->reason) && take(j, "gate", &gate) && take(j, "err", &c->err_over_bound) &&
                  take(j, "samples_us", &c->samples_us) && take(j, "reference_us", &c->reference_us) &&
                  take(j, "provisional", &c->provisional) && take(j, "code", &c->code_bytes) &&
                  take(j, "lo", &c->interval_lo) && take(j, "hi", &c->interval_hi);
  if (!ok || outcome < 0 || outcome > static_cast<int>(search::Outcome::skipped) || step < 0 ||
      step > static_cast<int>(Step::after) || gate < 0 || gate > static_cast<int>(Gate::table)) {
    return false;
  }
  c->outcome = static_cast<search::Outcome>(outcome);
  c->step = static_cast<Step>(step);
  c->gate = static_cast<Gate>(gate);
  return true;
}

bool take_decision(const Json& j, FinalResult* r) {
  const auto list = j.find("finalists");
  if (list == j.end() || !list->is_array()) return false;
  for (const Json& c : *list) {
    r->finalists.emplace_back();
    if (!take(c, "number", &r->finalists.back().first) || !take_candidate(c, &r->finalists.back().second)) return false;
  }
  return take(j, "winner", &r->winner) && take(j, "tie", &r->tie) && take(j, "further", &r->further) &&
         take(j, "default_us", &r->default_us) && take(j, "best_us", &r->best_us) && r->winner >= -1;
}

bool take_task(const Json& j, EvaluateTask* task) {
  const bool ok = j.is_object() && take(j, "kernel", &task->kernel_text) && take(j, "threads", &task->threads) &&
                  take(j, "cold", &task->cold) && take(j, "target", &task->target) && take(j, "seed", &task->seed) &&
                  take(j, "budget_ms", &task->budget_ms) && take(j, "aside", &task->aside) &&
                  take(j, "placements", &task->placements) && take(j, "device", &task->device) &&
                  take(j, "cuda", &task->cuda) && take(j, "nvrtc", &task->nvrtc) && j.contains("dims") &&
                  j["dims"].is_array();
  if (!ok) return false;
  for (const Json& d : j["dims"]) {
    if (!d.is_array() || d.size() != 2 || !d[0].is_string() || !d[1].is_number_integer()) return false;
    task->dims.emplace_back(d[0].get<std::string>(), d[1].get<int64_t>());
  }
  return true;
}

bool take_batch(const Json& j, std::vector<CandidateSpec>* batch) {
  if (!j.is_array()) return false;
  for (const Json& c : j) {
    CandidateSpec& spec = batch->emplace_back();
    if (!c.is_object() || !take(c, "schedule", &spec.schedule) || !take(c, "time", &spec.time)) return false;
  }
  return true;
}

std::string line(const Json& j) { return j.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace

std::string encode_begin(const EvaluateTask& task) {
  Json dims = Json::array();
  for (const auto& [name, value] : task.dims) dims.push_back({name, value});
  return line({{"begin",
                {{"kernel", task.kernel_text},
                 {"dims", dims},
                 {"threads", task.threads},
                 {"cold", task.cold},
                 {"target", task.target},
                 {"seed", task.seed},
                 {"placements", task.placements},
                 {"budget_ms", task.budget_ms},
                 {"aside", task.aside},
                 {"device", task.device},
                 {"cuda", task.cuda},
                 {"nvrtc", task.nvrtc}}}});
}

std::string encode_screen(const std::vector<CandidateSpec>& batch) {
  Json list = Json::array();
  for (const CandidateSpec& c : batch) list.push_back({{"schedule", c.schedule}, {"time", c.time}});
  return line({{"screen", list}});
}

std::string encode_decide(const std::vector<int>& finalists, int incumbent) {
  return line({{"decide", finalists}, {"incumbent", incumbent}});
}

std::string encode_progress(int candidate, EvaluatePhase phase) {
  return line({{"progress", candidate}, {"phase", static_cast<int>(phase)}});
}

std::string encode_settled(int candidate, const CandidateResult& result) {
  return line({{"settled", candidate}, {"result", candidate_json(result)}});
}

std::string encode_fault(int candidate, const std::string& what) {
  return line({{"fault", candidate}, {"signal", 0}, {"what", what}});
}

std::string encode_done() { return line({{"done", true}}); }

std::string encode_decision(const FinalResult& r) {
  Json list = Json::array();
  for (const auto& [number, result] : r.finalists) {
    list.push_back(candidate_json(result));
    list.back()["number"] = number;
  }
  return line({{"decision",
                {{"finalists", list},
                 {"winner", r.winner},
                 {"tie", r.tie},
                 {"further", r.further},
                 {"default_us", r.default_us},
                 {"best_us", r.best_us}}}});
}

std::string encode_error(const ir::Status& status) {
  return line({{"error", status.message()}, {"code", static_cast<int>(status.code())}});
}

ir::Result<WorkerRequest> decode_request(std::string_view text) {
  const Json j = Json::parse(text, nullptr, false);
  WorkerRequest r;
  if (j.is_object() && j.contains("begin") && take_task(j["begin"], &r.task)) return r;
  r.kind = WorkerRequest::Kind::screen;
  if (j.is_object() && j.contains("screen") && take_batch(j["screen"], &r.batch)) return r;
  r.kind = WorkerRequest::Kind::decide;
  if (j.is_object() && take(j, "decide", &r.finalists) && take(j, "incumbent", &r.incumbent)) return r;
  return ir::invalid("not a request to a worker");
}

ir::Result<WorkerMessage> decode_message(std::string_view text) {
  const Json j = Json::parse(text, nullptr, false);
  WorkerMessage m;
  int phase = 0, code = 0;
  bool done = false;
  if (!j.is_object()) return ir::invalid("not a message of the worker");
  if (take(j, "progress", &m.candidate) && take(j, "phase", &phase) && phase >= 0 &&
      phase <= static_cast<int>(EvaluatePhase::confirm)) {
    m.phase = static_cast<EvaluatePhase>(phase);
    return m;
  }
  m.kind = WorkerMessage::Kind::settled;
  if (take(j, "settled", &m.candidate) && j.contains("result") && take_candidate(j["result"], &m.result)) return m;
  m.kind = WorkerMessage::Kind::fault;
  if (take(j, "fault", &m.candidate) && take(j, "signal", &m.signal) && take(j, "what", &m.what)) return m;
  m.kind = WorkerMessage::Kind::error;
  if (take(j, "error", &m.what) && take(j, "code", &code)) {
    m.code = static_cast<ir::Code>(code);
    return m;
  }
  m.kind = WorkerMessage::Kind::done;
  if (take(j, "done", &done)) return m;
  m.kind = WorkerMessage::Kind::decision;
  if (j.contains("decision") && j["decision"].is_object() && take_decision(j["decision"], &m.decision)) return m;
  return ir::invalid("not a message of the worker");
}

}  // namespace lathe::runtime
