// See packed_operands.h.
#include "runtime/cuda/measure/packed_operands.h"

namespace lathe::runtime {

namespace {

constexpr size_t kAlign = 64;  // of the parts of a packed constant

}  // namespace

ir::Result<std::vector<DeviceMemory>> pack_operands(DeviceSession& session, const std::vector<PackedParam>& packed,
                                                    DeviceGuard side, std::vector<void*>& at) {
  std::vector<DeviceMemory> out;
  for (const PackedParam& p : packed) {
    LATHE_ASSIGN(const int64_t bytes, packed_bytes(p, {}));
    LATHE_ASSIGN(DeviceMemory memory, DeviceMemory::map(session.device(), static_cast<size_t>(bytes), kAlign, side));
    void*& address = at[static_cast<size_t>(p.param)];
    LATHE_RETURN_IF_ERROR(launch_pack(p, address, memory.data(), session.stream()));
    address = memory.data();
    out.push_back(std::move(memory));
  }
  return out;
}

}  // namespace lathe::runtime
