// See thread_share.h.
#include "ir/analysis/thread_share.h"

#include <algorithm>

#include "ir/analysis/dependence.h"
#include "ir/analysis/launch_check.h"
#include "ir/core/text_form.h"

namespace lathe::ir {

int64_t block_threads(const std::vector<Stmt>& body, const Ranges& outer) {
  int64_t most = 1;
  for (const Stmt& s : body) {
    if (s.kind != Stmt::Kind::scope) continue;
    Ranges ranges = outer;
    ranges.enter(s);
    int64_t own = block_threads(s.body, ranges);
    if (s.mark == Mark::block) {
      const int64_t extent = std::max<int64_t>(interval(s.extent, outer).hi, 1);
      own = extent > kMostThreads || own > kMostThreads ? kMostThreads + 1 : own * extent;
    }
    most = std::max(most, own);
  }
  return most;
}

int64_t ThreadDim::own_size(int64_t size) const {
  if (chunk == 0) return size;
  const int64_t round = chunk * owner.threads;
  return (size + round - 1) / round * chunk;
}

Expr ThreadDim::own_index(const Expr& index) const {
  if (chunk == 0) return index;
  return floordiv(index, Expr(chunk * owner.threads)) * Expr(chunk) + mod(index, Expr(chunk));
}

namespace {

// One access's view of a dimension.
Result<ThreadDim> thread_dim(const Access& a, const Expr& index, const std::vector<BlockScope>& blocks,
                             const Ranges& ranges) {
  ThreadDim out;
  for (const BlockScope& b : blocks) {
    if (!uses(index, b.scope->iter)) continue;
    if (out.chunk != 0)
      return unsupported("{}[{}] depends on {} and {}, two threads' numbers", a.buffer, print(index),
                         out.owner.scope->iter, b.scope->iter);
    const auto form = affine_form(index);
    const Expr step = form ? form->coeff(b.scope->iter) : Expr();
    if (!step || !is_const_int(step) || step->ival < 1)
      return unsupported("{}[{}] does not say which thread's it is", a.buffer, print(index));
    out.chunk = step->ival;
    out.owner = b;
    const Expr owner = simplify(mod(floordiv(index, step), Expr(b.threads)), ranges);
    if (!equal(owner, iter(b.scope->iter)))
      return unsupported("{}[{}] does not belong to thread {} alone", a.buffer, print(index), b.scope->iter);
  }
  return out;
}

}  // namespace

Result<std::vector<ThreadDim>> thread_share(const Kernel& kernel, const std::string& buffer) {
  std::vector<ThreadDim> out;
  bool first = true;
  for (const Access& a : collect_accesses(kernel.body, {}, &buffer)) {
    Ranges ranges(kernel);
    std::vector<BlockScope> blocks;
    for (const Stmt* s : a.scopes) {
      const int64_t most = std::max<int64_t>(interval(s->extent, ranges).hi, 1);
      ranges.enter(*s);
      if (s->mark == Mark::block) blocks.push_back({s, block_threads(s->body, ranges), most});
    }
    for (size_t d = 0; d < a.index.size(); ++d) {
      LATHE_ASSIGN(const ThreadDim dim, thread_dim(a, simplify(a.index[d], ranges), blocks, ranges));
      if (first) {
        out.push_back(dim);
      } else if (dim.chunk != out[d].chunk || (dim.chunk != 0 && !dim.owner.same_threads(out[d].owner))) {
        return unsupported("{} is divided among threads in two ways", buffer);
      }
    }
    first = false;
  }
  return out;
}

}  // namespace lathe::ir
