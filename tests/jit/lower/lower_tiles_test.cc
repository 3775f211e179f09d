// Tensor scopes of tile_bf16 and tile_u8s8 in leaves: every row count, one to four tiles of columns, segments; exact on
// whole numbers, and the same bits on the CPU's own tiles.
#include <functional>

#include "ir/base/dtype.h"
#include "tests/jit/lower/leaf_case.h"

namespace lathe::jit {
namespace {

// p0 as [m, k], p1 as [k / 2, n, k % 2], sums in memory.
std::string leaf_text(int64_t rows, int64_t columns) {
  return fmt::format(
      "kernel leaf(p0: bf16[_, _] in strides [?, 1], p1: bf16[_, _, _] in strides [{1}, 2, 1], "
      "p2: f32[_, _] out strides [{2}, 1]) family leaf where seglen in 0..9223372036854775807\n"
      "  for i0 < seglen @tensor(tile_bf16):\n    for i1 < 16 @unroll:\n      for i2 < 2 @unroll:\n"
      "        for i3 < {0} @unroll:\n          for i4 < {3} @unroll:\n            for i5 < 16 @vector:\n"
      "              p2[i3, i5 + 16*i4] += f32(p0[i3, 32*i0 + 2*i1 + i2]) * f32(p1[16*i0 + i1, i5 + 16*i4, i2])\n",
      rows, 2 * columns, columns, columns / 16);
}

// The same after a statement that fills so many rows of the sums with zeros.
std::string filled_text(int64_t rows, int64_t columns, int64_t filled, const char* with = "0.0") {
  std::string text = leaf_text(rows, columns);
  const std::string fill =
      fmt::format("  for i6 < {}:\n    for i7 < {}:\n      for i8 < 16 @vector:\n        p2[i6, i8 + 16*i7] = {}\n",
                  filled, columns / 16, with);
  text.insert(text.find("  for i0"), fill);
  return text;
}

ir::Target amx() { return ir::bare_target(ir::IsaLevel::amx); }

void expect_sums(int64_t rows, int64_t columns, const std::vector<int64_t>& segments, const std::string& text,
                 const std::function<double(int64_t)>& start) {
  int64_t steps = 0;
  for (const int64_t s : segments) steps += s;
  const int64_t depth = 32 * steps, stride = depth + 6;
  std::mt19937 random(5);
  std::vector<uint16_t> a(static_cast<size_t>(rows * stride)), b(static_cast<size_t>(depth * columns));
  for (std::vector<uint16_t>* v : {&a, &b}) {
    for (uint16_t& x : *v) x = ir::f32_to_bf16(static_cast<float>(static_cast<int>(random() % 9) - 4));
  }
  const auto kernel = ir::parse_kernel(text);
  ASSERT_TRUE(kernel.ok()) << kernel.status().to_string() << text;
  const auto p = lower_leaf(*kernel, amx());
  ASSERT_TRUE(p.ok()) << p.status().to_string() << text;
  std::vector<float> out(static_cast<size_t>(rows * columns), 3);
  const auto before = out;
  ir::LeafArgs args{};
  args.op[0].ptr = reinterpret_cast<char*>(a.data());
  args.op[0].stride[0] = 2 * stride;
  args.op[1].ptr = reinterpret_cast<char*>(b.data());
  args.op[2].ptr = reinterpret_cast<char*>(out.data());
  std::vector<ir::LeafSeg> segs;
  int64_t at = 0;
  for (const int64_t length : segments) {
    segs.push_back({64 * at, 64 * columns * at, length, 0, 0});
    at += length;
  }
  args.seg = segs.data();
  args.nseg = static_cast<int64_t>(segs.size());
  execute_portable(*p, args);
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t n = 0; n < columns; ++n) {
      double want = start(m);
      for (int64_t k = 0; k < depth; ++k) {
        want += ir::bf16_to_f32(a[static_cast<size_t>(m * stride + k)]) *
                ir::bf16_to_f32(b[static_cast<size_t>((k / 2 * columns + n) * 2 + k % 2)]);
      }
      ASSERT_EQ(out[static_cast<size_t>(m * columns + n)], want) << m << ", " << n << "\n" << to_text(*p);
    }
  }
  expect_code_writes(*p, args, 2, before, out);
}

