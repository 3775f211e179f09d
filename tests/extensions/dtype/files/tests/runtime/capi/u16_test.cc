// Unsigned integers of 16 bits: their size, and what DLPack calls them. That copies and transposes keep their bits on
// every level is tested with all types (capi_types_test.cc).
#include <gtest/gtest.h>

#include "include/lathe.h"
#include "ir/base/dtype.h"
#include "runtime/oracle/data_sets.h"

namespace lathe::runtime {
namespace {

TEST(U16, IsOneRowOfTheTable) {
  EXPECT_EQ(ir::dtype_bytes(ir::DType::u16), 2);
  EXPECT_EQ(static_cast<uint32_t>(ir::DType::u16), LATHE_DTYPE_U16);
  EXPECT_EQ(ir::dtype_dlpack_code(ir::DType::u16), 1);
}

TEST(U16, IsLoadedAndStoredWhole) {
  char data[6] = {};
  for (const double value : {0.0, 255.0, 256.0, 65535.0}) {
    store_element(ir::DType::u16, data, 1, value);
    EXPECT_EQ(load_element(ir::DType::u16, data, 1), value);
    EXPECT_EQ(load_element(ir::DType::u16, data, 0), 0);
    EXPECT_EQ(load_element(ir::DType::u16, data, 2), 0);
  }
}

}  // namespace
}  // namespace lathe::runtime
