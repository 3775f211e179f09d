// See nvrtc.h. The declarations are the project's own, from NVIDIA's documented C interface.
#include "jit/cuda/compile/nvrtc.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <vector>

#include "ir/base/options.h"
#include "jit/cuda/compile/nvidia_packages.h"
#include "jit/cuda/compile/tile_counts.h"
#include "jit/cuda/text/cuda_text.h"

namespace lathe::jit {

using ir::Result;
using ir::Status;
using ir::unsupported;

namespace {

constexpr int kLeastMajor = 12, kLeastMinor = 3;  // the first whose code for sm_90a is sound
using Program = void*;

// What users may have beside each other, the newest first.
constexpr const char* kNames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
constexpr const char* kPrefixes[] = {"/usr/local/cuda", "/opt/cuda"};
constexpr const char* kOptions[] = {"--std=c++17",
                                    "--minimal",
                                    "--fmad=false",
                                    "--modify-stack-limit=false",
                                    "-Xptxas=-v",
                                    "-Xptxas=--warn-on-spills",
                                    "-Xptxas=--warn-on-local-memory-usage"};
// Leaves out what makes code faster and takes registers for it.
constexpr const char* kSparing = "-Xptxas=--register-usage-level=0";

constexpr int64_t kManyLocals = 64, kMostOfHalf = 112;  // about as many as leave room in 128 registers
constexpr int kHalfOfThreads = 256, kMostTogether = 4;

bool holds_factors(const std::vector<DeviceStmt>& list) {
  return std::any_of(list.begin(), list.end(), [](const DeviceStmt& s) {
    const bool held = s.kind == DeviceStmt::Kind::warp && warp_op(s.warp).goes_on() && warp_op(s.warp).held() > 0;
    return held || holds_factors(s.body) || holds_factors(s.otherwise);
  });
}

// Blocks that a multiprocessor should hold at once; more than 1 asks the compiler for as few registers as that takes,
// which it may not manage without local memory.
int wanted_blocks(const DeviceProgram& program) {
  int64_t locals = 0;
  for (const DeviceLocal& l : program.locals) locals += l.registers();
  const bool half = program.threads == kHalfOfThreads && program.roles.fillers == 0;
  if (half && locals >= kManyLocals && locals <= kMostOfHalf) return 2;
  // Four warps whose next products need the results of those before: others multiply meanwhile.
  if (program.threads != kGroupThreads || !holds_factors(program.body)) return 1;
  return std::clamp(kMostShared / std::max(dynamic_shared(program), 1), 1, kMostTogether);
}

}  // namespace

struct Nvrtc::Table {
#define LATHE_NVRTC(name, ...) int (*name)(__VA_ARGS__) = nullptr;
#include "jit/cuda/compile/nvrtc.def"
#undef LATHE_NVRTC
  int (*nvrtcSetFlowCallback)(void*, int (*)(void*, void*), void*) = nullptr;  // or it has none
  const char* (*nvrtcGetErrorString)(int) = nullptr;

  // The first name that is missing; null: it has them all.
  const char* find(void* library) {
#define LATHE_NVRTC(name, ...)                                          \
  name = reinterpret_cast<int (*)(__VA_ARGS__)>(dlsym(library, #name)); \
  if (name == nullptr) return #name;
#include "jit/cuda/compile/nvrtc.def"
#undef LATHE_NVRTC
#define LATHE_NVRTC(name, ...)
#define LATHE_NVRTC_OPTIONAL(name, ...) name = reinterpret_cast<int (*)(__VA_ARGS__)>(dlsym(library, #name));
#include "jit/cuda/compile/nvrtc.def"
#undef LATHE_NVRTC
    nvrtcGetErrorString = reinterpret_cast<const char* (*)(int)>(dlsym(library, "nvrtcGetErrorString"));
    return nvrtcGetErrorString == nullptr ? "nvrtcGetErrorString" : nullptr;
  }
};

namespace {

std::vector<std::string> places(const std::string& path) {
  if (!path.empty()) return {path};
  std::vector<std::string> out(std::begin(kNames), std::end(kNames));
  std::vector<std::string> prefixes;
  for (const char* variable : {"CUDA_PATH", "CUDA_HOME"}) {
    if (const auto value = ir::process_environment(variable); value && !value->empty()) prefixes.push_back(*value);
  }
  prefixes.insert(prefixes.end(), std::begin(kPrefixes), std::end(kPrefixes));
  for (const std::string& prefix : prefixes) {
    for (const char* name : kNames) out.push_back(prefix + "/lib64/" + name);
  }
  for (const std::string& folder : nvidia_packages()) {
    out.push_back(folder + "/cu13/lib/" + kNames[0]);
    out.push_back(folder + "/cuda_nvrtc/lib/" + kNames[1]);
  }
  return out;
}

// Those that the process has already.
std::vector<void*> loaded_already() {
  std::vector<void*> out;
  for (const char* name : kNames) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_NOLOAD)) out.push_back(library);
  }
  return out;
}

// What the callback of a compilation looks at.
struct Watch {
  const CompileLimits& limits;
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  std::atomic<bool> late{false}, cancelled{false};  // once true they stay so, as NVRTC wants it
};

// 1 ends the compilation. Any thread of NVRTC's.
int look(void* watch, void*) {
  Watch& w = *static_cast<Watch*>(watch);
  if (w.limits.cancelled && w.limits.cancelled()) w.cancelled = true;
  using Clock = std::chrono::steady_clock;
  const Clock::time_point now = Clock::now();
  const bool alone = w.limits.ends == Clock::time_point::max();
  if (alone ? now - w.start > std::chrono::milliseconds(w.limits.most_ms) : now >= w.limits.ends) w.late = true;
  return w.cancelled || w.late ? 1 : 0;
}

}  // namespace

