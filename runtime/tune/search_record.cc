// See search_record.h.
#include "runtime/tune/search_record.h"

#include <algorithm>
#include <optional>

#include "runtime/compile/compiler.h"
#include "runtime/serve/live.h"
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

ir::Status record(Context& context, const SearchTask& task, const search::Scheduled& scheduled, Decision decision,
                  bool last_resort) {
  LeafPolicy policy = context.leaf_policy();
  policy.portable &= last_resort || !context.leaves().native(context.target());
  LATHE_ASSIGN(const Stage stage,
               build_stage(task.problem.kernel, scheduled, context.target(), context.leaves(), policy));
  decision.kernel = task.problem.kernel.name;
  decision.schedule = search::to_text(stage.schedule);
  decision.leaf_keys = stage.leaf_keys;
  decision.op = title(task);
  context.leaves().publish_all();
  context.record_decision(task.query, std::move(decision));
  return {};
}

bool packs_as_default(const SearchTask& task, const ir::Kernel& scheduled, const search::Scheduled& by_default) {
  return !task.problem.one_layout || Live::layouts_of(scheduled) == Live::layouts_of(by_default.kernel);
}

Result<SearchOutcome> record_unmeasured(Context& context, const SearchTask& task, const search::Scheduled& by_default,
                                        const std::optional<search::Schedule>& like, const ir::Status& why) {
  SearchOutcome out;
  out.note = why.message();
  out.no_worker = why.code() == ir::Code::kIO;
  Decision decision;
  decision.status = DecisionStatus::provisional;
  if (like) {
    Result<search::Scheduled> similar = search::schedule_kernel(task.problem.kernel, *like);
    if (similar.ok() && packs_as_default(task, similar->kernel, by_default) &&
        record(context, task, *similar, decision, false).ok()) {
      out.recorded = true;
      out.winner = std::move(similar).value();
      return out;
    }
  }
  LATHE_RETURN_IF_ERROR(record(context, task, by_default, std::move(decision), true));
  out.recorded = true;
  out.winner = by_default;
  return out;
}

search::Scheduled allowed_default(Context& context, const SearchTask& task) {
  const auto serves = [&](const search::Scheduled& s) {
    return (s.kernel.numeric & ~task.query.allowed) == 0 && search::cut(s.kernel).ok();
  };
  search::Scheduled scheduled = search::default_scheduled(task.problem, context.target());
  if (serves(scheduled)) return scheduled;
  // The last of these is the naive Kernel.
  std::vector<search::Scheduled> simpler = search::simpler_schedules(task.problem, context.target());
  const auto first = std::find_if(simpler.begin(), simpler.end(), serves);
  return std::move(first == simpler.end() ? simpler.back() : *first);
}

ir::Status record_default(Context& context, const SearchTask& task, double default_us) {
  Decision decision;
  decision.status = DecisionStatus::tie;
  decision.default_us = decision.best_us = default_us;
  // Default and winner passed the same gates.
  if (const std::optional<Decision> replaced = context.find_decision(task.query)) decision.oracle = replaced->oracle;
  return record(context, task, allowed_default(context, task), std::move(decision), true);
}

ir::Status record_unsearched(Context& context, const SearchTask& task) {
  return record_unmeasured(context, task, allowed_default(context, task), {}, {}).status();
}

}  // namespace lathe::runtime
