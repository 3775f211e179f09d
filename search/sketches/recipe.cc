// The recipe table, enumeration and ordering: see recipe.h.
#include "search/sketches/recipe.h"

#include <algorithm>
#include <set>

#include "ir/analysis/analysis.h"
#include "search/sketches/generic_schedules.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> kAll = {kMatmulRecipe, kDotsRecipe,    kQuantisedRecipe, kQueryTilesRecipe,
                                           kGroupsRecipe, kQueriesRecipe, kTransposeRecipe, kRowRecipe};
  return kAll;
}

const Recipe* find_recipe(const Problem& problem) {
  for (const Recipe& r : recipes()) {
    if (r.matches(problem)) return &r;
  }
  return nullptr;
}

const Recipe* recipe_of(std::string_view origin, const Problem& problem) {
  for (const Recipe& r : recipes()) {
    if (origin.substr(0, origin.rfind('.')) == r.name) return r.matches(problem) ? &r : nullptr;
  }
  return nullptr;
}

const Knob* find_knob(const std::vector<Knob>& table, std::string_view name) {
  const auto at =
      std::find_if(table.begin(), table.end(), [&](const Knob& k) { return name == k.symbol || name == k.name; });
  return at == table.end() ? nullptr : &*at;
}

std::vector<KnobDomain> Recipe::knobs(const Problem& problem, const Target& target) const {
  return sketch(problem, target)->domains();
}
Status Recipe::accepts(const Knobs& knobs, const Problem& problem, const Target& target) const {
  return sketch(problem, target)->accepts(knobs);
}
Knobs Recipe::defaults(const Problem& problem, const Target& target) const {
  return sketch(problem, target)->defaults();
}
Result<Scheduled> Recipe::script(const Knobs& knobs, const Problem& problem, const Target& target) const {
  return sketch(problem, target)->script(knobs);
}
double Recipe::estimate(const Knobs& knobs, const Problem& problem, const Target& target) const {
  return sketch(problem, target)->estimate(knobs);
}
Result<Schedule> Recipe::build(const Knobs& knobs, const Problem& problem, const Target& target) const {
  LATHE_ASSIGN(Scheduled scheduled, script(knobs, problem, target));
  return std::move(scheduled.schedule);
}

static Scheduled naive_loops(const Problem& problem) { return {{.family = problem.kernel.family}, problem.kernel}; }

// What the recipes that match make in turn: each its default, then what asks less. Stops where `take` is true.
template <class Take>
static void in_turn(const Problem& problem, const Target& target, const Take& take) {
  for (const Recipe& r : recipes()) {
    if (!r.matches(problem)) continue;
    const std::unique_ptr<Sketch> sketch = r.sketch(problem, target);
    const auto taken = [&](const Knobs& setting) {
      Result<Scheduled> s = sketch->script(setting);
      return s.ok() && take(std::move(s).value());
    };
    if (const Knobs standard = sketch->defaults(); !standard.empty() && taken(standard)) return;
    const std::vector<Knobs> settings = sketch->simpler();
    if (std::any_of(settings.begin(), settings.end(), taken)) return;
  }
}

Scheduled default_scheduled(const Problem& problem, const Target& target) {
  Scheduled out = naive_loops(problem);
  // The moves may refuse what the knobs promise for the usual Kernel: one with something more between its passes.
  in_turn(problem, target, [&](Scheduled s) {
    out = std::move(s);
    return true;
  });
  return out;
}

Schedule default_schedule(const Problem& problem, const Target& target) {
  return default_scheduled(problem, target).schedule;
}

std::vector<Scheduled> simpler_schedules(const Problem& problem, const Target& target) {
  std::vector<Scheduled> out;
  in_turn(problem, target, [&](Scheduled s) {
    out.push_back(std::move(s));
    return false;
  });
  if (!out.empty()) out.erase(out.begin());  // the default
  out.push_back(naive_loops(problem));
  return out;
}

std::vector<Schedule> candidates(const Problem& problem, const Target& target, int n) {
  std::vector<Schedule> out{default_schedule(problem, target)};
  const Recipe* r = find_recipe(problem);
  if (r == nullptr) {
    for (Schedule& s : generic_schedules(problem, target, n - 1)) out.push_back(std::move(s));
    return out;
  }
  std::set<std::string> seen;
  const auto moves_of = [](const Schedule& s) {
    std::string text;
    for (const Move& m : s.moves) text += to_text(m) + "\n";
    return text;
  };
  seen.insert(moves_of(out[0]));
  const std::unique_ptr<Sketch> sketch = r->sketch(problem, target);
  std::vector<std::pair<double, Knobs>> order;
  for (Knobs& k : sketch->accepted()) order.emplace_back(sketch->estimate(k), std::move(k));
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [cycles, k] : order) {
    if (static_cast<int>(out.size()) >= n) break;
    Result<Scheduled> s = sketch->script(k);
    if (s.ok() && seen.insert(moves_of(s->schedule)).second) out.push_back(std::move(s->schedule));
  }
  return out;
}

