// The row recipe: row reductions, elementwise chains, rope, gather, top_k and appends to caches. Columns in vectors
// (several unrolled), scalars of a row in registers, what a row keeps between its passes on the stack or computed
// again, rows shared out over threads.
//
//   row block (parallel) { row group { pass over the columns { row of the group (unrolled) { vector } } ... } }
#include <algorithm>
#include <cmath>
#include <set>

#include "ir/analysis/analysis.h"
#include "ir/analysis/dependence.h"
#include "search/sketches/generic_rules.h"
#include "search/sketches/sketch.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

// What the knobs depend on.
struct Shape {
  std::string row;                      // the innermost row scope, empty if there is none
  std::vector<const Stmt*> passes;      // column scopes
  std::vector<std::string> scalars;     // temporaries of a row: one value
  std::vector<std::string> kept;        // temporaries of a row: one value per column
  std::vector<std::string> streamable;  // outputs nothing reads
  int64_t rows = 1, cols = 1;
  int64_t overlapped_sums = 0;         // reductions of the first two passes
  int whole_inputs = 0;                // with an element for each of the result
  double bytes_in = 0, bytes_out = 0;  // of the widest elements
  bool functions = false;
  bool norm = false;  // a root of a sum
  bool normal_cdf = false;
  bool some_rows = false, two_rows = false, again = false, online = false;
  bool first_keeps = false;  // the first pass writes what the later ones read: of two rows at a time there would be two
};

bool single_assignment(const Kernel& kernel, const std::string& buffer) {
  int writes = 0;
  bool plain = true;
  for_each_stmt(kernel.body, [&](const Stmt& s) {
    if (s.kind != Stmt::Kind::assign || s.target != buffer) return;
    ++writes;
    plain = plain && s.op == AssignOp::set && !uses(s.value, buffer);
  });
  return plain && writes == 1;
}

Shape shape_of(const Problem& problem) {
  const Kernel& k = problem.kernel;
  Shape out;
  out.passes = scopes_with_role(k, "col");
  out.cols = extent_at(out.passes[0]->extent, problem);
  for (size_t p = 0; p < std::min<size_t>(out.passes.size(), 2); ++p) {
    for (const Stmt& c : out.passes[p]->body) {
      out.overlapped_sums += c.kind == Stmt::Kind::assign && c.op != AssignOp::set;
    }
  }
  Ranges ranges(k);
  const std::vector<const Stmt*> rows = scopes_with_role(k, "row");
  for (const Stmt* r : rows) {
    out.rows *= extent_at(r->extent, problem);
    out.row = r->iter;
    out.some_rows = proves_le(Expr(1), r->extent, ranges);
    out.two_rows = proves_le(Expr(2), r->extent, ranges);
  }
  std::set<std::string> read;
  for (const Access& a : collect_accesses(k.body)) {
    if (!a.write || a.reduction) read.insert(a.buffer);
  }
  for (const Buffer& b : k.buffers) {
    if (b.place == Place::heap && !rows.empty()) {
      if (b.dims.size() == rows.size()) out.scalars.push_back(b.name);
      if (b.dims.size() == rows.size() + 1) out.kept.push_back(b.name);
    }
    if (b.place == Place::heap) continue;
    double elements = 1;
    for (const Expr& d : b.dims) elements *= static_cast<double>(extent_at(d, problem));
    out.whole_inputs += b.place == Place::in && elements >= static_cast<double>(out.rows * out.cols);
    double& widest = b.place == Place::out ? out.bytes_out : out.bytes_in;
    widest = std::max(widest, bytes_of_each(b.type));
    if (b.place == Place::out && dtype_bytes(b.type) >= 2 && read.count(b.name) == 0) out.streamable.push_back(b.name);
  }
  for (const Stmt* pass : out.passes) {
    for_each_stmt(pass->body, [&](const Stmt& s) {
      if (s.kind == Stmt::Kind::assign)
        for_each_node(s.value, [&](const ExprNode& e) {
          out.functions |= op_info(e.op).cls == OpClass::kMath;
          out.normal_cdf |= e.op == Op::k_normal_cdf;
        });
    });
  }
  for_each_stmt(k.body, [&](const Stmt& s) {
    if (s.kind == Stmt::Kind::assign)
      for_each_node(s.value, [&](const ExprNode& e) { out.norm |= e.op == Op::k_sqrt || e.op == Op::k_rsqrt; });
  });
  for_each_stmt(out.passes[0]->body, [&](const Stmt& s) {
    out.first_keeps |=
        s.kind == Stmt::Kind::assign && std::find(out.kept.begin(), out.kept.end(), s.target) != out.kept.end();
  });
  out.norm &= out.overlapped_sums > 0;
  out.again = !out.kept.empty() && std::all_of(out.kept.begin(), out.kept.end(),
                                               [&](const std::string& b) { return single_assignment(k, b); });
  out.online = out.passes.size() >= 3 && out.passes[0]->body.size() == 1 && out.passes[0]->body[0].op == AssignOp::fmax;
  return out;
}

