// The LLVM back end as the core sees it: LLVM stays unmapped until the first compile, and where it
// is missing every call is UNSUPPORTED. The plug-in is opened once per process and never closed; a
// failed attempt is repeated at the next call.
#include "jit/host/llvm_loader.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "jit/host/host_cpu.h"
#include "jit/program/backend.h"

namespace lathe::jit {
namespace {

constexpr char kFileName[] = "liblathe_llvm.so";

struct OpenPlugin {
  std::mutex mutex;
  LlvmPlugin plugin;
  std::atomic<bool> ready{false};
};

// One per process, as the mapping is.
OpenPlugin& process_plugin() {
  static OpenPlugin plugin;
  return plugin;
}

ir::Result<const LlvmPlugin*> plugin_for(const std::string& plugin_dir) {
  OpenPlugin& p = process_plugin();
  if (!p.ready.load(std::memory_order_acquire)) {
    const std::lock_guard<std::mutex> lock(p.mutex);
    if (!p.ready.load(std::memory_order_relaxed)) {
      LATHE_ASSIGN(p.plugin, open_llvm_plugin(llvm_plugin_directories(plugin_dir)));
      p.ready.store(true, std::memory_order_release);
    }
  }
  return &p.plugin;
}

// Calls `f(out)`, turns its outcome into a Result and frees what it handed out.
template <class Call, class Take>
auto call_plugin(const LlvmPlugin& plugin, Call call, Take take) -> ir::Result<decltype(take(LatheLlvmOutput{}))> {
  LatheLlvmOutput out{};
  const int result = call(&out);
  if (result == kLatheLlvmUnsupported) return ir::unsupported("{}", out.error);
  if (result != kLatheLlvmOk) return ir::internal_error("{}", out.error);
  auto value = take(out);
  plugin.free(&out);
  return value;
}

template <class Take>
auto compile_as(const char* options, const LeafProgram& program, const std::string& plugin_dir, Take take)
    -> ir::Result<decltype(take(LatheLlvmOutput{}))> {
  LATHE_ASSIGN(const LlvmPlugin* plugin, plugin_for(plugin_dir));
  const std::vector<uint8_t> bytes = serialise(program);
  return call_plugin(
      *plugin, [&](LatheLlvmOutput* out) { return plugin->compile(bytes.data(), bytes.size(), options, out); }, take);
}

std::string as_text(const LatheLlvmOutput& out) { return {reinterpret_cast<const char*>(out.bytes), out.size}; }

}  // namespace

std::vector<std::string> llvm_plugin_directories(const std::string& plugin_dir) {
  std::vector<std::string> directories;
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&llvm_mapped), &info) && info.dli_fname) {
    const std::string file = info.dli_fname;
    const size_t slash = file.rfind('/');
    const std::string here = slash == std::string::npos ? "." : file.substr(0, slash);
    for (const char* at : {"", "/../lib", "/jit/llvm", "/../jit/llvm"}) directories.push_back(here + at);
  }
  if (!plugin_dir.empty()) directories.push_back(plugin_dir);
  return directories;
}

ir::Result<LlvmPlugin> open_llvm_plugin(const std::vector<std::string>& directories) {
  std::string reasons;
  for (const std::string& directory : directories) {
    LlvmPlugin plugin;
    plugin.path = directory + "/" + kFileName;
    struct stat file;
    if (stat(plugin.path.c_str(), &file) != 0) continue;
    if (!S_ISREG(file.st_mode)) {
      reasons += fmt::format("; {} is no regular file", plugin.path);
      continue;
    }
    void* library = dlopen(plugin.path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      reasons += fmt::format("; {}", dlerror());
      continue;
    }
    const auto version = reinterpret_cast<LatheLlvmVersionV1>(dlsym(library, "lathe_llvm_version_v1"));
    plugin.compile = reinterpret_cast<LatheLlvmCompileV1>(dlsym(library, "lathe_llvm_compile_v1"));
    plugin.disassemble = reinterpret_cast<LatheLlvmDisassembleV1>(dlsym(library, "lathe_llvm_disassemble_v1"));
    plugin.free = reinterpret_cast<LatheLlvmFreeV1>(dlsym(library, "lathe_llvm_free_v1"));
    if (version && plugin.compile && plugin.disassemble && plugin.free && version() == llvm_plugin_version()) {
      return plugin;
    }
    reasons += fmt::format("; {} is version {}, expected {}", plugin.path, version ? version() : "unknown",
                           llvm_plugin_version());
    dlclose(library);
  }
  return ir::unsupported("no {} in {}{}", kFileName, fmt::join(directories, ", "), reasons);
}

ir::Result<CodeImage> compile_llvm(const LeafProgram& program, const std::string& plugin_dir) {
  return compile_as("image", program, plugin_dir, [&program](const LatheLlvmOutput& out) {
    CodeImage image;
    image.symbol = program.name;
    image.entry = out.entry;
    image.features = ir::isa_features(ir::isa_row(program.level).vectors);  // all that module.cc allows
    image.features |= dot4_feature(program.features());
    if (contains(program.body, LeafOp::k_dot2_bf16)) image.features |= kCpu_avx512bf16;
    image.stack_bytes = out.stack_bytes;
    image.code.assign(out.bytes, out.bytes + out.size);
    image.text_bytes = out.text_bytes;
    return image;
  });
}

bool llvm_mapped() { return process_plugin().ready.load(std::memory_order_acquire); }

ir::Result<std::string> llvm_ir_text(const LeafProgram& program, const std::string& plugin_dir) {
  return compile_as("ir", program, plugin_dir, as_text);
}

ir::Result<std::string> llvm_disassemble(const CodeImage& image, const std::string& plugin_dir) {
  LATHE_ASSIGN(const LlvmPlugin* plugin, plugin_for(plugin_dir));
  return call_plugin(
      *plugin, [&](LatheLlvmOutput* out) { return plugin->disassemble(image.code.data(), image.text_bytes, out); },
      as_text);
}

}  // namespace lathe::jit
