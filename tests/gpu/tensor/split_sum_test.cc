// Sums of products that blocks share: values stay, on the emulator too, and it is chosen where there are few blocks.
#include "search/gpu/split_sum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "search/cut/launch_cut.h"
#include "search/gpu/choice/device_candidates.h"
#include "search/gpu/gemv_schedule.h"
#include "search/gpu/product_schedule.h"
#include "search/gpu/tensor/tensor_schedule.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/emulated.h"
#include "tests/gpu/tensor/tensor_products.h"

namespace lathe::search {
namespace {

using ir::Kernel;
using ir::SymbolValues;
using test::kBf16;
using test::kernel_of;
using test::sizes_of;
using test::tensor_product;
using test::up_to;
using ::testing::HasSubstr;

// A bias and an activation.
const char kFused[] =
    "kernel fused(a: f32[M, K] in, b: f32[N, K] const, e: f32[N] in, y: f32[M, N] out) "
    "family matmul where M in 0..5000, N in 0..5000, K in 0..5000\n"
    "  c: f32[M, N] heap\n"
    "  for m < M [m]:\n    for n < N [n]:\n      c[m, n] = 0.0\n      for k < K [k]:\n"
    "        c[m, n] += a[m, k] * b[n, k]\n      y[m, n] = max(c[m, n] + e[n], 0.0)\n";

void expect_right(const Kernel& naive, const GeneralKernel& general, const ir::Result<Scheduled>& made,
                  const SymbolValues& s, double bound) {
  test::expect_values_kept(naive, general, made, s, bound);
  if (made.ok()) test::expect_as_interpreted(made->kernel, sizes_of(general, s), bound);
}

// Less than a part, whole parts, one over and one under.
TEST(SplitSum, OnTheEmulator) {
  int emulated = 0;
  const Kernel plain = kernel_of(kFused);
  const GeneralKernel of_plain = general_kernel(plain);
  const auto tiled = product_schedule(of_plain, ProductTile{32, 32, 8, 4, 4, 32});
  ASSERT_TRUE(tiled.ok()) << tiled.status().to_string();
  ASSERT_EQ(cut_launches(tiled->kernel)->launches.size(), 2u);
  for (const int64_t k : {0, 1, 31, 32, 33, 64, 150}) {
    expect_right(plain, of_plain, tiled, {{"M", 33}, {"N", 21}, {"K", k}}, 1e-5);
    emulated += 3;
  }
  for (const std::string& text :
       {tensor_product("bf16", false, true), tensor_product("f16", true, false), std::string(test::kTensorFused)}) {
    const Kernel naive = kernel_of(text);
    const GeneralKernel general = general_kernel(naive);
    const bool given = text != test::kTensorFused;
    for (const TensorTile& tile :
         {TensorTile{32, 32, 32, 16, 32, given ? 3 : 1, false, 128}, {32, 8, 32, 16, 8, given ? 3 : 1, true, 128}}) {
      const auto made = tensor_schedule(general, tile);
      for (const int64_t k : {0, 1, 128, 139, 264}) {
        expect_right(naive, general, made, {{"M", 9}, {"N", 37}, {"K", k}}, kBf16);
        emulated += 3;
      }
    }
  }
  RecordProperty("emulated", emulated);
}

TEST(SplitSum, OfFewLines) {
  const ir::GpuTarget target = *ir::find_gpu_target("h200");
  for (const bool turned : {false, true}) {
    const Kernel naive = up_to(kernel_of(turned ? std::string(kFused) : tensor_product("bf16", false, false)),
                               {{"M", 8}, {"N", 5000}});  // parts of many rows would take too much workspace
    const GeneralKernel general = general_kernel(naive);
    const auto made = gemv_schedule(general, sizes_of(general, {{"M", 2}, {"N", 70}, {"K", 1100}}), target);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    EXPECT_EQ(made->schedule.knobs.at("terms"), turned ? 512 : 128);
    for (const int64_t k : {0, 1, 128, 511, 513, 1100})
      expect_right(naive, general, made, {{"M", 2}, {"N", 71}, {"K", k}}, kBf16);
    // Enough blocks without.
    const auto whole = gemv_schedule(general, sizes_of(general, {{"M", 2}, {"N", 70000}, {"K", 1100}}), target);
    ASSERT_TRUE(whole.ok()) << whole.status().to_string();
    EXPECT_EQ(whole->schedule.knobs.count("terms"), 0u);
  }
}

// However many vectors are on their way.
TEST(SplitSum, OfFewLinesWithOtherVectorsAtOnce) {
  const ir::GpuTarget target = *ir::find_gpu_target("h200");
  for (const char* layout : {"columns", "terms"}) {
    const Kernel naive =
        up_to(kernel_of(layout == std::string("terms") ? std::string(kFused) : tensor_product("bf16", false, false)),
              {{"M", 8}, {"N", 5000}});
    const GeneralKernel general = general_kernel(naive);
    for (const int64_t at_once : kOthersAtOnce) {
      const auto made = gemv_schedule(general, sizes_of(general, {{"M", 3}, {"N", 70}, {"K", 2100}}), target, at_once);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      EXPECT_EQ(made->schedule.knobs.at("at_once"), at_once);
      for (const int64_t k : {0, 1, 31, 33, 257, 1100})
        expect_right(naive, general, made, {{"M", 3}, {"N", 71}, {"K", k}}, kBf16);
    }
  }
}

// By rank: where there are fewer tiles than multiprocessors and terms enough.
TEST(SplitSum, IsChosenForSmallGrids) {
  const ir::GpuTarget target = *ir::find_gpu_target("h200");
  const auto of_plain = [&](int64_t m, int64_t n, int64_t k) {
    return ranked_tiles({1, m, n, k, true}, target).front().terms;
  };
  const auto of_tensor = [&](int64_t m, int64_t n, int64_t k) {
    return ranked_tensor_tiles({1, m, n, k, true}, target).front().terms;
  };
  EXPECT_GT(of_plain(64, 64, 16384), 0);
  EXPECT_GT(of_tensor(16, 512, 16384), 0);
  EXPECT_GT(of_tensor(64, 64, 16384), 0);
  EXPECT_EQ(of_plain(4096, 4096, 4096), 0);
  EXPECT_EQ(of_tensor(4096, 4096, 4096), 0);
  EXPECT_EQ(of_tensor(64, 64, 128), 0);
  const GeneralKernel general = general_kernel(kernel_of(tensor_product("bf16", false, true)));
  const auto made = device_schedule(general, sizes_of(general, {{"M", 16}, {"N", 512}, {"K", 4992}}), target);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ(cut_launches(made->kernel)->launches.size(), made->schedule.knobs.count("terms") + 1);
}

TEST(SplitSum, RefusesPartsOfSteps) {
  EXPECT_THAT(check_tile(ProductTile{32, 32, 8, 4, 4, 12}).message(),
              HasSubstr("parts of 12 terms, expected a multiple of 8"));
  EXPECT_THAT(check_tile(TensorTile{32, 32, 32, 16, 32, 1, false, 48}).message(),
              HasSubstr("parts of 48 terms, expected a multiple of 32"));
  EXPECT_THAT(check_tile(TensorTile{32, 32, 32, 16, 32, 1, false, -32}).message(), HasSubstr("parts of -32 terms"));
  EXPECT_THAT(check_tile(TensorTile{32, 32, 32, 16, 32, 2, false, 64}).message(),
              HasSubstr("parts of 2 steps in 2 stages, expected more steps than stages, and not 2 stages"));
}

}  // namespace
}  // namespace lathe::search
