// Features that the system lends: tiles stay only where it grants them, and where there are none it is not asked.
#include "jit/host/host_cpu.h"

#include <gtest/gtest.h>

namespace lathe::jit {
namespace {

int asked = 0;
bool grants() { return ++asked > 0; }
bool refuses() { return ++asked < 0; }

TEST(HostCpu, tiles_stay_only_where_the_system_lends_them) {
  const uint64_t amx = ir::isa_features(ir::IsaLevel::amx), avx512 = ir::isa_features(ir::IsaLevel::avx512);
  asked = 0;
  EXPECT_EQ(lent_features(amx, grants), amx);
  EXPECT_EQ(lent_features(amx, refuses), avx512);
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(lent_features(avx512, refuses), avx512);
  EXPECT_EQ(asked, 2) << "without tiles there is nothing to ask for";
  EXPECT_EQ(ir::Target().with(lent_features(amx, refuses)).level, ir::IsaLevel::avx512);
}

}  // namespace
}  // namespace lathe::jit
