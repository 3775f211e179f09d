// A library in the driver's place: devices whose memory is the host's and whose launches the emulator runs, at once. It
// checks what the driver would. Devices 0 and 1 are H200s; behind them each row of ir/base/gpu_targets.def is one.
#include "tests/gpu/fakes/fake_cuda.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <iterator>
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

struct Gpu {
  const char* name;
  int sm, multiprocessors;
  size_t memory;
  // That a block may ask for, by the programming guide.
  int most_shared() const { return sm >= 100 || (sm > 80 && sm < 90) ? 101376 : sm == 80 ? 166912 : 232448; }
};
// A driver says somewhat less than the memory's nominal size.
constexpr size_t memory_of(int gib) { return (size_t{1} << 30) * static_cast<size_t>(gib) - (size_t{229} << 20); }
constexpr Gpu kH200 = {"NVIDIA H200", 90, 132, size_t{143771} << 20};
constexpr Gpu kGpus[] = {
    kH200,
    kH200,
#define LATHE_GPU(id, name, sm, architecture, multiprocessors, memory_gib) \
  {name, sm, multiprocessors, memory_of(memory_gib)},
#include "ir/base/gpu_targets.def"
#undef LATHE_GPU
};
constexpr int kDevices = static_cast<int>(std::size(kGpus));

struct Library {
  std::string code;
  int sm = 0;
};
struct Kernel {
  EmulatedKernel run;
  int sm = 0;
  unsigned most_shared = 0;  // that a launch may ask for
};

thread_local std::vector<int> t_contexts;  // the devices of those that were pushed
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
  f.why = kernel.run(blocks, threads, args, {.order = f.order}, f.accesses);
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
  if (t_contexts.empty()) return kInvalidContext;
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

int lathe::test::current_device() { return t_contexts.empty() ? -1 : t_contexts.back(); }

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
FAKE int cuDeviceGetName(char* name, int size, int device) {
  std::strncpy(name, kGpus[device].name, static_cast<size_t>(size));
  return kOk;
}
FAKE int cuDeviceGetAttribute(int* value, int attribute, int device) {
  const Gpu& gpu = kGpus[device];
  *value = attribute == 75 ? gpu.sm / 10 : attribute == 76 ? gpu.sm % 10 : gpu.multiprocessors;
  return attribute == 75 || attribute == 76 || attribute == 16 ? kOk : kInvalidValue;
}
FAKE int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  *bytes = kGpus[device].memory;
  return kOk;
}
FAKE int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = &contexts[device];
  return kOk;
}
FAKE int cuCtxPushCurrent_v2(void* context) {
  if (context < &contexts[0] || context >= &contexts[kDevices]) return kInvalidContext;
  t_contexts.push_back(static_cast<int>(static_cast<int*>(context) - contexts));
  return kOk;
}
FAKE int cuCtxPopCurrent_v2(void**) {
  t_contexts.pop_back();
  return kOk;
}
FAKE int cuLibraryLoadData(void** library, const void* code, int*, void**, unsigned, int*, void**, unsigned) {
  const std::string_view host = lathe::test::host_code(code);
  if (would_end_a_capture()) return kCudaUnsafeInCapture;
  if (const int failure = fake_cuda()->fail_load; failure != 0) return failure;
  const int sm = lathe::test::fake_cubin_sm(code);
  if (host.empty() || std::none_of(std::begin(kGpus), std::end(kGpus), [sm](const Gpu& g) { return g.sm == sm; }))
    return kNoBinary;
  *library = new Library{std::string(host), sm};
  ++fake_cuda()->loads;
  return kOk;
}
FAKE int cuLibraryGetKernel(void** kernel, void* library, const char* name) {
  const Library& from = *static_cast<Library*>(library);
  auto made = std::make_unique<Kernel>();
  made->sm = from.sm;
  if (!made->run.open(from.code, name)) return kNotFound;
  *kernel = made.release();
  return kOk;
}
FAKE int cuLibraryUnload(void* library) {
  delete static_cast<Library*>(library);
  return kOk;
}
FAKE int cuKernelGetFunction(void** function, void* kernel) {
  *function = kernel;
  if (t_contexts.empty()) return kInvalidContext;
  return static_cast<Kernel*>(kernel)->sm == kGpus[t_contexts.back()].sm ? kOk : kNoBinary;
}
FAKE int cuKernelSetAttribute(int attribute, int value, void* kernel, int device) {
  if (attribute != 8 || value < 0 || value > kGpus[device].most_shared()) return kInvalidValue;
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
