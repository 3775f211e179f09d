// See search_knowledge.h.
#include "runtime/tune/search_knowledge.h"

#include <optional>

#include "runtime/measure/machine_profile.h"
#include "runtime/tune/tuning_history.h"

namespace lathe::runtime {

SearchKnowledge::Family& SearchKnowledge::family(const std::string& name) {
  const auto [at, fresh] = families_.try_emplace(name);
  if (!fresh) return at->second;
  const ir::Result<MachineProfile> profile = parse_profile(context_.find_profile());
  const bool measured = profile.ok() && !profile->values.empty();
  const search::MachineRates rates =
      measured ? rates_of(*profile, context_.target()) : search::MachineRates::assumed(context_.target());
  auto history =
      std::make_shared<std::vector<search::TaskRecord>>(load_history(context_.store(), name, context_.environment()));
  std::optional<FamilyModel> model =
      training_ == Training::never
          ? stored_model(context_.store(), name, context_.environment())
          : family_model(context_.store(), name, context_.environment(), *history, context_.target(), rates);
  at->second.rates = std::make_shared<search::MachineRates>(model ? model->rates : rates);
  if (model) at->second.model = std::make_shared<search::CostModel>(std::move(model->model));
  at->second.history = std::move(history);
  return at->second;
}

void SearchKnowledge::equip(SearchTask* task) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Family& f = family(task->problem.kernel.family);
  task->history = f.history;
  task->model = f.model;
  task->rates = f.rates;
  task->keep = [this](const search::TaskRecord& record) { keep(record); };
}

void SearchKnowledge::keep(search::TaskRecord record) {
  record.environment = context_.environment();
  // Rows that cannot be written live in memory; the store counts it.
  (void)publish_rows(context_.store(), record);
  const std::lock_guard<std::mutex> lock(mutex_);
  Family& f = family(record.problem.kernel.family);
  // Searches that run keep what they started from.
  auto longer = std::make_shared<std::vector<search::TaskRecord>>(*f.history);
  longer->push_back(std::move(record));
  f.history = std::move(longer);
}

}  // namespace lathe::runtime
