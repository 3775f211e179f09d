// See layout_steps.h.
#include "ir/core/layout_steps.h"

#include <algorithm>

namespace lathe::ir {

static int64_t step_of(const LayoutDim& l) { return l.part == LayoutDim::Part::whole ? l.tile : 0; }

int64_t stated_step(const Buffer& buffer, size_t d) { return d < buffer.layout.size() ? step_of(buffer.layout[d]) : 0; }

bool has_steps(const Buffer& buffer) {
  return std::any_of(buffer.layout.begin(), buffer.layout.end(), [](const LayoutDim& l) { return step_of(l) != 0; });
}

int64_t elements_inside(const Buffer& buffer, size_t d) {
  const std::vector<Expr> dims = physical_dims(buffer);
  int64_t out = 1, step = 1;
  for (size_t i = dims.size(); i-- > d + 1;) {
    if (stated_step(buffer, i) != 0) step = stated_step(buffer, i);
    int64_t before = 0;
    if (!is_const_int(dims[i]) || dims[i]->ival < 1 || __builtin_mul_overflow(dims[i]->ival - 1, step, &before) ||
        __builtin_add_overflow(before, out, &out) || __builtin_mul_overflow(dims[i]->ival, step, &step))
      return -1;
  }
  return out;
}

}  // namespace lathe::ir
