// Scalar types: see dtype.h.
#include "ir/base/dtype.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace lathe::ir {

namespace {
struct Row {
  const char* name;
  Storage storage;
  DTypeKind kind;
  int dlpack;
};
constexpr Row kRows[] = {
#define LATHE_DTYPE(id, bits, values, kind, code) {#id, {bits, values}, DTypeKind::kind, code},
#include "ir/base/dtypes.def"
#undef LATHE_DTYPE
};
const Row& row(DType type) { return kRows[static_cast<int>(type)]; }
}  // namespace

const char* dtype_name(DType type) { return row(type).name; }
Storage dtype_storage(DType type) { return row(type).storage; }
int dtype_bits(DType type) { return row(type).storage.bits; }
int dtype_bytes(DType type) {
  const Storage s = row(type).storage;
  return s.values == 1 && s.bits % 8 == 0 ? s.bits / 8 : 0;
}
DTypeKind dtype_kind(DType type) { return row(type).kind; }
int dtype_dlpack_code(DType type) { return row(type).dlpack; }

int64_t storage_bytes(Storage storage, int64_t n) {
  const int64_t groups = n / storage.values + (n % storage.values != 0);
  const __int128 bytes = (static_cast<__int128>(groups) * storage.bits + 7) / 8;
  return static_cast<int64_t>(std::min<__int128>(bytes, INT64_MAX));
}

std::optional<int64_t> storage_step(Storage storage, int64_t n) {
  const __int128 bits = static_cast<__int128>(n / storage.values) * storage.bits;
  if (n % storage.values != 0 || bits % 8 != 0) return std::nullopt;
  if (bits / 8 > INT64_MAX || bits / 8 < INT64_MIN) return std::nullopt;
  return static_cast<int64_t>(bits / 8);
}

std::optional<DType> parse_dtype(std::string_view name) {
  for (size_t i = 0; i < std::size(kRows); ++i) {
    if (name == kRows[i].name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

float f16_to_f32(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000) << 16;
  const int exponent = (h >> 10) & 31;
  const uint32_t fraction = h & 1023;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | (uint32_t(exponent + 112) << 23) | (fraction << 13));
}

uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // >= 65520 rounds to infinity
  if (magnitude < 0x38800000) {                                              // subnormal: units of 2^-24, nearest even
    const float scaled = std::bit_cast<float>(magnitude) * 16777216.0f;
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(scaled)));
  }
  const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}

float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// A binary format of `precision` significant bits, smallest normal exponent `emin`, largest finite value `top`.
static double round_float(double value, int precision, int emin, double top) {
  if (!std::isfinite(value) || value == 0) return value;
  if (std::abs(value) > 2 * top) return std::copysign(INFINITY, value);
  constexpr int kBias = 1023, kFraction = 52;
  const int exponent = std::max(static_cast<int>(std::bit_cast<uint64_t>(value) >> kFraction & 0x7ff) - kBias, emin);
  const int ulp = exponent - (precision - 1);
  // The last bit of 3/2 of this power is worth `ulp`: what is added to it is rounded there.
  const auto power = static_cast<uint64_t>(ulp + kFraction + kBias) << kFraction | uint64_t{1} << (kFraction - 1);
  const double large = std::bit_cast<double>(power);
  const double rounded = std::copysign(value + large - large, value);
  return std::abs(rounded) > top ? std::copysign(INFINITY, value) : rounded;
}

double round_to(DType type, double value) {
  switch (type) {
    case DType::f64:
      return value;
    case DType::f32:
      return static_cast<float>(value);
    case DType::f16:
      return round_float(value, 11, -14, 65504.0);
    case DType::bf16:
      return round_float(value, 8, -126, 0x1.fep127);
    case DType::b8:
      return value != 0;
    case DType::i64:
      if (std::isnan(value)) return 0;
      return std::nearbyint(std::clamp(value, -0x1p63, std::nextafter(0x1p63, 0.0)));
    default:
      break;
  }
  if (std::isnan(value)) return 0;
  const bool is_signed = dtype_kind(type) == DTypeKind::kInt;
  const double top = std::ldexp(1.0, dtype_bits(type) - is_signed) - 1;
  return std::nearbyint(std::clamp(value, is_signed ? -top - 1 : 0.0, top));
}

}  // namespace lathe::ir
