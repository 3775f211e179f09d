// See device_schedules.h.
#include "search/gpu/choice/device_schedules.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "ir/analysis/analysis.h"
#include "ir/core/names.h"
#include "search/gpu/attention/attention_schedule.h"
#include "search/gpu/attention/attention_tiles.h"
#include "search/gpu/attention/tensor_attention.h"
#include "search/gpu/gemv_schedule.h"
#include "search/gpu/product_schedule.h"
#include "search/gpu/rows/append_schedule.h"
#include "search/gpu/rows/chain_schedule.h"
#include "search/gpu/rows/columns_schedule.h"
#include "search/gpu/rows/rows_schedule.h"
#include "search/gpu/rows/scan_schedule.h"
#include "search/gpu/rows/transpose_schedule.h"
#include "search/gpu/tensor/decoded_tensor.h"
#include "search/gpu/tensor/grouped_tensor.h"
#include "search/gpu/tensor/hopper_schedule.h"
#include "search/gpu/tensor/tensor_schedule.h"
#include "search/gpu/thread_schedule.h"
#include "search/gpu/tile_rounds.h"
#include "search/gpu/weights/decoded_lines.h"
#include "search/gpu/weights/decoded_schedule.h"
#include "search/gpu/weights/grouped_schedule.h"

namespace lathe::search {

namespace {

// One that is the same on every GPU.
template <ir::Result<Scheduled> (*make)(const GeneralKernel&, const ir::SymbolValues&)>
ir::Result<Scheduled> anywhere(const GeneralKernel& general, const ir::SymbolValues& sizes, const ir::GpuTarget&) {
  return make(general, sizes);
}

using MakeSchedule = ir::Result<Scheduled> (*)(const GeneralKernel&, const ir::SymbolValues&, const ir::GpuTarget&);

// With more lines than a thread multiplies while it waits for the next of them, tensor cores do.
ir::Result<Scheduled> few_lines(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                const ir::GpuTarget& target) {
  constexpr int64_t kFewWithoutTensorCores = 4;
  LATHE_ASSIGN(Scheduled made, gemv_schedule(general, sizes, target));
  if (made.schedule.knobs["few"] > kFewWithoutTensorCores && tensor_tiles_of(general, sizes, target).ok())
    return ir::unsupported("{} has more than {} lines", general.kernel.name, kFewWithoutTensorCores);
  return made;
}

ir::Result<Scheduled> by_tokens(const GeneralKernel& general, const ir::SymbolValues& sizes, const ir::GpuTarget&) {
  return append_schedule(general, sizes);
}

constexpr MakeSchedule kSchedules[] = {decoded_lines,
                                       decoded_schedule,
                                       few_lines,
                                       hopper_schedule,
                                       tensor_schedule,
                                       product_schedule,
                                       integer_schedule,
                                       anywhere<outputs_schedule>,
                                       grouped_tensor,
                                       anywhere<grouped_schedule>,
                                       anywhere<transpose_schedule>,
                                       anywhere<chain_schedule>,
                                       anywhere<columns_schedule>,
                                       by_tokens,
                                       anywhere<rows_schedule>,
                                       anywhere<scan_schedule>,
                                       anywhere<thread_schedule>};

// Which operator it is and of which types, which say most to who asked for it, and why the last Schedule refused it.
ir::Status not_served(const ir::Kernel& kernel, const ir::Status& why) {
  std::vector<std::string> types;
  for (const ir::Buffer& b : kernel.buffers) {
    const std::string name = ir::dtype_name(ir::given_type(b));
    if (ir::is_param(b.place) && std::find(types.begin(), types.end(), name) == types.end()) types.push_back(name);
  }
  return ir::unsupported("{} of {} has no Schedule for a GPU in this form (docs/gpu.md says what a device serves): {}",
                         kernel.name, fmt::join(types, ", "), why.message());
}

}  // namespace

ir::Result<Scheduled> device_schedule(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                      const ir::GpuTarget& target, uint32_t allowed) {
  if (is_attention(general)) {  // nothing else fits it
    const auto tiles = attention_tiles_of(general, sizes, target, allowed);
    for (size_t i = 0; tiles.ok() && i < tiles->size(); ++i) {
      ir::Result<Scheduled> made = tensor_attention(general, (*tiles)[i]);
      if (made.ok()) return made;
    }
    const auto floats = float_tiles_of(general, sizes, target);
    for (size_t i = 0; floats.ok() && i < floats->size(); ++i) {
      ir::Result<Scheduled> made = float_attention(general, (*floats)[i]);
      if (made.ok()) return made;
    }
    LATHE_ASSIGN(const std::vector<int64_t> parts, key_parts(general, sizes, target));
    ir::Result<Scheduled> made = first_made(parts, [&](int64_t part) { return attention_schedule(general, part); });
    return made.ok() ? std::move(made) : not_served(general.kernel, made.status());
  }
  ir::Result<Scheduled> decoded = decoded_tensor(general, sizes, target, (allowed & ir::kQuantisedActivations) != 0);
  if (decoded.ok()) return decoded;
  ir::Status why;  // of the last one, which asks least
  for (const MakeSchedule make : kSchedules) {
    ir::Result<Scheduled> made = make(general, sizes, target);
    if (made.ok()) return made;
    why = made.status();
  }
  return not_served(general.kernel, why);
}

ir::Kernel kernel_of_schedule(const GeneralKernel& general, const Schedule& schedule) {
  return is_scan(schedule) ? kernel_of_scan(general, schedule) : kernel_of_rows(general, schedule);
}

ir::Result<Scheduled> replay_on_device(const GeneralKernel& general, const Schedule& schedule) {
  return schedule_kernel(kernel_of_schedule(general, schedule), schedule);
}

}  // namespace lathe::search
