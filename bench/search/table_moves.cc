// table_moves TABLES...: in how many timed configurations of measured tables, and in how many winners, each move
// occurs.
#include <fmt/format.h>

#include "bench/search/measured_table.h"
#include "bench/search/move_counts.h"
#include "bench/search/table_task.h"
#include "jit/host/host_cpu.h"

int main(int argc, char** argv) {
  using namespace lathe;
  bench::MoveCounts counts;
  const ir::Target& target = jit::host_target();
  for (int a = 1; a < argc; ++a) {
    const auto tables = bench::read_tables(argv[a]);
    if (!tables.ok()) {
      fmt::print(stderr, "{}\n", tables.status().to_string());
      return 2;
    }
    for (const bench::MeasuredTask& measured : *tables) {
      const search::Recipe* recipe = search::find_recipe(measured.problem);
      if (recipe == nullptr) continue;
      const bench::TableTask task(measured, target, search::MachineRates::assumed(target));
      for (size_t r = 0; r < measured.rows.size(); ++r) {
        if (!task.timed(static_cast<int>(r))) continue;
        const auto schedule = recipe->build(measured.rows[r].knobs, measured.problem, target);
        if (schedule.ok()) counts.add(*schedule, static_cast<int>(r) == task.best());
      }
    }
  }
  fmt::print("{}", counts.text());
  return 0;
}
