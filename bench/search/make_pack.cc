// make_pack TABLES... --out FILE: the starter pack: per task of the tables the best few rows and a spread of the
// others, as history text.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fstream>

#include "bench/search/pack.h"

namespace lathe::bench {
namespace {

int main_of(int argc, char** argv) {
  CLI::App app{"Makes the starter pack from measured tables"};
  std::vector<std::string> tables;
  std::string out;
  int best = kPackBest, rows = kPackRows;
  app.add_option("tables", tables, "files or folders")->required();
  app.add_option("--out", out, "file")->required();
  app.add_option("--best", best, "fastest rows of a task");
  app.add_option("--rows", rows, "rows of a task");
  CLI11_PARSE(app, argc, argv);
  std::string text;
  size_t tasks = 0;
  for (const std::string& path : tables) {
    const ir::Result<std::vector<MeasuredTask>> read = read_tables(path);
    if (!read.ok()) {
      fmt::print(stderr, "{}\n", read.status().to_string());
      return 2;
    }
    for (const MeasuredTask& t : *read) {
      text += search::print_record(thinned(t, best, rows));
      ++tasks;
    }
  }
  const auto back = search::parse_records(text);
  if (!back.ok() || back->size() != tasks) {
    fmt::print(stderr, "does not read back: {}\n", back.ok() ? "records are missing" : back.status().to_string());
    return 1;
  }
  std::ofstream file(out);
  file << text;
  if (!file.flush()) {
    fmt::print(stderr, "{} cannot be written\n", out);
    return 1;
  }
  fmt::print("{} tasks, {} bytes\n", tasks, text.size());
  return 0;
}

}  // namespace
}  // namespace lathe::bench

int main(int argc, char** argv) { return lathe::bench::main_of(argc, argv); }