class RowSketch {
 public:
  struct Setting {
    int64_t unroll = 1, grain = 0, rows = 1, overlap = 0, recompute = 0, online = 0, stream = 0;
    bool operator==(const Setting&) const = default;
  };
  RowSketch(const Problem& problem, const Target& target) : problem_(problem), t_(target), shape_(shape_of(problem)) {}

  static bool matches(const Problem& problem) {
    const std::string& f = problem.kernel.family;
    return (f == "row" || f == "elementwise" || f == "rope" || f == "gather" || f == "kv_append" || f == "selection") &&
           !scopes_with_role(problem.kernel, "col").empty();
  }
  static const std::vector<KnobRow<RowSketch>>& table();
  Status accepts(const Setting& k) const;
  std::optional<Setting> standard() const;
  std::vector<Setting> simpler(const Setting& standard) const;
  Status write(Script& s, const Setting& k) const;
  double estimate(const Setting& k) const;
  Structure structure(const Setting& k, const ProblemFacts& facts) const;

 private:
  bool many() const { return problem_.threads > 1; }
  bool reduces() const { return shape_.passes.size() > 1 && !shape_.row.empty(); }
  bool may_stream() const { return !shape_.streamable.empty() && search::may_stream(problem_, t_); }
  // Rows are whole steps of so many vectors.
  bool whole_steps(int64_t unroll) const {
    return proves_divisible(shape_.passes[0]->extent, unroll * t_.lanes, Ranges(problem_.kernel));
  }
  bool whole_blocks(int64_t rows) const {
    return proves_divisible(scopes_with_role(problem_.kernel, "row")[0]->extent, rows, Ranges(problem_.kernel));
  }
  // Columns of a block whose sums stand apart; 0: a partial sum of each lane takes all of its terms.
  int64_t sum_block(const Setting& k) const;
  int64_t default_unroll() const;
  bool overlap_pays() const;

  const Problem& problem_;
  const Target& t_;
  const Shape shape_;
};

