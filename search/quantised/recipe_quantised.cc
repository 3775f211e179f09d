// Weights of few bits, made f32 where they are used: register tiles under panels of the packed fields, and rows of the
// plain dequantize.
//
//   n0 panels { m0 tile { c = 0 | k0 { ko, ki { c += a * weight } } | y = f(c) } }        lanes along n
//   n { k0 { kv { y = weight } } }                                                       lanes along k
//
// The depth is cut by depth.h. Fields that are no constants are read where they lie, one output at a time.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "ir/analysis/analysis.h"
#include "search/quantised/depth.h"
#include "search/quantised/parts.h"
#include "search/sketches/sketch.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kMostRows = 12, kHurriedRows = 4, kBeside = 2;
constexpr int64_t kAhead = 8192;                               // bytes: of those tried the best at all rows and formats
constexpr double kIssue = 3.5, kPipes = 2, kLatency = 4;       // operations a cycle; multiply-adds; cycles of a sum
constexpr int64_t kOperationBytes = 8, kMostBytes = 12 << 10;  // of code, about; an image holds 24 KB
constexpr int64_t kScratchRegisters = 5;                       // of a weight in the making

int64_t operations(const Expr& e) {
  if (e->op == Op::k_load) return 1;
  if (e->type == DType::i64 || e->args.empty()) return 0;
  int64_t n = 1;
  for (const Expr& a : e->args) n += operations(a);
  return n;
}

// What a weight costs, and what of it stays the same through a run: scales and minima of a block.
struct WeightCost {
  int64_t each = 0;    // operations of a weight
  int64_t once = 0;    // of what stays
  int64_t values = 0;  // vectors that stay
};

class WeightCounter {
 public:
  WeightCounter(const std::string& k, const DepthCut& cut) : k_(k), run_(k + "_j") {
    at_ = Expr(cut.levels.front()) * iter(k + "_0") + iter(run_);
    ranges_.set(k + "_0", {0, int64_t{1} << 31});
    ranges_.set(run_, {0, cut.run() - 1});
  }
  void count(const Expr& e, WeightCost& out) const {
    if (e->op == Op::k_load) {
      out.each += 1;
    } else if (e->type != DType::i64 && !e->args.empty()) {
      if (!varies(e)) {
        out.once += operations(e);
        out.values += 1;
        return;
      }
      if (e->op == Op::k_select) return count_choice(e, out);
      out.each += 1;
      for (const Expr& a : e->args) count(a, out);
    }
  }

 private:
  // Copies of the code take one each: the larger.
  void count_choice(const Expr& e, WeightCost& out) const {
    WeightCost x, y;
    count(e->args[1], x);
    count(e->args[2], y);
    out.each += std::max(x.each, y.each);
    out.once += std::max(x.once, y.once);
    out.values += std::max(x.values, y.values);
  }
  bool varies(const Expr& e) const {
    bool out = false;
    for_each_node(e, [&](const ExprNode& n) {
      if (n.op != Op::k_load) return;
      for (const Expr& i : n.args) out |= uses(simplify(substitute(i, {{k_, at_}}), ranges_), run_);
    });
    return out;
  }
  std::string k_, run_;
  Expr at_;
  Ranges ranges_;
};

// Masks and offsets, each once.
int64_t constants(const Expr& e) {
  std::set<int64_t> all;
  for_each_node(e, [&](const ExprNode& n) {
    if (n.op == Op::k_const_int && n.type == DType::i32) all.insert(n.ival);
  });
  return static_cast<int64_t>(all.size());
}

}  // namespace

class QuantisedSketch {
 public:
  struct Setting {
    int64_t tile_rows = 1, panel_columns = 0, streams = 1, steps = 1, prefetch = 0, parallel = 0;
    bool operator==(const Setting&) const = default;
  };
  QuantisedSketch(const Problem& problem, const Target& target)
      : problem_(problem),
        t_(target),
        p_(quantised_parts(problem.kernel)),
        m_(rows_of_product(p_, problem)),
        n_(extent_at(p_.n->extent, problem)),
        k_(extent_at(p_.k->extent, problem)),
        constants_(constants(p_.weight)),
        bytes_(field_bytes(p_, problem)) {
    cut_ = depth_cut({p_.weight}, p_.k->iter, k_);
    WeightCounter(p_.k->iter, cut_).count(p_.weight, cost_);
  }

