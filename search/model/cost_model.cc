// The model of a family: training rows from history and the trust rule. See cost_model.h.
#include "search/model/cost_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace lathe::search {

namespace {

constexpr int kMinTasks = 5, kMinRows = 300;
constexpr int kBaseCopies = 5;
constexpr float kBaseColumns = 0.3f;
constexpr double kOlderRecipe = 0.5;  // weight of rows of another version of a recipe

bool older(const std::string& origin, const Recipe* recipe) { return recipe != nullptr && origin != recipe->origin(); }

// Featurizers of one problem, by recipe.
class RowFeatures {
 public:
  RowFeatures(const Problem& problem, const ir::Target& target, const MachineRates& rates)
      : problem_(problem), target_(target), rates_(rates) {}

  std::optional<Features> of(const MeasuredRow& row) {
    const Recipe* recipe = recipe_of(row.recipe, problem_);
    if (recipe == nullptr && !row.recipe.empty()) return std::nullopt;
    auto it = made_.find(recipe);
    if (it == made_.end()) it = made_.emplace(recipe, Featurizer(problem_, target_, rates_, recipe)).first;
    const std::optional<Featurizer::Result> seen = it->second.of(row.knobs, row.extra);
    return seen ? std::optional(seen->x) : std::nullopt;
  }

 private:
  const Problem& problem_;
  const ir::Target& target_;
  const MachineRates& rates_;
  std::map<const Recipe*, Featurizer> made_;
};

bool failed(Outcome outcome) { return outcome == Outcome::refused || rejected(outcome); }

}  // namespace

float label_of(double best, double own) {
  if (!(own > 0) || !(best > 0)) return kLabelClip;
  return std::clamp(static_cast<float>(std::log2(best / own)), kLabelClip, 0.0f);
}

std::vector<TrainRow> training_rows(std::span<const TaskRecord> records, const ir::Target& target,
                                    const MachineRates& rates) {
  std::vector<std::vector<double>> times;
  std::map<std::string, double> best;
  std::vector<std::string> names;
  for (const TaskRecord& r : records) {
    times.push_back(corrected_times(r));
    names.push_back(task_name(r.problem) + " " + r.environment);
    for (const double t : times.back()) {
      double& known = best[names.back()];
      if (t > 0 && (known == 0 || t < known)) known = t;
    }
  }
  std::vector<TrainRow> out;
  for (size_t i = 0; i < records.size(); ++i) {
    const TaskRecord& record = records[i];
    RowFeatures features(record.problem, target, rates);
    for (size_t j = 0; j < record.rows.size(); ++j) {
      const MeasuredRow& row = record.rows[j];
      const bool slow = failed(row.outcome);
      if (!slow && times[i][j] <= 0) continue;
      const std::optional<Features> x = features.of(row);
      if (!x) continue;
      const double share = slow ? 0 : best[names[i]] / times[i][j];
      const double trust = record.trust * (older(row.recipe, recipe_of(row.recipe, record.problem)) ? kOlderRecipe : 1);
      out.push_back(
          {*x, slow ? kLabelClip : label_of(best[names[i]], times[i][j]), static_cast<float>(trust * (0.2 + share))});
    }
  }
  return out;
}

CostModel train_model(std::span<const TaskRecord> records, const ir::Target& target, const MachineRates& rates,
                      uint64_t seed) {
  ModelSource source;
  std::set<std::string> tasks, local;
  for (const TaskRecord& r : records) {
    tasks.insert(task_name(r.problem));
    if (r.trust == 1) local.insert(task_name(r.problem));
  }
  source.tasks = static_cast<int>(tasks.size());
  source.local_tasks = static_cast<int>(local.size());
  if (source.tasks < kMinTasks) return CostModel({}, source);
  const std::vector<TrainRow> rows = training_rows(records, target, rates);
  source.rows = static_cast<int>(rows.size());
  if (source.rows < kMinRows) return CostModel({}, source);
  TreeParams params;
  params.seed = seed;
  params.copies = kBaseCopies;
  params.columns = kBaseColumns;
  return CostModel(BoostedTrees::train(rows, params), source);
}

}  // namespace lathe::search
