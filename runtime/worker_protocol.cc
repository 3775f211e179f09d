// See worker_protocol.h. nlohmann's parser runs without exceptions; types are checked field by
// field.
#include "runtime/worker_protocol.h"

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

bool take(const Json& j, const char* name, std::vector<std::string>* out) {
  const auto it = j.find(name);
  if (it == j.end() || !it->is_array()) return false;
  for (const Json& e : *it) {
    if (!e.is_string()) return false;
    out->push_back(e.get<std::string>());
  }
  return true;
}

// Infinity has no JSON spelling.
double finite(double v) { return v > 1e300 ? 1e300 : v == v ? v : 0; }

Json candidate_json(const CandidateResult& c) {
  return {{"outcome", static_cast<int>(c.outcome)},
          {"reason", c.reason},
          {"gate", static_cast<int>(c.gate)},
          {"err", finite(c.err_over_bound)},
          {"rounds", c.rounds},
          {"min_us", c.min_us},
          {"median_us", c.median_us},
          {"lo", finite(c.interval_lo)},
          {"hi", finite(c.interval_hi)}};
}

bool take_candidate(const Json& j, CandidateResult* c) {
  int outcome = -1, gate = -1;
  const bool ok = j.is_object() && take(j, "outcome", &outcome) && take(j, "reason", &c->reason) &&
                  take(j, "gate", &gate) && take(j, "err", &c->err_over_bound) &&
                  take(j, "rounds", &c->rounds) && take(j, "min_us", &c->min_us) &&
                  take(j, "median_us", &c->median_us) && take(j, "lo", &c->interval_lo) &&
                  take(j, "hi", &c->interval_hi);
  if (!ok || outcome < 0 || outcome > static_cast<int>(CandidateResult::Outcome::skipped) ||
      gate < 0 || gate > static_cast<int>(Gate::table)) {
    return false;
  }
  c->outcome = static_cast<CandidateResult::Outcome>(outcome);
  c->gate = static_cast<Gate>(gate);
  return true;
}

bool take_result(const Json& j, EvaluateResult* r) {
  const auto list = j.find("candidates");
  if (list == j.end() || !list->is_array()) return false;
  for (const Json& c : *list) {
    if (!take_candidate(c, &r->candidates.emplace_back())) return false;
  }
  return take(j, "winner", &r->winner) && take(j, "tie", &r->tie) &&
         take(j, "measurements", &r->measurements) && take(j, "default_us", &r->default_us) &&
         take(j, "best_us", &r->best_us) && r->winner >= -1 &&
         r->winner < static_cast<int>(r->candidates.size());
}

std::string line(const Json& j) {
  return j.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string encode_task(const EvaluateTask& task) {
  Json dims = Json::array();
  for (const auto& [name, value] : task.dims) dims.push_back({name, value});
  return line({{"kernel", task.kernel_text},
               {"dims", dims},
               {"threads", task.threads},
               {"cold", task.cold},
               {"isa", task.isa},
               {"schedules", task.schedules},
               {"seed", task.seed},
               {"budget_ms", task.budget_ms},
               {"plants", task.plants}});
}

std::string encode_progress(int candidate, EvaluatePhase phase) {
  return line({{"progress", candidate}, {"phase", static_cast<int>(phase)}});
}

std::string encode_result(const EvaluateResult& r) {
  Json list = Json::array();
  for (const CandidateResult& c : r.candidates) list.push_back(candidate_json(c));
  return line({{"result",
                {{"candidates", list},
                 {"winner", r.winner},
                 {"tie", r.tie},
                 {"measurements", r.measurements},
                 {"default_us", r.default_us},
                 {"best_us", r.best_us}}}});
}

std::string encode_error(const ir::Status& status) {
  return line({{"error", status.message()}, {"code", static_cast<int>(status.code())}});
}

ir::Result<EvaluateTask> decode_task(std::string_view text) {
  const Json j = Json::parse(text, nullptr, false);
  EvaluateTask task;
  bool ok = j.is_object() && take(j, "kernel", &task.kernel_text) &&
            take(j, "threads", &task.threads) && take(j, "cold", &task.cold) &&
            take(j, "isa", &task.isa) && take(j, "schedules", &task.schedules) &&
            take(j, "seed", &task.seed) && take(j, "budget_ms", &task.budget_ms) &&
            take(j, "plants", &task.plants) && j.contains("dims") && j["dims"].is_array();
  if (ok) {
    for (const Json& d : j["dims"]) {
      ok = ok && d.is_array() && d.size() == 2 && d[0].is_string() && d[1].is_number_integer();
      if (ok) task.dims.emplace_back(d[0].get<std::string>(), d[1].get<int64_t>());
    }
  }
  if (!ok) return ir::invalid("not a task");
  return task;
}

ir::Result<WorkerMessage> decode_message(std::string_view text) {
  const Json j = Json::parse(text, nullptr, false);
  WorkerMessage m;
  int phase = 0, code = 0;
  if (!j.is_object()) return ir::invalid("not a message of the worker");
  if (take(j, "progress", &m.candidate) && take(j, "phase", &phase) && phase >= 0 &&
      phase <= static_cast<int>(EvaluatePhase::confirm)) {
    m.phase = static_cast<EvaluatePhase>(phase);
    return m;
  }
  if (take(j, "fault", &m.candidate) && take(j, "signal", &m.signal) && take(j, "what", &m.what)) {
    m.kind = WorkerMessage::Kind::fault;
    return m;
  }
  if (take(j, "error", &m.what) && take(j, "code", &code)) {
    m.kind = WorkerMessage::Kind::error;
    m.code = static_cast<ir::Code>(code);
    return m;
  }
  m.kind = WorkerMessage::Kind::result;
  if (j.contains("result") && j["result"].is_object() && take_result(j["result"], &m.result))
    return m;
  return ir::invalid("not a message of the worker");
}

}  // namespace lathe::runtime
