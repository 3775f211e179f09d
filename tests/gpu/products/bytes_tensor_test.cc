// Products of bytes on tensor cores: every tile and pair of types keeps the values, on the emulator as well; the code
// is what is predicted, through the real compiler where it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "ir/analysis/analysis.h"
#include "jit/cuda/lower/lower_device.h"
#include "search/cut/launch_cut.h"
#include "search/gpu/choice/device_candidates.h"
#include "search/gpu/gemv_schedule.h"
#include "search/gpu/tensor/tensor_schedule.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/counted_kernels.h"
#include "tests/gpu/emulated.h"
#include "tests/gpu/tensor/group_programs.h"
#include "tests/gpu/tensor/tensor_opcodes.h"

namespace lathe::test {
namespace {

using ir::Kernel;
using ir::SymbolValues;
using search::GeneralKernel;
using search::TensorTile;

// With zero points of columns, for which a nest before sums rows.
Kernel bytes(const char* a, const char* b) {
  return kernel_of(
      fmt::format("kernel bytes(a: {}[M, K] in, b: {}[N, K] in, z: u8[N] in, y: i32[M, N] out) "
                  "family matmul where M in 0..5000, N in 0..5000, K in 0..5000\n"
                  "  s: i32[M] heap\n  c: i32[M, N] heap\n"
                  "  for r < M [sums]:\n    s[r] = 0:i32\n    for q < K [sums]:\n      s[r] += i32(a[r, q])\n"
                  "  for m < M [m]:\n    for n < N [n]:\n      c[m, n] = 0:i32\n      for k < K [k]:\n"
                  "        c[m, n] += i32(a[m, k]) * i32(b[n, k])\n      y[m, n] = c[m, n] - s[m] * i32(z[n])\n",
                  a, b));
}
constexpr std::pair<const char*, const char*> kTypes[] = {{"i8", "i8"}, {"i8", "u8"}, {"u8", "i8"}, {"u8", "u8"}};

TEST(BytesTensor, EveryTileKeepsTheValues) {
  int number = 0;
  for (TensorTile tile : search::tensor_tiles()) {
    const auto& [a, b] = kTypes[number % 4];
    const Kernel naive = bytes(a, b);
    const GeneralKernel general = search::general_kernel(naive);
    const int64_t least = std::exchange(tile.stages, 1 + number % 3);
    if (!search::check_tile(tile).ok()) tile.stages = least;
    const auto made = search::tensor_schedule(general, tile);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    if (number++ % 9 != 0) continue;
    // One over and under the tile, and the depth, in turn.
    const int64_t by = number / 9 % 3 - 1, m = tile.swapped ? tile.columns : tile.rows,
                  n = tile.swapped ? tile.rows : tile.columns;
    expect_values_kept(naive, general, made, {{"M", m + by}, {"N", n - by}, {"K", 2 * tile.depth + by}}, 0);
  }
}

TEST(BytesTensor, OnTheEmulator) {
  int number = 0;
  for (const auto& [a, b] : kTypes) {
    const Kernel naive = bytes(a, b);
    const GeneralKernel general = search::general_kernel(naive);
    for (TensorTile tile : {TensorTile{32, 32, 32, 16, 16}, TensorTile{16, 16, 64, 16, 16, 2},
                            TensorTile{32, 8, 32, 16, 8, 3}, TensorTile{64, 32, 32, 32, 32, 2}}) {
      tile.swizzled = tile.stages > 1;
      tile.swapped = number++ % 2 == 1 && tile.columns <= 32;
      const auto made = search::tensor_schedule(general, tile);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      for (const auto& [m, n, k] :
           {std::tuple{1, 1, 1}, {33, 15, 63}, {16, 40, 128}, {5, 65, 80}, {64, 64, 0}, {0, 7, 32}}) {
        const SymbolValues s = {{"M", m}, {"N", n}, {"K", k}};
        expect_values_kept(naive, general, made, s, 0);
        expect_as_interpreted(made->kernel, sizes_of(general, s));
      }
    }
  }
}

TEST(BytesTensor, WithoutConflictsOfBanks) {
  const GeneralKernel general = search::general_kernel(bytes("i8", "i8"));
  for (TensorTile tile : {TensorTile{64, 64, 32, 32, 32, 3}, TensorTile{64, 64, 64, 32, 32, 2},
                          TensorTile{64, 64, 32, 32, 32, 1}, TensorTile{32, 16, 128, 16, 16, 2}}) {
    tile.swizzled = tile.stages > 1;
    const auto made = search::tensor_schedule(general, tile);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    const BankCounts counts = bank_conflicts(made->kernel, sizes_of(general, {{"M", 64}, {"N", 64}, {"K", 256}}));
    EXPECT_GT(counts.accesses, 0);
    EXPECT_EQ(counts.conflicts, 0) << to_text(made->schedule);
  }
}

TEST(BytesTensor, AreTheFirstChoiceWhereTermsAreNeighbours) {
  for (const char* gpu : {"a100", "h200"}) {
    const ir::GpuTarget target = *ir::find_gpu_target(gpu);
    const GeneralKernel general = search::general_kernel(bytes("u8", "i8"));
    const auto recipe = [&](int64_t m) {
      const auto ranked =
          search::device_candidates(general, sizes_of(general, {{"M", m}, {"N", 4096}, {"K", 4096}}), target, 8);
      EXPECT_TRUE(ranked.ok()) << ranked.status().to_string();
      EXPECT_EQ(ranked->size(), 8u);
      return ranked->front().schedule.recipe;
    };
    EXPECT_EQ(recipe(1), "lines.1");
    EXPECT_EQ(recipe(8), "tensor.1");
    EXPECT_EQ(recipe(4096), "tensor.1");
  }
}

// The program of a product alone, its statements of warps by number: the squares of b, of a, a product.
struct Made {
  Kernel kernel;
  jit::DeviceProgram program;
  SymbolValues sizes;
};
Made made_program() {
  const Kernel naive = kernel_of(
      "kernel bytes(a: u8[M, K] in, b: i8[N, K] in, y: i32[M, N] out) family matmul where M in 0..99, N in 0..99, "
      "K in 0..99\n  c: i32[M, N] heap\n  for m < M [m]:\n    for n < N [n]:\n      c[m, n] = 0:i32\n"
      "      for k < K [k]:\n        c[m, n] += i32(a[m, k]) * i32(b[n, k])\n      y[m, n] = c[m, n]\n");
  const GeneralKernel general = search::general_kernel(naive);
  const auto made = search::tensor_schedule(general, TensorTile{32, 32, 32, 16, 32});
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return {made->kernel, *jit::lower_device(search::cut_launches(made->kernel)->leaves[0]),
          sizes_of(general, {{"M", 32}, {"N", 48}, {"K", 64}})};
}
constexpr int kLoadB = 0, kLoadA = 1, kProduct = 2;
jit::DeviceStmt& warp(jit::DeviceProgram& p, int n) { return *find(p, jit::DeviceStmt::Kind::warp, n); }

TEST(BytesTensor, EveryRuleRefuses) {
  using jit::DeviceProgram;
  using jit::WarpOp;
  const auto move_on = [](int n, size_t i, int64_t by) {
    return [=](DeviceProgram& p) {
      auto& at = warp(p, n).places[i];
      at.offset = ir::simplify(at.offset + ir::Expr(by));
    };
  };
  const auto local_of = [](DeviceProgram& p, int n) -> jit::DeviceLocal& {
    return p.locals[static_cast<size_t>(warp(p, n).places[0].index)];
  };
  const std::pair<const char*, std::function<void(DeviceProgram&)>> cases[] = {
      {"is no operand 9 of mma_u8_u8", [&](DeviceProgram& p) { warp(p, kProduct).warp = WarpOp::k_mma_u8_u8; }},
      {"is no operand 7 of mma_i8_i8", [&](DeviceProgram& p) { warp(p, kProduct).warp = WarpOp::k_mma_i8_i8; }},
      {"is no operand 4 of ldmatrix", [&](DeviceProgram& p) { warp(p, kLoadA).warp = WarpOp::k_ldmatrix; }},
      {"is no operand 3 of ldmatrix_bytes", [&](DeviceProgram& p) { local_of(p, kLoadA).fours = false; }},
      {"may be a part of a register", move_on(kLoadA, 0, 2)},
      {"at once, and nothing says that they are aligned", move_on(kLoadA, 4, 8)},
      {"has four elements in a register, for warps' instructions",
       [&](DeviceProgram& p) {
         jit::DeviceStmt load;
         load.kind = jit::DeviceStmt::Kind::load;
         load.value = 900;
         load.places = {warp(p, kLoadA).places[0]};
         p.body.push_back(load);
       }},
  };
  const Made sound = made_program();
  ASSERT_TRUE(verify(sound.program).ok()) << verify(sound.program).to_string();
  for (const auto& [message, change] : cases) {
    DeviceProgram broken = sound.program;
    change(broken);
    EXPECT_THAT(std::string(verify(broken).message()), testing::HasSubstr(message));
  }
}

// Whole steps ask that lines are whole accesses; a number of rows or columns only says which line is the last.
TEST(BytesTensor, WholeStepsAskForTermsAlone) {
  const std::string text = print(made_program().program);
  EXPECT_THAT(text, testing::HasSubstr("e2 % 16 == 0"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("e0 % 16")));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("e1 % 16")));
}