const std::vector<KnobRow<RowSketch>>& RowSketch::table() {
  using Values = std::vector<int64_t>;
  static const std::vector<KnobRow<RowSketch>> kTable = {
      {"unroll", "unroll", "vectors of a step of one row", &Setting::unroll, 1, kAnySize, true,
       [](const RowSketch&) -> Values { return {1, 2, 3, 4, 6, 8}; }},
      {"grain", "grain", "rows, or 1024 columns, of a parallel block; 0: nothing is shared out", &Setting::grain, 0,
       kAnySize, true, [](const RowSketch& s) { return s.many() ? Values{1, 4, 16, 64} : Values{0}; }},
      {"rows", "rows", "rows of a group: their passes run as one", &Setting::rows, 1, kAnySize, true,
       [](const RowSketch& s) { return values_if(s.reduces(), {1, 2, 4}); }},
      {"overlap", "overlap",
       "1: the next row's first pass runs with this row's second; 2: so does the last pass of the row before",
       &Setting::overlap, 0, 2, false,
       [](const RowSketch& s) {
         if (!s.reduces() || !s.shape_.some_rows) return Values{0};
         const bool last = s.shape_.two_rows && !s.shape_.kept.empty() && s.shape_.passes.size() > 2;
         return last ? Values{0, 1, 2} : Values{0, 1};
       }},
      {"recompute", "again", "1: values kept between passes are computed anew", &Setting::recompute, 0, 1, false,
       [](const RowSketch& s) { return values_if(s.shape_.again, {0, 1}); }},
      {"online", "online", "1: maximum and sum in one pass", &Setting::online, 0, 1, false,
       [](const RowSketch& s) { return values_if(s.shape_.online && s.shape_.again, {0, 1}); }},
      {"stream", "stream", "1: the result goes past the caches", &Setting::stream, 0, 1, false,
       [](const RowSketch& s) { return values_if(s.may_stream(), {0, 1}); }}};
  return kTable;
}

// Terms of a partial sum of a norm: with 112 of them layernorm came out 14 % beyond its tolerance
// (runtime/oracle/tolerances.def).
constexpr int64_t kMostTerms = 64, kMostUnroll = 8;
// Of other sums, where all of a row are added one after another: with 2,000 of them softmax of a vocabulary came out
// four to twenty times beyond its tolerance.
constexpr int64_t kManyTerms = 1024;

int64_t RowSketch::sum_block(const Setting& k) const {
  const int64_t step = k.unroll * t_.lanes;
  const bool sums = shape_.passes.size() > 1 || shape_.overlapped_sums > 0;
  return sums && !shape_.norm && !shape_.row.empty() && shape_.cols > kManyTerms * step ? kMostTerms * step : 0;
}

Status RowSketch::accepts(const Setting& k) const {
  const int64_t unroll = k.unroll, rows = k.rows, grain = k.grain, overlap = k.overlap;
  const bool recompute = k.recompute != 0, online = k.online != 0;
  if (unroll > 1 && shape_.cols < unroll * t_.lanes)
    return unsupported("unroll {}: a row has {} columns", unroll, shape_.cols);
  if (unroll < kMostUnroll && shape_.norm && shape_.cols > kMostTerms * t_.lanes * unroll) {
    return unsupported("unroll {}: sums of {} terms lose too much", unroll, shape_.cols / (t_.lanes * unroll));
  }
  if (unroll * rows > 8) return unsupported("{} vectors of {} rows at a time", unroll, rows);
  if (rows > 1 && (shape_.row.empty() || shape_.passes.size() < 2))
    return unsupported("rows of one pass are one loop already");
  if (rows > 1 && rows > shape_.rows) return unsupported("{} rows, there are {}", rows, shape_.rows);
  if (rows > 1 && grain % rows != 0) return unsupported("{} rows do not divide blocks of {}", rows, grain);
  if (rows > 1 && unroll > 1 && !whole_steps(unroll)) {
    return unsupported("unroll {} of {} rows needs whole steps", unroll, rows);
  }
  if (overlap != 0 && (rows > 1 || online || shape_.passes.size() < 2 || !shape_.some_rows))
    return unsupported("no passes to overlap");
  if (overlap != 0 && !equal(shape_.passes[0]->extent, shape_.passes[1]->extent))
    return unsupported("the first two passes are not of the same length");
  if (overlap != 0 && !recompute && shape_.first_keeps)
    return unsupported("the first pass of a row writes what its second one still reads of the row before");
  if (overlap == 2 && (recompute || shape_.kept.empty() || shape_.passes.size() < 3 || !shape_.two_rows)) {
    return unsupported("nothing kept for a last pass");
  }
  const bool unrolled_tail =
      is_const_int(shape_.passes[0]->extent) && shape_.cols % (unroll * t_.lanes) <= kMostUnrolledTail * t_.lanes;
  if (overlap == 2 && !unrolled_tail && !whole_steps(unroll)) {
    return unsupported("tails of three passes are more operands than a leaf has");
  }
  if (overlap == 2 && grain != 0 && (grain == 1 || !whole_blocks(grain)))
    return unsupported("blocks of {} rows may end with one", grain);
  if (overlap != 0 && unroll * shape_.overlapped_sums > (t_.vector_registers > 16 ? 16 : 4))
    return unsupported("unroll {} of two passes: registers", unroll);
  if (recompute && !shape_.again) return unsupported("what is kept is not assigned once");
  if (online && !(recompute && shape_.online)) return unsupported("no maximum and sum of the same values");
  if (online && (rows > 1 || unroll * t_.lanes > 64)) return unsupported("{} partial results", unroll * t_.lanes);
  if (sum_block(k) != 0 && (rows > 1 || overlap != 0 || online))
    return unsupported("sums of {} terms stand in blocks of one row", shape_.cols / (unroll * t_.lanes));
  if (k.stream != 0 && !may_stream()) return unsupported("the result stays in the cache, or is read");
  return {};
}

