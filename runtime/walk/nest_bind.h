// Binds a cut Kernel to one shape and thread count: numbers for symbols, parts for threads, offsets
// for scratch. Once per shape; microseconds. Everything is checked here (ranges, overflow), so that
// walk() only adds and calls. Thread-safe.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ir/base/status.h"
#include "ir/core/binding.h"
#include "ir/nest.h"
#include "runtime/walk/bound_nest.h"

namespace lathe::runtime {

// Strides of an argument in elements, one per dimension; empty: compact. Stride symbols of the
// Kernel that `symbols` lacks take their value from here; constants must agree.
struct ArgLayout {
  std::vector<int64_t> strides;
};

using ir::SymbolValues;

// INVALID: a symbol without value or outside its range, strides that differ, an overflow.
// UNSUPPORTED: a nest beyond the limits of bound_nest.h. `args` may be empty when no parameter has
// symbolic strides.
ir::Result<BoundNest> bind_nest(const ir::CutKernel& cut, const SymbolValues& symbols,
                                const std::vector<ArgLayout>& args, int threads);

// The call that all of the nest comes to where its numbers are constant; null: it is more.
std::optional<DirectCall> direct_call(const BoundNest& nest, const std::vector<ir::Leaf>& leaves);

}  // namespace lathe::runtime
