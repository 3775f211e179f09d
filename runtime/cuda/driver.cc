// See driver.h.
#include "runtime/cuda/driver.h"

#include <dlfcn.h>

namespace lathe::runtime {

using ir::Code;
using ir::make_error;
using ir::Result;
using ir::Status;

namespace {
constexpr char kLibrary[] = "libcuda.so.1";
constexpr int kLeastVersion = 12000;
}  // namespace

std::string CudaDriver::name_of(int error) const {
  const char* name = nullptr;
  if (cuGetErrorName(error, &name) != 0 || name == nullptr) name = "CUDA error";
  return fmt::format("{} ({})", name, error);
}

Status CudaDriver::check(int error, const char* what) const {
  return error == 0 ? Status() : make_error(Code::kDEVICE, "{}: {}", what, name_of(error));
}

Result<std::shared_ptr<const CudaDriver>> CudaDriver::open(const std::string& path) {
  const char* file = path.empty() ? kLibrary : path.c_str();
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    return make_error(Code::kDEVICE, "no CUDA driver: {}", why == nullptr ? file : why);
  }
  auto out = std::make_shared<CudaDriver>();
#define LATHE_CUDA(name, ...)                                                \
  out->name = reinterpret_cast<int (*)(__VA_ARGS__)>(dlsym(library, #name)); \
  if (out->name == nullptr)                                                  \
    return make_error(Code::kDEVICE, "{} lacks {}: expected a driver of 12.0 or later", file, #name);
#include "runtime/cuda/driver.def"
#undef LATHE_CUDA
  Dl_info info{};
  out->file =
      dladdr(reinterpret_cast<void*>(out->cuInit), &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : file;
  out->emulated = dlsym(library, "lathe_emulated") != nullptr;
  const int started = out->cuInit(0);
  if (started == cuda::kStubLibrary) return make_error(Code::kDEVICE, "no CUDA driver: {} is the toolkit's stub", file);
  LATHE_RETURN_IF_ERROR(out->check(started, "the CUDA driver does not start"));
  int version = 0;
  LATHE_RETURN_IF_ERROR(out->check(out->cuDriverGetVersion(&version), "version of the CUDA driver"));
  out->version = fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  if (version < kLeastVersion) return make_error(Code::kDEVICE, "CUDA driver {}, expected 12.0 or later", out->version);
  LATHE_RETURN_IF_ERROR(out->check(out->cuDeviceGetCount(&out->devices), "number of devices"));
  return std::shared_ptr<const CudaDriver>(std::move(out));
}

}  // namespace lathe::runtime
