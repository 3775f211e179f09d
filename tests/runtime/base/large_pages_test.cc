// Large pages are asked for in memory that fills some, and nowhere else.
#include "runtime/base/large_pages.h"

#include <cerrno>

#include "tests/common/large_pages.h"

namespace lathe::runtime {
namespace {

using LargePages = test::LargePages;
constexpr size_t kLarge = test::kLargePage;

TEST_F(LargePages, WholeOnesOnly) {
  ask_for_large_pages(data_ + 1, 2 * kLarge - 1);  // the second page is whole
  EXPECT_FALSE(test::is_advised(data_));
  EXPECT_TRUE(test::is_advised(data_ + kLarge));
}

TEST_F(LargePages, NoneInLess) {
  for (const size_t bytes : {size_t{0}, size_t{1}, kLarge - 1}) ask_for_large_pages(data_, bytes);
  ask_for_large_pages(data_ + 1, kLarge);
  EXPECT_FALSE(test::is_advised(data_));
  EXPECT_FALSE(test::is_advised(data_ + kLarge));
}

TEST_F(LargePages, ErrnoIsTheHosts) {
  errno = EDOM;
  ask_for_large_pages(nullptr, 4 * kLarge);  // nothing is mapped there
  EXPECT_EQ(errno, EDOM);
}

}  // namespace
}  // namespace lathe::runtime
