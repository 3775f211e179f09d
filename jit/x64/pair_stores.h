// Stores of bf16 in pairs: one instruction rounds two vectors that lie side by side, and one stores a whole line.
#pragma once
#include "jit/x64/registers.h"

namespace lathe::jit::x64 {

//   store p + 0, a; ...; store p + 32, b   ->   ...; store p + 0, a and b
//
// The earlier store waits for the later one where nothing between them may read or write what it stores: Item::pair.
// For AVX-512 with AVX512_BF16; items and info of `a` are filled.
void pair_stores(const LeafProgram& program, const Shape& shape, Allocation& a);

}  // namespace lathe::jit::x64
