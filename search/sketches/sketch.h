// What a recipe writes of its sketch, and what follows from it. A sketch S has a struct of numbers S::Setting, a table
// of them, and:
//
//   S(const Problem&, const ir::Target&)
//   static bool matches(const Problem&)
//   static const std::vector<KnobRow<S>>& table()
//   ir::Status accepts(const Setting&) const             legality, within each knob's least and most
//   std::optional<Setting> standard() const              the default; none: nothing is accepted
//   std::vector<Setting> simpler(const Setting&) const   what to try in turn where the default is refused later
//   ir::Status write(Script&, const Setting&) const      the moves
//   double estimate(const Setting&) const                predicted cycles
//   Structure structure(const Setting&, const ProblemFacts&) const
#pragma once
#include <algorithm>
#include <optional>

#include "search/sketches/recipe.h"
#include "search/sketches/structure.h"

namespace lathe::search {

inline constexpr int64_t kAnySize = INT64_MAX;

// One number of a setting. What records that lack it mean is its value in a fresh Setting.
template <class S>
struct KnobRow {
  const char *name, *symbol, *text;
  int64_t S::Setting::* field;
  int64_t least, most;
  bool seen;                                 // Knob::seen
  std::vector<int64_t> (*values)(const S&);  // worth trying on this problem; none: it is not asked
};

// The values where there is a choice, else the first one.
inline std::vector<int64_t> values_if(bool choice, std::vector<int64_t> values) {
  if (!choice) values.resize(1);
  return values;
}

// Some values of one number of a setting.
template <class Setting>
struct Choice {
  int64_t Setting::* field;
  std::vector<int64_t> values;
};

// Visits `base` with every combination of the choices, the last one fastest.
template <class Setting, class Visit>
void each_setting(Setting base, const std::vector<Choice<Setting>>& choices, const Visit& visit, size_t from = 0) {
  if (from == choices.size()) return visit(base);
  for (const int64_t v : choices[from].values) {
    base.*choices[from].field = v;
    each_setting(base, choices, visit, from + 1);
  }
}

// What the problem leaves of a knob.
template <class S>
std::vector<int64_t> values_of(const S& sketch, int64_t S::Setting::* field) {
  for (const KnobRow<S>& row : S::table()) {
    if (row.field == field) return row.values(sketch);
  }
  return {};
}

template <class S>
class SketchOf final : public Sketch {
 public:
  SketchOf(const Recipe& recipe, const Problem& problem, const ir::Target& target)
      : recipe_(recipe), problem_(problem), sketch_(problem, target), prefetched_(target.prefetched_cache()) {
    for (const KnobRow<S>& row : S::table()) {
      if (std::vector<int64_t> values = row.values(sketch_); !values.empty())
        asked_.push_back({{row.field, std::move(values)}, row.symbol});
    }
  }

  std::vector<KnobDomain> domains() const override {
    std::vector<KnobDomain> out;
    for (const Asked& a : asked_) out.push_back({a.symbol, a.choice.values});
    return out;
  }
  std::vector<Knobs> accepted() const override {
    std::vector<Choice<Setting>> choices;
    for (const Asked& a : asked_) choices.push_back(a.choice);
    std::vector<Knobs> out;
    each_setting(Setting{}, choices, [&](const Setting& setting) {
      if (sketch_.accepts(setting).ok()) out.push_back(knobs_of(setting));
    });
    return out;
  }
  ir::Status accepts(const Knobs& knobs) const override {
    LATHE_RETURN_IF_ERROR(in_range(knobs));
    return sketch_.accepts(setting_of(knobs));
  }
  Knobs defaults() const override {
    const auto standard = sketch_.standard();
    return standard ? knobs_of(*standard) : Knobs{};
  }
  std::vector<Knobs> simpler() const override {
    std::vector<Knobs> out;
    const auto standard = sketch_.standard();
    if (!standard) return out;
    for (const auto& setting : sketch_.simpler(*standard)) {
      if (setting != *standard && sketch_.accepts(setting).ok()) out.push_back(knobs_of(setting));
    }
    return out;
  }
  ir::Result<Scheduled> script(const Knobs& knobs) const override {
    LATHE_RETURN_IF_ERROR(in_range(knobs));
    Script script(problem_.kernel, prefetched_);
    LATHE_RETURN_IF_ERROR(sketch_.write(script, setting_of(knobs)));
    return std::move(script).finish(recipe_, knobs);
  }
  double estimate(const Knobs& knobs) const override { return sketch_.estimate(setting_of(knobs)); }
  Structure structure(const Knobs& knobs, const ProblemFacts& facts) const override {
    return sketch_.structure(setting_of(knobs), facts);
  }

 private:
  using Setting = typename S::Setting;
  // A knob that the problem leaves.
  struct Asked {
    Choice<Setting> choice;
    const char* symbol;
  };

  ir::Status in_range(const Knobs& knobs) const {
    for (const KnobRow<S>& row : S::table()) {
      const int64_t value = knob_of(knobs, row.symbol, Setting{}.*row.field);
      if (value >= row.least && value <= row.most) continue;
      return ir::unsupported(
          "{} {}: expected {}", row.symbol, value,
          row.most == kAnySize ? fmt::format("at least {}", row.least) : fmt::format("{} to {}", row.least, row.most));
    }
    return {};
  }
  // Features are asked for settings that nothing accepts as well.
  Setting setting_of(const Knobs& knobs) const {
    Setting out;
    for (const KnobRow<S>& row : S::table())
      out.*row.field = std::clamp(knob_of(knobs, row.symbol, out.*row.field), row.least, row.most);
    return out;
  }
  Knobs knobs_of(const Setting& setting) const {
    Knobs out;
    for (const Asked& a : asked_) out[a.symbol] = setting.*a.choice.field;
    return out;
  }

  const Recipe& recipe_;
  const Problem& problem_;
  S sketch_;
  const int prefetched_;
  std::vector<Asked> asked_;
};

template <class S>
std::vector<Knob> knob_table() {
  std::vector<Knob> out;
  for (const KnobRow<S>& r : S::table())
    out.push_back({r.name, r.symbol, r.text, typename S::Setting{}.*r.field, r.least, r.most, r.seen});
  return out;
}

template <class S, const Recipe& R>
std::unique_ptr<Sketch> make_sketch(const Problem& problem, const ir::Target& target) {
  return std::make_unique<SketchOf<S>>(R, problem, target);
}

}  // namespace lathe::search
