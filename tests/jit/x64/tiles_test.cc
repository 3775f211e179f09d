// Tiles of AMX: programs of tile instructions against the portable executor, bit for bit, where the CPU has them and
// the system lends them; everywhere their code is made, linted and refused where it does not fit.
#include <functional>

#include "jit/image/image_lint.h"
#include "tests/jit/x64/x64_test_util.h"

namespace lathe::jit {
namespace {
using namespace x64_test;

const Shape kAmx = {ir::IsaLevel::amx, 16};

Inst tile_op(LeafOp op, uint32_t tiles) {
  Inst i{};
  i.op = op;
  i.imm = tiles;
  return i;
}
Inst tile_rows_of(LeafOp op, uint32_t tile, int ptr, int64_t bytes) {
  Inst i = tile_op(op, tile);
  i.mem.ptr = ptr;
  i.var_add = bytes;
  return i;
}

// c = c + a b (or a b from zeros on), tiles 0, 4, 6; rows of a lie a run-time stride apart.
LeafProgram program_of(int rows, bool zero) {
  LeafProgram p = empty_program(kAmx, "tiles", 3);
  p.tile_rows[0] = p.tile_rows[4] = static_cast<uint8_t>(rows);
  p.tile_rows[6] = kTileRows;
  Inst a = tile_rows_of(LeafOp::k_tile_load, 4, 0, 0);
  a.mem.index_kind = Mem::Index::stride;
  const Inst start = zero ? tile_op(LeafOp::k_tile_zero, 0) : tile_rows_of(LeafOp::k_tile_load, 0, 2, 64);
  p.body = {inst(a), inst(tile_rows_of(LeafOp::k_tile_load, 6, 1, 128)), inst(start),
            inst(tile_op(LeafOp::k_tile_dot_bf16, 0 | 4 << 4 | 6 << 8)),
            inst(tile_rows_of(LeafOp::k_tile_store, 0, 2, 64))};
  return p;
}

std::vector<uint32_t> results(const std::vector<std::vector<uint32_t>>& in,
                              const std::function<void(const ir::LeafArgs&)>& run, bool floats = true) {
  std::vector<std::vector<uint32_t>> data = in;
  ir::LeafArgs args{};
  for (size_t s = 0; s < data.size(); ++s) args.op[s].ptr = reinterpret_cast<char*>(data[s].data());
  args.op[0].stride[0] = 96;
  run(args);
  for (uint32_t& bits : data[2]) {
    if (floats && (bits & 0x7fffffff) > 0x7f800000) bits = 0x7fc00000;  // which NaN is not said
  }
  return data[2];
}

TEST(Tiles, equal_the_portable_executor) {
  std::mt19937 random(3);
  const auto half = [&](int kind) -> uint32_t {
    const auto bits = static_cast<uint32_t>(random());
    const uint32_t exponent = kind == 0   ? 120 + (bits >> 16) % 16
                              : kind == 1 ? (bits >> 16) % 255
                                          : 58 + (bits >> 16) % 12;
    return (bits & 0x8000) | exponent << 7 | (bits & 0x7f);
  };
  for (int rows = 1; rows <= kTileRows; ++rows) {
    for (const int kind : {0, 1, 2}) {
      std::vector<std::vector<uint32_t>> in = {std::vector<uint32_t>(24 * 16), std::vector<uint32_t>(32 * 16),
                                               std::vector<uint32_t>(16 * 16)};
      for (std::vector<uint32_t>& operand : in) {
        for (uint32_t& pair : operand) pair = half(kind) | half(kind) << 16;
      }
      for (const bool zero : {false, true}) {
        SCOPED_TRACE(fmt::format("{} rows, kind {}, from zeros {}", rows, kind, zero));
        const LeafProgram p = program_of(rows, zero);
        ASSERT_TRUE(verify_program(p).ok()) << verify_program(p).to_string();
        const auto want = results(in, [&](const ir::LeafArgs& a) { execute_portable(p, a); });
        for (size_t i = static_cast<size_t>(16 * rows); i < want.size(); ++i)
          ASSERT_EQ(want[i], in[2][i]) << "rows that the tile lacks";
        if (!backend_built(Backend::xbyak)) continue;
        const auto image = compile_xbyak(p);
        ASSERT_TRUE(image.ok()) << image.status().to_string();
        EXPECT_EQ(image->features & kTileFeatures, kTileFeatures);
        EXPECT_TRUE(lint_image(*image).ok()) << lint_image(*image).to_string();
        if (!can_run(kAmx)) continue;
        const Loaded code(*image);
        ASSERT_EQ(results(in, [&](const ir::LeafArgs& a) { code(a); }), want);
      }
    }
  }
  if (!can_run(kAmx)) GTEST_SKIP() << "no AMX: not run on hardware";
}

// Every byte of both factors, up to the ends of their ranges.
TEST(Tiles, of_bytes_equal_the_portable_executor) {
  std::mt19937 random(4);
  for (const LeafOp dot : {LeafOp::k_tile_dot_u8s8, LeafOp::k_tile_dot_s8u8, LeafOp::k_tile_dot_s8s8}) {
    for (int rows = 1; rows <= kTileRows; ++rows) {
      std::vector<std::vector<uint32_t>> in = {std::vector<uint32_t>(24 * 16), std::vector<uint32_t>(32 * 16),
                                               std::vector<uint32_t>(16 * 16)};
      for (std::vector<uint32_t>& operand : in) {
        for (uint32_t& four : operand) four = static_cast<uint32_t>(random());
      }
      std::fill_n(in[0].begin(), 16, 0x80808080u);  // a row and a column of the largest products
      for (int k = 0; k < kTileRows; ++k) in[1][static_cast<size_t>(32 * k)] = 0xffffffffu;
      LeafProgram p = program_of(rows, false);
      for (Node& n : p.body) {
        if (n.inst.op == LeafOp::k_tile_dot_bf16) n.inst.op = dot;
      }
      ASSERT_TRUE(verify_program(p).ok()) << verify_program(p).to_string();
      const auto want = results(in, [&](const ir::LeafArgs& a) { execute_portable(p, a); }, false);
      const auto byte = [](uint32_t four, int at, bool is_signed) {
        const auto bits = static_cast<uint8_t>(four >> (8 * at));
        return is_signed ? int{static_cast<int8_t>(bits)} : int{bits};
      };
      for (int m = 0; m < rows; ++m) {
        for (int n = 0; n < 16; ++n) {
          uint32_t sum = in[2][static_cast<size_t>(16 * m + n)];
          for (int k = 0; k < 64; ++k) {
            sum += static_cast<uint32_t>(
                byte(in[0][static_cast<size_t>(24 * m + k / 4)], k % 4, dot != LeafOp::k_tile_dot_u8s8) *
                byte(in[1][static_cast<size_t>(32 * (k / 4) + n)], k % 4, dot != LeafOp::k_tile_dot_s8u8));
          }
          ASSERT_EQ(want[static_cast<size_t>(16 * m + n)], sum) << rows << " rows: " << m << ", " << n;
        }
      }
      if (!backend_built(Backend::xbyak)) continue;
      const auto image = compile_xbyak(p);
      ASSERT_TRUE(image.ok()) << image.status().to_string();
      EXPECT_EQ(image->features & (kCpu_amx_tile | kCpu_amx_int8 | kCpu_amx_bf16), kCpu_amx_tile | kCpu_amx_int8);
      EXPECT_TRUE(lint_image(*image).ok()) << lint_image(*image).to_string();
      CodeImage undeclared = *image;
      undeclared.features &= ~uint64_t{kCpu_amx_int8};
      EXPECT_NE(lint_image(undeclared).message().find("needs amx_int8, which is not declared"), std::string::npos);
      if (!can_run(kAmx)) continue;
      const Loaded code(*image);
      ASSERT_EQ(results(in, [&](const ir::LeafArgs& a) { code(a); }, false), want);
    }
  }
  if (!can_run(kAmx)) GTEST_SKIP() << "no AMX: not run on hardware";
}

TEST(Tiles, that_do_not_fit_are_refused) {
  const auto refusal = [](const std::function<void(LeafProgram&)>& edit) {
    LeafProgram p = program_of(16, true);
    edit(p);
    return verify_program(p).message();
  };
  EXPECT_EQ(refusal([](LeafProgram& p) { p.tile_rows[0] = 17; }), "leaf program: a tile of more than 16 rows");
  EXPECT_EQ(refusal([](LeafProgram& p) { p.body[3].inst.imm = 0 | 5 << 4 | 6 << 8; }),
            "leaf program: tile 5 is not one of the program's");
  EXPECT_EQ(refusal([](LeafProgram& p) { p.tile_rows[4] = 8; }),
            "leaf program: a product of tiles whose rows do not fit");
  // Tiles of b have 8 or 16 rows, and rows of a four bytes for each of them.
  EXPECT_EQ(refusal([](LeafProgram& p) { p.tile_rows[6] = 8; }), "");
  for (const uint8_t lines : {1, 7, 9, 12, 15}) {
    EXPECT_EQ(refusal([&](LeafProgram& p) { p.tile_rows[6] = lines; }),
              "leaf program: a product of tiles whose rows do not fit")
        << int{lines};
  }
  EXPECT_EQ(refusal([](LeafProgram& p) {
              p.tile_rows[6] = 8;
              p.tile_rows[7] = 16;
              p.body[3].inst.imm = 0 | 4 << 4 | 7 << 8;
            }),
            "leaf program: a product of tiles whose rows do not fit");
  EXPECT_EQ(refusal([](LeafProgram& p) {
              p.tile_rows[5] = 16;
              p.tile_rows[6] = 8;
              p.body[3].inst.imm = 5 | 4 << 4 | 6 << 8;
            }),
            "leaf program: a product of tiles whose rows do not fit")
      << "sums whose rows are those of a";
  EXPECT_EQ(refusal([](LeafProgram& p) { p.level = ir::IsaLevel::avx512; }), "leaf program: tiles at level avx512");
  EXPECT_EQ(refusal([](LeafProgram& p) { p.body[1].inst.mask = 0; }), "leaf program: tile_load cannot be masked");
  EXPECT_FALSE(compile_llvm(program_of(16, true), "").ok());
  const LeafProgram p = program_of(16, false);
  const std::vector<uint8_t> bytes = serialise(p);
  const auto again = deserialise(bytes.data(), bytes.size());
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(to_text(*again), to_text(p));
  if (!backend_built(Backend::xbyak)) return;
  auto image = compile_xbyak(p);
  ASSERT_TRUE(image.ok()) << image.status().to_string();
  image->features &= ~uint64_t{kCpu_amx_tile};
  EXPECT_NE(lint_image(*image).message().find("needs amx_tile, which is not declared"), std::string::npos);
}

}  // namespace
}  // namespace lathe::jit
