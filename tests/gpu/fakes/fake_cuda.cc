// A library in the driver's place: two devices of compute capability 9.0 whose memory is the host's and whose launches
// the emulator runs, at once. It checks what the driver would.
#include "tests/gpu/fakes/fake_cuda.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "tests/gpu/fakes/fake_cubin.h"

namespace {

using lathe::test::EmulatedKernel;
using lathe::test::FakeCuda;

constexpr int kOk = 0, kInvalidValue = 1, kInvalidContext = 201, kNoBinary = 209, kNotFound = 500, kMisaligned = 716;
constexpr int kDevices = 2, kSm = 90;

struct Memory {
  size_t bytes = 0;
  int device = 0;
  void* mapping = nullptr;
  size_t mapped = 0;
};
struct Library {
  std::string code;
};
struct Kernel {
  EmulatedKernel run;
};

std::mutex& mutex() {
  static std::mutex m;
  return m;
}
std::map<uintptr_t, Memory>& memories() {
  static auto& m = *new std::map<uintptr_t, Memory>;
  return m;
}
thread_local int t_contexts = 0;  // pushed
int contexts[kDevices];

}  // namespace

extern "C" {

#define FAKE __attribute__((visibility("default")))

FAKE FakeCuda* fake_cuda() {
  static auto& state = *new FakeCuda;
  return &state;
}

FAKE void* fake_cuda_alloc(size_t bytes, int device) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t room = (bytes + page - 1) / page * page;
  auto* base =
      static_cast<char*>(mmap(nullptr, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  mprotect(base + room, page, PROT_NONE);
  char* at = base + room - bytes;
  const std::lock_guard lock(mutex());
  memories()[reinterpret_cast<uintptr_t>(at)] = {bytes, device, base, room + page};
  return at;
}
FAKE void fake_cuda_free(void* address) {
  const std::lock_guard lock(mutex());
  const auto it = memories().find(reinterpret_cast<uintptr_t>(address));
  munmap(it->second.mapping, it->second.mapped);
  memories().erase(it);
}

FAKE int cuInit(unsigned) { return fake_cuda()->start; }
FAKE int cuDriverGetVersion(int* version) {
  *version = fake_cuda()->version;
  return kOk;
}
FAKE int cuGetErrorName(int error, const char** name) {
  *name = error == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : error == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR_FAKE";
  return kOk;
}
FAKE int cuDeviceGetCount(int* count) {
  *count = kDevices;
  return kOk;
}
FAKE int cuDeviceGet(int* device, int number) {
  *device = number;
  return number < kDevices ? kOk : 101;
}
FAKE int cuDeviceGetName(char* name, int size, int) {
  std::strncpy(name, "Fake H200", static_cast<size_t>(size));
  return kOk;
}
FAKE int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75 ? kSm / 10 : kSm % 10;
  return attribute == 75 || attribute == 76 ? kOk : kInvalidValue;
}
FAKE int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = &contexts[device];
  return kOk;
}
FAKE int cuCtxPushCurrent_v2(void* context) {
  ++t_contexts;
  return context >= &contexts[0] && context < &contexts[kDevices] ? kOk : kInvalidContext;
}
FAKE int cuCtxPopCurrent_v2(void**) {
  --t_contexts;
  return kOk;
}
FAKE int cuLibraryLoadData(void** library, const void* code, int*, void**, unsigned, int*, void**, unsigned) {
  const std::string_view host = lathe::test::host_code(code);
  if (host.empty() || lathe::test::fake_cubin_sm(code) != kSm) return kNoBinary;
  *library = new Library{std::string(host)};
  ++fake_cuda()->loads;
  return kOk;
}
FAKE int cuLibraryGetKernel(void** kernel, void* library, const char* name) {
  auto made = std::make_unique<Kernel>();
  if (!made->run.open(static_cast<Library*>(library)->code, name)) return kNotFound;
  *kernel = made.release();
  return kOk;
}
FAKE int cuLibraryUnload(void* library) {
  delete static_cast<Library*>(library);
  return kOk;
}
FAKE int cuKernelGetFunction(void** function, void* kernel) {
  *function = kernel;
  return t_contexts > 0 ? kOk : kInvalidContext;
}
FAKE int cuPointerGetAttribute(void* data, int attribute, unsigned long long address) {
  const std::lock_guard lock(mutex());
  auto at = memories().upper_bound(address);
  if (at == memories().begin()) return kInvalidValue;
  --at;
  if (address - at->first >= at->second.bytes) return kInvalidValue;
  if (attribute == 2) {
    *static_cast<unsigned*>(data) = 2;
  } else if (attribute == 9) {
    *static_cast<int*>(data) = at->second.device;
  } else {
    return kInvalidValue;
  }
  return kOk;
}
FAKE int cuLaunchKernel(void* function, unsigned blocks, unsigned blocks_y, unsigned blocks_z, unsigned threads,
                        unsigned threads_y, unsigned threads_z, unsigned shared, void* stream, void** params,
                        void** extra) {
  FakeCuda& f = *fake_cuda();
  const EmulatedKernel& kernel = static_cast<Kernel*>(function)->run;
  if (stream == nullptr || blocks == 0 || blocks > 0x7fffffffu || blocks_y != 1 || blocks_z != 1 || threads_y != 1 ||
      threads_z != 1 || shared != 0 || extra != nullptr || threads != static_cast<unsigned>(kernel.threads()))
    return kInvalidValue;
  f.last_stream = stream;
  if (const int error = f.fail_launch; error != 0) {
    f.fail_launch = 0;
    return error;
  }
  ++f.launches;
  // A copy of as many bytes as the kernel takes, as the driver makes one.
  const auto args = std::make_unique<char[]>(kernel.arg_bytes());
  std::memcpy(args.get(), params[0], kernel.arg_bytes());
  f.why = kernel.run(blocks, threads, args.get(), f.order, f.accesses);
  return f.why.empty() ? kOk : kMisaligned;
}
}
