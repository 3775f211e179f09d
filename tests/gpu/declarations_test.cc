// The project's own declarations against cuda.h and nvrtc.h, where those are: functions take what they say, as far as
// registers can tell, and values are those of their names.
#include <gtest/gtest.h>

#include "jit/cuda/device_program.h"
#include "runtime/cuda/driver.h"

#ifdef LATHE_CUDA_HEADERS
#include <cuda.h>
#include <nvrtc.h>

#include <cstddef>
#include <type_traits>
#endif

namespace lathe::runtime {
namespace {

#ifdef LATHE_CUDA_HEADERS

// What a parameter is to a caller: an address, or an integer of so many bytes with or without a sign.
template <class T>
using Passed =
    std::conditional_t<std::is_pointer_v<T>, void*, std::conditional_t<std::is_enum_v<T>, int, std::remove_cv_t<T>>>;
template <class R, class... A>
constexpr auto passed(R (*)(A...)) -> Passed<R> (*)(Passed<A>...);
#define LATHE_SAME(name, ...) \
  static_assert(              \
      std::is_same_v<decltype(passed(&::name)), decltype(passed(static_cast<int (*)(__VA_ARGS__)>(nullptr)))>, #name);
#define LATHE_CUDA(name, ...) LATHE_SAME(name, __VA_ARGS__)
#include "runtime/cuda/driver.def"
#undef LATHE_CUDA
#define LATHE_NVRTC(name, ...) LATHE_SAME(name, __VA_ARGS__)
#if CUDA_VERSION >= 12090
#define LATHE_NVRTC_OPTIONAL(name, ...) LATHE_SAME(name, __VA_ARGS__)
#endif
#include "jit/cuda/compile/nvrtc.def"
#undef LATHE_NVRTC

static_assert(cuda::kAttributeMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(cuda::kAttributeMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(cuda::kAttributeMultiprocessors == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(cuda::kPointerMemoryType == CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
static_assert(cuda::kPointerOrdinal == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
static_assert(cuda::kMemoryHost == CU_MEMORYTYPE_HOST && cuda::kMemoryDevice == CU_MEMORYTYPE_DEVICE);
static_assert(cuda::kInvalidValue == CUDA_ERROR_INVALID_VALUE && cuda::kStubLibrary == CUDA_ERROR_STUB_LIBRARY);
static_assert(cuda::kCaptureRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(cuda::kCaptureThread == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
static_assert(cuda::kMemoryGranularity == CU_MEM_ALLOC_GRANULARITY_MINIMUM);
static_assert(cuda::kNonBlockingStream == CU_STREAM_NON_BLOCKING);
static_assert(cuda::kMapOfShorts == CU_TENSOR_MAP_DATA_TYPE_UINT16);
static_assert(cuda::kMapNoInterleave == CU_TENSOR_MAP_INTERLEAVE_NONE);
static_assert(cuda::map_swizzle(32) == CU_TENSOR_MAP_SWIZZLE_32B);
static_assert(cuda::map_swizzle(64) == CU_TENSOR_MAP_SWIZZLE_64B);
static_assert(cuda::map_swizzle(128) == CU_TENSOR_MAP_SWIZZLE_128B);
static_assert(cuda::kMapPromoted == CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
static_assert(cuda::kMapZeros == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
static_assert(jit::kMapBytes == sizeof(CUtensorMap) && jit::kMapAligned >= alignof(CUtensorMap));
static_assert(sizeof(cuda::MemoryKind) == sizeof(CUmemAllocationProp));
static_assert(offsetof(cuda::MemoryKind, type) == offsetof(CUmemAllocationProp, type));
static_assert(offsetof(cuda::MemoryKind, handle_types) == offsetof(CUmemAllocationProp, requestedHandleTypes));
static_assert(offsetof(cuda::MemoryKind, location_type) == offsetof(CUmemAllocationProp, location));
static_assert(offsetof(cuda::MemoryKind, device) ==
              offsetof(CUmemAllocationProp, location) + offsetof(CUmemLocation, id));
static_assert(offsetof(cuda::MemoryKind, security) == offsetof(CUmemAllocationProp, win32HandleMetaData));
static_assert(offsetof(cuda::MemoryKind, flags) == offsetof(CUmemAllocationProp, allocFlags));
static_assert(cuda::MemoryKind().type == CU_MEM_ALLOCATION_TYPE_PINNED);
static_assert(cuda::MemoryKind().location_type == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(sizeof(cuda::MemoryAccess) == sizeof(CUmemAccessDesc));
static_assert(offsetof(cuda::MemoryAccess, rights) == offsetof(CUmemAccessDesc, flags));
static_assert(cuda::MemoryAccess().rights == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
static_assert(cuda::kLaunchCluster == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
static_assert(sizeof(cuda::LaunchAttribute) == sizeof(CUlaunchAttribute));
static_assert(offsetof(cuda::LaunchAttribute, cluster) == offsetof(CUlaunchAttribute, value));
static_assert(sizeof(cuda::LaunchForm) == sizeof(CUlaunchConfig));
static_assert(offsetof(cuda::LaunchForm, blocks) == offsetof(CUlaunchConfig, gridDimX));
static_assert(offsetof(cuda::LaunchForm, threads) == offsetof(CUlaunchConfig, blockDimX));
static_assert(offsetof(cuda::LaunchForm, shared) == offsetof(CUlaunchConfig, sharedMemBytes));
static_assert(offsetof(cuda::LaunchForm, stream) == offsetof(CUlaunchConfig, hStream));
static_assert(offsetof(cuda::LaunchForm, attributes) == offsetof(CUlaunchConfig, attrs));
static_assert(offsetof(cuda::LaunchForm, attribute_count) == offsetof(CUlaunchConfig, numAttrs));
static_assert(cuda::kBadCode == std::array<int, 3>{CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_NO_BINARY_FOR_GPU,
                                                   CUDA_ERROR_UNSUPPORTED_PTX_VERSION});
static_assert(cuda::kBreaks == std::array<int, 10>{CUDA_ERROR_ECC_UNCORRECTABLE, CUDA_ERROR_ILLEGAL_ADDRESS,
                                                   CUDA_ERROR_LAUNCH_TIMEOUT, CUDA_ERROR_CONTEXT_IS_DESTROYED,
                                                   CUDA_ERROR_HARDWARE_STACK_ERROR, CUDA_ERROR_ILLEGAL_INSTRUCTION,
                                                   CUDA_ERROR_MISALIGNED_ADDRESS, CUDA_ERROR_INVALID_ADDRESS_SPACE,
                                                   CUDA_ERROR_INVALID_PC, CUDA_ERROR_LAUNCH_FAILED});
TEST(CudaDeclarations, EqualTheHeaders) { RecordProperty("cuda_header", CUDA_VERSION); }

#else

TEST(CudaDeclarations, EqualTheHeaders) { GTEST_SKIP() << "no cuda.h and nvrtc.h on this machine"; }

#endif

}  // namespace
}  // namespace lathe::runtime
