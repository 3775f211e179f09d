// Where functions of vector_math break: thresholds of overflow and underflow, denormals, huge arguments, special
// values; every level gives the same bits there but where docs/operators.md says so, in the portable executor and in
// what both generators make.
#include <bit>

#include "tests/jit/lower/vector_function.h"

namespace lathe::jit {
namespace {

constexpr const char* kFunctions[] = {
#define LATHE_VECTOR_MATH(op, ulp, bound, least) #op,
#include "jit/lower/vector_math.def"
#undef LATHE_VECTOR_MATH
    "{0} * sigmoid({0})", "{0} * normal_cdf({0})",
    "0.5 * {0} * (1.0 + tanh(0.7978846 * ({0} + 0.044715 * {0} * {0} * {0})))"};

// Both signs of: zero, what surrounds each value at which some function changes its ways, and 24 values of every
// exponent (of NaN, too).
std::vector<float> edges() {
  std::vector<float> out;
  const auto both = [&](uint32_t bits) {
    out.push_back(std::bit_cast<float>(bits));
    out.push_back(std::bit_cast<float>(bits | 0x80000000u));
  };
  for (const float v : {0x1p-126f,   0.346573591f, 0.5f,    0.9f,        1.0f,          1.41421354f, 3.95f,
                        6.5f,        9.0f,         10.0f,   20.0f,       83.1776581f,   87.3365402f, 88.0296936f,
                        88.3762589f, 88.7228394f,  89.0f,   103.278931f, 103.972084f,   105.0f,      124.0f,
                        126.0f,      127.0f,       128.0f,  129.0f,      149.0f,        150.0f,      151.0f,
                        1e5f,        0x1p23f,      0x1p31f, 0x1p64f,     3.40282347e38f}) {
    const uint32_t at = std::bit_cast<uint32_t>(v);
    for (uint32_t d = 0; d < 12; ++d) both(at - 6 + d);
  }
  for (uint32_t d = 0; d < 6; ++d) both(d);
  for (uint32_t exponent = 0; exponent < 256; ++exponent) {
    for (uint32_t k = 0; k < 24; ++k) both(exponent << 23 | (0x9e3779b9u * (k + 1) * (exponent + 1) & 0x7fffffu));
  }
  both(0x7f800000u);
  both(0x7fc00000u);
  return out;
}

float at(const char* f, float x, const ir::Target& target) {
  std::vector<float> in(3, x), out;
  Function(f, target).run(in, out);
  return out[1];
}

TEST(VectorMathEdges, ExpOverflowsToInfinity) {
  for (const ir::Target& target : test_targets()) {
    EXPECT_TRUE(std::isfinite(at("exp", 88.7228317f, target))) << ir::isa_name(target.level);
    EXPECT_EQ(at("exp", 88.7228394f, target), INFINITY) << ir::isa_name(target.level);
    EXPECT_TRUE(std::isfinite(at("exp2", 127.999992f, target))) << ir::isa_name(target.level);
    EXPECT_EQ(at("exp2", 128, target), INFINITY) << ir::isa_name(target.level);
  }
}

TEST(VectorMathEdges, DenormalResultsAreKept) {
  struct Case {
    const char* name;
    float from, to;
    double ulp;
  };
  for (const Case c : {Case{"exp", -104.5f, -87, 2}, {"exp2", -151, -125.5f, 3}}) {
    std::vector<float> x, y;
    for (float v = c.from; v < c.to; v += 0x1p-12f) x.push_back(v);
    for (const ir::Target& target : test_targets()) {
      Function(c.name, target).run(x, y);
      double worst = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const double want = reference(c.name, x[i]);
        if (!may_be_zero(c.name, target.level, want) || y[i] != 0) worst = std::max(worst, error_ulp(y[i], want));
      }
      EXPECT_LE(worst, c.ulp) << c.name << " " << ir::isa_name(target.level);
    }
  }
}

TEST(VectorMathEdges, SinAndCosOfLargeArguments) {
  // The last one lies within 2^-29 of a multiple of pi / 2, as near as floats come.
  for (const float x : {99999.99f, 100000.0f, 1e7f, 1e10f, 1e22f, 3.40282347e38f, 16367173.0f * 0x1p72f}) {
    for (const char* f : {"sin", "cos"}) {
      for (const ir::Target& target : test_targets()) {
        for (const float signed_x : {x, -x}) {
          EXPECT_LE(error_ulp(at(f, signed_x, target), reference(f, signed_x)), 3)
              << f << "(" << signed_x << ") " << ir::isa_name(target.level);
        }
      }
    }
  }
}

// One large argument among small ones changes none of their bits.
TEST(VectorMathEdges, LargeArgumentsLeaveTheOthersAlone) {
  for (const ir::Target& target : test_targets()) {
    const Function sin("sin", target);
    std::vector<float> small, mixed, y, z;
    for (int i = 0; i < 200; ++i) small.push_back(static_cast<float>(i) * 0.37f - 30);
    mixed = small;
    for (size_t i = 5; i < mixed.size(); i += 13) mixed[i] = 1e9f;
    sin.run(small, y);
    sin.run(mixed, z);
    for (size_t i = 0; i < small.size(); ++i)
      EXPECT_EQ(z[i], mixed[i] == small[i] ? y[i] : at("sin", 1e9f, target)) << i;
  }
}

TEST(VectorMathEdges, WithinBudget) {
  struct Row {
    const char* name;
    double ulp, least;
  };
  constexpr Row kRows[] = {
#define LATHE_VECTOR_MATH(op, ulp, bound, least) {#op, ulp, least},
#include "jit/lower/vector_math.def"
#undef LATHE_VECTOR_MATH
  };
  std::vector<float> x = edges(), y;
  for (const Row& row : kRows) {
    for (const ir::Target& target : test_targets()) {
      Function(row.name, target).run(x, y);
      for (size_t i = 0; i < x.size(); ++i) {
        const double want = reference(row.name, x[i]);
        if (y[i] == 0 && may_be_zero(row.name, target.level, want)) continue;
        ASSERT_LE(error_ulp(y[i], want, row.least), row.ulp)
            << row.name << "(" << x[i] << ") " << ir::isa_name(target.level);
      }
    }
  }
}

TEST(VectorMathEdges, LevelsGiveEqualBits) {
  std::vector<float> x = edges(), want, y;
  for (const char* f : kFunctions) {
    Function(f, test_target(ir::IsaLevel::portable)).run(x, want);
    for (const ir::Target& target : test_targets()) {
      Function(f, target).run(x, y);
      for (size_t i = 0; i < x.size(); ++i) {
        if (y[i] == 0 && may_be_zero(f, target.level, want[i])) continue;
        ASSERT_TRUE(x64_test::same(want[i], y[i]))
            << f << "(" << x[i] << "): portable " << want[i] << ", " << y[i] << " at " << ir::isa_name(target.level);
      }
    }
  }
}

// Every function as a program for every kind of vectors that the CPU runs, with the edges as its operand, until a check
// fails for good.
template <class Check>
void on_edges(Check&& check) {
  x64_test::Operands in;
  in.data = {edges(), {}};
  in.data[1].resize(in.data[0].size());
  in.args.extent[0] = static_cast<int64_t>(in.data[0].size());
  in.stride.resize(2 * ir::kMaxLeafStrides, 4);
  for (const x64_test::Shape& shape : x64_test::all_shapes()) {
    if (!x64_test::can_run(shape)) continue;
    for (const char* f : kFunctions) {
      ir::Target target = test_target(shape.level);
      target.lanes = shape.lanes;
      check(Function(f, target).program(), in, fmt::format("{} {}", f, shape.name()));
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(VectorMathEdges, GeneratorsGiveEqualBits) {
  if (!backend_built(Backend::xbyak)) GTEST_SKIP() << "built with LATHE_XBYAK=OFF";
  on_edges([](const LeafProgram& program, x64_test::Operands& in, const std::string& what) {
    x64_test::expect_equal(program, in, what);
  });
}

TEST(VectorMathEdges, LlvmGivesEqualBits) {
  LATHE_NEEDS_LLVM();
  on_edges([](const LeafProgram& program, x64_test::Operands& in, const std::string& what) {
    const auto image = compile_llvm(program, "");
    ASSERT_TRUE(image.ok()) << image.status().to_string();
    const llvm_test::Loaded code(*image);
    const auto want = x64_test::after(in, [&](const ir::LeafArgs& args) { execute_portable(program, args); });
    const auto got = x64_test::after(in, [&](const ir::LeafArgs& args) { code(args); });
    const int64_t i = x64_test::difference(want[1], got[1]);
    ASSERT_EQ(i, -1) << what << " of " << in.data[0][static_cast<size_t>(i)] << ": portable "
                     << want[1][static_cast<size_t>(i)] << ", LLVM " << got[1][static_cast<size_t>(i)];
  });
}

}  // namespace
}  // namespace lathe::jit
