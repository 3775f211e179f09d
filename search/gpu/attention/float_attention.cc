// See float_attention.h.
#include "search/gpu/attention/float_attention.h"

#include <algorithm>

#include "ir/analysis/analysis.h"
#include "ir/core/names.h"
#include "search/gpu/attention/attention_writer.h"
#include "search/gpu/attention/few_keys.h"
#include "search/gpu/attention/tensor_attention.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kVector = 4, kWarp = 32;  // elements of an access of 16 bytes; threads
constexpr int64_t kMostLine = 128;          // depth and columns: sums of a thread are in registers
constexpr int64_t kMostBytes = 227 * 1024;  // of shared memory, of some GPU

class Writer : private AttentionWriter {
 public:
  Writer(const Kernel& kernel, const AttentionParts& p, const FloatTile& tile)
      : AttentionWriter(kernel, p, "float_attention.1"), t_(tile) {}

  Result<Scheduled> run() {
    list_.knob("rows", t_.rows);
    list_.knob("keys", t_.keys);
    list_.knob("threads", t_.threads);
    tiles();
    stage();
    places();
    rows("ir", "exact");
    columns("kb_zn");
    rows("irb", "exact");
    keys(j());
    rows("irs", "exact");
    keys("jm");
    columns("kb_rn");
    keys(j1());
    rows("ire", "mask");
    columns(n() + "_e");
    list_.move("move_to_register {} {}_eq", p_.sums(), n());
    scores();
    sums();
    copy("q_s", depth(), t_.rows);
    copy("k_s", depth(), t_.keys);
    copy("v_s", columns(), t_.keys);
    return list_.finish();
  }

 private:
  using AttentionWriter::columns;

  // Tiles of queries, those that see most keys first; blocks of keys, and what all queries of a tile do step by step.
  void tiles() {
    const bool causal = uses(p_.scores->extent, p_.row->iter);
    for (const Stmt* t : p_.heads) grid_.push_back(t->iter);
    list_.move("tile_scope {} {} tail=mask as ib,ir", p_.row->iter, t_.rows);
    grid_.emplace_back("ib");
    if (causal && from_first(p_)) {
      for (size_t t = grid_.size() - 1; t-- > 0;) {
        list_.move("swap_scopes {} ib", grid_[t]);
        std::swap(grid_[t], grid_[t + 1]);
      }
    }
    if (causal) list_.move("mask_softmax {} {} {} over=ir", j(), j1(), j2());
    list_.move("online_softmax {} {} {} {} as kb", j(), j1(), j2(), t_.keys);
    list_.move("split_scope ir after=2 as irb");  // first values | blocks of keys | results
    list_.move("split_scope irb after=0 as ire");
    list_.move("swap_scopes irb kb");
  }

  // Lines of keys are read by lanes below each other: with 4 elements of padding they lie in different banks.
  void stage() {
    const std::string& at = grid_.back();
    list_.move("create_temporary q q_s at={} mode=stage", at);
    list_.move("create_temporary k k_s at=kb mode=stage");
    list_.move("create_temporary v v_s at=kb mode=stage");
    list_.move("move_to_stack q_s {}", at);
    for (const char* name : {"k_s", "v_s"}) list_.move("move_to_stack {} kb", name);
    for (const std::string& t : grid_) list_.move("parallelize_grid {}", t);
    list_.move("move_to_shared q_s {}", at);
    for (const char* name : {"k_s", "v_s"}) list_.move("move_to_shared {} kb", name);
    if (depth() / kVector % 2 == 0) list_.move("repeat_padding k_s 1 {}", kVector);
  }

