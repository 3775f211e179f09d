// See attention_schedule.h.
#include "search/gpu/attention/attention_schedule.h"

#include <algorithm>
#include <cmath>

#include "ir/analysis/analysis.h"
#include "search/gpu/attention/attention_writer.h"
#include "search/gpu/attention/few_keys.h"
#include "search/gpu/attention/put_together.h"
#include "search/gpu/powers_of_two.h"
#include "search/gpu/vector_width.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kThreads = 128, kWarp = 32, kWarps = kThreads / kWarp;
constexpr int64_t kMostRows = 8, kFewRows = 4;  // of a block: heads that share keys
constexpr int64_t kMostHeld = 48;               // sums of values in the registers of a thread
constexpr int64_t kProducts = 16;               // of a thread, at a time
constexpr int64_t kMostTurns = 8;               // keys of a thread, at a time: a vector of each is in registers
constexpr int64_t kMostStaged = 64;             // elements of those vectors
constexpr int64_t kMostVector = 16;             // elements of one

// How the threads of a block share out pairs of a key and a line, along the depth or along the columns: `lanes` take
// vectors of one line, `keys` of them are at work at once.
struct Lines {
  Lines(int64_t of, DType type, int64_t most_keys, int64_t most_vector)
      : length(of), vector(std::min({vector_width(type, of), floor_pow2(of), most_vector})) {
    const int64_t vectors = std::max<int64_t>((length + vector - 1) / vector, 1);
    lanes = floor_pow2(std::min(vectors, kWarp));
    keys = std::min(kThreads / lanes, floor_pow2(most_keys));
    turns = (vectors + lanes - 1) / lanes;
  }
  bool shared_out() const { return length > 1; }  // else a thread has its keys alone

  int64_t length, vector, lanes = 1, keys = 1, turns = 1;
};

// Heads of a group that a block takes. With more than a few a thread has fewer keys at a time; where these divide the
// group, what two blocks read comes from memory once.
int64_t rows_of_block(int64_t group, const Lines& columns) {
  int64_t rows = group % kFewRows == 0 ? kFewRows : std::min(group, kMostRows);
  while (rows > 1 && (group % rows != 0 || rows * columns.turns * columns.vector > kMostHeld)) --rows;
  return rows;
}

// How a block of threads has its keys, of which there are at most so many, and takes at most so many at a time.
struct Shares {
  Shares(const Kernel& kernel, const AttentionParts& p, int64_t part, int64_t most_block = INT64_MAX)
      : most_keys(std::clamp<int64_t>(most_keys_seen(kernel, p), 1, most_block)),
        depth(of_line(kernel, p, *p.depth, "k", part)),
        columns(of_line(kernel, p, *p.columns, "v", part)) {
    if (part > 0) most_keys = std::min(most_keys, part);
    // An element of one byte is in a register of its own.
    const int64_t most_turns =
        std::min(kMostTurns, std::max<int64_t>(kMostStaged / std::max(depth.vector, columns.vector), 1));
    depth.keys = std::min(depth.keys, most_turns * columns.keys);
    columns.keys = std::min(columns.keys, most_turns * depth.keys);
    rows = rows_of_block(heads_of_group(p), columns);
    const int64_t turns = std::min(most_turns, std::max<int64_t>(floor_pow2(kProducts / rows), 1));
    const int64_t most = std::max(depth.keys, columns.keys);
    block = std::clamp(turns * std::min(depth.keys, columns.keys), most, std::max(floor_pow2(most_keys), most));
  }

  int64_t most_keys;
  Lines depth, columns;
  int64_t rows = 1, block = 1;  // heads that share keys; keys at a time

 private:
  Lines of_line(const Kernel& kernel, const AttentionParts& p, const Stmt& line, const char* buffer,
                int64_t part) const {
    const DType type = kernel.find_buffer(buffer)->type;
    // More sums of bytes than that would leave registers for fewer heads.
    const int64_t vector =
        dtype_bytes(type) == 1 && heads_of_group(p) > kMostHeld / kMostVector ? kMostVector / 2 : kMostVector;
    return {line.extent->ival, type, part > 0 ? std::min(most_keys, part) : most_keys, vector};
  }
};

class Writer : private AttentionWriter {
 public:
  Writer(const Kernel& kernel, const AttentionParts& p, int64_t part)
      : AttentionWriter(kernel, p, "attention.1"), part_(part) {}

