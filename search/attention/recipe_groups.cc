// Attention of a few queries whose heads share keys, as in decode: each key and value is read once for all heads of a
// group, or once for each part of them where the registers do not hold the sums of all.
//
//   t heads of keys { i queries {
//     j keys, some at a time { c = 0 | d: c += q * k, lanes along the depth | s = f(c) }      of all heads of the group
//     g heads { m fmax= s | s = exp2(s - m), a += s | r = 1 / a }
//     panels of columns { o = 0 | j2: o += s * v (tensor, a row a head) | y = o * r } } }
//
// Threads share out sequences, heads of keys, queries and, where those may be few or of unequal lengths, parts of the
// keys, of which each has all of the above. What the parts make is merged behind them.
//
// Keys and values in pages stay there: j and j2 go page by page, whose sums o are kept on the stack. A page is one call
// for some heads of keys, or for all of them: their scopes then lie inside of those of pages. Bytes become floats where
// they are read. Then heads that have keys of their own are groups of one.
//
// Keys may go in blocks, as if those were pages: parts of the heads, whose scope is then around the keys of a block,
// take one block after another.
#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

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
    int64_t heads = 0, keys = 4, depth_vectors = 1, column_vectors = 4, score_vectors = 4, prefetch = 0, parallel = 0,
            key_part = 0, key_heads = 1, key_block = 0;
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
    const int64_t heads = heads_of(k), scores = heads * k.keys * k.depth_vectors + heads + 1,
                  sums = heads * k.column_vectors + k.column_vectors;
    if (k.heads >= heads_) return unsupported("hr {}: no part of {} heads", k.heads, heads_);
    if (k.key_block != 0 && (page_ != 0 || k.prefetch == kNextHead || (k.heads != 0 && heads_ % k.heads != 0)))
      return unsupported("kb {}: pages, keys of the next head, or unequal parts of heads", k.key_block);
    if (k.key_block % std::max<int64_t>(k.keys, 1) != 0)
      return unsupported("kb {} jr {}: no whole steps of keys", k.key_block, k.keys);
    if (std::max(scores, sums) + kScratchRegisters > t_.vector_registers)
      return unsupported("hr {} jr {} nv {}: more than the registers", k.heads, k.keys, k.column_vectors);
    const int64_t step = k.depth_vectors * t_.lanes;
    if (k.key_part != 0 && !may_split_keys())
      return unsupported("kp {}: sequences that may share rows, or scales of values in pages", k.key_part);
    if (k.key_part % std::max({page_, k.keys, k.key_block}) != 0)
      return unsupported("kp {}: no whole steps of keys", k.key_part);
    if (page_ != 0 && k.keys > page_) return unsupported("jr {}: more than the {} keys of a page", k.keys, page_);
    if (k.prefetch == kNextHead && !may_fetch_next()) return unsupported("pf -1: no keys that follow, or in pages");
    if (k.prefetch == kNextHead && k.key_part != 0) return unsupported("pf -1 kp {}: keys in parts", k.key_part);
    if (k.key_heads != 1 && (k.heads != 0 || !may_join_heads()))
      return unsupported("kh {}: no pages, or heads of a group in parts", k.key_heads);
    if (k.key_heads != 0 && key_heads() % k.key_heads != 0)
      return unsupported("kh {}: no part of {} heads of keys", k.key_heads, key_heads());
    if (most_depth() > step && most_depth() % step != 0)
      return unsupported("dv {}: a depth of {} is no whole steps", k.depth_vectors, most_depth());
    return {};
  }
  std::optional<Setting> standard() const {
    Setting k{.prefetch = problem_.cold ? kAhead : 0, .parallel = problem_.threads > 1};
    // On Zen 5, 8 KB ahead of keys of 16 bits take .95 of the time of 4 KB, of 8 bits .97.
    if (narrow()) k.prefetch *= 2;
    k.key_part = standard_part();
    const int64_t columns = (extent_at(p_.columns->extent, problem_) + t_.lanes - 1) / t_.lanes;
    k.column_vectors = std::clamp<int64_t>(columns, 1, heads_ > 2 ? 4 : 8);
    if (heads_ == 1) k.keys = 8;
    const bool next = problem_.cold && k.key_part == 0 && may_fetch_next() && near_twice();
    // Rows that lie apart are not read ahead: several at a time wait for memory together.
    const bool several = in_order() && !next && !rows_together();
    if (in_order()) k.keys = several ? 4 : 1, k.prefetch = 0;
    if (in_order() && t_.prefetches_alone && rows_together()) {
      if (const auto rows = by_rows(k)) return rows;
    }
    if (next) k.prefetch = kNextHead;
    if (page_ != 0 && heads_ == 1) k.prefetch = 0;
    if (most_depth() % t_.lanes != 0) k.depth_vectors = std::min<int64_t>((most_depth() + t_.lanes - 1) / t_.lanes, 16);
    // All heads together if they fit, else the fewest equal parts that do.
    for (int64_t parts = 1; parts <= heads_; ++parts) {
      Setting fit = k;
      fit.heads = parts == 1 ? 0 : (heads_ + parts - 1) / parts;
      while (!accepts(fit).ok() && fit.keys > 1 && (!several || parts == heads_)) fit.keys /= 2;
      while (!accepts(fit).ok() && fit.column_vectors > 1) fit.column_vectors /= 2;
      if (!accepts(fit).ok()) continue;
      fit.key_heads = standard_heads(fit);
      if (in_near_pages() && fit.key_heads == 0) fit.prefetch = kAheadInPage;
      return fit;
    }
    return std::nullopt;
  }
  std::vector<Setting> simpler(const Setting& k) const {
    return {{.heads = k.heads,
             .keys = 1,
             .depth_vectors = 1,
             .column_vectors = 1,
             .score_vectors = 1,
             .parallel = k.parallel}};
  }
  Status write(Script& s, const Setting& k) const;
  double estimate(const Setting& k) const;
  Structure structure(const Setting& k, const ProblemFacts& facts) const;

 private:
  static constexpr int64_t kMostQueries = 3, kMostHeads = 16, kScratchRegisters = 3;
  static constexpr int64_t kQueryRegisters = 16, kRowSums = 8;  // of keys that are read row by row
  static constexpr int64_t kBlockBytes = 4096;  // of keys: what is done with them fits into the reorder window
  static constexpr int64_t kAhead = 4096;       // bytes
  static constexpr int64_t kNextHead = -1;      // instead of bytes
  static constexpr int64_t kKeysOfPart = 512;   // they outweigh the call and what is merged
  static constexpr int64_t kFewestTasks = 2;    // a thread
  static constexpr int64_t kMostUneven = 8;     // groups a thread, which one more or less makes no matter
  // Of pages in the caches, of all heads: on Zen 4 .99 of the time without it where they have 16 keys, .97 where 32.
  static constexpr int64_t kAheadInPage = 1024;
  // Whether keys that come from memory are read best one after another, as the hardware reads ahead by itself.
  bool in_order() const {
    return problem_.cold && !t_.slow_memory() && heads_ > 1 && page_ == 0 &&
           read_where_it_is(load_of_keys(p_))->type == DType::f32;
  }
  // Each key and each value as a whole, one after another, for as many heads as have their queries in registers: what
  // the hardware reads ahead by itself is one stream. Parts of heads take turns with so few keys that the next ones are
  // on their way meanwhile.
  std::optional<Setting> by_rows(Setting k) const {
    const int64_t vectors = most_depth() / t_.lanes, columns = extent_at(p_.columns->extent, problem_) / t_.lanes;
    const int64_t longest = std::max(most_depth(), extent_at(p_.columns->extent, problem_)), kFloat = sizeof(float);
    for (int64_t heads = std::min(heads_, kQueryRegisters / std::max<int64_t>(vectors, 1)); heads > 1; --heads) {
      if (heads_ % heads != 0) continue;
      k.heads = heads == heads_ ? 0 : heads;
      k.keys = std::max<int64_t>(std::bit_floor(static_cast<uint64_t>(kRowSums / heads)), 1);
      k.column_vectors = columns;
      const auto block = std::bit_floor(static_cast<uint64_t>(kBlockBytes / kFloat / longest));
      k.key_block = std::max(static_cast<int64_t>(block), k.keys);
      if (rows(k) && extent_at(p_.columns->extent, problem_) % t_.lanes == 0 && accepts(k).ok()) return k;
    }
    return std::nullopt;
  }
  // Whether scores are made key by key: queries and sums fit into the registers.
  bool rows(const Setting& k) const {
    const int64_t heads = heads_of(k), vectors = most_depth() / t_.lanes;
    return k.key_block != 0 && k.depth_vectors == 1 && vectors > 1 && is_const_int(p_.depth->extent) &&
           most_depth() % t_.lanes == 0 && heads * (vectors + k.keys) + kScratchRegisters + 1 <= t_.vector_registers;
  }
  // Keys that all heads of a group take before the next ones; 0: all keys.
  int64_t block_of(const Setting& k) const { return page_ != 0 ? page_ : k.key_block; }
  // Whether keys of a head follow one another in memory.
  bool rows_together() const {
    const Buffer& keys = *problem_.kernel.find_buffer(read_where_it_is(load_of_keys(p_))->name);
    return keys.strides.empty() || equal(keys.strides.end()[-2], keys.dims.back());
  }
  int64_t heads_of(const Setting& k) const { return k.heads == 0 ? heads_ : k.heads; }
  int64_t whole_pages(int64_t keys) const { return page_ == 0 ? keys : (keys + page_ - 1) / page_ * page_; }
  // Where some threads would have much less to do than others.
  int64_t standard_part() const {
    const int64_t part = whole_pages(kKeysOfPart);
    if (problem_.threads == 1 || !may_split_keys() || keys() < 2 * part) return 0;
    bool lengths = false;
    for_each_node(p_.scores->extent, [&](const ExprNode& n) { lengths = lengths || n.op == Op::k_load; });
    return lengths || groups() < static_cast<double>(kMostUneven * problem_.threads) ? part : 0;
  }
  bool may_split_keys() const { return sequences_apart(p_) && (page_ == 0 || p_.powers->body.size() <= 2); }
  int64_t keys() const { return extent_at(problem_.kernel.find_buffer(p_.powered())->dims.back(), problem_); }
  // Keys, or values, of a head.
  int64_t bytes_of_head(const Expr& load, const Expr& columns) const {
    const ir::DType type = problem_.kernel.find_buffer(read_where_it_is(load)->name)->type;
    return keys() * extent_at(columns, problem_) * ir::dtype_bytes(type);
  }
  // Whether a head follows whose keys and values lie together.
  bool may_fetch_next() const { return page_ == 0 && key_heads() > 1; }
  // Whether the second cache has room for those of two heads.
  bool near_twice() const {
    const int64_t head =
        bytes_of_head(load_of_keys(p_), p_.depth->extent) + bytes_of_head(load_of_values(p_), p_.columns->extent);
    return 2 * head <= t_.l2_bytes;
  }
  // Keys of few bytes each, which are prefetched to the second cache where prefetches go there: of the next head, too.
  // On Zen 4 four heads of queries to one of keys take .79 of the time of prefetches 4 KB ahead to the first cache with
  // 16 bits, .95 to 1.0 with 8. Floats gain nothing there, and lose where each head has its own (1.13).
  bool narrow() const { return ir::dtype_bytes(read_where_it_is(load_of_keys(p_))->type) <= 2; }
  template <class... A>
  void fetch(Script& s, fmt::format_string<A...> format, A&&... args) const {
    const std::string what = fmt::format(format, std::forward<A>(args)...);
    narrow() ? s.prefetch("{}", what) : s.move("prefetch {}", what);
  }
  bool in_near_pages() const { return page_ != 0 && !problem_.cold && !narrow() && t_.prefetches_alone; }
  double groups() const {
    double out = 1.0 / static_cast<double>(heads_);
    for (const Stmt* b : p_.heads) out *= static_cast<double>(extent_at(b->extent, problem_));
    return out * static_cast<double>(extent_at(p_.row->extent, problem_));
  }
  // Heads that have keys of their own.
  int64_t key_heads() const {
    const bool known = !p_.heads.empty() && is_const_int(p_.heads.back()->extent);
    return known ? p_.heads.back()->extent->ival / heads_ : 1;
  }
  // Whether a page may be one call for several of them.
  bool may_join_heads() const { return page_ != 0 && key_heads() > 1; }
  // The more, the fewer calls; as long as their scores are near, and threads have as much to do.
  int64_t standard_heads(const Setting& k) const {
    if (!may_join_heads() || k.heads != 0) return 1;
    const int64_t part = k.key_part == 0 ? keys() : std::min(k.key_part, keys());
    const double parts = std::ceil(static_cast<double>(keys()) / static_cast<double>(std::max<int64_t>(part, 1)));
    const double tasks = sequences_apart(p_) ? groups() * parts : static_cast<double>(key_heads());
    const double fewest = static_cast<double>(problem_.threads > 1 ? kFewestTasks * problem_.threads : 0);
    const auto fits = [&](int64_t heads) {
      const int64_t scores = heads * heads_ * part * static_cast<int64_t>(sizeof(float));
      return scores <= t_.l2_bytes / 2 && tasks >= fewest * static_cast<double>(heads);
    };
    std::vector<int64_t> most = parts_of_heads();
    std::erase_if(most, [&](int64_t heads) { return !fits(heads == 0 ? key_heads() : heads); });
    if (most.empty() || most[0] == 0) return most.empty() ? 1 : 0;
    return most.back();
  }
  std::vector<int64_t> parts_of_heads() const {
    std::vector<int64_t> out = {0, 1};
    for (const int64_t part : {2, 4, 8, 16}) {
      if (part < key_heads() && key_heads() % part == 0) out.push_back(part);
    }
    return out;
  }
  int64_t most_depth() const { return extent_at(p_.depth->extent, problem_); }
  // What a load reads once it reads no copy.
  Expr read_where_it_is(const Expr& load) const {
    const AttentionParts::Copy* copy = copy_of(p_, load);
    return copy == nullptr ? load : unwidened_load(copy->one().value);
  }
  // Around the heads that share keys, outermost first.
  std::vector<std::string> scopes_outside(const SharedKeys& shared) const {
    std::vector<std::string> out;
    for (const Stmt* h : p_.heads) out.push_back(h->iter);
    if (!out.empty()) out.pop_back();
    const bool there = shared.around == "root" || (!out.empty() && out.back() == shared.around);
    if (!there) out.push_back(shared.around);
    return out;
  }
  std::string write_steps(Script& s, const Setting& k, const std::string& g, const std::string& joined) const;
  void write_sums(Script& s, const Setting& k, const std::string& rows, const std::string& joined,
                  const std::string& at, bool tensor) const;
  void write_prefetches(Script& s, const Setting& k, const std::string& steps, bool tensor) const;
  void fetch_next(Script& s, const Setting& k, const std::string& steps, const std::string& around, bool tensor) const;
  void write_scores(Script& s, const Setting& k, const Scores& of) const;

  const Problem& problem_;
  const Target& t_;
  const AttentionParts p_;
  const int64_t heads_, page_;
};

