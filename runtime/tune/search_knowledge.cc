// See search_knowledge.h.
#include "runtime/tune/search_knowledge.h"

#include <optional>

#include "runtime/measure/machine_profile.h"
#include "runtime/tune/tuning_history.h"

namespace lathe::runtime {

const SearchKnowledge::Family& SearchKnowledge::family(const std::string& name) {
  const auto [at, fresh] = families_.try_emplace(name);
  if (!fresh) return at->second;
  const ir::Result<MachineProfile> profile = parse_profile(context_.find_profile());
  const bool measured = profile.ok() && !profile->values.empty();
  const search::MachineRates rates =
      measured ? rates_of(*profile, context_.target()) : search::MachineRates::assumed(context_.target());
  std::optional<FamilyModel> model =
      training_ == Training::never
          ? stored_model(context_.store(), name, context_.environment())
          : family_model(context_.store(), name, context_.environment(),
                         load_history(context_.store(), name, context_.environment()), context_.target(), rates);
  at->second.rates = std::make_shared<search::MachineRates>(model ? model->rates : rates);
  if (model) at->second.model = std::make_shared<search::CostModel>(std::move(model->model));
  return at->second;
}

void SearchKnowledge::equip(SearchTask* task) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Family& f = family(task->problem.kernel.family);
  task->model = f.model;
  task->rates = f.rates;
  task->keep = [this](search::TaskRecord record) {
    record.environment = context_.environment();
    // Rows that cannot be written live in memory; the store counts it.
    (void)publish_rows(context_.store(), record);
  };
}

}  // namespace lathe::runtime
