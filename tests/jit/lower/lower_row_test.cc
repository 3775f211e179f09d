// Lowering of row and elementwise leaves: all lengths, several rows, reductions, epilogues that
// read what was just written, scalar remainders, strided lanes, and what is refused.
#include <limits>

#include "tests/jit/lower/leaf_case.h"

namespace lathe::jit {
namespace {

const std::string kExtents = "e0 in 0..9223372036854775807, e1 in 0..9223372036854775807";

LeafCase rows(const std::string& body, int64_t r, int64_t n, Data data = Data::integers,
              const std::string& registers = {}) {
  return LeafCase(
      "kernel leaf(p0: f32[_, _] in strides [?, 1], p1: f32[_, _] out strides [?, 1], p2: f32[_] "
      "in strides [1]) family leaf where " +
          kExtents + "\n" + registers + body,
      {{{r, n}, {n + 3, 1}}, {{r, n}, {n + 1, 1}}, {{n}, {1}}}, {{"e0", r}, {"e1", n}}, data);
}

// The docs' row leaf with x for exp(x): exact on integers up to the order of sums.
const std::string kRow = R"(  for i0 < e0:
    r0[] = -inf
    for i1 < ceildiv(e1, 16):
      for i2 < min(16, e1 - 16*i1) @vector:
        r0[] fmax= p0[i0, 16*i1 + i2]
    r1[] = 0.0
    for i3 < ceildiv(e1, 16):
      for i4 < min(16, e1 - 16*i3) @vector:
        p1[i0, 16*i3 + i4] = p0[i0, 16*i3 + i4] - r0[]
        r1[] += p1[i0, 16*i3 + i4]
    for i5 < ceildiv(e1, 16):
      for i6 < min(16, e1 - 16*i5) @vector:
        p1[i0, 16*i5 + i6] = p1[i0, 16*i5 + i6] * p2[16*i5 + i6] - r1[]
)";
const std::string kRowRegisters = "  r0: f32[] reg\n  r1: f32[] reg\n";

TEST(LowerRow, EveryLengthSeveralRows) {
  for (int64_t n = 1; n <= 70; ++n) {
    LeafCase c = rows(kRow, 1 + n % 3, n, Data::integers, kRowRegisters);
    expect_leaf(c);
  }
}

// The largest of absolute values goes by their bits: infinities, denormals, both zeros, and a NaN in any lane.
TEST(LowerRow, LargestOfAbsoluteValues) {
  const std::string body = R"(  for i0 < e0:
    r0[] = 0.0
    for i1 < ceildiv(e1, 16):
      for i2 < min(16, e1 - 16*i1) @vector:
        r0[] max= abs(p0[i0, 16*i1 + i2])
    r1[] = 1.5
    for i3 < ceildiv(e1, 16):
      for i4 < min(16, e1 - 16*i3) @vector:
        r1[] max= abs(p0[i0, 16*i3 + i4])
        r1[] max= p0[i0, 16*i3 + i4] * 2.0
    for i5 < ceildiv(e1, 16):
      for i6 < min(16, e1 - 16*i5) @vector:
        p1[i0, 16*i5 + i6] = r0[] + r1[]
)";
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const int64_t n : {1, 2, 7, 16, 17, 33, 50}) {
    for (const float special : {1.0f, -kInf, kInf, 1e-42f, -0.0f, std::nanf(""), -std::nanf("")}) {
      for (const int64_t at : {int64_t{0}, n / 2, n - 1}) {
        LeafCase c = rows(body, 2, n, Data::normal, kRowRegisters);
        c.data(0)[LeafCase::kBorder + static_cast<size_t>(n + 3 + at)] = special;
        expect_leaf(c);
      }
    }
  }
}

int count_stores(const Nodes& body) {
  int n = 0;
  for (const Node& node : body) {
    n += node.kind == Node::Kind::inst && node.inst.op == LeafOp::k_store;
    n += count_stores(node.body);
  }
  return n;
}

