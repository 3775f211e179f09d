// A library in the driver's place: two devices of compute capability 9.0 whose memory is the host's and whose launches
// the emulator runs, at once. It checks what the driver would.
#include "tests/gpu/fakes/fake_cuda.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "tests/gpu/fakes/fake_cubin.h"
#include "tests/gpu/fakes/fake_cuda_parts.h"
#include "tests/gpu/fakes/fake_maps.h"

namespace {

using lathe::test::captured;
using lathe::test::EmulatedKernel;
using lathe::test::FakeCuda;
using lathe::test::kCudaUnsafeInCapture;
using lathe::test::would_end_a_capture;

constexpr int kOk = 0, kInvalidValue = 1, kInvalidContext = 201, kNoBinary = 209, kNotFound = 500, kMisaligned = 716,
              kIllegalAddress = 700, kInvalidCluster = 912;
constexpr int kDevices = 2, kSm = 90, kMultiprocessors = 132;
constexpr size_t kMemory = size_t{143771} << 20;  // as an H200's driver says

struct Library {
  std::string code;
};
struct Kernel {
  EmulatedKernel run;
  unsigned most_shared = 0;  // that a launch may ask for
};

thread_local int t_contexts = 0;  // pushed
int contexts[kDevices];

// The file's own name may ask for a failure, in whatever process opens it: "...fail-700-at-7...": the seventh launch
// fails, once; then a file of that name and ".done" is there.
int planted_failure() {
  static std::atomic<int> launches{0};
  Dl_info self{};
  std::cmatch m;
  if (dladdr(reinterpret_cast<void*>(&planted_failure), &self) == 0 ||
      !std::regex_search(self.dli_fname, m, std::regex("fail-([0-9]+)-at-([0-9]+)")) || ++launches < std::stoi(m[2]))
    return kOk;
  const std::string done = std::string(self.dli_fname) + ".done";
  if (std::ifstream(done).good()) return kOk;
  std::ofstream(done) << "done\n";
  return std::stoi(m[1]);
}

// A launch that leaves its memory ends as one on a device does.
thread_local sigjmp_buf* t_launch = nullptr;
struct sigaction before[2];
void on_fault(int signal, siginfo_t* info, void* context) {
  if (t_launch != nullptr) siglongjmp(*t_launch, 1);
  const struct sigaction& old = before[signal == SIGBUS];
  if ((old.sa_flags & SA_SIGINFO) != 0) return old.sa_sigaction(signal, info, context);
  sigaction(signal, &old, nullptr);  // and it comes again
}
void catch_faults() {
  static const bool once = [] {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &before[0]);
    sigaction(SIGBUS, &action, &before[1]);
    return true;
  }();
  (void)once;
}

int run(const EmulatedKernel& kernel, unsigned blocks, unsigned threads, const void* args) {
  FakeCuda& f = *fake_cuda();
  if (const int error = planted_failure(); error != kOk) return error;
  ++f.launches;
  catch_faults();
  sigjmp_buf launch;
  if (sigsetjmp(launch, 1) != 0) {
    t_launch = nullptr;
    return kIllegalAddress;
  }
  t_launch = &launch;
  f.why = kernel.run(blocks, threads, args, f.order, f.accesses);
  t_launch = nullptr;
  return f.why.empty() ? kOk : kMisaligned;
}

// As CUlaunchConfig.
constexpr int kLaunchCluster = 4;
struct Attribute {
  int id, padding;
  unsigned cluster[16];
};
struct Config {
  unsigned blocks[3], threads[3], shared;
  void* stream;
  const Attribute* attributes;
  unsigned attribute_count;
};

int launch(const Config& config, unsigned cluster, void* function, void** params, void** extra) {
  FakeCuda& f = *fake_cuda();
  if (t_contexts == 0) return kInvalidContext;
  const EmulatedKernel& kernel = static_cast<Kernel*>(function)->run;
  const auto& [blocks, threads, shared, stream, attributes, count] = config;
  const unsigned all = blocks[0], each = threads[0];
  if (stream == nullptr || all == 0 || all > 0x7fffffffu || blocks[1] != 1 || blocks[2] != 1 || threads[1] != 1 ||
      threads[2] != 1 || shared > static_cast<Kernel*>(function)->most_shared || extra != nullptr ||
      each != static_cast<unsigned>(kernel.threads()))
    return kInvalidValue;
  if (cluster != static_cast<unsigned>(kernel.cluster()) || all % cluster != 0) return kInvalidCluster;
  f.last_stream = stream;
  f.last_blocks = all;
  f.last_cluster = cluster;
  kernel.ask_for_shared(static_cast<int>(shared));
  if (const int error = f.fail_launch; error != 0) {
    f.fail_launch = 0;
    return error;
  }
  // A copy of as many bytes as the kernel takes, as the driver makes one.
  const auto* first = static_cast<const char*>(params[0]);
  std::vector<char> args(first, first + kernel.arg_bytes());
  if (captured(stream, [&kernel, all, each, args] { return run(kernel, all, each, args.data()); })) return kOk;
  return run(kernel, all, each, args.data());
}

}  // namespace

int lathe::test::current_contexts() { return t_contexts; }

extern "C" {

#define FAKE __attribute__((visibility("default")))

FAKE int lathe_emulated = 1;
FAKE FakeCuda* fake_cuda() {
  static auto& state = *new FakeCuda;
  return &state;
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
  std::strncpy(name, "NVIDIA H200", static_cast<size_t>(size));
  return kOk;
}
FAKE int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75 ? kSm / 10 : attribute == 76 ? kSm % 10 : kMultiprocessors;
  return attribute == 75 || attribute == 76 || attribute == 16 ? kOk : kInvalidValue;
}
FAKE int cuDeviceTotalMem_v2(size_t* bytes, int) {
  *bytes = kMemory;
  return kOk;
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
  if (would_end_a_capture()) return kCudaUnsafeInCapture;
  if (const int failure = fake_cuda()->fail_load; failure != 0) return failure;
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
FAKE int cuKernelSetAttribute(int attribute, int value, void* kernel, int) {
  if (attribute != 8 || value < 0 || value > 232448) return kInvalidValue;
  static_cast<Kernel*>(kernel)->most_shared = static_cast<unsigned>(value);
  return kOk;
}
FAKE int cuTensorMapEncodeTiled(void* map, int type, unsigned dims, void* base, const unsigned long long* sizes,
                                const unsigned long long* strides, const unsigned* box, const unsigned* steps,
                                int interleave, int swizzle, int promotion, int fill) {
  return lathe::test::encode_map(map, type, dims, base, sizes, strides, box, steps, interleave, swizzle, promotion,
                                 fill);
}
FAKE int cuLaunchKernel(void* function, unsigned blocks, unsigned blocks_y, unsigned blocks_z, unsigned threads,
                        unsigned threads_y, unsigned threads_z, unsigned shared, void* stream, void** params,
                        void** extra) {
  const Config config{{blocks, blocks_y, blocks_z}, {threads, threads_y, threads_z}, shared, stream, nullptr, 0};
  return launch(config, 1, function, params, extra);
}
FAKE int cuLaunchKernelEx(const void* how, void* function, void** params, void** extra) {
  const Config& config = *static_cast<const Config*>(how);
  if (config.attribute_count != 1 || config.attributes[0].id != kLaunchCluster) return kInvalidValue;
  const unsigned* cluster = config.attributes[0].cluster;
  if (cluster[0] == 0 || cluster[1] != 1 || cluster[2] != 1) return kInvalidCluster;
  return launch(config, cluster[0], function, params, extra);
}
}
