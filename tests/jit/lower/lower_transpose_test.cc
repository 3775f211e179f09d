// Lowering of transposes: all edge sizes, both nestings, blocks inside larger leaves, and copies of
// i32 bits.
#include "tests/jit/lower/leaf_case.h"

namespace lathe::jit {
namespace {

const std::string kHeader =
    "kernel leaf(p0: f32[_, _] in strides [?, 1], p1: f32[_, _] out strides [?, 1]) family leaf "
    "where "
    "e0 in 0..9223372036854775807, e1 in 0..9223372036854775807\n";

LeafCase transpose(const std::string& body, int64_t rows, int64_t cols) {
  return LeafCase(kHeader + body, {{{rows, cols}, {cols + 2, 1}}, {{cols, rows}, {rows + 5, 1}}},
                  {{"e0", rows}, {"e1", cols}}, Data::normal);
}

TEST(LowerTranspose, EveryEdgeOfOneSquare) {
  const std::string body = R"(  for i0 < min(16, e0) @tensor(transpose):
    for i1 < min(16, e1):
      p1[i1, i0] = p0[i0, i1]
)";
  for (int64_t rows = 0; rows <= 16; ++rows) {
    for (int64_t cols = 0; cols <= 16; ++cols) {
      LeafCase c = transpose(body, rows, cols);
      expect_leaf(c);
    }
  }
}

TEST(LowerTranspose, WholeMatrixInSquares) {
  for (const char* body : {R"(  for i0 < ceildiv(e0, 16):
    for i1 < ceildiv(e1, 16):
      for i2 < min(16, e0 - 16*i0) @tensor(transpose):
        for i3 < min(16, e1 - 16*i1):
          p1[16*i1 + i3, 16*i0 + i2] = p0[16*i0 + i2, 16*i1 + i3]
)",
                           R"(  for i0 < ceildiv(e1, 8):
    for i1 < ceildiv(e0, 8):
      for i2 < min(8, e1 - 8*i0) @tensor(transpose):
        for i3 < min(8, e0 - 8*i1):
          p1[8*i0 + i2, 8*i1 + i3] = p0[8*i1 + i3, 8*i0 + i2]
)"}) {
    for (int64_t rows : {1, 7, 8, 16, 17, 33}) {
      for (int64_t cols : {1, 9, 16, 31, 32}) {
        LeafCase c = transpose(body, rows, cols);
        expect_leaf(c);
      }
    }
  }
}

// A target that states its width has room for whole squares: no store has a mask. Squares without rows write nothing,
// there or past it.
TEST(LowerTranspose, WholeSquaresWhereThereIsRoom) {
  const auto masked = [](const LeafProgram& p) {
    int found = 0;
    const std::function<void(const Nodes&)> visit = [&](const Nodes& nodes) {
      for (const Node& n : nodes) {
        found += n.kind == Node::Kind::inst && n.inst.op == LeafOp::k_store && n.inst.mask >= 0;
        visit(n.body);
      }
    };
    visit(p.body);
    return found;
  };
  const std::string loops = "  for i0 < e0 @tensor(transpose):\n    for i1 < e1:\n      p1[i1, i0] = p0[i0, i1]\n";
  const std::string square =
      "  for i0 < min(16, e0) @tensor(transpose):\n    for i1 < e1:\n      p1[i1, i0] = p0[i0, i1]\n";
  for (const auto& [width, none] : {std::pair("_", false), std::pair("16", true), std::pair("12", false)}) {
    std::string header = kHeader;
    header.replace(header.find("p1: f32[_, _]"), 13, fmt::format("p1: f32[_, {}]", width));
    LeafCase c(header + loops, {{{5, 9}, {11, 1}}, {{9, 5}, {16, 1}}}, {{"e0", 5}, {"e1", 9}});
    const auto p = c.lower(test_target(ir::IsaLevel::avx2));
    ASSERT_TRUE(p.ok()) << p.status().to_string();
    EXPECT_EQ(masked(*p) == 0, none) << width << "\n" << to_text(*p);
  }
  std::string header = kHeader;
  header.replace(header.find("p1: f32[_, _]"), 13, "p1: f32[_, 8]");
  for (const int64_t rows : {0, 8}) {
    LeafCase c(header + square, {{{rows, 9}, {11, 1}}, {{9, rows}, {9, 1}}}, {{"e0", rows}, {"e1", 9}}, Data::normal);
    expect_leaf(c);
  }
}

