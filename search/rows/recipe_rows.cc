// The row recipe: row reductions, running sums, elementwise chains, rope, gather, top_k and appends to caches. Columns
// in vectors (several unrolled), scalars of a row in registers, what a row keeps between its passes on the stack or
// computed again, rows shared out over threads.
//
//   row block (parallel) { row group { pass over the columns { row of the group (unrolled) { vector } } ... } }
#include <algorithm>
#include <cmath>

#include "ir/analysis/analysis.h"
#include "ir/analysis/dependence.h"
#include "search/rows/row_shape.h"
#include "search/sketches/generic_rules.h"
#include "search/sketches/sketch.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

class RowSketch {
 public:
  struct Setting {
    int64_t unroll = 1, grain = 0, rows = 1, overlap = 0, recompute = 0, online = 0, stream = 0, prefetch = 0;
    bool operator==(const Setting&) const = default;
  };
  RowSketch(const Problem& problem, const Target& target)
      : problem_(problem), t_(target), shape_(row_shape_of(problem, search::may_stream(problem, target))) {}

  static bool matches(const Problem& problem) {
    const std::string& f = problem.kernel.family;
    return (f == "row" || f == "elementwise" || f == "rope" || f == "gather" || f == "kv_append" || f == "selection" ||
            f == "scan") &&
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
  bool may_stream() const { return !shape_.streamable.empty(); }
  bool may_prefetch() const { return !shape_.whole.empty() && search::may_stream(problem_, t_); }
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
  std::optional<Setting> short_rows(const Setting& k) const;
  bool overlap_pays() const;

  const Problem& problem_;
  const Target& t_;
  const RowShape shape_;
};

const std::vector<KnobRow<RowSketch>>& RowSketch::table() {
  using Values = std::vector<int64_t>;
  static const std::vector<KnobRow<RowSketch>> kTable = {
      {"unroll", "unroll", "vectors of a step of one row", &Setting::unroll, 1, kAnySize, true,
       [](const RowSketch&) -> Values { return {1, 2, 3, 4, 6, 8}; }},
      {"grain", "grain", "rows, or 1024 columns, of a parallel block; 0: nothing is shared out", &Setting::grain, 0,
       kAnySize, true, [](const RowSketch& s) { return s.many() ? Values{1, 4, 16, 64} : Values{0}; }},
      {"rows", "rows", "rows of a group: their passes run as one", &Setting::rows, 1, kAnySize, true,
       [](const RowSketch& s) { return values_if(s.reduces(), {1, 2, 4, 8}); }},
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
       [](const RowSketch& s) { return values_if(s.may_stream(), {0, 1}); }},
      {"prefetch", "pf", "bytes that inputs as large as the result are prefetched ahead; 0: not", &Setting::prefetch, 0,
       kAnySize, true, [](const RowSketch& s) { return values_if(s.may_prefetch(), {0, 8192, 16384}); }}};
  return kTable;
}

constexpr int64_t kLine = 64;
constexpr int64_t kPair = 2;  // vectors of narrow elements that one instruction stores

// Terms of a partial sum of a norm: with 112 of them layernorm may be off by 7e-7.
constexpr int64_t kMostTerms = 64, kMostUnroll = 8;
// Of other sums, where all of a row are added one after another: with 1,000 of them softmax may be off by 1.6e-6, with
// 2,000 by 5e-6 to 2e-5.
constexpr int64_t kManyTerms = 512;

int64_t RowSketch::sum_block(const Setting& k) const {
  const int64_t step = k.unroll * t_.lanes;
  const bool sums = shape_.passes.size() > 1 || shape_.overlapped_sums > 0;
  return sums && !shape_.norm && !shape_.running && !shape_.row.empty() && shape_.cols > kManyTerms * step
             ? kMostTerms * step
             : 0;
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
  if (rows > 1 && shape_.decides) return unsupported("{} rows, each of which decides how often its passes run", rows);
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
  if (overlap != 0 && shape_.first_stores) return unsupported("the first pass of a row stores a result that is read");
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
  if (k.prefetch != 0 && !may_prefetch()) return unsupported("no input as large as the result comes from memory");
  if (k.prefetch != 0 && k.prefetch < kLine) return unsupported("pf {}: less than a line", k.prefetch);
  return {};
}

