// Shares of what one core of this machine does: reading weights and cache from memory, and products of bytes or of f32.
#pragma once
#include <nlohmann/json.hpp>

namespace lathe::decoder {

// What was done, and how long it took.
struct Measured {
  double step_bytes = 0, step_seconds = 0;           // read by single steps
  double prompt_operations = 0, prompt_seconds = 0;  // of prompts
};

// Adds decode_of_read and prefill_of_peak; the machine's rates are taken here. Both are null with several threads: the
// rates are those of one core. bytes: products of bytes, whose peak is four times that of f32 (AVX-512 VNNI, AVX-VNNI).
void add_shares(const Measured& measured, int threads, bool bytes, nlohmann::json* row);

}  // namespace lathe::decoder
