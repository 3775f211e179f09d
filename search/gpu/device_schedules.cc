// See device_schedules.h.
#include "search/gpu/device_schedules.h"

#include "search/gpu/chain_schedule.h"
#include "search/gpu/columns_schedule.h"
#include "search/gpu/gemv_schedule.h"
#include "search/gpu/product_schedule.h"
#include "search/gpu/rows_schedule.h"
#include "search/gpu/transpose_schedule.h"

namespace lathe::search {

namespace {

using MakeSchedule = ir::Result<Scheduled> (*)(const GeneralKernel&, const ir::SymbolValues&);
constexpr MakeSchedule kSchedules[] = {gemv_schedule,  product_schedule, transpose_schedule,
                                       chain_schedule, columns_schedule, rows_schedule};

}  // namespace

ir::Result<Scheduled> device_schedule(const GeneralKernel& general, const ir::SymbolValues& sizes) {
  ir::Status why;
  for (const MakeSchedule make : kSchedules) {
    ir::Result<Scheduled> made = make(general, sizes);
    if (made.ok()) return made;
    why = made.status();
  }
  return ir::unsupported("no Schedule for a GPU: {}", why.message());
}

}  // namespace lathe::search
