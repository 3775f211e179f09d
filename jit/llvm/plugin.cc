// The C entries of the plug-in: bytes in, bytes out; no exception and no C++ type leaves. See
// plugin_api.h.
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string_view>

#include "ir/base/status.h"
#include "jit/llvm/disassemble.h"
#include "jit/llvm/emit_object.h"
#include "jit/llvm/link_object.h"
#include "jit/llvm/plugin_api.h"

#define LATHE_PLUGIN_EXPORT extern "C" __attribute__((visibility("default")))

namespace lathe::jit {
namespace {

constexpr uint32_t kMaxStackBytes = 1024;    // ir/leaf_abi.h
constexpr size_t kMaxImageBytes = 24 << 10;  // CodeImage::code

ir::Status hand_out(const void* bytes, size_t size, LatheLlvmOutput* out) {
  out->bytes = static_cast<uint8_t*>(std::malloc(size + 1));
  if (!out->bytes) return ir::make_error(ir::Code::kNOMEM, "llvm: {} bytes of output", size);
  std::memcpy(out->bytes, bytes, size);
  out->bytes[size] = 0;
  out->size = size;
  return {};
}

ir::Status compile(const uint8_t* bytes, size_t size, std::string_view options, LatheLlvmOutput* out) {
  LATHE_ASSIGN(const LeafProgram program, deserialise(bytes, size));
  LATHE_RETURN_IF_ERROR(verify_program(program));
  if (options == "ir") {
    std::string text;
    LATHE_RETURN_IF_ERROR(emit_program(program, &text).status());
    return hand_out(text.data(), text.size(), out);
  }
  if (options != "image" && options != "object") return ir::invalid("llvm: unknown option {}", options);
  LATHE_ASSIGN(const std::vector<uint8_t> object, emit_program(program, nullptr));
  if (options == "object") return hand_out(object.data(), object.size(), out);
  LATHE_ASSIGN(const LinkedObject image, link_object(object, program.name));
  if (image.stack_bytes > kMaxStackBytes) return ir::unsupported("llvm: {} bytes of stack", image.stack_bytes);
  if (image.code.size() > kMaxImageBytes) return ir::unsupported("llvm: {} bytes of code", image.code.size());
  out->entry = image.entry;
  out->text_bytes = image.text_bytes;
  out->stack_bytes = image.stack_bytes;
  return hand_out(image.code.data(), image.code.size(), out);
}

int finish(const ir::Status& status, LatheLlvmOutput* out) {
  if (status.ok()) return kLatheLlvmOk;
  std::strncpy(out->error, status.message().c_str(), sizeof out->error - 1);
  return status.code() == ir::Code::kUNSUPPORTED ? kLatheLlvmUnsupported : kLatheLlvmFailed;
}

template <class F>
int guarded(LatheLlvmOutput* out, F f) {
  *out = {};
  try {
    return finish(f(), out);
  } catch (const std::exception& e) {
    return finish(ir::internal_error("llvm: {}", e.what()), out);
  }
}

}  // namespace
}  // namespace lathe::jit

LATHE_PLUGIN_EXPORT int lathe_llvm_compile_v1(const uint8_t* program, size_t size, const char* options,
                                              LatheLlvmOutput* out) {
  return lathe::jit::guarded(out, [&] { return lathe::jit::compile(program, size, options, out); });
}

LATHE_PLUGIN_EXPORT int lathe_llvm_disassemble_v1(const uint8_t* code, size_t size, LatheLlvmOutput* out) {
  return lathe::jit::guarded(out, [&]() -> lathe::ir::Status {
    LATHE_ASSIGN(const std::string text, lathe::jit::disassemble_x86(code, size));
    return lathe::jit::hand_out(text.data(), text.size(), out);
  });
}

LATHE_PLUGIN_EXPORT void lathe_llvm_free_v1(LatheLlvmOutput* out) {
  std::free(out->bytes);
  *out = {};
}

LATHE_PLUGIN_EXPORT const char* lathe_llvm_version_v1() {
  static const std::string kVersion = lathe::jit::llvm_plugin_version();
  return kVersion.c_str();
}