  // Products of queries and keys | softmax | sums of values, of whole tiles; blocks that are whole have nothing masked.
  void places() {
    const std::string& at = grid_.back();
    list_.move("split_scope {} after=1 as jm", j());
    list_.move("swap_ops irb 0");
    list_.move("split_scope irb after=0 as irs");
    list_.move("move_to_register {} kb", p_.products());
    list_.move("move_to_shared {} kb", p_.powered());
    for (const char* copied : {"k_s_0", "v_s_0"}) pad(copied, " reads=last");
    pad(j(), "");
    if (!list_.is_constant("jm")) list_.move("mask_softmax jm {} {}", j1(), j2());
    list_.move("split_scope irs after=5 as irv");
    list_.move("split_scope {} after=0 as jk", j());
    list_.move("split_scope irb after=0 as irk");
    for (const char* name : {"_old", "_scale"}) list_.move("move_to_register {}{} kb", p_.maximum(), name);
    for (const std::string& name : {p_.maximum(), p_.total() + "_run", p_.sums() + "_run"})
      list_.move("move_to_register {} {}", name, at);
    for (const std::string& name : {p_.total(), p_.inverse()}) list_.move("move_to_register {} ire", name);
    pad("q_s_0", " reads=last");
    for (const char* of : {"ir", "irb", "irk", "irs", "irv"}) pad(of, "");
  }
  // Where sizes are known, tiles may be whole already.
  void pad(const std::string& scope, const char* how) {
    if (!list_.is_constant(scope)) list_.move("pad_scope {}{}", scope, how);
  }

  // Threads have rows below each other in turn: ROWSq of them, in ROWSw.
  void rows(const std::string& of, const char* tail) {
    list_.move("tile_scope {0} {1} tail={2} as {0}q,{0}w", of, t_.rows / FloatTile::thread_rows, tail);
    if (std::string_view(tail) == "exact") list_.move("swap_scopes {0}q {0}w", of);
    list_.move("parallelize_block {}w", of);
    list_.move("unroll_scope {}q", of);
  }
  // Lanes have keys beside each other in turn.
  void keys(const std::string& of) {
    share_keys(of);
    list_.move("parallelize_block {}l", of);
    list_.move("unroll_scope {}q", of);
  }
  void share_keys(const std::string& of) {
    list_.move("tile_scope {0} {1} tail=exact as {0}q,{0}l", of, t_.lanes());
    list_.move("swap_scopes {0}q {0}l", of);
  }
  // And columns in vectors.
  void columns(const std::string& of) {
    share_columns(of);
    list_.move("parallelize_block {}l", of);
    list_.move("unroll_scope {}q", of);
    list_.move("vectorize_scope {}v", of);
  }
  void share_columns(const std::string& of) {
    list_.move("tile_scope {0} {1} tail=exact as {0}q,{0}s", of, kVector * t_.lanes());
    list_.move("tile_scope {0}s {1} tail=exact as {0}l,{0}v", of, kVector);
    list_.move("swap_scopes {0}q {0}l", of);
  }

  // for rows: for keys: for d  ->  for threads of rows, of keys: for vectors of d: for rows: for keys: for lanes of d
  void scores() {
    list_.move("tile_scope irk {} tail=exact as irkq,irkw", t_.rows / FloatTile::thread_rows);
    list_.move("swap_scopes irkq irkw");
    share_keys("jk");
    list_.move("swap_scopes irkq jkl");
    // Two vectors of a line in each iteration of the loop over it, where it has as many.
    const bool two = depth() % (2 * kVector) == 0;
    list_.move("tile_scope {0} {1} tail=exact as {0}k,{0}e", d(), two ? 2 * kVector : kVector);
    list_.move("tile_scope {0}e {1} tail=exact as {0}u,{0}t", d(), kVector);
    for (const char* outer : {"k", "u"}) {
      for (const char* inner : {"jkq", "irkq"}) list_.move("swap_scopes {} {}{}", inner, d(), outer);
    }
    list_.move("unroll_scope {}u", d());
    for (const char* threads : {"irkw", "jkl"}) list_.move("parallelize_block {}", threads);
    for (const char* each : {"irkq", "jkq"}) list_.move("unroll_scope {}", each);
    list_.move("vectorize_scope {}t", d());
  }