void expect_sums(int64_t rows, int64_t columns, const std::vector<int64_t>& segments) {
  expect_sums(rows, columns, segments, leaf_text(rows, columns), [](int64_t) { return 3; });
}

// Zeros before the sum are those of the tiles, if they are of all rows and no more.
TEST(LowerTiles, zeros_before_a_sum_are_not_stored) {
  const auto program = [](const std::string& text) {
    const auto kernel = ir::parse_kernel(text);
    return kernel.ok() ? to_text(*lower_leaf(*kernel, amx())) : kernel.status().to_string();
  };
  for (const int64_t rows : {1, 2, 16, 17, 32}) {
    for (const int64_t columns : {16, 32}) {
      const std::string text = filled_text(rows, columns, rows), code = program(text);
      expect_sums(rows, columns, {5}, text, [](int64_t) { return 0; });
      EXPECT_NE(code.find("tile_zero"), std::string::npos) << code;
      EXPECT_EQ(code.find(" = constant"), std::string::npos) << code;
    }
  }
  expect_sums(8, 32, {5}, filled_text(8, 32, 7), [](int64_t m) { return m < 7 ? 0 : 3; });
  expect_sums(8, 32, {5}, filled_text(8, 32, 8, "1.0"), [](int64_t) { return 1; });
  EXPECT_EQ(program(filled_text(8, 32, 7)).find("tile_zero"), std::string::npos);
  EXPECT_EQ(program(filled_text(8, 32, 8, "1.0")).find("tile_zero"), std::string::npos);
  EXPECT_EQ(program(filled_text(8, 32, 8, "-0.0")).find("tile_zero"), std::string::npos);
}

// Lines of a stream stand between the operations of the four steps that they are for, all of them and each once.
TEST(LowerTiles, prefetches_stand_between_operations) {
  for (const auto& [rows, lines, most] : {std::tuple(32, 128, 4), std::tuple(32, 10, 1), std::tuple(16, 128, 7)}) {
    std::string text = leaf_text(rows, 32);
    const std::string loop = "@tensor(tile_bf16):\n";
    text.insert(text.find(loop) + loop.size(), fmt::format("    prefetch p1 lines {} to l2\n", lines));
    for (const int64_t steps : {0, 1, 4, 9}) expect_sums(rows, 32, {steps}, text, [](int64_t) { return 3; });
    const auto program = lower_leaf(*ir::parse_kernel(text), amx());
    ASSERT_TRUE(program.ok()) << program.status().to_string();
    std::vector<int32_t> places;
    int run = 0, longest = 0;
    const auto look = [&](const auto& self, const Nodes& nodes) -> void {
      for (const Node& n : nodes) {
        const bool prefetch = n.kind == Node::Kind::inst && n.inst.op == LeafOp::k_prefetch_l2;
        if (prefetch) places.push_back(n.inst.mem.disp);
        run = prefetch ? run + 1 : 0;
        longest = std::max(longest, run);
        self(self, n.body);
      }
    };
    look(look, program->body);
    ASSERT_EQ(places.size(), static_cast<size_t>(lines)) << to_text(*program);
    for (size_t i = 0; i < places.size(); ++i) EXPECT_EQ(places[i], static_cast<int32_t>(64 * i));
    EXPECT_EQ(longest, most) << to_text(*program);
  }
}

TEST(LowerTiles, every_row_count) {
  for (int64_t rows = 1; rows <= 32; ++rows) {
    for (const int64_t columns : {16, 32}) {
      expect_sums(rows, columns, {5});
      if (HasFatalFailure()) return;
    }
  }
  for (const int64_t steps : {0, 1, 2, 4, 9}) expect_sums(32, 32, {steps});
  expect_sums(20, 32, {2, 0, 3});
  for (int64_t rows = 1; rows <= 16; ++rows) {
    for (const int64_t columns : {48, 64}) expect_sums(rows, columns, {5});
  }
}