  Result<Scheduled> run(int64_t most_block = INT64_MAX) {
    const Shares shares(kernel_, p_, part_, most_block);
    const Lines &depth = shares.depth, &columns = shares.columns;
    most_keys_ = shares.most_keys;
    rows_ = shares.rows;
    block_ = shares.block;
    list_.knob("rows", rows_);
    list_.knob("keys", block_);
    list_.knob("part", part_);
    for (const AttentionParts::Copy& c : p_.copies) list_.move("inline_temporary {}", c.one().target);
    divide();
    list_.move("online_softmax {} {} {} {} parts={} as {}", j(), j1(), j2(), block_, columns.keys, b_);
    rows();
    grid(depth);
    places(columns);
    if (part_ > 0) list_.move("parallelize_grid kpg");
    if (depth.shared_out()) query();
    products(depth);
    softmax();
    sums(columns);
    results();
    if (part_ > 0) {
      std::vector<std::string> scopes = around();
      std::reverse(scopes.begin(), scopes.end());
      if (ragged()) scopes = {"row", p_.heads.back()->iter};
      put_together(list_, kernel_, p_, scopes, ragged() ? "once" : scopes.back(), part_);
    }
    return list_.finish();
  }

 private:
  bool several() const { return rows_ > 1; }
  // The scope in it that has nothing but `inner` comes to stand inside of that.
  void into(const std::string& scope, const std::string& inner) {
    if (several()) list_.move("swap_scopes {} {}", scope, inner);
  }

  // Lines begin at whole vectors.
  void whole_vectors(const std::string& buffer, int dim, const Lines& lines) {
    if (lines.length % lines.vector != 0) list_.move("increment_padding {} {} {}", buffer, dim, lines.vector);
  }

  std::string head() const { return p_.heads.back()->iter + (several() ? "k" : ""); }
  // Whether a group has more heads than a block takes, and there are several groups: head() counts those, which keys
  // are chosen by, and part_of_group() blocks of heads in them.
  bool divides_group() const {
    const int64_t group = heads_of_group(p_);
    return several() && rows_ < group && !is_const_int(p_.heads.back()->extent, group);
  }
  std::string part_of_group() const { return p_.heads.back()->iter + "p"; }
  std::string sequence() const { return p_.heads.front()->iter; }

  // A group of heads and a query, or a part of its keys: what a block of threads has.
  void divide() {
    if (part_ > 0) {
      list_.move("split_softmax {} {} {} {} as kp", j(), j1(), j2(), part_);
      if (!ragged()) list_.move("inline_temporary {}_weight", p_.maximum());
    }
    if (ragged()) sequences();
    row_ = ragged() ? "once" : i();
    if (several()) {
      const std::string &heads = p_.heads.back()->iter, of_group = heads + "g";
      const int64_t taken = divides_group() ? heads_of_group(p_) : rows_;
      list_.move("tile_scope {} {} tail=exact as {},{}", heads, taken, head(), divides_group() ? of_group : g_);
      if (divides_group()) list_.move("tile_scope {} {} tail=exact as {},{}", of_group, rows_, part_of_group(), g_);
      list_.move("swap_scopes {} {}", g_, row_);
    }
    if (ragged()) list_.move("swap_scopes {} {}", sequence(), head());
    if (ragged() && divides_group()) list_.move("swap_scopes {} {}", sequence(), part_of_group());
    if (part_ == 0) return;
    if (!ragged()) {
      for (const std::string& scope : around()) list_.move("split_scope {0} after=0 as {0}_m", scope);
      list_.move("bound_scope kp as kpg,kpo");
    }
    for (const char* inner : {"kpg", "kpo"}) into(g_, inner);
    for (const std::string& outer : {row_, sequence()}) {
      if (ragged()) list_.move("swap_scopes {} kpg", outer);
    }
    row_ = "kpo";
  }
  // By rows of all sequences, of which each looks for its own.
  void sequences() {
    if (part_ > 0) {
      for (const std::string& scope : {i(), p_.heads.back()->iter, sequence()})
        list_.move("split_scope {0} after=0 as {0}_m", scope);
      list_.move("bound_scope kp as kpg,kpo");
      list_.move("level_scope {}_m {}_m as row_m,once_m", i(), sequence());
      list_.move("inline_temporary {}_weight", p_.maximum());
      list_.move("swap_scopes {}_m {}_m", sequence(), p_.heads.back()->iter);
    }
    list_.move("level_scope {} {} as row,once", i(), sequence());
  }
  // The scopes around what a query does, the innermost first.
  std::vector<std::string> around() const {
    std::vector<std::string> out;
    if (several()) out.emplace_back(g_);
    out.push_back(i());
    if (divides_group()) out.push_back(part_of_group());
    for (size_t t = p_.heads.size(); t-- > 0;) out.push_back(t + 1 == p_.heads.size() ? head() : p_.heads[t]->iter);
    return out;
  }

