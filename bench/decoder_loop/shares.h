// Shares of what one core of this machine does: reading from memory, and multiply-adds.
#pragma once
#include <optional>

namespace lathe::decoder {

// What was done, and how long it took.
struct Measured {
  double step_bytes = 0, step_seconds = 0;           // read by single steps
  double prompt_operations = 0, prompt_seconds = 0;  // of prompts
};

struct Shares {
  std::optional<double> decode_of_read, prefill_of_peak;
};

// Of one core, a second.
struct Rates {
  double read = 0;        // bytes from memory
  double operations = 0;  // of products
};

// Needs 1 GiB and half a second. bytes: products of bytes, whose peak is four times that of f32 (AVX-512 VNNI,
// AVX-VNNI).
Rates rates_of_a_core(bool bytes);
// Takes these rates. None with several threads: the rates are those of one core.
Shares shares_of(const Measured& measured, int threads, bool bytes);

}  // namespace lathe::decoder
