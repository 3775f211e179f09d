// feature_list TABLES...: what the cost model sees of measured tables, one line a row: the bits of its features, the
// analytic stage's time, what the recipe estimates and whether its predicate accepts it. Before the rows of a task, its
// knobs with their values, the recipe's default, and the space and the neighbours of the default that the code makes
// now. Two builds that order candidates alike print the same lines. Nothing is run or measured.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bench/search/table_task.h"
#include "ir/analysis/analysis.h"

namespace lathe::bench {
namespace {

std::string text_of(const search::Knobs& knobs) {
  std::string out;
  for (const auto& [name, value] : knobs) out += fmt::format(" {}={}", name, value);
  return out;
}

std::string bits_of(const search::Features& x) {
  return fmt::format("{:016x}", ir::hash_bytes(x.data(), sizeof(float) * x.size()));
}

void list(const MeasuredTask& task) {
  const search::Recipe* recipe = search::find_recipe(task.problem);
  if (recipe == nullptr) return;
  const ir::Target target = target_of(task.isa == "avx512" ? ir::IsaLevel::avx512 : ir::IsaLevel::avx2);
  const search::MachineRates rates = search::MachineRates::assumed(target);
  search::RecipeSpace space(task.problem, target, rates);
  for (const search::KnobDomain& d : space.domains())
    fmt::print("{} | {} in {}\n", task.name, d.name, fmt::join(d.values, " "));
  std::string points, near;
  for (int i = 0; i < space.size(); ++i) points += text_of(space.at(i).knobs) + bits_of(space.at(i).features);
  const int known = space.size();
  for (const int n : space.neighbours(space.default_index())) {
    const auto scheduled = space.scheduled(n);
    near += scheduled.ok() ? search::to_text(scheduled->schedule) : "refused";
  }
  const auto hash = [](const std::string& text) { return ir::hash_text(text); };
  fmt::print("{} | default{} | {} points {:016x} | neighbours {:016x}\n", task.name,
             text_of(recipe->defaults(task.problem, target)), known, hash(points), hash(near));
  const search::Featurizer featurizer(task.problem, target, rates, recipe);
  for (size_t r = 0; r < task.rows.size(); ++r) {
    const search::Knobs& knobs = task.rows[r].knobs;
    const search::Featurizer::Result seen = featurizer.of(knobs);
    fmt::print("{} row {} | {} {:.17g} | {:.17g} {}\n", task.name, r, bits_of(seen.x), seen.us,
               recipe->estimate(knobs, task.problem, target),
               recipe->accepts(knobs, task.problem, target).ok() ? "accepted" : "refused");
  }
}

}  // namespace
}  // namespace lathe::bench

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const auto tasks = lathe::bench::read_tables(argv[i]);
    if (!tasks.ok()) {
      fmt::print(stderr, "feature_list: {}\n", tasks.status().to_string());
      return 2;
    }
    for (const lathe::bench::MeasuredTask& task : *tasks) lathe::bench::list(task);
  }
  return argc > 1 ? 0 : 1;
}
