// Whether the threads of a block wait for each other where they must, found from the program alone: all of them go
// through it in step, sizes may be anything, and what each may touch of shared memory since the last barrier is kept
// for every element.
#pragma once
#include "jit/cuda/device_program.h"

namespace lathe::jit {

// INVALID, naming the element: one thread may touch what another touches, one of them stores it, and no barrier is
// between them; or it is touched before its copy has arrived, or stored to while products may read it; or a copy is on
// its way at the end.
ir::Status check_waits(const DeviceProgram& program);

// Whether what groups of warps compute with is handed over to them, and theirs while they compute (device_products.cc).
// INVALID, naming the rule `products`: sums that a thread touches while they are on their way, or that no fence handed
// over; a factor that a thread has stored to with no fence before the barrier; products that nothing waits for.
ir::Status check_products(const DeviceProgram& program);

}  // namespace lathe::jit
