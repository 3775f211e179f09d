// Which tiles of tensor_attention.h attention has, and which parts of keys of attention_schedule.h, ranked by a guess
// of the time that they take.
#pragma once
#include <vector>

#include "ir/base/gpu_target.h"
#include "search/gpu/attention/float_attention.h"
#include "search/gpu/attention/tensor_attention.h"

namespace lathe::search {

// Tiles for it, the best first; none where few queries leave tensor cores idle. allowed: numeric classes beside those
// that all Schedules for GPUs may take. sizes: see chain_schedule.h. UNSUPPORTED: it is no attention, or a form that
// tensor cores do not take.
ir::Result<std::vector<AttentionTile>> attention_tiles_of(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                                          const ir::GpuTarget& target, uint32_t allowed);

// Tiles of f32 (float_attention.h), the best first; none where few queries are faster by heads. UNSUPPORTED: it is no
// attention, or another form.
ir::Result<std::vector<FloatTile>> float_tiles_of(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                                  const ir::GpuTarget& target);

// Numbers of keys that a block of threads takes without tensor cores, the best first; 0: all. UNSUPPORTED: it is no
// attention, or columns vary in number.
ir::Result<std::vector<int64_t>> key_parts(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                           const ir::GpuTarget& target);

}  // namespace lathe::search
