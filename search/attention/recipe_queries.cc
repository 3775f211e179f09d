// Attention, one query at a time: all of it is one leaf. Scores of a query wait on the stack.
//
//   t heads, i queries {
//     j { c = sum over d, in vectors | s = f(c) | m fmax= s }      lanes along the depth
//     j1 { s = exp2(s - m), a += s }                    lanes along the keys
//     n0 columns { j2 { o += s * v } | y = o * r }      lanes along the columns, sums in registers
//   }
//
// Keys and values are read once by each query of each head; what follows them from memory is prefetched.
#include <algorithm>

#include "ir/analysis/analysis.h"
#include "search/attention/parts.h"
#include "search/sketches/sketch.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

class QueriesSketch {
 public:
  struct Setting {
    int64_t depth_vectors = 4, column_vectors = 8, prefetch = 0, parallel = 0;
    bool operator==(const Setting&) const = default;
  };
  QueriesSketch(const Problem& problem, const Target& target)
      : problem_(problem), t_(target), p_(attention_parts(problem.kernel)) {}

  static bool matches(const Problem& problem) {
    return problem.kernel.family == "attention" && attention_parts(problem.kernel);
  }
  static const std::vector<KnobRow<QueriesSketch>>& table();
  Status accepts(const Setting& k) const {
    if (k.column_vectors + k.depth_vectors + kScratchRegisters > t_.vector_registers)
      return unsupported("nv {} and dv {}: more than the registers", k.column_vectors, k.depth_vectors);
    const int64_t depth = extent_at(p_.depth->extent, problem_), step = k.depth_vectors * t_.lanes;
    if (k.depth_vectors > 1 && depth > step && depth % step != 0)
      return unsupported("dv {}: a depth of {} is no whole steps", k.depth_vectors, depth);
    return {};
  }
  std::optional<Setting> standard() const {
    Setting k{.prefetch = problem_.cold ? kAhead : 0, .parallel = problem_.threads > 1};
    const int64_t columns = extent_at(p_.columns->extent, problem_);
    k.column_vectors = std::clamp<int64_t>((columns + t_.lanes - 1) / t_.lanes, 1, t_.vector_registers / 2);
    // As long as memory is waited for, a key at a time asks for more of it.
    if (problem_.cold) k.depth_vectors = 8;
    k.depth_vectors = std::min<int64_t>(k.depth_vectors, t_.vector_registers / 4);
    while (k.depth_vectors > 1 && !accepts(k).ok()) k.depth_vectors /= 2;
    return k;
  }
  std::vector<Setting> simpler(const Setting& k) const {
    return {{.depth_vectors = 1, .column_vectors = 1, .parallel = k.parallel}};
  }
  Status write(Script& s, const Setting& k) const;
  double estimate(const Setting& k) const;
  Structure structure(const Setting& k, const ProblemFacts& facts) const;

 private:
  static constexpr int64_t kAhead = 8192;  // bytes
  static constexpr int64_t kScratchRegisters = 6;

  const Problem& problem_;
  const Target& t_;
  const AttentionParts p_;
};

const std::vector<KnobRow<QueriesSketch>>& QueriesSketch::table() {
  using Values = std::vector<int64_t>;
  using S = const QueriesSketch&;
  static const std::vector<KnobRow<QueriesSketch>> kTable = {
      {"depth_vectors", "dv", "vectors of a query's depth that are multiplied side by side", &Setting::depth_vectors, 1,
       16, false, [](S) { return Values{1, 2, 4, 8}; }},
      {"column_vectors", "nv", "vectors of columns whose sums are in registers", &Setting::column_vectors, 1, 32, false,
       [](S s) {
         Values v = {1, 2, 4, 8, 16};
         std::erase_if(v, [&](int64_t n) { return n > s.t_.vector_registers / 2; });
         return v;
       }},
      {"prefetch", "pf", "bytes that keys and values are prefetched ahead; 0: not", &Setting::prefetch, 0, kAnySize,
       true, [](S) { return Values{0, 2048, 4096, 8192}; }},
      {"parallel", "parallel", "1: the outermost scope is shared out", &Setting::parallel, 0, 1, true,
       [](S s) { return Values{s.problem_.threads > 1 ? 1 : 0}; }}};
  return kTable;
}

