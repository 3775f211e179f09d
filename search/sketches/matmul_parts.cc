// See matmul_parts.h.
#include "search/sketches/matmul_parts.h"

#include <algorithm>

#include "ir/analysis/analysis.h"
#include "search/sketches/generic_rules.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

// B's dimensions that n and k index.
void find_dims(MatmulParts& p) {
  p.b_n = p.b_k = -1;
  const std::vector<Expr>& index = (*p.b)->args;
  for (size_t d = 0; d < index.size(); ++d) {
    if (uses(index[d], p.n->iter)) p.b_n = static_cast<int>(d);
    if (uses(index[d], p.k->iter)) p.b_k = static_cast<int>(d);
  }
}

// Rows that are worth no transpose of B: one, or few whose sums are long.
bool few_rows(const MatmulParts& p) {
  constexpr int64_t kMost = 4, kLong = 256;
  const Expr &rows = p.m->extent, &depth = p.k->extent;
  if (is_const_int(p.n->extent) && p.n->extent->ival <= kMost) return is_const_int(rows, 1) && p.n->extent->ival != 1;
  return is_const_int(rows, 1) ||
         (is_const_int(rows) && rows->ival <= kMost && is_const_int(depth) && depth->ival >= kLong);
}

// Few rows by a B whose columns lie in one piece each: they are summed where they lie, as rows by few columns.
void swap_sides(MatmulParts& p, const Kernel& kernel) {
  MatmulParts q = p;
  std::swap(q.m, q.n);
  std::swap(q.a, q.b);
  find_dims(q);
  q.sharing.clear();
  q.swapped = true;
  if (q.b_n >= 0 && q.b_k >= 0 && rows_packable(q, kernel)) p = q;
}

}  // namespace

MatmulParts matmul_parts(const Kernel& kernel) {
  MatmulParts p;
  const auto one = [&](const char* role) {
    const std::vector<const Stmt*> all = scopes_with_role(kernel, role);
    return all.size() == 1 ? all[0] : nullptr;
  };
  p.m = one("m");
  p.n = one("n");
  p.k = one("k");
  if (!p.m || !p.n || !p.k || p.k->body.size() != 1 || p.n->body.size() != 3 || !perfectly_contains(*p.m, *p.n))
    return p;
  p.product = &p.k->body[0];
  if (p.product->kind != Stmt::Kind::assign || p.product->value->op != Op::k_mul) return p;
  for (const Expr& given : p.product->value->args) {
    const Expr& factor = unwidened(given);
    if (factor->op != Op::k_load) return p;
    bool by_n = false;
    for (const Expr& i : factor->args) by_n |= uses(i, p.n->iter);
    if (!by_n) {
      p.a = &factor;
      continue;
    }
    p.b = &factor;
  }
  if (p.b == nullptr) return p;
  find_dims(p);
  const std::vector<const Stmt*> batch = scopes_with_role(kernel, "batch");
  const auto follows = [&](const Stmt* s) {
    return std::any_of((*p.b)->args.begin(), (*p.b)->args.end(), [&](const Expr& i) { return uses(i, s->iter); });
  };
  for (size_t i = batch.size(); i > 0 && !follows(batch[i - 1]); --i) p.sharing.insert(p.sharing.begin(), batch[i - 1]);
  for (const Stmt& s : kernel.body) {
    if (s.kind == Stmt::Kind::scope && (s.role == "prologue" || s.role == "clear")) p.prologues.push_back(&s);
    if (s.kind == Stmt::Kind::scope && s.role == "sums") p.sums.push_back(&s);
  }
  p.innermost = p.n;
  p.valid = p.a != nullptr && p.b != nullptr && p.b_n >= 0 && p.b_k >= 0;
  if (p.valid && few_rows(p) && panels_of(p, kernel) == Panels::transposed) swap_sides(p, kernel);
  return p;
}

Panels panels_of(const MatmulParts& p, const Kernel& kernel) {
  const Buffer& b = *kernel.find_buffer((*p.b)->name);
  const bool one_term = is_const_int(p.k->extent, 1);
  if (!one_term && b.place == Place::constant && b.strides.empty()) return Panels::packed;
  if (is_const_int(p.n->extent, 1)) return Panels::in_place;  // one column has no stride
  // Nor has what stands between a column and the next one where that is one term.
  const bool last = p.b_n + 1 == static_cast<int>(b.dims.size()) || (one_term && p.b_n < p.b_k);
  const bool unit_n = b.strides.empty() ? last : is_const_int(b.strides[p.b_n], 1);
  return unit_n ? Panels::in_place : Panels::transposed;
}

