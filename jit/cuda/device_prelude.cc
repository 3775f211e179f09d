// The header that the text of kernels includes, for a GPU: see cuda_text.h.
#include "ir/base/status.h"
#include "jit/cuda/cuda_text.h"

namespace lathe::jit {

namespace {

constexpr char kHead[] =
#include "jit/cuda/device_prelude.inc"
#include "jit/cuda/device_prelude_integers.inc"
    ;

std::string function(const DeviceOpRow& row, const char* body) {
  const auto name_of = [](char kind) { return kind == 'f' ? "float" : kind == 'i' ? "int" : "bool"; };
  std::string args;
  for (size_t i = 0; row.operands[i] != 0; ++i)
    args += fmt::format("{}{} {}", i == 0 ? "" : ", ", name_of(row.operands[i]), "abc"[i]);
  return fmt::format("LT_FUNCTION {} lt_{}({}) {{ return {}; }}\n", name_of(row.result), row.name, args, body);
}

}  // namespace

const std::string& device_prelude() {
  static const std::string text = [] {
    std::string out = kHead;
#define LATHE_DEVICE_OP(id, result, operands, device, host) out += function(device_op(DeviceOp::k_##id), device);
#include "jit/cuda/device_ops.def"
#undef LATHE_DEVICE_OP
#define LATHE_INTEGER_OP(id, node, type, operands, device, host) out += function(device_op(DeviceOp::k_##id), device);
#include "jit/cuda/integer_ops.def"
#undef LATHE_INTEGER_OP
    return out;
  }();
  return text;
}

}  // namespace lathe::jit
