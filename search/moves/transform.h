// Transformations: atomic, checked, meaning-preserving rewrites of a Kernel; one row each in transform_table.cc.
// Applied in three steps: check the shape ("expected ..."), check legality, edit. References are names, so a Schedule
// means the same at every shape. Pure: a refused move leaves nothing behind. Thread-safe.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/status.h"
#include "ir/core/kernel.h"

namespace lathe::search {

// One move in text: `tile_scope n 32 tail=mask as n0,n1`: name, positional arguments, key=value arguments, created
// names.
struct Move {
  std::string name;
  std::vector<std::string> args;
  std::map<std::string, std::string> options;  // tail=mask, ...
  std::vector<std::string> created;            // after `as`; empty: the row's stated deterministic rule
};
std::string to_text(const Move& move);
ir::Result<Move> parse_move(std::string_view line);

enum class Tail : uint8_t { exact, peel, mask, clamp };

// disabled_precondition: a legality precondition the row is to skip, for the mutation self-test only. verify: whether
// apply() verifies its result; a caller that applies many moves may verify what it ends with.
struct TransformParams {
  int disabled_precondition = -1;
  bool verify = true;
};

struct TransformResult {
  ir::Kernel kernel;
  std::vector<std::pair<std::string, std::vector<std::string>>> renamed;  // old name -> names that stand for it now
};

// What has a use for a move: a search goes through those of its own side.
enum class Where : uint8_t { both, cpu, gpu };

struct Transform {
  const char* name;
  const char* args;                        // "scope size" ...: what each positional argument is
  const char* picture;                     // before, arrow, after
  uint32_t numeric;                        // NumericClass bits it may add
  std::vector<const char*> preconditions;  // legality rules in order, as sentences; tests disable them one by one
  // Rewrites the Kernel in the result where it stands; one that is refused may be left half done.
  ir::Status (*apply)(TransformResult&, const Move&, const TransformParams&);
  // Every argument tuple whose *shape* fits (legal or not), for applicable().
  std::vector<Move> (*propose)(const ir::Kernel&);
  Where where = Where::both;
  bool serves(Where side) const { return where == Where::both || where == side; }
};
const std::vector<Transform>& transforms();
const Transform* find_transform(std::string_view name);

// Applies a move: INVALID (shape of the move) or UNSUPPORTED (refused, with the precondition's sentence). A result that
// does not verify is INTERNAL.
ir::Result<TransformResult> apply(const ir::Kernel& kernel, const Move& move, const TransformParams& params = {});
// The same on a Kernel of the caller's, without a copy. A refused move leaves it half done: the caller has no more use
// for it.
ir::Status apply_in_place(ir::Kernel& kernel, const Move& move, const TransformParams& params = {});

// Moves that the calling thread has put to a Kernel so far, refused ones included: what tests count instead of time.
uint64_t moves_applied();

struct Candidate {
  Move move;
  std::string refusal;  // empty: legal
};
// Every legal (place, argument) pair of the moves of a side, and each refused one with its reason if asked for: the
// move set of the search.
std::vector<Candidate> applicable(const ir::Kernel& kernel, bool with_refusals = false, Where side = Where::cpu);

}  // namespace lathe::search
