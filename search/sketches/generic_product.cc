// Products in blocks: a rows x vectors block of sums in registers, the other operand in panels.
//
//   n0 panel { m0 block { sums = start | k { m1 { n1: sums += x * w } } | finish } }
//
// What stands before and after the sum over k in the innermost scope goes along; sums that live elsewhere are staged.
#include <algorithm>

#include "ir/analysis/dependence.h"
#include "search/moves/transform_util.h"
#include "search/sketches/generic_rules.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

namespace {
bool depends(const std::vector<Expr>& index, const std::string& iter) {
  return std::any_of(index.begin(), index.end(), [&](const Expr& e) { return uses(e, iter); });
}

int dim_of(const std::vector<Expr>& index, const std::string& iter) {
  int found = -1;
  for (size_t d = 0; d < index.size(); ++d) {
    if (uses(index[d], iter)) found = static_cast<int>(d);
  }
  return found;
}

// m and n the innermost scopes that only one of the operands depends on; n along the last dimension of the target.
bool fill_site(const Stmt& s, const std::vector<const Stmt*>& path, ProductSite& site) {
  int sums = 0;
  for (const Stmt* scope : path) {
    if (scope->mark != Mark::none) return false;
    if (depends(s.index, scope->iter)) continue;
    ++sums;
    site.k = scope->iter;
  }
  if (sums != 1 || s.index.empty()) return false;
  site.target = s.target;
  for (int side = 0; side < 2; ++side) {
    const Expr &w = unwidened(s.value->args[side]), &x = unwidened(s.value->args[1 - side]);
    std::string m, n;
    for (const Stmt* scope : path) {
      const std::string& i = scope->iter;
      if (i == site.k) continue;
      const bool in_w = depends(w->args, i), in_x = depends(x->args, i);
      if (in_w && !in_x && uses(s.index.back(), i)) n = i;
      if (in_x && !in_w) m = i;
    }
    if (n.empty()) continue;
    site.m = m;
    site.n = n;
    site.factor = w->name;
    site.factor_n = dim_of(w->args, n);
    site.factor_k = dim_of(w->args, site.k);
    return true;
  }
  return false;
}

// Adjacent m, n with the sum over k as a child of n; the scopes around the product may need another order first.
bool bring_in_order(Attempts& a, const ProductSite& p) {
  for (int step = 0; step < 8; ++step) {  // k innermost
    const Stmt* k = find_scope(a.kernel(), p.k);
    if (k->body.size() != 1 || k->body[0].kind != Stmt::Kind::scope) break;
    if (!a.move("swap_scopes {} {}", p.k, k->body[0].iter)) return false;
  }
  for (int step = 0; step < 8; ++step) {  // m above n
    const Stmt* n = find_scope(a.kernel(), p.n);
    if (n->body.size() != 1 || n->body[0].kind != Stmt::Kind::scope || n->body[0].iter == p.k) break;
    if (!a.move("swap_scopes {} {}", p.n, n->body[0].iter)) return false;
  }
  join_producers(a);
  const Stmt *m = find_scope(a.kernel(), p.m), *n = find_scope(a.kernel(), p.n);
  if (!m || !n) return false;
  for (size_t i = 0; i < m->body.size() && m->body.size() > 1; ++i) {  // what does not belong to n goes out of m
    if (m->body[i].iter != p.n) continue;
    if (i + 1 < m->body.size() && !a.move("split_scope {} after={}", p.m, i)) return false;
    if (i > 0) return false;  // the product would get m's second name: left to other plans
    m = find_scope(a.kernel(), p.m);
  }
  m = find_scope(a.kernel(), p.m);
  n = find_scope(a.kernel(), p.n);
  if (m->body.size() != 1 || m->body[0].iter != p.n) return false;
  return std::any_of(n->body.begin(), n->body.end(),
                     [&](const Stmt& s) { return s.kind == Stmt::Kind::scope && s.iter == p.k; });
}

// The scope's body in pieces around scope `k`: the names of the pieces in order, the one with k last in *with_k.
bool split_around(Attempts& a, const std::string& scope, const std::string& child, std::vector<std::string>& pieces,
                  std::string& with_k) {
  with_k = scope;
  const Stmt* s = find_scope(a.kernel(), scope);
  size_t at = 0;
  while (at < s->body.size() && s->body[at].iter != child) ++at;
  const size_t count = s->body.size();
  if (at > 0) {
    if (!a.move("split_scope {} after={}", scope, at - 1)) return false;
    pieces.push_back(scope);
    with_k = a.now(scope)[1];
  }
  pieces.push_back(with_k);
  if (at + 1 < count) {
    if (!a.move("split_scope {} after=0", with_k)) return false;
    pieces.push_back(a.now(with_k)[1]);
  }
  return true;
}

// The panels of a constant are laid out one after the other; an operand whose k is adjacent goes through squares into
// scratch.
void prepare_panels(Attempts& a, const ProductSite& p, const std::string& panel, int64_t width) {
  const Buffer b = *a.kernel().find_buffer(p.factor);
  const int last = static_cast<int>(b.dims.size()) - 1;
  if (b.place == Place::constant && b.dims.size() == 2 && b.strides.empty() && b.layout.empty()) {
    Attempts trial = a;
    const bool n_first = p.factor_n == 0;  // [n/T, n%T, k] or [k, n/T, n%T] to [n/T, k, n%T]
    if (trial.move("tile_buffer {} {} {}", p.factor, p.factor_n, width) &&
        trial.move("swap_dims {} {} {}", p.factor, n_first ? 1 : 0, n_first ? 2 : 1)) {
      a = std::move(trial);
    }
    return;
  }
  const bool k_adjacent =
      b.strides.empty() ? p.factor_k == last : is_const_int(b.strides[static_cast<size_t>(p.factor_k)], 1);
  if (!k_adjacent) return;
  Attempts trial = a;
  const std::string name = Names(a.kernel()).fresh("panel");
  if (!trial.move("create_temporary {} {} at={}", p.factor, name, panel) ||
      !trial.move("move_to_stack {} {}", name, panel))
    return;
  if (p.factor_n < p.factor_k) trial.move("swap_dims {} 0 1", name);
  if (trial.move("tensorize {}_0 transpose", name)) a = std::move(trial);
}

bool vectorize_block(Attempts& a, const std::string& rows, const std::string& columns, int64_t lanes) {
  if (!a.move("unroll_scope {}", rows)) return false;
  if (!a.move("tile_scope {} {} tail={}", columns, lanes, tail_for(a.kernel(), columns, lanes))) return false;
  const std::vector<std::string> parts = a.now(columns);
  return a.move("unroll_scope {}", parts[0]) && a.move("vectorize_scope {}", parts[1]);
}

bool block_product(Attempts& a, const ProductSite& p, const GenericPlan& plan, const Target& target) {
  if (p.m.empty() || p.factor_n < 0 || p.factor_k < 0 || !bring_in_order(a, p)) return false;
  const int64_t width = plan.vectors * target.lanes;
  if (!a.move("tile_scope {} {} tail={}", p.m, plan.rows, tail_for(a.kernel(), p.m, plan.rows))) return false;
  const std::string m0 = a.now(p.m)[0], m1 = a.now(p.m)[1];
  if (!a.move("tile_scope {} {} tail={}", p.n, width, tail_for(a.kernel(), p.n, width))) return false;
  const std::string n0 = a.now(p.n)[0], n1 = a.now(p.n)[1];
  if (!a.move("swap_scopes {} {}", m1, n0) || !a.move("swap_scopes {} {}", m0, n0)) return false;
  std::vector<std::string> columns, rows;
  std::string n_sum, m_sum;
  if (!split_around(a, n1, p.k, columns, n_sum) || !split_around(a, m1, n_sum, rows, m_sum)) return false;

  prepare_panels(a, p, n0, width);
  const bool temporary = a.kernel().find_buffer(p.target)->place == Place::heap;
  if (!temporary || !a.move("move_to_register {} {}", p.target, m0)) {
    const std::string name = Names(a.kernel()).fresh("acc");
    if (!a.move("create_temporary {} {} at={} mode=accumulate", p.target, name, m0)) return false;
    if (!a.move("move_to_register {} {}", name, m0)) return false;
  }
  if (!a.move("swap_scopes {} {}", n_sum, p.k) || !a.move("swap_scopes {} {}", m_sum, p.k)) return false;
  std::vector<std::pair<std::string, std::string>> pairs;  // rows, columns of everything in the block
  for (const Stmt& child : find_scope(a.kernel(), m0)->body) {
    const Stmt& s = child.iter == p.k && child.kind == Stmt::Kind::scope ? child.body[0] : child;
    if (s.kind == Stmt::Kind::scope && s.body.size() == 1 && s.body[0].kind == Stmt::Kind::scope)
      pairs.emplace_back(s.iter, s.body[0].iter);
  }
  for (const auto& [row, column] : pairs) {
    if (!vectorize_block(a, row, column, target.lanes)) return false;
  }
  return a.move("tensorize {} mma", p.k);
}
}  // namespace

std::vector<ProductSite> find_products(const Kernel& kernel) {
  std::vector<ProductSite> out;
  for (const Access& a : collect_accesses(kernel.body)) {
    if (!a.write || !a.stmt || a.stmt->kind != Stmt::Kind::assign || a.stmt->op != AssignOp::add) continue;
    const Stmt& s = *a.stmt;
    const bool product =
        s.value->op == Op::k_mul && std::all_of(s.value->args.begin(), s.value->args.end(),
                                                [](const Expr& factor) { return unwidened(factor)->op == Op::k_load; });
    ProductSite site;
    if (product && fill_site(s, a.scopes, site)) out.push_back(std::move(site));
  }
  return out;
}

void block_products(Attempts& a, const GenericPlan& plan, const Target& target) {
  if (plan.rows == 0) return;
  for (const ProductSite& site : find_products(a.kernel())) {
    Attempts trial = a;
    if (block_product(trial, site, plan, target)) a = std::move(trial);
  }
}

}  // namespace lathe::search