// Who has which byte: each mistake shows in results.
TEST(BytesTensor, PlantedMistakesAreFound) {
  const Made sound = made_program();
  const SymbolValues& symbols = sound.sizes;
  ASSERT_EQ(failure_of(sound.program, sound.kernel, symbols), "");
  const auto exchange = [](int n, size_t i, size_t j) {
    return [=](jit::DeviceProgram& p) { std::swap(warp(p, n).places[i], warp(p, n).places[j]); };
  };
  const auto other = [](jit::WarpOp op) { return [=](jit::DeviceProgram& p) { warp(p, kProduct).warp = op; }; };
  const std::pair<const char*, std::function<void(jit::DeviceProgram&)>> mistakes[] = {
      {"squares of b exchanged", exchange(kLoadB, 1, 2)},      {"squares of a exchanged", exchange(kLoadA, 1, 2)},
      {"registers of a exchanged", exchange(kProduct, 5, 6)},  {"registers of b exchanged", exchange(kProduct, 8, 9)},
      {"columns of sums exchanged", exchange(kProduct, 0, 1)}, {"rows of sums exchanged", exchange(kProduct, 1, 2)},
      {"a is signed", other(jit::WarpOp::k_mma_i8_i8)},        {"b is not", other(jit::WarpOp::k_mma_u8_u8)},
      {"both are wrong", other(jit::WarpOp::k_mma_i8_u8)},
  };
  for (const auto& [what, plant] : mistakes) {
    jit::DeviceProgram broken = sound.program;
    plant(broken);
    EXPECT_NE(failure_of(broken, sound.kernel, symbols), "") << what;
  }
}

