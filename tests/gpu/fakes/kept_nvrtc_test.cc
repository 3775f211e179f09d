// What the real compiler has made is served for the text, the options and the library that it was made of. The
// compiler's fake stands in the real one's place and counts what it is asked for.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "jit/cuda/compile/nvrtc.h"
#include "tests/gpu/fake_gpu.h"
#include "tests/gpu/temp_store.h"

namespace lathe::test {
namespace {

namespace fs = std::filesystem;

std::string text(const char* value) {
  return "#include \"lathe_prelude.h\"\nstruct lt_args {\n  float* p0;\n};\n"
         "LT_KERNEL(lathe_leaf, 32, 1, lt_args, a) { lt_store1(a.p0, " +
         std::string(value) + "); }\n";
}

// It looks for its files once in a process, so in one of its own.
class KeptCompiler : public testing::Test {
 protected:
  // Compilations that were asked of the library `of`, after each step of the test below.
  static std::string compilations(const fs::path& folder, const char* of = LATHE_FAKE_NVRTC) {
    const TempStore store;
    setenv("LATHE_KEPT_NVRTC_CACHE", folder.c_str(), 1);
    setenv("LATHE_REAL_NVRTC", of, 1);
    EXPECT_TRUE(passes_in_another_process(store, "KeptCompiler.DISABLED_Compile"));
    unsetenv("LATHE_KEPT_NVRTC_CACHE");
    std::ifstream in(store.path / "counts");
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

TEST_F(KeptCompiler, DISABLED_Compile) {
  const auto nvrtc = jit::Nvrtc::open(LATHE_KEPT_NVRTC).value();
  const auto of = [](const char* gpu) { return ir::find_gpu_target(gpu).value(); };
  const auto compile = [&](const std::string& t, const char* gpu) { return nvrtc->compile(t, "lathe_leaf", of(gpu)); };
  const auto cubin = [&](const char* value, const char* gpu) { return compile(text(value), gpu)->cubin; };
  FakeNvrtc& fake = fake_compiler();
  const auto kept = cubin("1.0f", "h200");
  std::string counts = std::to_string(fake.compiles);
  EXPECT_EQ(cubin("1.0f", "h200"), kept);
  counts += " " + std::to_string(fake.compiles);
  EXPECT_NE(cubin("2.0f", "h200"), kept);
  EXPECT_NE(cubin("1.0f", "a100"), kept);
  counts += " " + std::to_string(fake.compiles);
  // What is refused for what the log says is refused again, by the log that is kept.
  fake.spills = true;
  for (int i = 0; i < 2; ++i) EXPECT_EQ(compile(text("3.0f"), "h200").status().code(), ir::Code::kUNSUPPORTED);
  counts += " " + std::to_string(fake.compiles);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(compile(text("wrong"), "h200").status().code(), ir::Code::kINTERNAL);
  counts += " " + std::to_string(fake.compiles);
  std::ofstream(std::getenv("LATHE_TEST_STORE") + std::string("/counts")) << counts;
}

TEST_F(KeptCompiler, IsAskedOnceForEachText) {
  const TempStore store;
  const fs::path folder = store.path / "cubins", other = store.path / "other.so";
  EXPECT_EQ(compilations(folder), "1 1 3 4 6");
  EXPECT_EQ(compilations(folder), "0 0 0 0 2") << "another process";
  EXPECT_EQ(compilations("off"), "1 2 4 6 8");
  EXPECT_EQ(compilations(folder), "0 0 0 0 2");
  fs::create_symlink(LATHE_FAKE_NVRTC, other);
  EXPECT_EQ(compilations(folder, other.c_str()), "1 1 3 4 6") << "another library";
  EXPECT_EQ(compilations(folder), "0 0 0 0 2") << "what the other one made serves it alone, and takes nothing away";
  EXPECT_EQ(compilations(folder, other.c_str()), "0 0 0 0 2");
}

}  // namespace
}  // namespace lathe::test
