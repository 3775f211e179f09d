// lathe opt: moves applied to a Kernel in text, one after the other, with their refusals; --run compares the result
// with the original.
#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ir/analysis/analysis.h"
#include "ir/analysis/verifier.h"
#include "ir/core/text_form.h"
#include "runtime/base/memory_limit.h"
#include "runtime/base/read_file.h"
#include "runtime/oracle/oracle.h"
#include "search/moves/schedule.h"
#include "tools/cli.h"

namespace lathe::tools {
namespace {

using ir::Result;
using nlohmann::json;

// What the oracle keeps for each element of an operand: several sets of data, results in f64 and those of both sides.
constexpr int64_t kOracleBytes = 128;

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

// A leaf in text has sizes that only its caller knows: no move applies to it, and nothing can run it alone.
ir::Status sizes_known(const ir::Kernel& kernel) {
  for (const ir::Buffer& b : kernel.buffers) {
    if (std::any_of(b.dims.begin(), b.dims.end(), [](const ir::Expr& d) { return !d; }))
      return ir::invalid("{}: {} has a size _, expected a Kernel with all sizes for moves, --applicable and --run",
                         kernel.name, b.name);
  }
  return {};
}

// The values of --run: as --shape says, within each symbol's range, else near 33. INVALID also: operands beyond memory.
Result<runtime::SymbolValues> values_of(const ir::Kernel& naive, const Shape& shape) {
  runtime::SymbolValues dims;
  for (const ir::Symbol& s : naive.symbols) {
    const auto given = shape.find(s.name);
    const int64_t multiple = std::max<int64_t>(s.multiple_of, 1);
    if (given != shape.end() && (given->second < s.min || given->second > s.max || given->second % multiple != 0)) {
      return ir::invalid("--shape: {}={}, {} has {}..{} in steps of {}", s.name, given->second, naive.name, s.min,
                         s.max, multiple);
    }
    dims.emplace_back(s.name, given == shape.end() ? std::clamp<int64_t>(33, s.min, s.max) : given->second);
  }
  const int64_t most = runtime::memory_limit() / kOracleBytes;
  for (const ir::Buffer& b : naive.buffers) {
    int64_t elements = 1;
    for (const ir::Expr& d : b.dims) {
      const std::optional<int64_t> size = ir::evaluate(d, dims);
      if (!size || *size < 0 || __builtin_mul_overflow(elements, *size, &elements) || elements > most)
        return ir::invalid("--run: {} has more than {} elements; name a smaller shape by --shape", b.name, most);
    }
  }
  return dims;
}

// The compiled result against the interpreter's of the naive Kernel.
Result<runtime::Verdict> compare(const OptFlags& flags, const runtime::SymbolValues& dims, runtime::Context& context,
                                 const ir::Kernel& naive, const std::vector<search::Move>& moves) {
  runtime::OracleTask task;
  task.naive = naive;
  task.seed = flags.seed;
  task.dims = dims;
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
  const ir::Status verified = naive.ok() ? ir::verify(*naive) : naive.status();
  if (!verified.ok()) return fail(flags, runtime::in_file(flags.kernel, verified), kUsage);
  std::vector<std::string> symbols;
  for (const ir::Symbol& s : naive->symbols) symbols.push_back(s.name);
  const auto shape = parse_shape(flags.shape, symbols);
  if (!shape.ok()) return fail(flags, shape.status(), kUsage);
  const auto moves = collect(flags);
  if (!moves.ok()) return fail(flags, moves.status(), kUsage);
  if (!moves->empty() || flags.applicable || flags.run) {
    const ir::Status known = sizes_known(*naive);
    if (!known.ok()) return fail(flags, known, kUsage);
  }
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
    const auto dims = values_of(*naive, *shape);
    if (!dims.ok()) return fail(flags, dims.status(), kUsage);
    const auto v = compare(flags, *dims, **context, *naive, applied);
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