// p0 as [m, k], p1 as [k / 4, n, k % 4], one of them signed, or both.
std::string bytes_text(int64_t rows, int64_t columns, int64_t terms, const char* a, const char* b) {
  return fmt::format(
      "kernel leaf(p0: {4}[_, _] in strides [?, 1], p1: {5}[_, _, _] in strides [{1}, 4, 1], "
      "p2: i32[_, _] out strides [{2}, 1]) family leaf where seglen in 0..9223372036854775807\n"
      "  for i0 < seglen @tensor({8}):\n    for i1 < {7} @unroll:\n      for i2 < 4 @unroll:\n"
      "        for i3 < {0} @unroll:\n          for i4 < {3} @unroll:\n            for i5 < 16 @vector:\n"
      "              p2[i3, i5 + 16*i4] += i32(p0[i3, {6}*i0 + 4*i1 + i2]) * i32(p1[{7}*i0 + i1, i5 + 16*i4, i2])\n",
      rows, 4 * columns, columns, columns / 16, a, b, terms, terms / 4,
      std::string_view(a) == std::string_view(b) ? "tile_s8s8"
      : terms == 64                              ? "tile_u8s8"
                                                 : "tile_u8s8_32");
}

void expect_sums_of_bytes(int64_t rows, int64_t columns, int64_t steps, bool a_signed, bool b_signed,
                          int64_t terms = 64) {
  const int64_t depth = terms * steps, stride = depth + 12;
  std::mt19937 random(7);
  std::vector<uint8_t> a(static_cast<size_t>(rows * stride)), b(static_cast<size_t>(depth * columns));
  for (std::vector<uint8_t>* v : {&a, &b}) {
    for (uint8_t& x : *v) x = static_cast<uint8_t>(random());
  }
  const std::string text = bytes_text(rows, columns, terms, a_signed ? "i8" : "u8", b_signed ? "i8" : "u8");
  const auto kernel = ir::parse_kernel(text);
  ASSERT_TRUE(kernel.ok()) << kernel.status().to_string() << text;
  const auto p = lower_leaf(*kernel, amx());
  ASSERT_TRUE(p.ok()) << p.status().to_string() << text;
  std::vector<int32_t> out(static_cast<size_t>(rows * columns), -3);
  const auto before = out;
  ir::LeafArgs args{};
  args.op[0].ptr = reinterpret_cast<char*>(a.data());
  args.op[0].stride[0] = stride;
  args.op[1].ptr = reinterpret_cast<char*>(b.data());
  args.op[2].ptr = reinterpret_cast<char*>(out.data());
  ir::LeafSeg seg = {0, 0, steps, 0, 0};
  args.seg = &seg;
  args.nseg = 1;
  execute_portable(*p, args);
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t n = 0; n < columns; ++n) {
      int64_t want = -3;
      for (int64_t k = 0; k < depth; ++k) {
        const uint8_t x = a[static_cast<size_t>(m * stride + k)],
                      y = b[static_cast<size_t>((k / 4 * columns + n) * 4 + k % 4)];
        want += (a_signed ? int{static_cast<int8_t>(x)} : int{x}) * (b_signed ? int{static_cast<int8_t>(y)} : int{y});
      }
      ASSERT_EQ(out[static_cast<size_t>(m * columns + n)], want) << m << ", " << n << "\n" << to_text(*p);
    }
  }
  expect_code_writes(*p, args, 2, before, out);
}

TEST(LowerTiles, every_row_count_of_bytes) {
  for (const auto& [a_signed, b_signed] : {std::pair(false, true), std::pair(true, false), std::pair(true, true)}) {
    for (int64_t rows = 1; rows <= 32; ++rows) {
      for (const int64_t columns : {16, 32}) expect_sums_of_bytes(rows, columns, 3, a_signed, b_signed);
      if (!a_signed || !b_signed) expect_sums_of_bytes(rows, 32, 3, a_signed, b_signed, 32);
      if (HasFatalFailure()) return;
    }
    for (const int64_t columns : {48, 64}) expect_sums_of_bytes(13, columns, 2, a_signed, b_signed);
    for (const int64_t steps : {0, 1, 2, 5}) expect_sums_of_bytes(32, 32, steps, a_signed, b_signed);
  }
}

