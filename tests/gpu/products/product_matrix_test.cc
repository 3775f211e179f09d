// The compile matrix of products without tensor cores: few lines and tiles, whose sums blocks share or not, for each
// architecture, through the real compiler; accesses in the cubin are as many and as wide as the Schedule says. Skipped
// where the compiler is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "ir/analysis/analysis.h"
#include "jit/cuda/text/cuda_text.h"
#include "search/cut/launch_cut.h"
#include "search/gpu/gemv_schedule.h"
#include "search/gpu/product_schedule.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/counted_kernels.h"
#include "tests/gpu/emulated.h"
#include "tests/gpu/tensor/tensor_products.h"

namespace lathe::test {
namespace {

class ProductMatrix : public CountedKernels<testing::TestWithParam<const char*>> {
 protected:
  // Of each launch; empty where one does not compile.
  std::vector<jit::CubinInfo> launches_of(const search::Scheduled& made) {
    const auto cut = search::cut_launches(made.kernel);
    EXPECT_TRUE(cut.ok()) << cut.status().to_string();
    std::vector<jit::CubinInfo> out;
    for (const ir::Leaf& leaf : cut->leaves) {
      const auto code = compiled(leaf, *ir::find_gpu_target(GetParam()), what(made));
      if (!code) return {};
      out.push_back(*code);
    }
    return out;
  }
  static std::string what(const search::Scheduled& made) {
    return "\n" + std::string(GetParam()) + "\n" + to_text(made.schedule);
  }
  // Loads of several vectors stand in the code twice: for lines that begin at multiples of 16 bytes, and for others.
  static constexpr int64_t kTwice = 2;
  // The launch that adds up parts loads four of them before it adds, and whatever follows.
  void expect_parts(const std::vector<jit::CubinInfo>& launches, bool shared, int64_t others,
                    const search::Scheduled& made) {
    ASSERT_EQ(launches.size(), shared ? 2u : 1u) << what(made);
    if (shared) expect(launches[1].loads.bits128, 4 * kTwice + others, "loads of parts", made);
  }
  void expect(int64_t got, int64_t want, const char* of, const search::Scheduled& made) {
    expect_predicted(got == want, fmt::format("{} {} of {}{}", got, of, want, what(made)));
  }
  int shared_ = 0;
};

TEST_P(ProductMatrix, FewLinesAreLoadedSeveralVectorsAtOnce) {
  struct Form {
    std::string text;
    int64_t m, n, k;
    bool shared, biased;
    int64_t lines;  // of the few, of which terms are neighbours
  };
  std::vector<Form> forms;
  for (const bool terms_last : {false, true}) {
    const std::string f32 = terms_last ? kTurnedProduct : kProduct;
    for (const int64_t few : {1, 2, 4, 8}) forms.push_back({f32, few, 32768, 4096, false, true, few});
    forms.push_back({f32, 1, 512, 16384, true, true, 1});
    forms.push_back({f32, 32768, 2, 4096, false, true, terms_last ? 2 : 0});
    for (const char* type : {"bf16", "f16"}) {
      const std::string half = tensor_product(type, false, terms_last);
      forms.push_back({half, 1, 65536, 4096, false, false, 1});
      forms.push_back({half, 3, 512, 16384, true, false, 4});
    }
  }
  const ir::GpuTarget target = *ir::find_gpu_target(GetParam());
  for (const Form& form : forms) {
    const ir::SymbolValues calls = {{"M", form.m}, {"N", form.n}, {"K", form.k}};
    const search::GeneralKernel general = search::general_kernel(up_to(kernel_of(form.text), calls));
    const ir::SymbolValues sizes = sizes_of(general, calls);
    const auto made = search::gemv_schedule(general, sizes, target);
    ASSERT_TRUE(made.ok()) << made.status().to_string() << form.text;
    shared_ += form.shared;
    if (!in_turn(GetParam())) continue;
    const std::vector<jit::CubinInfo> launches = launches_of(*made);
    if (launches.empty()) continue;
    expect_parts(launches, form.shared, form.biased, *made);
    const int64_t at_once = made->schedule.knobs.at("at_once"), few = made->schedule.knobs.at("few");
    EXPECT_EQ(at_once, 4);
    // Of the large operand; where its terms are neighbours, of the few lines, where its lines are, of the bias.
    const bool terms_last = made->schedule.knobs.at("terms_last") != 0;
    const int64_t lines = terms_last ? at_once * form.lines : 0,
                  biases = !terms_last && form.biased && !form.shared ? few : 0;
    expect(launches[0].loads.bits128, (at_once + lines) * kTwice + biases, "loads", *made);
    EXPECT_EQ(launches[0].barriers + launches[0].async_copies, 0) << what(*made);
    EXPECT_LE(launches[0].registers, few > 1 ? 168 : 96) << what(*made);
  }
  EXPECT_GE(shared_, 4);
  EXPECT_GE(kernels(), 1);
}

TEST_P(ProductMatrix, TilesWhoseSumsBlocksShare) {
  struct Form {
    const char* text;
    int64_t m, n, k;
  };
  const Form forms[] = {{kProduct, 64, 64, 16384},    {kTurnedProduct, 64, 64, 16384},
                        {kProduct, 16, 512, 8192},    {kTurnedProduct, 256, 256, 4096},
                        {kProduct, 4096, 4096, 4096}, {kTurnedProduct, 100, 1000, 999}};
  const ir::GpuTarget target = *ir::find_gpu_target(GetParam());
  for (const Form& form : forms) {
    const ir::SymbolValues calls = {{"M", form.m}, {"N", form.n}, {"K", form.k}};
    const search::GeneralKernel general = search::general_kernel(up_to(kernel_of(form.text), calls));
    const ir::SymbolValues sizes = sizes_of(general, calls);
    const auto tiles = search::tiles_of_product(general, sizes, target);
    ASSERT_TRUE(tiles.ok()) << tiles.status().to_string();
    const search::ProductTile& t = tiles->front();
    const auto made = search::product_schedule(general, t);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    shared_ += t.terms > 0;
    if (!in_turn(GetParam())) continue;
    const std::vector<jit::CubinInfo> launches = launches_of(*made);
    if (launches.empty()) continue;
    expect_parts(launches, t.terms > 0, 1, *made);
    const jit::CubinInfo& info = launches[0];
    expect(info.stores.bits128, t.thread_rows * t.thread_columns / 4, "stores", *made);
    EXPECT_GE(info.fma, t.thread_rows * t.thread_columns * t.depth) << what(*made);
    EXPECT_EQ(info.async_copies > 0, !t.ahead) << what(*made);
  }
  EXPECT_GE(shared_, 3);
  EXPECT_GE(kernels(), 1);
}

TEST_P(ProductMatrix, TilesOfIntegers) {
  const std::string text =
      "kernel bytes(a: {}[M, K] in, b: i8[{}] in, y: i32[M, N] out) family matmul "
      "where M in 0..5000, N in 0..5000, K in 0..5000\n  s: i32[M] heap\n  c: i32[M, N] heap\n"
      "  for r < M [sums]:\n    s[r] = 0:i32\n    for q < K [sums]:\n      s[r] += i32(a[r, q])\n"
      "  for m < M [m]:\n    for n < N [n]:\n      c[m, n] = 0:i32\n      for k < K [k]:\n"
      "        c[m, n] += i32(a[m, k]) * i32(b[{}])\n      y[m, n] = c[m, n] - s[m] * 128:i32\n";
  const ir::GpuTarget target = *ir::find_gpu_target(GetParam());
  for (const char* type : {"u8", "i8"}) {
    for (const bool turned : {false, true}) {
      const search::GeneralKernel general = search::general_kernel(
          kernel_of(fmt::format(fmt::runtime(text), type, turned ? "N, K" : "K, N", turned ? "n, k" : "k, n")));
      for (const auto& [m, n, k] : {std::tuple{4096, 4096, 4096}, {64, 4096, 4096}, {100, 70, 999}}) {
        const auto made = search::integer_schedule(general, sizes_of(general, {{"M", m}, {"N", n}, {"K", k}}), target);
        ASSERT_TRUE(made.ok()) << made.status().to_string();
        if (!in_turn(GetParam())) continue;
        const std::vector<jit::CubinInfo> launches = launches_of(*made);
        if (launches.empty()) continue;
        ASSERT_EQ(launches.size(), 2u) << what(*made);
        expect(launches[0].loads.bits128 > 0, 1, "loads of whole vectors", *made);
        EXPECT_LE(launches[1].registers, 168) << what(*made);
      }
    }
  }
  EXPECT_GE(kernels(), 1);
}
INSTANTIATE_TEST_SUITE_P(Gpu, ProductMatrix, testing::Values("a100", "l40s", "h200", "rtx5090"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lathe::test
