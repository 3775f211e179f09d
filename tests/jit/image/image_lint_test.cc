// The lint lets every image of both generators pass and refuses what a leaf may not hold.
#include "jit/image/image_lint.h"

#include <gtest/gtest.h>

#include "tests/jit/program/random_program.h"

namespace lathe::jit {
namespace {

using namespace x64_test;

TEST(ImageLint, PassesWhatTheGeneratorEmits) {
  if (!backend_built(Backend::xbyak)) GTEST_SKIP() << "built with LATHE_XBYAK=OFF";
  for (const Shape& s : all_shapes()) {
    int images = 0;
    for (unsigned seed = 0; seed < 150; ++seed) {
      const RandomProgram random(s, seed);
      const auto image = compile_xbyak(random.program());
      if (!image.ok()) continue;
      ++images;
      const ir::Status status = lint_image(*image);
      EXPECT_TRUE(status.ok()) << "seed " << seed << ": " << status.to_string();
    }
    EXPECT_GT(images, 50);
  }
}

CodeImage image_of(std::vector<uint8_t> code, uint64_t features = 0) {
  CodeImage image;
  image.symbol = "leaf";
  image.features = features;
  code.push_back(0xc3);
  image.code = std::move(code);
  image.text_bytes = static_cast<uint32_t>(image.code.size());
  return image;
}

TEST(ImageLint, RefusesWhatALeafMayNotHold) {
  EXPECT_TRUE(lint_image(image_of({0x90})).ok()) << lint_image(image_of({0x90})).to_string();
  const std::vector<std::pair<const char*, std::vector<uint8_t>>> bad = {
      {"syscall", {0x0f, 0x05}},
      {"int 3", {0xcc}},
      {"int 0x80", {0xcd, 0x80}},
      {"ud2", {0x0f, 0x0b}},
      {"hlt", {0xf4}},
      {"std", {0xfd}},
      {"ldmxcsr", {0x0f, 0xae, 0x14, 0x24}},
      {"fldcw", {0xd9, 0x2c, 0x24}},
      {"rep stosb", {0xf3, 0xaa}},
      {"mov fs, ax", {0x8e, 0xe0}},
      {"mov rax, fs:[0]", {0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0}},
      {"call outside", {0xe8, 0, 1, 0, 0}},
      {"call rax", {0xff, 0xd0}},
      {"jump outside", {0xeb, 0x70}},
      {"jump into an instruction", {0xeb, 0x01, 0xb8, 1, 2, 3, 4}},
      {"load outside", {0x8b, 0x05, 0, 1, 0, 0}},
      {"cut off", {0x81}},
      {"lock", {0xf0, 0x83, 0x00, 0x01}},
  };
  for (const auto& [what, code] : bad) EXPECT_FALSE(lint_image(image_of(code)).ok()) << what;
  const std::vector<uint8_t> vaddps = {0xc5, 0xf4, 0x58, 0xc2}, vfmadd = {0xc4, 0xe2, 0x75, 0xb8, 0xc2},
                             zmm = {0x62, 0xf1, 0x74, 0x48, 0x58, 0xc2};
  EXPECT_FALSE(lint_image(image_of(vaddps)).ok()) << "AVX that is not declared";
  EXPECT_TRUE(lint_image(image_of(vaddps, kCpu_avx)).ok()) << lint_image(image_of(vaddps, kCpu_avx)).to_string();
  EXPECT_FALSE(lint_image(image_of(vfmadd, kCpu_avx | kCpu_avx2)).ok());
  EXPECT_FALSE(lint_image(image_of(zmm, kCpu_avx | kCpu_avx2 | kCpu_fma)).ok());
  EXPECT_TRUE(lint_image(image_of(zmm, kCpu_avx | kCpu_avx512f)).ok());
  const std::vector<uint8_t> vex_dot = {0xc4, 0xe2, 0x75, 0x50, 0xc2}, evex_dot = {0x62, 0xf2, 0x75, 0x48, 0x50, 0xc2};
  EXPECT_FALSE(lint_image(image_of(vex_dot, kCpu_avx | kCpu_avx2 | kCpu_avx512vnni)).ok());
  EXPECT_TRUE(lint_image(image_of(vex_dot, kCpu_avx | kCpu_avx_vnni)).ok());
  EXPECT_FALSE(lint_image(image_of(evex_dot, kCpu_avx | kCpu_avx512f | kCpu_avx_vnni)).ok());
  EXPECT_TRUE(lint_image(image_of(evex_dot, kCpu_avx512f | kCpu_avx512vnni)).ok());
  for (const uint8_t prefix : {0x74, 0x76, 0x77}) {  // none, f3, f2: other features' instructions
    EXPECT_FALSE(lint_image(image_of({0xc4, 0xe2, prefix, 0x50, 0xc2}, ~uint64_t{0})).ok());
    EXPECT_FALSE(lint_image(image_of({0x62, 0xf2, prefix, 0x48, 0x50, 0xc2}, ~uint64_t{0})).ok());
  }
}

}  // namespace
}  // namespace lathe::jit
