// Code images as bytes for the store, and back. The reader trusts nothing: every length and field is checked, and a
// BLAKE2b-256 over all of it, before anything is returned. Owner and mode of the file are the store's business, CPU
// features the loader's.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "jit/program/backend.h"

namespace lathe::jit {

inline constexpr uint32_t kImageFormat = 1;
inline constexpr size_t kMaxImageCode = size_t{24} << 10;
inline constexpr uint32_t kMaxLeafStack = 1024;

// An image with what it was made from: the key of its leaf and the environment that generated it (hash texts). The
// caller compares both with what it wants.
struct StoredImage {
  CodeImage image;
  std::string leaf_key;
  std::string code_environment;
};

// What any image must satisfy, fresh or stored: sizes, entry, stack, known features, a printable symbol.
ir::Status check_image(const CodeImage& image);

// INVALID if the image fails check_image or a text is too long.
ir::Result<std::vector<uint8_t>> write_image(const StoredImage& stored);

// INVALID: not an image, damaged, or a field out of range. UNSUPPORTED: another format, leaf ABI, or unknown features.
ir::Result<StoredImage> parse_image(const uint8_t* bytes, size_t size);

}  // namespace lathe::jit