// What a later statement covers is stored once, unless something may read it between.
TEST(LowerRow, StoresWhatIsNotCoveredLater) {
  struct Row {
    const char *first, *between, *last;
    int stores;
  };
  const std::string at = "p1[i0, i1] ", vector = "    for i1 < 16 @vector:\n      ";
  for (const Row& row : {Row{"= p0[i0, i1]", nullptr, "= p0[i0, i1] * 3.0", 1},
                         Row{"= p0[i0, i1]", nullptr, "+= p0[i0, i1] * p2[i1]", 1},
                         Row{"= p0[i0, i1]", "p0[i0, 3]", "+= p0[i0, i1] * p2[i1]", 3},
                         Row{"= p0[i0, i1]", "p0[i0, 3]", "= p0[i0, i1] * 3.0", 2},
                         Row{"= p0[i0, i1]", "p1[i0, 3]", "= p0[i0, i1] * 3.0", 3}}) {
    std::string body = "  for i0 < e0:\n" + vector + at + row.first + "\n";
    if (row.between != nullptr) body += vector + "p1[i0, 40 + i1] = " + row.between + "\n";
    LeafCase c = rows(body + vector + at + row.last + "\n", 3, 56);
    expect_leaf(c);
    for (const ir::Target& t : test_targets()) {
      if (t.lanes != 16) continue;
      const auto p = c.lower(t);
      ASSERT_TRUE(p.ok()) << p.status().to_string();
      EXPECT_EQ(count_stores(p->body), row.stores) << to_text(*p);
    }
  }
}

// The iterator of one lane is 0 wherever it stands: what the scope writes looks like one element of all lanes.
TEST(LowerRow, VectorScopesOfOneLane) {
  const std::string body = R"(  for i0 < e0:
    r0[] = 0.0
    for i1 < ceildiv(e1, 16):
      for i2 < min(16, e1 - 16*i1) @vector:
        r0[] += p0[i0, 16*i1 + i2]
    for i3 < 1 @vector:
      r0[] += p0[i0, 1]
    for i4 < 1 @vector:
      p1[i0, 0] = r0[]
    for i5 < min(1, e1) @vector:
      p1[i0, 1] = p0[i0, 1]
)";
  for (const int64_t n : {2, 7, 8, 33}) {
    LeafCase c = rows(body, 3, n, Data::integers, "  r0: f32[] reg\n");
    expect_leaf(c);
  }
}

TEST(LowerRow, NoRowsTouchNothing) {
  LeafCase c = rows(kRow, 0, 20, Data::integers, kRowRegisters);
  expect_leaf(c);
}

TEST(LowerRow, UnrolledCopiesKeepPartials) {
  const std::string body = R"(  for i0 < e0:
    r0[] = 1.0
    for i1 < ceildiv(e1, 64):
      for i2 < 4 @unroll:
        for i3 < min(16, e1 - 64*i1 - 16*i2) @vector:
          r0[] += p0[i0, 64*i1 + 16*i2 + i3] * p2[64*i1 + 16*i2 + i3]
    p1[i0, 0] = r0[]
)";
  for (int64_t n : {1, 15, 16, 17, 63, 64, 65, 127, 128, 150, 200}) {
    LeafCase c = rows(body, 2, n, Data::integers, "  r0: f32[] reg\n");
    expect_leaf(c);
  }
}

TEST(LowerRow, SumOfTwoStatementsAndScalarRemainder) {
  const std::string body = R"(  for i0 < 2:
    r0[] = 0.0
    for i1 < e0:
      for i2 < 16 @vector:
        r0[] += p0[i0, 16*i1 + i2]
    for i3 < e1:
      r0[] += p2[i3]
    p1[i0, 0] = r0[]
)";
  for (int64_t blocks : {0, 1, 3}) {
    for (int64_t rest : {0, 1, 5}) {
      LeafCase c(
          "kernel leaf(p0: f32[_, _] in strides [?, 1], p1: f32[_, _] out strides [?, 1], p2: "
          "f32[_] in strides [1]) family leaf where " +
              kExtents + "\n  r0: f32[] reg\n" + body,
          {{{2, 48}, {50, 1}}, {{2, 1}, {4, 1}}, {{5}, {1}}}, {{"e0", blocks}, {"e1", rest}});
      expect_leaf(c);
    }
  }
}

TEST(LowerRow, ReductionIntoMemory) {
  const std::string body = R"(  for i0 < e0:
    p1[i0] = 0.5
    for i1 < ceildiv(e1, 16):
      for i2 < min(16, e1 - 16*i1) @vector:
        p1[i0] += p0[i0, 16*i1 + i2]
)";
  for (int64_t n : {1, 16, 37}) {
    LeafCase c(
        "kernel leaf(p0: f32[_, _] in strides [?, 1], p1: f32[_] out strides [?]) family leaf "
        "where " +
            kExtents + "\n" + body,
        {{{3, n}, {n, 1}}, {{3}, {2}}}, {{"e0", 3}, {"e1", n}});
    expect_leaf(c);
  }
}