// Rows in, out and scales are touched side by side: all in the first cache, or there is arithmetic to wait for.
bool RowSketch::overlap_pays() const {
  return !shape_.kept.empty() || 2 * (shape_.bytes_in + shape_.bytes_out) * static_cast<double>(shape_.cols) <=
                                     static_cast<double>(t_.l1_bytes);
}

constexpr int64_t kUsualUnroll = 4;          // vectors of a step
constexpr int64_t kLongBlocks[] = {16, 64};  // rows, or 1024 columns

// Vectors of a step, if rows are whole steps: chains of sums that nothing else overlaps want eight; the longest
// function has registers for three.
int64_t RowSketch::default_unroll() const {
  const auto whole = [&](int64_t unroll) { return t_.vector_registers > 16 && whole_steps(unroll); };
  if (shape_.norm && (shape_.passes.size() > 2 || shape_.rows == 1) && whole(8)) return 8;
  if (shape_.norm && shape_.cols > 4 * kMostTerms * t_.lanes) return kMostUnroll;
  if (shape_.passes.size() == 1 && shape_.normal_cdf && whole(3)) return 3;
  return kUsualUnroll;
}

std::optional<RowSketch::Setting> RowSketch::standard() const {
  Setting k;
  k.unroll = default_unroll();
  k.grain = many() ? 4 : 0;
  const bool fixed = problem_.kernel.symbols.empty();  // else small shapes come as well
  k.stream = fixed && !shape_.streamable.empty() && exceeds_caches(problem_, t_) ? 1 : 0;
  // Several operands from memory with arithmetic between them: short steps mix both better. Those of narrow elements
  // are short as they are.
  const bool narrow = std::max(shape_.bytes_in, shape_.bytes_out) < 4;
  if (k.stream != 0 && shape_.passes.size() == 1 && shape_.whole_inputs > 1 && shape_.functions && !narrow)
    k.unroll = 2;
  while (k.unroll > 1 && !accepts(k).ok()) k.unroll /= 2;
  // Longer blocks where each thread gets several all the same, and none is cut short: three passes overlap in whole
  // ones only.
  const int64_t units = shape_.row.empty() ? shape_.cols / 1024
                                           : extent_at(scopes_with_role(problem_.kernel, "row")[0]->extent, problem_);
  for (const int64_t block : kLongBlocks) {
    if (many() && fixed && units >= 4 * block * problem_.threads && units % block == 0) k.grain = block;
  }
  if (!overlap_pays()) {
    // Two rows share what scales and shifts them.
    Setting pairs = k;
    pairs.rows = 2;
    pairs.unroll = 4;
    const bool even = !shape_.row.empty() &&
                      proves_divisible(find_scope(problem_.kernel, shape_.row)->extent, 2, Ranges(problem_.kernel));
    const bool pays = fixed && even && shape_.norm && shape_.passes.size() > 2 && t_.vector_registers > 16;
    return pays && accepts(pairs).ok() ? pairs : k;
  }
  // Three passes side by side fill the pipes in short steps as well, where there are registers: whole ones rather than
  // long ones and a rest.
  Setting side_by_side = k;
  for (const int64_t overlap : {2, 1}) {
    side_by_side.overlap = overlap;
    for (const bool whole : {overlap == 2 && t_.vector_registers > 16, false}) {
      for (int64_t unroll = k.unroll; unroll > 0; unroll /= 2) {
        side_by_side.unroll = unroll;
        if (whole && !whole_steps(unroll)) continue;
        if (accepts(side_by_side).ok()) return side_by_side;
      }
    }
  }
  return k;
}

