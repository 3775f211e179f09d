// search_table TASKS --out DIR: the measured table of each task of a manifest, one file a task; those that exist are
// kept, so a run that was cut goes on where it stopped.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <regex>

#include "bench/live/table_builder.h"
#include "jit/host/host_cpu.h"

namespace lathe::bench {
namespace {

struct Flags {
  std::string tasks, out, only = ".*", isa;
  double seconds = 0;
  int cpu = -1;
  bool list = false;
  BuildOptions build;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int fail(const ir::Status& status, int code) {
  fmt::print(stderr, "{}\n", status.to_string());
  return code;
}

int main_of(int argc, char** argv) {
  const auto start = std::chrono::steady_clock::now();
  CLI::App app{"Measures tables of search tasks"};
  Flags flags;
  app.add_option("tasks", flags.tasks, "manifest")->required();
  app.add_option("--out", flags.out, "directory")->required();
  app.add_option("--only", flags.only, "regular expression of task names");
  app.add_option("--seconds", flags.seconds, "starts no task after this; 0: no limit");
  app.add_option("--cpu", flags.cpu, "where tasks of one thread run; -1: anywhere");
  app.add_flag("--list", flags.list, "names and nothing else");
  app.add_option("--isa", flags.isa, "highest instruction set")->check(CLI::IsMember({"portable", "avx2", "avx512"}));
  app.add_option("--rows", flags.build.rows, "configurations of a task");
  app.add_option("--task-seconds", flags.build.seconds, "what one task may take, roughly");
  app.add_option("--seed", flags.build.seed, "of the sample");
  CLI11_PARSE(app, argc, argv);
  ir::Result<std::vector<MeasuredTask>> tasks = read_tasks(flags.tasks);
  if (!tasks.ok()) return fail(tasks.status(), 2);
  const std::optional<ir::IsaLevel> highest = ir::parse_isa(flags.isa);
  const ir::Target target = highest ? jit::host_target().cap(*highest) : jit::host_target();
  const std::regex only(flags.only);
  std::filesystem::create_directories(flags.out);
  int left = 0, failed = 0;
  for (MeasuredTask& task : *tasks) {
    if (!std::regex_search(task.name, only)) continue;
    const std::string path = fmt::format("{}/{}.jsonl", flags.out, task.name);
    if (flags.list) fmt::print("{}\n", task.name);
    if (flags.list || std::filesystem::exists(path)) continue;
    if (flags.seconds > 0 && seconds_since(start) > flags.seconds - 1.2 * flags.build.seconds) {
      ++left;
      continue;
    }
    const double from = seconds_since(start);
    pin_for(task, flags.cpu);
    runtime::LeafCache leaves({}, nullptr, nullptr);
    if (const ir::Status status = build_table(&task, target, leaves, flags.build); !status.ok()) {
      ++failed;
      fmt::print(stderr, "{}: {}\n", task.name, status.to_string());
      continue;
    }
    std::ofstream out(path + ".part");
    out << task_line(task) << "\n";
    for (const TableRow& r : task.rows) out << row_line(task, r) << "\n";
    out.close();
    std::filesystem::rename(path + ".part", path);
    fmt::print("{:<32}{:>5} rows {:>4} refused {:>7.1f} s\n", task.name, task.rows.size(), task.refused,
               seconds_since(start) - from);
    std::fflush(stdout);
  }
  fmt::print("{} left, {} failed\n", left, failed);
  return failed > 0 ? 1 : left > 0 ? 3 : 0;
}

}  // namespace
}  // namespace lathe::bench

int main(int argc, char** argv) { return lathe::bench::main_of(argc, argv); }
