// Constants whose elements do not lie one after another: others lie between what a step of a dimension holds.
#pragma once
#include "ir/core/kernel.h"

namespace lathe::ir {

// The step that the layout states for physical dimension `d`; 0: none.
int64_t stated_step(const Buffer& buffer, size_t d);
bool has_steps(const Buffer& buffer);
// Elements from the first to the last of what is inside physical dimension `d`; -1: no number.
int64_t elements_inside(const Buffer& buffer, size_t d);

}  // namespace lathe::ir
