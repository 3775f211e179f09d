// See tensor_attention.h.
#include "search/gpu/attention/tensor_attention.h"

#include <algorithm>

#include "ir/analysis/analysis.h"
#include "ir/base/gpu_target.h"
#include "ir/core/names.h"
#include "search/gpu/attention/attention_writer.h"
#include "search/gpu/attention/put_together.h"
#include "search/gpu/swizzles.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kHalves = 8;  // elements of 2 bytes in an access of 16
constexpr int64_t kSquare = 16, kColumns = 8, kLaneRows = 8, kLaneColumns = 2;
constexpr int64_t kMostCopies = 4, kMostOfHeads = 8, kMostLoads = 16;  // of a thread, at a time
constexpr int64_t kGroupRows = 64;                                     // of four warps that multiply together

// That of keys or of values, which multiplies what the statement updates.
Expr load_of_scale(const Stmt& s) {
  Expr out;
  for_each_node(s.value, [&](const ExprNode& e) {
    const bool scale = e.op == Op::k_load && (e.name == "ks" || e.name == "vs" || e.name == "kst" || e.name == "vst");
    if (scale) out = load(e.name, e.args, e.type);
  });
  return out;
}

class Writer : private AttentionWriter {
 public:
  Writer(const Kernel& kernel, const AttentionParts& p, const AttentionTile& tile)
      : AttentionWriter(kernel, p, "tensor_attention.1"), t_(tile), mask_(load_of_mask(kernel, p)) {}

  Result<Scheduled> run() {
    list_.knob("rows", t_.rows);
    list_.knob("keys", t_.keys);
    list_.knob("stages", t_.stages);
    if (t_.split) list_.knob("split", 1);
    if (t_.heads) list_.knob("heads", 1);
    if (t_.part > 0) list_.knob("part", t_.part);
    if (t_.groups) list_.knob("groups", 1);
    if (bytes()) narrow();
    if (!t_.split) list_.move("round_to_{} {} {}", dtype_name(type()), p_.powered(), j2());
    if (ragged()) sequences();
    tiles();
    blocks();
    stage();
    sinks();
    parts();
    places();
    pad();
    if (mask_ && mask_has_rows()) lanes("mask_f_0", {"mask_f_1"}, "exact", true);
    if (mask_ && !mask_has_rows()) line("mask_f_0");
    for (const char* scales : {"ks_f_0", "vs_f_0"}) {
      if (bytes()) line(scales);
    }
    lanes("ir", {b_ + "_zn"}, "exact");
    lanes("irb", {j()}, "exact");
    lanes("irs", {"jm", b_ + "_rn", j1()}, "exact");
    // As many threads as rows of the tile have sums.
    if (t_.heads) list_.move("bound_scope {} size={} as ire,iro", results(), t_.rows);
    lanes("ire", {n() + "_e"}, "mask");
    if (t_.heads) list_.move("unroll_scope iro");
    if (t_.part > 0) list_.move("parallelize_grid kpg");
    scores();
    sums();
    if (t_.groups) {
      lanes("q_f_0", {"q_f_1"}, "exact", true);
      boxes();
      return list_.finish();
    }
    if (keeps_queries()) queries();
    copy("q_s", depth(), t_.rows);
    copy("k_s", depth(), t_.keys);
    copy("v_s", columns(), t_.keys);
    // One line of a mask goes ahead with keys and values.
    const int after = mask_ && !mask_has_rows() ? 2 : 1;
    if (t_.stages > 1) list_.move("pipeline {} after={} stages={}", b_, after, t_.stages);
    if (t_.part > 0) {
      grid_.emplace_back("ir");
      put_together(list_, kernel_, p_, grid_, "ir", t_.part);
    }
    return list_.finish();
  }