// Sums in their own order, one row at a time, and fewer and fewer vectors of it. Passes side by side have shorter steps
// than one alone may have.
std::vector<RowSketch::Setting> RowSketch::simpler(const Setting& standard) const {
  Setting simple = standard;
  simple.rows = 1;
  simple.overlap = 0;
  if (simple != standard) simple.unroll = std::max(simple.unroll, kUsualUnroll);
  std::vector<Setting> out;
  for (; simple.unroll > 0; simple.unroll /= 2) out.push_back(simple);
  return out;
}

// Cycles per column, about: exposed latency of short steps, arithmetic done again, stores that read their lines first.
double RowSketch::estimate(const Setting& k) const {
  const double group = static_cast<double>(k.rows) * (1 + 0.5 * static_cast<double>(k.overlap));
  const double drains =
      static_cast<double>(shape_.passes.size()) * 60 / group / static_cast<double>(std::max<int64_t>(shape_.cols, 1));
  const double steps = 1 / (static_cast<double>(k.unroll) * group);
  const double anew = (k.recompute != 0 ? 0.6 : 0) + (k.online != 0 ? 0.4 : 0);
  const double stores = exceeds_caches(problem_, t_) && k.stream == 0 ? 0.5 : 0;
  return steps + drains + anew + stores + static_cast<double>(k.grain) * 1e-3;
}

// The naive nest stands: columns are unrolled and rows shared out.
Structure RowSketch::structure(const Setting& k, const ProblemFacts& facts) const {
  Structure s = facts.naive;
  const double lanes = t_.lanes;
  s.unroll = static_cast<double>(k.unroll);
  s.tile_vectors = s.unroll;
  s.registers = s.unroll * 3 + 2;
  s.padded = std::ceil(s.columns / lanes) * lanes / std::max(s.columns, 1.0);
  // A sum or a maximum waits for the one before: four cycles, two of them at once.
  const bool reduces = s.accesses.size() > 3;
  s.slowdown = reduces ? std::max(1.0, 4 / s.unroll) : 1;
  s.block_rows = static_cast<double>(k.grain);
  s.tile_rows = static_cast<double>(k.rows);
  s.calls = s.rows;
  if (k.grain > 0) {
    const double grain = s.block_rows;
    s.parallel = s.rows > 1 ? Axis::rows : Axis::columns;
    s.tasks = std::ceil(s.rows > 1 ? s.rows / grain : s.columns / (1024 * grain));
    s.imbalance = imbalance_of(s.tasks, facts.threads);
  }
  return s;
}