const std::vector<KnobRow<GroupsSketch>>& GroupsSketch::table() {
  using Values = std::vector<int64_t>;
  using S = const GroupsSketch&;
  static const std::vector<KnobRow<GroupsSketch>> kTable = {
      {"heads", "hr", "heads of a group side by side; 0: all", &Setting::heads, 0, 16, true,
       [](S s) { return values_if(s.heads_ > 2, {0, (s.heads_ + 1) / 2, (s.heads_ + 3) / 4}); }},
      {"keys", "jr", "keys side by side", &Setting::keys, 1, 16, false, [](S) { return Values{1, 2, 4, 8}; }},
      {"depth_vectors", "dv", "vectors of the depth that are summed side by side", &Setting::depth_vectors, 1, 16,
       false, [](S) { return Values{1, 2}; }},
      {"column_vectors", "nv", "vectors of columns whose sums are in registers", &Setting::column_vectors, 1, 16, false,
       [](S) { return Values{1, 2, 4, 8}; }},
      {"score_vectors", "sv", "vectors of scores side by side", &Setting::score_vectors, 1, 16, false,
       [](S) { return Values{1, 4}; }},
      {"prefetch", "pf",
       "bytes that keys and values are prefetched ahead; 0: not; -1: 8192, and those of the next head",
       &Setting::prefetch, kNextHead, kAnySize, true,
       [](S s) {
         Values v = {0, 2048, 4096, 8192};
         if (s.may_fetch_next()) v.push_back(kNextHead);
         return v;
       }},
      {"parallel", "parallel", "1: heads of keys are shared out", &Setting::parallel, 0, 1, true,
       [](S s) { return Values{s.problem_.threads > 1 ? 1 : 0}; }},
      {"key_part", "kp", "keys of a part, which threads share out and whose results are merged in order; 0: all",
       &Setting::key_part, 0, kAnySize, true,
       [](S s) {
         Values v = {0};
         for (const int64_t part : {256, 512, 1024, 2048}) {
           if (s.problem_.threads > 1) v.push_back(s.whole_pages(part));
         }
         return v;
       }},
      {"key_block", "kb",
       "keys that all heads and columns take before the next ones, one key after another where registers suffice; 0: "
       "all",
       &Setting::key_block, 0, kAnySize, true,
       [](S s) { return s.in_order() && s.t_.prefetches_alone ? Values{0, 8, 16, 32} : Values{}; }},
      {"key_heads", "kh", "heads of keys of which a page is one call; 0: all", &Setting::key_heads, 0, kAnySize, true,
       [](S s) { return s.may_join_heads() ? s.parts_of_heads() : Values{}; }}};
  return kTable;
}