class BytesMatrix : public CountedKernels<testing::TestWithParam<const char*>> {};

TEST_P(BytesMatrix, CompilesAsPredicted) {
  const ir::GpuTarget target = *ir::find_gpu_target(GetParam());
  int number = 0;
  const SymbolValues sizes[] = {{{"M", 4096}, {"N", 4096}, {"K", 4096}},
                                {{"M", 64}, {"N", 4096}, {"K", 4096}},
                                {{"M", 16}, {"N", 4096}, {"K", 4096}},
                                {{"M", 300}, {"N", 77}, {"K", 1023}}};
  for (const auto& [a, b] : kTypes) {
    const GeneralKernel general = search::general_kernel(bytes(a, b));
    const auto tiles = search::tensor_tiles_of(general, sizes_of(general, sizes[number++]), target);
    ASSERT_TRUE(tiles.ok()) << tiles.status().to_string();
    const auto made = search::tensor_schedule(general, tiles->front());
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    const std::string what = search::to_text(made->schedule);
    const auto code = compiled(search::cut_launches(made->kernel)->leaves[1], target, what);
    const std::string wrong = code ? not_as_predicted(*code, tiles->front()) : "";
    expect_predicted(wrong.empty(), wrong + "\n" + what);
  }
}

// A first call takes the first of four that compiles: none of them spills, and the last one goes
// without tensor cores.
TEST_P(BytesMatrix, EveryRungCompiles) {
  const ir::GpuTarget target = *ir::find_gpu_target(GetParam());
  const GeneralKernel general = search::general_kernel(bytes("u8", "i8"));
  for (const auto& [m, k] : {std::pair{512, 1000}, {8, 4096}}) {
    const auto ranked =
        search::device_candidates(general, sizes_of(general, {{"M", m}, {"N", 4096}, {"K", k}}), target, 4);
    ASSERT_TRUE(ranked.ok()) << ranked.status().to_string();
    ASSERT_EQ(ranked->size(), 4u);
    EXPECT_EQ(ranked->back().schedule.recipe, m == 8 ? "lines.1" : "integers.1");
    for (const search::Scheduled& s : *ranked) {
      const std::string what = search::to_text(s.schedule);
      (void)compiled(search::cut_launches(s.kernel)->leaves[1], target, what);
    }
  }
}

// Eight lines of a matrix whose neighbours are columns: 128 sums of a thread.
TEST_P(BytesMatrix, FewLinesCompile) {
  const ir::GpuTarget target = *ir::find_gpu_target(GetParam());
  const GeneralKernel general = search::general_kernel(kernel_of(
      "kernel bytes(a: u8[M, K] in, b: i8[K, N] in, y: i32[M, N] out) family matmul where M in 0..5000, N in 0..5000, "
      "K in 0..5000\n  c: i32[M, N] heap\n  for m < M [m]:\n    for n < N [n]:\n      c[m, n] = 0:i32\n"
      "      for k < K [k]:\n        c[m, n] += i32(a[m, k]) * i32(b[k, n])\n      y[m, n] = c[m, n]\n"));
  for (const int m : {1, 4, 8}) {
    const auto made = search::gemv_schedule(general, sizes_of(general, {{"M", m}, {"N", 4096}, {"K", 4096}}), target);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    (void)compiled(search::cut_launches(made->kernel)->leaves[0], target, search::to_text(made->schedule));
  }
}
INSTANTIATE_TEST_SUITE_P(Gpu, BytesMatrix, testing::Values("a100", "l40s", "h200", "rtx5090"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lathe::test