std::string nvrtc_options() {
  std::string out;
  for (const char* o : kOptions) out += fmt::format("{}{}", out.empty() ? "" : " ", o);
  return out;
}

int nvrtc_major(std::string_view version) {
  constexpr std::string_view kName = "nvrtc ";
  int major = 0;
  if (version.substr(0, kName.size()) != kName) return 0;
  version.remove_prefix(kName.size());
  (void)std::from_chars(version.data(), version.data() + version.size(), major);
  return major;
}

std::string Nvrtc::file() const {
  Dl_info info{};
  const bool found = dladdr(reinterpret_cast<void*>(table_->nvrtcVersion), &info) != 0 && info.dli_fname != nullptr;
  return found ? info.dli_fname : "";
}

bool Nvrtc::can_cancel() const { return table_->nvrtcSetFlowCallback != nullptr; }

Result<std::shared_ptr<const Nvrtc>> Nvrtc::of_library(void* library) {
  auto table = std::make_shared<Table>();
  if (const char* missing = table->find(library)) return unsupported("NVRTC lacks {}", missing);
  int major = 0, minor = 0;
  if (table->nvrtcVersion(&major, &minor) != 0) return unsupported("NVRTC does not tell its version");
  std::shared_ptr<Nvrtc> out(new Nvrtc(std::move(table)));
  if (major < kLeastMajor || (major == kLeastMajor && minor < kLeastMinor))
    return unsupported("NVRTC {}.{}, expected at least {}.{}; {}", major, minor, kLeastMajor, kLeastMinor, out->file());
  out->version_ = fmt::format("nvrtc {}.{}", major, minor);
  out->major_ = major;
  return std::shared_ptr<const Nvrtc>(std::move(out));
}

Result<std::shared_ptr<const Nvrtc>> Nvrtc::open(const std::string& path, int most_major) {
  Result<std::shared_ptr<const Nvrtc>> refused = unsupported("no NVRTC");
  std::shared_ptr<const Nvrtc> newer;
  const auto take = [&](void* library) {
    Result<std::shared_ptr<const Nvrtc>> opened = of_library(library);
    if (!opened.ok()) {
      refused = std::move(opened);
      return std::shared_ptr<const Nvrtc>();
    }
    if (most_major == 0 || (*opened)->major() <= most_major) return std::move(*opened);
    if (newer == nullptr) newer = std::move(*opened);
    return std::shared_ptr<const Nvrtc>();
  };
  if (path.empty()) {
    for (void* library : loaded_already()) {
      if (auto taken = take(library)) return taken;
    }
  }
  std::string reasons;
  for (const std::string& place : places(path)) {
    void* library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* why = dlerror();
      reasons += fmt::format("; {}", why == nullptr ? place.c_str() : why);
      continue;
    }
    if (auto taken = take(library)) return taken;
  }
  if (newer != nullptr) return newer;  // whoever asked says what is wrong with it
  return refused.status().message() == "no NVRTC" ? unsupported("no NVRTC{}", reasons) : refused;
}

