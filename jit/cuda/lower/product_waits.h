// Where a device program hands over to groups of warps what they compute with, and waits for them: put into it by what
// its statements touch, as late as that allows.
#pragma once
#include "jit/cuda/device_program.h"

namespace lathe::jit {

// A program without any fence, commit and wait of products.
void place_product_waits(DeviceProgram& program);

}  // namespace lathe::jit
