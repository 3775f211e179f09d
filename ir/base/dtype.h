// Types of elements, generated from dtypes.def, and the bytes they take. b8 is bool stored in a byte.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace lathe::ir {

enum class DType : uint8_t {
#define LATHE_DTYPE(id, bits, values, kind, code) id,
#include "ir/base/dtypes.def"
#undef LATHE_DTYPE
};
inline constexpr int kDTypes = 0
#define LATHE_DTYPE(id, bits, values, kind, code) +1
#include "ir/base/dtypes.def"
#undef LATHE_DTYPE
    ;
enum class DTypeKind : uint8_t { kFloat, kBFloat, kInt, kUInt, kBool };

const char* dtype_name(DType type);
std::optional<DType> parse_dtype(std::string_view name);

// How elements lie in memory: `values` of them in `bits` bits, one group behind the other.
struct Storage {
  int bits = 8, values = 1;
};
Storage dtype_storage(DType type);
// Of n elements, the last group and the last byte whole; saturated where 64 bits do not hold it. n >= 0.
int64_t storage_bytes(Storage storage, int64_t n);
// From an element to the one n further on: none where that is no whole number of groups and bytes, or too large.
std::optional<int64_t> storage_step(Storage storage, int64_t n);

// The bits of one element of a type that is not stored in groups of several; of such a type, those of a group.
int dtype_bits(DType type);
// The bytes of one element; 0 where elements have no address of their own (storage_bytes() knows the size of many).
int dtype_bytes(DType type);
inline int64_t dtype_bytes(DType type, int64_t n) { return storage_bytes(dtype_storage(type), n); }
inline std::optional<int64_t> dtype_step(DType type, int64_t n) { return storage_step(dtype_storage(type), n); }
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
