// dot2_bf16 against a model of its own, bit for bit: exponents of every kind, denormals, infinities, sums that cancel;
// the second factor in a register, folded and broadcast from memory. On a CPU with AVX512_BF16 that is a test of the
// model as well.
#include <bit>
#include <cmath>

#include "jit/image/image_lint.h"
#include "tests/jit/x64/lane_program.h"

namespace lathe::jit {
namespace {
using namespace x64_test;

constexpr int kVectors = 256;

float of_bits(uint32_t bits) { return std::bit_cast<float>(bits); }
float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

// The odd product first; one rounding for each, denormals are 0 on the way in and out.
uint32_t reference(uint32_t a, uint32_t b, uint32_t c) {
  float sum = flushed(of_bits(c));
  for (const int shift : {0, 16}) {
    const float x = flushed(of_bits(a << shift & 0xffff0000)), y = flushed(of_bits(b << shift & 0xffff0000));
    sum = flushed(std::fma(x, y, sum));
  }
  return std::bit_cast<uint32_t>(sum);
}

std::vector<Lanes> operands(size_t n) {
  std::mt19937 random(7);
  std::vector<Lanes> in(3, Lanes(n));
  const auto half = [&](unsigned kind) -> uint32_t {
    const uint32_t bits = static_cast<uint32_t>(random()), sign = bits & 0x8000, mantissa = bits & 0x7f;
    switch (kind) {
      case 0:
        return sign | (120 + (bits >> 16) % 16) << 7 | mantissa;  // near 1
      case 1:
        return sign | (bits >> 16) % 255 << 7 | mantissa;  // any exponent, denormals among them
      case 2:
        return sign | (58 + (bits >> 16) % 12) << 7 | mantissa;  // products around 2^-126
      default:
        return bits % 3 == 0 ? sign | 0x7f80 : bits % 3 == 1 ? sign : sign | (126u << 7);
    }
  };
  for (size_t i = 0; i < n; ++i) {
    const unsigned kind = static_cast<unsigned>(i % 4);
    in[0][i] = half(kind) | half(kind) << 16;
    in[1][i] = half(kind) | half(kind) << 16;
    in[2][i] = half(kind) << 16 | static_cast<uint32_t>(random() & 0xffff);
    if (i % 8 == 0) {  // a sum that cancels what the odd product adds
      const float odd = of_bits(in[0][i] & 0xffff0000) * of_bits(in[1][i] & 0xffff0000);
      in[2][i] = std::bit_cast<uint32_t>(-odd) ^ static_cast<uint32_t>(random() & 0xff);
    }
    if (std::isnan(of_bits(in[2][i]))) in[2][i] = 0;
  }
  return in;
}

constexpr LeafOp kDot2 = LeafOp::k_dot2_bf16;

// Which NaN is not said.
template <class Run>
Lanes numbers(const std::vector<Lanes>& in, Run&& run) {
  Lanes out = results(in, run);
  for (uint32_t& bits : out) {
    if (std::isnan(of_bits(bits))) bits = 0x7fc00000;
  }
  return out;
}

TEST(Dot2, equals_the_model_on_every_executor) {
  for (const Shape& shape : dot2_shapes()) {
    const size_t n = static_cast<size_t>(kVectors * shape.lanes);
    const std::vector<Lanes> in = operands(n);
    for (const Second second : {Second::in_register, Second::folded, Second::broadcast}) {
      Lanes want(n);
      for (size_t i = 0; i < n; ++i) {
        const size_t b = second == Second::broadcast ? i / shape.lanes * shape.lanes : i;
        want[i] = reference(in[0][i], in[1][b], in[2][i]);
        if (std::isnan(of_bits(want[i]))) want[i] = 0x7fc00000;
      }
      for (const bool in_place : {false, true}) {
        SCOPED_TRACE(fmt::format("{} second {} in place {}", shape.name(), static_cast<int>(second), in_place));
        const LeafProgram p = program_of(shape, kDot2, second, in_place);
        ASSERT_TRUE(verify_program(p).ok()) << verify_program(p).to_string();
        EXPECT_EQ(numbers(in, [&](const ir::LeafArgs& a) { execute_portable(p, a); }), want) << "portable";
        if (!backend_built(Backend::xbyak)) continue;
        const auto x64 = compile_xbyak(p);
        ASSERT_TRUE(x64.ok()) << x64.status().to_string();
        EXPECT_NE(x64->features & kCpu_avx512bf16, 0u);
        EXPECT_EQ(x64->features & ~p.features(), 0u) << feature_names(x64->features);
        EXPECT_TRUE(lint_image(*x64).ok()) << lint_image(*x64).to_string();
        const auto llvm = compile_llvm(p, "");
        if (!can_run(shape)) continue;
        const Loaded code(*x64);
        EXPECT_EQ(numbers(in, [&](const ir::LeafArgs& a) { code(a); }), want) << "x64";
        if (!llvm.ok()) continue;  // a build without it
        EXPECT_NE(llvm->features & kCpu_avx512bf16, 0u);
        const Loaded other(*llvm);
        EXPECT_EQ(numbers(in, [&](const ir::LeafArgs& a) { other(a); }), want) << "llvm";
      }
    }
  }
}

// The destination may be where a factor lies.
TEST(Dot2, may_overwrite_a_factor) {
  for (const Shape& shape : dot2_shapes()) {
    const size_t n = static_cast<size_t>(kVectors * shape.lanes);
    const std::vector<Lanes> in = operands(n);
    for (const int to : {0, 1}) {
      LeafProgram p = program_of(shape, kDot2, Second::in_register, true);
      p.body[0].body[3].inst.dst = to;
      p.body[0].body[4].inst.src[0] = to;
      p.body[0].body.pop_back();
      ASSERT_TRUE(verify_program(p).ok()) << verify_program(p).to_string();
      const Lanes want = numbers(in, [&](const ir::LeafArgs& a) { execute_portable(p, a); });
      if (!can_run(shape) || !backend_built(Backend::xbyak)) continue;
      const auto x64 = compile_xbyak(p);
      ASSERT_TRUE(x64.ok()) << x64.status().to_string();
      const Loaded code(*x64);
      EXPECT_EQ(numbers(in, [&](const ir::LeafArgs& a) { code(a); }), want) << shape.name() << " to " << to;
    }
  }
}

TEST(Dot2, is_refused_without_its_feature_and_undeclared) {
  const LeafProgram p = program_of({ir::IsaLevel::avx512, 16, 0}, kDot2, Second::folded, true);
  EXPECT_EQ(verify_program(p).message(), "leaf program: dot2_bf16 without AVX512_BF16 at level avx512");
  if (!backend_built(Backend::xbyak)) return;
  auto image = compile_xbyak(program_of(dot2_shapes()[1], kDot2, Second::folded, true));
  ASSERT_TRUE(image.ok()) << image.status().to_string();
  image->features &= ~uint64_t{kCpu_avx512bf16};
  EXPECT_NE(lint_image(*image).message().find("needs avx512bf16, which is not declared"), std::string::npos)
      << lint_image(*image).to_string();
}

}  // namespace
}  // namespace lathe::jit
