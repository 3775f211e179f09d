// The header that the text of kernels includes, for a GPU: see cuda_text.h.
#include "ir/base/status.h"
#include "jit/cuda/text/cuda_text.h"

namespace lathe::jit {

namespace {

constexpr char kHead[] =
#include "jit/cuda/device_prelude.inc"
#include "jit/cuda/device_prelude_integers.inc"
#include "jit/cuda/device_rings.inc"
#include "jit/cuda/device_sines.inc"
    ;

std::string function(const DeviceOpRow& row, const char* body) {
  const auto name_of = [](char kind) { return kind == 'f' ? "float" : kind == 'i' ? "int" : "bool"; };
  std::string args;
  for (size_t i = 0; row.operands[i] != 0; ++i)
    args += fmt::format("{}{} {}", i == 0 ? "" : ", ", name_of(row.operands[i]), "abc"[i]);
  return fmt::format("LT_FUNCTION {} lt_{}({}) {{ return {}; }}\n", name_of(row.result), row.name, args, body);
}

constexpr int kMostColumns = 256, kColumns = 8;
constexpr char kGroups[] =
#include "jit/cuda/device_groups.inc"
    ;

// A thread's sums are two rows of columns / 4: of each 8 columns it has 2 in each of them.
std::string group_function(int columns) {
  std::string registers, sums;
  for (int i = 0; i < columns / 2; ++i) {
    const int row = i / 2 % 2, place = i / 4 * 2 + i % 2;
    registers += fmt::format("{}%{}", i == 0 ? "" : ", ", i);
    sums += fmt::format(", \"+f\"(c[{}])", row * (columns / 4) + place);
  }
  const int n = columns / 2;
  std::string out = fmt::format("#ifdef LT_WGMMA_{}\n", columns);
  for (const char* type : {"bf16", "f16"}) {
    out += fmt::format("LT_GROUP_PRODUCT({}, {}, \"{}\", \"%{}, %{}, p, 1, 1, %{}, %{}\"{})\n", columns, type,
                       registers, n, n + 1, n + 2, n + 3, sums);
    out += fmt::format("LT_HELD_PRODUCT({}, {}, \"{}\", \"{{%{}, %{}, %{}, %{}}}, %{}, p, 1, 1, %{}\"{})\n", columns,
                       type, registers, n, n + 1, n + 2, n + 3, n + 4, n + 5, sums);
  }
  return out + "#endif\n";
}

// The functions lt_wgmma_TYPE_N and lt_wgmma_held_TYPE_N, of those N for which the text defines LT_WGMMA_N.
std::string group_functions() {
  std::string out = kGroups;
  for (int columns = kColumns; columns <= kMostColumns; columns += kColumns) out += group_function(columns);
  return out;
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
    return out + group_functions();
  }();
  return text;
}

}  // namespace lathe::jit