Kernel restrict_symbols(const Kernel& kernel, const SymbolRanges& ranges) {
  Kernel out = kernel;
  std::vector<std::pair<std::string, Expr>> fixed;
  for (Symbol& s : out.symbols) {
    if (auto it = ranges.find(s.name); it != ranges.end()) {
      s.min = std::max(s.min, it->second.lo);
      s.max = std::min(s.max, it->second.hi);
    }
    if (s.min == s.max) fixed.emplace_back(s.name, Expr(s.min));
  }
  if (fixed.empty()) return out;
  std::erase_if(out.symbols, [](const Symbol& s) { return s.min == s.max; });
  const auto fix = [&](const Expr& e) { return simplify(substitute(e, fixed)); };
  for (Buffer& b : out.buffers) {
    for (Expr& e : b.dims) e = fix(e);
    for (Expr& e : b.strides) e = e ? fix(e) : e;
    if (b.values) b.values = {fix(b.values.lo), fix(b.values.hi)};
  }
  for_each_stmt(out.body, [&](Stmt& s) {
    if (s.extent) s.extent = fix(s.extent);
    for (Expr& e : s.index) e = fix(e);
    if (s.value) s.value = substitute(s.value, fixed);
  });
  return out;
}

void Script::add(const std::string& line) {
  if (!status_.ok()) return;
  Result<Move> move = parse_move(line);
  if (!move.ok()) {
    status_ = move.status().with_context(line);
    return;
  }
#ifndef NDEBUG
  kernel_ = Kernel(kernel_);  // at another address, so that a sanitizer sees who keeps a pointer into it over a move
#endif
  const Status applied = apply_in_place(kernel_, *move, {.verify = false});  // who keeps the Kernel verifies it
  if (applied.ok()) {
    moves_.push_back(std::move(*move));
    return;
  }
  status_ = applied.with_context(line);
  kernel_ = start_;
  for (const Move& m : moves_) (void)apply_in_place(kernel_, m, {.verify = false});
}

Result<Scheduled> Script::finish(const Recipe& recipe, const Knobs& knobs) && {
  if (!status_.ok()) return status_;
  Scheduled out;
  out.schedule.family = kernel_.family;
  out.schedule.numeric = kernel_.numeric;
  out.schedule.recipe = recipe.origin();
  out.schedule.knobs = knobs;
  out.schedule.moves = std::move(moves_);
  out.kernel = std::move(kernel_);
  return out;
}

std::vector<const Stmt*> scopes_with_role(const Kernel& kernel, std::string_view role) {
  std::vector<const Stmt*> out;
  for_each_stmt(kernel.body, [&](const Stmt& s) {
    if (s.kind == Stmt::Kind::scope && s.role == role) out.push_back(&s);
  });
  return out;
}

const char* tail_of(const Expr& extent, int64_t piece, const Kernel& kernel) {
  return proves_divisible(extent, piece, Ranges(kernel)) ? "exact" : "mask";
}

int64_t extent_at(const Expr& extent, const Problem& problem) {
  return evaluate(extent, problem.dims).value_or(interval(extent, Ranges(problem.kernel)).hi);
}

namespace {
double parameter_bytes(const Problem& problem) {
  double total = 0;
  for (const Buffer& b : problem.kernel.buffers) {
    if (b.place == Place::heap) continue;
    double size = bytes_of_each(b.type);
    for (const Expr& d : b.dims) size *= static_cast<double>(extent_at(d, problem));
    total += size;
  }
  return total;
}
}  // namespace

bool may_stream(const Problem& problem, const Target& t) {
  return parameter_bytes(problem) >= 0.5 * static_cast<double>(t.l3_bytes);
}
bool exceeds_caches(const Problem& problem, const Target& t) {
  return parameter_bytes(problem) >= 0.75 * static_cast<double>(t.l3_bytes);
}

void vectorize_columns(Script& s, const Stmt& col, int64_t unroll, int64_t lanes) {
  const std::string c = col.iter;
  if (unroll == 1) {
    s.move("tile_scope {} {} tail={} as {}v,{}l", c, lanes, tail_of(col.extent, lanes, s.kernel()), c, c);
    s.move("vectorize_scope {}l", c);
    return;
  }
  if (proves_divisible(col.extent, unroll * lanes, Ranges(s.kernel()))) {
    s.move("tile_scope {} {} tail=exact as {}s,{}i", c, unroll * lanes, c, c);
  } else {
    s.move("tile_scope {} {} tail=peel as {}s,{}i,{}t", c, unroll * lanes, c, c, c);
    s.move("tile_scope {}t {} tail=mask as {}tv,{}tl", c, lanes, c, c);
    s.move("vectorize_scope {}tl", c);
    // A few: no loop waits for its own sums. More would take registers that the step's have.
    const int64_t rest = is_const_int(col.extent) ? col.extent->ival % (unroll * lanes) : 0;
    if (rest != 0 && rest <= kMostUnrolledTail * lanes) s.move("unroll_scope {}tv", c);
  }
  s.move("tile_scope {}i {} tail=exact as {}u,{}l", c, lanes, c, c);
  s.move("vectorize_scope {}l", c);
  s.move("unroll_scope {}u", c);
}

bool perfectly_contains(const Stmt& outer, const Stmt& inner) {
  const Stmt* s = &outer;
  while (s->iter != inner.iter) {
    if (s->body.size() != 1 || s->body[0].kind != Stmt::Kind::scope) return false;
    s = &s->body[0];
  }
  return true;
}

}  // namespace lathe::search
