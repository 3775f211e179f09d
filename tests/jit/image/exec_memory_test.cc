// The loader: both ways of mapping, nothing writable and executable, limits, features, threads, fork; and the names
// that perf and gdb see.
#include "jit/image/exec_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

#include "jit/host/host_cpu.h"
#include "jit/image/profiler_map.h"

namespace lathe::jit {
namespace {

// mov dword [args->op[0].ptr], value; ret
CodeImage stores(uint32_t value) {
  CodeImage image;
  image.symbol = "lathe_test_" + std::to_string(value);
  image.code = {0x48, 0x8b, 0x07, 0xc7, 0x00, 0, 0, 0, 0, 0xc3};
  for (size_t i = 0; i < 4; ++i) image.code[5 + i] = static_cast<uint8_t>(value >> (8 * i));
  image.text_bytes = static_cast<uint32_t>(image.code.size());
  return image;
}
uint32_t run(const LoadedCode& code) {
  uint32_t result = 0;
  ir::LeafArgs args{};
  args.op[0].ptr = reinterpret_cast<char*>(&result);
  code.entry(&args);
  return result;
}
std::string own_map() {
  std::ifstream file("/proc/self/maps");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class Loader : public testing::TestWithParam<ExecMode> {};

TEST_P(Loader, RunsWhatItLoads) {
  ExecMemory memory(GetParam());
  std::vector<LoadedCode> loaded;
  for (uint32_t i = 0; i < 600; ++i) {  // more than one arena of flipped pages
    const auto code = memory.load(stores(i));
    ASSERT_TRUE(code.ok()) << code.status().to_string();
    loaded.push_back(*code);
  }
  for (uint32_t i = 0; i < 600; ++i) EXPECT_EQ(run(loaded[i]), i);
  EXPECT_EQ(memory.stats().mode, GetParam());
  EXPECT_EQ(memory.stats().images, 600);
  EXPECT_EQ(own_map().find("rwx"), std::string::npos) << own_map();
}

TEST_P(Loader, LoadsFromManyThreads) {
  ExecMemory memory(GetParam());
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (uint32_t t = 0; t < 8; ++t) {
    threads.emplace_back([&memory, &wrong, t] {
      for (uint32_t i = 0; i < 100; ++i) {
        const auto code = memory.load(stores(1000 * t + i));
        if (!code.ok() || run(*code) != 1000 * t + i) ++wrong;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(memory.stats().images, 800);
}

TEST_P(Loader, ChildOpensItsOwnArenaAndKeepsItsParentsCode) {
  ExecMemory memory(GetParam());
  const auto before = memory.load(stores(1));
  ASSERT_TRUE(before.ok());
  const std::vector<uint8_t> bytes(static_cast<const uint8_t*>(before->text),
                                   static_cast<const uint8_t*>(before->text) + 64);
  const pid_t child = fork();
  if (child == 0) {
    const auto mine = memory.load(stores(2));
    const bool ok = mine.ok() && run(*mine) == 2 && run(*before) == 1 && memory.stats().images == 1 &&
                    own_map().find("rwx") == std::string::npos;
    _exit(ok ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const auto* text = static_cast<const uint8_t*>(before->text);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), text)) << "the child wrote into its parent's code";
  const auto later = memory.load(stores(3));
  ASSERT_TRUE(later.ok());
  EXPECT_EQ(run(*later), 3u);
  EXPECT_EQ(run(*before), 1u);
}

TEST_P(Loader, StopsAtItsLimit) {
  ExecMemory memory(GetParam(), size_t{1} << 20);
  ir::Status last;
  int loaded = 0;
  for (; loaded < 100000 && last.ok(); ++loaded) last = memory.load(stores(7)).status();
  EXPECT_EQ(last.code(), ir::Code::kNOMEM) << last.to_string();
  EXPECT_GT(loaded, 200);
}

INSTANTIATE_TEST_SUITE_P(Modes, Loader, testing::Values(ExecMode::dual, ExecMode::flip),
                         [](const auto& info) { return info.param == ExecMode::dual ? "dual" : "flip"; });

TEST(LoaderRefusals, FeaturesFormAndMode) {
  ExecMemory memory(ExecMode::automatic);
  CodeImage image = stores(1);
  image.features = ~uint64_t{0};
  EXPECT_EQ(memory.load(image).status().code(), ir::Code::kUNSUPPORTED);
  for (int bit = 0; bit <= 14; ++bit) {
    image.features = uint64_t{1} << bit;
    EXPECT_EQ(memory.load(image).ok(), (host_features() & image.features) != 0) << feature_names(image.features);
  }
  image = stores(1);
  image.entry = image.text_bytes;
  EXPECT_EQ(memory.load(image).status().code(), ir::Code::kINVALID);
  image = stores(1);
  image.code.clear();
  EXPECT_EQ(memory.load(image).status().code(), ir::Code::kINVALID);
  ExecMemory off(ExecMode::off);
  EXPECT_EQ(off.load(stores(1)).status().code(), ir::Code::kUNSUPPORTED);
}

// A process that may not make written memory executable: dual mapping still works there, flipping refuses.
TEST(LoaderRefusals, MemoryDenyWriteExecute) {
#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#endif
  const pid_t child = fork();
  if (child == 0) {
    if (prctl(PR_SET_MDWE, 1, 0, 0, 0) != 0) _exit(77);
    ExecMemory dual(ExecMode::automatic), flip(ExecMode::flip);
    const auto code = dual.load(stores(5));
    const bool ok = code.ok() && run(*code) == 5 && flip.load(stores(5)).status().code() == ir::Code::kUNSUPPORTED;
    _exit(ok ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "the kernel has no PR_SET_MDWE";
  EXPECT_EQ(status, 0);
}

TEST(HostCpu, TargetIsPlausible) {
  const ir::Target& t = host_target();
  EXPECT_GE(t.cores, 1);
  EXPECT_GE(t.l1_bytes, 16 << 10);
  EXPECT_LE(t.l1_bytes, 256 << 10);
  EXPECT_GE(t.l1_ways, 4);
  EXPECT_GE(t.l2_bytes, t.l1_bytes);
  EXPECT_GE(t.l3_bytes, t.l2_bytes);
  EXPECT_EQ(t.lanes, t.has(ir::IsaLevel::avx512) ? 16 : 8);
  EXPECT_EQ(ir::isa_features(t.level) & ~host_features(), 0u);
  __builtin_cpu_init();
  EXPECT_EQ((host_features() & kCpu_avx2) != 0, __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ((host_features() & kCpu_avx512vl) != 0, __builtin_cpu_supports("avx512vl") != 0);
  EXPECT_EQ((host_features() & kCpu_bmi2) != 0, __builtin_cpu_supports("bmi2") != 0);
}

TEST(ProfilerMap, PerfLines) {
  ExecMemory memory(ExecMode::automatic);
  const std::string directory = testing::TempDir();
  const std::string path = directory + "/perf-" + std::to_string(getpid()) + ".map";
  std::remove(path.c_str());
  ProfilerMap map(kProfilerPerf, directory);
  for (const uint32_t value : {11u, 12u}) {
    const auto code = memory.load(stores(value));
    ASSERT_TRUE(code.ok());
    map.add(stores(value), *code);
    std::ifstream file(path);
    std::string line, expected;
    for (std::string next; std::getline(file, next);) line = next;
    expected = fmt::format("{:x} a lathe_test_{}", reinterpret_cast<uintptr_t>(code->text), value);
    EXPECT_EQ(line, expected);
  }
  std::remove(path.c_str());
}

// Runs under gdb, below: stops inside a leaf.
TEST(ProfilerMap, DISABLED_TrapInsideALeaf) {
  ExecMemory memory(ExecMode::automatic);
  ProfilerMap map(kProfilerGdb);
  CodeImage image = stores(1);
  image.code.insert(image.code.begin(), 0xcc);
  image.text_bytes += 1;
  image.symbol = "lathe_trap_probe";
  const auto code = memory.load(image);
  ASSERT_TRUE(code.ok());
  map.add(image, *code);
  run(*code);
}

TEST(ProfilerMap, GdbKnowsTheNames) {
  if (std::system("gdb --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "gdb is not installed";
  std::string self(4096, '\0');
  const ssize_t length = readlink("/proc/self/exe", self.data(), self.size());
  ASSERT_GT(length, 0);
  self.resize(static_cast<size_t>(length));
  const std::string command =
      "gdb -nx -batch -ex run -ex bt --args " + self +
      " --gtest_also_run_disabled_tests --gtest_filter=ProfilerMap.DISABLED_TrapInsideALeaf 2>&1 </dev/null";
  std::FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string text;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  pclose(pipe);
  if (text.find("SIGTRAP") == std::string::npos) GTEST_SKIP() << "gdb cannot trace here: " << text.substr(0, 300);
  EXPECT_NE(text.find("lathe_trap_probe"), std::string::npos) << text;
}

}  // namespace
}  // namespace lathe::jit