  // for rows: for columns: for keys  ->  for threads of rows, of columns: for 4 keys: for rows: for vectors of columns
  void sums() {
    const std::string nq = n() + "q", nl = n() + "l", nv = n() + "v", k = j2() + "k", t = j2() + "t";
    list_.move("tile_scope irv {} tail=exact as irvq,irvw", t_.rows / FloatTile::thread_rows);
    list_.move("swap_scopes irvq irvw");
    share_columns(n());
    list_.move("swap_scopes irvq {}", nl);
    list_.move("tile_scope {} {} tail=exact as {},{}", j2(), kVector, k, t);
    for (const std::string& keys : {k, t}) {
      for (const std::string& inner : {nv, nq, std::string("irvq")}) list_.move("swap_scopes {} {}", inner, keys);
    }
    list_.move("parallelize_block irvw");
    list_.move("parallelize_block {}", nl);
    for (const std::string& each : {t, std::string("irvq"), nq}) list_.move("unroll_scope {}", each);
    list_.move("vectorize_scope {}", nv);
  }

  // Threads share out the copy in vectors, all of which are on their way together.
  void copy(const std::string& name, int64_t line, int64_t lines) {
    const int64_t vectors = line / kVector, down = std::max<int64_t>(1, std::min(lines, t_.threads / vectors));
    list_.move("tile_scope {0}_1 {1} tail=exact as {0}_1c,{0}_1v", name, kVector);
    list_.move("tile_scope {0}_0 {1} tail=exact as {0}_0r,{0}_0t", name, down);
    list_.move("parallelize_block {}_0t", name);
    list_.move("unroll_scope {}_0r", name);
    list_.move("parallelize_block {}_1c", name);
    list_.move("vectorize_scope {}_1v", name);
  }

  const FloatTile t_;
  std::vector<std::string> grid_;  // the innermost one last
};

}  // namespace

int64_t shared_bytes(const FloatTile& t, int64_t depth, int64_t columns) {
  const int64_t padding = depth / kVector % 2 == 0 ? kVector : 0;
  return 4 * (t.rows * (depth + t.keys) + t.keys * (depth + padding + columns));
}

Result<AttentionParts> float_parts(const GeneralKernel& general) {
  const Kernel& k = general.kernel;
  AttentionParts p = attention_parts(k);
  const auto no = [&](const char* why) { return unsupported("{} is no attention for tiles of f32: {}", k.name, why); };
  if (!p || p.heads.empty() || few_keys(k, p) == 1) return no("expected its loops");
  for (const char* name : {"q", "k", "v"}) {
    const Buffer* b = k.find_buffer(name);
    if (b == nullptr || b->type != DType::f32) return no("expected queries, keys and values of f32");
  }
  if (!p.copies.empty() || !p.clear.empty() || load_of_mask(k, p))
    return no("expected keys and values as they are given, sequences of equal lengths and no mask");
  for (const Stmt* line : {p.depth, p.columns}) {
    if (!is_const_int(line->extent) || line->extent->ival % kVector != 0 || line->extent->ival < kVector ||
        line->extent->ival > kMostLine || kMostLine % line->extent->ival != 0)
      return no("expected a depth and columns of 1, 2, 4, .. vectors, up to 128");
  }
  return p;
}

Status check_tile(const FloatTile& t, const AttentionParts& p) {
  if (t.threads != 128 && t.threads != 256) return invalid("{} threads, expected 128 or 256", t.threads);
  if (t.rows < FloatTile::thread_rows || t.threads * FloatTile::thread_rows % t.rows != 0 || kWarp % t.lanes() != 0)
    return invalid("{} queries of a block, expected such that a part of a warp shares one", t.rows);
  if (t.keys < t.lanes() || t.keys % t.lanes() != 0 || t.keys % kVector != 0)
    return invalid("{} keys of a block, expected a multiple of {} and of {}", t.keys, t.lanes(), kVector);
  if (p.columns->extent->ival % (kVector * t.lanes()) != 0)
    return invalid("{} columns, expected a multiple of {}", p.columns->extent->ival, kVector * t.lanes());
  const int64_t shared = shared_bytes(t, p.depth->extent->ival, p.columns->extent->ival);
  if (shared > kMostBytes) return invalid("{} bytes of shared memory, expected at most {}", shared, kMostBytes);
  return {};
}

Result<Scheduled> float_attention(const GeneralKernel& general, const FloatTile& tile) {
  LATHE_ASSIGN(const AttentionParts p, float_parts(general));
  LATHE_RETURN_IF_ERROR(check_tile(tile, p));
  return Writer(general.kernel, p, tile).run();
}

}  // namespace lathe::search
