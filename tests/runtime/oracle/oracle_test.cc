// The oracle: passes what is right, and objects to planted faults: dropped tails and terms,
// unwritten cells, runs that differ, stray writes.
#include "runtime/oracle/oracle.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ir/core/text_form.h"
#include "jit/host/host_cpu.h"
#include "runtime/compile/compiler.h"
#include "runtime/compile/leaf_cache.h"
#include "runtime/oracle/redefinition.h"

namespace lathe::runtime {
namespace {

const char* const kMatmul = R"(
kernel mm(a: f32[M, 96] in, w: f32[80, 96] const, b: f32[80] const, y: f32[M, 80] out) family matmul where M in 1..64
  c: f32[M, 80] heap
  for m < M [m]:
    for n < 80 [n]:
      c[m, n] = 0.0
      for k < 96 [k]:
        c[m, n] += a[m, k] * w[n, k]
      y[m, n] = c[m, n] + b[n]
)";
const char* const kLong = R"(
kernel mm(a: f32[2, 4096] in, w: f32[8, 4096] const, y: f32[2, 8] out) family matmul
  c: f32[2, 8] heap
  for m < 2 [m]:
    for n < 8 [n]:
      c[m, n] = 0.0
      for k < 4096 [k]:
        c[m, n] += a[m, k] * w[n, k]
      y[m, n] = c[m, n]
)";
const char* const kSoftmax = R"(
kernel softmax(s: f32[B, N] in, d: f32[B, N] out) family row where B in 1..64, N in 1..512
  m: f32[B] heap
  a: f32[B] heap
  for b < B [row]:
    m[b] = -inf
    for n < N [col]:
      m[b] fmax= s[b, n]
    a[b] = 0.0
    for n1 < N [col]:
      d[b, n1] = exp(s[b, n1] - m[b])
      a[b] += d[b, n1]
    for n2 < N [col]:
      d[b, n2] = d[b, n2] / a[b]
)";
const char* const kGelu = R"(
kernel gelu(x: f32[R, C] in strides [L, 1], y: f32[R, C] out strides [L, 1]) family elementwise where R in 1..64, C in 1..512, L in 1..4096
  for i < R [row]:
    for j < C [col]:
      y[i, j] = 0.5 * x[i, j] * (1.0 + erf(x[i, j] * 0.70710677))
)";

struct Fixture {
  explicit Fixture(const char* text) : cache({}, nullptr, nullptr) {
    ir::Result<ir::Kernel> parsed = ir::parse_kernel(text);
    EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
    naive = parsed.value();
  }
  Stage build(const ir::Kernel& kernel) {
    search::Problem problem;
    problem.kernel = kernel;
    const search::Schedule schedule = search::default_schedule(problem, jit::host_target());
    ir::Result<Stage> stage = build_stage(kernel, schedule, jit::host_target(), cache, LeafPolicy{});
    EXPECT_TRUE(stage.ok()) << stage.status().to_string() << "\n" << search::to_text(schedule);
    return std::move(stage).value();
  }
  Stage build() { return build(naive); }
  // By these moves, a line each.
  Stage moved(const std::string& moves) {
    const auto schedule = search::parse_schedule("schedule 1 family " + naive.family + "\n" + moves);
    EXPECT_TRUE(schedule.ok()) << schedule.status().to_string();
    ir::Result<Stage> stage = build_stage(naive, *schedule, jit::host_target(), cache, LeafPolicy{});
    EXPECT_TRUE(stage.ok()) << stage.status().to_string();
    return std::move(stage).value();
  }
  // A Stage of another Kernel with the same parameters: what a miscompiled candidate amounts to.
  Stage build_other(std::string from, const std::string& to) {
    std::string text = ir::print(naive);
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << text;
    text.replace(at, from.size(), to);
    ir::Result<ir::Kernel> kernel = ir::parse_kernel(text);
    EXPECT_TRUE(kernel.ok()) << kernel.status().to_string();
    return build(kernel.value());
  }
  std::unique_ptr<Oracle> oracle(SymbolValues dims, int64_t budget = 300'000) {
    OracleTask task{naive, std::move(dims), 1, 7, budget};
    ir::Result<std::unique_ptr<Oracle>> made = Oracle::create(std::move(task), nullptr);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return std::move(made).value();
  }
  LeafCache cache;
  ir::Kernel naive;
};