 private:
  DType type() const { return kernel_.find_buffer("q")->type; }
  // Keys and values of i8, which their copies make numbers of the type of queries.
  bool bytes() const { return are_bytes(kernel_); }
  std::string copied(const Expr& load) const { return load->name + (bytes() ? "_h" : ""); }
  void narrow() {
    for (const Expr& load : {load_of_keys(p_), load_of_values(p_)}) {
      const AttentionParts::Copy* c = copy_of(p_, load);
      const std::string& scope = (c->depth != nullptr ? c->depth : c->keys)->iter;
      list_.move("narrow_temporary {} {} {} type={}", load->name, copied(load), scope, dtype_name(type()));
    }
  }
  // Of keys and of values, in shared memory.
  void stage_scales() {
    for (const auto& [statement, name] : {std::pair{&p_.scores->body[2], "ks_f"}, {&p_.powers->body[2], "vs_f"}}) {
      const Expr load = load_of_scale(*statement);
      list_.move("create_temporary {} {} at={} mode=stage", load->name, name, b_);
    }
  }
  std::vector<const char*> parts_of_weights() const {
    return t_.split ? std::vector{"p", "p1", "p2"} : std::vector{"p"};
  }
  // The scope of rows with their results.
  const char* results() const { return t_.heads ? "irx" : "ire"; }
  bool keeps_queries() const { return search::keeps_queries(depth()); }

  // Results of rows that belong to no sequence; sequences are independent while their rows are said plainly.
  void sequences() {
    clear_rows(list_, p_);
    list_.move("parallelize_grid {}", p_.heads.front()->iter);
  }

  // Tiles of queries, or of the heads that share keys: ib; parts of their keys: kpg.
  void tiles() {
    if (t_.part > 0) {
      list_.move("split_softmax {} {} {} {} as kp", j(), j1(), j2(), t_.part);
      list_.move("inline_temporary {}_weight", p_.maximum());
    }
    for (const Stmt* t : p_.heads) grid_.push_back(t->iter);
    if (t_.heads) {
      const int64_t group = heads_of_group(p_);
      std::string of_group = grid_.back();
      grid_.pop_back();
      if (!is_const_int(p_.heads.back()->extent, group)) {
        list_.move("tile_scope {0} {1} tail=exact as {0}k,{0}g", of_group, group);
        grid_.push_back(of_group + "k");
        of_group += "g";
      }
      list_.move("swap_scopes {} {}", of_group, i());
      grid_.push_back(i());
      list_.move("tile_scope {} {} tail=mask as ib,ir", of_group, t_.rows);
    } else {
      list_.move("tile_scope {} {} tail=mask as ib,ir", i(), t_.rows);
    }
    grid_.emplace_back("ib");
    if (starts_longest()) {
      for (size_t t = grid_.size() - 1; t-- > 0;) {
        list_.move("swap_scopes {} ib", grid_[t]);
        std::swap(grid_[t], grid_[t + 1]);
      }
      at_ = grid_.back();
    }
    if (t_.part == 0) return;
    list_.move("split_scope ir after=0 as ir_m");
    for (size_t t = grid_.size(); t-- > 0;)  // copies of a sequence stand first in it
      list_.move("split_scope {0} after={1} as {0}_m", grid_[t], t == 0 ? p_.copies.size() : 0);
    list_.move("bound_scope kp as kpg,kpo");
    for (const char* inner : {"kpg", "kpo"}) list_.move("swap_scopes ir {}", inner);
    at_ = "kpo";
  }

  // Causally later tiles see more keys. Those of all heads come before the tiles before them, so that the last blocks
  // of a launch are short.
  bool starts_longest() const {
    const bool causal = uses(p_.scores->extent, p_.row->iter) && from_first(p_);
    return causal && !t_.heads && p_.copies.empty() && !ragged();
  }

  // Blocks of keys, and what all queries of a tile do step by step.
  void blocks() {
    if (uses(p_.scores->extent, p_.row->iter) && !t_.heads)
      list_.move("mask_softmax {} {} {} over=ir", j(), j1(), j2());
    list_.move("online_softmax {} {} {} {} as {}", j(), j1(), j2(), t_.keys, b_);
    list_.move("split_scope ir after=2 as irb");  // first values | blocks of keys | results
    list_.move("split_scope irb after=0 as {}", results());
    list_.move("swap_scopes irb {}", b_);
  }

