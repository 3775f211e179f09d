// Attention of a few queries whose heads share keys, as in decode: each key and value is read once for all heads of a
// group.
//
//   t heads of keys { i queries {
//     j keys, some at a time { c = 0 | d: c += q * k, lanes along the depth | s = f(c) }      of all heads of the group
//     g heads { m fmax= s | s = exp2(s - m), a += s | r = 1 / a }
//     panels of columns { o = 0 | j2: o += s * v (tensor, a row a head) | y = o * r } } }
//
// Keys and values in pages stay there: j and j2 go page by page, whose sums o are kept on the stack. Bytes become
// floats where they are read. Then heads that have keys of their own are groups of one.
#include <algorithm>

#include "ir/analysis/analysis.h"
#include "search/attention/parts.h"
#include "search/sketches/sketch.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {
const Expr& unwidened_load(const Expr& e) { return e->op == Op::k_cast ? e->args[0] : e; }
}  // namespace

class GroupsSketch {
 public:
  struct Setting {
    int64_t keys = 4, depth_vectors = 1, column_vectors = 4, score_vectors = 4, prefetch = 0, parallel = 0;
    bool operator==(const Setting&) const = default;
  };
  GroupsSketch(const Problem& problem, const Target& target)
      : problem_(problem),
        t_(target),
        p_(attention_parts(problem.kernel)),
        heads_(heads_of_group(p_)),
        page_(page_of(p_)) {}

  static bool matches(const Problem& problem) {
    if (problem.kernel.family != "attention") return false;
    const AttentionParts p = attention_parts(problem.kernel);
    if (!p || extent_at(p.row->extent, problem) > kMostQueries) return false;
    const int64_t heads = heads_of_group(p);
    const auto most = [&](const Expr& e) { return interval(e, Ranges(problem.kernel)).hi; };
    const int64_t page = page_of(p);
    const bool fits = p.copies.empty() ? heads > 1 : page != 1 && from_first(p);
    return fits && heads <= kMostHeads && most(p.depth->extent) > 1 && most(p.columns->extent) > 1;
  }
  static const std::vector<KnobRow<GroupsSketch>>& table();
  Status accepts(const Setting& k) const {
    // A sum of its own for each vector of the depth; beside them a vector of each query and one of a key.
    const int64_t scores = heads_ * k.keys * k.depth_vectors + heads_ + 1,
                  sums = heads_ * k.column_vectors + k.column_vectors;
    if (std::max(scores, sums) + kScratchRegisters > t_.vector_registers)
      return unsupported("jr {} nv {}: more than the registers", k.keys, k.column_vectors);
    const int64_t step = k.depth_vectors * t_.lanes;
    if (page_ != 0 && k.keys > page_) return unsupported("jr {}: more than the {} keys of a page", k.keys, page_);
    if (most_depth() > step && most_depth() % step != 0)
      return unsupported("dv {}: a depth of {} is no whole steps", k.depth_vectors, most_depth());
    return {};
  }
  std::optional<Setting> standard() const {
    Setting k{.prefetch = problem_.cold ? kAhead : 0, .parallel = problem_.threads > 1};
    const int64_t columns = (extent_at(p_.columns->extent, problem_) + t_.lanes - 1) / t_.lanes;
    k.column_vectors = std::clamp<int64_t>(columns, 1, 4);
    if (most_depth() % t_.lanes != 0) k.depth_vectors = std::min<int64_t>((most_depth() + t_.lanes - 1) / t_.lanes, 16);
    while (!accepts(k).ok() && k.keys > 1) k.keys /= 2;
    while (!accepts(k).ok() && k.column_vectors > 1) k.column_vectors /= 2;
    return accepts(k).ok() ? std::optional(k) : std::nullopt;
  }
  std::vector<Setting> simpler(const Setting& k) const {
    return {{.keys = 1, .depth_vectors = 1, .column_vectors = 1, .score_vectors = 1, .parallel = k.parallel}};
  }
  Status write(Script& s, const Setting& k) const;
  double estimate(const Setting& k) const;
  Structure structure(const Setting& k, const ProblemFacts& facts) const;

 private:
  static constexpr int64_t kMostQueries = 3, kMostHeads = 16, kScratchRegisters = 3;
  static constexpr int64_t kAhead = 4096;  // bytes
  int64_t most_depth() const { return extent_at(p_.depth->extent, problem_); }
  void write_scores(Script& s, const Setting& k, const std::string& heads, const std::string& keys,
                    const std::string& suffix) const;