Verdict verdict_of(Oracle& oracle, const Stage& stage) {
  ir::Result<Verdict> v = oracle.verify(stage);
  EXPECT_TRUE(v.ok()) << v.status().to_string();
  return v.ok() ? v.value() : Verdict{};
}

// Wraps every leaf of a Stage.
struct Wrapped {
  LeafRef real;
  int output = 0;  // operand
  int calls = 0;
};
template <class F>
Stage wrap(Stage stage, std::vector<std::unique_ptr<Wrapped>>* keep, F) {
  for (size_t i = 0; i < stage.nest().leaves.size(); ++i) {
    LeafRef& leaf = stage.nest().leaves[i];
    int output = 0;
    for (const ir::Buffer& b : stage.nest().cut.leaves[i].kernel.buffers) {
      if (b.place == ir::Place::out) break;
      ++output;
    }
    keep->push_back(std::make_unique<Wrapped>(Wrapped{leaf, output}));
    leaf = {nullptr,
            [](const void* p, const ir::LeafArgs& args) {
              F{}(*const_cast<Wrapped*>(static_cast<const Wrapped*>(p)), args);
            },
            keep->back().get()};
  }
  return stage;
}

// One wrong column in some tiles, the same in each run.
Stage spoiled(Stage stage, std::vector<std::unique_ptr<Wrapped>>* keep) {
  return wrap(std::move(stage), keep, [](Wrapped& w, const ir::LeafArgs& args) {
    w.real(&args);
    float* cells = reinterpret_cast<float*>(args.op[w.output].ptr);
    if (static_cast<int>(cells[5]) % 4 == 1) cells[5] += 1;
  });
}

constexpr const char* kFewBits = R"(
kernel few_bits(x: f32[M, 256] in, d: f32[40, 8] const, q: i8[40, 256] const, y: f32[M, 40] out) family quantised where M in 1..64
  c: f32[M, 40] heap
  for m < M [m]:
    for n < 40 [n]:
      c[m, n] = 0.0
      for k < 256 [k]:
        c[m, n] += x[m, k] * (d[n, k // 32] * f32(q[n, k]))
      y[m, n] = c[m, n]
)";

// A Schedule that redefines the Kernel is compared with what its first moves make, bit by bit of the activations.
TEST(Oracle, QuantisedActivationsAreVerifiedTwice) {
  Fixture f(kFewBits);
  auto oracle = f.oracle({{"M", 5}});
  const Stage row = f.moved("quantize_activations k group=32 scale=256\n"),
              block = f.moved("quantize_activations k group=32 scale=32\nmove_to_register c_i kg\n");
  EXPECT_NE(row.schedule.numeric & ir::kQuantisedActivations, 0u);
  for (const Stage* stage : {&row, &block}) {
    const Verdict v = verdict_of(*oracle, *stage);
    EXPECT_TRUE(v.ok) << v.reason;
    EXPECT_EQ(v.gate, Gate::bound);
    EXPECT_LE(v.err_over_bound, 1);
  }
  // One scale for another: near the naive Kernel, but not what the Schedule says.
  Stage other = f.moved("quantize_activations k group=32 scale=32\n");
  other.schedule = row.schedule;
  const Verdict wrong = verdict_of(*oracle, other);
  EXPECT_FALSE(wrong.ok);
  // The naive Kernel itself rounds nothing.
  Stage exact = f.moved("");
  EXPECT_TRUE(verdict_of(*oracle, exact).ok);
  exact.schedule = row.schedule;
  EXPECT_FALSE(verdict_of(*oracle, exact).ok);
}

constexpr const char* kWeighted = R"(
kernel weighted(x: f32[M, 64] in, v: bf16[64, 32] in, y: f32[M, 32] out) family attention where M in 1..64
  s: f32[M, 64] heap
  for m < M [m]:
    for i < 64 [i]:
      s[m, i] = x[m, i] * 0.3
    for n < 32 [n]:
      y[m, n] = 0.0
      for j < 64 [j]:
        y[m, n] += s[m, j] * f32(v[j, n])
)";

