// See hash.h.
#include "ir/base/hash.h"

#include <sodium.h>
#include <xxhash.h>

namespace lathe::ir {

uint64_t hash_bytes(const void* data, size_t size, uint64_t seed) { return XXH3_64bits_withSeed(data, size, seed); }

std::string content_hash(const void* data, size_t size) {
  unsigned char digest[32];
  static_assert(sizeof digest == crypto_generichash_BYTES);
  crypto_generichash(digest, sizeof digest, static_cast<const unsigned char*>(data), size, nullptr, 0);
  char hex[2 * sizeof digest + 1];
  sodium_bin2hex(hex, sizeof hex, digest, sizeof digest);
  return hex;
}

}  // namespace lathe::ir
