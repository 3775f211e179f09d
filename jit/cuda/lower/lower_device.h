// lower_device: a device leaf to its device program. The @grid scopes share out `block`, the last one fastest; the
// @block scopes `thread`. A thread past the extent of a @block scope does nothing. A @vector scope of 2 or 4 f32 is one
// access of all its elements where it is whole and the addresses allow it, else one element after the other. Lanes that
// update one cell are folded first. A `reg` buffer is registers of each thread; loops over it are unrolled. Of threads
// that store the same value to memory, one does.
#pragma once
#include "ir/nest.h"
#include "jit/cuda/device_program.h"

namespace lathe::jit {

// UNSUPPORTED: types other than f32, functions without a row in device_ops.def, temporaries elsewhere.
ir::Result<DeviceProgram> lower_device(const ir::Leaf& leaf);

}  // namespace lathe::jit
