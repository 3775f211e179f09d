// One function per format turns a block into f32. Products of scales and sums are f32, each rounded once, in the order
// written: this file is compiled without contraction, or bits would differ.
#include "bench/decoder_loop/blocks.h"

#include <bit>
#include <cstring>

#include "include/lathe.h"

namespace lathe::decoder {

namespace {

uint16_t u16(const uint8_t* at) { return static_cast<uint16_t>(at[0] | at[1] << 8); }

float half(const uint8_t* at) {
  const uint32_t h = u16(at), sign = (h & 0x8000u) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13 | (fraction != 0 ? 1u << 22 : 0));
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

float number(int q) { return static_cast<float>(q); }

// Value k of 16 bytes of nibbles: the low ones are 0..15, the high ones 16..31.
int nibble(const uint8_t* qs, int k) { return qs[k % 16] >> 4 * (k / 16) & 15; }
// Bit k of four bytes.
int bit(const uint8_t* qh, int k) { return qh[k / 8] >> k % 8 & 1; }

void f32(const uint8_t* b, float* out) { std::memcpy(out, b, 4); }
void f16(const uint8_t* b, float* out) { *out = half(b); }
void bf16(const uint8_t* b, float* out) { *out = std::bit_cast<float>(uint32_t{u16(b)} << 16); }

void q4_0(const uint8_t* b, float* out) {
  const float d = half(b);
  for (int k = 0; k < 32; ++k) out[k] = d * number(nibble(b + 2, k) - 8);
}

void q4_1(const uint8_t* b, float* out) {
  const float d = half(b), m = half(b + 2);
  for (int k = 0; k < 32; ++k) out[k] = d * number(nibble(b + 4, k)) + m;
}

void q5_0(const uint8_t* b, float* out) {
  const float d = half(b);
  for (int k = 0; k < 32; ++k) out[k] = d * number((nibble(b + 6, k) | bit(b + 2, k) << 4) - 16);
}

void q5_1(const uint8_t* b, float* out) {
  const float d = half(b), m = half(b + 2);
  for (int k = 0; k < 32; ++k) out[k] = d * number(nibble(b + 8, k) | bit(b + 4, k) << 4) + m;
}

void q8_0(const uint8_t* b, float* out) {
  const float d = half(b);
  for (int k = 0; k < 32; ++k) out[k] = d * number(static_cast<int8_t>(b[2 + k]));
}

// Scale and minimum of group g, six bits each in 12 bytes.
struct Group {
  int scale, minimum;
};
Group group(const uint8_t* sc, int g) {
  if (g < 4) return {sc[g] & 63, sc[g + 4] & 63};
  return {(sc[g + 4] & 15) | sc[g - 4] >> 6 << 4, sc[g + 4] >> 4 | sc[g] >> 6 << 4};
}

// Q4_K and, where qh is not null, Q5_K.
void k_groups(const uint8_t* b, const uint8_t* qh, const uint8_t* qs, float* out) {
  const float d = half(b), dmin = half(b + 2);
  for (int g = 0; g < 8; ++g) {
    const Group s = group(b + 4, g);
    const float scale = d * number(s.scale), minimum = dmin * number(s.minimum);
    for (int l = 0; l < 32; ++l) {
      const int low = qs[32 * (g / 2) + l] >> 4 * (g % 2) & 15;
      const int high = qh == nullptr ? 0 : qh[l] >> g & 1;
      out[32 * g + l] = scale * number(low | high << 4) - minimum;
    }
  }
}
void q4_k(const uint8_t* b, float* out) { k_groups(b, nullptr, b + 16, out); }
void q5_k(const uint8_t* b, float* out) { k_groups(b, b + 16, b + 48, out); }

void q6_k(const uint8_t* b, float* out) {
  const uint8_t *qh = b + 128, *scales = b + 192;
  const float d = half(b + 208);
  for (int k = 0; k < 256; ++k) {
    const int h = k / 128, p = k % 128 / 32, l = k % 32;
    const int low = b[64 * h + 32 * (p % 2) + l] >> 4 * (p / 2) & 15, high = qh[32 * h + l] >> 2 * p & 3;
    const float scale = d * number(static_cast<int8_t>(scales[k / 16]));
    out[k] = scale * number((low | high << 4) - 32);
  }
}

template <void (*kBlock)(const uint8_t*, float*), uint32_t kValues, uint32_t kBytes>
void each(const uint8_t* data, uint64_t blocks, float* out) {
  for (uint64_t i = 0; i < blocks; ++i) kBlock(data + i * kBytes, out + i * kValues);
}

template <void (*kBlock)(const uint8_t*, float*), uint32_t kValues, uint32_t kBytes>
constexpr BlockFormat row(uint32_t type, const char* name, const char* lathe) {
  return {type, name, lathe, LATHE_DTYPE_U8, kValues, kBytes, each<kBlock, kValues, kBytes>};
}
template <void (*kElement)(const uint8_t*, float*), uint32_t kBytes>
constexpr BlockFormat plain(uint32_t type, const char* name, uint32_t dtype) {
  return {type, name, nullptr, dtype, 1, kBytes, each<kElement, 1, kBytes>};
}

constexpr BlockFormat kFormats[] = {
    plain<f32, 4>(0, "F32", LATHE_DTYPE_F32),     plain<f16, 2>(1, "F16", LATHE_DTYPE_F16),
    row<q4_0, 32, 18>(2, "Q4_0", "q4_0"),         row<q4_1, 32, 20>(3, "Q4_1", "q4_1"),
    row<q5_0, 32, 22>(6, "Q5_0", "q5_0"),         row<q5_1, 32, 24>(7, "Q5_1", "q5_1"),
    row<q8_0, 32, 34>(8, "Q8_0", "q8_0"),         row<q4_k, 256, 144>(12, "Q4_K", "q4_k"),
    row<q5_k, 256, 176>(13, "Q5_K", "q5_k"),      row<q6_k, 256, 210>(14, "Q6_K", "q6_k"),
    plain<bf16, 2>(30, "BF16", LATHE_DTYPE_BF16),
};

}  // namespace

const BlockFormat* find_format(uint32_t type) {
  for (const BlockFormat& f : kFormats) {
    if (f.type == type) return &f;
  }
  return nullptr;
}

std::string format_names() {
  std::string out;
  for (const BlockFormat& f : kFormats) out += (out.empty() ? "" : ", ") + std::string(f.name);
  return out;
}

}  // namespace lathe::decoder
