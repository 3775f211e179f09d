// See search_record.h.
#include "runtime/tune/search_record.h"

#include <optional>

#include "runtime/compile/compiler.h"
#include "search/cut/cut.h"

namespace lathe::runtime {

using ir::Result;

namespace {

std::string title(const SearchTask& task) {
  std::string out = task.problem.kernel.family;
  for (size_t i = 0; i < task.query.ranges.size(); ++i) {
    out += fmt::format(" {}..{}", task.query.ranges[i].lo, task.query.ranges[i].hi);
  }
  return out;
}

}  // namespace

ir::Status record(Context& context, const SearchTask& task, const std::string& text, Decision decision,
                  bool last_resort) {
  LATHE_ASSIGN(const search::Schedule schedule, search::parse_schedule(text));
  LeafPolicy policy = context.leaf_policy();
  policy.portable &= last_resort || !context.leaves().native(context.target());
  LATHE_ASSIGN(const Stage stage,
               build_stage(task.problem.kernel, schedule, context.target(), context.leaves(), policy));
  decision.kernel = task.problem.kernel.name;
  decision.schedule = schedule.numeric == stage.schedule.numeric ? text : search::to_text(stage.schedule);
  decision.leaf_keys = stage.leaf_keys;
  decision.op = title(task);
  context.leaves().publish_all();
  context.record_decision(task.query, std::move(decision));
  return {};
}

Result<SearchOutcome> record_unmeasured(Context& context, const SearchTask& task, const std::string& default_text,
                                        const std::string& like, const ir::Status& why) {
  SearchOutcome out;
  out.note = why.message();
  out.no_worker = why.code() == ir::Code::kIO;
  Decision decision;
  decision.status = DecisionStatus::provisional;
  for (const std::string& text : {like, default_text}) {
    if (text.empty()) continue;
    const ir::Status status = record(context, task, text, decision, text == default_text);
    if (status.ok()) {
      out.recorded = true;
      out.schedule = text;
      return out;
    }
    if (text == default_text) return status;
  }
  return out;
}

std::string naive_text(const SearchTask& task) {
  search::Schedule naive;
  naive.family = task.problem.kernel.family;
  return search::to_text(naive);
}

std::string default_text(Context& context, const SearchTask& task) {
  const auto serves = [&](const search::Scheduled& s) {
    return (s.kernel.numeric & ~task.query.allowed) == 0 && search::cut(s.kernel).ok();
  };
  const search::Scheduled scheduled = search::default_scheduled(task.problem, context.target());
  if (serves(scheduled)) return search::to_text(scheduled.schedule);
  for (const search::Scheduled& simpler : search::simpler_schedules(task.problem, context.target())) {
    if (serves(simpler)) return search::to_text(simpler.schedule);
  }
  return naive_text(task);
}

ir::Status record_default(Context& context, const SearchTask& task, double default_us) {
  Decision decision;
  decision.status = DecisionStatus::tie;
  decision.default_us = decision.best_us = default_us;
  // Default and winner passed the same gates.
  if (const std::optional<Decision> replaced = context.find_decision(task.query)) decision.oracle = replaced->oracle;
  return record(context, task, default_text(context, task), std::move(decision), true);
}

ir::Status record_unsearched(Context& context, const SearchTask& task) {
  return record_unmeasured(context, task, default_text(context, task), {}, {}).status();
}

}  // namespace lathe::runtime
