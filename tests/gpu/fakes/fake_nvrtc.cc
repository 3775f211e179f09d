// A library in NVRTC's place: it hands a kernel's text to the host's compiler, with a prelude for the emulator instead
// of the device's, and gives the shared object in the form of a cubin. What it checks, NVRTC would.
#include "tests/gpu/fakes/fake_nvrtc.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/gpu/fakes/fake_cubin.h"
#include "tests/gpu/fakes/kernel_cache.h"

extern char** environ;

namespace {

using lathe::test::FakeNvrtc;
using lathe::test::KernelCache;
using lathe::test::MadeKernel;

constexpr int kOk = 0, kInvalidInput = 3, kCompilation = 6, kCancelled = 16;
constexpr int kRegisters = 24;

struct Program {
  std::string text, header_name, cubin, log;
  int (*callback)(void*, void*) = nullptr;
  void* payload = nullptr;
};

struct Row {
  const char *name, *operands, *host;
  char result;
};
constexpr char kind_of(std::string_view type) {
  const bool real = type == "f32" || type == "bf16" || type == "f16";
  return real ? 'f' : type == "b8" ? 'b' : 'i';
}
constexpr Row kOps[] = {
#define LATHE_DEVICE_OP(id, result, operands, device, host) {#id, operands, host, result},
#include "jit/cuda/device_ops.def"
#undef LATHE_DEVICE_OP
#define LATHE_INTEGER_OP(id, node, type, operands, device, host) {#id, operands, host, kind_of(#type)},
#include "jit/cuda/integer_ops.def"
#undef LATHE_INTEGER_OP
};

std::string host_prelude() {
  std::string out =
#include "tests/gpu/fakes/host_prelude.inc"
#include "tests/gpu/fakes/host_prelude_integers.inc"
      ;
  out +=
#include "jit/cuda/device_sines.inc"
#include "tests/gpu/fakes/host_groups.inc"
      ;
  for (int columns = 8; columns <= 256; columns += 8) {
    const std::string n = std::to_string(columns);
    out += "#ifdef LT_WGMMA_" + n + "\nLT_WGMMA(" + n + ")\n#endif\n";
  }
  const auto name_of = [](char kind) { return kind == 'f' ? "float " : kind == 'i' ? "int " : "bool "; };
  for (const Row& r : kOps) {
    std::string args;
    for (size_t i = 0; r.operands[i] != 0; ++i) {
      if (i > 0) args += ", ";
      args += std::string(name_of(r.operands[i])) + "abc"[i];
    }
    out += std::string("LT_FUNCTION ") + name_of(r.result) + "lt_" + r.name + "(" + args + ") { return " + r.host +
           "; }\n";
  }
  // Where in the text an access of memory stands tells which ones the threads of a warp do together.
  for (const char* name : {"load1", "load2", "load4", "load8", "load16", "load_bits1", "load_bits2", "load_bits4",
                           "load_bits8", "store1", "store2", "store4", "store8", "store16"}) {
    const std::string call = std::string("lt_") + name;
    out += "#define " + call + "(...) (lt_site = __LINE__, " + call + "(__VA_ARGS__))\n";
  }
  return out;
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// More would be optimised for longer than it runs. Of the host's libraries a kernel needs two alone.
constexpr const char* kFlags[] = {"-std=c++20", "-Og",   "-ffp-contract=off",   "-fPIC", "-shared",
                                  "-nostdlib",  "-Wall", "-Wno-unused-function"};
constexpr const char* kLibraries[] = {"-lm", "-lgcc_s"};

// LATHE_FAKE_NVRTC_CACHE: another folder than the build's, or "off".
const KernelCache& cache(const std::string& header_name) {
  static const KernelCache& out = *[&] {
    const char* folder = std::getenv("LATHE_FAKE_NVRTC_CACHE");
    struct stat compiler = {};
    (void)stat(LATHE_HOST_COMPILER, &compiler);
    std::string maker = LATHE_HOST_COMPILER " " __VERSION__ " " + std::to_string(compiler.st_mtime) + " " +
                        std::to_string(compiler.st_size);
    for (const char* flag : kFlags) maker += std::string(" ") + flag;
    for (const char* library : kLibraries) maker += std::string(" ") + library;
    maker += "\n" + header_name + "\n" + host_prelude();
    const std::string wanted = folder == nullptr ? LATHE_KERNEL_CACHE : folder;
    return new KernelCache(wanted == "off" ? "" : wanted, maker);
  }();
  return out;
}

// The compiler's log, and the shared object if there is one.
MadeKernel made_anew(const Program& p) {
  std::string folder = "/tmp/lathe_fake_nvrtc_XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return {};
  const std::string header = folder + "/" + p.header_name, source = folder + "/kernel.cc",
                    object = folder + "/kernel.so", log = folder + "/log";
  std::ofstream(header) << host_prelude();
  std::ofstream(source) << p.text;
  std::vector<const char*> args = {LATHE_HOST_COMPILER};
  args.insert(args.end(), std::begin(kFlags), std::end(kFlags));
  args.insert(args.end(), {"-o", object.c_str(), source.c_str()});
  args.insert(args.end(), std::begin(kLibraries), std::end(kLibraries));
  args.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 2, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t child = 0;
  int status = -1;
  // A measuring worker has no environment.
  char path[] = "PATH=/usr/local/bin:/usr/bin:/bin";
  char* bare[] = {path, nullptr};
  const int spawned = posix_spawnp(&child, args[0], &files, nullptr, const_cast<char**>(args.data()),
                                   std::getenv("PATH") == nullptr ? bare : environ);
  posix_spawn_file_actions_destroy(&files);
  if (spawned == 0) waitpid(child, &status, 0);
  MadeKernel out{read_file(log), {}};
  if (spawned == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0) out.code = read_file(object);
  for (const std::string& file : {header, source, object, log}) unlink(file.c_str());
  rmdir(folder.c_str());
  return out;
}

MadeKernel made(const Program& p) {
  if (std::optional<MadeKernel> known = cache(p.header_name).find(p.text)) return *std::move(known);
  MadeKernel out = made_anew(p);
  if (!out.code.empty()) cache(p.header_name).keep(p.text, out);
  return out;
}

// Counts itself among those that run.
class Running {
 public:
  explicit Running(FakeNvrtc& state) : state_(state) {
    ++state_.compiles;
    const int now = ++state_.running;
    int most = state_.most_at_once;
    while (now > most && !state_.most_at_once.compare_exchange_weak(most, now)) {
    }
  }
  ~Running() { --state_.running; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  FakeNvrtc& state_;
};

// False: the callback ended it.
bool wait_as_planted(const FakeNvrtc& state, const Program& p) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const auto past = [&](int ms) { return Clock::now() - start >= std::chrono::milliseconds(ms); };
  while (!past(state.delay_ms) || (state.most_at_once < state.wait_for && !past(20'000))) {
    if (p.callback != nullptr && p.callback(p.payload, nullptr) != 0) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace

extern "C" {

#define FAKE __attribute__((visibility("default")))

FAKE FakeNvrtc* fake_nvrtc() {
  static auto& state = *new FakeNvrtc;
  return &state;
}

FAKE int nvrtcVersion(int* major, int* minor) {
  *major = fake_nvrtc()->major;
  *minor = fake_nvrtc()->minor;
  return kOk;
}

FAKE const char* nvrtcGetErrorString(int error) { return error == kOk ? "NVRTC_SUCCESS" : "NVRTC_ERROR_COMPILATION"; }

FAKE int nvrtcSetFlowCallback(void* program, int (*callback)(void*, void*), void* payload) {
  auto& p = *static_cast<Program*>(program);
  p.callback = callback;
  p.payload = payload;
  return kOk;
}

FAKE int nvrtcCreateProgram(void** out, const char* text, const char*, int headers, const char* const* contents,
                            const char* const* names) {
  if (headers != 1 || std::strstr(contents[0], "__global__") == nullptr) return kInvalidInput;
  *out = new Program{text, names[0], {}, {}, nullptr, nullptr};
  return kOk;
}

FAKE int nvrtcCompileProgram(void* program, int num_options, const char* const* options) {
  auto& p = *static_cast<Program*>(program);
  int sm = 0;
  bool spared = false;
  for (int i = 0; i < num_options; ++i) {
    std::cmatch m;
    if (std::regex_match(options[i], m, std::regex("--gpu-architecture=sm_([0-9]+)[af]?"))) sm = std::stoi(m[1]);
    spared = spared || std::strcmp(options[i], "-Xptxas=--register-usage-level=0") == 0;
  }
  std::smatch kernel;
  const std::regex form("LT_(CLUSTER_)?KERNEL\\((\\w+), \\d+, \\d+, (\\d*)");
  if (sm == 0 || !std::regex_search(p.text, kernel, form)) return kInvalidInput;
  const int cluster = kernel[1].length() > 0 ? std::stoi(kernel[3]) : 1;
  FakeNvrtc& state = *fake_nvrtc();
  const Running running(state);
  if (!wait_as_planted(state, p)) return kCancelled;
  const MadeKernel kernel_code = made(p);
  p.log = kernel_code.log + state.log;
  const bool faulty = state.faults > 0 && state.faults.fetch_sub(1) > 0;
  if (faulty || (state.spills && !spared))
    p.log += "    8 bytes stack frame, 8 bytes spill stores, 16 bytes spill loads\n";
  if (kernel_code.code.empty()) return kCompilation;
  p.cubin = lathe::test::write_fake_cubin(sm, kernel[2], kRegisters, kernel_code.code, cluster);
  return kOk;
}

FAKE int nvrtcGetCUBINSize(void* program, size_t* size) {
  *size = static_cast<Program*>(program)->cubin.size();
  return kOk;
}
FAKE int nvrtcGetCUBIN(void* program, char* out) {
  const std::string& cubin = static_cast<Program*>(program)->cubin;
  std::memcpy(out, cubin.data(), cubin.size());
  return kOk;
}
FAKE int nvrtcGetProgramLogSize(void* program, size_t* size) {
  *size = static_cast<Program*>(program)->log.size() + 1;
  return kOk;
}
FAKE int nvrtcGetProgramLog(void* program, char* out) {
  std::strcpy(out, static_cast<Program*>(program)->log.c_str());
  return kOk;
}
FAKE int nvrtcDestroyProgram(void** program) {
  delete static_cast<Program*>(*program);
  *program = nullptr;
  return kOk;
}
}