double GroupsSketch::estimate(const Setting& k) const {
  const auto near = standard();
  double steps = 1;
  for (const KnobRow<GroupsSketch>& row : table()) steps += near && k.*row.field != *near.*row.field;
  return steps;
}

Status GroupsSketch::write(Script& s, const Setting& k) const {
  const std::string i = p_.row->iter, j = p_.scores->iter;
  // Keys and values are read where they are, and the scales of keys; those of values, by which vectors are multiplied,
  // are copied.
  const bool copied = !p_.copies.empty(), split = k.key_part > 0;
  const bool bytes = copied && s.kernel().find_buffer(load_of_keys(p_)->name)->type !=
                                   unwidened_load(copy_of(p_, load_of_keys(p_))->one().value)->type;
  for (const AttentionParts::Copy& c : p_.copies) {
    const bool scales_values = p_.powers->body.size() > 2 && uses(p_.powers->body[2].value, c.one().target);
    if (!scales_values) s.move("inline_temporary {}", c.one().target);
  }
  vectorize_clear(s, p_, t_.lanes);
  if (split) split_keys(s, p_, k.key_part);
  SharedKeys shared = share_keys(s, p_, copied);
  std::string g = shared.heads;
  std::string joined;  // the heads of keys of a leaf, or the parts of a group, around a page or block
  if (k.key_heads != 1) joined = std::exchange(shared.around, p_.heads.size() > 1 ? p_.heads.end()[-2]->iter : "root");
  if (k.key_heads > 1) {
    shared.around = joined + "p";
    s.move("tile_scope {} {} tail=exact as {},{}j", joined, k.key_heads, shared.around, joined);
    joined += "j";
  }
  if (!split) shared.around = copy_rows(s, p_, shared, k.key_heads);
  std::vector<std::string> outer = scopes_outside(shared);
  if (k.heads > 0) {
    s.move("tile_scope {} {} tail={} as {}p,{}h", g, k.heads, heads_ % k.heads == 0 ? "exact" : "mask", g, g);
    if (k.key_block != 0) {
      joined = g + "p";
    } else {
      outer.push_back(g + "p");
    }
    g += "h";
  }
  for (const std::string& scope : {g, joined}) {
    if (scope.empty()) continue;
    s.move("swap_scopes {} {}", scope, i);
    if (split) s.move("swap_scopes {} {}", scope, kKeyPart);
  }
  // What is in here is together all that a group of heads needs.
  const std::string at = split ? kKeyPart : i;
  // Scores, softmax, sums: three scopes over the heads.
  s.move("split_scope {} after=2 as {}_max", j, j);
  s.move("swap_ops {} 0", g);
  s.move("split_scope {} after=0 as {}_soft", g, g);
  s.move("split_scope {}_soft after={} as {}_out", g, split ? 5 : 4, g);
  if (!joined.empty()) {
    s.move("split_scope {} after=0 as {}_soft", joined, joined);
    s.move("split_scope {}_soft after=0 as {}_out", joined, joined);
  }
  if (!split) s.move("move_to_stack r {}", at);
  s.move("move_to_stack {} {}", p_.powered(), at);
  softmax_to_registers(s, p_, g + "_soft");
  write_sums(s, k, g + "_out", joined, at, !bytes);
  if (split) {
    merge_parts(s, p_, t_.lanes, k.column_vectors, k.parallel != 0);
    outer.insert(outer.end(), {i, kKeyPart});
  }
  if (outer.empty()) outer.push_back(i);
  // Before scores are divided into steps, after which it is not seen that an iteration has all that it reads.
  if (k.parallel != 0) share_out(s, p_, outer);
  vectorize_softmax(s, p_, j + "_max", k.score_vectors, t_.lanes);
  if (!split) vectorize_copies(s, p_, t_.lanes, k.key_heads);
  const std::string steps = write_steps(s, k, g, joined);
  if (k.prefetch == kNextHead) fetch_next(s, k, steps, shared.around, !bytes);
  if (k.prefetch != 0 && (page_ == 0 || k.key_heads != 1)) write_prefetches(s, k, steps, !bytes);
  return {};
}

