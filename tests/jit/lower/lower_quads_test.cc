// Tensor scopes of mma_u8s8 in leaves, on every level, with the instruction and without: rows, masked columns,
// segments, factors in either order and of either sign, the largest bytes; and what is no four bytes is refused.
#include "ir/meaning/interpreter.h"
#include "tests/jit/lower/leaf_case.h"

namespace lathe::jit {
namespace {

struct Tile {
  int64_t rows = 3, columns = 24, quads = 6;
  bool rows_signed = true;  // the other factor is what this one is not
  std::string product = "i32(p0[M, 4*i3 + i4]) * i32(p1[i3, N, i4])";
};

// p0 as [m, k], p1 as [k / 4, n, k % 4].
std::string leaf_text(const Tile& t, int lanes) {
  const int64_t vectors = (t.columns + lanes - 1) / lanes;
  const auto each = [&](const std::string& row, int first, const std::string& statement) {
    return tile_text(row, first, t.rows, t.columns, lanes, statement);
  };
  return fmt::format(
             "kernel leaf(p0: {}[_, _] in strides [{}, 1], p1: {}[_, _, _] in strides [{}, 4, 1], "
             "p2: i32[_, _] out strides [{}, 1]) family leaf where seglen in 0..9223372036854775807\n"
             "  r0: i32[{}, {}] reg\n",
             t.rows_signed ? "i8" : "u8", 4 * t.quads, t.rows_signed ? "u8" : "i8", 4 * t.columns, t.columns, t.rows,
             vectors * lanes) +
         each("  ", 0, "r0[M, N] = 5:i32") + "  for i3 < seglen @tensor(mma_u8s8):\n    for i4 < 4 @unroll:\n" +
         each("      ", 5, "r0[M, N] += " + t.product) + each("  ", 8, "p2[M, N] = r0[M, N]");
}

std::vector<ir::Target> targets() {
  std::vector<ir::Target> out = test_targets();
  for (const auto& [level, extra] :
       {std::pair{ir::IsaLevel::avx512, ir::kCpu_avx512vnni}, {ir::IsaLevel::avx2, ir::kCpu_avx_vnni}}) {
    out.push_back(test_target(level));
    out.back().extra = extra;
  }
  return out;
}

void expect_sums(const Tile& t, const std::vector<int64_t>& segments) {
  std::mt19937 random(11);
  const auto bytes = [&](int64_t count) {
    std::vector<uint8_t> out(static_cast<size_t>(count));
    for (uint8_t& x : out) x = random() % 4 == 0 ? 0x80 : random() % 4 == 0 ? 0xff : static_cast<uint8_t>(random());
    return out;
  };
  std::vector<uint8_t> a = bytes(t.rows * 4 * t.quads), b = bytes(t.quads * t.columns * 4);
  const auto value = [](uint8_t byte, bool is_signed) { return is_signed ? int{static_cast<int8_t>(byte)} : byte; };
  for (const ir::Target& target : targets()) {
    const std::string text = leaf_text(t, target.lanes);
    const auto kernel = ir::parse_kernel(text);
    ASSERT_TRUE(kernel.ok()) << kernel.status().to_string() << text;
    const auto p = lower_leaf(*kernel, target);
    ASSERT_TRUE(p.ok()) << p.status().to_string() << text;
    EXPECT_TRUE(contains(p->body, LeafOp::k_dot4_u8s8));
    EXPECT_EQ(p->features() & (ir::kCpu_avx512vnni | ir::kCpu_avx_vnni), target.extra);
    std::vector<int32_t> out(static_cast<size_t>(t.rows * t.columns), -1);
    const auto before = out;
    ir::LeafArgs args{};
    args.op[0].ptr = reinterpret_cast<char*>(a.data());
    args.op[1].ptr = reinterpret_cast<char*>(b.data());
    args.op[2].ptr = reinterpret_cast<char*>(out.data());
    std::vector<ir::LeafSeg> segs;
    int64_t at = 0;
    for (const int64_t length : segments) {
      segs.push_back({4 * at, 4 * t.columns * at, length, 0, 0});
      at += length;
    }
    ASSERT_EQ(at, t.quads);
    args.seg = segs.data();
    args.nseg = static_cast<int64_t>(segs.size());
    execute_portable(*p, args);
    for (int64_t m = 0; m < t.rows; ++m) {
      for (int64_t n = 0; n < t.columns; ++n) {
        int32_t want = 5;
        for (int64_t k = 0; k < 4 * t.quads; ++k) {
          want += value(a[static_cast<size_t>(m * 4 * t.quads + k)], t.rows_signed) *
                  value(b[static_cast<size_t>((k / 4 * t.columns + n) * 4 + k % 4)], !t.rows_signed);
        }
        ASSERT_EQ(out[static_cast<size_t>(m * t.columns + n)], want)
            << m << ", " << n << " at " << target.to_string() << "\n"
            << text << to_text(*p);
      }
    }
    if (target.vector_registers == 16 && t.rows * t.columns > 32) continue;  // more sums than registers
    expect_code_writes(*p, args, 2, before, out);
    if (testing::Test::HasFatalFailure()) FAIL() << target.to_string();
  }
}

TEST(LowerQuads, every_row_count_and_masked_columns) {
  for (const bool rows_signed : {false, true}) {
    for (const int64_t rows : {1, 2, 5, 8}) {
      for (const int64_t columns : {1, 7, 16, 17, 32}) {
        for (const int64_t quads : {1, 3, 4, 9}) {
          expect_sums({.rows = rows, .columns = columns, .quads = quads, .rows_signed = rows_signed}, {quads});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(LowerQuads, segments_and_factors_in_either_order) {
  expect_sums({.quads = 7}, {3, 0, 4});
  for (const bool rows_signed : {false, true})
    expect_sums({.quads = 7, .rows_signed = rows_signed, .product = "i32(p1[i3, N, i4]) * i32(p0[M, 4*i3 + i4])"}, {7});
}

TEST(LowerQuads, what_is_no_four_bytes_is_refused) {
  for (const char* product :
       {"i32(p0[M, 4*i3 + 3 - i4]) * i32(p1[i3, N, i4])", "i32(p0[M, 4*i3 + i4]) * i32(p1[i3, N, 0])",
        "i32(p0[M, 8*i3 + 2*i4]) * i32(p1[i3, N, i4])"}) {
    const auto kernel = ir::parse_kernel(leaf_text({.product = product}, 16));
    ASSERT_TRUE(kernel.ok()) << kernel.status().to_string();
    const auto p = lower_leaf(*kernel, test_target(ir::IsaLevel::avx512));
    EXPECT_NE(p.status().to_string().find("four bytes side by side"), std::string::npos) << p.status().to_string();
  }
}

}  // namespace
}  // namespace lathe::jit