// Rows in, out and scales are touched side by side: all in the first cache, or there is arithmetic to wait for. With
// narrow elements there is: from 8192 columns on, from memory, rmsnorm of bf16 takes .63 of the time and layernorm .76,
// layernorm of f32 1.2 times it (Zen 4).
bool RowSketch::overlap_pays() const {
  const bool narrow = std::max(shape_.bytes_in, shape_.bytes_out) < 4;
  return !shape_.kept.empty() || narrow ||
         2 * (shape_.bytes_in + shape_.bytes_out) * static_cast<double>(shape_.cols) <=
             static_cast<double>(t_.l1_bytes);
}

constexpr int64_t kUsualUnroll = 4;          // vectors of a step
constexpr int64_t kUsualAhead = 8192;        // bytes: the hardware's prefetcher stops at the end of a page
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

// Short rows: several at a time, as the lanes of a sum take longer to add up than a row to go through. The more rows,
// the more instructions a vector takes: most where elements are narrow, then where there are three passes.
std::optional<RowSketch::Setting> RowSketch::short_rows(const Setting& k) const {
  constexpr int64_t kShort = 128, kShortest = 64, kShortNarrow = 512, kLongPiece = 512;
  const bool narrow = std::max(shape_.bytes_in, shape_.bytes_out) < 4, long_passes = shape_.passes.size() > 2;
  if (!reduces() || t_.vector_registers <= 16 || !problem_.kernel.symbols.empty()) return std::nullopt;
  if (narrow ? !shape_.norm && shape_.cols > kShortNarrow : shape_.cols > (long_passes ? kShort : kShortest))
    return std::nullopt;
  // Side by side, pieces of half a KB come up to three times as slowly to a core that fetches streams alone.
  if (t_.prefetches_alone && exceeds_caches(problem_, t_) &&
      static_cast<double>(shape_.cols) * shape_.bytes_in >= kLongPiece)
    return std::nullopt;
  Setting several = k;
  several.rows = narrow ? 8 : 4;
  several.unroll = 8 / several.rows;
  // They lie in one piece, which such a core follows.
  if (t_.prefetches_alone) several.prefetch = 0;
  // What is prefetched is of rows that follow.
  const double span = static_cast<double>(several.rows * shape_.cols) * shape_.bytes_in;
  if (several.prefetch != 0 && span > static_cast<double>(several.prefetch)) return std::nullopt;
  const Expr rows = find_scope(problem_.kernel, shape_.row)->extent;
  const bool whole = proves_divisible(rows, several.rows, Ranges(problem_.kernel));
  return whole && accepts(several).ok() ? std::optional(several) : std::nullopt;
}