  void stage() {
    if (keeps_queries()) list_.move("create_temporary q q_f at={} mode=stage", at_);
    if (!t_.groups) list_.move("create_temporary q q_s at={} mode=stage", at_);
    if (mask_) list_.move("create_temporary {} mask_f at={} mode=stage", mask_->name, b_);
    list_.move("create_temporary {} k_s at={} mode=stage", copied(load_of_keys(p_)), b_);
    list_.move("create_temporary {} v_s at={} mode=stage", copied(load_of_values(p_)), b_);
    if (bytes()) stage_scales();
    for (const AttentionParts::Copy& c : p_.copies) {
      const bool narrowed = bytes() && (&c == copy_of(p_, load_of_keys(p_)) || &c == copy_of(p_, load_of_values(p_)));
      list_.move("inline_temporary {}{}", c.one().target, narrowed ? "_h" : "");
    }
    if (keeps_queries()) list_.move("move_to_register q_f {}", at_);
    std::vector<std::string> of_block = {"k_s", "v_s"};
    if (mask_) of_block.emplace_back("mask_f");
    if (bytes()) of_block.insert(of_block.end(), {"ks_f", "vs_f"});
    if (!ragged()) {  // in a grid they are there already
      if (!t_.groups) list_.move("move_to_stack q_s {}", at_);
      for (const std::string& name : of_block) list_.move("move_to_stack {} {}", name, b_);
    }
    for (const std::string& t : grid_) {
      if (!ragged() || t != p_.heads.front()->iter) list_.move("parallelize_grid {}", t);
    }
    if (!t_.groups) list_.move("move_to_shared q_s {}", at_);
    list_.move("move_to_shared k_s {}", b_);
    list_.move("move_to_shared v_s {}", b_);
    if (bytes()) list_.move("move_to_shared ks_f {}", b_);
    if (bytes()) list_.move("move_to_shared vs_f {}", b_);
    if (mask_) list_.move("move_to_{} mask_f {}", mask_has_rows() ? "register" : "shared", b_);
    if (t_.groups) {
      swizzle_lines(list_, "k_s", 1, depth());
      swizzle_lines(list_, "v_s", 1, columns());
      return;
    }
    // Eight lines lie in different banks. Swizzled lines would be copied faster, but some of these kernels have no
    // registers left for where they lie.
    for (const auto& [name, line] : {std::pair{"q_s", depth()}, {"k_s", depth()}, {"v_s", columns()}}) {
      if (line / kHalves % 2 == 0) list_.move("repeat_padding {} 1 {}", name, kHalves);
    }
  }

  // Those of the heads of a tile, as many as it has rows.
  void sinks() {
    if (!has_sinks()) return;
    list_.move("create_temporary sinks sinks_s at={} mode=stage", at_);
    list_.move("move_to_shared sinks_s {}", at_);
    list_.move("pad_scope sinks_s_0 size={} reads=last", t_.rows);
    list_.move("parallelize_block sinks_s_0");
  }
  bool has_sinks() const { return t_.heads && kernel_.find_buffer("sinks") != nullptr; }

  // Products of queries and keys | softmax | sums of values, of whole blocks of keys.
  void parts() {
    list_.move("split_scope {} after=1 as jm", j());
    list_.move("swap_ops irb 0");
    list_.move("split_scope irb after=0 as irs");
    for (const std::string& name : {p_.products(), p_.powered()}) list_.move("move_to_register {} {}", name, b_);
    for (const char* copy : {"k_s_0", "v_s_0"}) pad_scope(copy, t_.groups ? " reads=on" : " reads=last");
    if (mask_) pad_scope(mask_has_rows() ? "mask_f_1" : "mask_f_0", " reads=last");
    for (const char* scales : {"ks_f_0", "vs_f_0"}) {
      if (bytes()) pad_scope(scales, " reads=last");
    }
    pad_scope(j());
    // Blocks that are whole have nothing to be masked.
    if (!list_.is_constant("jm")) list_.move("mask_softmax jm {} {}", j1(), j2());
    if (t_.split) {
      list_.move("split_to_bf16 {} {} {} as p,p1,p2", p_.powered(), j1(), j2());
    } else {
      list_.move("narrow_temporary {} p {}", p_.powered(), j1());
    }
    for (const char* part : parts_of_weights()) list_.move("move_to_register {} {}", part, b_);
    list_.move("split_scope irs after=5 as irv");
    list_.move("split_scope {} after=0 as jk", j());
    list_.move("split_scope irb after=0 as irk");
  }

