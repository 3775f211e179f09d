// See group_form.h.
#include "search/gpu/weights/group_form.h"

#include <algorithm>

#include "ir/analysis/analysis.h"
#include "ir/core/names.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kClear = 256;

bool reads(const Expr& e) {
  bool out = false;
  for_each_node(e, [&](const ExprNode& n) { out |= n.op == Op::k_load; });
  return out;
}

}  // namespace

Result<GroupForm> group_form(const Kernel& k) {
  const auto no = [&](const char* why) { return unsupported("{} has no products of groups: {}", k.name, why); };
  if (k.body.size() != 2) return no("expected a nest that clears and one of products");
  std::vector<const Stmt*> nests[2];
  for (size_t i = 0; i < 2; ++i) {
    for (const Stmt* s = &k.body[i]; s->kind == Stmt::Kind::scope; s = &s->body[0]) {
      nests[i].push_back(s);
      if (s->body.size() != 1) break;
    }
  }
  if (nests[0].size() != 2 || nests[1].size() != 3) return no("its nests have other scopes");
  GroupForm out{nests[0][0], nests[0][1], nests[1][0], nests[1][1], nests[1][2], nullptr, "", "", "", false};
  if (!reads(out.m->extent)) return no("the number of rows is none that is read");
  const std::vector<Stmt>& body = out.n->body;
  if (body.size() < 3 || body[0].kind != Stmt::Kind::assign || body[1].kind != Stmt::Kind::scope ||
      body[1].body.size() != 1 || body[1].body[0].op != AssignOp::add || body[1].body[0].value->op != Op::k_mul)
    return no("it has no sum of products");
  out.k = &body[1];
  out.sum = body[0].target;
  if (k.find_buffer(out.sum)->place != Place::heap) return no("the sums are no temporary");
  for (const Expr& factor : out.k->body[0].value->args) {
    const Expr& e = factor->op == Op::k_cast ? factor->args[0] : factor;
    if (e->op != Op::k_load || !is_input(k.find_buffer(e->name)->place)) return no("a factor is no input");
    if (uses(e, out.m->iter)) {
      out.rows = e->name;
    } else {
      out.weights = e->name;
      out.terms_last = uses(e->args.back(), out.k->iter);
    }
  }
  if (out.rows.empty() || out.weights.empty()) return no("expected rows and weights");
  return out;
}

ProductShape group_shape(const GroupForm& form, const SymbolValues& sizes) {
  const auto extent = [&](const Stmt* s) { return std::max<int64_t>(evaluate(s->extent, sizes).value_or(1), 1); };
  const int64_t groups = extent(form.t);
  return {groups, (extent(form.zm) + groups - 1) / groups, extent(form.n), extent(form.k)};
}

void clear_rows(MoveList& list, const GroupForm& form) {
  list.move("tile_scope {0} {1} tail=mask as {0}b,{0}t", form.zn->iter, kClear);
  list.move("parallelize_grid {}", form.zm->iter);
  list.move("parallelize_grid {}b", form.zn->iter);
  list.move("parallelize_block {}t", form.zn->iter);
}

}  // namespace lathe::search