// What is redefined may be all of a Kernel: nothing is made before the nest that stores the result.
TEST(Oracle, AKernelIsRedefinedWithoutAFirstPart) {
  Fixture f(kWeighted);
  const Stage exact = f.moved(""), rounded = f.moved("round_to_bf16 s j\nnarrow_temporary s t i\n");
  const auto redefined = search::redefined(f.naive, rounded.schedule);
  ASSERT_TRUE(redefined.ok()) << redefined.status().to_string();
  EXPECT_FALSE(has_first_part(*redefined));
  auto oracle = f.oracle({{"M", 5}});
  for (const Stage* stage : {&exact, &rounded}) {
    const Verdict v = verdict_of(*oracle, *stage);
    EXPECT_TRUE(v.ok) << v.reason;
  }
  // Who may not round is seen to, and what is wrong is wrong beside what is rounded too.
  Stage other = f.moved("round_to_bf16 s j\nnarrow_temporary s t i\n");
  other.schedule = exact.schedule;
  EXPECT_FALSE(verdict_of(*oracle, other).ok);
  other = f.build_other("* 0.3", "* 0.31");
  other.schedule = rounded.schedule;
  EXPECT_FALSE(verdict_of(*oracle, other).ok);
}

TEST(Oracle, QuantisationErrorIsOfTheMeanSquare) {
  Reference naive, redefined;
  naive.real = {3, -4};
  redefined.real = {3.3, -4.4};
  EXPECT_NEAR(quantisation_error(naive, redefined), 0.01, 1e-12);
  redefined.real = naive.real;
  EXPECT_EQ(quantisation_error(naive, redefined), 0);
  naive.real = {0, 0};
  EXPECT_EQ(quantisation_error(naive, naive), 0);
  EXPECT_TRUE(std::isinf(quantisation_error(naive, redefined)));
  naive.real = {3, -4, INFINITY};
  redefined.real = {3, -4, NAN};
  EXPECT_EQ(quantisation_error(naive, redefined), 0);
  redefined.real = {3, NAN, INFINITY};
  EXPECT_TRUE(std::isinf(quantisation_error(naive, redefined)));
}

// What holds for 0 and 1 only is no cast.
TEST(Oracle, IntegersThatAreMovedHaveAllTheirBits) {
  Fixture f(R"(
kernel narrow(x: i32[B, N] in, y: i8[B, N] out) family elementwise where B in 1..64, N in 1..512
  for b < B [row]:
    for n < N [col]:
      y[b, n] = i8(x[b, n])
)");
  auto oracle = f.oracle({{"B", 5}, {"N", 77}});
  EXPECT_TRUE(verdict_of(*oracle, f.build()).ok);
  std::vector<std::unique_ptr<Wrapped>> keep;
  const Stage unsigned_bytes = wrap(f.build(), &keep, [](Wrapped& w, const ir::LeafArgs& args) {
    w.real(&args);
    int8_t* cells = reinterpret_cast<int8_t*>(args.op[w.output].ptr);
    if (cells[0] < 0) cells[0] = 127;
  });
  EXPECT_FALSE(verdict_of(*oracle, unsigned_bytes).ok);
}

TEST(Oracle, MatmulIsExactOnIntegersAndHonestOnRandomData) {
  Fixture f(kMatmul);
  for (const int64_t m : {1, 7, 64}) {
    auto oracle = f.oracle({{"M", m}});
    const Verdict v = verdict_of(*oracle, f.build());
    EXPECT_TRUE(v.ok) << v.reason;
    EXPECT_EQ(v.gate, Gate::exact);
    EXPECT_LE(v.err_over_bound, 1);
    EXPECT_GT(v.err_over_bound, 0);
    EXPECT_GT(v.rho, 0);
    EXPECT_LT(v.rho, 1.5);
  }
}

TEST(Oracle, RowsAndChainsPassTheirTables) {
  for (const char* text : {kSoftmax, kGelu}) {
    Fixture f(text);
    SymbolValues dims =
        text == kSoftmax ? SymbolValues{{"B", 5}, {"N", 333}} : SymbolValues{{"R", 5}, {"C", 77}, {"L", 80}};
    auto oracle = f.oracle(dims);
    const Verdict v = verdict_of(*oracle, f.build());
    EXPECT_TRUE(v.ok) << v.reason;
    EXPECT_EQ(v.gate, Gate::table);
    EXPECT_LE(v.err_over_bound, 1);
  }
}

