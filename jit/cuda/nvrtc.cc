// See nvrtc.h. The declarations are the project's own, from NVIDIA's documented C interface.
#include "jit/cuda/nvrtc.h"

#include <dlfcn.h>

#include <array>
#include <mutex>
#include <vector>

#include "ir/base/options.h"
#include "jit/cuda/cuda_text.h"

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

}  // namespace

struct Nvrtc::Table {
#define LATHE_NVRTC(name, ...) int (*name)(__VA_ARGS__) = nullptr;
#include "jit/cuda/nvrtc.def"
#undef LATHE_NVRTC
  const char* (*nvrtcGetErrorString)(int) = nullptr;

  // The first name that is missing; null: it has them all.
  const char* find(void* library) {
#define LATHE_NVRTC(name, ...)                                          \
  name = reinterpret_cast<int (*)(__VA_ARGS__)>(dlsym(library, #name)); \
  if (name == nullptr) return #name;
#include "jit/cuda/nvrtc.def"
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
  return out;
}

void* open_one(const std::string& place, std::string& reasons) {
  void* library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    reasons += fmt::format("; {}", why == nullptr ? place.c_str() : why);
  }
  return library;
}

void* loaded_already() {
  for (const char* name : kNames) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_NOLOAD)) return library;
  }
  return nullptr;
}

// Lines that every compilation has, and none is a complaint.
bool is_noise(std::string_view line) {
  return line.empty() || line.find("gmem") != std::string_view::npos ||
         line.find("Compiling entry function") != std::string_view::npos ||
         line.find("Function properties") != std::string_view::npos || line.find("Used ") != std::string_view::npos ||
         line.find("bytes stack frame") != std::string_view::npos ||
         line.find("Compile time") != std::string_view::npos || line == "\0";
}

std::string what_matters(std::string_view log) {
  std::string out;
  while (!log.empty()) {
    const size_t end = std::min(log.find('\n'), log.size());
    const std::string_view line = log.substr(0, end);
    log.remove_prefix(std::min(end + 1, log.size()));
    if (!is_noise(line)) out += std::string(line) + "\n";
  }
  return out;
}

// A number before these words that is not 0.
bool says(const std::string& log, std::string_view words) {
  for (size_t at = log.find(words); at != std::string::npos; at = log.find(words, at + 1)) {
    size_t digit = at;
    while (digit > 0 && log[digit - 1] == ' ') --digit;
    bool zero = true;
    while (digit > 0 && log[digit - 1] >= '0' && log[digit - 1] <= '9') zero &= log[--digit] == '0';
    if (!zero) return true;
  }
  return false;
}

}  // namespace

std::string nvrtc_options() {
  std::string out;
  for (const char* o : kOptions) out += fmt::format("{}{}", out.empty() ? "" : " ", o);
  return out;
}

std::string fault_of(const CubinInfo& info, const std::string& log) {
  if (info.local > 0) return fmt::format("{} accesses of local memory", info.local);
  if (info.frame_bytes > 0) return fmt::format("a stack frame of {} bytes", info.frame_bytes);
  for (const char* words : {"bytes stack frame", "bytes spill stores", "bytes spill loads"}) {
    if (says(log, words)) return fmt::format("the compiler reports {}", words);
  }
  // Notes of ptxas on what it gave up: registers, asynchronous products, calls.
  const size_t note = log.find("(C75");
  return note == std::string::npos ? "" : "the compiler reports " + log.substr(note + 1, 5);
}

Result<std::shared_ptr<const Nvrtc>> Nvrtc::open(const std::string& path) {
  std::string reasons;
  void* library = path.empty() ? loaded_already() : nullptr;
  for (const std::string& place : places(path)) {
    if (library == nullptr) library = open_one(place, reasons);
  }
  if (library == nullptr) return unsupported("no NVRTC{}", reasons);
  auto table = std::make_shared<Table>();
  if (const char* missing = table->find(library)) return unsupported("NVRTC lacks {}", missing);
  int major = 0, minor = 0;
  if (table->nvrtcVersion(&major, &minor) != 0) return unsupported("NVRTC does not tell its version");
  if (major < kLeastMajor || (major == kLeastMajor && minor < kLeastMinor))
    return unsupported("NVRTC {}.{}, expected at least {}.{}", major, minor, kLeastMajor, kLeastMinor);
  std::shared_ptr<Nvrtc> out(new Nvrtc(std::move(table)));
  out->version_ = fmt::format("nvrtc {}.{}", major, minor);
  return std::shared_ptr<const Nvrtc>(std::move(out));
}

Result<CompiledKernel> Nvrtc::compile(const DeviceProgram& program, const std::string& kernel,
                                      const ir::GpuTarget& target) const {
  const int blocks = wanted_blocks(program);
  Result<CompiledKernel> made = compile(cuda_text(program, kernel, blocks), kernel, target);
  const bool crowded = !made.ok() && made.status().code() == ir::Code::kUNSUPPORTED && blocks > 1;
  return crowded ? compile(cuda_text(program, kernel), kernel, target) : std::move(made);
}

Result<CompiledKernel> Nvrtc::compile(const std::string& text, const std::string& kernel,
                                      const ir::GpuTarget& target) const {
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
  const int compiled = t.nvrtcCompileProgram(program, static_cast<int>(options.size()), options.data());
  CompiledKernel out;
  size_t size = 0;
  if (t.nvrtcGetProgramLogSize(program, &size) == 0 && size > 1) {
    std::string log(size, '\0');
    if (t.nvrtcGetProgramLog(program, log.data()) == 0) out.log = log.c_str();
  }
  const std::string whole = out.log;
  out.log = what_matters(whole);
  if (compiled != 0) return ir::internal_error("{} does not compile {}: {}", version_, kernel, out.log);
  LATHE_RETURN_IF_ERROR(check(t.nvrtcGetCUBINSize(program, &size), "size of the cubin"));
  out.cubin.resize(size);
  LATHE_RETURN_IF_ERROR(check(t.nvrtcGetCUBIN(program, out.cubin.data()), "cubin"));
  LATHE_ASSIGN(out.info, read_cubin(out.cubin, kernel));
  if (out.info.sm != target.sm) return ir::internal_error("a cubin for {}, expected {}", out.info.sm, target.sm);
  const std::string fault = fault_of(out.info, whole);
  if (!fault.empty()) return unsupported("{}: {}", kernel, fault);
  out.compiler = version_;
  return out;
}

}  // namespace lathe::jit
