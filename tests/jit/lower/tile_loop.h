// A leaf of panels by tiles, loops around the sum over k: what a matmul of whole tiles is cut into.
#pragma once
#include "tests/jit/lower/leaf_case.h"

namespace lathe::jit {

// `panels` panels of 32 columns, `tiles` tiles of 3 rows; accumulate: tiles start from what is there.
inline LeafCase tile_loop(int64_t panels, int64_t tiles, int64_t k, bool accumulate = false,
                          Data data = Data::integers) {
  const std::string text = fmt::format(
      R"(kernel leaf(p0: f32[_, _] in strides [?, 1], p1: f32[_, _, _] in strides [?, 32, 1], p2: f32[_, _] out strides [?, 1]) family leaf where e0 in 0..9223372036854775807, e1 in 0..9223372036854775807, seglen in 0..9223372036854775807
  r0: f32[3, 32] reg
  for i0 < e0:
    for i1 < e1:
      for i2 < 3 @unroll:
        for i3 < 2 @unroll:
          for i4 < 16 @vector:
            r0[i2, 16*i3 + i4] = {}
      for i5 < seglen @tensor(mma):
        for i6 < 3 @unroll:
          for i7 < 2 @unroll:
            for i8 < 16 @vector:
              r0[i6, 16*i7 + i8] += p0[3*i1 + i6, i5] * p1[i0, i5, 16*i7 + i8]
      for i9 < 3 @unroll:
        for i10 < 2 @unroll:
          for i11 < 16 @vector:
            p2[3*i1 + i9, 32*i0 + 16*i10 + i11] = r0[i9, 16*i10 + i11]
)",
      accumulate ? "p2[3*i1 + i2, 32*i0 + 16*i3 + i4]" : "0.0");
  const int64_t rows = 3 * tiles, columns = 32 * panels;
  return LeafCase(
      text, {{{rows, k}, {k + 3, 1}}, {{panels, k, 32}, {32 * k + 5, 32, 1}}, {{rows, columns}, {columns + 7, 1}}},
      {{"e0", panels}, {"e1", tiles}, {"seglen", k}}, data);
}

}  // namespace lathe::jit