// for r < R: S; pass; ...  ->  S of all rows (unrolled); pass { r (unrolled) }; ...
void group_rows(Script& s, const std::string& rows, int64_t unroll, int64_t lanes) {
  std::vector<std::string> parts = {rows};
  while (s.ok()) {
    const Stmt* rest = find_scope(s.kernel(), parts.back());
    if (rest == nullptr || rest->body.size() < 2) break;
    parts.push_back(rows + std::to_string(parts.size()));
    s.move("split_scope {} after=0 as {}", parts[parts.size() - 2], parts.back());
  }
  for (const std::string& part : parts) {
    const Stmt* scope = find_scope(s.kernel(), part);
    if (!s.ok() || scope == nullptr) return;
    const Stmt copy = *scope;
    if (copy.body[0].kind == Stmt::Kind::scope && unit_stride(s.kernel(), copy.body[0])) {
      const Stmt& col = copy.body[0];
      vectorize_columns(s, col, unroll, lanes);
      s.move("swap_scopes {} {}", part, col.iter + (unroll == 1 ? "v" : "s"));
    }
    s.move("unroll_scope {}", part);
  }
}

bool is_pass(const Stmt& s) { return s.kind == Stmt::Kind::scope && s.role == "col"; }

// Brings `pass` down to the next pass of the row, past what lies between, and joins the two; the name of the first
// stays.
void join_with_next(Script& s, const std::string& row, const std::string& pass) {
  while (s.ok()) {
    const std::vector<Stmt>& body = find_scope(s.kernel(), row)->body;
    const auto at = std::find_if(body.begin(), body.end(), [&](const Stmt& c) { return c.iter == pass; });
    if (at == body.end() || at + 1 == body.end()) return;
    if (is_pass(at[1])) {
      s.move("join_scopes {} {}", pass, at[1].iter);
      return;
    }
    s.move("swap_ops {} {}", row, at - body.begin());
  }
}

// The first pass of the next row beside the second of this one.
void overlap_first(Script& s, const std::string& row) {
  const Stmt* scope = find_scope(s.kernel(), row);
  if (scope == nullptr) return;  // a move before was refused
  const auto first = std::find_if(scope->body.begin(), scope->body.end(), is_pass);
  if (first == scope->body.end()) return;
  const std::string pass = first->iter;
  s.move("pipeline {} after={}", row, first - scope->body.begin());
  join_with_next(s, row, pass);
}

// The last pass of a row beside those of the next: each kept column is read before it is written anew, so there is one
// copy of them.
void overlap_last(Script& s, const std::string& row) {
  const Stmt* scope = find_scope(s.kernel(), row);
  if (scope == nullptr || !s.ok()) return;
  const auto last = std::find_if(scope->body.rbegin(), scope->body.rend(), is_pass);
  const std::ptrdiff_t at = scope->body.rend() - last - 1;
  if (at < 1) return;
  const std::string pass = last->iter;
  s.move("rotate_scope {} after={}", row, at - 1);
  join_with_next(s, row, pass);
}

// Maximum and sum in one pass with a partial result per lane.
void reduce_online(Script& s, const Shape& shape, const std::string& row, int64_t partials) {
  const std::string max = shape.passes[0]->iter, sum = shape.passes[1]->iter;
  s.move("online_reduction {} {} {} as mx,sx,nx,{}v,{}l", max, sum, partials, max, max);
  for (const char* buffer : {"mx", "sx", "nx"}) s.move("move_to_register {} {}", buffer, row);
  for (const char* scope : {"mx_0", "mx_1", "mx_2"}) s.move("vectorize_scope {}", scope);
  s.move("vectorize_scope {}l", max);
}

// Whole blocks of a pass (columns c + "q") have sums of their own, added up behind them; the rest (c + "t") joins them.
void sum_in_blocks(Script& s, const Stmt& col, const std::string& sum, const std::string& row, int64_t columns) {
  const std::string c = col.iter;
  const bool whole = proves_divisible(col.extent, columns, Ranges(s.kernel()));
  const std::string rest = whole ? "" : "," + c + "t";
  s.move("tile_scope {} {} tail={} as {}p,{}q{}", c, columns, whole ? "exact" : "peel", c, c, rest);
  s.move("split_reduction {} {}p at={} as {}p", sum, c, row, sum);
  s.move("move_to_stack {}p {}", sum, row);
}