  static bool matches(const Problem& problem) {
    if (problem.kernel.family != "quantised") return false;
    const QuantisedParts p = quantised_parts(problem.kernel);
    return p.weight && is_const_int(p.k->extent) && (!p.reordered || p.m != nullptr);
  }
  static const std::vector<KnobRow<QuantisedSketch>>& table();
  Status accepts(const Setting& k) const;
  std::optional<Setting> standard() const;
  std::vector<Setting> simpler(const Setting& k) const {
    Setting packed{.panel_columns = k.panel_columns, .parallel = many()};
    return {packed, {.parallel = many()}};
  }
  Status write(Script& s, const Setting& k) const;
  double estimate(const Setting& k) const;
  Structure structure(const Setting& k, const ProblemFacts& facts) const;

 private:
  bool many() const { return problem_.threads > 1; }
  int64_t vectors(const Setting& k) const { return k.panel_columns * k.streams / t_.lanes; }
  int64_t steps(const Setting& k) const {
    return cut_.run() % std::max(k.steps, cut_.step) == 0 ? std::max(k.steps, cut_.step) : cut_.step;
  }
  int64_t code_bytes(const Setting& k) const {
    const int64_t inner = cost_.each + 2 * k.tile_rows;
    return cut_.copies() / cut_.step * vectors(k) * (cost_.once + steps(k) * inner) * kOperationBytes;
  }
  void write_rows(Script& s, const Setting& k) const;
  void write_tiles(Script& s, const Setting& k) const;
  void write_reordered(Script& s, const Setting& k) const;

  const Problem& problem_;
  const Target& t_;
  const QuantisedParts p_;
  const int64_t m_, n_, k_;
  const int64_t constants_;  // in registers of their own
  const FieldBytes bytes_;
  DepthCut cut_;
  WeightCost cost_;
};

const std::vector<KnobRow<QuantisedSketch>>& QuantisedSketch::table() {
  using Values = std::vector<int64_t>;
  using S = const QuantisedSketch&;
  static const std::vector<KnobRow<QuantisedSketch>> kTable = {
      {"tile_rows", "mr", "rows of a tile", &Setting::tile_rows, 1, kAnySize, true,
       [](S s) {
         Values v = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12};
         const int64_t most = s.p_.m == nullptr ? 1 : interval(s.p_.m->extent, Ranges(s.problem_.kernel)).hi;
         std::erase_if(v, [&](int64_t rows) { return rows > std::max<int64_t>(most, 1); });
         return v;
       }},
      {"panel_columns", "nr",
       "columns of a panel: the packed width of the fields; 0: read where they lie, column by column",
       &Setting::panel_columns, 0, kAnySize, true,
       [](S s) { return s.p_.packed ? Values{2 * s.t_.lanes} : Values{0}; }},
      {"streams", "st", "panels that a tile walks side by side", &Setting::streams, 1, 4, true,
       [](S s) { return s.p_.packed ? Values{1, 2, 4} : Values{1}; }},
      {"steps", "ku", "weights of one output that are unrolled, at least", &Setting::steps, 1, 8, true,
       [](S s) { return s.p_.m != nullptr ? Values{1, 2, 4, 8} : Values{1}; }},
      {"prefetch", "pf", "bytes that the largest field is prefetched ahead; 0: not", &Setting::prefetch, 0, kAnySize,
       true, [](S s) { return s.p_.packed ? Values{0, 1024, 2048, 4096, 8192} : Values{0}; }},
      {"parallel", "parallel", "1: the outermost scope is shared out", &Setting::parallel, 0, 1, true,
       [](S s) { return Values{s.many() ? 1 : 0}; }}};
  return kTable;
}

Status QuantisedSketch::accepts(const Setting& k) const {
  if (k.panel_columns == 0)
    return k.tile_rows == 1 && k.streams == 1 ? Status() : unsupported("tiles of fields that are read where they lie");
  if (!p_.packed || k.panel_columns % t_.lanes != 0)
    return unsupported("nr {}: whole vectors of packed fields", k.panel_columns);
  if (k.streams > 1 && !proves_divisible(p_.n->extent, k.panel_columns * k.streams, Ranges(problem_.kernel)))
    return unsupported("st {}: {} columns are not whole panels side by side", k.streams, n_);
  if ((k.tile_rows + 1 + cost_.values) * vectors(k) + constants_ + kScratchRegisters > t_.vector_registers)
    return unsupported("mr {} by {} vectors: more than the registers", k.tile_rows, vectors(k));
  if (end_bytes(p_, vectors(k) * k.tile_rows) > kMostEndBytes && (k.tile_rows > 1 || k.streams > 1))
    return unsupported("mr {} and st {}: too much code of what follows the sums", k.tile_rows, k.streams);
  if (code_bytes(k) > kMostBytes && (k.streams > 1 || steps(k) > cut_.step))
    return unsupported("st {} and ku {}: some {} bytes of code, expected at most {}", k.streams, k.steps, code_bytes(k),
                       kMostBytes);
  return {};
}

