// Loops of products in steps: the first squares of the next step are read before the last products of this one, so
// that the tensor cores go on while threads meet at the barrier and wait for shared memory.
//
//   for i: {copies; for k < 4 unrolled: {r = ldmatrix s[i, k]; mma r}; commit; await; barrier}
//     -> if 0 < n: r = ldmatrix s[0, 0]
//        for i: {copies; q = ldmatrix s[i, 1]; mma r; r = ldmatrix s[i, 2]; mma q; q = ldmatrix s[i, 3]; mma r;
//                commit; await; barrier; r = ldmatrix s[i + 1, 0]; mma q}
//        barrier
//
// Reads, copies and barriers keep their order; only products, which touch registers alone, come later. What is read
// after the last step is not used: it is in the ring, since the number of a step says nothing else of where it reads.
#pragma once
#include "jit/cuda/device_program.h"

namespace lathe::jit {

// Loops of that form, where the second set of registers costs no block that a multiprocessor has room for. All others
// stay as they are.
void read_ahead(DeviceProgram& program);

}  // namespace lathe::jit
