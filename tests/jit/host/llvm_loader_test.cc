// Opening the plug-in: late, once, of the right version only; a missing one is UNSUPPORTED with a
// reason.
#include "jit/host/llvm_loader.h"

#include <cstdlib>
#include <fstream>
#include <thread>

#include "tests/jit/llvm/llvm_programs.h"

namespace lathe::jit {
namespace {
using namespace llvm_test;

bool maps_contain(const std::string& what) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(what) != std::string::npos) return true;
  }
  return false;
}

TEST(LlvmLoader, MissingPluginIsUnsupportedAndSaysWhere) {
  const auto plugin = open_llvm_plugin({"/nonexistent/a", "/nonexistent/b"});
  ASSERT_FALSE(plugin.ok());
  EXPECT_EQ(plugin.status().code(), ir::Code::kUNSUPPORTED);
  EXPECT_NE(plugin.status().message().find("/nonexistent/b"), std::string::npos) << plugin.status().to_string();
}

TEST(LlvmLoader, AnotherVersionIsRefused) {
  const auto plugin = open_llvm_plugin({LATHE_FAKE_PLUGIN_DIR});
  ASSERT_FALSE(plugin.ok());
  EXPECT_EQ(plugin.status().code(), ir::Code::kUNSUPPORTED);
  EXPECT_NE(plugin.status().message().find("version lathe-llvm 0"), std::string::npos) << plugin.status().to_string();
}

TEST(LlvmLoader, TheCallersDirectoryComesLast) {
  const auto directories = llvm_plugin_directories("/some/where");
  ASSERT_GE(directories.size(), 2u);
  EXPECT_EQ(directories.back(), "/some/where");
}

// Runs in a process of its own, where no other test has compiled.
TEST(LlvmLoaderDeathTest, NotMappedUntilTheFirstCompile) {
  LATHE_NEEDS_LLVM();
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const bool before = llvm_mapped() || maps_contain("libLLVM") || maps_contain("lathe_llvm.so");
        const auto image = compile_llvm(row_program({ir::IsaLevel::avx2, 8}), "");
        const bool after = llvm_mapped() && maps_contain("libLLVM") && maps_contain("lathe_llvm.so");
        std::exit(!before && after && image.ok() ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(LlvmLoader, ThreadsCompileTogether) {
  LATHE_NEEDS_LLVM();
  const LeafProgram tile = matmul_tile({ir::IsaLevel::avx512, 16}, 4, 2), row = row_program({ir::IsaLevel::avx2, 8});
  const auto tile_image = compile_llvm(tile, ""), row_image = compile_llvm(row, "");
  ASSERT_TRUE(tile_image.ok() && row_image.ok());
  std::vector<std::thread> threads;
  std::vector<int> failures(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int k = 0; k < 5; ++k) {
        const auto a = compile_llvm(tile, ""), b = compile_llvm(row, "");
        if (!a.ok() || !b.ok() || a->code != tile_image->code || b->code != row_image->code) ++failures[t];
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(failures, std::vector<int>(4));
}

}  // namespace
}  // namespace lathe::jit
