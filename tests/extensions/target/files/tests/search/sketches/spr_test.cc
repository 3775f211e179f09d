// A server with AMX and all that comes with AVX-512: which machines go by it, and that it gets the Schedules that its
// register file calls for.
#include <gtest/gtest.h>

#include "ir/base/target_text.h"

namespace lathe::search {
namespace {

TEST(Spr, HasWhatItsBaseHasAndMore) {
  const ir::Target spr = ir::bare_target(ir::IsaLevel::spr);
  EXPECT_TRUE(spr.has(ir::IsaLevel::amx));
  EXPECT_TRUE(spr.has(ir::kCpu_avx512bf16 | ir::kCpu_avx512vnni));
  EXPECT_EQ(spr.without(ir::kCpu_avx512bf16).level, ir::IsaLevel::amx);
  EXPECT_EQ(spr.vector_registers, 32);
  const auto again = ir::parse_target(spr.to_string());
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->level, ir::IsaLevel::spr);
}

}  // namespace
}  // namespace lathe::search
