// Maps of operands that a launch hands to its kernel beside their addresses: the driver makes them of an address, sizes
// and distances (cuTensorMapEncodeTiled), at each call, on the host alone.
#pragma once
#include <cstdint>
#include <vector>

#include "jit/cuda/device_program.h"
#include "runtime/cuda/driver.h"

namespace lathe::runtime {

// Sizes and distances are numbers. Of elements of 2 bytes, in lines of 128 bytes whose pieces are exchanged.
struct BoundMap {
  int param = 0;
  std::vector<uint64_t> sizes, strides;  // in elements; in bytes
  std::vector<uint32_t> box;
};
// sizes: the values of e0, e1, ... of the leaf. INVALID: one has no value.
ir::Result<std::vector<BoundMap>> bind_maps(const std::vector<jit::DeviceMap>& maps, const std::vector<int64_t>& sizes);

using EncodeMap = decltype(CudaDriver::cuTensorMapEncodeTiled);
// Puts what follows the sizes of a launch behind args[n]: whether all operands have maps, and the maps, aligned as they
// must be if args is. addresses: of the kernel's parameters.
void put_maps(EncodeMap encode, const std::vector<BoundMap>& maps, const uint64_t* addresses, uint64_t* args, size_t n);
inline constexpr size_t kMapWords = jit::kMapBytes / sizeof(uint64_t), kMostMaps = 8;

}  // namespace lathe::runtime