TEST(LowerRow, MaxAndMinPropagateNan) {
  for (const char* op : {"max", "min"}) {
    for (int64_t n : {5, 16, 40}) {
      for (int64_t at : {int64_t{-1}, int64_t{0}, n - 1, n / 2}) {
        LeafCase c = rows(fmt::format(R"(  for i0 < e0:
    r0[] = {}
    for i1 < ceildiv(e1, 16):
      for i2 < min(16, e1 - 16*i1) @vector:
        r0[] {}= p0[i0, 16*i1 + i2]
    p1[i0, 0] = r0[]
)",
                                      op[1] == 'a' ? "-inf" : "inf", op),
                          1, n, Data::normal, "  r0: f32[] reg\n");
        if (at >= 0) c.data(0)[LeafCase::kBorder + at] = NAN;
        expect_leaf(c);
      }
    }
  }
}

TEST(LowerElementwise, OperationsLengthsRows) {
  for (const char* value :
       {"p0[i0, 16*i1 + i2] + p2[16*i1 + i2]", "max(p0[i0, 16*i1 + i2], p2[16*i1 + i2]) - min(p0[i0, 16*i1 + i2], 0.5)",
        "abs(-p0[i0, 16*i1 + i2]) * 0.25 / p2[16*i1 + i2]", "fma(p0[i0, 16*i1 + i2], p2[16*i1 + i2], 0.1)",
        "select(p0[i0, 16*i1 + i2] < p2[16*i1 + i2] and not (p0[i0, 16*i1 + i2] == 0.25), p2[16*i1 "
        "+ i2], floor(p0[i0, 16*i1 + i2] * 3.3))",
        "select(p0[i0, 16*i1 + i2] != p0[i0, 16*i1 + i2] or p0[i0, 16*i1 + i2] <= 1.0, 1.0, "
        "round(p0[i0, 16*i1 + i2]))",
        "sqrt(abs(p0[i0, 16*i1 + i2])) + f32(e1) * p0[i0, 0]", "fmax(p0[i0, 16*i1 + i2], p2[0])"}) {
    const std::string body = fmt::format(
        "  for i0 < e0:\n    for i1 < ceildiv(e1, 16):\n      for i2 < min(16, e1 - 16*i1) "
        "@vector:\n        p1[i0, 16*i1 + i2] = {}\n",
        value);
    for (int64_t n : {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 70}) {
      LeafCase c = rows(body, 2, n, Data::normal);
      expect_leaf(c);
    }
  }
}

TEST(LowerElementwise, RowsUnrolledShareWhatTheyRead) {
  const std::string body = R"(  for i1 < ceildiv(e1, 16):
    for i0 < 5 @unroll:
      for i2 < min(16, e1 - 16*i1) @vector:
        p1[i0, 16*i1 + i2] = p0[i0, 16*i1 + i2] + p2[16*i1 + i2]
)";
  for (int64_t n : {3, 16, 50}) {
    LeafCase c = rows(body, 5, n);
    expect_leaf(c);
  }
}

TEST(LowerElementwise, AccumulatesIntoMemory) {
  const std::string body = R"(  for i0 < e0:
    for i1 < ceildiv(e1, 16):
      for i2 < min(16, e1 - 16*i1) @vector:
        p1[i0, 16*i1 + i2] += p0[i0, 16*i1 + i2] * p2[16*i1 + i2]
        p1[i0, 16*i1 + i2] max= 0.0
)";
  for (int64_t n : {3, 16, 50}) {
    LeafCase c = rows(body, 3, n);
    expect_leaf(c);
  }
}

TEST(LowerElementwise, ExactTilesPeelAndScalars) {
  const std::string body = R"(  for i0 < e0:
    for i1 < 3:
      for i2 < 32 @vector:
        p1[i0, 32*i1 + i2] = p0[i0, 32*i1 + i2] * 2.0
    for i3 < 5:
      p1[i0, 96 + i3] = p0[i0, 96 + i3] + p2[i3]
)";
  LeafCase c = rows(body, 3, 101);
  expect_leaf(c);
}