Result<CompiledKernel> Nvrtc::compile(const DeviceProgram& program, const std::string& kernel,
                                      const ir::GpuTarget& target, const CompileLimits& limits) const {
  if (const int shared = dynamic_shared(program); shared > ir::most_shared(target))
    return ir::unsupported("{} bytes of shared memory, {} has {}", shared, target.name, ir::most_shared(target));
  if (program.cluster > 1 && !ir::has_clusters(target))
    return ir::unsupported("clusters of {} blocks, {} has none", program.cluster, target.name);
  bool spilled = false;
  const auto compiled = [&](int blocks) {
    const std::string text = cuda_text(program, kernel, blocks);
    Result<CompiledKernel> out = compile(text, kernel, target, limits, Registers::as_usual, &spilled);
    if (!spilled) return out;
    Result<CompiledKernel> spared = compile(text, kernel, target, limits, Registers::spared, nullptr);
    return spared.ok() ? std::move(spared) : std::move(out);
  };
  const int blocks = wanted_blocks(program);
  Result<CompiledKernel> made = compiled(blocks);
  if (blocks > 1 && !made.ok() && spilled) made = compiled(1);
  if (!made.ok()) return made;
  const std::string missed = missed_tiles(tile_counts(program), made->info);
  if (!missed.empty()) return unsupported("{}: {} in what the compiler made", kernel, missed);
  return made;
}

Result<CompiledKernel> Nvrtc::compile(const std::string& text, const std::string& kernel, const ir::GpuTarget& target,
                                      const CompileLimits& limits) const {
  return compile(text, kernel, target, limits, Registers::as_usual, nullptr);
}

Result<CompiledKernel> Nvrtc::compile(const std::string& text, const std::string& kernel, const ir::GpuTarget& target,
                                      const CompileLimits& limits, Registers registers, bool* spilled) const {
  if (spilled != nullptr) *spilled = false;
  const Table& t = *table_;
  const auto check = [&](int error, const char* what) {
    return error == 0 ? Status() : ir::internal_error("{}: {}: {}", version_, what, t.nvrtcGetErrorString(error));
  };
  const char* const headers[] = {device_prelude().c_str()};
  const char* const names[] = {kPreludeName};
  Program program = nullptr;
  LATHE_RETURN_IF_ERROR(
      check(t.nvrtcCreateProgram(&program, text.c_str(), (kernel + ".cu").c_str(), 1, headers, names), "create"));
  const auto destroy = [&](Program* p) { (void)t.nvrtcDestroyProgram(p); };
  const std::unique_ptr<Program, decltype(destroy)> owned(&program, destroy);
  const std::string architecture = "--gpu-architecture=" + target.architecture;
  std::vector<const char*> options(std::begin(kOptions), std::end(kOptions));
  options.push_back(architecture.c_str());
  if (registers == Registers::spared) options.push_back(kSparing);
  Watch watch{limits};
  if (t.nvrtcSetFlowCallback != nullptr)
    LATHE_RETURN_IF_ERROR(check(t.nvrtcSetFlowCallback(program, look, &watch), "flow callback"));
  const int compiled = t.nvrtcCompileProgram(program, static_cast<int>(options.size()), options.data());
  CompiledKernel out;
  size_t size = 0;
  if (t.nvrtcGetProgramLogSize(program, &size) == 0 && size > 1) {
    std::string log(size, '\0');
    if (t.nvrtcGetProgramLog(program, log.data()) == 0) out.log = log.c_str();
  }
  const std::string whole = out.log;
  out.log = what_matters(whole);
  if (watch.cancelled) return ir::make_error(ir::Code::kCANCELLED, "{}: compiling was cancelled", kernel);
  if (watch.late)
    return ir::make_error(
        ir::Code::kTIMEOUT, "{}: {} ms of compiling were not enough", kernel,
        std::chrono::ceil<std::chrono::milliseconds>(std::chrono::steady_clock::now() - watch.start).count());
  if (compiled != 0) return ir::internal_error("{} does not compile {}: {}", version_, kernel, out.log);
  LATHE_RETURN_IF_ERROR(check(t.nvrtcGetCUBINSize(program, &size), "size of the cubin"));
  out.cubin.resize(size);
  LATHE_RETURN_IF_ERROR(check(t.nvrtcGetCUBIN(program, out.cubin.data()), "cubin"));
  LATHE_ASSIGN(out.info, read_cubin(out.cubin, kernel));
  if (out.info.sm != target.sm) return ir::internal_error("a cubin for {}, expected {}", out.info.sm, target.sm);
  const std::string fault = fault_of(out.info, whole);
  if (spilled != nullptr) *spilled = !fault.empty() && spills(whole);
  if (!fault.empty()) return unsupported("{}: {}", kernel, fault);
  out.compiler = version_;
  return out;
}

}  // namespace lathe::jit
