// How much work an operator is at given dims: arithmetic and bytes. The numerators of every share of a ceiling. Pure.
#pragma once
#include <cstdint>

#include "ir/base/target.h"
#include "ops/graph.h"
#include "runtime/compile/arithmetic.h"
#include "runtime/measure/machine_profile.h"
#include "runtime/walk/nest_bind.h"

namespace lathe::runtime {

struct Work {
  double flops = 0;           // as the families of its operators count them
  double read_bytes = 0;      // each input once, at the extents it is read with
  double write_bytes = 0;     // each output once
  double constant_bytes = 0;  // of read_bytes
};

// `finished` comes from ops::finish; values under kernel_symbol names.
Work work_at(const ops::Graph& finished, const SymbolValues& values);

// The least time for it by the profile's ceilings, in us: such arithmetic on all threads, or moving the bytes from
// where they lie (memory for cold constants; else the smallest cache that holds the operands). 0 if the profile is
// empty; a profile that lacks the peak of that arithmetic says the time of the bytes.
double roofline_us(const Work& work, const Arithmetic& arithmetic, const MachineProfile& profile,
                   const ir::Target& target, bool cold, int threads);

// Elements of a tensor at these values; a symbol without value counts with its largest.
int64_t elements_at(const ops::TensorDesc& tensor, const SymbolValues& values);
int64_t size_at(const ops::DimDesc& dim, const SymbolValues& values);
// Elements from the first to behind the last one, strides included (symbols replaced); elements_at where compact.
int64_t span_at(const ops::TensorDesc& tensor, const SymbolValues& values);

}  // namespace lathe::runtime
