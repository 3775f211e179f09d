// See device.h.
#include "runtime/cuda/device.h"

#include <algorithm>
#include <array>

#include "ir/base/hash.h"

namespace lathe::runtime {

using ir::Code;
using ir::make_error;
using ir::Result;
using ir::Status;

namespace {

// One per process, as the mapping of the driver is.
struct Registry {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<const CudaDriver>> drivers;
  std::map<std::pair<std::string, int>, std::shared_ptr<CudaDevice>> devices;
};
Registry& registry() {
  static Registry& r = *new Registry;  // calls may come while the process ends
  return r;
}

// Loading allocates, which would end the capture of any stream that this thread is not told to leave alone.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const CudaDriver& driver) : driver_(driver) {
    (void)driver_.cuThreadExchangeStreamCaptureMode(&mode_);
  }
  ~RelaxedCapture() { (void)driver_.cuThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const CudaDriver& driver_;
  int mode_ = cuda::kCaptureRelaxed;
};

}  // namespace

Status CudaDevice::working() const {
  const int error = broken_.load(std::memory_order_relaxed);
  if (error == 0) return {};
  return make_error(Code::kDEVICE, "device {} failed before: {}", number_, driver_->name_of(error));
}

Status CudaDevice::note(int error, const char* what) {
  if (std::find(cuda::kBreaks.begin(), cuda::kBreaks.end(), error) != cuda::kBreaks.end())
    broken_.store(error, std::memory_order_relaxed);
  return driver_->check(error, what);
}

Result<std::shared_ptr<CudaDevice>> CudaDevice::open(std::shared_ptr<const CudaDriver> driver, int number) {
  const CudaDriver& d = *driver;
  if (number >= d.devices) return make_error(Code::kDEVICE, "device {}, and the driver has {}", number, d.devices);
  std::shared_ptr<CudaDevice> out(new CudaDevice(driver, number));
  int handle = 0, major = 0, minor = 0, multiprocessors = 0;
  size_t memory = 0;
  LATHE_RETURN_IF_ERROR(d.check(d.cuDeviceGet(&handle, number), "device"));
  std::array<char, 256> name{};
  LATHE_RETURN_IF_ERROR(d.check(d.cuDeviceGetName(name.data(), static_cast<int>(name.size()) - 1, handle), "name"));
  LATHE_RETURN_IF_ERROR(d.check(d.cuDeviceGetAttribute(&major, cuda::kAttributeMajor, handle), "compute capability"));
  LATHE_RETURN_IF_ERROR(d.check(d.cuDeviceGetAttribute(&minor, cuda::kAttributeMinor, handle), "compute capability"));
  LATHE_RETURN_IF_ERROR(
      d.check(d.cuDeviceGetAttribute(&multiprocessors, cuda::kAttributeMultiprocessors, handle), "multiprocessors"));
  LATHE_RETURN_IF_ERROR(d.check(d.cuDeviceTotalMem_v2(&memory, handle), "size of its memory"));
  out->target_ = ir::gpu_target(name.data(), major, minor, multiprocessors, memory);
  if (out->target_.sm < ir::kLeastSm)
    return ir::unsupported("{} has compute capability {}.{}, expected 8.0 or later", name.data(), major, minor);
  LATHE_RETURN_IF_ERROR(d.check(d.cuDevicePrimaryCtxRetain(&out->primary_, handle), "primary context"));
  return out;
}

Result<void*> CudaDevice::load(const std::string& cubin, const std::string& kernel, int shared) {
  LATHE_RETURN_IF_ERROR(working());
  const std::string hash = ir::content_hash(cubin.data(), cubin.size());
  const std::lock_guard lock(mutex_);
  void*& loaded = loaded_[hash];
  if (loaded != nullptr) return loaded;
  const CudaDriver& d = *driver_;
  void *library = nullptr, *found = nullptr, *function = nullptr;
  const RelaxedCapture relaxed(d);
  const int error = d.cuLibraryLoadData(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (std::find(cuda::kBadCode.begin(), cuda::kBadCode.end(), error) != cuda::kBadCode.end())
    return ir::invalid("code that device {} does not take: {}", number_, d.name_of(error));
  LATHE_RETURN_IF_ERROR(note(error, "loading code"));
  Status status = note(d.cuLibraryGetKernel(&found, library, kernel.c_str()), "kernel");
  // Now, not at the first launch, which may be captured.
  if (status.ok()) {
    const CurrentDevice current(*this);
    status = note(d.cuKernelGetFunction(&function, found), "loading the kernel");
    int handle = 0;
    if (status.ok() && shared > 0) status = note(d.cuDeviceGet(&handle, number_), "device");
    if (status.ok() && shared > 0)
      status = note(d.cuKernelSetAttribute(cuda::kAttributeDynamicShared, shared, found, handle), "shared memory");
  }
  if (!status.ok()) {
    (void)d.cuLibraryUnload(library);
    return status;
  }
  loaded = found;
  return loaded;
}

Status CudaDevice::check_memory(const void* address) {
  LATHE_RETURN_IF_ERROR(working());
  const auto at = static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(address));
  unsigned type = 0;
  int owner = 0;
  const int error = driver_->cuPointerGetAttribute(&type, cuda::kPointerMemoryType, at);
  if (error == cuda::kInvalidValue || (error == 0 && type == cuda::kMemoryHost))
    return ir::invalid("host memory, expected memory of device {}", number_);
  LATHE_RETURN_IF_ERROR(note(error, "memory type"));
  if (type != cuda::kMemoryDevice) return ir::invalid("memory of type {}, expected memory of device {}", type, number_);
  LATHE_RETURN_IF_ERROR(note(driver_->cuPointerGetAttribute(&owner, cuda::kPointerOrdinal, at), "memory's device"));
  if (owner != number_) return ir::invalid("memory of device {}, expected device {}", owner, number_);
  return {};
}

Status CudaDevice::launch(void* kernel, const LaunchShape& shape, void* args, void* stream) {
  LATHE_RETURN_IF_ERROR(working());
  void* params[] = {args};
  const auto [blocks, threads, shared, cluster] = shape;
  int error = 0;
  if (cluster == 1) {
    error = driver_->cuLaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, shared, stream, params, nullptr);
  } else {
    cuda::LaunchAttribute attribute;
    attribute.cluster[0] = cluster;
    const cuda::LaunchForm form{{blocks, 1, 1}, {threads, 1, 1}, shared, stream, &attribute, 1};
    error = driver_->cuLaunchKernelEx(&form, kernel, params, nullptr);
  }
  return error == 0 ? Status() : note(error, "launch");
}

Result<std::shared_ptr<CudaDevice>> cuda_device(const std::string& path, int number) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  std::shared_ptr<CudaDevice>& known = r.devices[{path, number}];
  if (known != nullptr) return known;
  std::shared_ptr<const CudaDriver>& driver = r.drivers[path];
  if (driver == nullptr) {
    LATHE_ASSIGN(driver, CudaDriver::open(path));
  }
  LATHE_ASSIGN(known, CudaDevice::open(driver, number));
  return known;
}

}  // namespace lathe::runtime
