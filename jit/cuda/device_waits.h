// Whether the threads of a block wait for each other where they must, found from the program alone: all of them go
// through it in step, sizes may be anything, and what each may touch of shared memory since the last barrier is kept
// for every element.
#pragma once
#include "jit/cuda/device_program.h"

namespace lathe::jit {

// INVALID, naming two threads and the element: one may touch what the other touches, one of them stores it, and no
// barrier is between them.
ir::Status check_waits(const DeviceProgram& program);

}  // namespace lathe::jit
