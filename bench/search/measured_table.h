// Measured tables: every configuration of a task with what was timed of it, one file a task. The ground that strategies
// are replayed on. Reads and writes the text; measures nothing.
#pragma once
#include <string>
#include <vector>

#include "search/model/history.h"

namespace lathe::bench {

struct TableRow {
  search::Knobs knobs;
  search::Outcome outcome = search::Outcome::timed;
  std::vector<std::vector<double>> passes;  // raw samples in microseconds, as a tuner takes them: at most 3 a pass
  std::vector<double> confirm;  // one sample of each further pass over the best rows and the default; else empty
  std::vector<double>
      again;  // the default alone: a second sample of each of these passes, taken at another place in it
};

struct MeasuredTask {
  std::string name;
  std::string group;   // what stays when only the length differs: tasks of one group are held out together
  int64_t length = 0;  // of the streaming dimension; 0: none
  search::Problem problem;
  std::string isa, recipe;              // "panel.2"
  std::vector<std::string> knob_names;  // order of the values in a row's line
  int default_row = 0;
  std::vector<TableRow> rows;
  int refused = 0;  // configurations the predicate accepted and that could not be built
};

// A .jsonl file, a .jsonl.gz one, or every such file of a folder in order of name. INVALID names file and line.
ir::Result<std::vector<MeasuredTask>> read_tables(const std::string& path);

// The lines of a table: the task first, then its rows.
std::string task_line(const MeasuredTask& task);
std::string row_line(const MeasuredTask& task, const TableRow& row);
// 4 significant digits.
double rounded(double value);

// The flat form of a matmul prototype's table: a line a row, {"task": {M, N, K, cold}, "cfg": {...}, "us": [2],
// "confirm": [6]}.
ir::Result<std::vector<MeasuredTask>> parse_flat_table(const std::vector<std::string>& lines);

}  // namespace lathe::bench
