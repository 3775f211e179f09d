// See box_maps.h.
#include "jit/cuda/lower/box_maps.h"

#include <algorithm>

#include "ir/analysis/analysis.h"
#include "ir/analysis/filled.h"
#include "ir/analysis/intrinsics.h"
#include "ir/core/names.h"
#include "ir/core/text_form.h"

namespace lathe::jit {

using ir::Expr;
using ir::Result;
using ir::Status;
using ir::Stmt;
using ir::unsupported;

namespace {

// Of dimension d, in elements.
Expr stride_of(const ir::Buffer& b, size_t d) {
  if (!b.strides.empty()) return b.strides[d];
  Expr out(1);
  for (size_t i = d + 1; i < b.dims.size(); ++i) out = out * b.dims[i];
  return ir::simplify(out);
}

// Whether all blocks of a cluster copy the same.
bool is_shared(const ir::Kernel& leaf, const std::vector<Expr>& index) {
  const Stmt* s = &leaf.body[0];
  while (s->mark == ir::Mark::grid && s->body.size() == 1) s = &s->body[0];
  return s->mark == ir::Mark::cluster &&
         std::none_of(index.begin(), index.end(), [&](const Expr& e) { return ir::uses(e, s->iter); });
}

size_t dim_of(const std::vector<Expr>& index, const std::string& iterator) {
  return static_cast<size_t>(
      std::find_if(index.begin(), index.end(), [&](const Expr& e) { return ir::uses(e, iterator); }) - index.begin());
}

}  // namespace

Result<BoxCopy> box_copy(const ir::Kernel& leaf, const Stmt& scope) {
  const Stmt &inner = scope.body[0], &is = inner.body[0];
  BoxCopy out;
  const Expr& value = ir::unfilled(is.value);
  out.source = value->name;
  out.target = is.target;
  const ir::Buffer &from = *leaf.find_buffer(out.source), &to = *leaf.find_buffer(out.target);
  if (!ir::is_input(from.place) || to.place != ir::Place::shared || !from.layout.empty() || from.type != to.type)
    return unsupported("{} copies boxes from {} to {}, expected an input and shared memory", scope.intrinsic,
                       out.source, out.target);
  const std::vector<Expr>& index = value->args;
  size_t near = 0;
  while (near < index.size() && !ir::is_const_int(stride_of(from, near), 1)) ++near;
  const auto of = [&](const std::string& i) { return dim_of(index, i); };
  if (near == index.size() || (of(scope.iter) != near && of(inner.iter) != near))
    return unsupported("{} copies no neighbours of {}", scope.intrinsic, out.source);
  const bool inside = of(inner.iter) == near;
  out.near = inside ? inner.iter : scope.iter;
  out.far = inside ? scope.iter : inner.iter;
  out.target_near = dim_of(is.index, out.near);
  out.target_far = dim_of(is.index, out.far);
  const Expr &width = to.dims[out.target_near], &lines = to.dims[out.target_far];
  if (to.swizzle == 0) return unsupported("{} is not swizzled, expected lines for boxes", out.target);
  const int neighbours = to.swizzle / dtype_bytes(to.type);
  if (!ir::is_const_int(width) || width->ival % neighbours != 0 || !ir::is_const_int(lines) || lines->ival > kMostBox)
    return unsupported("{} has places of {} x {} elements, expected lines of {}, at most {}", out.target, print(lines),
                       print(width), neighbours, kMostBox);
  out.width = width->ival;
  out.lines = out.part = lines->ival;
  if (is_shared(leaf, index)) {
    if (out.lines % (ir::kSwizzledLines * ir::kClusterBlocks) != 0)
      return unsupported("{} blocks share boxes of {} lines, expected a multiple of {}", ir::kClusterBlocks, out.lines,
                         ir::kSwizzledLines * ir::kClusterBlocks);
    out.part = out.lines / ir::kClusterBlocks;
  }
  int param = 0;
  for (const ir::Buffer& b : leaf.buffers) {
    if (&b == &from) break;
    param += ir::is_param(b.place) ? 1 : 0;
  }
  out.map.param = param;
  const auto add = [&](size_t d, int box) {
    out.map.sizes.push_back(from.dims[d]);
    if (!out.map.box.empty()) out.map.strides.push_back(stride_of(from, d));
    out.map.box.push_back(box);
    out.at.push_back(ir::substitute(index[d], {{out.near, Expr(0)}, {out.far, Expr(0)}}));
  };
  const size_t far = of(out.far);
  add(near, neighbours);
  add(far, static_cast<int>(out.part));
  for (size_t d = index.size(); d-- > 0;) {
    if (d != near && d != far && !ir::is_const_int(stride_of(from, d), 0) && !ir::is_const_int(from.dims[d], 1))
      add(d, 1);
  }
  if (out.map.sizes.size() > static_cast<size_t>(kMostMapDims))
    return unsupported("{} has more than {} dimensions", out.source, kMostMapDims);
  return out;
}

Result<std::vector<DeviceMap>> box_maps(const ir::Kernel& leaf) {
  std::vector<DeviceMap> out;
  Status status;
  ir::for_each_stmt(leaf.body, [&](const Stmt& s) {
    if (s.kind != Stmt::Kind::scope || !ir::copies_box(s) || !status.ok()) return;
    Result<BoxCopy> copy = box_copy(leaf, s);
    status = copy.status();
    if (!status.ok()) return;
    const bool known = std::any_of(out.begin(), out.end(), [&](const DeviceMap& m) { return m.same(copy->map); });
    if (known) return;
    copy->map.name = fmt::format("m{}", out.size());
    out.push_back(std::move(copy->map));
  });
  if (!status.ok()) return status;
  return out;
}

}  // namespace lathe::jit
