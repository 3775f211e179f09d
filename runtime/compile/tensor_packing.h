// The packed form of a constant tensor: those of the parameters that read it (packed_places.h). A Kernel reads most
// tensors through one parameter; blocks of low bits it reads through one for each field (ops/quant_formats.h).
#pragma once
#include "ops/lower.h"
#include "runtime/compile/compiler.h"

namespace lathe::runtime {

struct TensorPacking {
  struct Part {
    const PackedParam* packed = nullptr;
    int64_t from = 0;  // bytes from the tensor's first to the parameter's
    int64_t at = 0;    // bytes into the packed form; a multiple of 64, but between pieces of others
  };
  std::vector<Part> parts;  // none: it stays as it lies
  uint64_t layout_id = 0;   // equal ids: equal bytes
  int64_t bytes = 0;
};

// As the stage of the kernel reads it. UNSUPPORTED: some of the tensor's parameters are packed, and others are not.
// Other errors as of packed_bytes().
ir::Result<TensorPacking> tensor_packing(const ops::LoweredKernel& kernel, const Stage& stage, int tensor,
                                         const SymbolValues& symbols);

// UNSUPPORTED: the stage packs some of the tensor's parameters, and others not.
ir::Status all_parts_packed(const ops::LoweredKernel& kernel, const Stage& stage, int tensor);

// Packs the tensor, compact, into dst (`bytes` of it, zeros where no part is). See run_pack() of compiler.h.
ir::Status run_pack(const TensorPacking& packing, const SymbolValues& symbols, const void* src, void* dst,
                    TaskArena* arena);
// The same on a device: joins the stream. What lies between parts is left as it is.
ir::Status launch_pack(const TensorPacking& packing, const void* src, void* dst, void* stream);

}  // namespace lathe::runtime