// Scores of whole steps of keys, then of single ones; the scope of keys, of a page where there are pages.
std::string GroupsSketch::write_steps(Script& s, const Setting& k, const std::string& g,
                                      const std::string& joined) const {
  std::string j = p_.scores->iter;
  s.move("swap_scopes {} {}", g, j);
  if (block_of(k) != 0) {
    s.move("tile_scope {} {} tail=mask as {}p,{}q", j, block_of(k), j, j);
    if (!joined.empty()) s.move("swap_scopes {} {}p", joined, j);
    j += "q";
  }
  const bool steps = k.keys > 1;
  s.move("tile_scope {} {} tail={} as {}o,{}i{}", j, k.keys, steps ? "peel" : "exact", j, j,
         steps ? "," + j + "r" : "");
  if (s.ok() && find_scope(s.kernel(), j + "r") != nullptr) {
    s.move("split_buffer {} {}r as {}_r", p_.products(), j, p_.products());
    s.move("tile_scope {}r 1 tail=exact as {}ro,{}ri", j, j, j);
    // In vectors, whichever way whole steps go: of one key that may be left it is not proven that there is room for it.
    scores_by_vectors(s, p_, {g + "_t", j + "ri", j + "ro", "_t", p_.products() + "_r"}, most_depth(), k.depth_vectors,
                      t_.lanes);
    s.move("move_to_register {}_r {}ro", p_.products(), j);
  }
  write_scores(s, k, {g, j + "i", j + "o", "", p_.products()});
  s.move("move_to_register {} {}o", p_.products(), j);
  return j;
}

