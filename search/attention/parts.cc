// See parts.h.
#include "search/attention/parts.h"

#include <algorithm>
#include <utility>

#include "ir/analysis/analysis.h"
#include "search/moves/transform_util.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

static bool is_product(const Stmt& s) { return s.kind == Stmt::Kind::assign && s.value->op == Op::k_mul; }

AttentionParts attention_parts(const Kernel& kernel) {
  const auto all = [&](const char* role) { return scopes_with_role(kernel, role); };
  const std::vector<const Stmt*> rows = all("row"), keys = all("key"), depth = all("k"), columns = all("n");
  if (rows.size() != 1 || keys.size() != 3 || depth.size() != 1 || columns.size() != 1) return {};
  if (rows[0]->body.size() != 6 || keys[0]->body.size() != 4 || columns[0]->body.size() != 3) return {};
  const auto sums_products = [](const Stmt& s) { return !s.body.empty() && is_product(s.body[0]); };
  if (!sums_products(*depth[0]) || !sums_products(*keys[2])) return {};
  AttentionParts out = {rows[0], keys[0], depth[0], keys[1], columns[0], keys[2], all("batch"), all("clear"), {}};
  AttentionParts::Copy copy;
  for_each_stmt(kernel.body, [&](const Stmt& b) {
    if (b.role == "copy_heads") copy.heads = &b;
    if (b.role == "copy") copy.keys = &b;
    if (b.role == "copy_depth") copy.depth = &b;
    const bool ends = b.kind == Stmt::Kind::assign && copy.keys != nullptr;
    if (ends) out.copies.push_back(std::exchange(copy, {}));
  });
  return out;
}

void vectorize_clear(Script& s, const AttentionParts& p, int64_t lanes) {
  if (p.clear.empty()) return;
  const Stmt& columns = *p.clear.back();
  vectorize(s, columns.iter, lanes, tail_of(columns.extent, lanes, s.kernel()), false);
}

static Ranges ranges_of_row(const Kernel& kernel, const AttentionParts& p, const SymbolValues& most) {
  Ranges ranges(kernel);
  for (const Symbol& s : kernel.symbols) {
    for (const auto& [name, value] : most) {
      if (name == s.name) ranges.set(s.name, {std::min(s.min, value), std::min(s.max, value)}, s.multiple_of);
    }
  }
  for (const Stmt* t : p.heads) ranges.enter(*t);
  ranges.enter(*p.row);
  return ranges;
}

int64_t most_keys_seen(const Kernel& kernel, const AttentionParts& p, const SymbolValues& most) {
  return interval(p.scores->extent, ranges_of_row(kernel, p, most)).hi;
}

bool sees_fewer(const Kernel& kernel, const AttentionParts& p, int64_t keys) {
  return most_keys_seen(kernel, p) > keys && proves_le(p.scores->extent, Expr(keys), ranges_of_row(kernel, p, {}));
}

bool from_first(const AttentionParts& p) { return p.scores->body[0].index.back()->op == Op::k_iter; }

const AttentionParts::Copy* copy_of(const AttentionParts& p, const Expr& load) {
  const auto found =
      std::find_if(p.copies.begin(), p.copies.end(), [&](const auto& c) { return c.one().target == load->name; });
  return found == p.copies.end() ? nullptr : &*found;
}

// k[pages[j // page], .., j % page, d]
int64_t page_of(const AttentionParts& p) {
  for (const AttentionParts::Copy& c : p.copies) {
    int64_t page = 0;
    for_each_node(c.one().value, [&](const ExprNode& n) {
      const bool row = n.op == Op::k_mod && uses(n.args[0], c.keys->iter) && is_const_int(n.args[1]);
      if (row) page = n.args[1]->ival;
      const bool one = n.op == Op::k_load && n.args.size() == 2 && n.args[1]->op == Op::k_iter &&
                       (n.type == DType::i32 || n.type == DType::i64);
      if (one && page == 0) page = 1;
    });
    return page;
  }
  return 0;
}

std::string copy_rows(Script& s, const AttentionParts& p, const SharedKeys& shared, int64_t key_heads) {
  std::string around = shared.around;
  for (size_t i = p.copies.size(); i-- > 0;) {
    const AttentionParts::Copy& c = p.copies[i];
    const bool there = s.ok() && s.kernel().find_buffer(c.one().target) != nullptr;
    if (c.heads == nullptr || !there || key_heads == 0) continue;
    std::string heads = c.heads->iter;
    if (key_heads > 1) {
      s.move("tile_scope {} {} tail=exact as {}s,{}j", heads, key_heads, heads, heads);
      heads += "s";
    }
    s.move("join_scopes {} {}", heads, around);
    around = heads;
  }
  // Where a window moves along the keys, the copies keep the memory they have.
  for (const AttentionParts::Copy& c : p.copies) {
    if (from_first(p) && s.ok() && s.kernel().find_buffer(c.one().target) != nullptr)
      s.move("move_to_stack {} {}", c.one().target, around);
  }
  return around;
}