  void places() {
    list_.move("move_to_register {}_old {}", p_.maximum(), b_);
    list_.move("move_to_register {}_scale {}", p_.maximum(), b_);
    for (const std::string& name : {p_.maximum(), p_.total() + "_run", p_.sums() + "_run"})
      list_.move("move_to_register {} {}", name, at_);
    list_.move("move_to_register {} {}", p_.total(), results());
    if (t_.part == 0) list_.move("move_to_register {} {}", p_.inverse(), results());
  }

  // Whether rows of a tile have their own; else it is one line for all of them. Its last dimension is keys.
  bool mask_has_rows() const {
    const std::string& rows = t_.heads ? p_.heads.back()->iter : p_.row->iter;
    return std::any_of(mask_->args.begin(), mask_->args.end() - 1, [&](const Expr& e) { return uses(e, rows); });
  }
  // Whether a tile may have all queries: nothing else would bound how many are copied.
  bool one_tile() const { return !ragged() && interval(p_.row->extent, Ranges(kernel_)).hi <= t_.rows; }
  // All tiles are computed alike.
  void pad() {
    // Heads of a group are a known number.
    const std::string size = t_.heads ? fmt::format(" size={}", t_.rows) : "";
    if (t_.heads || (!t_.groups && one_tile())) pad_scope("q_s_0", size + " reads=last");
    if (mask_ && mask_has_rows()) pad_scope("mask_f_0", size + " reads=last");
    if (keeps_queries()) pad_scope("q_f_0", t_.groups ? " reads=last" : size);
    for (const char* rows : {"ir", "irb", "irk", "irs", "irv"}) pad_scope(rows, size);
  }
  // Where sizes are known, tiles may be whole already. how: with a size, there may be more iterations than these.
  void pad_scope(const std::string& scope, const std::string& how = "") {
    if (how.find("size=") != std::string::npos || !list_.is_constant(scope)) list_.move("pad_scope {}{}", scope, how);
  }

  // One element of each key: the threads take them in turn where keys are more than these.
  void line(const std::string& scope) {
    if (t_.keys <= t_.threads()) return list_.move("parallelize_block {}", scope);
    list_.move("tile_scope {0} {1} tail=mask as {0}i,{0}t", scope, t_.threads());
    list_.move("parallelize_block {}t", scope);
    list_.move("unroll_scope {}i", scope);
  }
  // copies: of the last element, perhaps, which no vector of neighbours is.
  // for rows: {..; for columns}  ->  for warps: for rows and lanes: {..; for lanes: for columns}
  void lanes(const std::string& rows, const std::vector<std::string>& inner, const char* tail, bool copies = false) {
    const bool groups = t_.groups && t_.rows > kGroupRows;
    if (groups) list_.move("tile_scope {0} {1} tail={2} as {0}g,{0}h", rows, kGroupRows, tail);
    list_.move("tile_scope {0}{3} {1} tail={2} as {0}w,{0}r", rows, kSquare, tail, groups ? "h" : "");
    list_.move("tile_scope {0}r {1} tail={2} as {0}q,{0}l", rows, kLaneRows, tail);
    for (const std::string& c : inner) {
      list_.move("tile_scope {0} {1} tail=exact as {0}q,{0}s", c, kColumns);
      list_.move("tile_scope {0}s {1} tail=exact as {0}l,{0}v", c, kLaneColumns);
      list_.move("swap_scopes {0}q {0}l", c);
    }
    if (rows == "ire") list_.move("move_to_register {} {}_eq", p_.sums(), n());
    if (groups) list_.move("parallelize_block {}g", rows);
    list_.move("parallelize_block {}w", rows);
    list_.move("unroll_scope {}q", rows);
    list_.move("parallelize_block {}l", rows);
    for (const std::string& c : inner) {
      list_.move("parallelize_block {}l", c);
      list_.move("unroll_scope {}q", c);
      list_.move("{} {}v", copies ? "unroll_scope" : "vectorize_scope", c);
    }
  }

