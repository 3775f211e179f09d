// Weights of few bits by plain code for each format, beside which the meanings of quant_formats.def are held.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ir/base/dtype.h"

namespace lathe::ops::testing {

// Bytes of an operand, each a number, with its dims.
struct QuantOperand {
  std::vector<int64_t> dims;
  const std::vector<double>* data = nullptr;
};

class QuantReference {
 public:
  QuantReference(std::string format, int64_t group, std::vector<QuantOperand> in)
      : format_(std::move(format)), group_(group), in_(std::move(in)) {}

  double weight(int64_t n, int64_t k) const {
    if (format_ == "int8_channel") return value(0, n, k) * in_[1].data->at(static_cast<size_t>(n));
    if (format_ == "int8_group") return value(0, n, k) * value(1, n, k / group_);
    if (format_.starts_with("nbits_")) return nbits(n, k);
    if (format_.starts_with("gptq") || format_ == "awq") return words(n, k);
    return ggml(n, k);
  }

 private:
  // By the g_idx behind the fields, or in turn.
  int64_t group_of(int64_t k) const {
    return in_.size() > 3 ? static_cast<int64_t>(in_[3].data->at(static_cast<size_t>(k))) : k / group_;
  }
  // Element i of row n.
  double value(size_t operand, int64_t n, int64_t i) const {
    int64_t row = 1;
    for (size_t d = 1; d < in_[operand].dims.size(); ++d) row *= in_[operand].dims[d];
    return in_[operand].data->at(static_cast<size_t>(n * row + i));
  }
  int byte(size_t operand, int64_t n, int64_t i) const { return static_cast<int>(value(operand, n, i)); }
  double half(int64_t n, int64_t at) const {
    return ir::f16_to_f32(static_cast<uint16_t>(byte(0, n, at) | byte(0, n, at + 1) << 8));
  }

  double nbits(int64_t n, int64_t k) const {
    const bool four = format_.starts_with("nbits_4"), zeros = format_.ends_with("zeros");
    const int64_t g = k / group_, in_group = k % group_;
    const int q = four ? byte(0, n, g * (group_ / 2) + in_group / 2) >> 4 * (in_group % 2) & 15
                       : byte(0, n, g * group_ + in_group);
    if (format_.ends_with("float_zeros")) return (q - value(2, n, g)) * value(1, n, g);
    const int zero = !zeros ? (four ? 8 : 128) : four ? byte(2, n, g / 2) >> 4 * (g % 2) & 15 : byte(2, n, g);
    return (q - zero) * value(1, n, g);
  }

  // Words of eight nibbles, and scales [groups, N].
  double words(int64_t n, int64_t k) const {
    const auto nibble = [&](size_t operand, int64_t row, int64_t column, int64_t i) {
      return static_cast<int>(static_cast<uint32_t>(static_cast<int64_t>(value(operand, row, column))) >> 4 * i & 15);
    };
    constexpr int64_t kOrder[] = {0, 4, 1, 5, 2, 6, 3, 7};  // of AWQ's columns
    const bool awq = format_ == "awq";
    const int64_t g = group_of(k);
    const int q = awq ? nibble(0, k, n / 8, kOrder[n % 8]) : nibble(0, k / 8, n, k % 8);
    const int zero = nibble(2, g, n / 8, awq ? kOrder[n % 8] : n % 8) + (format_ == "gptq" ? 1 : 0);
    return (q - zero) * value(1, g, n);
  }

  double ggml(int64_t n, int64_t k) const {
    const int64_t size = format_.ends_with("_k") ? 256 : 32, i = k % size;
    const auto block = [&](int64_t bytes) { return k / size * bytes; };
    const auto nibble = [&](int64_t at) { return byte(0, n, at + i % 16) >> 4 * (i / 16) & 15; };
    if (format_ == "q4_0") return half(n, block(18)) * (nibble(block(18) + 2) - 8);
    if (format_ == "q4_1") return half(n, block(20)) * nibble(block(20) + 4) + half(n, block(20) + 2);
    if (format_ == "q5_0" || format_ == "q5_1") {
      const int64_t head = format_ == "q5_0" ? 2 : 4, at = block(20 + head);
      const int high = byte(0, n, at + head + i / 8) >> i % 8 & 1, v = nibble(at + head + 4) | high << 4;
      return format_ == "q5_0" ? half(n, at) * (v - 16) : half(n, at) * v + half(n, at + 2);
    }
    if (format_ == "q8_0") return half(n, block(34)) * static_cast<int8_t>(byte(0, n, block(34) + 2 + i));
    const int64_t g = i / 32, l = i % 32;
    if (format_ == "q6_k") {
      const int64_t at = block(210), h = i / 128, p = i % 128 / 32;
      const int low = byte(0, n, at + 64 * h + 32 * (p % 2) + l) >> 4 * (p / 2) & 15,
                high = byte(0, n, at + 128 + 32 * h + l) >> 2 * p & 3;
      return half(n, at + 208) * static_cast<int8_t>(byte(0, n, at + 192 + i / 16)) * ((low | high << 4) - 32);
    }
    const bool five = format_ == "q5_k";
    const int64_t at = block(five ? 176 : 144), s = at + 4, q = at + (five ? 48 : 16);
    const int scale = g < 4 ? byte(0, n, s + g) & 63 : (byte(0, n, s + g + 4) & 15) | byte(0, n, s + g - 4) >> 6 << 4;
    const int least = g < 4 ? byte(0, n, s + g + 4) & 63 : byte(0, n, s + g + 4) >> 4 | byte(0, n, s + g) >> 6 << 4;
    int v = byte(0, n, q + 32 * (i / 64) + l) >> 4 * (g % 2) & 15;
    if (five) v |= (byte(0, n, at + 16 + l) >> g & 1) << 4;
    return half(n, at) * scale * v - half(n, at + 2) * least;
  }

  std::string format_;
  int64_t group_;
  std::vector<QuantOperand> in_;
};

}  // namespace lathe::ops::testing
