// The space of a recipe's accepted configurations. See space.h.
#include "search/strategy/space.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "search/model/neighbours.h"
#include "search/sketches/generic_schedules.h"

namespace lathe::search {

namespace {
constexpr int kGeneric = 64, kMoveNeighbours = 24;  // Schedules without a recipe; neighbours by moves of one point
constexpr double kSpecial = 3;                      // distance between a size and a special value
constexpr double kCode = 1e6;                       // coded knobs from here on are no sizes
}  // namespace

double coded_knob(const Knobs& knobs, const std::string& name) {
  const auto it = knobs.find(name);
  if (it == knobs.end()) return 2 * kCode;
  return it->second > 0 ? std::log2(static_cast<double>(it->second)) : kCode - static_cast<double>(it->second) * 100;
}

double coded_distance(double a, double b) { return a == b ? 0 : a >= kCode || b >= kCode ? kSpecial : std::abs(a - b); }

double knob_distance(const Knobs& a, const Knobs& b) {
  double d = 0;
  for (const auto& [name, value] : a) d += coded_distance(coded_knob(a, name), coded_knob(b, name));
  for (const auto& [name, value] : b) d += a.count(name) ? 0 : kSpecial;
  return d;
}

struct RecipeSpace::Impl {
  Impl(const Problem& p, const ir::Target& t, const MachineRates& r)
      : problem(p), target(t), recipe(find_recipe(p)), featurizer(p, t, r, recipe) {
    if (recipe != nullptr) sketch = recipe->sketch(problem, target);
  }

  Problem problem;
  ir::Target target;
  const Recipe* recipe;
  std::unique_ptr<Sketch> sketch;  // the recipe's
  Featurizer featurizer;
  std::vector<KnobDomain> domains;
  std::vector<SpacePoint> points;
  std::map<Knobs, int> by_knobs;         // points of the recipe without extra moves
  std::map<std::string, int> by_moves;   // the others, by the text of knobs and moves
  std::map<int, std::vector<int>> near;  // neighbours found so far
  size_t enumerated = 0;
  int standard = 0;

  int add_knobs(const Knobs& knobs) {
    const auto [it, fresh] = by_knobs.emplace(knobs, static_cast<int>(points.size()));
    if (!fresh) return it->second;
    const Featurizer::Result r = featurizer.of(knobs);
    points.push_back({knobs, {}, r.x, r.us});
    return it->second;
  }

  ir::Result<Scheduled> base(const Knobs& knobs) const {
    if (sketch != nullptr && !knobs.empty()) return sketch->script(knobs);
    return Scheduled{{.family = problem.kernel.family}, problem.kernel};
  }

