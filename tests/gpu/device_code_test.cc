// Records of code for GPUs: what is written is read, and what is cut, changed or of another GPU is refused.
#include "runtime/cuda/device_code.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jit/cuda/cuda_text.h"
#include "runtime/store/key.h"
#include "tests/gpu/fakes/fake_cubin.h"

namespace lathe::runtime {
namespace {

using ::testing::HasSubstr;

const ir::GpuTarget kH200 = *ir::find_gpu_target("h200"), kA100 = *ir::find_gpu_target("a100");

DeviceCode code() {
  DeviceCode c;
  c.kernel = "lathe_0123456789ab";
  c.threads = 256;
  c.registers = 24;
  c.compiler = "nvrtc 12.9";
  c.cubin = test::write_fake_cubin(90, c.kernel, 24, "code");
  return c;
}
std::string why(const std::string& bytes, const ir::GpuTarget& target = kH200) {
  return parse_device_code(bytes, target).status().message();
}

TEST(DeviceCode, WhatIsWrittenIsRead) {
  const std::string bytes = write_device_code(code(), kH200);
  const auto read = parse_device_code(bytes, kH200);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->kernel, code().kernel);
  EXPECT_EQ(read->threads, 256);
  EXPECT_EQ(read->registers, 24);
  EXPECT_EQ(read->compiler, "nvrtc 12.9");
  EXPECT_EQ(read->cubin, code().cubin);
}

TEST(DeviceCode, DamageIsFound) {
  const std::string bytes = write_device_code(code(), kH200);
  for (size_t n = 0; n < bytes.size(); ++n) EXPECT_NE(why(bytes.substr(0, n)), "") << n;
  EXPECT_THAT(why(bytes + "x"), HasSubstr("bytes of code, expected"));
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string out = bytes;
    return out.replace(out.find(from), from.size(), to);
  };
  EXPECT_EQ(why(replaced("device code 1", "device code 2")), "expected `device code 1`");
  EXPECT_EQ(why(replaced("threads: 256", "threads: 0")), "0 threads");
  EXPECT_EQ(why(replaced("threads: 256", "threads: 25x")), "expected a number after `threads`");
  EXPECT_EQ(why(replaced("registers: 24", "registers: 99")), "24 registers, expected 99");
  EXPECT_THAT(why(replaced("lathe_0123456789ab\narch", "lathe_0123456789xx\narch")),
              HasSubstr("no kernel lathe_0123456789xx"));
}

TEST(DeviceCode, AnotherGpuIsRefused) {
  EXPECT_EQ(why(write_device_code(code(), kH200), kA100), "made for sm_90a, expected sm_80");
  // A record that lies about what is in it.
  EXPECT_EQ(why(write_device_code(code(), kA100), kA100), "a cubin for 90, expected 80");
}

// What the identity depends on, and that the compiler's version is none of it.
TEST(DeviceCode, TheEnvironmentSaysWhatTheCodeDependsOn) {
  DeviceCodeFields f;
  f.text_epoch = jit::kCudaTextEpoch;
  f.prelude = "p";
  f.compiler_options = jit::nvrtc_options();
  f.architecture = "sm_90a";
  const std::string text = device_code_environment(f).text;
  for (const char* field : {"text_epoch: ", "prelude: p", "compiler_options: --std=c++17", "architecture: sm_90a"})
    EXPECT_THAT(text, HasSubstr(field));
}

}  // namespace
}  // namespace lathe::runtime
