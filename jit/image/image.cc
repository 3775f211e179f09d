// See image.h. Layout, little-endian, nothing in between:
//   Header (fixed), leaf key, code environment, symbol, code
// The digest is over all bytes with the digest's own field zero.
#include "jit/image/image.h"

#include <algorithm>
#include <cstring>

#include "ir/analysis/analysis.h"
#include "ir/leaf_abi.h"
#include "jit/host/host_cpu.h"

namespace lathe::jit {
namespace {

constexpr char kMagic[8] = {'L', 'A', 'T', 'H', 'E', 'I', 'M', 'G'};
constexpr size_t kMaxText = 512;
constexpr size_t kDigest = 64;  // hexadecimal

struct Header {
  char magic[8];
  uint32_t format;
  uint32_t leaf_abi;
  uint64_t total_bytes;
  uint64_t features;
  uint32_t entry;
  uint32_t text_bytes;
  uint32_t code_bytes;
  uint32_t stack_bytes;
  uint32_t key_bytes;
  uint32_t environment_bytes;
  uint32_t symbol_bytes;
  uint32_t reserved;
  char digest[kDigest];
};
static_assert(sizeof(Header) == 128, "the header is part of the format");

uint64_t known_features() {
  uint64_t known = 0;
#define LATHE_CPU_FEATURE(id, bit, leaf, subleaf, register_, register_bit, xcr0_bits) known |= kCpu_##id;
#include "ir/base/cpu_features.def"
#undef LATHE_CPU_FEATURE
  return known;
}

bool printable(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 127; });
}

std::string digest_of(std::vector<uint8_t>& bytes) {
  std::memset(bytes.data() + offsetof(Header, digest), 0, kDigest);
  return ir::content_hash(bytes.data(), bytes.size());
}

}  // namespace

ir::Status check_image(const CodeImage& image) {
  if (image.code.empty() || image.code.size() > kMaxImageCode)
    return ir::invalid("image: {} bytes of code", image.code.size());
  if (image.text_bytes > image.code.size()) {
    return ir::invalid("image: {} bytes of text in {} of code", image.text_bytes, image.code.size());
  }
  if (image.entry >= image.text_bytes) return ir::invalid("image: entry {} outside its text", image.entry);
  if (image.stack_bytes > kMaxLeafStack) return ir::invalid("image: {} bytes of stack", image.stack_bytes);
  if (image.symbol.empty() || image.symbol.size() > kMaxText || !printable(image.symbol))
    return ir::invalid("image: symbol");
  if (const uint64_t unknown = image.features & ~known_features()) {
    return ir::unsupported("image: unknown features {:#x}", unknown);
  }
  return {};
}

ir::Result<std::vector<uint8_t>> write_image(const StoredImage& stored) {
  const CodeImage& image = stored.image;
  LATHE_RETURN_IF_ERROR(check_image(image));
  for (const std::string* text : {&stored.leaf_key, &stored.code_environment}) {
    if (text->size() > kMaxText || !printable(*text)) return ir::invalid("image: key or environment text");
  }
  Header h{};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  h.format = kImageFormat;
  h.leaf_abi = ir::kLeafAbi;
  h.features = image.features;
  h.entry = image.entry;
  h.text_bytes = image.text_bytes;
  h.code_bytes = static_cast<uint32_t>(image.code.size());
  h.stack_bytes = image.stack_bytes;
  h.key_bytes = static_cast<uint32_t>(stored.leaf_key.size());
  h.environment_bytes = static_cast<uint32_t>(stored.code_environment.size());
  h.symbol_bytes = static_cast<uint32_t>(image.symbol.size());
  h.total_bytes = sizeof h + h.key_bytes + h.environment_bytes + h.symbol_bytes + h.code_bytes;
  std::vector<uint8_t> bytes(sizeof h);
  bytes.reserve(h.total_bytes);
  std::memcpy(bytes.data(), &h, sizeof h);
  for (const std::string* text : {&stored.leaf_key, &stored.code_environment, &image.symbol}) {
    bytes.insert(bytes.end(), text->begin(), text->end());
  }
  bytes.insert(bytes.end(), image.code.begin(), image.code.end());
  const std::string digest = digest_of(bytes);
  std::memcpy(bytes.data() + offsetof(Header, digest), digest.data(), kDigest);
  return bytes;
}

ir::Result<StoredImage> parse_image(const uint8_t* bytes, size_t size) {
  Header h;
  if (size < sizeof h) return ir::invalid("image: {} bytes, shorter than its header", size);
  std::memcpy(&h, bytes, sizeof h);
  if (std::memcmp(h.magic, kMagic, sizeof kMagic) != 0) return ir::invalid("image: not one");
  if (h.format != kImageFormat) return ir::unsupported("image: format {}, expected {}", h.format, kImageFormat);
  const bool texts_fit = h.key_bytes <= kMaxText && h.environment_bytes <= kMaxText && h.symbol_bytes <= kMaxText;
  if (!texts_fit || h.code_bytes > kMaxImageCode) return ir::invalid("image: a part is too long");
  const uint64_t expected = sizeof h + uint64_t{h.key_bytes} + h.environment_bytes + h.symbol_bytes + h.code_bytes;
  if (h.total_bytes != expected || size != expected) return ir::invalid("image: {} bytes, expected {}", size, expected);
  std::vector<uint8_t> copy(bytes, bytes + size);
  if (digest_of(copy) != std::string_view(h.digest, kDigest)) return ir::invalid("image: checksum");
  if (h.leaf_abi != ir::kLeafAbi) return ir::unsupported("image: leaf ABI {}, expected {}", h.leaf_abi, ir::kLeafAbi);
  if (h.reserved != 0) return ir::invalid("image: reserved field");

  StoredImage stored;
  const char* at = reinterpret_cast<const char*>(bytes) + sizeof h;
  const auto take = [&at](uint32_t n) {
    at += n;
    return std::string(at - n, n);
  };
  stored.leaf_key = take(h.key_bytes);
  stored.code_environment = take(h.environment_bytes);
  stored.image.symbol = take(h.symbol_bytes);
  stored.image.code.assign(at, at + h.code_bytes);
  stored.image.features = h.features;
  stored.image.entry = h.entry;
  stored.image.text_bytes = h.text_bytes;
  stored.image.stack_bytes = h.stack_bytes;
  if (!printable(stored.leaf_key) || !printable(stored.code_environment))
    return ir::invalid("image: key or environment text");
  LATHE_RETURN_IF_ERROR(check_image(stored.image));
  return stored;
}

}  // namespace lathe::jit