  // A point with moves of its own. Its features come from replay; without one it is not added: -1.
  int add_moves(const Knobs& knobs, const std::vector<Move>& extra) {
    std::string text;
    for (const auto& [name, value] : knobs) text += fmt::format("{}={} ", name, value);
    for (const Move& m : extra) text += to_text(m) + "\n";
    if (const auto it = by_moves.find(text); it != by_moves.end()) return it->second;
    const std::optional<Featurizer::Result> seen = featurizer.of(knobs, extra);
    if (!seen) return -1;
    points.push_back({knobs, extra, seen->x, seen->us});
    const int n = static_cast<int>(points.size()) - 1;
    by_moves.emplace(std::move(text), n);
    return n;
  }
};

RecipeSpace::RecipeSpace(const Problem& problem, const ir::Target& target, const MachineRates& rates)
    : impl_(std::make_shared<Impl>(problem, target, rates)) {
  if (impl_->recipe != nullptr) {
    impl_->domains = impl_->sketch->domains();
    for (const Knobs& knobs : impl_->sketch->accepted()) impl_->add_knobs(knobs);
    impl_->standard = impl_->add_knobs(impl_->sketch->defaults());
    impl_->enumerated = impl_->points.size();
  } else {
    impl_->standard = impl_->add_knobs({});
    impl_->enumerated = 1;
    for (const Schedule& s : generic_schedules(problem, target, kGeneric)) add(s);
  }
}

int RecipeSpace::size() const { return static_cast<int>(impl_->points.size()); }
const SpacePoint& RecipeSpace::at(int i) const { return impl_->points[static_cast<size_t>(i)]; }
int RecipeSpace::default_index() const { return impl_->standard; }
const std::vector<KnobDomain>& RecipeSpace::domains() const { return impl_->domains; }

int RecipeSpace::nearest(const Knobs& knobs) {
  if (impl_->recipe == nullptr) return -1;
  if (const auto it = impl_->by_knobs.find(knobs); it != impl_->by_knobs.end()) return it->second;
  int best = -1;
  double least = 0;
  for (size_t i = 0; i < impl_->enumerated; ++i) {
    const double distance = knob_distance(impl_->points[i].knobs, knobs);
    if (best >= 0 && distance >= least) continue;
    best = static_cast<int>(i);
    least = distance;
  }
  return best;
}

std::vector<int> RecipeSpace::neighbours(int i) {
  if (const auto known = impl_->near.find(i); known != impl_->near.end()) return known->second;
  std::vector<int> out;
  const Knobs from = impl_->points[static_cast<size_t>(i)].knobs;
  const auto take = [&](int n) {
    if (n >= 0 && n != i && std::find(out.begin(), out.end(), n) == out.end()) out.push_back(n);
  };
  for (const KnobDomain& domain : impl_->domains) {
    const auto it = from.find(domain.name);
    if (it == from.end()) continue;
    const auto at = std::find(domain.values.begin(), domain.values.end(), it->second);
    if (at == domain.values.end()) continue;
    const auto here = at - domain.values.begin(), count = static_cast<std::ptrdiff_t>(domain.values.size());
    for (const std::ptrdiff_t step : {1, -1}) {
      // The next accepted value that way.
      for (std::ptrdiff_t v = here + step; v >= 0 && v < count; v += step) {
        Knobs k = from;
        k[domain.name] = domain.values[static_cast<size_t>(v)];
        const auto known = impl_->by_knobs.find(k);
        if (known == impl_->by_knobs.end()) continue;
        take(known->second);
        break;
      }
    }
  }
  // Moves: changed, left out, put in.
  if (const ir::Result<Scheduled> here = scheduled(i); here.ok()) {
    for (const Neighbour& n : search::neighbours(impl_->problem, impl_->target, here->schedule, kMoveNeighbours, 1)) {
      take(add(n.schedule));
    }
  }
  impl_->near.emplace(i, out);
  return out;
}

ir::Result<Scheduled> RecipeSpace::scheduled(int i) const {
  const SpacePoint& p = at(i);
  LATHE_ASSIGN(Scheduled s, impl_->base(p.knobs));
  LATHE_RETURN_IF_ERROR(extend(s, p.extra));
  return s;
}

int RecipeSpace::add(const Schedule& schedule) {
  const Recipe* r = impl_->recipe;
  if (r != nullptr && !schedule.knobs.empty() && schedule.recipe == r->origin()) {
    const auto known = impl_->by_knobs.find(schedule.knobs);
    const ir::Result<Scheduled> made =
        known != impl_->by_knobs.end() ? impl_->base(schedule.knobs) : ir::Result<Scheduled>(Scheduled{});
    if (known != impl_->by_knobs.end() && made.ok() && made->schedule.moves.size() <= schedule.moves.size()) {
      const std::vector<Move>& own = made->schedule.moves;
      const bool prefix = std::equal(own.begin(), own.end(), schedule.moves.begin(),
                                     [](const Move& a, const Move& b) { return to_text(a) == to_text(b); });
      const std::vector<Move> rest(schedule.moves.begin() + static_cast<std::ptrdiff_t>(own.size()),
                                   schedule.moves.end());
      if (prefix && rest.empty()) return known->second;
      if (prefix) return impl_->add_moves(schedule.knobs, rest);
    }
  }
  return impl_->add_moves({}, schedule.moves);
}

}  // namespace lathe::search
