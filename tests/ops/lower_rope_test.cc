// rope in both pairings, of a part of the head, and at positions that an input gives.
#include "ir/core/text_form.h"
#include "tests/ops/check_lowered.h"

namespace lathe::ops::testing {
namespace {

TEST(Lower, RopeInBothPairings) {
  for (const bool interleaved : {false, true}) {
    check(single("rope", {{5, 3, 8}, {5, 4}, {5, 4}}, {{"interleaved", interleaved}}));
    check(single("rope", {{2, 4, 3, 6}, {4, 3}, {4, 3}}, {{"interleaved", interleaved}}));
    for (const int64_t half : {0, 1, 2, 3}) {  // numbers beyond the pairs are copied
      check(single("rope", {{2, 5, 3, 8}, {5, half}, {5, half}}, {{"interleaved", interleaved}}));
    }
  }
}

// Sums are f32, rounded once; what is beyond the pairs is copied.
TEST(Lower, RopeOfNarrowTypes) {
  for (const ir::DType x : {ir::DType::bf16, ir::DType::f16}) {
    for (const ir::DType angles : {ir::DType::f32, x}) {
      for (const bool interleaved : {false, true}) {
        Graph g;
        const std::vector<int> in = {add_tensor(g, "x", {F(5), F(3), F(8)}, false, x),
                                     add_tensor(g, "c", {F(5), F(3)}, false, angles),
                                     add_tensor(g, "s", {F(5), F(3)}, false, angles)};
        g.outputs = {add_node(g, "rope", in, "y", {{"interleaved", interleaved}})};
        EXPECT_EQ(finish(g)->tensors[static_cast<size_t>(finish(g)->outputs[0])].dtype, x);
        check(g);
      }
    }
  }
  Graph g;
  const std::vector<int> in = {add_tensor(g, "x", {F(2), F(3), F(6)}, false, ir::DType::bf16),
                               add_tensor(g, "c", {F(2), F(2)}), add_tensor(g, "s", {F(2), F(2)})};
  g.outputs = {add_node(g, "rope", in, "y")};
  const std::string text = ir::print(lower(*finish(g))->kernels.at(0).kernel);
  EXPECT_NE(text.find("d[i0, i1, p] = bf16(f32(s[i0, i1, p]) * co[i0, p] - f32(s[i0, i1, p + 2]) * si[i0, p])"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("d[i0, i1, q + 4] = s[i0, i1, q + 4]\n"), std::string::npos) << text;
}

// Rows of the angles by position, which an input of the graph gives to each token.
TEST(Lower, RopeAtAnyPositions) {
  const DimDesc b = symbol_dim("B", 0, 8), t = symbol_dim("T", 0, 64), p = symbol_dim("P", 1, 100);
  for (const bool interleaved : {false, true}) {
    for (const ir::DType type : {ir::DType::i32, ir::DType::i64}) {
      for (const std::vector<DimDesc>& at : std::vector<std::vector<DimDesc>>{{t}, {b, t}}) {
        for (const int64_t half : {2, 3}) {
          Graph g;
          const std::vector<int> in = {add_tensor(g, "x", {b, t, F(2), F(6)}), add_tensor(g, "c", {p, F(half)}),
                                       add_tensor(g, "s", {p, F(half)}), add_tensor(g, "at", at, false, type)};
          g.outputs = {add_node(g, "rope", in, "y", {{"interleaved", interleaved}})};
          for (const int64_t tokens : {0, 5}) check(g, {{"B", 3}, {"T", tokens}, {"P", 9}});
        }
      }
    }
  }
  Graph g;
  const std::vector<int> in = {add_tensor(g, "x", {t, F(2), F(6)}), add_tensor(g, "c", {F(9), F(2)}),
                               add_tensor(g, "s", {F(9), F(2)}), add_tensor(g, "at", {t}, false, ir::DType::i32)};
  g.outputs = {add_node(g, "rope", in, "y")};
  EXPECT_EQ(ir::print(lower(*finish(g))->kernels.at(0).kernel),
            "kernel rope(s: f32[T, 2, 6] in, co: f32[9, 2] in, si: f32[9, 2] in, positions: i32[T] in values 0..9 - 1, "
            R"(d: f32[T, 2, 6] out) family rope where T in 0..64
  for i0 < T [row]:
    for i1 < 2 [row]:
      for p < 2 [col]:
        d[i0, i1, p] = s[i0, i1, p] * co[i64(positions[i0]), p] - s[i0, i1, p + 2] * si[i64(positions[i0]), p]
        d[i0, i1, p + 2] = s[i0, i1, p + 2] * co[i64(positions[i0]), p] + s[i0, i1, p] * si[i64(positions[i0]), p]
      for q < 2 [col]:
        d[i0, i1, q + 4] = s[i0, i1, q + 4]
)");
}

}  // namespace
}  // namespace lathe::ops::testing
