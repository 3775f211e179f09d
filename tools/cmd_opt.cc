// lathe opt: moves applied to a Kernel in text, one after the other, with their refusals; --run compares the result
// with the original.
#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ir/core/text_form.h"
#include "runtime/base/read_file.h"
#include "runtime/oracle/oracle.h"
#include "search/moves/schedule.h"
#include "tools/cli.h"

namespace lathe::tools {
namespace {

using ir::Result;
using nlohmann::json;

struct OptFlags : CommonOptions {
  std::string kernel, schedule, shape;
  std::vector<std::string> moves;
  bool print_each = false, run = false, applicable = false;
};

// From --schedule and --moves, in this order; several moves in one text are separated by ";".
Result<std::vector<search::Move>> collect(const OptFlags& flags) {
  std::vector<search::Move> moves;
  if (!flags.schedule.empty()) {
    LATHE_ASSIGN(const std::string text, read_input(flags.schedule));
    const Result<search::Schedule> schedule = search::parse_schedule(text);
    if (!schedule.ok()) return runtime::in_file(flags.schedule, schedule.status());
    moves = schedule->moves;
  }
  for (const std::string& group : flags.moves) {
    std::istringstream in(group);
    for (std::string line; std::getline(in, line, ';');) {
      if (line.find_first_not_of(" \t") == std::string::npos) continue;
      LATHE_ASSIGN(const search::Move move, search::parse_move(line));
      moves.push_back(move);
    }
  }
  return moves;
}

// The compiled result against the interpreter's of the naive Kernel.
Result<runtime::Verdict> compare(const OptFlags& flags, const Shape& shape, runtime::Context& context,
                                 const ir::Kernel& naive, const std::vector<search::Move>& moves) {
  runtime::OracleTask task;
  task.naive = naive;
  task.seed = flags.seed;
  for (const ir::Symbol& s : naive.symbols) {
    const auto given = shape.find(s.name);
    task.dims.emplace_back(s.name, given == shape.end() ? std::clamp<int64_t>(33, s.min, s.max) : given->second);
  }
  search::Schedule schedule;
  schedule.family = naive.family;
  schedule.moves = moves;
  LATHE_ASSIGN(const runtime::Stage stage,
               runtime::build_stage(naive, schedule, context.target(), context.leaves(), context.leaf_policy()));
  LATHE_ASSIGN(const std::unique_ptr<runtime::Oracle> oracle, runtime::Oracle::create(std::move(task), nullptr));
  return oracle->verify(stage);
}

int run(const OptFlags& flags) {
  const auto text = read_input(flags.kernel);
  if (!text.ok()) return fail(flags, text.status(), kUsage);
  const auto naive = ir::parse_kernel(*text);
  if (!naive.ok()) return fail(flags, runtime::in_file(flags.kernel, naive.status()), kUsage);
  std::vector<std::string> symbols;
  for (const ir::Symbol& s : naive->symbols) symbols.push_back(s.name);
  const auto shape = parse_shape(flags.shape, symbols);
  if (!shape.ok()) return fail(flags, shape.status(), kUsage);
  const auto moves = collect(flags);
  if (!moves.ok()) return fail(flags, moves.status(), kUsage);
  ir::Kernel kernel = *naive;
  std::vector<search::Move> applied;
  json list = json::array();
  bool refused = false;
  for (const search::Move& move : *moves) {
    const auto result = search::apply(kernel, move);
    json entry = {{"move", search::to_text(move)}, {"ok", result.ok()}};
    if (result.ok()) {
      kernel = result->kernel;
      applied.push_back(move);
    } else {
      refused = true;
      entry["reason"] = result.status().message();
    }
    list.push_back(entry);
    if (!flags.json && !result.ok())
      say(fmt::format("refused: {}: {}", search::to_text(move), result.status().message()));
    if (!flags.json && flags.print_each && result.ok())
      fmt::print("; {}\n{}\n", search::to_text(move), ir::print(kernel));
  }
  if (!flags.json && !flags.print_each) fmt::print("{}", ir::print(kernel));
  if (!flags.json && flags.applicable) {
    for (const search::Candidate& c : search::applicable(kernel, true)) {
      fmt::print("; {}{}\n", search::to_text(c.move), c.refusal.empty() ? "" : "   refused: " + c.refusal);
    }
  }
  json verdict;
  bool wrong = false;
  if (flags.run) {
    auto context = make_context(flags);
    if (!context.ok()) return fail(flags, context.status(), kUsage);
    const auto v = compare(flags, *shape, **context, *naive, applied);
    if (!v.ok()) return fail(flags, v.status(), kFailed);
    wrong = !v->ok;
    verdict = {{"ok", v->ok},
               {"gate", runtime::gate_name(v->gate)},
               {"err_over_bound", v->err_over_bound},
               {"reason", v->reason}};
    if (!flags.json) {
      fmt::print("; {}: gate {}, err / bound {:.3f}{}\n", v->ok ? "equal" : "DIFFERENT", runtime::gate_name(v->gate),
                 v->err_over_bound, v->reason.empty() ? "" : ", " + v->reason);
    }
  }
  if (flags.json) {
    json line = json_event(flags, "summary");
    line["moves"] = list;
    line["kernel"] = ir::print(kernel);
    if (flags.run) line["run"] = verdict;
    print_json(line);
  }
  return refused || wrong ? kFailed : kDone;
}

}  // namespace

const Verb kOpt = {
    "opt", "Apply moves to a kernel in text", [](CLI::App& app) -> std::function<int()> {
      auto f = std::make_shared<OptFlags>();
      add_common(app, f.get());
      app.add_option("kernel", f->kernel, "Kernel in text (.lir); - reads the standard input")->required();
      app.add_option("--schedule", f->schedule, "File with a schedule");
      app.add_option("--moves", f->moves, "Moves, several separated by ;");
      app.add_option("--shape", f->shape, "M=3,L=128: for --run");
      app.add_flag("--print-each", f->print_each, "The kernel after each move");
      app.add_flag("--applicable", f->applicable, "The moves possible on the result, and the refused ones");
      app.add_flag("--run", f->run, "Compare the result with the original, through the oracle");
      return [f] { return run(*f); };
    }};

}  // namespace lathe::tools