  const Problem& problem_;
  const Target& t_;
  const AttentionParts p_;
  const int64_t heads_, page_;
};

const std::vector<KnobRow<GroupsSketch>>& GroupsSketch::table() {
  using Values = std::vector<int64_t>;
  using S = const GroupsSketch&;
  static const std::vector<KnobRow<GroupsSketch>> kTable = {
      {"keys", "jr", "keys side by side", &Setting::keys, 1, 16, false, [](S) { return Values{1, 2, 4, 8}; }},
      {"depth_vectors", "dv", "vectors of the depth that are summed side by side", &Setting::depth_vectors, 1, 16,
       false, [](S) { return Values{1, 2}; }},
      {"column_vectors", "nv", "vectors of columns whose sums are in registers", &Setting::column_vectors, 1, 16, false,
       [](S) { return Values{1, 2, 4, 8}; }},
      {"score_vectors", "sv", "vectors of scores side by side", &Setting::score_vectors, 1, 16, false,
       [](S) { return Values{1, 4}; }},
      {"prefetch", "pf", "bytes that keys and values are prefetched ahead; 0: not", &Setting::prefetch, 0, kAnySize,
       true, [](S) { return Values{0, 2048, 4096, 8192}; }},
      {"parallel", "parallel", "1: heads of keys are shared out", &Setting::parallel, 0, 1, true,
       [](S s) { return Values{s.problem_.threads > 1 ? 1 : 0}; }}};
  return kTable;
}

double GroupsSketch::estimate(const Setting& k) const {
  const auto near = standard();
  double steps = 1;
  for (const KnobRow<GroupsSketch>& row : table()) steps += near && k.*row.field != *near.*row.field;
  return steps;
}

// keys { heads { c = 0 | d: c += q * k | s = f(c) } }, both in full, with vectors along the depth.
void GroupsSketch::write_scores(Script& s, const Setting& k, const std::string& heads, const std::string& keys,
                                const std::string& suffix) const {
  const std::string d = p_.depth->iter + suffix;
  for (const std::string& scope : {heads, keys}) {
    s.move("split_scope {} after=0 as {}_s", scope, scope);
    s.move("split_scope {}_s after=0 as {}_f", scope, scope);
  }
  const int64_t step = k.depth_vectors * t_.lanes;
  const bool steps = most_depth() > step;
  if (steps) {
    s.move("tile_scope {} {} tail={} as {}o,{}i", d, step, tail_of(p_.depth->extent, step, problem_.kernel), d, d);
    s.move("swap_scopes {}_s {}o", heads, d);
    s.move("swap_scopes {}_s {}o", keys, d);
  }
  const std::string inner = steps ? d + "i" : d;
  // A vector of each query and one of a key meet before the next ones are read.
  s.move("tile_scope {} {} tail={} as {}v,{}l", inner, t_.lanes,
         tail_of(p_.depth->extent, steps ? step : t_.lanes, problem_.kernel), inner, inner);
  s.move("swap_scopes {}_s {}v", heads, inner);
  s.move("swap_scopes {}_s {}v", keys, inner);
  s.move("unroll_scope {}v", inner);
  s.move("vectorize_scope {}l", inner);
  for (const char* part : {"", "_s", "_f"}) {
    s.move("unroll_scope {}{}", heads, part);
    s.move("unroll_scope {}{}", keys, part);
  }
}