// Enough sums to hide the latency of an addition; then the nearer to the default, the better.
double QueriesSketch::estimate(const Setting& k) const {
  const Setting near = *standard();
  double steps = 1;
  for (const KnobRow<QueriesSketch>& row : table()) steps += k.*row.field != near.*row.field;
  return steps;
}

Status QueriesSketch::write(Script& s, const Setting& k) const {
  const std::string i = p_.row->iter, j = p_.scores->iter, d = p_.depth->iter, j1 = p_.powers->iter,
                    n = p_.columns->iter, j2 = p_.values->iter;
  const auto tail = [&](const Expr& extent, int64_t piece) { return tail_of(extent, piece, problem_.kernel); };
  vectorize_clear(s, p_, t_.lanes);
  std::string shared = p_.heads.empty() ? i : p_.heads.back()->iter;
  if (!p_.copies.empty()) shared = copy_rows(s, p_, share_keys(s, p_));
  s.move("move_to_register {} {}", p_.products(), j);
  s.move("move_to_stack {} {}", p_.powered(), i);
  // Scores: partial sums of some vectors of the depth.
  const int64_t step = k.depth_vectors * t_.lanes;
  const bool steps = k.depth_vectors > 1 && extent_at(p_.depth->extent, problem_) > step;
  if (steps) s.move("tile_scope {} {} tail={} as {}0,{}1", d, step, tail(p_.depth->extent, step), d, d);
  const std::string inner = steps ? d + "1" : d;
  vectorize(s, inner, t_.lanes, tail(p_.depth->extent, steps ? step : t_.lanes), steps);
  // Powers.
  vectorize(s, j1, t_.lanes, tail(p_.powers->extent, t_.lanes), false);
  // Columns.
  const int64_t block = k.column_vectors * t_.lanes;
  const char* masked = tail(p_.columns->extent, block);
  sum_columns(s, n, j2, p_.sums(), block, t_.lanes, masked);
  for (const char* name : {"m", "a", "r"}) {
    if (s.ok() && s.kernel().find_buffer(name) != nullptr) s.move("move_to_register {} {}", name, i);
  }
  if (k.prefetch > 0 && p_.copies.empty()) {
    const auto lines = [&](const Expr& extent) {
      return std::clamp<int64_t>(extent_at(extent, problem_) * 4 / 64, 1, 64);
    };
    s.move("prefetch k {} ahead={} lines={}", j, k.prefetch, lines(p_.depth->extent));
    s.move("prefetch v {} ahead={} lines={}", j2, k.prefetch,
           std::min(lines(p_.columns->extent), std::max<int64_t>(block * 4 / 64, 1)));
  }
  vectorize_copies(s, p_, t_.lanes);
  if (k.parallel != 0) {
    // The innermost heads that have keys of their own, of which there are most.
    s.move("parallelize {}", shared);
  }
  return {};
}

Structure QueriesSketch::structure(const Setting& k, const ProblemFacts& facts) const {
  Structure s = facts.naive;
  s.tile_rows = 1;
  s.tile_vectors = static_cast<double>(k.column_vectors);
  s.unroll = static_cast<double>(k.depth_vectors);
  s.registers = static_cast<double>(k.column_vectors + k.depth_vectors + kScratchRegisters);
  s.block_columns = static_cast<double>(k.column_vectors * t_.lanes);
  const double rows = static_cast<double>(extent_at(p_.row->extent, problem_));
  double heads = 1;
  for (const Stmt* b : p_.heads) heads *= static_cast<double>(extent_at(b->extent, problem_));
  s.calls = rows * heads;
  if (k.parallel != 0) {
    s.parallel = Axis::rows;
    s.tasks = heads;
    s.imbalance = imbalance_of(heads, facts.threads);
  }
  return s;
}

const Recipe kQueriesRecipe = {"queries", 1, QueriesSketch::matches, knob_table<QueriesSketch>,
                               make_sketch<QueriesSketch, kQueriesRecipe>};

}  // namespace lathe::search
