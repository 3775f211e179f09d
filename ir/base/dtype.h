// Scalar types, generated from dtypes.def. b8 is bool stored in a byte.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace lathe::ir {

enum class DType : uint8_t {
#define LATHE_DTYPE(id, bits, kind, code) id,
#include "ir/base/dtypes.def"
#undef LATHE_DTYPE
};
enum class DTypeKind : uint8_t { kFloat, kBFloat, kInt, kUInt, kBool };

const char* dtype_name(DType type);
std::optional<DType> parse_dtype(std::string_view name);
int dtype_bits(DType type);
inline int dtype_bytes(DType type) { return dtype_bits(type) / 8; }
DTypeKind dtype_kind(DType type);
int dtype_dlpack_code(DType type);
inline bool is_float(DType type) {
  return dtype_kind(type) == DTypeKind::kFloat || dtype_kind(type) == DTypeKind::kBFloat;
}

// Conversions with round to nearest even; overflow gives infinity, NaN stays NaN.
float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);
float bf16_to_f32(uint16_t bits);
uint16_t f32_to_bf16(float value);
// The nearest value of `type` (ties to even), as one rounding: floats overflow to infinity; integers saturate, NaN
// gives 0.
double round_to(DType type, double value);

}  // namespace lathe::ir
