// Casts in leaves: every pair of types, at values where rounding, saturation, NaN or denormals show, against round_to;
// the generated code gives the portable executor's bits, and touches nothing beside what it writes.
#include <cmath>

#include "ir/base/dtype.h"
#include "tests/jit/lower/leaf_case.h"

namespace lathe::jit {
namespace {

using ir::DType;

constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16, DType::i32, DType::i8, DType::u8, DType::b8};

double element(DType type, const char* p) {
  const auto as = [p](auto v) {
    std::memcpy(&v, p, sizeof v);
    return v;
  };
  switch (type) {
    case DType::f32:
      return as(float{});
    case DType::bf16:
      return ir::bf16_to_f32(as(uint16_t{}));
    case DType::f16:
      return ir::f16_to_f32(as(uint16_t{}));
    case DType::i32:
      return as(int32_t{});
    case DType::i8:
      return as(int8_t{});
    case DType::b8:
      return as(uint8_t{}) != 0;
    default:
      return as(uint8_t{});
  }
}

// Elements of `type`: every byte, every half, or 32-bit patterns around what rounds, overflows and saturates.
std::vector<char> values(DType type) {
  std::vector<char> out;
  const auto add = [&](auto v) { out.insert(out.end(), reinterpret_cast<char*>(&v), reinterpret_cast<char*>(&v + 1)); };
  std::mt19937 random(11);
  if (ir::dtype_bytes(type) == 1) {
    for (int i = 0; i < 256; ++i) add(static_cast<uint8_t>(i));
  } else if (ir::dtype_bytes(type) == 2) {
    for (int i = 0; i < 0x10000; i += 1 + static_cast<int>(random() % 7)) add(static_cast<uint16_t>(i));
  } else if (type == DType::i32) {
    for (int bit = 0; bit < 31; ++bit) {
      for (const int64_t near :
           {-65537, -65536, -32769, -129, -128, -1, 0, 1, 127, 128, 129, 32768, 32769, 65536, 65537}) {
        for (const int64_t sign : {-1, 1})
          add(static_cast<int32_t>(std::clamp<int64_t>(sign * ((int64_t{1} << bit) + near), INT32_MIN, INT32_MAX)));
      }
    }
    add(INT32_MIN);
    for (int i = 0; i < 3000; ++i) add(static_cast<int32_t>(random()));
  } else {
    for (const float f : llvm_test::test_values(random, 3000)) add(f);
    for (const float f : {126.5f,   127.5f,  128.5f, -127.5f, -128.5f,       -129.f,       254.5f,        255.5f,
                          -0.5f,    -0.6f,   0.5f,   1.5f,    2147483520.f,  2147483648.f, -2147483648.f, 65503.f,
                          65519.9f, 65520.f, 6e-8f,  3e-8f,   2.9802322e-8f, 9e-41f,       4.6e-41f})
      add(f);
    for (int i = 0; i < 4000; ++i) {  // halves of a unit of bf16 and of f16, and beside them
      const uint32_t top = static_cast<uint32_t>(random()) & 0xffff0000u;
      for (const uint32_t low : {0x7fffu, 0x8000u, 0x8001u}) add(top | low);
      for (const uint32_t low : {0x0fffu, 0x1000u, 0x1001u}) add((top & 0xffffe000u) | low);
    }
  }
  return out;
}

void expect_casts(DType from, DType to) {
  const std::string text = fmt::format(
      "kernel leaf(p0: {}[_] in strides [1], p1: {}[_] out strides [1]) family leaf where e0 in "
      "0..9223372036854775807\n"
      "  for i0 < ceildiv(e0, 16):\n    for i1 < min(16, e0 - 16*i0) @vector:\n"
      "      p1[16*i0 + i1] = {}(p0[16*i0 + i1])\n",
      ir::dtype_name(from), ir::dtype_name(to), ir::dtype_name(to));
  const auto kernel = ir::parse_kernel(text);
  ASSERT_TRUE(kernel.ok()) << kernel.status().to_string() << text;
  const std::vector<char> in = values(from);
  const size_t read = static_cast<size_t>(ir::dtype_bytes(from)), written = static_cast<size_t>(ir::dtype_bytes(to));
  const size_t all = in.size() / read;
  for (const ir::Target& target : test_targets()) {
    const auto p = lower_leaf(*kernel, target);
    ASSERT_TRUE(p.ok()) << p.status().to_string() << text;
    for (const size_t count : {all, size_t{13}}) {
      std::vector<char> out(count * written + 64, 0x55), code_out = out;
      ir::LeafArgs args{};
      args.op[0].ptr = const_cast<char*>(in.data());
      args.op[1].ptr = out.data();
      args.extent[0] = static_cast<int64_t>(count);
      execute_portable(*p, args);
      for (size_t i = 0; i < count; ++i) {
        const double x = element(from, in.data() + i * read), got = element(to, out.data() + i * written);
        const bool integers = !ir::is_float(from) && !ir::is_float(to) && to != DType::b8;
        const auto low = static_cast<uint8_t>(static_cast<int64_t>(integers ? x : 0));  // kept between integers
        const double want = integers && to == DType::u8   ? low
                            : integers && to == DType::i8 ? static_cast<int8_t>(low)
                                                          : ir::round_to(to, x);
        if (std::isnan(x) && ir::is_float(to)) {
          ASSERT_TRUE(std::isnan(got)) << i;
        } else {
          ASSERT_EQ(got, want) << x << " at level " << ir::isa_name(target.level) << "\n" << to_text(*p);
        }
      }
      for (size_t i = count * written; i < out.size(); ++i) ASSERT_EQ(out[i], 0x55);
      args.op[1].ptr = code_out.data();
      if (!x64_test::run_generated(*p, args)) continue;
      for (size_t i = 0; i < count && to == DType::bf16; ++i) {  // which NaN is not said
        if (std::isnan(element(to, out.data() + 2 * i)) && std::isnan(element(to, code_out.data() + 2 * i)))
          std::memcpy(code_out.data() + 2 * i, out.data() + 2 * i, 2);
      }
      ASSERT_EQ(out, code_out) << ir::isa_name(target.level) << "\n" << to_text(*p);
    }
  }
}

TEST(LowerConvert, EveryPairOfTypes) {
  for (const DType from : kTypes) {
    for (const DType to : kTypes) {
      SCOPED_TRACE(fmt::format("{} to {}", ir::dtype_name(from), ir::dtype_name(to)));
      ASSERT_NO_FATAL_FAILURE(expect_casts(from, to));
    }
  }
}

TEST(LowerConvert, WhatIsNotServedIsNamed) {
  const auto refusal = [](const std::string& types, const std::string& statement) {
    const auto kernel =
        ir::parse_kernel("kernel leaf(" + types +
                         ") family leaf where e0 in 0..9223372036854775807\n  for i0 < e0:\n    " + statement + "\n");
    EXPECT_TRUE(kernel.ok()) << kernel.status().to_string();
    return kernel.ok() ? lower_leaf(*kernel, test_target(ir::IsaLevel::avx2)).status().to_string() : "";
  };
  EXPECT_NE(
      refusal("p0: f64[_] in strides [1], p1: f32[_] out strides [1]", "p1[i0] = f32(p0[i0])").find("cast from f64"),
      std::string::npos);
  EXPECT_NE(refusal("p0: f32[_] in strides [1], p1: i64[_] out strides [1]", "p1[i0] = i64(p0[i0])")
                .find("cast from f32 to i64"),
            std::string::npos);
  EXPECT_NE(
      refusal("p0: bf16[_] in strides [1], p1: bf16[_] out strides [1]", "p1[i0] = p0[i0] + p0[i0]").find("bf16 value"),
      std::string::npos);
  EXPECT_NE(
      refusal("p0: bf16[_] in strides [1], p1: bf16[_] out strides [1]", "p1[i0] += p0[i0]").find("added to in memory"),
      std::string::npos);
}

}  // namespace
}  // namespace lathe::jit
