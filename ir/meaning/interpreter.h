// The interpreter: slow, obviously right, the oracle of everything. Runs any Kernel, scheduled or not, sequentially in
// program order, on logical indices (layouts and strides do not matter to it). Marks and prefetches have no meaning
// here. A statement `t op= v` means t = op(t, v), but t = fmax(v, t) for fmax=, so that a NaN in v is dropped. max(a,
// b) is a > b ? a : b and min(a, b) is a < b ? a : b where neither is NaN, which settles the sign of zeros. Integers
// wrap.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/core/binding.h"
#include "ir/core/kernel.h"

namespace lathe::ir {

enum class Arithmetic : uint8_t {
  // every float operation rounds to its dtype; += of a product is one fma: what exact classes must match bit for bit
  native,
  real,         // float operations in f64; inputs as given (already rounded to their dtype)
  magnitude,    // real, on absolute values, subtraction adds: gives S = sum |a||b| of quality gate 2
  error_bound,  // outputs are bounds of |native - real| to first order, for sums in any order; inputs are exact
  // Values mod p = 2q + 1, exponents mod q with exp(x) = g^x: equality checks without tolerance, for sums, products,
  // quotients and exp. Inputs map by hash, constants and integers exactly. max and min order the residues (any fixed
  // order does, as long as only their algebra is used); other functions are arbitrary but fixed. No comparisons of
  // floats, no casts to integers.
  finite_field,
};

// Values of one buffer, row-major over its logical dims, as doubles (finite_field: integers below 2^53; f64 is exact
// for all float types and for i32).
struct Tensor {
  std::vector<int64_t> dims;
  std::vector<double> data;
};

struct InterpreterOptions {
  Arithmetic arithmetic = Arithmetic::native;
  // Scopes restricted to a few values of their iterator (sampled runs); others run whole.
  std::map<std::string, std::vector<int64_t>> only;
  int64_t max_steps = int64_t{1} << 32;  // scalar statements; beyond: UNSUPPORTED
  // Outputs and temporaries start from the values in the map (leaves that update in place); else every cell is NaN.
  bool keep_contents = false;
};

// tensors: by buffer name, at least all that has_contents(); outputs (and, if asked for, temporaries already present in
// the map) are written back. symbols: a value for each symbol of the kernel. Cells never written are NaN;
// sizes left open (null dims) are those of the tensor in the map. INVALID: tensors or symbols that do not fit;
// INTERNAL: the kernel reads or writes outside a buffer, or computes with an integer cell never written; UNSUPPORTED:
// what this arithmetic cannot express, or too many steps.
Status interpret(const Kernel& kernel, const SymbolValues& symbols, std::map<std::string, Tensor>& tensors,
                 const InterpreterOptions& options = {});

}  // namespace lathe::ir
