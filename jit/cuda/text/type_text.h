// Types of CUDA for values and elements of a device program.
#pragma once
#include "jit/cuda/device_program.h"

namespace lathe::jit {

// Of a value of that kind; of vectors of such.
inline const char* name_of(char kind) {
  return kind == 'i' ? "int" : kind == 'b' ? "bool" : kind == 'l' ? "lt_int" : "float";
}
inline const char* vector_of(char kind) { return kind == 'f' ? "lt_f" : kind == 'l' ? "lt_longs" : "lt_ints"; }
// Of an element as it lies in shared memory, or in a part of a register.
inline const char* element_name(ir::DType type) {
  return type == ir::DType::bf16  ? "lt_bf16"
         : type == ir::DType::f16 ? "lt_f16"
         : type == ir::DType::i8  ? "signed char"
         : type == ir::DType::u8  ? "unsigned char"
                                  : name_of(value_kind(type));
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

}  // namespace lathe::jit