double QuantisedSketch::estimate(const Setting& k) const {
  const double m = static_cast<double>(m_), n = static_cast<double>(n_), depth = static_cast<double>(k_);
  const double lanes = k.panel_columns == 0 ? 1 : t_.lanes, rows = static_cast<double>(k.tile_rows);
  const double tiles = std::ceil(m / rows), v = std::max<double>(1, static_cast<double>(vectors(k)));
  const double each = static_cast<double>(cost_.each) + 2.0 / static_cast<double>(steps(k));
  const double issue = (each + rows) / kIssue, pipes = rows / kPipes, wait = kLatency / v / std::max(rows, 1.0) * rows;
  const double step = std::max({issue, pipes, wait});
  const double compute = tiles * std::ceil(n / lanes / v) * v * depth * step;
  const double memory = problem_.cold ? bytes_.total / t_.memory_rate : 0;
  return std::max(compute, memory) + 0.1 * std::min(compute, memory) + tiles * std::ceil(n / lanes / v) * 20;
}

// As many steps beside each other as the code has room for.
std::optional<QuantisedSketch::Setting> QuantisedSketch::standard() const {
  std::optional<Setting> best;
  double least = std::numeric_limits<double>::infinity();
  const bool hurried = !problem_.unhurried && p_.m != nullptr && !is_const_int(p_.m->extent);
  // One stream from memory comes sooner than two, by a tenth to a third of the time up to four rows.
  const bool one_stream = p_.packed && problem_.cold;
  const std::vector<Choice<Setting>> choices = {
      {&Setting::tile_rows, values_of(*this, &Setting::tile_rows)},
      {&Setting::panel_columns, values_of(*this, &Setting::panel_columns)},
      {&Setting::streams, one_stream ? std::vector<int64_t>{1} : values_of(*this, &Setting::streams)}};
  Setting base;
  base.prefetch = p_.packed && problem_.cold ? kAhead : 0;
  base.parallel = many();
  const auto visit = [&](const Setting& k) {
    if (k.tile_rows > (hurried ? kHurriedRows : kMostRows) || !accepts(k).ok()) return;
    const double cycles = estimate(k);
    if (cycles >= least) return;
    least = cycles;
    best = k;
  };
  for (const int64_t beside : {p_.packed ? kBeside : 1, int64_t{1}}) {
    base.steps = std::max(cut_.step, beside);
    if (!best) each_setting(base, choices, visit);
  }
  return best;
}

Status QuantisedSketch::write(Script& s, const Setting& k) const {
  if (p_.m == nullptr) {
    write_rows(s, k);
  } else if (p_.reordered) {
    write_reordered(s, k);
  } else {
    write_tiles(s, k);
  }
  return {};
}

// Runs in vectors; what needs steps beside each other goes one by one.
void QuantisedSketch::write_rows(Script& s, const Setting& k) const {
  for (const DepthPart& part : cut_depth(s, p_.k->iter, k_, cut_)) {
    for (const std::string& scope : part.unrolled) s.move("unroll_scope {}", scope);
    const std::string& run = part.scopes.back();
    if (cut_.step > 1 || (!part.unrolled.empty() && part.unrolled.back() == run)) continue;
    s.move("tile_scope {} {} tail=mask as {}v,{}l", run, t_.lanes, run, run);
    s.move("vectorize_scope {}l", run);
  }
  if (k.parallel != 0) s.move("parallelize {}", p_.n->iter);
}

// Each input by itself, as its group is known to the nest alone: its weights of a row's outputs in vectors.
void QuantisedSketch::write_reordered(Script& s, const Setting& k) const {
  const std::string n = p_.n->iter;
  s.move("split_scope {} after=0 as {}_1", n, n);
  s.move("split_scope {}_1 after=0 as {}_2", n, n);
  s.move("swap_scopes {}_1 {}", n, p_.k->iter);
  for (const char* piece : {"", "_1", "_2"}) {
    s.move("tile_scope {}{} {} tail={} as {}{}v,{}{}l", n, piece, t_.lanes,
           tail_of(p_.n->extent, t_.lanes, problem_.kernel), n, piece, n, piece);
    s.move("vectorize_scope {}{}l", n, piece);
  }
  const std::vector<const Stmt*> batches = scopes_with_role(problem_.kernel, "batch");
  if (k.parallel != 0) s.move("parallelize {}", batches.empty() ? p_.m->iter : batches.front()->iter);
}

