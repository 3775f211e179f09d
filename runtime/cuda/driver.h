// The CUDA driver, opened when a device is first asked for and never closed: its functions by name, from declarations
// of the project's own. Nothing is linked. Thread-safe.
#pragma once
#include <array>
#include <memory>
#include <string>

#include "ir/base/status.h"

namespace lathe::runtime {

// Values of the driver's interface, under its own names in comments.
namespace cuda {
// CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR, _MULTIPROCESSOR_COUNT
inline constexpr int kAttributeMajor = 75, kAttributeMinor = 76, kAttributeMultiprocessors = 16;
inline constexpr int kAttributeDynamicShared = 8;                  // of a kernel: the most that launches ask for
inline constexpr int kPointerMemoryType = 2, kPointerOrdinal = 9;  // CU_POINTER_ATTRIBUTE_MEMORY_TYPE, _DEVICE_ORDINAL
inline constexpr unsigned kMemoryHost = 1, kMemoryDevice = 2;      // CU_MEMORYTYPE_HOST, _DEVICE
inline constexpr int kInvalidValue = 1, kStubLibrary = 34;         // CUDA_ERROR_INVALID_VALUE, _STUB_LIBRARY
inline constexpr int kCaptureRelaxed = 2;                          // CU_STREAM_CAPTURE_MODE_RELAXED
// What the driver says of code that it does not take: CUDA_ERROR_INVALID_IMAGE, _NO_BINARY_FOR_GPU,
// _UNSUPPORTED_PTX_VERSION.
inline constexpr std::array<int, 3> kBadCode = {200, 209, 222};
// What leaves the context unusable: CUDA_ERROR_ECC_UNCORRECTABLE, _ILLEGAL_ADDRESS, _LAUNCH_TIMEOUT,
// _CONTEXT_IS_DESTROYED, _HARDWARE_STACK_ERROR, _ILLEGAL_INSTRUCTION, _MISALIGNED_ADDRESS, _INVALID_ADDRESS_SPACE,
// _INVALID_PC, _LAUNCH_FAILED.
inline constexpr std::array<int, 10> kBreaks = {214, 700, 702, 709, 714, 715, 716, 717, 718, 719};
inline constexpr int kMemoryGranularity = 0;       // CU_MEM_ALLOC_GRANULARITY_MINIMUM
inline constexpr int kCaptureThread = 1;           // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
inline constexpr unsigned kNonBlockingStream = 1;  // CU_STREAM_NON_BLOCKING
// CU_TENSOR_MAP_DATA_TYPE_UINT16, _INTERLEAVE_NONE, _L2_PROMOTION_L2_256B, _FLOAT_OOB_FILL_NONE
inline constexpr int kMapOfShorts = 1, kMapNoInterleave = 0, kMapPromoted = 3, kMapZeros = 0;
// CU_TENSOR_MAP_SWIZZLE_32B, _64B, _128B
constexpr int map_swizzle(int64_t bytes) { return bytes == 32 ? 1 : bytes == 64 ? 2 : 3; }
// CUmemAllocationProp and CUmemAccessDesc, as they ask for memory of a device: field for field.
struct MemoryKind {
  int type = 1;  // CU_MEM_ALLOCATION_TYPE_PINNED
  int handle_types = 0;
  int location_type = 1;  // CU_MEM_LOCATION_TYPE_DEVICE
  int device = 0;
  void* security = nullptr;
  unsigned char flags[8] = {};
};
struct MemoryAccess {
  int location_type = 1;
  int device = 0;
  int rights = 3;  // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
};
// CUlaunchConfig and CUlaunchAttribute, of which one is used: field for field.
inline constexpr int kLaunchCluster = 4;  // CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
struct LaunchAttribute {
  int id = kLaunchCluster;
  int padding = 0;
  unsigned cluster[3] = {1, 1, 1};
  unsigned rest[13] = {};
};
struct LaunchForm {
  unsigned blocks[3] = {1, 1, 1}, threads[3] = {1, 1, 1};
  unsigned shared = 0;
  void* stream = nullptr;
  LaunchAttribute* attributes = nullptr;
  unsigned attribute_count = 0;
};
}  // namespace cuda

struct CudaDriver {
#define LATHE_CUDA(name, ...) int (*name)(__VA_ARGS__) = nullptr;
#include "runtime/cuda/driver.def"
#undef LATHE_CUDA

  // path: a library to open; empty: libcuda.so.1. DEVICE, with the reason: it is not there, finds no device, is the
  // toolkit's stub, or is older than 12.0.
  static ir::Result<std::shared_ptr<const CudaDriver>> open(const std::string& path);

  int devices = 0;
  std::string version;    // "12.4"
  std::string file;       // the library
  bool emulated = false;  // it has no GPU behind it and says so: it exports lathe_emulated
  // "CUDA_ERROR_INVALID_VALUE (1)"
  std::string name_of(int error) const;
  // DEVICE, naming what was done and the error; OK for 0.
  ir::Status check(int error, const char* what) const;
};

}  // namespace lathe::runtime
