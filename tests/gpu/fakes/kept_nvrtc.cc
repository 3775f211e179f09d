// A library in NVRTC's place: the real one, whose kernels it keeps in files. What was compiled once is served for the
// same text, options, prelude and compiler, and the real one is asked for everything else. What it refuses is not kept.
// LATHE_REAL_NVRTC: the real one. LATHE_KEPT_NVRTC_CACHE: another folder than the build's, or "off".
#include <dlfcn.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "tests/gpu/fakes/kernel_cache.h"

namespace {

using lathe::test::KernelCache;
using lathe::test::MadeKernel;

struct Real {
#define LATHE_NVRTC(name, ...) int (*name)(__VA_ARGS__) = nullptr;
#define LATHE_NVRTC_OPTIONAL LATHE_NVRTC
#include "jit/cuda/compile/nvrtc.def"
#undef LATHE_NVRTC
  const char* (*nvrtcGetErrorString)(int) = nullptr;

  explicit Real(void* library) {
    if (library == nullptr) return;
#define LATHE_NVRTC(name, ...) name = reinterpret_cast<int (*)(__VA_ARGS__)>(dlsym(library, #name));
#define LATHE_NVRTC_OPTIONAL LATHE_NVRTC
#include "jit/cuda/compile/nvrtc.def"
#undef LATHE_NVRTC
    nvrtcGetErrorString = reinterpret_cast<const char* (*)(int)>(dlsym(library, "nvrtcGetErrorString"));
  }
};

std::string path() {
  const char* named = std::getenv("LATHE_REAL_NVRTC");
  return named == nullptr ? "" : named;
}

const Real& real() {
  static const Real& out = *new Real(path().empty() ? nullptr : dlopen(path().c_str(), RTLD_NOW | RTLD_LOCAL));
  return out;
}

struct Program {
  std::string text, name, header, header_name;
  int (*callback)(void*, void*) = nullptr;
  void* payload = nullptr;
  MadeKernel made;
};

// Of the library that is there, and of this header; others are not kept.
const KernelCache* cache(const Program& p) {
  static const std::string& header = *new std::string(p.header);
  static const KernelCache& out = *[&] {
    const char* folder = std::getenv("LATHE_KEPT_NVRTC_CACHE");
    struct stat library = {};
    (void)stat(path().c_str(), &library);
    const std::string maker = path() + " " + std::to_string(library.st_mtime) + " " + std::to_string(library.st_size) +
                              "\n" + p.header_name + "\n" + p.header;
    const std::string wanted = folder == nullptr ? LATHE_CUBIN_CACHE : folder;
    return new KernelCache(wanted == "off" ? "" : wanted, maker);
  }();
  return p.header == header ? &out : nullptr;
}

// The real compiler's error.
int make(Program& p, int num_options, const char* const* options) {
  const Real& r = real();
  const char *const headers[] = {p.header.c_str()}, *const names[] = {p.header_name.c_str()};
  void* program = nullptr;
  int error = r.nvrtcCreateProgram(&program, p.text.c_str(), p.name.c_str(), 1, headers, names);
  if (error != 0) return error;
  if (r.nvrtcSetFlowCallback != nullptr && p.callback != nullptr)
    error = r.nvrtcSetFlowCallback(program, p.callback, p.payload);
  if (error == 0) error = r.nvrtcCompileProgram(program, num_options, options);
  size_t size = 0;
  if (r.nvrtcGetProgramLogSize(program, &size) == 0 && size > 1) {
    p.made.log.resize(size);
    if (r.nvrtcGetProgramLog(program, p.made.log.data()) == 0) p.made.log.resize(std::strlen(p.made.log.c_str()));
  }
  if (error == 0) error = r.nvrtcGetCUBINSize(program, &size);
  if (error == 0) {
    p.made.code.resize(size);
    error = r.nvrtcGetCUBIN(program, p.made.code.data());
  }
  (void)r.nvrtcDestroyProgram(&program);
  return error;
}

}  // namespace

extern "C" {

#define KEPT __attribute__((visibility("default")))

KEPT int nvrtcVersion(int* major, int* minor) {
  return real().nvrtcVersion == nullptr ? 1 : real().nvrtcVersion(major, minor);
}

KEPT const char* nvrtcGetErrorString(int error) { return real().nvrtcGetErrorString(error); }

KEPT int nvrtcSetFlowCallback(void* program, int (*callback)(void*, void*), void* payload) {
  auto& p = *static_cast<Program*>(program);
  p.callback = callback;
  p.payload = payload;
  return 0;
}

KEPT int nvrtcCreateProgram(void** out, const char* text, const char* name, int, const char* const* contents,
                            const char* const* names) {
  *out = new Program{text, name, contents[0], names[0]};
  return 0;
}

KEPT int nvrtcCompileProgram(void* program, int num_options, const char* const* options) {
  auto& p = *static_cast<Program*>(program);
  const KernelCache* const kept = cache(p);
  std::string key = p.name;
  for (int i = 0; i < num_options; ++i) key += std::string(" ") + options[i];
  key += "\n" + p.text;
  if (std::optional<MadeKernel> known = kept == nullptr ? std::nullopt : kept->find(key)) {
    p.made = *std::move(known);
    return 0;
  }
  const int error = make(p, num_options, options);
  if (error == 0 && kept != nullptr) kept->keep(key, p.made);
  return error;
}

KEPT int nvrtcGetCUBINSize(void* program, size_t* size) {
  *size = static_cast<Program*>(program)->made.code.size();
  return 0;
}
KEPT int nvrtcGetCUBIN(void* program, char* out) {
  const std::string& code = static_cast<Program*>(program)->made.code;
  std::memcpy(out, code.data(), code.size());
  return 0;
}
KEPT int nvrtcGetProgramLogSize(void* program, size_t* size) {
  *size = static_cast<Program*>(program)->made.log.size() + 1;
  return 0;
}
KEPT int nvrtcGetProgramLog(void* program, char* out) {
  const std::string& log = static_cast<Program*>(program)->made.log;
  std::memcpy(out, log.c_str(), log.size() + 1);
  return 0;
}
KEPT int nvrtcDestroyProgram(void** program) {
  delete static_cast<Program*>(*program);
  *program = nullptr;
  return 0;
}
}