void QuantisedSketch::write_tiles(Script& s, const Setting& k) const {
  const Kernel& kernel = problem_.kernel;
  const std::string m = p_.m->iter, n = p_.n->iter, sums = p_.k->body[0].target;
  DepthCut cut = cut_;
  cut.step = steps(k);
  const std::vector<DepthPart> depth = cut_depth(s, p_.k->iter, k_, cut);
  write_prologues(s, p_.clears, problem_, t_.lanes);
  const auto unroll_depth = [&] {
    for (const DepthPart& part : depth) {
      for (const std::string& scope : part.unrolled) s.move("unroll_scope {}", scope);
    }
  };
  if (k.panel_columns == 0) {
    unroll_depth();
    s.move("move_to_register {} {}", sums, n);
    const std::vector<const Stmt*> batches = scopes_with_role(kernel, "batch");
    const std::string outermost = batches.empty() ? m : batches.front()->iter;
    if (k.parallel != 0 && !has_groups(*p_.m)) s.move("parallelize {}", outermost);
    return;
  }
  const int64_t columns = k.panel_columns * k.streams;
  const char* tail = tail_of(p_.n->extent, columns, kernel);
  s.move("tile_scope {} {} tail={} as m0,m1", m, k.tile_rows, tail_of(p_.m->extent, k.tile_rows, kernel));
  s.move("tile_scope {} {} tail={} as n0,n1", n, columns, tail);
  s.move("swap_scopes m1 n0");
  s.move("swap_scopes m0 n0");
  const std::string outermost = outermost_scope(s, p_, problem_);
  // Start, parts of the depth, end: each with rows and columns of its own.
  const size_t pieces = depth.size() + 2;
  const auto piece = [](const char* scope, size_t i) {
    return i == 0 ? std::string(scope) : fmt::format("{}_{}", scope, i);
  };
  for (const char* scope : {"n1", "m1"}) {
    for (size_t i = 1; i < pieces; ++i) s.move("split_scope {} after=0 as {}", piece(scope, i - 1), piece(scope, i));
  }
  for (size_t i = 0; i < depth.size(); ++i) {
    for (const std::string& around : depth[i].scopes) {
      s.move("swap_scopes {} {}", piece("n1", i + 1), around);
      s.move("swap_scopes {} {}", piece("m1", i + 1), around);
    }
  }
  unroll_depth();
  for (const QuantisedField& f : p_.fields) pack_field(s, f, k.panel_columns);
  for (size_t i = 0; i < pieces; ++i) {
    s.move("unroll_scope {}", piece("m1", i));
    vectorize_columns(s, piece("n1", i), k.streams > 1 ? k.panel_columns : 0, t_.lanes, tail);
  }
  s.move("move_to_register {} m0", sums);
  if (k.prefetch > 0 && !depth.empty()) {
    const std::vector<std::string>& scopes = depth.front().scopes;
    const auto loop = std::find_if(scopes.rbegin(), scopes.rend(), [&](const std::string& scope) {
      const Stmt* at = find_scope(s.kernel(), scope);
      return at != nullptr && at->mark == Mark::none;
    });
    const int64_t bytes = steps(k) * k.panel_columns;  // of a field of bytes, at each step of the innermost loop
    if (loop != scopes.rend())
      s.prefetch("{} {} ahead={} lines={}", bytes_.largest, *loop, k.prefetch, std::max<int64_t>(bytes / 64, 1));
  }
  if (k.parallel != 0) s.move("parallelize {}", outermost);
}

Structure QuantisedSketch::structure(const Setting& k, const ProblemFacts& facts) const {
  Structure s = facts.naive;
  const double columns = static_cast<double>(std::max<int64_t>(k.panel_columns * k.streams, 1));
  s.tile_rows = static_cast<double>(k.tile_rows);
  s.tile_vectors = static_cast<double>(std::max<int64_t>(vectors(k), 1));
  s.unroll = static_cast<double>(steps(k));
  s.registers = (s.tile_rows + 1) * s.tile_vectors + kScratchRegisters;
  s.block_columns = columns;
  s.packs_columns = k.panel_columns != 0;
  const double panels = std::ceil(static_cast<double>(n_) / columns);
  s.calls = panels * std::ceil(static_cast<double>(m_) / s.tile_rows);
  s.slowdown = estimate(k) / std::max(s.flops / 2 / t_.lanes / kPipes, 1.0);
  s.parallel = Axis::columns;
  s.tasks = panels;
  s.imbalance = imbalance_of(panels, facts.threads);
  return s;
}

const Recipe kQuantisedRecipe = {"quantised", 1, QuantisedSketch::matches, knob_table<QuantisedSketch>,
                                 make_sketch<QuantisedSketch, kQuantisedRecipe>};

}  // namespace lathe::search
