// Conditions of iterations, made as short as what holds around them allows.
#include "jit/cuda/lower/guards.h"

#include <gtest/gtest.h>

#include "ir/core/text_form.h"

namespace lathe::jit {
namespace {

// Scopes around, outermost first, with the most iterations of each; then `less < than`.
std::string guard(const std::vector<std::pair<std::string, int64_t>>& scopes, const ir::Expr& less,
                  const ir::Expr& than) {
  ir::Ranges ranges;
  ranges.set("N", {0, 1 << 20});
  for (const auto& [name, most] : scopes) ranges.enter(name, ir::Expr(most));
  const ir::Expr out = guard_of(less, than, ranges);
  return out ? print(out) : "always";
}

TEST(Guards, KeepWhatIsNotKnown) {
  const ir::Expr n = ir::symbol("N"), b = ir::iter("b"), w = ir::iter("w"), i = ir::iter("i");
  const auto tail = [](int64_t tile, const ir::Expr& of, const ir::Expr& at) {
    return ir::min(ir::Expr(tile), of - ir::Expr(tile) * at);
  };
  EXPECT_EQ(guard({{"i", 8}}, i, ir::Expr(8)), "always");
  EXPECT_EQ(guard({{"i", 9}}, i, ir::Expr(8)), "i < 8");
  EXPECT_EQ(guard({{"b", 64}, {"i", 8}}, i, tail(8, n, b)), "i < N - 8*b");
  EXPECT_EQ(guard({{"b", 64}, {"i", 9}}, i, tail(8, n, b)), "i < 8 and i < N - 8*b");
  // A tile of a tile: of both minima only the last term is left, whatever is around it.
  EXPECT_EQ(guard({{"b", 64}, {"w", 8}, {"i", 8}}, i, tail(8, tail(64, n, b), w)), "i + 8*w < N - 64*b");
  EXPECT_EQ(guard({{"b", 64}, {"w", 8}}, w, ir::ceildiv(tail(64, n, b), ir::Expr(8))), "8*w < N - 64*b");
  EXPECT_EQ(guard({{"b", 64}, {"w", 9}, {"i", 8}}, i, tail(8, tail(64, n, b), w)),
            "i + 8*w < 64 and i + 8*w < N - 64*b");
}

}  // namespace
}  // namespace lathe::jit
