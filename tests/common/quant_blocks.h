// Weights of few bits in blocks, drawn from tests/ops/quant_vectors.txt: bytes, and the values that they stand for.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace lathe::test {

struct Format {
  std::string blocks;          // several, one after another
  std::vector<float> weights;  // theirs
  int64_t block = 0, bytes = 0;
};

inline std::string from_hex(const std::string& text) {
  std::string out;
  for (size_t i = 0; i + 1 < text.size(); i += 2) out += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  return out;
}

// The blocks of tests/ops/quant_vectors.txt whose weights are finite and of a common size.
inline std::map<std::string, Format> formats() {
  std::map<std::string, Format> out;
  std::ifstream in(LATHE_SOURCE_DIR "/tests/ops/quant_vectors.txt");
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == ';') continue;
    std::istringstream words(line);
    std::string name, block, expected;
    words >> name >> block >> expected;
    const std::string bytes = from_hex(block), bits = from_hex(expected);
    Format& f = out[name];
    f.bytes = static_cast<int64_t>(bytes.size());
    f.block = static_cast<int64_t>(bits.size() / 4);
    std::vector<float> weights(bits.size() / 4);
    std::memcpy(weights.data(), bits.data(), bits.size());
    bool tame = true;
    for (const float w : weights) tame &= std::abs(w) < 1e4f;
    if (!tame) continue;
    f.blocks += bytes;
    f.weights.insert(f.weights.end(), weights.begin(), weights.end());
  }
  return out;
}

// A weight of n rows and `depth` blocks a row, drawn from the format's blocks.
struct Weight {
  Weight(const Format& f, int64_t rows, int64_t depth) : n(rows), k(depth * f.block), row_bytes(depth * f.bytes) {
    const int64_t known = static_cast<int64_t>(f.blocks.size()) / f.bytes;
    for (int64_t i = 0; i < n * depth; ++i) {
      const int64_t from = (i * 7 + i / 3) % known;
      bytes += f.blocks.substr(static_cast<size_t>(from * f.bytes), static_cast<size_t>(f.bytes));
      const auto first = f.weights.begin() + from * f.block;
      values.insert(values.end(), first, first + f.block);
    }
  }
  int64_t n, k, row_bytes;
  std::string bytes;
  std::vector<float> values;  // [n, k]
};

}  // namespace lathe::test