  void grid(const Lines& depth) {
    if (ragged()) {
      clear_rows(list_, p_);
      list_.move("parallelize_grid row");
      list_.move("parallelize_grid {}", head());
      if (divides_group()) list_.move("parallelize_grid {}", part_of_group());
    } else {
      std::vector<std::string> scopes = around();
      for (size_t t = scopes.size(); t-- > (several() ? 1u : 0u);) list_.move("parallelize_grid {}", scopes[t]);
    }
    if (!depth.shared_out()) return;
    list_.move("create_temporary q q_s at={} mode=stage", row_);
    list_.move("move_to_shared q_s {}", row_);
    whole_vectors("q_s", several() ? 1 : 0, depth);
  }
  void query() {
    const std::string line = several() ? "q_s_1" : "q_s_0";
    list_.move("deal_scope {0} {1} as {0}t,{0}i", line, threads_along(*p_.depth));
    if (several()) list_.move("swap_scopes q_s_0 {}t", line);
    list_.move("parallelize_block {}t", line);
  }

  // What each of the rows does becomes what all of them do, step by step.
  void rows() {
    list_.move("split_scope {} after=2 as {}m", j(), j());
    if (!several()) return;
    list_.move("split_scope {} after=1 as gz", g_);  // first values | sums | blocks of keys | results
    list_.move("split_scope gz after=0 as gb");
    list_.move("split_scope gb after=0 as ge");
    list_.move("swap_scopes gb {}", b_);
    // m_old | products | maximum, a_run, scale | sums scaled | powers | sums
    list_.move("split_scope gb after=0 as gq");
    list_.move("split_scope gq after=0 as gm");
    list_.move("swap_ops gm 3");
    list_.move("split_scope gm after=3 as gr");
    list_.move("split_scope gr after=0 as gv");
    list_.move("swap_ops {} 0", b_);
    list_.move("join_scopes gb gm");
    // a, and r or what a part has | copy of sums | results
    list_.move("split_scope ge after={} as gc", part_ > 0 ? 3 : 2);
    list_.move("split_scope gc after=0 as gf");
    for (const char* rows : {g_, "gb", "ge"}) list_.move("tile_scope {0} {1} tail=mask as {0}i,{0}t", rows, kWarps);
    // What a warp has of its row, between blocks of keys in shared memory.
    for (const std::string& name : {p_.maximum(), p_.total() + "_run"}) {
      list_.move("create_temporary {0} {0}_w at=gbt mode=accumulate", name);
      list_.move("move_to_register {}_w gbt", name);
    }
    list_.move("move_to_register {}_old gbt", p_.maximum());
    list_.move("move_to_register {} get", p_.total());
  }

  void products(const Lines& lines) {
    // Neighbouring keys to groups of lanes.
    into("gq", j());
    const std::string jt = j() + "t", ju = j() + "u", jd = j() + "d", js = j() + "s";
    const bool paged = share_keys(j(), lines, jt, ju);
    const auto share_out = [&] {
      if (paged) list_.move("parallelize_block {}p", j());
      list_.move("parallelize_block {}", jt);
    };
    if (!lines.shared_out()) return share_out();
    if (several()) {
      list_.move("split_scope gq after=0 as gd");
      list_.move("split_scope gd after=0 as gs");
    }
    list_.move("split_scope {} after=0 as {}", ju, jd);
    list_.move("split_scope {} after=0 as {}", jd, js);
    into("gd", d());
    list_.move("swap_scopes {} {}", jd, d());
    share_line(d(), lines, {});
    for (const std::string& inner : {jd, std::string("gd")}) {
      if (inner == jd || several()) list_.move("swap_scopes {}v {}", d(), inner);
    }
    // All keys are on their way before the first one is used, and serve all rows.
    stage("k", jd, d() + "i", lines);
    list_.move("vectorize_scope {}v", d());
    list_.move("unroll_scope {}", jd);
    share_out();
    list_.move("parallelize_block {}t", d());
  }