  // for rows: for columns: for terms  ->  for warps: for 16 terms: for 8 columns: a product
  void product(const std::string& rows, const std::string& columns, const std::string& terms) {
    list_.move("tile_scope {0} {1} tail=exact as {0}w,{0}t", rows, kSquare);
    list_.move("tile_scope {0} {1} tail=exact as {0}q,{0}t", columns, kColumns);
    list_.move("tile_scope {0} {1} tail=exact as {0}k,{0}t", terms, kSquare);
    const std::string rt = rows + "t", cq = columns + "q", ct = columns + "t", tk = terms + "k", tt = terms + "t";
    // rt cq ct tk tt  ->  tk cq tt rt ct
    for (const std::string& outer : {ct, cq, rt}) list_.move("swap_scopes {} {}", outer, tk);
    list_.move("swap_scopes {} {}", rt, cq);
    for (const std::string& outer : {ct, rt}) list_.move("swap_scopes {} {}", outer, tt);
  }
  // The same by four warps, of all columns at once, the second factor out of shared memory.
  //   for rows: for columns: for terms  ->  for groups: for 16 terms: a product
  void group_product(const std::string& rows, const std::string& columns, const std::string& terms) {
    list_.move("tile_scope {0} {1} tail=exact as {0}w,{0}t", rows, kGroupRows);
    list_.move("tile_scope {0} {1} tail=exact as {0}k,{0}t", terms, kSquare);
    const std::string rw = rows + "w", rt = rows + "t", tk = terms + "k", tt = terms + "t";
    list_.sort({rw, rt, columns, tk, tt}, {rw, tk, tt, rt, columns});
    list_.move("parallelize_block {}", rw);
    list_.move("unroll_scope {}", tk);
  }
  // Keys and values of blocks, which the hardware copies.
  void boxes() {
    list_.move("pipeline {} after=1 stages={}", b_, t_.stages);
    for (const char* step : {"_p", "_n"}) {
      for (const char* copy : {"k_s_0", "v_s_0"}) list_.move("tensorize {}{} tma_2d", copy, step);
    }
  }
  void fragments(const std::string& from, const std::string& name, const std::string& at) {
    list_.move("create_temporary {} {} at={} mode=stage", from, name, at);
    list_.move("move_to_register {} {}", name, at);
  }
  void mark_product(const std::string& rows, const std::string& columns, const std::string& terms) {
    list_.move("parallelize_block {}w", rows);
    list_.move("unroll_scope {}q", columns);
    list_.move("unroll_scope {}k", terms);
  }
  void multiply(const std::string& terms) {
    list_.move("tensorize {} {}_{}", terms, t_.groups ? "wgmma_held" : "mma", dtype_name(type()));
  }

  void scores() {
    if (t_.groups) {
      group_product("irk", "jk", d());
      return multiply(d() + "t");
    }
    product("irk", "jk", d());
    fragments("k_s", "k_f", d() + "k");
    if (!keeps_queries()) fragments("q_s", "q_f", d() + "k");
    mark_product("irk", "jk", d());
    multiply(d() + "t");
    list_.move("tile_scope k_f_0 {} tail=exact as k_f_0q,k_f_0i", kSquare);
    list_.move("unroll_scope k_f_0q");
    list_.move("tensorize k_f_0i ldmatrix");
    if (!keeps_queries()) list_.move("tensorize q_f_0 ldmatrix");
  }
  void sums() {
    if (t_.groups) {
      group_product("irv", n(), j2());
      for (const std::string& p : weighted(n())) multiply(p);
      return;
    }
    product("irv", n(), j2());
    fragments("v_s", "v_f", j2() + "k");
    mark_product("irv", n(), j2());
    for (const std::string& p : weighted(n() + "t")) multiply(p);
    list_.move("tile_scope v_f_1 {} tail=exact as v_f_1q,v_f_1i", kSquare);
    list_.move("swap_scopes v_f_0 v_f_1q");
    list_.move("unroll_scope v_f_1q");
    list_.move("tensorize v_f_0 ldmatrix_trans");
  }
  // The scopes of products with the parts of a weight, one after another. columns: the innermost scope.
  std::vector<std::string> weighted(std::string columns) {
    std::string terms = j2() + "t", rows = "irvt";
    std::vector<std::string> products = {terms};
    for (size_t part = 1; part < parts_of_weights().size(); ++part) {
      for (std::string* scope : {&columns, &rows, &terms}) {
        list_.move("split_scope {0} after=0 as {0}{1}", *scope, part);
        *scope += std::to_string(part);
      }
      products.push_back(terms);
    }
    return products;
  }
  void queries() {
    list_.move("tile_scope q_f_0 {} tail=exact as q_f_0w,q_f_0i", kSquare);
    list_.move("tile_scope q_f_1 {} tail=exact as q_f_1q,q_f_1j", kSquare);
    list_.move("swap_scopes q_f_0i q_f_1q");
    list_.move("parallelize_block q_f_0w");
    list_.move("unroll_scope q_f_1q");
    list_.move("tensorize q_f_0i ldmatrix");
  }

