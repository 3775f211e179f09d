// Tuning specs: text both ways, matching, expansion. See tuning_spec.h.
#include "search/strategy/tuning_spec.h"

#include <algorithm>
#include <charconv>

#include "ir/analysis/analysis.h"

namespace lathe::search {
using namespace ir;  // NOLINT: this file is all IR

namespace {

std::vector<std::string_view> split_words(std::string_view line) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at < line.size();) {
    const size_t end = std::min(line.find_first_of(" \t\r", at), line.size());
    if (end > at) words.push_back(line.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// 8, 1..8, %64
Result<SpecClause> parse_clause(std::string_view role, std::string_view value) {
  SpecClause c;
  c.role = role;
  const size_t dots = value.find("..");
  if (value.starts_with('%')) {
    const auto multiple = number(value.substr(1));
    if (!multiple || *multiple < 1) return invalid("{}: expected a positive multiple after %, got `{}`", role, value);
    c.multiple = *multiple;
  } else if (dots != std::string_view::npos) {
    const auto lo = number(value.substr(0, dots)), hi = number(value.substr(dots + 2));
    if (!lo || !hi || *lo < 0 || *lo > *hi) return invalid("{}: expected a range lo..hi, got `{}`", role, value);
    c.lo = *lo;
    c.hi = *hi;
  } else {
    const auto exact = number(value);
    if (!exact || *exact < 0)
      return invalid("{}: expected a number, a range lo..hi or a multiple %n, got `{}`", role, value);
    c.lo = c.hi = *exact;
  }
  return c;
}

Result<SpecEntry> parse_match(const std::vector<std::string_view>& words, int line) {
  if (words.size() < 2) return invalid("expected a family after `match`");
  SpecEntry entry;
  entry.line = line;
  entry.family = words[1];
  for (size_t i = 2; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    if (equals == std::string_view::npos || equals == 0) return invalid("expected role=value, got `{}`", words[i]);
    const std::string_view key = words[i].substr(0, equals), value = words[i].substr(equals + 1);
    if (key == "name") {
      entry.kernel = value;
    } else if (key == "isa") {
      if (!parse_isa(value)) return invalid("isa: expected portable, avx2, avx512 or amx, got `{}`", value);
      entry.isa = value;
    } else if (key == "cache") {
      if (value != "hot" && value != "cold") return invalid("cache: expected hot or cold, got `{}`", value);
      entry.cache = value;
    } else {
      LATHE_ASSIGN(SpecClause clause, parse_clause(key, value));
      entry.clauses.push_back(std::move(clause));
    }
  }
  return entry;
}

Status parse_use(const std::vector<std::string_view>& words, SpecEntry& entry) {
  if (words.size() < 2) return invalid("expected a recipe or `schedule` after `use`");
  if (words[1] == "schedule") {
    if (words.size() > 2) return invalid("expected the moves of the schedule in the lines below, each after `|`");
    entry.schedule.family = entry.family;
    return {};
  }
  const auto recipe =
      std::find_if(recipes().begin(), recipes().end(), [&](const Recipe& r) { return words[1] == r.name; });
  if (recipe == recipes().end()) return invalid("expected a recipe or `schedule`, got `{}`", words[1]);
  entry.recipe = words[1];
  const std::vector<Knob> table = recipe->table();
  for (size_t i = 2; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    const auto value = equals == std::string_view::npos ? std::nullopt : number(words[i].substr(equals + 1));
    if (!value) return invalid("expected knob=number, got `{}`", words[i]);
    const Knob* knob = find_knob(table, words[i].substr(0, equals));
    if (knob == nullptr) return invalid("expected a knob of recipe {}, got `{}`", recipe->name, words[i]);
    if (!entry.knobs.emplace(knob->symbol, *value).second)
      return invalid("expected one value of knob {} ({})", knob->symbol, knob->name);
  }
  return {};
}

std::optional<int64_t> path_extent(const Stmt& s, const Problem& problem, std::string_view role) {
  if (s.kind != Stmt::Kind::scope) return std::nullopt;
  std::optional<int64_t> below;
  for (const Stmt& child : s.body) {
    const auto extent = path_extent(child, problem, role);
    if (extent && (!below || *extent > *below)) below = extent;
  }
  if (s.role != role) return below;
  return extent_at(s.extent, problem) * below.value_or(1);
}

}  // namespace

std::optional<int64_t> role_extent(const Problem& problem, std::string_view role) {
  std::optional<int64_t> most;
  for (const Stmt& s : problem.kernel.body) {
    const auto extent = path_extent(s, problem, role);
    if (extent && (!most || *extent > *most)) most = extent;
  }
  return most;
}

Result<TuningSpec> parse_tuning_spec(std::string_view text) {
  TuningSpec spec;
  bool header = false, used = true;
  int line_number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, std::min(end, text.find(';', at)) - at);
    at = end + 1;
    ++line_number;
    const std::vector<std::string_view> words = split_words(line);
    if (words.empty()) continue;
    Status status;
    if (!header) {
      if (words.size() != 2 || words[0] != "spec" || words[1] != "1") status = invalid("expected `spec 1`");
      header = true;
    } else if (words[0] == "match" && used) {
      Result<SpecEntry> entry = parse_match(words, line_number);
      status = entry.status();
      if (entry.ok()) spec.entries.push_back(std::move(*entry));
      used = false;
    } else if (words[0] == "use" && !used) {
      status = parse_use(words, spec.entries.back());
      used = true;
    } else if (words[0] == "|" && used && !spec.entries.empty() && spec.entries.back().recipe.empty()) {
      Result<Move> move = parse_move(line.substr(line.find('|') + 1));
      status = move.status();
      if (move.ok() && find_transform(move->name) == nullptr)
        status = invalid("expected the name of a move, got `{}`", move->name);
      if (move.ok()) spec.entries.back().schedule.moves.push_back(std::move(*move));
    } else {
      status = invalid("expected `{}`, got `{}`", used ? "match" : "use", words[0]);
    }
    if (!status.ok()) return status.with_context(fmt::format("line {}", line_number));
  }
  if (!header) return invalid("line 1: expected `spec 1`");
  if (!used) return invalid("line {}: expected `use` after this `match`", spec.entries.back().line);
  return spec;
}