std::optional<RowSketch::Setting> RowSketch::standard() const {
  Setting k;
  k.unroll = default_unroll();
  k.grain = many() ? 4 : 0;
  const bool fixed = problem_.kernel.symbols.empty();  // else small shapes come as well
  const bool from_memory = fixed && exceeds_caches(problem_, t_);
  k.stream = from_memory && !shape_.streamable.empty() ? 1 : 0;
  k.prefetch = from_memory && may_prefetch() ? kUsualAhead : 0;
  // Several operands from memory with arithmetic between them: short steps mix both better. Those of narrow elements
  // are short as they are.
  const bool narrow = std::max(shape_.bytes_in, shape_.bytes_out) < 4;
  if (k.stream != 0 && shape_.passes.size() == 1 && shape_.whole.size() > 1 && shape_.functions && !narrow)
    k.unroll = 2;
  while (k.unroll > 1 && !accepts(k).ok()) k.unroll /= 2;
  // Longer blocks where each thread gets several all the same, and none is cut short: three passes overlap in whole
  // ones only.
  const int64_t units = shape_.row.empty() ? shape_.cols / 1024
                                           : extent_at(scopes_with_role(problem_.kernel, "row")[0]->extent, problem_);
  for (const int64_t block : kLongBlocks) {
    if (many() && fixed && units >= 4 * block * problem_.threads && units % block == 0) k.grain = block;
  }
  if (const auto several = short_rows(k)) return several;
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
  // long ones and a rest. Where columns vary, the rest of long ones is a large part of many rows: softmax of 128 and of
  // 1024 columns takes 1.25 times as long by steps of four vectors as by one.
  const bool varies = !is_const_int(shape_.passes[0]->extent);
  Setting side_by_side = k;
  for (const int64_t overlap : {2, 1}) {
    side_by_side.overlap = overlap;
    // The first of these passes is a row ahead already. With more, layernorm of 1024 columns takes 12 % longer in f32
    // and 13 % less in bf16, whose rows end twice as often.
    if (shape_.norm && shape_.passes.size() > 2 && !narrow) side_by_side.prefetch = 0;
    for (const bool whole : {overlap == 2 && t_.vector_registers > 16, false}) {
      for (int64_t unroll = k.unroll; unroll > 0; unroll /= 2) {
        side_by_side.unroll = varies ? k.unroll / unroll : unroll;
        if (whole && !whole_steps(side_by_side.unroll)) continue;
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
  const bool from_memory = exceeds_caches(problem_, t_);
  const double stores = from_memory && k.stream == 0 ? 0.5 : 0;
  const double waits = from_memory && k.prefetch < kUsualAhead ? 0.3 : 0;
  return steps + drains + anew + stores + waits + static_cast<double>(k.grain) * 1e-3;
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
  s.prefetch_bytes = static_cast<double>(k.prefetch);
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
// A pass that only stores has at least `stored` vectors of a row a step, where these are whole steps.
void group_rows(Script& s, const std::string& rows, int64_t unroll, int64_t stored, int64_t lanes) {
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
      const bool reduces =
          std::any_of(col.body.begin(), col.body.end(), [](const Stmt& c) { return c.op != AssignOp::set; });
      const bool whole = proves_divisible(col.extent, stored * lanes, Ranges(s.kernel()));
      const int64_t step = reduces || !whole ? unroll : std::max(unroll, stored);
      vectorize_columns(s, col, step, lanes);
      s.move("swap_scopes {} {}", part, col.iter + (step == 1 ? "v" : "s"));
    }
    s.move("unroll_scope {}", part);
  }
}

// Each input ahead of the pass that reads it first: the columns of one row that one step takes.
void prefetch_inputs(Script& s, const std::vector<std::string>& inputs, const std::string& row, int64_t ahead) {
  for (const std::string& b : inputs) {
    const Stmt* rows = row.empty() ? nullptr : find_scope(s.kernel(), row);
    const Stmt* at = nullptr;
    int64_t elements = 1;
    const auto find = [&](const std::vector<Stmt>& body, const auto& self) -> bool {
      for (const Stmt& c : body) {
        if (c.kind == Stmt::Kind::assign && uses(c.value, b)) return true;
        if (c.kind != Stmt::Kind::scope || !self(c.body, self)) continue;
        if (at == nullptr && (c.mark == Mark::none || c.role == "row")) at = &c;
        if (at == nullptr && is_const_int(c.extent)) elements *= c.extent->ival;
        return true;
      }
      return false;
    };
    if (!s.ok() || !find(rows == nullptr ? s.kernel().body : rows->body, find) || at == nullptr) continue;
    const int64_t bytes = elements * dtype_bytes(s.kernel().find_buffer(b)->type);
    s.prefetch("{} {} ahead={} lines={}", b, at->iter, ahead, std::clamp<int64_t>(bytes / kLine, 1, 32));
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
void reduce_online(Script& s, const RowShape& shape, const std::string& row, int64_t partials) {
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
  // Inside what is shared out they are on the stack already.
  const Buffer* sums = s.kernel().find_buffer(sum + "p");
  if (s.ok() && sums != nullptr && sums->place == Place::heap) s.move("move_to_stack {}p {}", sum, row);
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
    group_rows(s, inner, k.unroll, shape_.bytes_out < 4 ? kPair : 1, t_.lanes);
  } else {
    std::vector<std::string> passes;
    for (const char* role : {"clear", "col"}) {
      for (const Stmt* col : scopes_with_role(s.kernel(), role)) passes.push_back(col->iter);
    }
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
  if (k.prefetch != 0) prefetch_inputs(s, shape_.whole, row, k.prefetch);
  return {};
}

}  // namespace

const Recipe kRowRecipe = {"rows", 2, RowSketch::matches, knob_table<RowSketch>, make_sketch<RowSketch, kRowRecipe>};

}  // namespace lathe::search
