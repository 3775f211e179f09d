// Where addresses are aligned alike in all iterations of a loop that brings elements to shared memory, that is asked
// once before it, not for each access:
//
//   for i < 8 unrolled 8:                          if aligned x8 p0[0]:
//     let t = thread % 16                            for i < 8 unrolled 8: let t ..; copy x8 ..
//     if aligned x8 p0[64*i + 8*t]: copy x8 ..   ->  else:
//     else: for j < 8: copy ..                       for i < 8 unrolled 8: let t ..; for j < 8: copy ..
//
// So no branch stands between the accesses of an unrolled loop, which are on their way together.
#pragma once
#include "jit/cuda/device_program.h"

namespace lathe::jit {

void raise_aligned(DeviceProgram& program);

}  // namespace lathe::jit
