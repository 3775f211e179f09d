// Recipes: per family, a few knobs that expand into a Schedule of named moves. One predicate (accepts) enumerates,
// validates and asserts the default. Never compiles or times. Pure and thread-safe.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/status.h"
#include "ir/base/target.h"
#include "ir/core/binding.h"
#include "search/moves/schedule.h"

namespace lathe::search {

// On average, where elements share bytes.
inline double bytes_of_each(ir::DType type) {
  const ir::Storage s = ir::dtype_storage(type);
  return s.bits / (8.0 * s.values);
}

struct ProblemFacts;
struct Structure;

// By symbol.
using Knobs = std::map<std::string, int64_t>;
inline int64_t knob_of(const Knobs& knobs, const std::string& symbol, int64_t otherwise = 0) {
  const auto it = knobs.find(symbol);
  return it == knobs.end() ? otherwise : it->second;
}

// A knob of a recipe, for people and texts.
struct Knob {
  const char* name;    // what people call it: "tile_rows"
  const char* symbol;  // what records, measured tables and tuning specs write: "mr"
  const char* text;    // one line
  int64_t older;       // what records that lack it mean
  int64_t least, most;
  bool seen;  // by features of the structure; else one has its name
};
// By name or symbol; null: none.
const Knob* find_knob(const std::vector<Knob>& table, std::string_view name);

// What a Schedule is wanted for. The kernel's symbols are restricted to the range it has to serve.
struct Problem {
  ir::Kernel kernel;
  ir::SymbolValues dims;  // representative value of each symbol (a hint of the workload)
  int threads = 1;
  bool cold = false;        // weights come from memory, as in decode
  bool one_layout = false;  // other ranges of the same operator share its packed constants
  uint32_t allowed = 0;     // NumericClass bits beyond those that every sketch takes for granted
  bool unhurried = false;   // nobody waits for its code, as in a warm-up: the default may be much of it
};

struct KnobDomain {
  std::string name;  // symbol
  std::vector<int64_t> values;
};

// A recipe for one problem and one target, both of which outlive it: what all settings share is looked at once.
class Sketch {
 public:
  virtual ~Sketch() = default;
  // The knobs that the problem leaves, with the values worth trying.
  virtual std::vector<KnobDomain> domains() const = 0;
  // Every setting of those that is accepted, the last domain fastest.
  virtual std::vector<Knobs> accepted() const = 0;
  virtual ir::Status accepts(const Knobs& knobs) const = 0;
  virtual Knobs defaults() const = 0;  // empty: no setting is accepted
  // What to try in turn where the default is refused later: each asks less of the Kernel, of the registers and of the
  // caller.
  virtual std::vector<Knobs> simpler() const = 0;
  // The moves and, not verified, what they make.
  virtual ir::Result<Scheduled> script(const Knobs& knobs) const = 0;
  virtual double estimate(const Knobs& knobs) const = 0;  // predicted cycles, for ordering only
  virtual Structure structure(const Knobs& knobs, const ProblemFacts& facts) const = 0;
};

struct Recipe {
  const char* name;
  int version;
  bool (*matches)(const Problem&);
  std::vector<Knob> (*table)();
  std::unique_ptr<Sketch> (*sketch)(const Problem&, const ir::Target&);

  std::string origin() const { return fmt::format("{}.{}", name, version); }  // "panel.1"