void vectorize_copies(Script& s, const AttentionParts& p, int64_t lanes, int64_t key_heads) {
  const int64_t page = page_of(p);
  for (const AttentionParts::Copy& c : p.copies) {
    if (!s.ok() || s.kernel().find_buffer(c.one().target) == nullptr) continue;
    const std::string& keys = c.keys->iter;
    if (page > 1) s.move("tile_scope {} {} tail=mask as {}p,{}q", keys, page, keys, keys);
    if (page > 1 && key_heads != 1 && c.heads != nullptr)
      s.move("swap_scopes {}{} {}p", c.heads->iter, key_heads == 0 ? "" : "j", keys);
    if (c.depth != nullptr) vectorize(s, c.depth->iter, lanes, tail_of(c.depth->extent, lanes, s.kernel()), false);
  }
}

// The factor that the scope indexes.
static const Expr& load_by(const Stmt& product, const Stmt& scope, const std::string& not_of) {
  for (const Expr& factor : product.value->args) {
    const Expr& load = unwidened(factor);
    const auto indexed = [&](const Expr& e) { return uses(e, scope.iter); };
    if (load->op == Op::k_load && load->name != not_of && std::any_of(load->args.begin(), load->args.end(), indexed))
      return load;
  }
  return product.value;
}
const Expr& load_of_keys(const AttentionParts& p) { return load_by(p.depth->body[0], *p.scores, {}); }
const Expr& load_of_values(const AttentionParts& p) { return load_by(p.values->body[0], *p.values, p.powered()); }

int64_t heads_of_group(const AttentionParts& p) {
  if (p.heads.empty()) return 1;
  const Stmt& head = *p.heads.back();
  for (const Expr& e : load_of_keys(p)->args) {
    if (uses(e, head.iter)) return e->op == Op::k_floordiv && is_const_int(e->args[1]) ? e->args[1]->ival : 1;
  }
  return is_const_int(head.extent) ? head.extent->ival : 1;
}

SharedKeys share_keys(Script& s, const AttentionParts& p, bool always) {
  if (p.heads.empty()) return {"root", {}};
  const std::string& head = p.heads.back()->iter;
  const int64_t group = heads_of_group(p);
  if (group == 1 && !always) return {head, {}};
  const bool all = group > 1 && is_const_int(p.heads.back()->extent, group);
  if (all) return {p.heads.size() > 1 ? p.heads[p.heads.size() - 2]->iter : "root", head};
  s.move("tile_scope {} {} tail=exact as {}_k,{}_g", head, group, head, head);
  return {head + "_k", head + "_g"};
}

void vectorize(Script& s, const std::string& scope, int64_t lanes, const char* tail, bool unrolled) {
  s.move("tile_scope {} {} tail={} as {}v,{}l", scope, lanes, tail, scope, scope);
  if (unrolled) s.move("unroll_scope {}v", scope);
  s.move("vectorize_scope {}l", scope);
}

// Whether there may be whole steps of so many iterations, and surely never fewer than none.
static bool has_steps(const Kernel& kernel, const std::string& scope, int64_t step) {
  Kernel copy = kernel;
  const Result<ScopeSite> site = find_site(copy, scope);
  if (!site.ok()) return false;
  const Ranges ranges = ranges_at(copy, site->outer);
  const Expr& extent = site->scope().extent;
  return proves_le(Expr(0), extent, ranges) && !proves_lt(extent, Expr(step), ranges);
}

void softmax_to_registers(Script& s, const AttentionParts& p, const std::string& rows) {
  for (const Stmt& b : p.row->body) {
    const bool inside = b.kind == Stmt::Kind::assign && b.target != "r";
    if (inside) s.move("move_to_register {} {}", b.target, rows);
  }
}

void vectorize_softmax(Script& s, const AttentionParts& p, const std::string& maximum, int64_t vectors, int64_t lanes) {
  const Stmt* powers = find_scope(s.kernel(), p.powers->iter);
  if (!s.ok() || powers == nullptr) return;
  const Expr keys = powers->extent;  // of a part of the keys, perhaps
  const auto whole = [&](int64_t size) { return proves_divisible(keys, size, Ranges(s.kernel())); };
  // Half as many where those are whole steps always.
  if (vectors > 2 && vectors % 2 == 0 && !whole(vectors * lanes) && whole(vectors / 2 * lanes)) vectors /= 2;
  const int64_t step = vectors * lanes;
  const bool steps = vectors > 1 && has_steps(s.kernel(), p.powers->iter, step);
  for (const std::string& pass : {maximum, p.powers->iter}) {
    if (!steps) {
      vectorize(s, pass, lanes, whole(lanes) ? "exact" : "mask", false);
      continue;
    }
    // Whole steps, then what is left in single vectors.
    s.move("tile_scope {} {} tail={} as {}s,{}w{}", pass, step, whole(step) ? "exact" : "peel", pass, pass,
           whole(step) ? "" : fmt::format(",{}x", pass));
    vectorize(s, pass + "w", lanes, "exact", true);
    if (!whole(step)) vectorize(s, pass + "x", lanes, "mask", false);
  }
}