// A row of the table is for the functions it names: the error of a norm shows in what sin makes of it, not in its size.
TEST(Oracle, FunctionsOfANormHaveTheBoundOfBoth) {
  const std::string norm = R"(
kernel norm(x: f32[B, N] in, g: f32[N] in, y: f32[B, N] out) family row where B in 1..64, N in 1..512
  q: f32[B] heap
  for b < B [row]:
    q[b] = 0.0
    for n < N [col]:
      q[b] += x[b, n] * x[b, n]
    for n2 < N [col]:
      y[b, n2] = x[b, n2] * g[n2] * rsqrt(q[b] / f32(N) + 0.00001)
)";
  for (const bool turned : {false, true}) {
    std::string text = norm;
    const std::string value = "x[b, n2] * g[n2] * rsqrt(q[b] / f32(N) + 0.00001)";
    if (turned) text.replace(text.find(value), value.size(), "sin(" + value + ")");
    Fixture f(text.c_str());
    for (const int64_t n : {30, 197}) {
      auto oracle = f.oracle({{"B", 5}, {"N", n}});
      const Verdict v = verdict_of(*oracle, f.build());
      EXPECT_TRUE(v.ok) << n << " " << v.reason;
      EXPECT_EQ(v.gate, turned ? Gate::bound : Gate::table);
    }
  }
}

TEST(Oracle, StrideSymbolsWithoutValueAreCompact) {
  Fixture f(kGelu);
  auto oracle = f.oracle({{"R", 5}, {"C", 77}});
  EXPECT_TRUE(verdict_of(*oracle, f.build()).ok);
}

TEST(Oracle, ObjectsToADroppedColumn) {
  Fixture f(kMatmul);
  for (const int64_t budget : {300'000, 3'000}) {
    auto oracle = f.oracle({{"M", 33}}, budget);
    const Verdict v = verdict_of(*oracle, f.build_other("for n < 80", "for n < 79"));
    EXPECT_FALSE(v.ok);
    EXPECT_NE(v.reason.find("79] never written"), std::string::npos) << v.reason;
  }
}

TEST(Oracle, ObjectsToOneDroppedTermOf4096) {
  Fixture f(kLong);
  auto oracle = f.oracle({});
  EXPECT_TRUE(verdict_of(*oracle, f.build()).ok);
  const Verdict v = verdict_of(*oracle, f.build_other("for k < 4096", "for k < 4095"));
  EXPECT_FALSE(v.ok);
  EXPECT_NE(v.reason.find("gate exact"), std::string::npos) << v.reason;
}

TEST(Oracle, ObjectsToAMissingBiasAndAShiftedOperand) {
  Fixture f(kMatmul);
  auto oracle = f.oracle({{"M", 9}});
  EXPECT_FALSE(verdict_of(*oracle, f.build_other("c[m, n] + b[n]", "c[m, n] + b[0]")).ok);
  EXPECT_FALSE(verdict_of(*oracle, f.build_other("a[m, k] * w[n, k]", "a[m, k] * w[n, 0]")).ok);
  EXPECT_TRUE(verdict_of(*oracle, f.build()).ok);
}

