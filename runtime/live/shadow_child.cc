// Shadow runs in a child: see shadow.h. A line of JSON each way; between them an empty object per sign of life.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "runtime/base/clock.h"
#include "runtime/live/cpu_budget.h"
#include "runtime/live/shadow.h"
#include "runtime/measure/worker_process.h"

namespace lathe::runtime {

using ir::Result;
using Json = nlohmann::json;
using Outcome = ShadowResult::Outcome;

namespace {

constexpr int kPollMs = 100;
constexpr int kCpuSeconds = 60;
constexpr int64_t kBurstNs = 5'000'000;
constexpr const char* kAlive = "{}\n";

std::string dump(const Json& j) { return j.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

bool decode_answer(const std::string& line, ShadowResult* out) {
  const Json j = Json::parse(line, nullptr, false);
  if (!j.is_object() || !j.contains("outcome") || !j["outcome"].is_number_integer()) return false;
  const int outcome = j["outcome"].get<int>();
  if (outcome < 0 || outcome > static_cast<int>(Outcome::refused)) return false;
  out->outcome = static_cast<Outcome>(outcome);
  out->reason = j.value("reason", "");
  out->calls = j.value("calls", 0);
  out->err_over_bound = j.value("err", 0.0);
  return true;
}

}  // namespace

std::string encode_shadow(const ShadowTask& task) {
  Json dims = Json::array();
  for (const auto& [name, value] : task.dims) dims.push_back({name, value});
  return dump({{"kernel", task.kernel_text},
               {"schedule", task.schedule},
               {"dims", dims},
               {"threads", task.threads},
               {"target", task.target},
               {"recorded", task.recorded},
               {"seed", task.seed},
               {"share", task.cpu_share}});
}

Result<ShadowTask> decode_shadow(std::string_view line) {
  const Json j = Json::parse(line, nullptr, false);
  const auto text = [&](const char* name) { return j.contains(name) && j[name].is_string(); };
  const auto number = [&](const char* name) { return j.contains(name) && j[name].is_number(); };
  const bool ok = j.is_object() && text("kernel") && text("schedule") && text("target") && text("recorded") &&
                  number("threads") && number("seed") && number("share") && j.contains("dims") && j["dims"].is_array();
  if (!ok) return ir::invalid("not a shadow task");
  ShadowTask task;
  task.kernel_text = j["kernel"].get<std::string>();
  task.schedule = j["schedule"].get<std::string>();
  task.target = j["target"].get<std::string>();
  task.recorded = j["recorded"].get<std::string>();
  task.threads = j["threads"].get<int>();
  task.seed = j["seed"].get<uint64_t>();
  task.cpu_share = j["share"].get<double>();
  for (const Json& d : j["dims"]) {
    if (!d.is_array() || d.size() != 2 || !d[0].is_string() || !d[1].is_number_integer())
      return ir::invalid("not a shadow task");
    task.dims.emplace_back(d[0].get<std::string>(), d[1].get<int64_t>());
  }
  return task;
}

Result<ShadowResult> shadow_in_child(const ShadowTask& task, const ShadowChild& options) {
  WorkerProcess child;
  LATHE_RETURN_IF_ERROR(child.start(options.path, 0, kCpuSeconds, options.plugin_dir));
  clockid_t clock = 0;
  const bool timed = clock_getcpuclockid(child.pid(), &clock) == 0;
  ShadowResult out;
  ir::Status stream = child.send(encode_shadow(task), WorkerProcess::now_ms() + options.silence_ms);
  int64_t heard = WorkerProcess::now_ms();
  bool held = false;
  while (stream.ok()) {
    Result<std::string> line = child.receive(WorkerProcess::now_ms() + kPollMs);
    const int64_t cpu_ns = timed ? std::max(out.cpu_ns, clock_ns(clock)) : 0;
    if (options.used) options.used(cpu_ns - out.cpu_ns);
    out.cpu_ns = cpu_ns;
    if (options.cancelled && options.cancelled()) return ir::make_error(ir::Code::kCANCELLED, "cancelled");
    stream = line.status();
    if (!stream.ok()) break;
    if (options.paused && options.paused() != held) child.hold(held = !held);
    if (held) heard = WorkerProcess::now_ms();
    if (!line->empty() && decode_answer(*line, &out)) return out;
    if (!line->empty()) heard = WorkerProcess::now_ms();
    if (WorkerProcess::now_ms() - heard <= options.silence_ms) continue;
    out.outcome = Outcome::hung;
    out.reason = fmt::format("no sign of life for {} ms", options.silence_ms);
    return out;
  }
  bool killed = false;
  out.outcome = Outcome::crashed;
  out.reason = child.end_of_child(&killed);
  return out;
}

bool is_shadow(std::string_view line) {
  const Json j = Json::parse(line, nullptr, false);
  return j.is_object() && j.contains("recorded");
}

std::string answer_shadow(std::string_view line, LeafCache& leaves, StageMaker& stages,
                          const std::function<void(const std::string&)>& tell) {
  const Result<ShadowTask> task = decode_shadow(line);
  ShadowResult result;
  if (!task.ok()) {
    result.reason = task.status().to_string();
  } else {
    const double share = task->cpu_share > 0 ? task->cpu_share : 1;
    CpuBudget budget(share, kBurstNs, now_ns());
    result = shadow_in_process(*task, leaves, stages, [&](int) {
      tell(kAlive);
      const int64_t now = now_ns();
      budget.charge(now, clock_ns(CLOCK_PROCESS_CPUTIME_ID) - budget.used_ns());
      for (int64_t wait = task->cpu_share > 0 ? budget.wait_ns(now) : 0; wait > 0; wait = budget.wait_ns(now_ns())) {
        std::this_thread::sleep_for(std::chrono::nanoseconds(std::min<int64_t>(wait, 500'000'000)));
        tell(kAlive);
      }
    });
  }
  return dump({{"outcome", static_cast<int>(result.outcome)},
               {"reason", result.reason},
               {"calls", result.calls},
               {"err", std::min(result.err_over_bound, 1e300)}});
}

}  // namespace lathe::runtime
