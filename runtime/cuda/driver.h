// The CUDA driver, opened when a device is first asked for and never closed: its functions by name, from declarations
// of the project's own. Nothing is linked. Thread-safe.
#pragma once
#include <memory>
#include <string>

#include "ir/base/status.h"

namespace lathe::runtime {

struct CudaDriver {
#define LATHE_CUDA(name, ...) int (*name)(__VA_ARGS__) = nullptr;
#include "runtime/cuda/driver.def"
#undef LATHE_CUDA

  // path: a library to open; empty: libcuda.so.1. DEVICE, with the reason: it is not there, finds no device, is the
  // toolkit's stub, or is older than 12.0.
  static ir::Result<std::shared_ptr<const CudaDriver>> open(const std::string& path);

  int devices = 0;
  std::string version;  // "12.4"
  // "CUDA_ERROR_INVALID_VALUE (1)"
  std::string name_of(int error) const;
  // DEVICE, naming what was done and the error; OK for 0.
  ir::Status check(int error, const char* what) const;
};

}  // namespace lathe::runtime
