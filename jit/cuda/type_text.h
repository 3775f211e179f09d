// Types of CUDA for values and elements of a device program, and where elements lie in shared memory, which may be
// swizzled.
#pragma once
#include <set>
#include <string>

#include "jit/cuda/device_program.h"

namespace lathe::jit {

// Of a value of that kind; of vectors of such.
inline const char* name_of(char kind) {
  return kind == 'i' ? "int" : kind == 'b' ? "bool" : kind == 'l' ? "lt_int" : "float";
}
inline const char* vector_of(char kind) { return kind == 'f' ? "lt_f" : kind == 'l' ? "lt_longs" : "lt_ints"; }
inline const char* half_name(ir::DType type) {
  return type == ir::DType::bf16 ? "lt_bf16" : type == ir::DType::f16 ? "lt_f16" : name_of(value_kind(type));
}
inline const char* type_of(const DeviceParam& p) {
  switch (p.type) {
    case ir::DType::bf16:
      return p.bits ? "lt_b16" : "lt_bf16";
    case ir::DType::f16:
      return p.bits ? "lt_b16" : "lt_f16";
    case ir::DType::i8:
      return "signed char";
    case ir::DType::u8:
    case ir::DType::b8:
      return "unsigned char";
    default:
      return name_of(value_kind(p.type));
  }
}

// The bits of an element's number that change with the line it is in.
inline int swizzle_mask(const DeviceShared& s) { return (s.swizzle - ir::kPieceBytes) / dtype_bytes(s.type); }
// Both preludes have lt_swizzled, of elements of 2 bytes in lines of 128; others stand in the text.
inline constexpr int kSwizzleOfPreludes = 56;
inline std::string swizzle_function(int mask) {
  return mask == kSwizzleOfPreludes ? "lt_swizzled" : fmt::format("lt_swizzled_{}", mask);
}
inline std::string place_in(const DeviceShared& s, const std::string& element) {
  if (s.swizzle == 0) return fmt::format("{} + {}", s.name, element);
  return fmt::format("{} + {}({})", s.name, swizzle_function(swizzle_mask(s)), element);
}
// Those that the program uses and preludes do not have.
inline std::string swizzle_functions(const DeviceProgram& p) {
  std::set<int> masks;
  for (const DeviceShared& s : p.shared) {
    if (s.swizzle != 0) masks.insert(swizzle_mask(s));
  }
  masks.erase(kSwizzleOfPreludes);
  std::string out;
  for (const int mask : masks)
    out += fmt::format("LT_FUNCTION lt_int {}(lt_int at) {{ return at ^ (at >> 3 & {}); }}\n", swizzle_function(mask),
                       mask);
  return out;
}
// A tile is named by its first line, as if it were not swizzled. lt_tile is of lines of 128 bytes; those of 64 and of
// 32 are the next numbers in the two highest bits.
inline std::string tile_in(const DeviceShared& s, const std::string& element, const DeviceTile& t) {
  const int bytes = dtype_bytes(s.type), further = s.swizzle == 64 ? 1 : s.swizzle == 32 ? 2 : 0;
  return fmt::format("lt_tile({} + {}, {}, {}){}", s.name, element, t.lines * bytes, t.panels * bytes,
                     further == 0 ? "" : fmt::format(" + ({}ull << 62)", further));
}

}  // namespace lathe::jit
