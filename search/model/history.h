// What was measured: one record per task and run, one row per candidate. The memory of the search: the ranker is
// trained from it. Features are never stored, they are recomputed: a new one voids nothing. Plain values, pure
// functions.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "search/model/outcome.h"
#include "search/sketches/recipe.h"

namespace lathe::search {

struct MeasuredRow {
  std::string recipe;  // "panel.1"; empty: no recipe, `extra` is the whole Schedule
  Knobs knobs;
  std::vector<Move> extra;  // appended to the recipe's moves
  Outcome outcome = Outcome::timed;
  std::vector<double> samples_us;  // at most 3 of the screening
  double reference_us = 0;         // the default's time around then; 0: unknown
  // The row's time: cold the median, hot the minimum of its samples; 0 without samples.
  double us(bool cold) const;
};

struct TaskRecord {
  Problem problem;
  std::string isa;                // "avx512", as ir::Target names it
  std::string environment;        // hash of the decision environment it was measured in; "pack": the starter pack
  std::string policy;             // "hot", "cold"; see docs/measuring.md
  int64_t epoch = 0;              // of code generation
  std::vector<MeasuredRow> rows;  // [0]: the default
  double trust = 1;               // not stored: 1 own, 0.25 foreign machine, 0.5 stale
};

// Text: a header of `key value` lines, the kernel's text, one line per row. parse accepts exactly what print writes;
// INVALID with the line. The kernel is verified. Empty words (isa, environment, policy, recipe) are written as `-`.
std::string print_record(const TaskRecord& record);
ir::Result<TaskRecord> parse_record(std::string_view text);
// Several records in one text, as the starter pack has them.
ir::Result<std::vector<TaskRecord>> parse_records(std::string_view text);

// Times of the rows relative to the default: us / reference_us where every timed row has a reference, else us. 0: not
// timed.
std::vector<double> corrected_times(const TaskRecord& record);

// Hash of what makes two problems the same task: kernel, dims, threads, cold. 16 hex digits.
std::string task_name(const Problem& problem);

}  // namespace lathe::search