// Groups of 128 in a loop: bytes made of nibbles, their sums in tiles, which the loop's other statements begin and use.
std::string groups_text(int64_t rows) {
  const auto each = [&](int first, const std::string& statement) {
    return tile_text("    ", first, rows, 32, 16, statement);
  };
  return "kernel leaf(p0: i8[_, _] in strides [?, 1], p1: u8[_, _, _] in strides [128, 4, 1], "
         "p2: u8[_, _, _] out strides [128, 4, 1], p3: i32[_, _] out strides [32, 1], p4: f32[_, _] out strides [32, "
         "1], "
         "p5: f32[_, _] in strides [32, 1]) family leaf "
         "where e0 in 0..9223372036854775807, seglen in 0..9223372036854775807\n"
         "  for i0 < e0:\n"
         "    for i1 < 16 @unroll:\n      for i2 < 2 @unroll:\n        for i3 < 4 @tensor(decode4_u8):\n"
         "          for i4 < 2 @unroll:\n            for i5 < 16 @vector:\n"
         "              p2[2*i1 + i2, i5 + 16*i4, i3] = u8(i32(p1[16*i0 + i1, i5 + 16*i4, i3]) >> 4*i2 & 15:i32)\n" +
         fmt::format(
             "    for i6 < {} @unroll:\n      for i7 < 2 @unroll:\n        for i8 < 16 @vector:\n"
             "          p3[i6, i8 + 16*i7] = 0:i32\n",
             rows) +
         fmt::format(
             "    for i9 < seglen @tensor(tile_u8s8):\n      for i10 < 16 @unroll:\n"
             "        for i11 < 4 @unroll:\n          for i12 < {} @unroll:\n            for i13 < 2 @unroll:\n"
             "              for i14 < 16 @vector:\n"
             "                p3[i12, i14 + 16*i13] += i32(p0[i12, 128*i0 + 64*i9 + 4*i10 + i11]) * "
             "i32(p2[16*i9 + i10, i14 + 16*i13, i11])\n",
             rows) +
         each(15, "p4[M, N] += f32(p3[M, N]) * p5[i0, N]");
}

TEST(LowerTiles, groups_of_bytes_in_a_loop) {
  constexpr int64_t kGroups = 3, kGroup = 128, kColumns = 32, kStride = kGroups * kGroup + 64;
  for (const int64_t rows : {1, 2, 15, 16, 17, 32}) {
    std::mt19937 random(9);
    std::vector<int8_t> a(static_cast<size_t>(rows * kStride));
    std::vector<uint8_t> q(static_cast<size_t>(kGroups * kGroup * kColumns / 2)),
        held(static_cast<size_t>(kGroup * kColumns));
    std::vector<float> scale(static_cast<size_t>(kGroups * kColumns)), out(static_cast<size_t>(rows * kColumns), 5);
    std::vector<int32_t> sums(out.size());
    for (int8_t& x : a) x = static_cast<int8_t>(random());
    for (uint8_t& x : q) x = static_cast<uint8_t>(random());
    for (float& x : scale) x = std::ldexp(1.0f, -static_cast<int>(random() % 3));
    const std::string text = groups_text(rows);
    const auto kernel = ir::parse_kernel(text);
    ASSERT_TRUE(kernel.ok()) << kernel.status().to_string() << text;
    const auto p = lower_leaf(*kernel, amx());
    ASSERT_TRUE(p.ok()) << p.status().to_string() << text;
    EXPECT_NE(to_text(*p).find("tile_zero"), std::string::npos);
    const auto before = out;
    ir::LeafArgs args{};
    void* const operands[] = {a.data(), q.data(), held.data(), sums.data(), out.data(), scale.data()};
    for (size_t i = 0; i < std::size(operands); ++i) args.op[i].ptr = static_cast<char*>(operands[i]);
    args.op[0].stride[0] = kStride;
    args.extent[0] = kGroups;
    ir::LeafSeg seg = {0, 0, kGroup / 64, 0, 0};
    args.seg = &seg;
    args.nseg = 1;
    execute_portable(*p, args);
    for (int64_t m = 0; m < rows; ++m) {
      for (int64_t n = 0; n < kColumns; ++n) {
        float want = 5;
        for (int64_t g = 0; g < kGroups; ++g) {
          int32_t sum = 0;
          for (int64_t k = 0; k < kGroup; ++k) {
            const int64_t quad = g * kGroup / 4 + k / 4;
            const int byte = q[static_cast<size_t>((quad / 2 * kColumns + n) * 4 + k % 4)];
            sum += (byte >> 4 * (quad % 2) & 15) * a[static_cast<size_t>(m * kStride + g * kGroup + k)];
          }
          want += static_cast<float>(sum) * scale[static_cast<size_t>(g * kColumns + n)];
        }
        ASSERT_EQ(out[static_cast<size_t>(m * kColumns + n)], want) << m << ", " << n << "\n" << to_text(*p);
      }
    }
    expect_code_writes(*p, args, 4, before, out);
    if (HasFatalFailure()) return;
  }
}

