// Files of kernels that the fake compiler made serve the text that they were made of, by the compiler that is there,
// and nothing else.
#include "tests/gpu/fakes/kernel_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "jit/cuda/compile/nvrtc.h"
#include "tests/gpu/fakes/fake_cubin.h"
#include "tests/gpu/temp_store.h"

namespace lathe::test {
namespace {

namespace fs = std::filesystem;

std::string found(const KernelCache& cache, const std::string& text) {
  const auto made = cache.find(text);
  return made ? made->log + "|" + made->code : "none";
}
// Of a folder with one maker, beside the maker's own file.
std::vector<fs::path> kept(const fs::path& folder) {
  std::vector<fs::path> out;
  for (const auto& f : fs::recursive_directory_iterator(folder)) {
    if (f.is_regular_file() && f.path().filename() != "maker") out.push_back(f.path());
  }
  return out;
}

TEST(KernelCache, ServesWhatWasMadeOfTheText) {
  const TempStore store;
  const KernelCache cache(store.path / "kernels", "maker");
  EXPECT_EQ(found(cache, "a"), "none");
  cache.keep("a", {"log", std::string("co\0de", 5)});
  cache.keep("b", {"", "other"});
  EXPECT_EQ(found(cache, "a"), "log|" + std::string("co\0de", 5));
  EXPECT_EQ(found(cache, "b"), "|other");
  EXPECT_EQ(found(cache, "a "), "none");
  EXPECT_EQ(found(KernelCache(store.path / "kernels", "maker"), "b"), "|other") << "another process";
}

TEST(KernelCache, ServesNoOtherText) {
  const TempStore store;
  const KernelCache cache(store.path / "kernels", "maker");
  cache.keep("a", {"", "of a"});
  const auto of_a = kept(store.path);
  ASSERT_EQ(of_a.size(), 1u);
  cache.keep("b", {"", "of b"});
  // As if both had one name.
  for (const fs::path& f : kept(store.path)) {
    if (f != of_a[0]) fs::copy_file(of_a[0], f, fs::copy_options::overwrite_existing);
  }
  EXPECT_EQ(found(cache, "a"), "|of a");
  EXPECT_EQ(found(cache, "b"), "none");
}

TEST(KernelCache, ServesNothingThatIsCutOrLonger) {
  const TempStore store;
  const KernelCache cache(store.path / "kernels", "maker");
  cache.keep("a", {"log", "code"});
  const fs::path file = kept(store.path).at(0);
  const auto whole = fs::file_size(file);
  for (size_t size = 0; size < whole; ++size) {
    fs::resize_file(file, size);
    EXPECT_EQ(found(cache, "a"), "none") << size;
    cache.keep("a", {"log", "code"});
  }
  EXPECT_EQ(found(cache, "a"), "log|code");
  std::ofstream(file, std::ios::app) << "x";
  EXPECT_EQ(found(cache, "a"), "none");
}

TEST(KernelCache, ServesNothingOfAnotherMaker) {
  const TempStore store;
  const KernelCache first(store.path / "kernels", "maker");
  first.keep("a", {"", "code"});
  const KernelCache second(store.path / "kernels", "another maker");
  EXPECT_EQ(found(second, "a"), "none");
  second.keep("a", {"", "other"});
  EXPECT_EQ(found(first, "a"), "|code") << "two take turns";
  EXPECT_EQ(found(second, "a"), "|other");
}

TEST(KernelCache, OfOtherMakersLeavesTheLast) {
  const TempStore store;
  const auto made_by = [&](const char* maker) { return KernelCache(store.path / "kernels", maker); };
  const auto age = [&](const char* code, int hours) {  // of the maker that made it
    for (const fs::path& f : kept(store.path)) {
      std::ifstream in(f, std::ios::binary);
      const std::string bytes(std::istreambuf_iterator<char>(in), {});
      const fs::path maker = f.parent_path() / "maker";
      if (bytes.find(code) != std::string::npos)
        fs::last_write_time(maker, fs::last_write_time(maker) - std::chrono::hours(hours));
    }
  };
  made_by("first").keep("a", {"", "of first"});
  age("of first", 2);
  made_by("second").keep("a", {"", "of second"});
  age("of second", 1);
  EXPECT_EQ(found(made_by("first"), "a"), "|of first");
  made_by("third").keep("a", {"", "of third"});
  EXPECT_EQ(kept(store.path).size(), 2u);
  EXPECT_EQ(found(made_by("second"), "a"), "|of second");
  const KernelCache first = made_by("first");
  EXPECT_EQ(found(first, "a"), "none");
  first.keep("a", {"", "of first"});
  EXPECT_EQ(found(first, "a"), "|of first");
}

TEST(KernelCache, KeepsNothingWithoutAFolder) {
  const TempStore store;
  for (const std::string& folder : {std::string(), (store.path / "not" / "there").string()}) {
    const KernelCache cache(folder, "maker");
    cache.keep("a", {"", "code"});
    EXPECT_EQ(found(cache, "a"), "none");
  }
  EXPECT_TRUE(fs::is_empty(store.path));
}

// Who reads while others write has all or nothing.
TEST(KernelCache, ManyWriteAtOnce) {
  const TempStore store;
  const KernelCache cache(store.path / "kernels", "maker");
  const std::string code(100'000, 'x');
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        cache.keep("a", {"", code});
        wrong += found(cache, "a") != "|" + code;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(kept(store.path).size(), 1u);
}

TEST(KernelCache, IsEmptiedWhereItIsFull) {
  const TempStore store;
  const KernelCache cache(store.path / "kernels", "maker");
  cache.keep("a", {"", "code"});
  const fs::path folder = kept(store.path).at(0).parent_path();
  for (size_t i = 0; i < KernelCache::kMostFiles; ++i) std::ofstream(folder / ("f" + std::to_string(i)));
  cache.keep("b", {"", "code"});
  EXPECT_EQ(kept(store.path).size(), 1u);
  EXPECT_EQ(found(cache, "a"), "none");
  EXPECT_EQ(found(cache, "b"), "|code");
}

// The compiler asks its files, and nothing when it is told so. It looks once in a process, so in one of its own.
class FakeCompilerFiles : public testing::Test {
 protected:
  static std::string compiled(const std::string& text) {
    const auto nvrtc = jit::Nvrtc::open(LATHE_FAKE_NVRTC).value();
    const auto code = nvrtc->compile(text, "lathe_leaf", ir::find_gpu_target("h200").value());
    return code.ok() ? std::string(host_code(code->cubin.data())) : code.status().to_string();
  }
  static constexpr const char* kText =
      "#include \"lathe_prelude.h\"\nstruct lt_args {\n  float* p0;\n};\n"
      "LT_KERNEL(lathe_leaf, 32, 1, lt_args, a) { lt_store1(a.p0, 1.0f); }\n";
};

TEST_F(FakeCompilerFiles, DISABLED_Compile) {
  const std::string code = compiled(kText);
  EXPECT_EQ(code, compiled(kText));
  std::ofstream(std::getenv("LATHE_TEST_STORE") + std::string("/code"), std::ios::binary) << code;
}
TEST_F(FakeCompilerFiles, ServeTheNextProcess) {
  const TempStore store;
  const fs::path folder = store.path / "kernels";
  const auto code = [&](const std::string& cache) {
    setenv("LATHE_FAKE_NVRTC_CACHE", cache.c_str(), 1);
    EXPECT_TRUE(passes_in_another_process(store, "FakeCompilerFiles.DISABLED_Compile"));
    std::ifstream in(store.path / "code", std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const std::string anew = code("off");
  EXPECT_FALSE(fs::exists(folder));
  EXPECT_EQ(anew.compare(0, 4,
                         "\x7f"
                         "ELF"),
            0);
  EXPECT_EQ(code(folder), anew);
  ASSERT_EQ(kept(folder).size(), 1u);
  // What the file has is what the next one gets.
  const fs::path file = kept(folder)[0];
  std::fstream planted(file, std::ios::in | std::ios::out | std::ios::binary);
  planted.seekp(-1, std::ios::end);
  planted.put(static_cast<char>(~anew.back()));
  planted.close();
  std::string other = anew;
  other.back() = static_cast<char>(~other.back());
  EXPECT_EQ(code(folder), other);
  EXPECT_EQ(code("off"), anew);
  unsetenv("LATHE_FAKE_NVRTC_CACHE");
}

}  // namespace
}  // namespace lathe::test