// The iterator of a side of one element is in no index: a copy along the other, adjacent on both sides or not.
TEST(LowerTranspose, SidesOfOneElement) {
  const std::string scopes = "  for i0 < e0 @tensor(transpose):\n    for i1 < e1:\n",
                    turned = "  for i1 < e1 @tensor(transpose):\n    for i0 < e0:\n";
  for (const std::string& nest : {scopes, turned}) {
    for (const int64_t n : {0, 1, 7, 8, 16, 33}) {
      LeafCase apart = transpose(nest + "      p1[i1, 0] = p0[0, i1]\n", 1, n);
      expect_leaf(apart);
      LeafCase adjacent(kHeader + nest + "      p1[0, i1] = p0[0, i1]\n", {{{1, n}, {n + 2, 1}}, {{1, n}, {n + 5, 1}}},
                        {{"e0", 1}, {"e1", n}}, Data::normal);
      expect_leaf(adjacent);
    }
  }
}

TEST(LowerTranspose, UnboundedSidesAndConstantOnes) {
  for (const char* body : {"  for i0 < e0 @tensor(transpose):\n    for i1 < e1:\n      p1[i1, i0] = p0[i0, i1]\n",
                           "  for i0 < 16 @tensor(transpose):\n    for i1 < min(16, e1):\n      p1[i1, i0] = p0[i0, "
                           "i1]\n"}) {
    for (int64_t cols : {1, 5, 16}) {
      LeafCase c = transpose(body, 16, cols);
      expect_leaf(c);
    }
  }
}

TEST(LowerTranspose, RefusesOneWithoutUnitStrides) {
  auto k = ir::parse_kernel(
      "kernel leaf(p0: f32[_, _] in strides [?, ?], p1: f32[_, _] out strides [?, 1]) family leaf\n"
      "  for i0 < 16 @tensor(transpose):\n    for i1 < 16:\n      p1[i1, i0] = p0[i0, i1]\n");
  ASSERT_TRUE(k.ok()) << k.status().to_string();
  EXPECT_EQ(lower_leaf(*k, test_target(ir::IsaLevel::avx512)).status().code(), ir::Code::kUNSUPPORTED);
}

// All of a program lies where it was asked for, so that making the next leaf starts from the same memory; a copy does
// not.
TEST(LowerTranspose, TheProgramLiesInTheMemoryGiven) {
  LeafCase c =
      transpose("  for i0 < e0 @tensor(transpose):\n    for i1 < e1:\n      p1[i1, i0] = p0[i0, i1]\n", 20, 20);
  std::pmr::monotonic_buffer_resource memory;
  const auto p = lower_leaf(c.leaf(), test_target(ir::IsaLevel::avx512), {}, &memory);
  ASSERT_TRUE(p.ok()) << p.status().to_string();
  const LeafProgram copy = *p;
  size_t bodies = 0;
  const std::function<void(const Nodes&, std::pmr::memory_resource*)> check = [&](const Nodes& body, auto* where) {
    ++bodies;
    EXPECT_EQ(body.get_allocator().resource(), where);
    for (const Node& n : body) check(n.body, where);
  };
  check(p->body, &memory);
  check(copy.body, std::pmr::get_default_resource());
  EXPECT_GT(bodies, 100u);
}

TEST(LowerCopy, IntegersAreCopiedAsBits) {
  LeafCase c(
      "kernel leaf(p0: i32[_] in strides [1], p1: i32[_] out strides [1]) family leaf where e0 in "
      "0..9223372036854775807\n"
      "  for i0 < ceildiv(e0, 16):\n    for i1 < min(16, e0 - 16*i0) @vector:\n      p1[16*i0 + "
      "i1] = p0[16*i0 + i1]\n",
      {{{37}, {1}}, {{37}, {1}}}, {{"e0", 37}});
  for (size_t i = 0; i < 37; ++i) {
    const uint32_t bits = 0x7f800001u + static_cast<uint32_t>(i);  // signalling NaN patterns
    std::memcpy(&c.data(0)[LeafCase::kBorder + i], &bits, 4);
  }
  for (const ir::Target& t : test_targets()) {
    auto p = c.lower(t);
    ASSERT_TRUE(p.ok()) << p.status().to_string();
    const auto out = c.run(*p);
    EXPECT_EQ(std::memcmp(&out[1][LeafCase::kBorder], &c.data(0)[LeafCase::kBorder], 37 * 4), 0);
  }
}

}  // namespace
}  // namespace lathe::jit