void GroupsSketch::write_scores(Script& s, const Setting& k, const Scores& of) const {
  if (rows(k)) return scores_by_rows(s, p_, of, t_.lanes);
  scores_by_vectors(s, p_, of, most_depth(), k.depth_vectors, t_.lanes);
}

void GroupsSketch::write_sums(Script& s, const Setting& k, const std::string& rows, const std::string& joined,
                              const std::string& at, bool tensor) const {
  const int64_t block = k.column_vectors * t_.lanes;
  const char* tail = tail_of(p_.columns->extent, block, problem_.kernel);
  const Product sums = {"", rows, p_.columns->iter, p_.values->iter, p_.sums(), tail, block, false, tensor};
  if (block_of(k) == 0) {
    tile_product(s, sums, t_.lanes);
  } else {
    sum_pages(s, sums, joined.empty() ? joined : joined + "_out", block_of(k), t_.lanes);
    s.move("move_to_stack {} {}", p_.sums(), at);
  }
}

// What is a page ahead may lie anywhere; in a page, keys of the next head follow those of this one. Sums of a page's
// values are tiles in loops, which prefetch nothing.
void GroupsSketch::write_prefetches(Script& s, const Setting& k, const std::string& steps, bool tensor) const {
  const Expr keys = read_where_it_is(load_of_keys(p_)), values = read_where_it_is(load_of_values(p_));
  const int64_t ahead = k.prefetch == kNextHead ? 2 * kAhead : k.prefetch;
  const auto lines = [&](const Expr& extent, const Expr& of, int64_t rows) {
    const int64_t bytes =
        extent_at(extent, problem_) * rows * ir::dtype_bytes(problem_.kernel.find_buffer(of->name)->type);
    return std::clamp<int64_t>(bytes / 64, 1, 64);
  };
  fetch(s, "{} {}o ahead={} lines={}", keys->name, steps, ahead, lines(p_.depth->extent, keys, k.keys));
  if (page_ == 0 && (k.key_block == 0 || !tensor))
    fetch(s, "{} {}{} ahead={} lines={}", values->name, p_.values->iter, k.key_block == 0 ? "" : "q", ahead,
          lines(p_.columns->extent, values, tensor ? 4 : 1));
}