void tile_product(Script& s, const Product& p, int64_t lanes) {
  const std::string& m = p.rows;
  const std::string& n = p.columns;
  s.move("tile_scope {} {} tail={} as {}p,{}q", n, p.panel_columns, p.column_tail, n, n);
  s.move("swap_scopes {} {}p", m, n);
  if (!p.tiles.empty()) s.move("swap_scopes {} {}p", p.tiles, n);
  for (const std::string& scope : {n + "q", m}) {
    s.move("split_scope {} after=0 as {}_s", scope, scope);
    s.move("split_scope {}_s after=0 as {}_f", scope, scope);
  }
  std::vector<std::string> depth = {p.depth};
  if (p.pairs) {
    depth = {p.depth + "e", p.depth + "o"};
    s.move("tile_scope {} 2 tail=exact as {},{}", p.depth, depth[0], depth[1]);
  }
  for (const std::string& steps : depth) {
    s.move("swap_scopes {}q_s {}", n, steps);
    s.move("swap_scopes {}_s {}", m, steps);
  }
  if (p.pairs) s.move("unroll_scope {}", depth[1]);
  for (const char* part : {"", "_s", "_f"}) {
    s.move("unroll_scope {}{}", m, part);
    vectorize(s, fmt::format("{}q{}", n, part), lanes, p.column_tail, true);
  }
  s.move("move_to_register {} {}", p.sums, p.tiles.empty() ? n + "p" : p.tiles);
  if (p.tensor) s.move("tensorize {} {}", depth[0], p.pairs ? "dot2_bf16" : "mma");
  if (p.joined) s.move("unroll_scope {}", p.tiles);
}

void sum_pages(Script& s, const Product& p, const std::string& around, int64_t page, int64_t lanes) {
  const std::string &m = p.rows, &n = p.columns, in_page = p.depth + "q";
  s.move("tile_scope {} {} tail=mask as {}p,{}", p.depth, page, p.depth, in_page);
  s.move("tile_scope {} {} tail={} as {}p,{}q", n, p.panel_columns, p.column_tail, n, n);
  s.move("swap_scopes {} {}p", m, n);
  for (const std::string& scope : {n + "q", m}) {
    s.move("split_scope {} after=0 as {}_s", scope, scope);
    s.move("split_scope {}_s after=0 as {}_f", scope, scope);
    for (const char* depth : {"p", "q"})
      s.move("swap_scopes {} {}{}", scope == m ? m + "_s" : n + "q_s", p.depth, depth);
  }
  // A page of all panels, and of all that is around.
  std::string of_page = p.depth + "p";
  if (!around.empty()) {
    of_page = n + "p_s";
    for (const std::string& scope : {n + "p", around}) {
      s.move("split_scope {} after=0 as {}_s", scope, scope);
      s.move("split_scope {}_s after=0 as {}_f", scope, scope);
      s.move("swap_scopes {}_s {}p", scope, p.depth);
    }
  }
  s.move("create_temporary {} {}_p at={} mode=accumulate", p.sums, p.sums, of_page);
  // What happens once, and the copies of the sums of a page, which have no scope of rows where there is one row.
  const bool one_row = s.ok() && s.kernel().find_buffer(p.sums + "_p")->dims.size() == 1;
  const std::string copied = p.sums + "_p_";
  std::vector<std::string> rows = {m, m + "_s", m + "_f"}, columns = {n + "q", n + "q_s", n + "q_f"};
  for (const char* way : {"", "b"}) {
    if (!one_row) rows.push_back(copied + "0" + way);
    columns.push_back(copied + (one_row ? "0" : "1") + way);
  }
  for (const std::string& scope : rows) s.move("unroll_scope {}", scope);
  for (const std::string& scope : columns) vectorize(s, scope, lanes, p.column_tail, true);
  s.move("move_to_register {}_p {}", p.sums, of_page);
  if (p.tensor) s.move("tensorize {} mma", in_page);
}

int64_t queries_of_sequence(const AttentionParts& p, const Problem& problem) {
  if (sequences_apart(p)) return extent_at(p.row->extent, problem);
  return extent_at(problem.kernel.find_buffer(p.powered())->dims.front(), problem) /
         std::max<int64_t>(extent_at(p.heads.front()->extent, problem), 1);
}

}  // namespace lathe::search
