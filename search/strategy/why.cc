// See why.h.
#include "search/strategy/why.h"

#include <algorithm>
#include <set>

namespace lathe::search {
namespace {

constexpr int kValuesTried = 3;  // of a knob, the accepted ones nearest in its domain

std::multiset<std::string> texts_of(const Schedule& schedule) {
  std::multiset<std::string> out;
  for (const Move& m : schedule.moves) out.insert(to_text(m));
  return out;
}

// What the sketch expands to with one knob at other values.
std::vector<std::multiset<std::string>> expansions(const Sketch& sketch, const KnobDomain& domain,
                                                   const Schedule& schedule) {
  std::vector<int64_t> values = domain.values;
  const int64_t own = knob_of(schedule.knobs, domain.name);
  std::stable_sort(values.begin(), values.end(),
                   [&](int64_t a, int64_t b) { return std::abs(a - own) < std::abs(b - own); });
  std::vector<std::multiset<std::string>> out;
  for (const int64_t value : values) {
    if (static_cast<int>(out.size()) == kValuesTried) break;
    Knobs knobs = schedule.knobs;
    knobs[domain.name] = value;
    if (value == own || !sketch.accepts(knobs).ok()) continue;
    const ir::Result<Scheduled> other = sketch.script(knobs);
    if (other.ok()) out.push_back(texts_of(other->schedule));
  }
  return out;
}

}  // namespace

std::vector<MoveReason> move_reasons(const Problem& problem, const ir::Target& target, const Schedule& schedule) {
  std::vector<MoveReason> out;
  for (const Move& m : schedule.moves) {
    const Transform* row = find_transform(m.name);
    out.push_back({to_text(m), row != nullptr ? row->picture : "", "as written"});
  }
  const Recipe* recipe = recipe_of(schedule.recipe, problem);
  if (recipe == nullptr) return out;
  const std::unique_ptr<Sketch> sketch = recipe->sketch(problem, target);
  const ir::Result<Scheduled> own = sketch->script(schedule.knobs);
  if (!own.ok()) return out;
  const std::multiset<std::string> expanded = texts_of(own->schedule);
  for (MoveReason& r : out) r.why = expanded.contains(r.move) ? "" : "added by search";
  for (const KnobDomain& domain : sketch->domains()) {
    if (!schedule.knobs.contains(domain.name)) continue;
    const auto others = expansions(*sketch, domain, schedule);
    for (MoveReason& r : out) {
      const bool follows =
          std::any_of(others.begin(), others.end(), [&](const auto& texts) { return !texts.contains(r.move); });
      if (!follows || r.why == "added by search") continue;
      r.why += fmt::format("{}{}={}", r.why.empty() ? "" : ", ", domain.name, schedule.knobs.at(domain.name));
    }
  }
  for (MoveReason& r : out) {
    if (r.why.empty()) r.why = "recipe " + schedule.recipe;
  }
  return out;
}

std::vector<KnobReason> knob_reasons(const Problem& problem, const Schedule& schedule) {
  std::vector<KnobReason> out;
  const Recipe* recipe = recipe_of(schedule.recipe, problem);
  if (recipe == nullptr) return out;
  for (const Knob& k : recipe->table()) {
    if (schedule.knobs.contains(k.symbol)) out.push_back({k, schedule.knobs.at(k.symbol)});
  }
  return out;
}

}  // namespace lathe::search
