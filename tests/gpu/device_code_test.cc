// Records of code for GPUs: what is written is read, and what is cut, changed or of another GPU is refused.
#include "runtime/cuda/device_code.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "jit/cuda/text/cuda_text.h"
#include "runtime/store/key.h"
#include "runtime/store/store.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/fake_gpu.h"
#include "tests/gpu/fakes/fake_cubin.h"
#include "tests/gpu/temp_store.h"

namespace lathe::runtime {
namespace {

using ::testing::HasSubstr;

const ir::GpuTarget kH200 = *ir::find_gpu_target("h200"), kA100 = *ir::find_gpu_target("a100");

DeviceCode code() {
  DeviceCode c;
  c.kernel = "lathe_0123456789ab";
  c.threads = 256;
  c.registers = 24;
  c.shared = 65536;
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
  EXPECT_EQ(why(replaced("device code 3", "device code 2")), "expected `device code 3`");
  EXPECT_EQ(why(replaced("threads: 256", "threads: 0")), "0 threads");
  EXPECT_EQ(why(replaced("shared: 65536", "shared: 232449")), "232449 bytes of shared memory");
  EXPECT_EQ(why(replaced("threads: 256", "threads: 25x")), "expected a number after `threads`");
  EXPECT_EQ(why(replaced("registers: 24", "registers: 99")), "24 registers, expected 99");
  EXPECT_THAT(why(replaced("lathe_0123456789ab\narch", "lathe_0123456789xx\narch")),
              HasSubstr("no kernel lathe_0123456789xx"));
}

TEST(DeviceCode, ClustersAreThoseOfTheCubin) {
  DeviceCode c = code();
  c.cluster = 2;
  EXPECT_EQ(why(write_device_code(c, kH200)), "clusters of 1 blocks, expected 2");
  c.cubin = test::write_fake_cubin(90, c.kernel, 24, "code", 2);
  const std::string bytes = write_device_code(c, kH200);
  const auto read = parse_device_code(bytes, kH200);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->cluster, 2);
  const auto of = [&](const std::string& blocks) {
    std::string out = bytes;
    return out.replace(out.find("cluster: 2"), 10, "cluster: " + blocks);
  };
  EXPECT_EQ(why(of("0")), "clusters of 0 blocks");
  EXPECT_EQ(why(of("3")), "clusters of 3 blocks");
  EXPECT_EQ(why(of("1")), "clusters of 2 blocks, expected 1");
  EXPECT_EQ(why(write_device_code(c, kA100), kA100), "clusters of 2 blocks");
}

// The driver reads a cubin without being told how long it is: its tables lie in it.
TEST(DeviceCode, TablesThatLeaveTheCubinAreFound) {
  const auto forged = [](const auto& change) {
    DeviceCode c = code();
    Elf64_Ehdr head;
    std::memcpy(&head, c.cubin.data(), sizeof head);
    change(head);
    std::memcpy(c.cubin.data(), &head, sizeof head);
    return why(write_device_code(c, kH200));
  };
  EXPECT_EQ(forged([](Elf64_Ehdr&) {}), "");
  EXPECT_EQ(forged([](Elf64_Ehdr& h) { h.e_shentsize = 32; }), "cubin: sections of 32 bytes each");
  EXPECT_EQ(forged([](Elf64_Ehdr& h) { h.e_shoff = UINT64_MAX - 8; }), "cubin: cut short");
  EXPECT_EQ(forged([](Elf64_Ehdr& h) { h.e_shnum = 0xffff; }), "cubin: cut short");
  EXPECT_EQ(forged([](Elf64_Ehdr& h) { h.e_phnum = 1, h.e_phentsize = 56, h.e_phoff = UINT64_MAX; }),
            "cubin: cut short");
  EXPECT_EQ(forged([](Elf64_Ehdr& h) { h.e_phnum = 0xffff, h.e_phentsize = 56; }), "cubin: cut short");
}

TEST(DeviceCode, AnotherGpuIsRefused) {
  EXPECT_EQ(why(write_device_code(code(), kH200), kA100), "made for sm_90a, expected sm_80");
  // A record that lies about what is in it.
  EXPECT_EQ(why(write_device_code(code(), kA100), kA100), "a cubin for 90, expected 80");
}

// Code for a newer driver does not keep its place from code for the older one, which is found from then on.
TEST(DeviceCode, WhatTheDriverDoesNotTakeIsReplaced) {
  const std::string text =
      "kernel leaf(p0: f32[e0] in, p1: f32[e0] out) family device where e0 in 1..1000\n"
      "  for i0 < ceildiv(e0, 256) @grid:\n"
      "    for i1 < min(256, e0 - 256*i0) @block:\n"
      "      p1[256*i0 + i1] = p0[256*i0 + i1]\n";
  const ir::Kernel kernel = test::kernel_of(text);
  const test::TempStore folder;
  Stats stats;
  const auto origin_for = [&](const char* driver, int compiler_major) {
    StoreOptions options;
    options.cache_dir = folder.path;
    const auto store = Store::open(options, &stats);
    EXPECT_TRUE(store.ok());
    test::fake_compiler().major = compiler_major;
    DeviceCodes codes(LATHE_FAKE_NVRTC, store->get(), &stats);
    DevicePolicy policy;
    policy.compile = true;
    policy.driver = driver;
    LeafOrigin origin = LeafOrigin::memory;
    const auto got = codes.get({kernel, text}, kH200, policy, &origin);
    test::fake_compiler().major = 12;
    EXPECT_TRUE(got.ok()) << got.status().message();
    return origin;
  };
  EXPECT_EQ(origin_for("13.0", 13), LeafOrigin::compiled);
  EXPECT_EQ(origin_for("13.0", 12), LeafOrigin::store);
  EXPECT_EQ(origin_for("12.4", 12), LeafOrigin::compiled);
  EXPECT_EQ(origin_for("12.4", 12), LeafOrigin::store);
  EXPECT_EQ(origin_for("13.0", 13), LeafOrigin::store) << "a newer driver takes older code";
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
