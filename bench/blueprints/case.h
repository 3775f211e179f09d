// One comparison: an operator as Lathe is asked for it, and the same thing written by hand with intrinsics. A file of
// blueprints offers a function that adds its cases; cases.def lists those functions. The frame (blueprints.cc) gives
// both sides the same inputs, memory and turns.
//
//   prepare(constant, out)   once, not timed: the blueprint's own layout of the constant
//   run(args, scratch)       timed: inputs in order (a constant as prepare left it), then the result
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "include/lathe.h"

// Hand-written code is compiled for AVX-512 function by function, and called only where the machine has it.
#define BLUEPRINT_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))

namespace lathe::blueprints {

struct Input {
  const char* name;
  std::vector<int64_t> dims;
  bool constant = false;
};

struct Case {
  std::string name;
  const char* op;
  std::vector<Input> inputs;
  std::vector<int64_t> result;
  std::vector<lathe_attr> attributes;
  bool cold = false;        // constants rotate over twice the last cache
  double flops = 0;         // of one call
  double bytes = 0;         // read or written at least, of one call
  double tolerance = 1e-4;  // of the largest difference over the largest result

  int64_t scratch_floats = 0;
  int64_t prepared_floats = 0;  // 0: the constant is used as it is
  std::function<void(const float* constant, float* out)> prepare;
  std::function<void(float* const* args, float* scratch)> run;
};

using Cases = std::vector<Case>;

#define BLUEPRINT_CASES(function) void function(Cases* cases);
#include "bench/blueprints/cases.def"
#undef BLUEPRINT_CASES

}  // namespace lathe::blueprints