std::string refusal(std::string text, const std::string& from, const std::string& to) {
  text.replace(text.find(from), from.size(), to);
  const auto kernel = ir::parse_kernel(text);
  if (!kernel.ok()) return kernel.status().to_string();
  const auto p = lower_leaf(*kernel, amx());
  return p.ok() ? "none" : p.status().message();
}

TEST(LowerTiles, what_is_no_tile_is_refused) {
  const std::string text = leaf_text(8, 32);
  EXPECT_EQ(refusal(leaf_text(16, 64), "i3 < 16", "i3 < 17"), "leaf: scope i0: sides that are no tiles");
  EXPECT_EQ(refusal(text, "i3 < 8", "i3 < 33"), "leaf: scope i0: sides that are no tiles");
  EXPECT_NE(refusal(text, "2*i1 + i2", "2*i1 + 1 - i2").find("do not lie evenly"), std::string::npos);
  EXPECT_NE(refusal(text, "i5 + 16*i4, i2])", "i5 + 16*i4, 1 - i2])").find("do not lie evenly"), std::string::npos);
  // Rows of a tile in two parts, which are further apart than those of a part.
  const std::string apart =
      "kernel leaf(p0: bf16[_, _] in strides [?, 1], p1: bf16[_, _, _] in strides [64, 2, 1], "
      "p2: f32[_, _] out strides [32, 1]) family leaf where seglen in 0..9223372036854775807\n"
      "  for i0 < seglen @tensor(tile_bf16):\n    for i1 < 16 @unroll:\n      for i2 < 2 @unroll:\n"
      "        for i3 < 2 @unroll:\n          for i6 < 8 @unroll:\n            for i4 < 2 @unroll:\n"
      "              for i5 < 16 @vector:\n"
      "                p2[i6 + 12*i3, i5 + 16*i4] += f32(p0[i6 + 12*i3, 32*i0 + 2*i1 + i2]) * "
      "f32(p1[16*i0 + i1, i5 + 16*i4, i2])\n";
  EXPECT_NE(refusal(apart, "12*i3, i5", "12*i3, i5").find("do not lie evenly"), std::string::npos);
  EXPECT_EQ(refusal(apart, "p2[i6 + 12*i3", "p2[i6 + 8*i3").find("none"),
            std::string::npos);  // factors are apart still
  const std::string bytes = bytes_text(8, 32, 64, "u8", "i8");
  EXPECT_EQ(refusal(bytes, "i3 < 8", "i3 < 33"), "leaf: scope i0: sides that are no tiles");
  EXPECT_NE(refusal(bytes, "4*i1 + i2", "4*i1 + 3 - i2").find("do not lie evenly"), std::string::npos);
  EXPECT_NE(refusal(bytes, "i5 + 16*i4, i2])", "i5 + 16*i4, 3 - i2])").find("do not lie evenly"), std::string::npos);
  EXPECT_NE(refusal(bytes, "p1: i8", "p1: u8"), "none");
  const auto kernel = ir::parse_kernel(text);
  ASSERT_TRUE(kernel.ok());
  const auto p = lower_leaf(*kernel, ir::bare_target(ir::IsaLevel::avx512));
  EXPECT_NE(p.status().message().find("the target lacks features of tile_bf16"), std::string::npos);
}

}  // namespace
}  // namespace lathe::jit