TEST(Oracle, FindsAWrongCellOutsideTheSampleByComparingCandidates) {
  Fixture f(kMatmul);
  // So few cells are sampled that most are seen only when two Stages differ.
  auto oracle = f.oracle({{"M", 64}}, 1'000);
  EXPECT_TRUE(verdict_of(*oracle, f.build()).ok);
  std::vector<std::unique_ptr<Wrapped>> keep;
  const Stage bad = spoiled(f.build(), &keep);
  const Verdict v = verdict_of(*oracle, bad);
  EXPECT_FALSE(v.ok);
  EXPECT_NE(v.reason.find("y["), std::string::npos) << v.reason;
}

TEST(Oracle, OfTwoThatDifferTheRightOneStays) {
  Fixture f(kMatmul);
  auto oracle = f.oracle({{"M", 64}}, 60);
  std::vector<std::unique_ptr<Wrapped>> keep;
  const Stage bad = spoiled(f.build(), &keep);
  ASSERT_TRUE(verdict_of(*oracle, bad).ok) << "the planted cells are in the sample: choose others";
  EXPECT_EQ(oracle->generation(), 0);
  EXPECT_TRUE(verdict_of(*oracle, f.build()).ok);
  EXPECT_GT(oracle->generation(), 0);
  EXPECT_FALSE(verdict_of(*oracle, bad).ok);
}

TEST(Oracle, ObjectsToPrecisionTraded) {
  Fixture f(kGelu);
  auto oracle = f.oracle({{"R", 5}, {"C", 77}, {"L", 80}});
  EXPECT_FALSE(verdict_of(*oracle, f.build_other("0.70710677", "0.7071")).ok);
  Fixture s(kSoftmax);
  auto rows = s.oracle({{"B", 5}, {"N", 333}});
  EXPECT_FALSE(verdict_of(*rows, s.build_other("/ a[b]", "/ (a[b] * 1.00001)")).ok);
}

// The maximum starts from the least number, as attention's does: that says nothing of how near results have to be.
TEST(Oracle, ObjectsToAWrongFactorBehindAMaximum) {
  Fixture f(R"(
kernel weights(s: f32[B, N] in, v: f32[B, N] in, y: f32[B] out) family attention where B in 1..64, N in 1..512
  m: f32[B] heap
  a: f32[B] heap
  o: f32[B] heap
  for b < B [row]:
    m[b] = -3.4028235e+38
    for n < N [key]:
      m[b] fmax= s[b, n]
    a[b] = 0.0
    o[b] = 0.0
    for n1 < N [key]:
      a[b] += exp2((s[b, n1] - m[b]) * 1.442695)
    for n2 < N [key]:
      o[b] += exp2((s[b, n2] - m[b]) * 1.442695) * v[b, n2]
    y[b] = o[b] * (1.0 / a[b])
)");
  auto oracle = f.oracle({{"B", 5}, {"N", 77}});
  const Verdict right = verdict_of(*oracle, f.build());
  EXPECT_TRUE(right.ok) << right.reason;
  EXPECT_FALSE(verdict_of(*oracle, f.build_other("o[b] * (1.0 / a[b])", "o[b]")).ok);
  EXPECT_FALSE(verdict_of(*oracle, f.build_other("(s[b, n2] - m[b]) * 1.442695", "(s[b, n2] - m[b]) * 1.45")).ok);
  EXPECT_FALSE(verdict_of(*oracle, f.build_other("for n2 < N", "for n2 < N - 1")).ok);
}

TEST(Oracle, ObjectsToRunsThatDiffer) {
  Fixture f(kGelu);
  std::vector<std::unique_ptr<Wrapped>> keep;
  const Stage stage = wrap(f.build(), &keep, [](Wrapped& w, const ir::LeafArgs& args) {
    w.real(&args);
    // The last bit of the first cell, from some call on.
    if (++w.calls > 5) reinterpret_cast<uint32_t*>(args.op[w.output].ptr)[0] ^= 1;
  });
  auto oracle = f.oracle({{"R", 5}, {"C", 77}, {"L", 80}});
  const Verdict v = verdict_of(*oracle, stage);
  EXPECT_FALSE(v.ok);
}

TEST(Oracle, ObjectsToWritesBetweenRows) {
  Fixture f(kGelu);
  std::vector<std::unique_ptr<Wrapped>> keep;
  const Stage stage = wrap(f.build(), &keep, [](Wrapped& w, const ir::LeafArgs& args) {
    w.real(&args);
    if (w.calls++ == 0) reinterpret_cast<float*>(args.op[w.output].ptr)[78] = 0;
  });
  auto oracle = f.oracle({{"R", 5}, {"C", 77}, {"L", 80}});
  const Verdict v = verdict_of(*oracle, stage);
  EXPECT_FALSE(v.ok);
  EXPECT_NE(v.reason.find("between its rows"), std::string::npos) << v.reason;
}

TEST(OracleDeathTest, AReadBehindAnOperandFaults) {
  Fixture f(kGelu);
  std::vector<std::unique_ptr<Wrapped>> keep;
  const Stage stage = wrap(f.build(), &keep, [](Wrapped& w, const ir::LeafArgs& args) {
    w.real(&args);
    volatile float sink = reinterpret_cast<float*>(args.op[0].ptr)[4 * 80 + 77];
    (void)sink;
  });
  auto oracle = f.oracle({{"R", 5}, {"C", 77}, {"L", 80}});
  EXPECT_DEATH((void)oracle->verify(stage), "");
}

}  // namespace
}  // namespace lathe::runtime
