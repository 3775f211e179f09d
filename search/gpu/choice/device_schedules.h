// What a GPU runs a Kernel by: a table of Schedules, tried in order.
#pragma once
#include "ir/base/gpu_target.h"
#include "search/gpu/general_kernel.h"
#include "search/moves/schedule.h"

namespace lathe::search {

// sizes: of the general Kernel's symbols, those that most calls have. UNSUPPORTED: no row of the table fits the Kernel;
// names the operator and its types. allowed: numeric classes beside those that all Schedules for GPUs may take.
ir::Result<Scheduled> device_schedule(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                      const ir::GpuTarget& target, uint32_t allowed = 0);
// What the moves of a Schedule for a GPU start from.
ir::Kernel kernel_of_schedule(const GeneralKernel& general, const Schedule& schedule);
// A Schedule that is known, as text in a store or from another process: what was made with it is made again.
ir::Result<Scheduled> replay_on_device(const GeneralKernel& general, const Schedule& schedule);

}  // namespace lathe::search
