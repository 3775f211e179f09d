// ggml's formats of weights: how many values lie in how many bytes, and their f32 values, rounded as ggml's definition
// rounds them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace lathe::decoder {

struct BlockFormat {
  uint32_t type;  // its number in GGUF files
  const char* name;
  const char* lathe;       // attribute `format` of quantized_matmul; null: plain elements
  uint32_t dtype;          // of Lathe: that of plain elements, else bytes
  uint32_t values, bytes;  // of a block
  // Writes blocks x values floats.
  void (*decode)(const uint8_t* data, uint64_t blocks, float* out);
};

// Null for a number that no row has.
const BlockFormat* find_format(uint32_t type);
// "F32, F16, ..."
std::string format_names();

}  // namespace lathe::decoder