const SpecEntry* find_entry(const TuningSpec& spec, const Problem& problem, const Target& target) {
  const auto matches = [&](const SpecClause& c) {
    const std::optional<int64_t> value = c.role == "threads" ? problem.threads : role_extent(problem, c.role);
    return value && *value >= c.lo && *value <= c.hi && *value % c.multiple == 0;
  };
  for (const SpecEntry& e : spec.entries) {
    if (e.family != problem.kernel.family) continue;
    if (!e.kernel.empty() && e.kernel != problem.kernel.name) continue;
    if (!e.isa.empty() && e.isa != isa_name(target.level)) continue;
    if (!e.cache.empty() && (e.cache == "cold") != problem.cold) continue;
    if (std::all_of(e.clauses.begin(), e.clauses.end(), matches)) return &e;
  }
  return nullptr;
}

Result<Schedule> expand(const SpecEntry& entry, const Problem& problem, const Target& target) {
  const auto at = [&](const Status& s) { return s.with_context(fmt::format("line {}", entry.line)); };
  if (entry.recipe.empty()) {
    const Result<Kernel> replayed = replay(problem.kernel, entry.schedule);
    if (!replayed.ok()) return at(replayed.status());
    return entry.schedule;
  }
  const Recipe* recipe = find_recipe(problem);
  if (recipe == nullptr || entry.recipe != recipe->name) {
    return at(unsupported("kernel {} is served by recipe {}, not {}", problem.kernel.name,
                          recipe ? recipe->name : "none", entry.recipe));
  }
  const std::unique_ptr<Sketch> sketch = recipe->sketch(problem, target);
  Knobs knobs = sketch->defaults();
  for (const auto& [symbol, value] : entry.knobs) {
    if (!knobs.contains(symbol))
      return at(
          unsupported("knob {} of recipe {} has no meaning for kernel {}", symbol, recipe->name, problem.kernel.name));
    knobs[symbol] = value;
  }
  if (const Status accepted = sketch->accepts(knobs); !accepted.ok()) return at(accepted);
  Result<Scheduled> made = sketch->script(knobs);
  if (!made.ok()) return at(made.status());
  return std::move(made->schedule);
}

}  // namespace lathe::search