// rope reads pairs: lanes two apart go one by one.
TEST(LowerElementwise, StridedLanes) {
  const std::string body = R"(  for i0 < e0:
    for i1 < ceildiv(e1, 16):
      for i2 < min(16, e1 - 16*i1) @vector:
        p1[i0, 32*i1 + 2*i2] = p0[i0, 32*i1 + 2*i2] * p2[16*i1 + i2] - p0[i0, 32*i1 + 2*i2 + 1]
        p1[i0, 32*i1 + 2*i2 + 1] = p0[i0, 32*i1 + 2*i2 + 1] * p2[16*i1 + i2] + p0[i0, 32*i1 + 2*i2]
)";
  for (int64_t half : {1, 8, 16, 21}) {
    LeafCase c(
        "kernel leaf(p0: f32[_, _] in strides [?, 1], p1: f32[_, _] out strides [?, 1], p2: f32[_] "
        "in strides [1]) family leaf where " +
            kExtents + "\n" + body,
        {{{2, 2 * half}, {2 * half, 1}}, {{2, 2 * half}, {2 * half + 1, 1}}, {{half}, {1}}}, {{"e0", 2}, {"e1", half}});
    expect_leaf(c);
  }
}

TEST(LowerElementwise, RunTimeStrideOverLanes) {
  const std::string body = R"(  for i0 < ceildiv(e0, 16):
    for i1 < min(16, e0 - 16*i0) @vector:
      p1[16*i0 + i1] = p0[16*i0 + i1] * 3.0
)";
  for (int64_t n : {1, 16, 23}) {
    LeafCase c("kernel leaf(p0: f32[_] in strides [?], p1: f32[_] out strides [1]) family leaf where " + kExtents +
                   "\n" + body,
               {{{n}, {7}}, {{n}, {1}}}, {{"e0", n}, {"e1", 0}});
    expect_leaf(c);
  }
}

TEST(LowerElementwise, BroadcastOperandByStrideZero) {
  const std::string body = R"(  for i0 < ceildiv(e0, 16):
    for i1 < min(16, e0 - 16*i0) @vector:
      p1[16*i0 + i1] = p0[16*i0 + i1] + 1.0
)";
  LeafCase c(
      "kernel leaf(p0: f32[_] in strides [0], p1: f32[_] out strides [1]) family leaf where " + kExtents + "\n" + body,
      {{{37}, {0}}, {{37}, {1}}}, {{"e0", 37}, {"e1", 0}});
  expect_leaf(c);
}

TEST(Lower, Deterministic) {
  for (const ir::Target& t : test_targets()) {
    LeafCase c = rows(kRow, 1, 1, Data::integers, kRowRegisters);
    auto a = c.lower(t), b = c.lower(t);
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(serialise(*a), serialise(*b));
    EXPECT_EQ(a->name.rfind("lathe_row_f32_v", 0), 0u) << a->name;
  }
}

TEST(Lower, RefusesWithTheConstruct) {
  const auto refused = [](const std::string& header, const std::string& body, const std::string& why) {
    auto k = ir::parse_kernel(header + " family leaf where " + kExtents + "\n" + body);
    ASSERT_TRUE(k.ok()) << k.status().to_string();
    auto p = lower_leaf(*k, test_target(ir::IsaLevel::avx2));
    ASSERT_FALSE(p.ok()) << to_text(*p);
    EXPECT_EQ(p.status().code(), ir::Code::kUNSUPPORTED);
    EXPECT_NE(p.status().message().find(why), std::string::npos) << p.status().to_string();
  };
  const std::string f32 = "kernel leaf(p0: f32[_] in strides [1], p1: f32[_] out strides [1])";
  refused("kernel leaf(p0: bf16[_] in strides [1], p1: bf16[_] out strides [1])",
          "  r0: bf16[] reg\n  for i0 < e0:\n    r0[] = p0[i0]\n", "bf16 in registers");
  refused(f32, "  for i0 < e0 @parallel:\n    p1[i0] = p0[i0]\n", "parallel");
  refused(f32, "  for i0 < e0 @vector:\n    p1[i0] = p0[i0]\n", "vector scope");
  refused(f32, "  for i0 < e0 @unroll:\n    p1[i0] = p0[i0]\n", "unrolled");
  refused(f32, "  for i0 < e0:\n    p1[i0] = f32(i0)\n", "as a value");
  refused(f32, "  r0: f32[4] reg\n  for i0 < e0:\n    r0[i0] = p0[i0]\n", "indexed by a loop");
  refused(f32, "  r0: f32[] reg\n  p1[0] = r0[]\n", "no value");
  refused(f32, "  r0: f32[] reg\n  r0[] = 0.0\n  for i0 < 16 @vector:\n    p1[i0] = r0[]\n    r0[] += p0[i0]\n",
          "among other uses");
}

}  // namespace
}  // namespace lathe::jit
