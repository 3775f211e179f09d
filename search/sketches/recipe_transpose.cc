// The transpose recipe: transposes, copies and the packing of constants. Where the unit-stride dimensions of source and
// destination differ, they become the two innermost scopes and go through registers in squares; else rows are copied in
// vectors.
//
//   outer ... { [to block] { [from block] { i (tensor transpose) { j: d[.. j .. i] = s[.. i .. j] } } } }
#include <algorithm>
#include <cmath>

#include "ir/analysis/analysis.h"
#include "search/sketches/sketch.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

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
  int bytes = 0;  // of an element
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
  t.bytes = dtype_bytes(target->type);
  if (t.bytes > 4) return {};  // two lanes an element: no squares
  t.streamable = target->place == Place::out && t.bytes >= 2;
  return t;
}

class TransposeSketch {
 public:
  struct Setting {
    int64_t parallel = 0, to_block = 0, from_block = 0, along = 0, walk = 0, stream = 0;
    bool operator==(const Setting&) const = default;
  };
  TransposeSketch(const Problem& problem, const Target& target)
      : problem_(problem), t_(target), turn_(turn_of(problem)) {}

  static bool matches(const Problem& problem) {
    return problem.kernel.family == "transpose" || problem.kernel.family == "pack";
  }
  static const std::vector<KnobRow<TransposeSketch>>& table();
  Status accepts(const Setting& k) const;
  std::optional<Setting> standard() const;
  std::vector<Setting> simpler(const Setting&) const { return {}; }
  Status write(Script& s, const Setting& k) const;
  double estimate(const Setting& k) const;
  Structure structure(const Setting& k, const ProblemFacts& facts) const;

 private:
  bool many() const { return problem_.threads > 1; }
  bool may_stream() const { return turn_ && turn_->streamable && search::may_stream(problem_, t_); }
  void schedule_chain(Script& s, const Chain& c, const Setting& k) const;

  const Problem& problem_;
  const Target& t_;
  const std::optional<Turn> turn_;
};

const std::vector<KnobRow<TransposeSketch>>& TransposeSketch::table() {
  using Values = std::vector<int64_t>;
  static constexpr auto sides = [](int64_t extent) {
    Values v = {0, 32, 64, 128, 256, 512};
    std::erase_if(v, [&](int64_t b) { return b >= extent; });
    return v;
  };
  static const std::vector<KnobRow<TransposeSketch>> kTable = {
      {"parallel", "parallel", "1: the outermost scope is shared out", &Setting::parallel, 0, 1, true,
       [](const TransposeSketch& s) { return Values{s.many() ? 1 : 0}; }},
      {"to_block", "bt", "side of a block along the destination's unit dimension; 0: all of it", &Setting::to_block, 0,
       kAnySize, true, [](const TransposeSketch& s) { return s.turn_ ? sides(s.turn_->columns) : Values{}; }},
      {"from_block", "bf", "side of a block along the source's unit dimension; 0: all of it", &Setting::from_block, 0,
       kAnySize, true, [](const TransposeSketch& s) { return s.turn_ ? sides(s.turn_->rows) : Values{}; }},
      {"along", "along", "side that the squares of a block follow: 0 the source's rows, 1 the destination's",
       &Setting::along, 0, 1, false, [](const TransposeSketch& s) { return s.turn_ ? Values{0, 1} : Values{}; }},
      {"walk", "walk", "1: blocks follow the other side", &Setting::walk, 0, 1, false,
       [](const TransposeSketch& s) { return s.turn_ ? Values{0, 1} : Values{}; }},
      {"stream", "stream", "1: the result goes past the caches", &Setting::stream, 0, 1, false,
       [](const TransposeSketch& s) { return s.turn_ ? values_if(s.may_stream(), {0, 1}) : Values{}; }}};
  return kTable;
}

Status TransposeSketch::accepts(const Setting& k) const {
  if (!turn_) {
    return k == Setting{.parallel = k.parallel} ? Status()
                                                : unsupported("blocks, or an order: not one transpose by squares");
  }
  for (const auto& [side, extent] : {std::pair(k.to_block, turn_->columns), std::pair(k.from_block, turn_->rows)}) {
    if (side % t_.lanes != 0 || (side != 0 && side >= extent)) {
      return unsupported("a block of {} of {}: whole squares, and less than all", side, extent);
    }
  }
  if (k.walk != 0 && (k.to_block == 0 || k.from_block == 0)) return unsupported("walk 1: blocks lie in one row");
  if (k.stream != 0 && !may_stream()) return unsupported("the result stays in the cache");
  return {};
}

constexpr int64_t kFewSets = 512, kVeryFewSets = 2048;  // bytes between lines that fall into few sets of L1

// What the caches hold goes as it lies; else blocks of some rows of the destination: few where their lines fall into
// few sets of L1, in short pieces where into very few, many where rows are short. Past the caches blocks are as long as
// pages of both sides allow.
std::optional<TransposeSketch::Setting> TransposeSketch::standard() const {
  Setting k{.parallel = many() ? 1 : 0};
  if (!turn_) return k;
  const auto side = [](int64_t wanted, int64_t extent) { return extent > wanted ? wanted : 0; };
  // Source and destination of one pair of scopes.
  const double one = 2.0 * turn_->bytes * static_cast<double>(turn_->rows * turn_->columns);
  const bool fixed = problem_.kernel.symbols.empty();  // else small shapes come as well
  if (fixed && turn_->streamable && exceeds_caches(problem_, t_)) {
    k.stream = 1;
    k.from_block = side(64, turn_->rows);
    k.to_block = side(512, turn_->columns);
  } else if (one > static_cast<double>(t_.l2_bytes) || (many() && turn_->alone)) {
    const int64_t line = turn_->columns * turn_->bytes;  // of the destination
    const bool few_sets = line % kFewSets == 0, very_few = line % kVeryFewSets == 0;
    k.from_block = side(few_sets ? 32 : line <= kVeryFewSets && !many() ? 128 : 64, turn_->rows);
    k.to_block = very_few ? side(32, turn_->columns) : 0;
  }
  return k;
}