  // Neighbouring keys, in one page, to groups of lanes. Whether KEYSp are pages of a block.
  bool share_keys(const std::string& keys, const Lines& lines, const std::string& groups, const std::string& own) {
    const bool paged = whole_pages(lines) && page_of(p_) < block_;
    if (paged) list_.move("tile_scope {0} {1} tail=mask as {0}p,{0}q", keys, page_of(p_));
    const char* part = paged ? "q" : "";
    list_.move("tile_scope {}{} {} tail=mask as {},{}", keys, part, block_ / lines.keys, groups, own);
    return paged;
  }
  // Whether blocks of keys are whole pages, and these whole shares of threads.
  bool whole_pages(const Lines& lines) const {
    const int64_t page = page_of(p_);
    return page > 0 && block_ % page == 0 && page % (block_ / lines.keys) == 0 && from_first(p_);
  }

  // What a thread needs of its keys, in registers: of all of them at once, unless they may lie in several pages.
  void stage(const std::string& buffer, const std::string& keys, const std::string& all, const Lines& lines) {
    const bool apart = page_of(p_) > 0 && !whole_pages(lines);
    const bool one = apart || block_ == lines.keys;
    list_.move("create_temporary {0} {0}_r at={1} mode=stage", buffer, apart ? keys : all);
    list_.move("move_to_register {}_r {}", buffer, apart ? keys : all);
    list_.move("vectorize_scope {}_r_{}", buffer, one ? 0 : 1);
  }

  // A power of two: all threads of a block may reduce something together.
  static int64_t threads_along(const Stmt& line) { return std::min(kThreads, floor_pow2(line.extent->ival)); }

  // A line in vectors, which lanes take in turn: LINEt, LINEi, LINEv; LINEt comes to stand outside of the scopes.
  void share_line(const std::string& line, const Lines& lines, const std::vector<std::string>& scopes) {
    list_.move("tile_scope {0} {1} tail=mask as {0}c,{0}v", line, lines.vector);
    list_.move("deal_scope {0}c {1} as {0}t,{0}i", line, lines.lanes);
    for (const std::string& s : scopes) list_.move("swap_scopes {} {}t", s, line);
  }

  // Warps take rows; with one row all threads have its maximum and sum.
  void softmax() {
    const std::string jm = j() + "m";
    const int64_t lanes = std::min(several() ? kWarp : kThreads, floor_pow2(most_keys_));
    for (const std::string& keys : {jm, j1()}) {
      list_.move("deal_scope {0} {1} as {0}t,{0}i", keys, lanes);
      list_.move("unroll_scope {}i", keys);
    }
    for (const char* rows : {g_, "gb", "ge"}) {
      if (several()) list_.move("parallelize_block {}t", rows);
    }
    for (const std::string& keys : {jm, j1()}) list_.move("parallelize_block {}t", keys);
  }

  // Sums of values: first values, scaling, adding and handing over.
  void sums(const Lines& lines) {
    const auto each = [&](const std::string& rows, const std::string& part) {
      const std::string column = part + "n";
      if (several()) list_.move("swap_scopes {} {}", rows, part);
      share_line(column, lines, several() ? std::vector{rows} : std::vector<std::string>{});
      list_.move("vectorize_scope {}v", column);
      if (whole_pages(lines) && page_of(p_) < block_) {
        list_.move("tile_scope {0} {1} tail=exact as {0}p,{0}q", part, page_of(p_) / (block_ / lines.keys));
        list_.move("parallelize_block {}p", part);
        list_.move("parallelize_block {}q", part);
      } else {
        list_.move("parallelize_block {}", part);
      }
      list_.move("parallelize_block {}t", column);
    };
    each("gz", b_ + "_z");
    each("gr", b_ + "_r");
    each("gc", b_ + "_c");
    list_.move("swap_scopes {} {}", n(), j2());
    into("gv", j2());
    const std::string jt = j2() + "t", ju = j2() + "u";
    const bool paged = share_keys(j2(), lines, jt, ju);
    share_line(n(), lines, several() ? std::vector<std::string>{"gv", ju} : std::vector{ju});
    if (lines.turns == 1 && lines.shared_out()) stage("v", ju, n() + "t", lines);
    list_.move("vectorize_scope {}v", n());
    list_.move("unroll_scope {}", ju);
    if (paged) list_.move("parallelize_block {}p", j2());
    list_.move("parallelize_block {}", jt);
    list_.move("parallelize_block {}t", n());
  }

  void results() {
    list_.move("deal_scope {0}_e {1} as {0}t_e,{0}i_e", n(), threads_along(*p_.columns));
    list_.move("parallelize_block {}t_e", n());
  }

