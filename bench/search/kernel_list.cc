// kernel_list MANIFESTS... --tables FOLDER: what is generated, one line a kernel: the default Schedule of every Kernel
// of the manifests at each hinted shape, and every row of the measured tables, each with a hash of the code of each
// leaf. Names, keys, texts of leaves and anything that is timed stay out, so that two builds that generate the same
// code print the same lines (scripts/same_kernels.sh). Nothing is run or measured: the levels are those of described
// machines, whatever CPU is below.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fstream>
#include <iterator>

#include "bench/search/measured_table.h"
#include "ir/analysis/analysis.h"
#include "jit/lower/lower.h"
#include "jit/program/backend.h"
#include "ops/manifest.h"
#include "runtime/serve/operator.h"
#include "search/cut/cut.h"
#include "search/sketches/recipe.h"
#include "tests/common/machines.h"

namespace lathe::bench {
namespace {

struct Level {
  std::string name;
  ir::Target target;
};

std::vector<Level> levels() {
  std::vector<Level> out = {{"portable", {}}};
  out[0].target.level = ir::IsaLevel::portable;
  for (const test::Machine& m : test::machines()) out.push_back({m.name, m.target});
  return out;
}

// Of the bytes that would run; of the program where none would.
std::string leaf_hash(const ir::Leaf& leaf, const ir::Target& target) {
  const ir::Result<jit::LeafProgram> program = jit::lower_leaf(leaf.kernel, target, leaf.text);
  if (!program.ok()) return "refused";
  const auto of_program = [&] {
    const std::string text = jit::to_text(*program);
    const size_t body = std::min(text.find('\n'), text.size());  // behind the line with its name
    return fmt::format("program {:016x}", ir::hash_bytes(text.data() + body, text.size() - body));
  };
  if (target.level == ir::IsaLevel::portable) return of_program();
  const ir::Result<jit::CodeImage> image = jit::compile_xbyak(*program, true);
  if (!image.ok()) return of_program();
  return fmt::format("{:016x}", ir::hash_bytes(image->code.data(), image->code.size(), image->entry));
}

void print_kernel(const std::string& name, const Level& level, const search::Scheduled& scheduled) {
  std::string line = fmt::format("{} | {} |", name, level.name);
  for (const search::Move& m : scheduled.schedule.moves) line += fmt::format(" {};", search::to_text(m));
  const ir::Result<ir::CutKernel> cut = search::cut(scheduled.kernel);
  line += " |";
  if (!cut.ok()) line += " refused";
  for (size_t l = 0; cut.ok() && l < cut->leaves.size(); ++l) line += " " + leaf_hash(cut->leaves[l], level.target);
  fmt::print("{}\n", line);
}

bool list_manifest(const std::string& path, const std::shared_ptr<runtime::Context>& context) {
  std::ifstream in(path);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const auto items = ops::parse_manifest(text);
  if (!in || !items.ok()) {
    fmt::print(stderr, "kernel_list: {}: {}\n", path, items.ok() ? "cannot be read" : items.status().to_string());
    return false;
  }
  for (const ops::Workload& item : *items) {
    const auto graph = ops::finish(item.graph);
    if (!graph.ok()) return false;
    const auto op = runtime::Operator::create(context, *graph);
    if (!op.ok()) return false;
    for (const runtime::SymbolValues& dims : (*op)->hinted_dims()) {
      std::string shape;
      search::Problem problem;
      for (const auto& [symbol, value] : dims) {
        shape += fmt::format(" {}={}", symbol, value);
        problem.dims[symbol] = value;
      }
      problem.threads = item.threads;
      if (item.allowed != 0) problem.allowed = item.allowed;
      problem.cold = item.cache == ops::CacheState::cold;
      for (size_t k = 0; k < (*op)->lowered().kernels.size(); ++k) {
        problem.kernel = (*op)->lowered().kernels[k].kernel;
        problem.one_layout = !problem.kernel.symbols.empty();
        for (const Level& level : levels()) {
          print_kernel(fmt::format("{}{} kernel {}", item.name, shape, k), level,
                       search::default_scheduled(problem, level.target));
        }
      }
    }
  }
  return true;
}

bool list_tables(const std::string& path) {
  const auto tasks = read_tables(path);
  if (!tasks.ok()) {
    fmt::print(stderr, "kernel_list: {}\n", tasks.status().to_string());
    return false;
  }
  for (const MeasuredTask& task : *tasks) {
    const search::Recipe* recipe = search::find_recipe(task.problem);
    const bool wide = task.isa == "avx512";
    const Level level{task.isa, test::find_machine(wide ? "zen5" : "laptop")->target};
    for (size_t r = 0; recipe != nullptr && r < task.rows.size(); ++r) {
      const auto scheduled = recipe->script(task.rows[r].knobs, task.problem, level.target);
      const std::string name = fmt::format("{} row {}", task.name, r);
      if (scheduled.ok()) {
        print_kernel(name, level, *scheduled);
      } else {
        fmt::print("{} | {} | refused\n", name, level.name);
      }
    }
  }
  return true;
}

int main_of(int argc, char** argv) {
  CLI::App app{"Lists what is generated for manifests and for the rows of measured tables"};
  std::vector<std::string> manifests, tables;
  app.add_option("manifests", manifests, "JSON Lines");
  app.add_option("--tables", tables, "files or folders");
  CLI11_PARSE(app, argc, argv);
  runtime::ContextConfig config;
  if (!config.options.set("cache", "off").ok()) return 1;
  const auto context = runtime::Context::create(std::move(config));
  if (!context.ok()) return 1;
  for (const std::string& path : manifests) {
    if (!list_manifest(path, *context)) return 2;
  }
  for (const std::string& path : tables) {
    if (!list_tables(path)) return 2;
  }
  return 0;
}

}  // namespace
}  // namespace lathe::bench

int main(int argc, char** argv) { return lathe::bench::main_of(argc, argv); }
