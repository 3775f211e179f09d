// See nest_loads.h. A walk reads an integer whenever the loops around it run, also where the leaf then has nothing to
// do: what scopes inside the leaf say of an index is no proof.
#include "search/cut/nest_loads.h"

#include <algorithm>

#include "ir/core/names.h"
#include "ir/core/text_form.h"
#include "search/cut/cut.h"
#include "search/cut/leaf_form.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

Status check_load(const Buffer& b, const std::vector<Expr>& index, const LoopsAround& loops) {
  if (!is_input(b.place) || !b.values || is_packed(b))
    return unsupported("the nest reads {}: expected an input with a range of values", b.name);
  for (size_t d = 0; d < index.size() && loops.run; ++d) {
    if (!proves_le(Expr(0), index[d], loops.ranges) || !proves_lt(index[d], b.dims[d], loops.ranges))
      return unsupported("the nest reads {}: dimension {}: index {} is not proven to stay below {}", b.name, d,
                         print(index[d]), print(b.dims[d]));
  }
  return {};
}

// A walk computes in i64, and widens what it loads.
bool is_computed(const Expr& e) {
  if (e->op == Op::k_load || e->op == Op::k_const_int) return true;
  if (e->op == Op::k_cast) return e->type == DType::i64 && e->args[0]->op == Op::k_load;
  return e->type == DType::i64 || e->type == DType::b8;
}

}  // namespace

bool may_load_integers(const Kernel& kernel) {
  return std::any_of(kernel.buffers.begin(), kernel.buffers.end(), [](const Buffer& b) { return bool(b.values); });
}

LoopsAround loops_around(const Kernel& kernel, const std::vector<const Stmt*>& outer) {
  LoopsAround out{Ranges(kernel)};
  for (const Stmt* s : outer) {
    out.run = out.run && interval(s->extent, out.ranges).hi >= 1;
    out.ranges.enter(*s);
    out.ranges.learn(s->extent, 1);
  }
  return out;
}

Result<Expr> nest_integer(const Kernel& kernel, const Expr& e, const LoopsAround& loops) {
  Status status;
  const auto flat = [&](const Expr& n) -> Expr {
    if (!is_computed(n)) status = unsupported("the nest computes {}: expected integers of type i64", print(n));
    if (n->op != Op::k_load || !status.ok()) return {};
    const Buffer& b = *kernel.find_buffer(n->name);
    status = check_load(b, n->args, loops);
    if (!status.ok()) return {};
    const std::vector<Expr> strides = physical_strides(b);
    Expr offset(0);
    for (size_t d = 0; d < strides.size(); ++d) offset = offset + n->args[d] * strides[d];
    return load(n->name, {simplify(offset, loops.ranges)}, n->type);
  };
  Expr out = rewrite(e, flat);
  if (!status.ok()) return status;
  return out;
}

Status load_integers(const Kernel& kernel, const LoopsAround& loops, NestCall& call) {
  std::vector<Expr*> all;
  for (NestCall::Variant& v : call.variants) all.push_back(&v.extent);
  for (NestOperand& o : call.operands) all.push_back(&o.offset);
  for (Expr& e : call.extents) all.push_back(&e);
  for (NestSegment& s : call.segments) all.insert(all.end(), {&s.len, &s.a_bytes, &s.b_bytes});
  for (NestStream& s : call.streams) all.insert(all.end(), {&s.block_bytes, &s.share.offset, &s.share_step});
  for (Expr* e : all) {
    LATHE_ASSIGN(*e, nest_integer(kernel, *e, loops));
  }
  return {};
}

}  // namespace lathe::search