  // Of one setting; many of a problem share a sketch.
  std::vector<KnobDomain> knobs(const Problem& problem, const ir::Target& target) const;
  ir::Status accepts(const Knobs& knobs, const Problem& problem, const ir::Target& target) const;
  Knobs defaults(const Problem& problem, const ir::Target& target) const;
  ir::Result<Scheduled> script(const Knobs& knobs, const Problem& problem, const ir::Target& target) const;
  double estimate(const Knobs& knobs, const Problem& problem, const ir::Target& target) const;
  ir::Result<Schedule> build(const Knobs& knobs, const Problem& problem, const ir::Target& target) const;
};

const std::vector<Recipe>& recipes();
// The first recipe that matches; null: the naive Kernel is served as it is.
const Recipe* find_recipe(const Problem& problem);
// The one of a Schedule or a row, whatever its version; null: there is none, or it is none of this problem's.
const Recipe* recipe_of(std::string_view origin, const Problem& problem);

// The default Schedule; never fails on a Kernel ops made: without a recipe, or if the recipe's moves are refused, it is
// the empty one.
Schedule default_schedule(const Problem& problem, const ir::Target& target);
// The same with the Kernel that it makes, so that no move is applied twice. Who builds it verifies it.
Scheduled default_scheduled(const Problem& problem, const ir::Target& target);
// What to try in turn where the default has no leaf form, no code for want of registers, or liberties that are not
// allowed: sums in their own order, one row at a time and ever fewer vectors, then the naive loops.
std::vector<Scheduled> simpler_schedules(const Problem& problem, const ir::Target& target);

// At most n Schedules in the order worth trying, the default first, distinct; without a recipe those of
// generic_schedules().
std::vector<Schedule> candidates(const Problem& problem, const ir::Target& target, int n);

// The kernel with each symbol's range narrowed; a symbol fixed to one value becomes that constant.
ir::Kernel restrict_symbols(const ir::Kernel& kernel, const ir::SymbolRanges& ranges);

// Applies moves as they are written; the first refusal sticks, and the Kernel stays what the moves before it made.
// `start` outlives it; statements and buffers of kernel() end with the next move, so that names are kept, or copies.
class Script {
 public:
  // cache: the level that prefetches are to, 1 or 2.
  explicit Script(const ir::Kernel& start, int cache = 1) : start_(start), cache_(cache), kernel_(start) {}
  template <class... A>
  void move(fmt::format_string<A...> format, A&&... args) {
    add(fmt::format(format, std::forward<A>(args)...));
  }
  // The move `prefetch` with these arguments.
  template <class... A>
  void prefetch(fmt::format_string<A...> format, A&&... args) {
    add("prefetch " + fmt::format(format, std::forward<A>(args)...) + (cache_ == 2 ? " to=l2" : ""));
  }
  const ir::Kernel& kernel() const { return kernel_; }
  bool ok() const { return status_.ok(); }
  ir::Result<Scheduled> finish(const Recipe& recipe, const Knobs& knobs) &&;

 private:
  void add(const std::string& line);
  const ir::Kernel& start_;
  const int cache_;
  ir::Kernel kernel_;
  ir::Status status_;
  std::vector<Move> moves_;
};

// Scopes with a role, in program order, parents first.
std::vector<const ir::Stmt*> scopes_with_role(const ir::Kernel& kernel, std::string_view role);
// "exact" where so many iterations are whole pieces whatever the symbols, else "mask".
const char* tail_of(const ir::Expr& extent, int64_t piece, const ir::Kernel& kernel);
// Columns in vectors, `unroll` of them a step; the scope holds assignments only. A few vectors that are left behind
// whole steps are unrolled, at most kMostUnrolledTail.
void vectorize_columns(Script& s, const ir::Stmt& col, int64_t unroll, int64_t lanes);
inline constexpr int64_t kMostUnrolledTail = 3;
// The extent at the problem's representative dims.
int64_t extent_at(const ir::Expr& extent, const Problem& problem);
// Of what the Kernel reads and writes, at the representative dims: beyond half of the last-level cache a result that
// goes past the caches may pay, whoever reads it next; beyond three quarters it does.
bool may_stream(const Problem& problem, const ir::Target& target);
bool exceeds_caches(const Problem& problem, const ir::Target& target);
// The scope's body holds nothing but the scope `inner`.
bool perfectly_contains(const ir::Stmt& outer, const ir::Stmt& inner);

extern const Recipe kDotsRecipe, kGroupsRecipe, kMatmulRecipe, kQuantisedRecipe, kQueriesRecipe, kQueryTilesRecipe,
    kRowRecipe, kTransposeRecipe;

}  // namespace lathe::search
