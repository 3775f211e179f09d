// See explain.h.
#include "runtime/tune/explain.h"

#include <algorithm>
#include <set>

#include "ir/core/text_form.h"
#include "runtime/measure/machine_profile.h"
#include "runtime/store/key.h"
#include "runtime/walk/nest_text.h"
#include "search/model/features.h"

namespace lathe::runtime {

using ir::Result;

namespace {

std::string field(const std::string& text, const std::string& name) {
  const std::string start = name + ": ";
  size_t at = text.starts_with(start) ? 0 : text.find("\n" + start);
  if (at == std::string::npos) return "none";
  if (at > 0) ++at;
  at += start.size();
  return text.substr(at, text.find('\n', at) - at);
}

// The store has decisions, but of other machines: the closest one's first difference to this one.
std::string environment_difference(Context& context) {
  const Identity here = decision_environment(machine_fields(context.target()));
  std::set<std::string> seen;
  for (const StoredObject& o : context.store().list(false)) {
    if (o.key.kind != ObjectKind::k_decision || !seen.insert(o.key.sub).second || o.key.sub == here.hash) continue;
    const Lookup found = context.store().find({ObjectKind::k_env, "", o.key.sub});
    if (!found.found) continue;
    const std::string name = first_difference(here.text, found.bytes);
    if (!name.empty())
      return fmt::format("{}: here {}, stored {}", name, field(here.text, name), field(found.bytes, name));
  }
  return {};
}

// What a record says, as far as it holds here; else *why says what it counts as (docs/store.md).
Result<Stage> decided_stage(Context& context, const search::Problem& problem, const Decision& decision,
                            uint32_t allowed, MissReason* why) {
  LATHE_ASSIGN(const search::Schedule schedule, stated_schedule(decision, allowed, why));
  return build_stage(problem.kernel, schedule, context.target(), context.leaves(), context.leaf_policy(), why);
}

search::MachineRates rates_here(Context& context) {
  const Result<MachineProfile> profile = parse_profile(context.find_profile());
  if (!profile.ok() || profile->values.empty()) return search::MachineRates::assumed(context.target());
  return rates_of(*profile, context.target());
}

}  // namespace

Result<std::vector<ExplainedKernel>> explain(Operator& op, const SymbolValues& dims, const PrepareRequest& request,
                                             int refusals) {
  Context& context = op.context();
  std::vector<ExplainedKernel> out;
  for (size_t k = 0; k < op.lowered().kernels.size(); ++k) {
    const int kernel = static_cast<int>(k);
    ExplainedKernel e;
    MissReason reason = MissReason::k_never_seen;
    const DecisionQuery query = op.query(kernel, dims, request);
    const std::optional<Decision> decision = context.find_decision(query, &reason);
    search::Problem problem = op.general_problem(kernel, true, request);
    Result<Stage> decided = ir::unsupported("nothing is stored");
    if (decision)
      decided = decided_stage(context, op.problem(kernel, dims, request), *decision, query.allowed, &reason);
    Stage stage;
    if (decided.ok()) {
      problem = op.problem(kernel, dims, request);
      stage = std::move(*decided);
      e.stored = true;
      e.tier = decision->unmeasured() ? 1 : 2;
      e.decision = print_decision(*decision);
      e.measured_us = decision->best_us;
      e.measured_default_us = decision->default_us;
    } else {
      LATHE_ASSIGN(stage, op.stages().default_stage(problem, request, context.leaf_policy(), {}));
      e.miss = fmt::format("{} ({})", miss_reason_name(reason), miss_reason_meaning(reason));
      e.difference = environment_difference(context);
    }
    const search::Schedule& schedule = stage.schedule;
    if (const search::Recipe* recipe = search::recipe_of(schedule.recipe, problem))
      e.predicted_us = search::analytic_us(problem, context.target(), rates_here(context), recipe, schedule.knobs);
    e.knobs = search::knob_reasons(problem, schedule);
    e.moves = search::move_reasons(problem, context.target(), schedule);
    e.naive = ir::print(problem.kernel);
    e.schedule = search::to_text(schedule);
    LATHE_ASSIGN(const ir::Kernel scheduled, search::replay(problem.kernel, schedule));
    e.scheduled = ir::print(scheduled);
    if (stage.portable) e.tier = 0;
    e.nest = nest_text(stage.nest().cut);
    for (size_t l = 0; l < stage.nest().cut.leaves.size(); ++l) {
      e.leaves.push_back(
          {l < stage.leaf_keys.size() ? stage.leaf_keys[l] : "", ir::print(stage.nest().cut.leaves[l].kernel)});
    }
    if (refusals > 0) {
      for (const search::Candidate& c : search::applicable(scheduled, true)) {
        if (c.refusal.empty()) continue;
        e.refusals.emplace_back(search::to_text(c.move), c.refusal);
        if (static_cast<int>(e.refusals.size()) >= refusals) break;
      }
    }
    out.push_back(std::move(e));
  }
  return out;
}

}  // namespace lathe::runtime
