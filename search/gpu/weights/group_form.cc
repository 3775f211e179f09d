// See group_form.h.
#include "search/gpu/weights/group_form.h"

#include <algorithm>

#include "ir/analysis/analysis.h"
#include "ir/core/names.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kClear = 256;

}  // namespace

Result<GroupForm> group_form(const Kernel& k) {
  const auto no = [&](const char* why) { return unsupported("{} has no products of groups: {}", k.name, why); };
  GroupForm out;
  if (k.body.empty()) return no("it is empty");
  std::vector<const Stmt*> nest;
  for (size_t i = 0; i < k.body.size(); ++i) {
    nest.clear();
    const Stmt* s = &k.body[i];
    for (; s->kind == Stmt::Kind::scope; s = &s->body[0]) {
      nest.push_back(s);
      if (s->body.size() != 1) break;
    }
    if (i + 1 == k.body.size()) break;
    const Buffer* b = s->kind == Stmt::Kind::assign ? k.find_buffer(s->target) : nullptr;
    if (b == nullptr || s->op != AssignOp::set) return no("a nest before them makes more than one buffer");
    if (b->place == Place::heap) {
      out.made.push_back(b->name);
    } else if (nest.size() == 2 && out.zm == nullptr) {
      out.zm = nest[0], out.zn = nest[1];
    } else {
      return no("expected one nest that clears");
    }
  }
  if (out.zm == nullptr || nest.size() != 3) return no("expected a nest that clears and one of products");
  out.t = nest[0], out.m = nest[1], out.n = nest[2];
  if (!uses_load(out.m->extent)) return no("the number of rows is none that is read");
  const std::vector<Stmt>& body = out.n->body;
  if (!has_sum(body)) return no("it has no sum of products");
  out.k = &body[1];
  out.sum = body[0].target;
  if (k.find_buffer(out.sum)->place != Place::heap) return no("the sums are no temporary");
  for (const Expr& factor : out.k->body[0].value->args) {
    const Expr& e = unwidened(factor);
    const bool made = e->op == Op::k_load && std::find(out.made.begin(), out.made.end(), e->name) != out.made.end();
    if (e->op != Op::k_load || (!made && !is_input(k.find_buffer(e->name)->place))) return no("a factor is no input");
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

ProductForm product_of(const GroupForm& form) {
  ProductForm out;
  out.batch = {form.t};
  out.m = form.m, out.n = form.n, out.k = form.k;
  out.sum = form.sum;
  out.operands = {{form.rows, true, 2, true}, {form.weights, false, 2, form.terms_last}};
  out.made = form.made;
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
