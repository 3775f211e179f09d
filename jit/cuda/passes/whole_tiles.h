// Tiles that are whole: threads ask once whether their tile is, and not for each element whether it is inside.
//
// Results of products:
//
//   await products 0; for q: if 32*q < e1 - 256*i1: {...}
//     -> await products 0; if 255 < e1 - 256*i1: {for q: {...}} else: {for q: if 32*q < e1 - 256*i1: {...}}
#pragma once
#include "jit/cuda/device_program.h"

namespace lathe::jit {

// A program whose products are waited for (product_waits.h). Without roles it stays as it is.
void ask_for_whole_tiles(DeviceProgram& program);
// Loops whose iterations wait at barriers, which bring operands in steps:
//
//   for k: for q: if 32*q < e1 - 256*i1: if aligned p0[..]: {...} else: {...}; barrier
//     -> if 255 < e1 - 256*i1 and aligned p0[..]: for k: {for q: {...}; barrier}
//        else: {the loop as it was}
//
// A program with roles or rings stays as it is, and loops with products of groups of warps do.
void ask_for_whole_steps(DeviceProgram& program);

}  // namespace lathe::jit
