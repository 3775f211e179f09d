// Recipes: per family, a few knobs that expand into a Schedule of named moves. One predicate (accepts) enumerates,
// validates and asserts the default. Never compiles or times. Pure and thread-safe.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/base/target.h"
#include "ir/core/binding.h"
#include "search/moves/schedule.h"

namespace lathe::search {

using Knobs = std::map<std::string, int64_t>;
// What older records lack means what it did then: `otherwise`.
inline int64_t knob_of(const Knobs& knobs, const std::string& name, int64_t otherwise = 0) {
  const auto it = knobs.find(name);
  return it == knobs.end() ? otherwise : it->second;
}

// What a Schedule is wanted for. The kernel's symbols are restricted to the range it has to serve.
struct Problem {
  ir::Kernel kernel;
  ir::SymbolValues dims;  // representative value of each symbol (a hint of the workload)
  int threads = 1;
  bool cold = false;        // weights come from memory, as in decode
  bool one_layout = false;  // other ranges of the same operator share its packed constants
  bool unhurried = false;   // nobody waits for its code, as in a warm-up: the default may be much of it
};

struct KnobDomain {
  std::string name;
  std::vector<int64_t> values;
};

struct Recipe {
  const char* name;
  int version;
  bool (*matches)(const Problem&);
  std::vector<KnobDomain> (*knobs)(const Problem&, const ir::Target&);
  ir::Status (*accepts)(const Knobs&, const Problem&, const ir::Target&);
  Knobs (*defaults)(const Problem&, const ir::Target&);
  ir::Result<Scheduled> (*script)(const Knobs&, const Problem&,
                                  const ir::Target&);                   // the moves and, not verified, what they make
  double (*estimate)(const Knobs&, const Problem&, const ir::Target&);  // predicted cycles, for ordering only

  ir::Result<Schedule> build(const Knobs& knobs, const Problem& problem, const ir::Target& target) const;
};

const std::vector<Recipe>& recipes();
// The first recipe that matches; null: the naive Kernel is served as it is.
const Recipe* find_recipe(const Problem& problem);

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
// `start` outlives it.
class Script {
 public:
  explicit Script(const ir::Kernel& start) : start_(start), kernel_(start) {}
  template <class... A>
  void move(fmt::format_string<A...> format, A&&... args) {
    add(fmt::format(format, std::forward<A>(args)...));
  }
  const ir::Kernel& kernel() const { return kernel_; }
  bool ok() const { return status_.ok(); }
  ir::Result<Scheduled> finish(const Recipe& recipe, const Knobs& knobs) &&;

 private:
  void add(const std::string& line);
  const ir::Kernel& start_;
  ir::Kernel kernel_;
  ir::Status status_;
  std::vector<Move> moves_;
};

// Scopes with a role, in program order, parents first.
std::vector<const ir::Stmt*> scopes_with_role(const ir::Kernel& kernel, std::string_view role);
// The extent at the problem's representative dims.
int64_t extent_at(const ir::Expr& extent, const Problem& problem);
// Of what the Kernel reads and writes, at the representative dims: beyond half of the last-level cache a result that
// goes past the caches may pay, whoever reads it next; beyond three quarters it does.
bool may_stream(const Problem& problem, const ir::Target& target);
bool exceeds_caches(const Problem& problem, const ir::Target& target);
// The scope's body holds nothing but the scope `inner`.
bool perfectly_contains(const ir::Stmt& outer, const ir::Stmt& inner);

extern const Recipe kMatmulRecipe, kRowRecipe, kTransposeRecipe;

}  // namespace lathe::search