Status RowSketch::write(Script& s, const Setting& k) const {
  if ((k.overlap != 0 || k.online != 0) && (shape_.row.empty() || shape_.passes.size() < 2))
    return unsupported("one pass, or no rows");
  const int64_t grain = k.grain, group = k.rows;
  const std::vector<const Stmt*> rows = scopes_with_role(problem_.kernel, "row");
  if (k.stream != 0) {
    for (const std::string& b : shape_.streamable) s.move("stream_stores {}", b);
  }
  if (k.recompute != 0) {
    for (const std::string& b : shape_.kept) s.move("inline_temporary {}", b);
  }
  std::string block, row = shape_.row;
  if (grain != 0 && !rows.empty()) {
    const std::string outer = rows[0]->iter;
    s.move("tile_scope {} {} tail=mask as rows,{}r", outer, grain, outer);
    block = "rows";
    if (outer == row) row += "r";
  } else if (grain != 0 && shape_.passes.size() == 1 && shape_.cols > 2048) {
    const std::string col = shape_.passes[0]->iter;
    s.move("tile_scope {} {} tail=mask as blocks,{}c", col, 1024 * grain, col);
    block = "blocks";
  }
  if (!block.empty()) s.move("parallelize {}", block);  // before tails make indices hard to tell apart
  std::string inner = row;
  if (group > 1) {
    const Stmt* scope = find_scope(s.kernel(), row);
    const char* tail = scope == nullptr ? "mask" : tail_of(scope->extent, group, s.kernel());
    s.move("tile_scope {} {} tail={} as {}g,{}i", row, group, tail, row, row);
    inner = row + "i";
    row += "g";
  }
  for (const std::string& b : shape_.scalars) s.move("move_to_register {} {}", b, row);
  for (const std::string& b : shape_.kept) {
    if (k.recompute == 0) s.move("move_to_stack {} {}", b, row);
  }
  if (k.online != 0) reduce_online(s, shape_, row, k.unroll * t_.lanes);
  if (k.overlap != 0) overlap_first(s, row);
  if (k.overlap == 2) overlap_last(s, row);
  if (group > 1) {
    group_rows(s, inner, k.unroll, t_.lanes);
  } else {
    std::vector<std::string> passes;
    for (const Stmt* col : scopes_with_role(s.kernel(), "col")) passes.push_back(col->iter);
    for (const std::string& name : passes) {
      const Stmt* col = find_scope(s.kernel(), name);
      if (!s.ok() || col == nullptr) break;
      const Stmt copy = *col;
      const bool waits =
          copy.mark == Mark::none && copy.iter != block &&
          std::all_of(copy.body.begin(), copy.body.end(), [](const Stmt& c) { return c.kind == Stmt::Kind::assign; });
      if (!waits || !unit_stride(s.kernel(), copy)) continue;
      const int64_t columns = sum_block(k);
      const auto sum =
          std::find_if(copy.body.begin(), copy.body.end(), [](const Stmt& c) { return c.op == AssignOp::add; });
      if (columns == 0 || sum == copy.body.end()) {
        const int64_t most = is_const_int(copy.extent) ? copy.extent->ival / t_.lanes : k.unroll;
        vectorize_columns(s, copy, std::clamp<int64_t>(most, 1, k.unroll), t_.lanes);
        continue;
      }
      sum_in_blocks(s, copy, sum->target, row, columns);
      for (const char* part : {"q", "t"}) {
        const Stmt* of_block = find_scope(s.kernel(), name + part);
        if (of_block == nullptr) continue;
        const Stmt columns_of = *of_block;
        vectorize_columns(s, columns_of, k.unroll, t_.lanes);
      }
    }
  }
  return {};
}

}  // namespace

const Recipe kRowRecipe = {"rows", 2, RowSketch::matches, knob_table<RowSketch>, make_sketch<RowSketch, kRowRecipe>};

}  // namespace lathe::search
