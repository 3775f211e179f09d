// The intrinsic table and the matching of scopes to its rows: see intrinsics.h. Matching is structural: it looks at the
// shape of the subtree and at which iterators an index depends on, not at ranges (verify() does).
#include "ir/analysis/intrinsics.h"

#include <algorithm>

#include "ir/analysis/analysis.h"

namespace lathe::ir {

namespace {

const std::vector<Intrinsic> kIntrinsics = {
#define LATHE_INTRINSIC(name, numeric, levels, meaning) {#name, meaning, numeric, levels},
#include "ir/analysis/intrinsics.def"
#undef LATHE_INTRINSIC
};

bool refuse(std::string* why, std::string reason) {
  if (why) *why = std::move(reason);
  return false;
}

bool depends(const std::vector<Expr>& index, const std::string& iter) {
  return std::any_of(index.begin(), index.end(), [&](const Expr& e) { return uses(e, iter); });
}

// The scopes from `scope` down to its only statement (prefetches aside), or null with *why. bound: inner scopes must be
// unrolled or vectors already.
const Stmt* only_statement(const Stmt& scope, bool bound, std::vector<const Stmt*>* scopes, std::string* why) {
  const Stmt* at = &scope;
  for (;;) {
    scopes->push_back(at);
    const Stmt* inner = nullptr;
    for (const Stmt& s : at->body) {
      if (s.kind == Stmt::Kind::prefetch) continue;
      if (inner) {
        refuse(why, "expected one statement in scope " + at->iter);
        return nullptr;
      }
      inner = &s;
    }
    if (!inner) {
      refuse(why, "expected a statement in scope " + at->iter);
      return nullptr;
    }
    if (inner->kind == Stmt::Kind::assign) return inner;
    if (bound && inner->mark != Mark::unroll && inner->mark != Mark::vector) {
      refuse(why, "expected scope " + inner->iter + " to be @unroll or @vector");
      return nullptr;
    }
    at = inner;
  }
}

bool matches_mma(const Kernel& kernel, const Stmt& scope, std::string* why) {
  std::vector<const Stmt*> scopes;
  const Stmt* s = only_statement(scope, true, &scopes, why);
  if (!s) return false;
  const bool product = s->op == AssignOp::add && s->value && s->value->op == Op::k_mul &&
                       s->value->args[0]->op == Op::k_load && s->value->args[1]->op == Op::k_load;
  if (!product) return refuse(why, "expected c[..] += a[..] * b[..]");
  const ExprNode& a = *s->value->args[0];
  const ExprNode& b = *s->value->args[1];
  for (const std::string& name : {s->target, a.name, b.name}) {
    const Buffer* buffer = kernel.find_buffer(name);
    if (!buffer || buffer->type != DType::f32) return refuse(why, "expected " + name + " to be f32");
  }
  if (a.name == s->target || b.name == s->target) return refuse(why, "expected " + s->target + " not to be an operand");
  if (depends(s->index, scope.iter)) {
    return refuse(why, "expected " + s->target + " not to depend on " + scope.iter);
  }
  if (!depends(a.args, scope.iter) && !depends(b.args, scope.iter)) {
    return refuse(why, "expected an operand to depend on " + scope.iter);
  }
  for (const Stmt* inner : scopes) {
    const bool summed = !depends(s->index, inner->iter) && !is_const_int(inner->extent, 1);
    if (inner->mark == Mark::vector && summed)
      return refuse(why, "expected " + s->target + " to depend on vector scope " + inner->iter);
  }
  return true;
}

// The dimension whose neighbours are adjacent in memory, -1 if none.
int unit_stride_dim(const Buffer& b) {
  if (!b.strides.empty()) {
    for (size_t d = 0; d < b.strides.size(); ++d) {
      if (is_const_int(b.strides[d], 1)) return static_cast<int>(d);
    }
    return -1;
  }
  if (!b.layout.empty()) return b.layout.back().dim;
  return static_cast<int>(b.dims.size()) - 1;
}

// The one of the two iterators that steps along the unit-stride dimension of the buffer, and along no other; else
// empty.
std::string unit_stride_iter(const Kernel& kernel, const std::string& name, const std::vector<Expr>& index,
                             const std::string& i, const std::string& j) {
  const Buffer* buffer = kernel.find_buffer(name);
  if (!buffer || buffer->dims.size() != index.size()) return {};
  const int dim = unit_stride_dim(*buffer);
  if (dim < 0) return {};
  const std::optional<AffineForm> form = affine_form(index[static_cast<size_t>(dim)]);
  if (!form) return {};
  const bool has_i = !is_const_int(form->coeff(i), 0), has_j = !is_const_int(form->coeff(j), 0);
  if (has_i == has_j) return {};
  const std::string& mine = has_i ? i : j;
  return is_const_int(form->coeff(mine), 1) ? mine : std::string();
}

bool matches_transpose(const Kernel& kernel, const Stmt& scope, std::string* why) {
  std::vector<const Stmt*> scopes;
  const Stmt* s = only_statement(scope, false, &scopes, why);
  if (!s) return false;
  if (scopes.size() != 2) return refuse(why, "expected two nested scopes");
  if (s->op != AssignOp::set || !s->value || s->value->op != Op::k_load) return refuse(why, "expected d[..] = s[..]");
  const Buffer* d = kernel.find_buffer(s->target);
  if (!d || d->type != DType::f32 || s->value->type != DType::f32) return refuse(why, "expected f32 buffers");
  if (s->value->name == s->target) return refuse(why, "expected two buffers");
  const std::string& i = scopes[0]->iter;
  const std::string& j = scopes[1]->iter;
  const std::string along_d = unit_stride_iter(kernel, s->target, s->index, i, j);
  const std::string along_s = unit_stride_iter(kernel, s->value->name, s->value->args, i, j);
  if (along_d.empty() || along_s.empty()) {
    return refuse(why, "expected one iterator with step 1 along the unit-stride dimension of each buffer");
  }
  if (along_d == along_s) return refuse(why, "expected different iterators along the unit-stride dimensions");
  if (!depends(s->index, along_s) || !depends(s->value->args, along_d)) {
    return refuse(why, "expected both buffers to depend on both iterators");
  }
  return true;
}

}  // namespace

const std::vector<Intrinsic>& intrinsics() { return kIntrinsics; }

const Intrinsic* find_intrinsic(std::string_view name) {
  for (const Intrinsic& row : kIntrinsics) {
    if (name == row.name) return &row;
  }
  return nullptr;
}

bool matches_intrinsic(const Kernel& kernel, const Stmt& scope, const Intrinsic& intrinsic, std::string* why) {
  if (scope.kind != Stmt::Kind::scope) return refuse(why, "expected a scope");
  const std::string_view name = intrinsic.name;
  if (name == "mma") return matches_mma(kernel, scope, why);
  if (name == "transpose") return matches_transpose(kernel, scope, why);
  return refuse(why, "no matcher for this intrinsic");
}

}  // namespace lathe::ir
