// The bytes that elements take: of whole bytes, of four bits, in blocks with a scale. No shipped type is of the last
// two kinds: their rows are made here.
#include "ir/base/dtype.h"

#include <gtest/gtest.h>

namespace lathe::ir {
namespace {

constexpr Storage kNibbles{4, 1}, kBlocks{144, 32}, kBits{1, 1}, kSixes{6, 1};

TEST(Dtype, sizes_of_buffers_are_rounded_up_to_bytes) {
  EXPECT_EQ(storage_bytes({32, 1}, 7), 28);
  EXPECT_EQ(storage_bytes(kNibbles, 0), 0);
  EXPECT_EQ(storage_bytes(kNibbles, 1), 1);
  EXPECT_EQ(storage_bytes(kNibbles, 7), 4);
  EXPECT_EQ(storage_bytes(kNibbles, 8), 4);
  EXPECT_EQ(storage_bytes(kBits, 9), 2);
  EXPECT_EQ(storage_bytes(kSixes, 3), 3);
  EXPECT_EQ(storage_bytes(kBlocks, 32), 18);
  EXPECT_EQ(storage_bytes(kBlocks, 33), 36) << "the last block is whole";
  EXPECT_EQ(storage_bytes({64, 1}, INT64_MAX), INT64_MAX) << "too large to be said";
  EXPECT_EQ(storage_bytes(kNibbles, INT64_MAX), int64_t{1} << 62);
}

TEST(Dtype, steps_are_whole_bytes_and_groups_or_none) {
  EXPECT_EQ(storage_step({32, 1}, 3), 12);
  EXPECT_EQ(storage_step({32, 1}, -3), -12);
  EXPECT_EQ(storage_step(kNibbles, 6), 3);
  EXPECT_EQ(storage_step(kNibbles, 1), std::nullopt);
  EXPECT_EQ(storage_step(kSixes, 4), 3);
  EXPECT_EQ(storage_step(kBlocks, 64), 36);
  EXPECT_EQ(storage_step(kBlocks, 16), std::nullopt);
  EXPECT_EQ(storage_step({64, 1}, INT64_MAX / 4), std::nullopt) << "overflow";
  EXPECT_EQ(storage_step({64, 1}, INT64_MIN / 4), std::nullopt);
}

TEST(Dtype, every_shipped_element_has_an_address_of_its_own) {
  for (const DType type : {
#define LATHE_DTYPE(id, bits, values, kind, code) DType::id,
#include "ir/base/dtypes.def"
#undef LATHE_DTYPE
       }) {
    EXPECT_GT(dtype_bytes(type), 0) << dtype_name(type);
    EXPECT_EQ(dtype_bytes(type, 5), 5 * dtype_bytes(type)) << dtype_name(type);
    EXPECT_EQ(dtype_step(type, -5), -5 * dtype_bytes(type)) << dtype_name(type);
  }
}

}  // namespace
}  // namespace lathe::ir
