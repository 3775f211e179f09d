// See product_form.h.
#include "search/gpu/product_form.h"

#include <algorithm>

#include "ir/analysis/analysis.h"
#include "ir/core/names.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

bool assigns(const Stmt& s, AssignOp op) { return s.kind == Stmt::Kind::assign && s.op == op; }

// Nests before that one make temporaries, each by one plain assignment.
Status find_made(const Kernel& kernel, size_t nest, ProductForm& out) {
  for (size_t i = 0; i < nest; ++i) {
    const Stmt* s = &kernel.body[i];
    while (s->kind == Stmt::Kind::scope && s->body.size() == 1) s = &s->body[0];
    const Buffer* b = s->kind == Stmt::Kind::assign ? kernel.find_buffer(s->target) : nullptr;
    if (b == nullptr || b->place != Place::heap || s->op != AssignOp::set)
      return unsupported("{} has a nest before its product that makes more than a temporary", kernel.name);
    out.made.push_back(b->name);
  }
  return {};
}

Status find_operands(const Kernel& kernel, ProductForm& out) {
  const Stmt& term = out.k->body[0];
  Status status;
  for_each_node(term.value, [&](const ExprNode& e) {
    if (e.op != Op::k_load || !status.ok()) return;
    bool rows = false, columns = false, terms = false, terms_last = false;
    int dims = 0;
    for (const Expr& i : e.args) {
      const bool of_k = uses(i, out.k->iter), of_rows = uses(i, out.m->iter), of_columns = uses(i, out.n->iter);
      dims += of_k || of_rows || of_columns ? 1 : 0;
      if (of_k || of_rows || of_columns) terms_last = of_k;
      rows = rows || of_rows, columns = columns || of_columns, terms = terms || of_k;
    }
    const bool known = std::any_of(out.operands.begin(), out.operands.end(),
                                   [&](const ProductOperand& s) { return s.buffer == e.name; });
    if (rows && columns) status = unsupported("{} of {} has rows and columns of the result", e.name, kernel.name);
    if (known || !terms || !(rows || columns)) return;
    out.operands.push_back({e.name, rows, dims, terms_last});
  });
  return status;
}

// From a zero of that node on.
bool has_sum_from(const std::vector<Stmt>& body, Op zero) {
  return body.size() >= 3 && assigns(body[0], AssignOp::set) && body[1].kind == Stmt::Kind::scope &&
         body[1].body.size() == 1 && assigns(body[1].body[0], AssignOp::add) &&
         body[1].body[0].target == body[0].target && body[0].value->op == zero &&
         body[1].body[0].value->op == Op::k_mul;
}

// What nests before that one make is in `out`.
Result<ProductForm> form_of(const Kernel& kernel, size_t number, Op zero, ProductForm out) {
  const auto no = [&](const char* why) { return unsupported("{} is no product of matrices: {}", kernel.name, why); };
  if (kernel.body.empty()) return no("it is empty");
  std::vector<const Stmt*> nest;
  for (const Stmt* s = &kernel.body[number]; s->kind == Stmt::Kind::scope; s = &s->body[0]) {
    nest.push_back(s);
    if (s->body.size() != 1) break;
  }
  if (nest.size() < 2) return no("it has no rows and columns");
  const std::vector<Stmt>& body = nest.back()->body;
  if (!has_sum_from(body, zero)) return no("it has no sum of products");
  for (size_t i = 2; i < body.size(); ++i) {
    if (!assigns(body[i], AssignOp::set)) return no("the sums are used in more than plain assignments");
  }
  out.n = nest.back();
  out.m = nest[nest.size() - 2];
  out.batch.assign(nest.begin(), nest.end() - 2);
  out.k = &body[1];
  out.sum = body[0].target;
  if (kernel.find_buffer(out.sum)->place != Place::heap) return no("the sums are no temporary");
  LATHE_RETURN_IF_ERROR(find_operands(kernel, out));
  const auto of_rows = [](const ProductOperand& o) { return o.of_rows; };
  const bool all = std::all_of(out.operands.begin(), out.operands.end(), of_rows),
             any = std::any_of(out.operands.begin(), out.operands.end(), of_rows);
  if (all || !any) return no("its terms have no operand of rows and one of columns");
  return out;
}

}  // namespace

bool has_sum(const std::vector<Stmt>& body) { return has_sum_from(body, Op::k_const_float); }

bool uses_load(const Expr& e) {
  bool out = false;
  for_each_node(e, [&](const ExprNode& n) { out |= n.op == Op::k_load; });
  return out;
}

Result<ProductForm> product_form(const Kernel& kernel) {
  return product_form(kernel, std::max<size_t>(kernel.body.size(), 1) - 1);
}

