// What arithmetic the Kernels of an operator may use, and so which peak bounds them. Pure.
#pragma once
#include <string>

#include "ir/base/dtype.h"
#include "ops/lower.h"

namespace lathe::runtime {

struct Arithmetic {
  // Of the sums of products: i8 for bytes, or weights of few bits beside activations that may be made bytes; bf16 for
  // pairs that the numeric classes allow to be multiplied as such; else f32.
  ir::DType factors = ir::DType::f32;
  bool tiles = false;  // a product of matrices, or of weights in groups long enough, which tiles may take
  std::string format;  // of weights of few bits; empty: there are none
  // Multiply-adds of f32 that scales, minima and zero points take beside 32 products of bytes, for each sum.
  double beside = 0;
};

// `finished` comes from ops::finish, `lowered` of it from ops::lower; allowed: NumericClass bits.
Arithmetic arithmetic_of(const ops::Graph& finished, const ops::Lowered& lowered, uint32_t allowed);

// The share that these leave of the peak of such factors, where a vector of products takes so many instructions of its
// pipes: on two of them 32 products of bytes for each of 32 sums are 16 dots. 0: tiles have pipes of their own.
double ceiling_of(const Arithmetic& arithmetic, ir::DType factors, int instructions);

}  // namespace lathe::runtime