// Keys while scores are made, and values while they are summed: as much in each step as it reads, for what is in the
// caches is read as fast as the arithmetic takes it. The first head has what is prefetched of its own.
void GroupsSketch::fetch_next(Script& s, const Setting& k, const std::string& steps, const std::string& around,
                              bool tensor) const {
  constexpr int64_t kLine = 64, kMostLines = 128, kStepsOfLines = 4;
  const auto lines = [&](const Expr& load, const Expr& columns, int64_t turns) {
    const int64_t parts = k.heads == 0 ? 1 : (heads_ + k.heads - 1) / k.heads;
    const int64_t all = (bytes_of_head(load, columns) + kLine - 1) / kLine;
    return std::clamp<int64_t>((all + turns * parts - 1) / (turns * parts), 1, kMostLines);
  };
  const Expr &of_keys = load_of_keys(p_), &of_values = load_of_values(p_);
  const int64_t block = k.column_vectors * t_.lanes,
                panels = (extent_at(p_.columns->extent, problem_) + block - 1) / block;
  fetch(s, "{} {}o next={} lines={}", read_where_it_is(of_keys)->name, steps, around,
        lines(of_keys, p_.depth->extent, std::max<int64_t>(keys() / k.keys, 1)));
  fetch(s, "{} {} next={} lines={}", read_where_it_is(of_values)->name, p_.values->iter, around,
        lines(of_values, p_.columns->extent, std::max<int64_t>(keys() * panels / (tensor ? kStepsOfLines : 1), 1)));
}

Structure GroupsSketch::structure(const Setting& k, const ProblemFacts& facts) const {
  Structure s = facts.naive;
  s.tile_rows = static_cast<double>(heads_of(k));
  s.tile_vectors = static_cast<double>(k.column_vectors);
  s.unroll = static_cast<double>(k.keys);
  s.registers = static_cast<double>(heads_of(k) * k.column_vectors + k.column_vectors + kScratchRegisters);
  s.block_columns = static_cast<double>(k.column_vectors * t_.lanes);
  double groups = 1.0 / static_cast<double>(heads_of(k));
  for (const Stmt* b : p_.heads) groups *= static_cast<double>(extent_at(b->extent, problem_));
  const double rows = static_cast<double>(extent_at(p_.row->extent, problem_));
  s.calls = rows * groups * 3;
  if (k.key_part > 0) groups *= std::ceil(static_cast<double>(keys()) / static_cast<double>(k.key_part));
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
