// Constants that a Kernel for a GPU reads in a packed form: the fields of a weight of few bits that products are made
// of, each whole and apart from the others, so that its elements begin at multiples of 16 bytes and its bits lie in the
// order in which they are read. The format says which order (ops/quant_formats.def).
//
//   d: f16[N, 8] const by [144, 18], q: u8[N, 8, 16] const by [144, 18, 1]   (blocks of 18 bytes)
//     -> d: f16[N, 8] in, q: u8[N, 8, 16] in
//
// Terms of an output become neighbours where outputs are:
//
//   q: u8[K // 2, N] const from i32[K // 8, N] ..; v[n, k] = f(q[k // 2, n])  ->  q: u8[N, K // 2] in; f(q[n, k // 2])
//
// So it is of weights that integers choose, each by itself.
#pragma once
#include <vector>

#include "ir/core/kernel.h"

namespace lathe::search {

// As the naive Kernel has them, their layout written out. Empty: all are read as the caller gives them.
std::vector<ir::Buffer> packed_constants(const ir::Kernel& naive);
// The Kernel that packs one: parameters src, as the caller gives it, and dst. Naive: each element is made by itself.
ir::Kernel packing_kernel(const ir::Buffer& constant);
// The Kernel whose inputs are the packed forms of these, and what the caller gives of all others.
ir::Kernel reads_packed(const ir::Kernel& naive);
// The Kernel that packs nothing: constants are inputs.
ir::Kernel reads_given(const ir::Kernel& naive);

}  // namespace lathe::search
