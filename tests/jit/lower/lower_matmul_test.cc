// Lowering of matmul tiles: every row variant and masked column count, epilogues, operand strides,
// segments, budgets.
#include "tests/jit/lower/leaf_case.h"
#include "tests/jit/lower/tile_loop.h"

namespace lathe::jit {
namespace {

constexpr fmt::format_string<const int64_t&> kSymbols =
    " family leaf where e0 in {}..9223372036854775807, seglen in 0..9223372036854775807\n";

struct Tile {
  int m = 2, vectors = 2;
  bool masked = false;  // columns e0
  std::string b = "[32, 1]";
  std::string a = "[?, 1]";
  std::string epilogue = "r0[{0}] + p2[{1}]";
  bool padded = false;  // B's panel is whole, whatever e0 is
  int64_t columns = 0;  // masked by this constant instead
  int64_t least = 0;    // of e0, as known
  const char* prefetch = "p1 lines 6";
};

std::string tile_text(const Tile& t) {
  const std::string vector = t.columns > 0 ? fmt::format("min(16, {} - 16*{{}})", t.columns)
                             : t.masked    ? "min(16, e0 - 16*{})"
                                           : "16";
  const auto scopes = [&](int first, const std::string& indent, const std::string& statement) {
    const std::string m = fmt::format("i{}", first), n = fmt::format("i{}", first + 1),
                      l = fmt::format("i{}", first + 2);
    const std::string column = fmt::format("16*{} + {}", n, l);
    return fmt::format(
        "{0}for {1} < {2} @unroll:\n{0}  for {3} < {4} @unroll:\n{0}    for {5} < {6} "
        "@vector:\n{0}      {7}\n",
        indent, m, t.m, n, t.vectors, l, fmt::format(fmt::runtime(vector), n),
        fmt::format(fmt::runtime(statement), m + ", " + column, column, m));
  };
  return fmt::format(
             "kernel leaf(p0: f32[_, _] in strides {}, p1: f32[_, {}] in strides {}, p2: f32[_] in "
             "strides [1], "
             "p3: f32[_, _] out strides [?, 1]){}  r0: f32[{}, {}] reg\n",
             t.a, t.padded ? fmt::format("{}", 16 * t.vectors) : "_", t.b, fmt::format(kSymbols, t.least), t.m,
             16 * t.vectors) +
         scopes(0, "  ", "r0[{0}] = 0.0") + "  for i3 < seglen @tensor(mma):\n    prefetch " + t.prefetch + "\n" +
         scopes(4, "    ", "r0[{0}] += p0[{2}, i3] * p1[i3, {1}]") + scopes(7, "  ", "p3[{0}] = " + t.epilogue);
}

LeafCase tile_case(const Tile& t, int64_t k, int64_t n, Data data = Data::integers) {
  const int64_t ldb = t.b[1] == '?' ? n + 5 : 16 * t.vectors;
  const bool packed_a = t.a == "[1, ?]";
  return LeafCase(tile_text(t),
                  {{{t.m, k}, packed_a ? std::vector<int64_t>{1, t.m + 2} : std::vector<int64_t>{k + 3, 1}},
                   {{k, t.padded ? 16 * t.vectors : n}, {ldb, 1}},
                   {{n}, {1}},
                   {{t.m, n}, {n + 7, 1}}},
                  {{"e0", n}, {"seglen", k}}, data);
}

TEST(LowerMatmul, EveryRowVariantAndDepth) {
  for (int m = 1; m <= 8; ++m) {
    for (int64_t k : {0, 1, 2, 3, 4, 5, 7, 8, 64}) {
      LeafCase c = tile_case({.m = m}, k, 32);
      expect_leaf(c);
    }
  }
}

TEST(LowerMatmul, MaskedColumns) {
  for (int m : {1, 3, 6}) {
    for (int64_t n = 1; n <= 33; ++n) {
      LeafCase c = tile_case({.m = m, .vectors = 3, .masked = true, .b = "[48, 1]"}, 5, n);
      expect_leaf(c);
    }
  }
}

// The last tile of constant columns, and of columns that vary, of which all vectors but the last are known to be whole.
TEST(LowerMatmul, LastTiles) {
  for (int m : {1, 2, 6}) {
    for (const bool padded : {false, true}) {
      for (int64_t n = 1; n <= 47; ++n) {
        const int vectors = static_cast<int>((n + 15) / 16);
        const std::string b = fmt::format("[{}, 1]", 16 * vectors);
        LeafCase fixed = tile_case({.m = m, .vectors = vectors, .b = b, .padded = padded, .columns = n}, 5, n);
        expect_leaf(fixed);
        LeafCase varies = tile_case(
            {.m = m, .vectors = vectors, .masked = true, .b = b, .padded = padded, .least = 16 * (vectors - 1) + 1}, 5,
            n);
        expect_leaf(varies);
      }
    }
  }
}

// Lanes past the last column are there in a panel that is padded: hardware fetches ahead of plain loads only. Without
// masks for them (AVX2) they would take registers besides.
TEST(LowerMatmul, PaddedPanelsAreReadWhole) {
  const auto masked_loads = [](const Nodes& body, auto& self) -> int {
    int found = 0;
    for (const Node& n : body) {
      found += n.kind == Node::Kind::inst && n.inst.op == LeafOp::k_load && n.inst.mask >= 0;
      found += self(n.body, self);
    }
    return found;
  };
  for (const bool padded : {false, true}) {
    const Tile tile = {.m = 3, .vectors = 3, .masked = true, .b = "[48, 1]", .epilogue = "r0[{0}]", .padded = padded};
    for (const int64_t n : {1, 16, 17, 45, 48}) {
      LeafCase c = tile_case(tile, 5, n);
      expect_leaf(c);
    }
    const auto p = tile_case(tile, 5, 45).lower(test_target(ir::IsaLevel::avx512));
    ASSERT_TRUE(p.ok()) << p.status().to_string();
    EXPECT_EQ(masked_loads(p->body, masked_loads) == 0, padded);
  }
}

TEST(LowerMatmul, OperandStrides) {
  for (const char* a : {"[?, 1]", "[1, ?]"}) {
    for (const char* b : {"[32, 1]", "[?, 1]"}) {
      for (int m : {1, 4, 8}) {
        for (int64_t k : {1, 6, 9}) {
          LeafCase c = tile_case({.m = m, .b = b, .a = a}, k, 32);
          expect_leaf(c);
        }
      }
    }
  }
}

TEST(LowerMatmul, LoopsOverTilesAndPanels) {
  for (const int64_t panels : {0, 1, 2, 3}) {
    for (const int64_t tiles : {0, 1, 2, 5}) {
      for (const int64_t k : {0, 1, 3, 4, 9}) {
        for (const bool accumulate : {false, true}) {
          LeafCase c = tile_loop(panels, tiles, k, accumulate);
          expect_leaf(c);
        }
      }
    }
  }
}

TEST(LowerMatmul, SegmentsOfEveryTileOfALoop) {
  LeafCase c = tile_loop(2, 3, 13, false, Data::normal);
  for (const ir::Target& t : test_targets()) {
    auto p = c.lower(t);
    ASSERT_TRUE(p.ok()) << p.status().to_string();
    const auto one = c.run(*p);
    const auto three = c.run(*p, {{0, 0, 6, 0, 0}, {6 * 4, 6 * 128, 0, 0, 0}, {6 * 4, 6 * 128, 7, 0, 0}});
    EXPECT_EQ(LeafCase::compare(three, one), "");
  }
}

TEST(LowerMatmul, OneSegmentEqualsThree) {
  LeafCase c = tile_case({.m = 3}, 13, 32, Data::normal);
  for (const ir::Target& t : test_targets()) {
    auto p = c.lower(t);
    ASSERT_TRUE(p.ok()) << p.status().to_string();
    const auto one = c.run(*p);
    const auto three = c.run(*p, {{0, 0, 6, 0, 0}, {6 * 4, 6 * 128, 0, 0, 0}, {6 * 4, 6 * 128, 7, 0, 0}});
    EXPECT_EQ(LeafCase::compare(three, one), "");
  }
}

TEST(LowerMatmul, RandomDataIsTheFmaChainExactly) {
  LeafCase c = tile_case({.m = 5}, 64, 32, Data::normal);
  expect_leaf(c);  // k in order, one fma each: no reassociation
}

size_t live_accumulators(const LeafProgram& p) {
  size_t n = 0;
  for (const Node& node : p.body) n += node.kind == Node::Kind::inst && node.inst.op == LeafOp::k_constant;
  return n;
}

void count(const Nodes& body, std::map<LeafOp, int>& ops) {
  for (const Node& n : body) {
    if (n.kind == Node::Kind::inst) ++ops[n.inst.op];
    count(n.body, ops);
  }
}

int count_masked(const Nodes& body) {
  int found = 0;
  for (const Node& n : body)
    found += (n.kind == Node::Kind::inst && n.inst.op == LeafOp::k_store && n.inst.mask >= 0) + count_masked(n.body);
  return found;
}

TEST(LowerMatmul, WholeVectorsOfALastTileHaveNoMask) {
  const Tile tile = {.m = 2, .vectors = 3, .masked = true, .b = "[48, 1]", .epilogue = "r0[{0}]", .padded = true};
  for (const auto& [least, masked] : {std::pair<int64_t, int>{0, 6}, {17, 4}, {33, 2}}) {
    Tile t = tile;
    t.least = least;
    const auto p = tile_case(t, 5, 45).lower(test_target(ir::IsaLevel::avx512));
    ASSERT_TRUE(p.ok()) << p.status().to_string();
    EXPECT_EQ(count_masked(p->body), masked) << least;
  }
}

// Each step prefetches so many lines of its own row, and the values stay.
TEST(LowerMatmul, RowsArePrefetchedByTheirSteps) {
  for (const int64_t k : {1, 4, 7}) {
    LeafCase c = tile_case({.m = 4, .b = "[?, 1]", .prefetch = "p1 ahead 256 lines 2"}, k, 32);
    expect_leaf(c);
    const auto p = c.lower(test_target(ir::IsaLevel::avx512));
    ASSERT_TRUE(p.ok()) << p.status().to_string();
    std::map<LeafOp, int> ops;
    count(p->body, ops);
    EXPECT_EQ(ops[LeafOp::k_prefetch], 2 * (4 + 1)) << "four steps of the main loop and one of the rest";
    EXPECT_NE(to_text(*p).find("320"), std::string::npos) << "a line beyond 256 bytes\n" << to_text(*p);
  }
}

// To L2 where the statement says so, along rows and in streams.
TEST(LowerMatmul, PrefetchesAreToTheCacheThatIsNamed) {
  for (const auto& [prefetch, b, count_of] : {std::tuple("p1 ahead 256 lines 2 to l2", "[?, 1]", 2 * (4 + 1)),
                                              std::tuple("p1 lines 6 to l2", "[32, 1]", 6)}) {
    LeafCase c = tile_case({.m = 4, .b = b, .prefetch = prefetch}, 7, 32);
    expect_leaf(c);
    const auto p = c.lower(test_target(ir::IsaLevel::avx512));
    ASSERT_TRUE(p.ok()) << p.status().to_string();
    std::map<LeafOp, int> ops;
    count(p->body, ops);
    EXPECT_EQ(ops[LeafOp::k_prefetch], 0) << prefetch;
    EXPECT_EQ(ops[LeafOp::k_prefetch_l2], count_of) << prefetch;
  }
}

// Few rows take B from memory for each product where it is prefetched: every load has one use, an operand of its fma.
// More rows keep it in registers, and so do rows whose last vector is cut short.
TEST(LowerMatmul, FewRowsTakePrefetchedRowsOfBFromMemory) {
  for (const int m : {1, 2, 3, 4, 5, 8}) {
    for (const bool ahead : {true, false}) {
      const Tile tile{.m = m, .b = "[?, 1]", .prefetch = ahead ? "p1 ahead 256 lines 2" : "p1 lines 6"};
      for (const int64_t k : {0, 1, 3, 4, 9}) {
        LeafCase c = tile_case(tile, k, 32);
        expect_leaf(c);
      }
      LeafCase c = tile_case(tile, 8, 32);
      const auto p = c.lower(test_target(ir::IsaLevel::avx512));
      ASSERT_TRUE(p.ok()) << p.status().to_string();
      std::map<LeafOp, int> ops;
      count(p->body, ops);
      const int each = ahead && m <= 4 ? m : 1;
      EXPECT_EQ(ops[LeafOp::k_load], (4 + 1) * 2 * each + 2) << m << ahead << to_text(*p);
    }
    LeafCase cut = tile_case({.m = m, .masked = true, .b = "[?, 1]", .prefetch = "p1 ahead 256 lines 2"}, 5, 29);
    expect_leaf(cut);
  }
}

// The same where both factors lie along K: rows of B in the lanes of sums.
TEST(LowerMatmul, FewRowsTakePrefetchedColumnsAlongKFromMemory) {
  for (const int64_t m : {1, 2, 4, 5}) {
    for (const bool ahead : {true, false}) {
      const std::string text = fmt::format(
          "kernel leaf(p0: f32[_, _] in strides [?, 1], p1: f32[_, _] in strides [?, 1], p2: f32[_, _] out strides "
          "[?, 1]) family leaf where e0 in 0..9223372036854775807\n"
          "  r0: f32[{0}, 3] reg\n"
          "  for i0 < 3 @unroll:\n    for i1 < {0} @unroll:\n      r0[i1, i0] = 0.0\n"
          "  for i2 < e0:\n    for i3 < 3 @unroll:\n{1}      for i4 < {0} @unroll:\n        for i5 < 16 @vector:\n"
          "          r0[i4, i3] += p0[i4, i5 + 16*i2] * p1[i3, i5 + 16*i2]\n"
          "  for i6 < 3 @unroll:\n    for i7 < {0} @unroll:\n      p2[i7, i6] = r0[i7, i6]\n",
          m, ahead ? "      prefetch p1 ahead 2048 lines 1\n" : "");
      for (const int64_t steps : {0, 1, 3}) {
        const int64_t k = 16 * steps;
        LeafCase c(text, {{{m, k}, {k + 3, 1}}, {{3, k}, {k + 1, 1}}, {{m, 3}, {5, 1}}}, {{"e0", steps}},
                   Data::integers);
        expect_leaf(c);
      }
      LeafCase c(text, {{{m, 32}, {35, 1}}, {{3, 32}, {33, 1}}, {{m, 3}, {5, 1}}}, {{"e0", 2}}, Data::integers);
      const auto p = c.lower(test_target(ir::IsaLevel::avx512));
      ASSERT_TRUE(p.ok()) << p.status().to_string();
      std::map<LeafOp, int> ops;
      count(p->body, ops);
      EXPECT_EQ(ops[LeafOp::k_load], m + 3 * (ahead && m > 1 && m <= 4 ? m : 1)) << m << ahead << to_text(*p);
    }
  }
}

// Accumulators + vectors of B + one broadcast fit the register file; pointers, variables and
// strides fit 14.
TEST(LowerMatmul, InnerLoopIsTheBlueprint) {
  struct Shape {
    int m, vectors;
    const char* a;
  };
  for (const Shape s :
       {Shape{8, 2, "[?, 1]"}, {12, 2, "[?, 1]"}, {6, 4, "[?, 1]"}, {8, 3, "[?, 1]"}, {14, 2, "[1, 14]"}}) {
    LeafCase c = tile_case({.m = s.m, .vectors = s.vectors, .b = fmt::format("[{}, 1]", 16 * s.vectors), .a = s.a}, 8,
                           16 * s.vectors);
    auto p = c.lower(test_target(ir::IsaLevel::avx512));
    ASSERT_TRUE(p.ok()) << p.status().to_string();
    const Node* segments = nullptr;
    for (const Node& n : p->body) {
      if (n.kind == Node::Kind::segments) segments = &n;
    }
    ASSERT_NE(segments, nullptr);
    const Node* main = nullptr;
    for (const Node& n : segments->body) {
      if (n.kind == Node::Kind::loop && n.step == 4) main = &n;
    }
    ASSERT_NE(main, nullptr);
    std::map<LeafOp, int> ops;
    count(main->body, ops);
    EXPECT_EQ(ops[LeafOp::k_fma], 4 * s.m * s.vectors);
    EXPECT_EQ(ops[LeafOp::k_load], 4 * s.vectors);
    EXPECT_EQ(ops[LeafOp::k_load_bcast], 4 * s.m);
    EXPECT_EQ(ops[LeafOp::k_prefetch], 6);
    EXPECT_EQ(ops.size(), 4u) << to_text(*p);
    EXPECT_EQ(live_accumulators(*p), static_cast<size_t>(s.m * s.vectors));
    EXPECT_LE(p->ptrs.size() + static_cast<size_t>(p->num_vars) + 2, 14u) << to_text(*p);
  }
}

// What an epilogue reads again for want of registers, the next tile of the leaf does not: each step loads A and B once
// there as well.
TEST(LowerMatmul, AllTilesOfALeafLoadOnceAStep) {
  std::string text =
      "kernel leaf(p0: f32[_, _] in strides [?, 1], p1: f32[_, _] in strides [16, 1], p2: f32[_, _] out strides [?, "
      "1]) family leaf "
      "where seglen in 0..9223372036854775807\n  r0: f32[4, 16] reg\n";
  for (int tile = 0, i = 0; tile < 3; ++tile, i += 10) {
    const auto scopes = [&](int first, const std::string& indent, const std::string& target, const std::string& value) {
      return fmt::format(
          "{0}for i{1} < 4 @unroll:\n{0}  for i{2} < 2 @unroll:\n{0}    for i{3} < 8 @vector:\n{0}      {4} {5}\n",
          indent, first, first + 1, first + 2, fmt::format(fmt::runtime(target), first, first + 1, first + 2),
          fmt::format(fmt::runtime(value), first, first + 1, first + 2, 4 * tile, i + 3));
    };
    text +=
        scopes(i, "  ", "r0[i{0}, 8*i{1} + i{2}] =", "0.0") + fmt::format("  for i{} < seglen @tensor(mma):\n", i + 3) +
        scopes(i + 4, "    ", "r0[i{0}, 8*i{1} + i{2}] +=", "p0[i{0} + {3}, i{4}] * p1[i{4}, 8*i{1} + i{2}]") +
        fmt::format(fmt::runtime(scopes(i + 7, "  ", "p2[i{0} + {{0}}, 8*i{1} + i{2}] =", "r0[i{0}, 8*i{1} + i{2}]")),
                    4 * tile);
  }
  LeafCase c(text, {{{12, 8}, {11, 1}}, {{8, 16}, {16, 1}}, {{12, 16}, {16, 1}}}, {{"seglen", 8}});
  auto p = c.lower(test_target(ir::IsaLevel::avx2));
  ASSERT_TRUE(p.ok()) << p.status().to_string() << text;
  int tiles = 0;
  for (const Node& n : p->body) {
    if (n.kind != Node::Kind::segments) continue;
    std::map<LeafOp, int> ops;
    count(std::find_if(n.body.begin(), n.body.end(), [](const Node& l) { return l.step == 4; })->body, ops);
    EXPECT_EQ(ops[LeafOp::k_fma], 4 * 8);
    EXPECT_EQ(ops[LeafOp::k_load], 4 * 2) << to_text(*p);
    EXPECT_EQ(ops[LeafOp::k_load_bcast], 4 * 4);
    ++tiles;
  }
  EXPECT_EQ(tiles, 3);
}

// Where masks take vector registers they are made where B is loaded, and B is still loaded once a
// step.
TEST(LowerMatmul, MaskedInnerLoopOnAvx2) {
  LeafCase c = tile_case({.m = 6, .vectors = 1, .masked = true, .b = "[16, 1]"}, 8, 11);
  auto p = c.lower(test_target(ir::IsaLevel::avx2));
  ASSERT_TRUE(p.ok()) << p.status().to_string();
  std::map<LeafOp, int> ops;
  for (const Node& n : p->body) {
    if (n.kind == Node::Kind::segments)
      count(std::find_if(n.body.begin(), n.body.end(), [](const Node& l) { return l.step == 4; })->body, ops);
  }
  EXPECT_EQ(ops[LeafOp::k_load], 4 * 2) << to_text(*p);
  EXPECT_EQ(ops[LeafOp::k_mask_tail], 4 * 2);
  EXPECT_EQ(ops[LeafOp::k_fma], 4 * 12);
}

TEST(LowerMatmul, EpilogueGelu) {
  LeafCase c =
      tile_case({.m = 3, .epilogue = "0.5 * (r0[{0}] + p2[{1}]) * (1.0 + erf((r0[{0}] + p2[{1}]) * 0.70710677))"}, 4,
                32, Data::normal);
  expect_leaf(c, 4e-5, 1e-6);
}

}  // namespace
}  // namespace lathe::jit
