// The transpose recipe: transposes, copies and the packing of constants. Where the unit-stride dimensions of source and
// destination differ, they become the two innermost scopes and go through registers in squares; else rows are copied in
// vectors.
//
//   outer ... { [to block] { [from block] { i (tensor transpose) { j: d[.. j .. i] = s[.. i .. j] } } } }
//
// Knobs of a single transpose: bt, bf (sides of a block along the unit dimension of the destination and of the source;
// 0: whole), along (the side that squares of a block follow: 0 the source's rows, 1 the destination's), walk (blocks
// follow the other side), stream (1: the result goes past the caches). Of all: parallel (1: the outermost scope is
// shared out).
#include <algorithm>
#include <optional>

#include "ir/analysis/analysis.h"
#include "search/sketches/recipe.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

bool matches(const Problem& problem) { return problem.kernel.family == "transpose" || problem.kernel.family == "pack"; }

// The chain of scopes of one top-level nest, outermost first, and its only statement.
struct Chain {
  std::vector<std::string> iters;
  const Stmt* stmt = nullptr;
};
Chain chain_of(const Stmt& top) {
  Chain c;
  const Stmt* s = &top;
  while (s->kind == Stmt::Kind::scope) {
    c.iters.push_back(s->iter);
    if (s->body.size() != 1) return c;
    s = &s->body[0];
  }
  if (s->kind == Stmt::Kind::assign) c.stmt = s;
  return c;
}

// The iterator that steps this access by one element, empty if none.
std::string unit_iter(const Kernel& kernel, const std::string& buffer, const std::vector<Expr>& index,
                      const std::vector<std::string>& iters) {
  const Buffer& b = *kernel.find_buffer(buffer);
  for (size_t d = 0; d < index.size(); ++d) {
    const bool unit = b.strides.empty() ? d + 1 == index.size() : is_const_int(b.strides[d], 1);
    if (!unit) continue;
    const std::optional<AffineForm> form = affine_form(index[d]);
    if (!form) return {};
    for (const std::string& i : iters) {
      if (is_const_int(simplify(form->coeff(i)), 1)) return i;
    }
  }
  return {};
}

// The only nest of a transpose that goes by squares: its scopes along the unit dimensions. Empty: none, or several
// nests.
struct Turn {
  std::string to, from;           // scopes
  int64_t rows = 1, columns = 1;  // extents of from and to
  bool alone = false;             // no scope around them
  std::string target;
  bool streamable = false;
};
std::optional<Turn> turn_of(const Problem& problem) {
  const Kernel& k = problem.kernel;
  if (k.family != "transpose" || k.body.size() != 1) return {};
  const Chain c = chain_of(k.body[0]);
  if (c.stmt == nullptr || c.stmt->value->op != Op::k_load) return {};
  Turn t;
  t.to = unit_iter(k, c.stmt->target, c.stmt->index, c.iters);
  t.from = unit_iter(k, c.stmt->value->name, c.stmt->value->args, c.iters);
  if (t.to.empty() || t.from.empty() || t.to == t.from) return {};
  t.columns = extent_at(find_scope(k, t.to)->extent, problem);
  t.rows = extent_at(find_scope(k, t.from)->extent, problem);
  t.alone = c.iters.size() == 2;
  t.target = c.stmt->target;
  const Buffer* target = k.find_buffer(t.target);
  const int bytes = dtype_bytes(target->type);
  if (bytes > 4) return {};  // two lanes an element: no squares
  t.streamable = target->place == Place::out && bytes >= 2;
  return t;
}

std::vector<KnobDomain> knobs(const Problem& problem, const Target& t) {
  std::vector<KnobDomain> out = {{"parallel", {problem.threads > 1 ? 1 : 0}}};
  const std::optional<Turn> turn = turn_of(problem);
  if (!turn) return out;
  const auto sides = [](int64_t extent) {
    std::vector<int64_t> v = {0, 32, 64, 128, 256, 512};
    std::erase_if(v, [&](int64_t b) { return b >= extent; });
    return v;
  };
  out.push_back({"bt", sides(turn->columns)});
  out.push_back({"bf", sides(turn->rows)});
  out.push_back({"along", {0, 1}});
  out.push_back({"walk", {0, 1}});
  out.push_back(
      {"stream", turn->streamable && may_stream(problem, t) ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0}});
  return out;
}

Status accepts(const Knobs& k, const Problem& problem, const Target& t) {
  const int64_t bt = knob_of(k, "bt"), bf = knob_of(k, "bf");
  const std::optional<Turn> turn = turn_of(problem);
  if (!turn) {
    for (const char* name : {"bt", "bf", "along", "walk", "stream"}) {
      if (knob_of(k, name) != 0) return unsupported("{} {}: not one transpose by squares", name, knob_of(k, name));
    }
    return {};
  }
  for (const auto& [side, extent] : {std::pair(bt, turn->columns), std::pair(bf, turn->rows)}) {
    if (side < 0 || side % t.lanes != 0 || (side != 0 && side >= extent)) {
      return unsupported("a block of {} of {}: whole squares, and less than all", side, extent);
    }
  }
  if (knob_of(k, "walk") != 0 && (bt == 0 || bf == 0)) return unsupported("walk 1: blocks lie in one row");
  if (knob_of(k, "stream") != 0 && !(turn->streamable && may_stream(problem, t)))
    return unsupported("the result stays in the cache");
  return {};
}

