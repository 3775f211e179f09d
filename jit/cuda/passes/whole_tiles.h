// Results of products, of tiles that are whole: their threads ask once whether the tile is, and not for each element
// whether it is inside of the result.
//
//   await products 0; for q: if 32*q < e1 - 256*i1: {...}
//     -> await products 0; if 255 < e1 - 256*i1: {for q: {...}} else: {for q: if 32*q < e1 - 256*i1: {...}}
#pragma once
#include "jit/cuda/device_program.h"

namespace lathe::jit {

// A program whose products are waited for (product_waits.h). Without roles it stays as it is.
void ask_for_whole_tiles(DeviceProgram& program);

}  // namespace lathe::jit
