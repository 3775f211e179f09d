// Hashes of contents: a short one for tables, a long one for names of what is stored.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace lathe::ir {

// 64-bit content hash of bytes (xxHash3), stable across machines and releases.
uint64_t hash_bytes(const void* data, size_t size, uint64_t seed = 0);
inline uint64_t hash_text(std::string_view s, uint64_t seed = 0) { return hash_bytes(s.data(), s.size(), seed); }
// BLAKE2b-256 as 64 hex digits.
std::string content_hash(const void* data, size_t size);

}  // namespace lathe::ir