// What the caches hold goes as it lies; else blocks of some rows of the destination: few where their lines fall into
// few sets of L1, in short pieces where into very few, many where rows are short. Past the caches blocks are as long as
// pages of both sides allow.
Knobs defaults(const Problem& problem, const Target& t) {
  Knobs k = {{"parallel", problem.threads > 1 ? 1 : 0}};
  const std::optional<Turn> turn = turn_of(problem);
  if (!turn) return k;
  for (const char* name : {"bt", "bf", "along", "walk", "stream"}) k[name] = 0;
  const auto side = [](int64_t wanted, int64_t extent) { return extent > wanted ? wanted : 0; };
  const double one =
      8.0 * static_cast<double>(turn->rows * turn->columns);  // source and destination of one pair of scopes
  const bool fixed = problem.kernel.symbols.empty();          // else small shapes come as well
  if (fixed && turn->streamable && exceeds_caches(problem, t)) {
    k["stream"] = 1;
    k["bf"] = side(64, turn->rows);
    k["bt"] = side(512, turn->columns);
  } else if (one > static_cast<double>(t.l2_bytes) || (problem.threads > 1 && turn->alone)) {
    const bool few_sets = turn->columns % 128 == 0, very_few = turn->columns % 512 == 0;
    k["bf"] = side(few_sets ? 32 : turn->columns <= 512 && problem.threads == 1 ? 128 : 64, turn->rows);
    k["bt"] = very_few ? side(32, turn->columns) : 0;
  }
  return k;
}

// The nearer to the default, the better.
double estimate(const Knobs& k, const Problem& problem, const Target& t) {
  double steps = 1;
  for (const auto& [name, value] : defaults(problem, t)) steps += knob_of(k, name) != value;
  return steps;
}

// Moves scope `name` to the bottom of its perfect nest.
void sink(Script& s, const std::string& name) {
  while (s.ok()) {
    const Stmt* scope = find_scope(s.kernel(), name);
    if (scope == nullptr || scope->body.size() != 1 || scope->body[0].kind != Stmt::Kind::scope) return;
    s.move("swap_scopes {} {}", name, scope->body[0].iter);
  }
}

// Sides of blocks along the destination's and the source's unit dimension, and the order of the two inside a block and
// of blocks.
struct Blocks {
  int64_t to = 0, from = 0;
  bool along = false, walk = false;
};

void schedule_chain(Script& s, const Chain& c, const Blocks& blocks, int64_t lanes) {
  const std::string to = unit_iter(s.kernel(), c.stmt->target, c.stmt->index, c.iters);
  std::string from = to;
  if (c.stmt->value->op == Op::k_load) from = unit_iter(s.kernel(), c.stmt->value->name, c.stmt->value->args, c.iters);
  if (to.empty() || from.empty()) return;
  const Stmt* to_scope = find_scope(s.kernel(), to);
  if (from == to) {
    const char* tail = proves_divisible(to_scope->extent, lanes, Ranges(s.kernel())) ? "exact" : "mask";
    s.move("tile_scope {} {} tail={} as {}v,{}l", to, lanes, tail, to, to);
    s.move("vectorize_scope {}l", to);
    return;
  }
  std::string first = to, second = from;
  int64_t first_side = blocks.to, second_side = blocks.from;
  if (blocks.along) {
    std::swap(first, second);
    std::swap(first_side, second_side);
  }
  sink(s, first);
  sink(s, second);
  const auto tile = [&](std::string& scope, int64_t side) {
    if (!s.ok()) return;
    const bool whole = proves_divisible(find_scope(s.kernel(), scope)->extent, side, Ranges(s.kernel()));
    s.move("tile_scope {} {} tail={} as {}b,{}i", scope, side, whole ? "exact" : "mask", scope, scope);
    scope += "i";
  };
  const std::string outer_first = first + "b", outer_second = second + "b";
  if (first_side != 0) tile(first, first_side);
  if (second_side != 0) {
    tile(second, second_side);
    s.move("swap_scopes {} {}", first, outer_second);
  }
  if (blocks.walk) s.move("swap_scopes {} {}", outer_first, outer_second);
  if (dtype_bytes(c.stmt->value->type) <= 4) s.move("tensorize {} transpose", first);
}

// The top-level scope that now holds this nest, if it may be shared out (not the squares themselves).
const Stmt* outermost_of(const Kernel& kernel, const std::vector<std::string>& iters) {
  for (const Stmt& top : kernel.body) {
    const bool ours = top.kind == Stmt::Kind::scope &&
                      std::any_of(iters.begin(), iters.end(),
                                  [&](const std::string& i) { return top.iter == i || top.iter == i + "b"; });
    if (ours && top.mark == Mark::none) return &top;
  }
  return nullptr;
}

Result<Scheduled> script(const Knobs& knob, const Problem& problem, const Target& t) {
  Script s(problem.kernel);
  const Blocks blocks = {knob_of(knob, "bt"), knob_of(knob, "bf"), knob_of(knob, "along") != 0,
                         knob_of(knob, "walk") != 0};
  if (const std::optional<Turn> turn = turn_of(problem); turn && knob_of(knob, "stream") != 0)
    s.move("stream_stores {}", turn->target);
  for (const Stmt& top : problem.kernel.body) {
    const Chain c = chain_of(top);
    if (c.stmt != nullptr) schedule_chain(s, c, blocks, t.lanes);
  }
  if (knob.at("parallel") != 0) {
    for (const Stmt& top : problem.kernel.body) {
      const Chain c = chain_of(top);
      if (c.iters.size() < 2) continue;
      if (const Stmt* outermost = outermost_of(s.kernel(), c.iters)) s.move("parallelize {}", outermost->iter);
    }
  }
  return std::move(s).finish(kTransposeRecipe, knob);
}

}  // namespace

const Recipe kTransposeRecipe = {"squares", 1, matches, knobs, accepts, defaults, script, estimate};

}  // namespace lathe::search
