// Memory in which a test sees where large pages were asked for.
#pragma once
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdio>
#include <fstream>
#include <string>

namespace lathe::test {

inline constexpr size_t kLargePage = size_t{2} << 20;

// Whether /proc says that the mapping of an address is to have large pages.
inline bool is_advised(const char* address) {
  std::ifstream maps("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t first = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &first, &end) == 2) {
      here = first <= reinterpret_cast<uintptr_t>(address) && reinterpret_cast<uintptr_t>(address) < end;
    } else if (here && line.starts_with("VmFlags:")) {
      return (line + " ").find(" hg ") != std::string::npos;
    }
  }
  return false;
}

// Fresh memory of several large pages; skips where the kernel has none.
class LargePages : public ::testing::Test {
 protected:
  void SetUp() override {
    void* p = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(p, MAP_FAILED);
    mapping_ = static_cast<char*>(p);
    data_ = mapping_ +
            (kLargePage - reinterpret_cast<uintptr_t>(p) % kLargePage) % kLargePage;  // where a large page starts
    if (madvise(data_ + 2 * kLargePage, kLargePage, MADV_HUGEPAGE) != 0)
      GTEST_SKIP() << "the kernel has no large pages";
    ASSERT_TRUE(is_advised(data_ + 2 * kLargePage));
  }
  void TearDown() override { munmap(mapping_, kBytes); }

  static constexpr size_t kBytes = 5 * kLargePage;
  char* mapping_ = nullptr;
  char* data_ = nullptr;
};

}  // namespace lathe::test
