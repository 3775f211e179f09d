// A folder for a store, removed afterwards.
#pragma once
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace lathe::test {

struct TempStore {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("lathe_gpu_" + std::to_string(getpid()) + "_" + std::to_string(next++));
  TempStore() { std::filesystem::create_directories(path); }
  ~TempStore() { std::filesystem::remove_all(path); }
  TempStore(const TempStore&) = delete;
  TempStore& operator=(const TempStore&) = delete;
  static inline int next = 0;
  // Files of the store with that ending.
  std::vector<std::filesystem::path> files(const char* extension) const {
    std::vector<std::filesystem::path> out;
    for (const auto& f : std::filesystem::recursive_directory_iterator(path)) {
      if (f.path().extension() == extension) out.push_back(f.path());
    }
    return out;
  }
  std::filesystem::path cubin() const {
    const auto all = files(".cub");
    return all.empty() ? std::filesystem::path() : all.front();
  }
};

// Whether a disabled test of this program passes in a process of its own, which finds the store in LATHE_TEST_STORE.
inline bool passes_in_another_process(const TempStore& store, const std::string& disabled) {
  setenv("LATHE_TEST_STORE", store.path.c_str(), 1);
  const std::string filter = "--gtest_filter=" + disabled;
  const char* const args[] = {"/proc/self/exe", "--gtest_also_run_disabled_tests", "--gtest_brief=1", filter.c_str(),
                              nullptr};
  pid_t child = 0;
  if (posix_spawn(&child, args[0], nullptr, nullptr, const_cast<char**>(args), environ) != 0) return false;
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// A disabled test that asks for what this process stored, and compiles nothing, passes in another one.
inline void expect_served_in_another_process(const TempStore& store, const std::string& disabled) {
  const bool served = passes_in_another_process(store, disabled);
  EXPECT_TRUE(served);
  testing::Test::RecordProperty("compiles_second", served ? 0 : 1);
}

}  // namespace lathe::test