  // Threads share out the copy, in vectors of neighbours. A quarter of a warp stores 128 bytes at a time: of one line
  // where it has as many, else of eight lines, which lie in different banks.
  void copy(const std::string& name, int64_t line, int64_t lines) {
    const int64_t vectors = line / kHalves;
    const bool whole = vectors % kLaneRows == 0;
    const int64_t across = whole ? vectors : vectors & -vectors,
                  down = std::clamp<int64_t>(t_.threads() / across, whole ? 1 : kLaneRows, lines);
    list_.move("tile_scope {0}_1 {1} tail=mask as {0}_1c,{0}_1v", name, kHalves);
    list_.move("tile_scope {0}_0 {1} tail=mask as {0}_0r,{0}_0t", name, down);
    // What is made of bytes is stored 16 bytes at once as well.
    const bool made = bytes() && name != "q_s";
    if (made) list_.move("keep_result {0} {0}_r at={0}_1c", name);
    if (made) list_.move("move_to_register {0}_r {0}_1c", name);
    if (made) list_.move("vectorize_scope {0}_r_0", name);
    if (whole) {
      list_.move("parallelize_block {}_0t", name);
      list_.move("parallelize_block {}_1c", name);
    } else {
      list_.move("tile_scope {0}_1c {1} tail=mask as {0}_1q,{0}_1i", name, across);
      list_.move("tile_scope {0}_0t {1} tail=mask as {0}_0o,{0}_0i", name, kLaneRows);
      for (const char* inner : {"_1q", "_0i"}) list_.move("swap_scopes {0}{1} {0}_1i", name, inner);
      for (const char* shared : {"_0o", "_1i", "_0i"}) list_.move("parallelize_block {}{}", name, shared);
      list_.move("unroll_scope {}_1q", name);
    }
    // Few at a time: each has addresses in registers. A block of one warp has more of them on their way, most of all
    // where it waits for them.
    const bool waits = t_.stages == 1 && !t_.split;
    const int64_t most = !t_.heads ? kMostCopies : waits ? kMostLoads : kMostOfHeads;
    const bool many = lines / down > most;
    if (many) list_.move("tile_scope {0}_0r {1} tail=mask as {0}_0m,{0}_0u", name, most);
    list_.move("unroll_scope {}_0{}", name, many ? "u" : "r");
    list_.move("vectorize_scope {}_1v", name);
  }

  const AttentionTile& t_;
  const Expr mask_;                // null: there is none
  std::vector<std::string> grid_;  // the scopes of rows' blocks, the outermost first
  std::string at_ = "ib";          // the scope of what a block does
  const std::string b_ = "kb";
};

}  // namespace

Result<Scheduled> tensor_attention(const GeneralKernel& general, const AttentionTile& tile) {
  LATHE_ASSIGN(const AttentionParts p, tensor_parts(general));
  LATHE_RETURN_IF_ERROR(check_tile(tile, general.kernel, p));
  return Writer(general.kernel, p, tile).run();
}

}  // namespace lathe::search
