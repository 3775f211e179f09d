// Schedules: text both ways and replay. See schedule.h.
#include "search/moves/schedule.h"

#include <algorithm>

#include "ir/analysis/verifier.h"
#include "ir/core/names.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

std::string to_text(const Schedule& schedule) {
  std::string text = fmt::format("schedule 1 family {} class {}\n", schedule.family.empty() ? "any" : schedule.family,
                                 numeric_names(schedule.numeric));
  if (!schedule.recipe.empty()) {
    text += "from " + schedule.recipe;
    for (const auto& [knob, value] : schedule.knobs) text += fmt::format(" {}={}", knob, value);
    text += "\n";
  }
  for (const Move& move : schedule.moves) text += to_text(move) + "\n";
  return text;
}

static std::vector<std::string_view> words_of(std::string_view line, std::string_view separators) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at < line.size();) {
    const size_t end = std::min(line.find_first_of(separators, at), line.size());
    if (end > at) words.push_back(line.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

static Status parse_header(const std::vector<std::string_view>& words, Schedule& schedule) {
  if (words.size() < 2 || words[0] != "schedule" || words[1] != "1") return invalid("expected `schedule 1`");
  for (size_t i = 2; i < words.size(); i += 2) {
    if (i + 1 == words.size()) return invalid("expected a word after `{}`", words[i]);
    if (words[i] == "family") {
      schedule.family = words[i + 1] == "any" ? "" : words[i + 1];
    } else if (words[i] == "class") {
      for (const std::string_view name : words_of(words[i + 1], ",")) {
        const auto bit = parse_numeric_name(name);
        if (!bit) return invalid("expected a numeric class, got `{}`", name);
        schedule.numeric |= *bit;
      }
    } else {
      return invalid("expected `family` or `class`, got `{}`", words[i]);
    }
  }
  return {};
}

static Status parse_origin(const std::vector<std::string_view>& words, Schedule& schedule) {
  if (words.size() < 2) return invalid("expected the name of a recipe after `from`");
  schedule.recipe = words[1];
  for (size_t i = 2; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    if (equals == std::string_view::npos) return invalid("expected knob=value, got `{}`", words[i]);
    LATHE_ASSIGN(const int64_t value,
                 int_arg(std::string(words[i].substr(equals + 1)), "a knob", INT64_MIN, INT64_MAX));
    schedule.knobs[std::string(words[i].substr(0, equals))] = value;
  }
  return {};
}

Result<Schedule> parse_schedule(std::string_view text) {
  Schedule schedule;
  bool header = false;
  int number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, std::min(end, text.find(';', at)) - at);
    at = end + 1;
    ++number;
    const std::vector<std::string_view> words = words_of(line, " \t\r");
    if (words.empty()) continue;
    Status status;
    if (!header) {
      status = parse_header(words, schedule);
      header = true;
    } else if (words[0] == "from" && schedule.moves.empty() && schedule.recipe.empty()) {
      status = parse_origin(words, schedule);
    } else {
      Result<Move> move = parse_move(line);
      if (move.ok() && !find_transform(move->name))
        status = invalid("expected the name of a move, got `{}`", move->name);
      if (move.ok()) schedule.moves.push_back(std::move(*move));
      if (!move.ok()) status = move.status();
    }
    if (!status.ok()) return status.with_context(fmt::format("line {}", number));
  }
  if (!header) return invalid("expected `schedule 1`");
  return schedule;
}

static Status check_limits(const Kernel& kernel) {
  if (kernel.buffers.size() > kMaxBuffers)
    return unsupported("{} buffers, at most {} are allowed", kernel.buffers.size(), kMaxBuffers);
  size_t statements = 0;
  for_each_stmt(kernel.body, [&](const Stmt&) { ++statements; });
  if (statements > kMaxStatements)
    return unsupported("{} statements, at most {} are allowed", statements, kMaxStatements);
  return {};
}

// The moves from number `first` on; all of them count against the limit.
static Status apply_moves(Kernel& kernel, const std::vector<Move>& moves, size_t first, std::vector<Kernel>* steps,
                          bool verify) {
  if (first + moves.size() > kMaxMoves)
    return unsupported("a schedule of {} moves, at most {} are allowed", first + moves.size(), kMaxMoves);
#ifdef NDEBUG
  constexpr bool kVerifyEachMove = false;
#else
  constexpr bool kVerifyEachMove = true;
#endif
  for (size_t i = 0; i < moves.size(); ++i) {
    const Status status = apply_in_place(kernel, moves[i], {.verify = kVerifyEachMove});
    if (!status.ok()) {
      return make_error(status.code() == Code::kINTERNAL ? Code::kINTERNAL : Code::kUNSUPPORTED, "move {}: {}",
                        first + i + 1, status.message());
    }
    const Status within = check_limits(kernel);
    if (!within.ok()) return within.with_context(fmt::format("move {}: {}", first + i + 1, to_text(moves[i])));
    if (steps) steps->push_back(kernel);
  }
  if (!kVerifyEachMove && verify) {
    const Status verified = ir::verify(kernel);
    if (!verified.ok())
      return internal_error("the scheduled kernel {} does not verify: {}", kernel.name, verified.message());
  }
  return {};
}

Result<Kernel> replay(const Kernel& kernel, const Schedule& schedule, std::vector<Kernel>* steps, bool verify) {
  if (!schedule.family.empty() && schedule.family != kernel.family) {
    return unsupported("a schedule of family {} cannot be replayed on kernel {} of family {}", schedule.family,
                       kernel.name, kernel.family);
  }
  Kernel current = kernel;
  LATHE_RETURN_IF_ERROR(apply_moves(current, schedule.moves, 0, steps, verify));
  return current;
}

std::vector<Move> redefining_moves(const Schedule& schedule) {
  size_t count = 0;
  for (size_t i = 0; i < schedule.moves.size(); ++i) {
    const Transform* row = find_transform(schedule.moves[i].name);
    if (row != nullptr && (row->numeric & kRedefining) != 0) count = i + 1;
  }
  return {schedule.moves.begin(), schedule.moves.begin() + static_cast<std::ptrdiff_t>(count)};
}

Result<Kernel> redefined(const Kernel& kernel, const Schedule& schedule) {
  Kernel out = kernel;
  LATHE_RETURN_IF_ERROR(apply_moves(out, redefining_moves(schedule), 0, nullptr, true));
  return out;
}

Result<Scheduled> schedule_kernel(const Kernel& kernel, const Schedule& schedule) {
  LATHE_ASSIGN(Kernel made, replay(kernel, schedule));
  Scheduled out{schedule, std::move(made)};
  out.schedule.numeric = out.kernel.numeric;
  return out;
}

Status extend(Scheduled& scheduled, const std::vector<Move>& moves) {
  if (moves.empty()) return {};
  std::vector<Move>& all = scheduled.schedule.moves;
  LATHE_RETURN_IF_ERROR(apply_moves(scheduled.kernel, moves, all.size(), nullptr, true));
  all.insert(all.end(), moves.begin(), moves.end());
  scheduled.schedule.numeric = scheduled.kernel.numeric;
  return {};
}

}  // namespace lathe::search