  void places(const Lines& columns) {
    const std::string& o = p_.sums();
    list_.move("move_to_register {} {}", p_.products(), b_);
    list_.move("move_to_shared {} {}", p_.powered(), b_);
    list_.move("move_to_register {} {}_e", o, n());
    list_.move("move_to_register {}_run {}", o, row_);
    list_.move("move_to_shared {}_parts {}", o, row_);
    whole_vectors(o + "_parts", several() ? 2 : 1, columns);
    const char* of_all = several() ? "shared" : "register";
    for (const std::string& name : {p_.maximum(), p_.total() + "_run", p_.maximum() + "_scale"})
      list_.move("move_to_{} {} {}", of_all, name, row_);
    if (part_ == 0) list_.move("move_to_{} {} {}", of_all, p_.inverse(), row_);
    if (several()) return;
    for (const std::string& name : {p_.maximum() + "_old", p_.total()})
      list_.move("move_to_register {} {}", name, row_);
  }

  const int64_t part_;
  int64_t rows_ = 1, most_keys_ = 1, block_ = 1;
  std::string row_;  // the scope of all that a block of threads does
  const std::string b_ = "kb";
  static constexpr const char* g_ = "g";
};

Result<AttentionParts> parts_of(const GeneralKernel& general) {
  const Kernel& k = general.kernel;
  AttentionParts p = attention_parts(k);
  if (!p || p.heads.empty()) return unsupported("{} is no attention", k.name);
  if (!is_const_int(p.columns->extent)) return unsupported("values of {} vary in their number of columns", k.name);
  for (const char* name : {"k", "v"}) {
    const Buffer* b = k.find_buffer(name);
    if (b == nullptr || (!is_float(b->type) && b->type != DType::i8))
      return unsupported("keys or values of {} are neither floats nor i8", k.name);
  }
  return p;
}

}  // namespace

bool is_attention(const GeneralKernel& general) { return static_cast<bool>(attention_parts(general.kernel)); }

Result<HeadsStep> heads_step(const GeneralKernel& general, int64_t part) {
  LATHE_ASSIGN(const AttentionParts p, parts_of(general));
  const Shares s(general.kernel, p, part);
  const auto wide = [](int64_t n) { return static_cast<double>(n); };
  const auto made = [](const Buffer* b) { return b->type == DType::f32 ? 0 : dtype_bytes(b->type) == 2 ? 1 : 1.5; };
  constexpr double kLoad = 6, kStored = 3, kSoftmax = 100;  // instructions: of a vector, a product, a row of a warp
  // Registers: of all, to make numbers, to find rows.
  constexpr int64_t kHeld = 128, kHeldOfBytes = 48, kHeldOfRows = 24;
  const bool bytes = dtype_bytes(general.kernel.find_buffer("k")->type) == 1;
  const int64_t held = kHeld + (bytes ? kHeldOfBytes : 0) + (p.clear.empty() ? 0 : kHeldOfRows);
  HeadsStep out = {s.rows, s.block, s.depth.turns + s.columns.turns, 0, held, 0};
  // Lanes add up what they have of a product.
  const double own = wide(s.depth.turns * s.depth.vector), column = wide(s.columns.turns * s.columns.vector),
               together = 2 * std::log2(wide(s.depth.lanes)) + kStored;
  const double keys = wide(s.block / s.depth.keys), values = wide(s.block / s.columns.keys), rows = wide(s.rows);
  out.instructions = rows * keys * (own + together) + rows * values * (column + 1) + rows * column +
                     kSoftmax * wide((s.rows + kWarps - 1) / kWarps) +
                     keys * (own * made(general.kernel.find_buffer("k")) + kLoad * wide(s.depth.turns)) +
                     values * (column * made(general.kernel.find_buffer("v")) + kLoad * wide(s.columns.turns));
  out.shared = 4 * s.rows * (s.columns.keys * s.columns.length + s.block + s.depth.length);
  return out;
}

Result<Scheduled> attention_schedule(const GeneralKernel& general, int64_t part) {
  LATHE_ASSIGN(const AttentionParts p, parts_of(general));
  const int64_t most = most_keys_seen(general.kernel, p);
  if (part > 0 && (part >= most || sees_fewer(general.kernel, p, part)))
    return unsupported("parts of {} keys, of which a query sees at most {}", part, most);
  if (const int64_t few = few_keys(general.kernel, p); few > 0) return few_keys_schedule(general.kernel, p, few);
  // What threads have of a block is known where the block bounds the number of its keys.
  int64_t block = Shares(general.kernel, p, part).block;
  const bool fewer = sees_fewer(general.kernel, p, block);
  while (block > 1 && sees_fewer(general.kernel, p, block)) block /= 2;
  return Writer(general.kernel, p, part).run(fewer ? block : INT64_MAX);
}

}  // namespace lathe::search