bool rows_packable(const MatmulParts& p, const Kernel& kernel) {
  const Buffer& a = *kernel.find_buffer((*p.a)->name);
  const std::vector<Expr>& index = (*p.a)->args;
  const bool unit = a.strides.empty() || is_const_int(a.strides.back(), 1);
  return a.name != (*p.b)->name && index.size() >= 2 && unit && uses(index.back(), p.k->iter) &&
         uses(index[index.size() - 2], p.m->iter);
}

// A sequence of instructions, not one.
static bool is_function(Op op) {
  return op_info(op).cls == OpClass::kMath && op != Op::k_sqrt && op != Op::k_floor && op != Op::k_round;
}

int64_t epilogue_registers(const MatmulParts& p) {
  int64_t wanted = 1;
  for_each_node(p.innermost->body[2].value, [&](const ExprNode& e) {
    if (is_function(e.op) || e.op == Op::k_select) wanted = std::max<int64_t>(wanted, kFunctionRegisters);
    if (op_info(e.op).cls == OpClass::kArith && e.op != Op::k_const_float) wanted = std::max<int64_t>(wanted, 3);
  });
  return wanted;
}

int64_t function_bytes(const MatmulParts& p) {
  constexpr int64_t kPeriodic = 1200, kOther = 400;  // sin and cos reduce large arguments in code of their own
  int64_t bytes = 0;
  for_each_node(p.innermost->body[2].value, [&](const ExprNode& e) {
    if (is_function(e.op)) bytes += e.op == Op::k_sin || e.op == Op::k_cos ? kPeriodic : kOther;
  });
  return bytes;
}

bool has_groups(const Stmt& m) {
  bool out = false;
  for_each_node(m.extent, [&](const ExprNode& e) { out |= e.op == Op::k_load; });
  return out;
}

int64_t rows_of_weight(const Stmt& m, const Expr& a, const Problem& problem) {
  const int64_t rows = extent_at(m.extent, problem);
  if (!has_groups(m)) return rows;
  int64_t groups = 1;
  for (const Stmt* s : scopes_with_role(problem.kernel, "batch"))
    groups *= std::max<int64_t>(extent_at(s->extent, problem), 1);
  const int64_t all = extent_at(problem.kernel.find_buffer(a->name)->dims[0], problem);
  return std::clamp<int64_t>((all + groups - 1) / groups, 1, std::max<int64_t>(rows, 1));
}

bool shares_panels(const Stmt& m, const Problem& problem) {
  if (problem.threads < 2) return false;
  if (!m.extent || evaluate(m.extent, problem.dims) == std::nullopt) return true;  // groups of any size
  int64_t chosen = 1;
  for (const Stmt* s : scopes_with_role(problem.kernel, "batch")) chosen *= extent_at(s->extent, problem);
  return chosen < 8 * problem.threads;
}

void write_prologues(Script& s, const std::vector<const Stmt*>& prologues, const Problem& problem, int64_t lanes) {
  constexpr int64_t kUnroll = 4, kLeastShare = 1024;  // vectors of a step; columns that are worth a thread
  for (const Stmt* prologue : prologues) {
    int64_t rows = 1;
    const Stmt* col = prologue;
    for (; col->body[0].kind == Stmt::Kind::scope; col = &col->body[0]) rows *= extent_at(col->extent, problem);
    const int64_t columns = extent_at(col->extent, problem);
    std::string shared = prologue->iter;
    if (rows < problem.threads && columns >= 2 * kLeastShare) {
      s.move("tile_scope {} {} tail=mask as {}b,{}c", col->iter, kLeastShare, col->iter, col->iter);
      shared = col->iter + "b";
    }
    s.move("parallelize {}", shared);
    const std::string inner = shared == prologue->iter ? col->iter : col->iter + "c";
    const Stmt* now = find_scope(s.kernel(), inner);
    if (now == nullptr || now->mark != Mark::none || !unit_stride(s.kernel(), *now)) continue;
    const Stmt copy = *now;
    vectorize_columns(s, copy, columns >= kUnroll * lanes ? kUnroll : 1, lanes);
  }
}

}  // namespace lathe::search
