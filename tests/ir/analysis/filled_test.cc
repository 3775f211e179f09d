// Which values are 0 beyond a bound.
#include "ir/analysis/filled.h"

#include <gtest/gtest.h>

namespace lathe::ir {
namespace {

TEST(Filled, IsASelectOfAnIndexAndZeroOnly) {
  const Expr x = load("x", {iter("i")}, DType::f32), inside = make(Op::k_lt, {iter("i"), symbol("N")});
  const auto fills = [](const Expr& e) { return &unfilled(e) != &e; };
  const Expr filled = select(inside, x, const_float(0));
  ASSERT_TRUE(fills(filled));
  EXPECT_TRUE(equal(unfilled(filled), x));
  const Expr byte = load("q", {iter("i")}, DType::i8);
  EXPECT_TRUE(fills(select(inside, byte, const_int(0, DType::i8))));
  EXPECT_FALSE(fills(x));
  EXPECT_FALSE(fills(select(inside, x, const_float(1))));
  EXPECT_FALSE(fills(select(inside, x, const_float(-0.0)))) << "its sign would be lost";
  EXPECT_FALSE(fills(select(inside, const_float(0), x)));
  EXPECT_FALSE(fills(select(make(Op::k_lt, {x, const_float(1)}), x, const_float(0)))) << "no indices are compared";
}

}  // namespace
}  // namespace lathe::ir
