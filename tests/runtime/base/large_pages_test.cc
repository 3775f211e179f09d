// Large pages are asked for in memory that fills some, and nowhere else.
#include "runtime/base/large_pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <string>

namespace lathe::runtime {
namespace {

constexpr size_t kLarge = size_t{2} << 20;

// Whether /proc says that the mapping of an address is to have large pages.
bool is_advised(const char* address) {
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

class LargePages : public ::testing::Test {
 protected:
  void SetUp() override {
    void* p = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(p, MAP_FAILED);
    mapping_ = static_cast<char*>(p);
    data_ = mapping_ + (kLarge - reinterpret_cast<uintptr_t>(p) % kLarge) % kLarge;  // where a large page starts
    if (madvise(data_ + 2 * kLarge, kLarge, MADV_HUGEPAGE) != 0) GTEST_SKIP() << "the kernel has no large pages";
    ASSERT_TRUE(is_advised(data_ + 2 * kLarge));
  }
  void TearDown() override { munmap(mapping_, kBytes); }

  static constexpr size_t kBytes = 5 * kLarge;
  char* mapping_ = nullptr;
  char* data_ = nullptr;
};

TEST_F(LargePages, WholeOnesOnly) {
  ask_for_large_pages(data_ + 1, 2 * kLarge - 1);  // the second page is whole
  EXPECT_FALSE(is_advised(data_));
  EXPECT_TRUE(is_advised(data_ + kLarge));
}

TEST_F(LargePages, NoneInLess) {
  for (const size_t bytes : {size_t{0}, size_t{1}, kLarge - 1}) ask_for_large_pages(data_, bytes);
  ask_for_large_pages(data_ + 1, kLarge);
  EXPECT_FALSE(is_advised(data_));
  EXPECT_FALSE(is_advised(data_ + kLarge));
}

TEST_F(LargePages, ErrnoIsTheHosts) {
  errno = EDOM;
  ask_for_large_pages(nullptr, 4 * kLarge);  // nothing is mapped there
  EXPECT_EQ(errno, EDOM);
}

}  // namespace
}  // namespace lathe::runtime
