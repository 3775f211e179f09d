// See thread_share.h.
#include "ir/analysis/thread_share.h"

#include <algorithm>
#include <bit>

#include "ir/analysis/dependence.h"
#include "ir/analysis/intrinsics.h"
#include "ir/analysis/launch_check.h"
#include "ir/core/text_form.h"

namespace lathe::ir {

int64_t threads_of(const Stmt& block, const Ranges& ranges) {
  const int64_t most = std::max<int64_t>(interval(block.extent, ranges).hi, 1);
  const auto below = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(most)));
  return below < most && !is_const_int(block.extent) && proves_le(block.extent, Expr(below), ranges) ? below : most;
}

int64_t block_threads(const std::vector<Stmt>& body, const Ranges& outer) {
  int64_t most = 1;
  for (const Stmt& s : body) {
    if (s.kind != Stmt::Kind::scope) continue;
    Ranges ranges = outer;
    ranges.enter(s);
    int64_t own = block_threads(s.body, ranges);
    if (s.mark == Mark::block) {
      const int64_t extent = threads_of(s, outer);
      own = extent > kMostThreads || own > kMostThreads ? kMostThreads + 1 : own * extent;
    }
    most = std::max(most, std::min<int64_t>(own * warp_lanes(s), kMostThreads + 1));
  }
  return most;
}

int64_t ThreadDim::own_size(int64_t size) const {
  for (const Part& p : parts) {
    const int64_t round = p.chunk * p.owner.threads;
    size = (size + round - 1) / round * p.chunk;
  }
  return size;
}

Expr ThreadDim::own_index(const Expr& index) const {
  Expr out = index;
  for (const Part& p : parts)
    out = floordiv(out, Expr(p.chunk * p.owner.threads)) * Expr(p.chunk) + mod(out, Expr(p.chunk));
  return out;
}

namespace {

// One access's view of a dimension.
class DimView {
 public:
  DimView(const Access& a, const std::vector<BlockScope>& blocks, const Ranges& ranges)
      : a_(a), blocks_(blocks), ranges_(ranges) {}

  Result<ThreadDim> run(const Expr& index) {
    for (const BlockScope& b : blocks_) {
      if (uses(index, b.scope->iter)) LATHE_RETURN_IF_ERROR(add_block(index, b));
    }
    const auto warp =
        std::find_if(a_.scopes.begin(), a_.scopes.end(), [](const Stmt* s) { return warp_lanes(*s) > 1; });
    for (auto s = warp; s != a_.scopes.end(); ++s) {
      if (uses(index, (*s)->iter)) LATHE_RETURN_IF_ERROR(add_fragment(index, **warp, (*s)->iter));
    }
    std::vector<ThreadDim::Part>& parts = out_.parts;
    std::sort(parts.begin(), parts.end(), [](const auto& p, const auto& q) { return p.chunk > q.chunk; });
    for (size_t i = 1; i < parts.size(); ++i) {
      if (parts[i - 1].chunk % (parts[i].chunk * parts[i].owner.threads) != 0)
        return unsupported("{}[{}] depends on {} and {}, two threads' numbers", a_.buffer, print(index),
                           parts[i - 1].owner.scope->iter, parts[i].owner.scope->iter);
    }
    return std::move(out_);
  }

 private:
  Status add_block(const Expr& index, const BlockScope& b) {
    const auto form = affine_form(index);
    const Expr step = form ? form->coeff(b.scope->iter) : Expr();
    if (!step || !is_const_int(step) || step->ival < 1)
      return unsupported("{}[{}] does not say which thread's it is", a_.buffer, print(index));
    const Expr owner = simplify(mod(floordiv(index, step), Expr(b.threads)), ranges_);
    if (!equal(owner, iter(b.scope->iter)))
      return unsupported("{}[{}] does not belong to thread {} alone", a_.buffer, print(index), b.scope->iter);
    out_.parts.push_back({step->ival, b});
    return {};
  }
  Status add_fragment(const Expr& index, const Stmt& warp, const std::string& iterator) {
    const std::vector<Fragment> all = fragments_of(warp, a_.write, a_.index, iterator);
    if (all.empty())
      return unsupported("{}[{}] is no operand in registers of {}", a_.buffer, print(index), warp.intrinsic);
    const Expr base = simplify(substitute(index, {{iterator, Expr(0)}}), ranges_);
    for (const Fragment& f : all) {
      if (!proves_divisible(base, f.chunk * f.threads, ranges_))
        return unsupported("{}[{}] begins at no multiple of {}", a_.buffer, print(index), f.chunk * f.threads);
      out_.parts.push_back({f.chunk, {&warp, f.step, f.threads}});
    }
    return {};
  }

  const Access& a_;
  const std::vector<BlockScope>& blocks_;
  const Ranges& ranges_;
  ThreadDim out_;
};

bool same_parts(const ThreadDim& a, const ThreadDim& b) {
  return std::equal(a.parts.begin(), a.parts.end(), b.parts.begin(), b.parts.end(),
                    [](const auto& p, const auto& q) { return p.chunk == q.chunk && p.owner.same_threads(q.owner); });
}

}  // namespace

Result<std::vector<ThreadDim>> thread_share(const Kernel& kernel, const std::string& buffer) {
  std::vector<ThreadDim> out;
  bool first = true;
  for (const Access& a : collect_accesses(kernel.body, {}, &buffer)) {
    Ranges ranges(kernel);
    std::vector<BlockScope> blocks;
    for (const Stmt* s : a.scopes) {
      const int64_t most = s->mark == Mark::block ? threads_of(*s, ranges) : 1;
      ranges.enter(*s);
      if (s->mark == Mark::block) blocks.push_back({s, block_threads(s->body, ranges), most});
    }
    for (size_t d = 0; d < a.index.size(); ++d) {
      LATHE_ASSIGN(const ThreadDim dim, DimView(a, blocks, ranges).run(simplify(a.index[d], ranges)));
      if (first) {
        out.push_back(dim);
      } else if (!same_parts(dim, out[d])) {
        return unsupported("{} is divided among threads in two ways", buffer);
      }
    }
    first = false;
  }
  return out;
}

}  // namespace lathe::ir