Result<ProductForm> product_form(const Kernel& kernel, size_t number) {
  ProductForm out;
  LATHE_RETURN_IF_ERROR(find_made(kernel, number, out));
  return form_of(kernel, number, Op::k_const_float, std::move(out));
}

Result<ProductForm> integer_form(const Kernel& kernel) {
  LATHE_ASSIGN(ProductForm out,
               form_of(kernel, std::max<size_t>(kernel.body.size(), 1) - 1, Op::k_const_int, ProductForm()));
  if (kernel.find_buffer(out.sum)->type != DType::i32 || !is_given(kernel, out))
    return unsupported("{} is no product of integers in two matrices that are given", kernel.name);
  return out;
}

Result<ProductSum> product_sum(const Kernel& kernel) {
  const Result<ProductForm> product = product_form(kernel);
  if (product.ok()) return ProductSum{product->n, product->k};
  if (kernel.body.empty()) return product.status();
  std::vector<const Stmt*> nest;
  for (const Stmt* s = &kernel.body.back(); s->kind == Stmt::Kind::scope; s = &s->body[0]) {
    nest.push_back(s);
    if (s->body.size() != 1) break;
  }
  const bool groups = nest.size() == 3 && uses_load(nest[1]->extent) && has_sum(nest[2]->body);
  return groups ? Result<ProductSum>(ProductSum{nest[2], &nest[2]->body[1]}) : product.status();
}

bool is_given(const Kernel& kernel, const ProductForm& form) {
  return form.made.empty() && std::all_of(form.operands.begin(), form.operands.end(), [&](const ProductOperand& o) {
           return is_input(kernel.find_buffer(o.buffer)->place) && o.dims == 2;
         });
}

ProductShape shape_of(const ProductForm& form, const SymbolValues& sizes, const SymbolValues& most) {
  const auto extent = [&](const Stmt* s) { return evaluate(s->extent, sizes).value_or(1); };
  const auto largest = [&](const Stmt* s) { return evaluate(s->extent, most).value_or(1); };
  ProductShape out{1, extent(form.m), extent(form.n), extent(form.k)};
  out.most_results = static_cast<double>(largest(form.m)) * static_cast<double>(largest(form.n));
  out.most_depth = largest(form.k);
  for (const Stmt* b : form.batch) {
    out.batch *= extent(b);
    out.most_results *= static_cast<double>(largest(b));
  }
  return out;
}

std::string block_of(const ProductForm& form, TilePairs pairs) {
  return pairs == TilePairs::below ? form.m->iter + "c" : form.n->iter + (pairs == TilePairs::beside ? "c" : "b");
}

void tile_result(MoveList& list, const ProductForm& form, int64_t rows, int64_t columns, int64_t depth, bool apart,
                 TilePairs pairs) {
  const std::string &m = form.m->iter, &n = form.n->iter, &k = form.k->iter;
  const auto tile = [&](const std::string& s, int64_t size, bool paired) {
    if (!paired) return list.move("tile_scope {0} {1} tail=mask as {0}b,{0}i", s, size);
    list.move("tile_scope {0} {1} tail=mask as {0}b,{0}z", s, kClusterBlocks * size);
    list.move("tile_scope {0}z {1} tail=idle as {0}c,{0}i", s, size);
  };
  tile(m, rows, pairs == TilePairs::below);
  tile(n, columns, pairs == TilePairs::beside);
  list.move("swap_scopes {}i {}b", m, n);
  if (pairs == TilePairs::below) list.move("swap_scopes {}c {}b", m, n);
  if (pairs == TilePairs::beside) list.move("swap_scopes {}i {}c", m, n);
  for (const std::string& s : {n, m}) {
    list.move("split_scope {0}i after=1 as {0}ie", s);
    list.move("split_scope {0}i after=0 as {0}ik", s);
  }
  list.move("move_to_register {} {}", form.sum, block_of(form, pairs));
  list.move("swap_scopes {}ik {}", n, k);
  list.move("swap_scopes {}ik {}", m, k);
  if (apart) list.move("tile_scope {0} {1} tail=peel as {0}0,{0}1,{0}2", k, depth);
  if (!apart) list.move("tile_scope {0} {1} tail=mask as {0}0,{0}1", k, depth);
}

std::vector<std::string> tiles_in_order(MoveList& list, const ProductForm& form, int64_t raster) {
  const std::string &m = form.m->iter, &n = form.n->iter;
  if (raster == 0) return {m + "b", n + "b"};
  list.move("tile_scope {0}b {1} tail=mask as {0}g,{0}h", m, raster);
  list.move("swap_scopes {}h {}b", m, n);
  return {m + "g", n + "b", m + "h"};
}

}  // namespace lathe::search
