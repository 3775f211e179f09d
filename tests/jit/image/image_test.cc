// Images to bytes and back: the round trip, every single flipped byte and every truncation refused, and each field out
// of range refused even with a right checksum.
#include "jit/image/image.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "ir/analysis/analysis.h"
#include "jit/host/host_cpu.h"

namespace lathe::jit {
namespace {

StoredImage sample() {
  StoredImage s;
  s.image.symbol = "lathe_matmul_f32_8x48_avx512_0123abcd";
  s.image.entry = 4;
  s.image.features = kCpu_avx | kCpu_avx2 | kCpu_fma;
  s.image.stack_bytes = 64;
  for (int i = 0; i < 300; ++i) s.image.code.push_back(static_cast<uint8_t>(i * 7));
  s.image.text_bytes = 256;
  s.leaf_key = "9f86d081884c7d65";
  s.code_environment = "e3b0c44298fc1c14";
  return s;
}

std::vector<uint8_t> bytes_of(const StoredImage& s) {
  auto bytes = write_image(s);
  EXPECT_TRUE(bytes.ok()) << bytes.status().to_string();
  return bytes.ok() ? *bytes : std::vector<uint8_t>();
}

TEST(Image, RoundTrip) {
  const StoredImage s = sample();
  const auto bytes = bytes_of(s);
  const auto back = parse_image(bytes.data(), bytes.size());
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(back->image.symbol, s.image.symbol);
  EXPECT_EQ(back->image.code, s.image.code);
  EXPECT_EQ(back->image.features, s.image.features);
  EXPECT_EQ(back->image.entry, s.image.entry);
  EXPECT_EQ(back->image.text_bytes, s.image.text_bytes);
  EXPECT_EQ(back->image.stack_bytes, s.image.stack_bytes);
  EXPECT_EQ(back->leaf_key, s.leaf_key);
  EXPECT_EQ(back->code_environment, s.code_environment);
  EXPECT_EQ(bytes_of(*back), bytes);
}

TEST(Image, EveryFlippedByteIsRefused) {
  const auto bytes = bytes_of(sample());
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const uint8_t flip : {0x01, 0x80, 0xff}) {
      auto damaged = bytes;
      damaged[i] ^= flip;
      EXPECT_FALSE(parse_image(damaged.data(), damaged.size()).ok()) << "byte " << i;
    }
  }
}

TEST(Image, EveryTruncationAndExtensionIsRefused) {
  auto bytes = bytes_of(sample());
  for (size_t n = 0; n < bytes.size(); ++n) EXPECT_FALSE(parse_image(bytes.data(), n).ok()) << n;
  bytes.push_back(0);
  EXPECT_FALSE(parse_image(bytes.data(), bytes.size()).ok());
}

// Overwrites a 32-bit header field and makes the checksum right again.
ir::Status with_field(size_t offset, uint32_t value) {
  auto bytes = bytes_of(sample());
  std::memcpy(bytes.data() + offset, &value, 4);
  std::memset(bytes.data() + 64, 0, 64);
  const std::string digest = ir::content_hash(bytes.data(), bytes.size());
  std::memcpy(bytes.data() + 64, digest.data(), 64);
  return parse_image(bytes.data(), bytes.size()).status();
}

TEST(Image, FieldsAreCheckedBehindTheChecksum) {
  EXPECT_TRUE(with_field(60, 0).ok()) << with_field(60, 0).to_string();  // reserved as it is
  EXPECT_EQ(with_field(8, 99).code(), ir::Code::kUNSUPPORTED);           // format
  EXPECT_EQ(with_field(12, ir::kLeafAbi + 1).code(), ir::Code::kUNSUPPORTED);
  EXPECT_EQ(with_field(16, 7).code(), ir::Code::kINVALID);               // total
  EXPECT_EQ(with_field(28, 0x80000000).code(), ir::Code::kUNSUPPORTED);  // features, upper half
  EXPECT_EQ(with_field(32, 256).code(), ir::Code::kINVALID);             // entry behind the text
  EXPECT_EQ(with_field(36, 301).code(), ir::Code::kINVALID);             // text longer than code
  EXPECT_EQ(with_field(40, 299).code(), ir::Code::kINVALID);             // code
  EXPECT_EQ(with_field(40, 0xffffffff).code(), ir::Code::kINVALID);
  EXPECT_EQ(with_field(44, kMaxLeafStack + 1).code(), ir::Code::kINVALID);
  EXPECT_EQ(with_field(48, 0xfffffff0).code(), ir::Code::kINVALID);  // key
  EXPECT_EQ(with_field(52, 1).code(), ir::Code::kINVALID);           // environment
  EXPECT_EQ(with_field(56, 0xffffffff).code(), ir::Code::kINVALID);  // symbol
  EXPECT_EQ(with_field(60, 1).code(), ir::Code::kINVALID);           // reserved
}

TEST(Image, WriterRefusesWhatTheReaderWould) {
  StoredImage s = sample();
  s.image.symbol = "two words";
  EXPECT_FALSE(write_image(s).ok());
  s = sample();
  s.image.code.resize(kMaxImageCode + 1);
  EXPECT_FALSE(write_image(s).ok());
  s = sample();
  s.leaf_key = std::string(2000, 'x');
  EXPECT_FALSE(write_image(s).ok());
}

TEST(Image, RandomBytesAreRefused) {
  std::mt19937 random(1);
  const auto good = bytes_of(sample());
  for (int round = 0; round < 20000; ++round) {
    std::vector<uint8_t> bytes(good.begin(), good.begin() + static_cast<long>(random() % good.size()));
    for (int edits = 1 + static_cast<int>(random() % 8); edits > 0 && !bytes.empty(); --edits) {
      bytes[random() % std::min<size_t>(bytes.size(), 160)] = static_cast<uint8_t>(random());
    }
    EXPECT_FALSE(parse_image(bytes.data(), bytes.size()).ok());
  }
}

}  // namespace
}  // namespace lathe::jit
