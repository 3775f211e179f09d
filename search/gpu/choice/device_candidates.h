// What a GPU may run a Kernel by: Schedules in the order of their rank. The first is the default, and serves where
// nothing is timed.
#pragma once
#include <vector>

#include "ir/base/gpu_target.h"
#include "search/gpu/choice/device_schedules.h"

namespace lathe::search {

// sizes: of the general Kernel's symbols, those that most calls have. allowed: see device_schedule(). At least one, at
// most `most`, no two alike. UNSUPPORTED: no Schedule fits the Kernel.
ir::Result<std::vector<Scheduled>> device_candidates(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                                     const ir::GpuTarget& target, size_t most, uint32_t allowed = 0);

}  // namespace lathe::search