// The nearer to the default, the better.
double TransposeSketch::estimate(const Setting& k) const {
  const Setting near = *standard();
  double steps = 1;
  for (const KnobRow<TransposeSketch>& row : table()) steps += k.*row.field != near.*row.field;
  return steps;
}

// The naive nest in squares of one vector's width, in blocks that the outermost scope shares out.
Structure TransposeSketch::structure(const Setting& k, const ProblemFacts& facts) const {
  Structure s = facts.naive;
  s.tile_rows = t_.lanes;
  s.registers = std::min<double>(2.0 * t_.lanes, t_.vector_registers);
  s.block_columns = static_cast<double>(k.to_block);
  s.block_rows = static_cast<double>(k.from_block);
  const double across = k.to_block > 0 ? std::ceil(s.columns / s.block_columns) : 1,
               down = k.from_block > 0 ? std::ceil(s.rows / s.block_rows) : 1;
  s.calls = across * down;
  if (k.parallel != 0 && !s.loops.empty()) {
    s.parallel = s.loops[0].axis == Axis::none ? Axis::rows : s.loops[0].axis;
    s.tasks = s.calls > 1 ? std::max(across, down) : s.loops[0].trips;
    s.imbalance = imbalance_of(s.tasks, facts.threads);
  }
  return s;
}

// Moves scope `name` to the bottom of its perfect nest.
void sink(Script& s, const std::string& name) {
  while (s.ok()) {
    const Stmt* scope = find_scope(s.kernel(), name);
    if (scope == nullptr || scope->body.size() != 1 || scope->body[0].kind != Stmt::Kind::scope) return;
    s.move("swap_scopes {} {}", name, scope->body[0].iter);
  }
}

// Whether bits are gathered, from words that follow no sum of iterators: one element of `scope` after another.
bool reads_words(const Kernel& kernel, const Chain& c, const std::string& scope) {
  if (!is_const_int(find_scope(kernel, scope)->extent)) return false;
  Ranges ranges(kernel);
  for (const std::string& i : c.iters) ranges.enter(*find_scope(kernel, i));
  bool found = false;
  for_each_node(c.stmt->value, [&](const ExprNode& n) {
    const bool counts = n.op == Op::k_shift_left || n.op == Op::k_shift_right;
    found |= counts && uses(n.args[1], scope);  // a number in code
    if (n.op != Op::k_load) return;
    for (const Expr& e : n.args) found |= uses(e, scope) && !affine_form(simplify(e, ranges));
  });
  return found;
}

void TransposeSketch::schedule_chain(Script& s, const Chain& c, const Setting& k) const {
  const std::string to = unit_iter(s.kernel(), c.stmt->target, c.stmt->index, c.iters);
  std::string from = to;
  if (c.stmt->value->op == Op::k_load) from = unit_iter(s.kernel(), c.stmt->value->name, c.stmt->value->args, c.iters);
  if (to.empty() || from.empty()) return;
  const Stmt* to_scope = find_scope(s.kernel(), to);
  if (from == to && reads_words(s.kernel(), c, to)) {
    s.move("unroll_scope {}", to);
    return;
  }
  if (from == to) {
    const char* tail = tail_of(to_scope->extent, t_.lanes, s.kernel());
    s.move("tile_scope {} {} tail={} as {}v,{}l", to, t_.lanes, tail, to, to);
    s.move("vectorize_scope {}l", to);
    return;
  }
  std::string first = to, second = from;
  int64_t first_side = k.to_block, second_side = k.from_block;
  if (k.along != 0) {
    std::swap(first, second);
    std::swap(first_side, second_side);
  }
  sink(s, first);
  sink(s, second);
  const auto tile = [&](std::string& scope, int64_t side) {
    if (!s.ok()) return;
    const char* tail = tail_of(find_scope(s.kernel(), scope)->extent, side, s.kernel());
    s.move("tile_scope {} {} tail={} as {}b,{}i", scope, side, tail, scope, scope);
    scope += "i";
  };
  const std::string outer_first = first + "b", outer_second = second + "b";
  if (first_side != 0) tile(first, first_side);
  if (second_side != 0) {
    tile(second, second_side);
    s.move("swap_scopes {} {}", first, outer_second);
  }
  if (k.walk != 0) s.move("swap_scopes {} {}", outer_first, outer_second);
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

Status TransposeSketch::write(Script& s, const Setting& k) const {
  if (turn_ && k.stream != 0) s.move("stream_stores {}", turn_->target);
  for (const Stmt* word : scopes_with_role(problem_.kernel, "word")) s.move("unroll_scope {}", word->iter);
  for (const Stmt& top : problem_.kernel.body) {
    const Chain c = chain_of(top);
    if (c.stmt != nullptr) schedule_chain(s, c, k);
  }
  if (k.parallel != 0) {
    for (const Stmt& top : problem_.kernel.body) {
      const Chain c = chain_of(top);
      if (c.iters.size() < 2) continue;
      if (const Stmt* outermost = outermost_of(s.kernel(), c.iters)) s.move("parallelize {}", outermost->iter);
    }
  }
  return {};
}

}  // namespace

const Recipe kTransposeRecipe = {"squares", 1, TransposeSketch::matches, knob_table<TransposeSketch>,
                                 make_sketch<TransposeSketch, kTransposeRecipe>};

}  // namespace lathe::search