Status GroupsSketch::write(Script& s, const Setting& k) const {
  const std::string i = p_.row->iter, n = p_.columns->iter, j2 = p_.values->iter;
  std::string j = p_.scores->iter;
  // Keys and values are read where they are, and the scales of keys; those of values, by which vectors are multiplied,
  // are copied.
  const bool copied = !p_.copies.empty();
  const bool bytes = copied && s.kernel().find_buffer(load_of_keys(p_)->name)->type !=
                                   unwidened_load(copy_of(p_, load_of_keys(p_))->one().value)->type;
  for (const AttentionParts::Copy& c : p_.copies) {
    const bool scales_values = p_.powers->body.size() > 2 && uses(p_.powers->body[2].value, c.one().target);
    if (!scales_values) s.move("inline_temporary {}", c.one().target);
  }
  vectorize_clear(s, p_, t_.lanes);
  SharedKeys shared = share_keys(s, p_, copied);
  const std::string g = shared.heads;
  shared.around = copy_rows(s, p_, shared);
  s.move("swap_scopes {} {}", g, i);
  // Scores, softmax, sums: three scopes over the heads.
  s.move("split_scope {} after=2 as {}_max", j, j);
  s.move("swap_ops {} 0", g);
  s.move("split_scope {} after=0 as {}_soft", g, g);
  s.move("split_scope {}_soft after=4 as {}_out", g, g);
  for (const std::string& name : {std::string("r"), p_.powered()}) s.move("move_to_stack {} {}", name, i);
  vectorize_softmax(s, p_, g + "_soft", j + "_max", k.score_vectors, t_.lanes);
  // Whole steps of keys, then single ones.
  s.move("swap_scopes {} {}", g, j);
  if (page_ != 0) {
    s.move("tile_scope {} {} tail=mask as {}p,{}q", j, page_, j, j);
    j += "q";
  }
  const bool whole = page_ == 0 && tail_of(p_.scores->extent, k.keys, problem_.kernel)[0] == 'e';
  if (k.keys > 1 && !whole) {
    s.move("tile_scope {} {} tail=peel as {}o,{}i,{}r", j, k.keys, j, j, j);
    s.move("split_buffer {} {}r as {}_r", p_.products(), j, p_.products());
    s.move("tile_scope {}r 1 tail=exact as {}ro,{}ri", j, j, j);
    write_scores(s, k, g + "_t", j + "ri", "_t");
    s.move("move_to_register {}_r {}ro", p_.products(), j);
  } else {
    s.move("tile_scope {} {} tail=exact as {}o,{}i", j, k.keys, j, j);
  }
  write_scores(s, k, g, j + "i", "");
  s.move("move_to_register {} {}o", p_.products(), j);
  const char* column_tail = tail_of(p_.columns->extent, k.column_vectors * t_.lanes, problem_.kernel);
  const Product sums = {"", g + "_out", n, j2, p_.sums(), column_tail, k.column_vectors * t_.lanes, false, !bytes};
  if (page_ == 0) {
    tile_product(s, sums, t_.lanes);
  } else {
    sum_pages(s, sums, page_, t_.lanes);
    s.move("move_to_stack {} {}", p_.sums(), i);
  }
  vectorize_copies(s, p_, t_.lanes);
  if (k.prefetch > 0 && !copied) {
    const auto lines = [&](const Expr& extent, const Expr& of, int64_t rows) {
      const int64_t bytes =
          extent_at(extent, problem_) * rows * ir::dtype_bytes(problem_.kernel.find_buffer(of->name)->type);
      return std::clamp<int64_t>(bytes / 64, 1, 64);
    };
    const Expr &keys = load_of_keys(p_), &values = load_of_values(p_);
    s.move("prefetch {} {}o ahead={} lines={}", keys->name, j, k.prefetch, lines(p_.depth->extent, keys, k.keys));
    s.move("prefetch {} {} ahead={} lines={}", values->name, j2, k.prefetch, lines(p_.columns->extent, values, 4));
  }
  if (k.parallel != 0) s.move("parallelize {}", shared.around != "root" ? shared.around : i);
  return {};
}

Structure GroupsSketch::structure(const Setting& k, const ProblemFacts& facts) const {
  Structure s = facts.naive;
  s.tile_rows = static_cast<double>(heads_);
  s.tile_vectors = static_cast<double>(k.column_vectors);
  s.unroll = static_cast<double>(k.keys);
  s.registers = static_cast<double>(heads_ * k.column_vectors + k.column_vectors + kScratchRegisters);
  s.block_columns = static_cast<double>(k.column_vectors * t_.lanes);
  double groups = 1.0 / static_cast<double>(heads_);
  for (const Stmt* b : p_.heads) groups *= static_cast<double>(extent_at(b->extent, problem_));
  const double rows = static_cast<double>(extent_at(p_.row->extent, problem_));
  s.calls = rows * groups * 3;
  if (k.parallel != 0) {
    s.parallel = Axis::rows;
    s.tasks = groups;
    s.imbalance = imbalance_of(groups, facts.threads);
  }
  return s;
}

const Recipe kGroupsRecipe = {"groups", 1, GroupsSketch::matches, knob_table<GroupsSketch>,
                              make_sketch<GroupsSketch, kGroupsRecipe>};

}  // namespace lathe::search
