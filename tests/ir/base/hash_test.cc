// Content hashes are what other machines compute.
#include <gtest/gtest.h>

#include "ir/analysis/analysis.h"

namespace lathe::ir {
namespace {

TEST(ContentHash, KnownValues) {
  EXPECT_EQ(hash_text(""), 0x2d06800538d394c2u);  // XXH3 64 of nothing
  EXPECT_EQ(content_hash("", 0), "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
  EXPECT_NE(hash_text("a", 1), hash_text("a", 2));
}

}  // namespace
}  // namespace lathe::ir
