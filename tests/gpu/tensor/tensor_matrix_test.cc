// The compile matrix of products on tensor cores: every tile, type and layout, for each architecture, through the real
// compiler; the instructions in the cubin are those of the tile. Skipped where the compiler is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/analysis/analysis.h"
#include "jit/cuda/compile/nvrtc.h"
#include "jit/cuda/cuda_text.h"
#include "jit/cuda/lower/lower_device.h"
#include "search/cut/launch_cut.h"
#include "search/gpu/tensor/tensor_schedule.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/real_nvrtc.h"
#include "tests/gpu/tensor/tensor_products.h"

namespace lathe::test {
namespace {

class TensorMatrix : public WithNvrtc<testing::TestWithParam<const char*>> {};

TEST_P(TensorMatrix, CompilesAsPredicted) {
  struct Form {
    std::string text;
    size_t tiles;  // of the best
    int64_t m, n, k;
    bool copied;  // operands go to shared memory as they are
  };
  const Form forms[] = {{tensor_product("bf16", false, true), 4, 4096, 4096, 4096, true},
                        {tensor_product("bf16", false, true), 3, 16, 4096, 4096, true},
                        {tensor_product("bf16", false, true), 3, 8, 4096, 4096, true},
                        {tensor_product("f16", true, false), 1, 5, 4096, 4096, false},
                        {tensor_product("bf16", false, true), 2, 16, 512, 16384, true},
                        {tensor_product("bf16", false, false), 2, 512, 1024, 4096, true},
                        {tensor_product("f16", false, false), 1, 4096, 4096, 4096, true},
                        {tensor_product("f16", true, true), 1, 2048, 2048, 512, true},
                        {kTensorFused, 1, 1024, 4096, 1024, false}};
  int shared = 0;  // products whose sums blocks share
  int kernels = 0, spills = 0, warnings = 0, opcode_failures = 0;
  const char* gpu = GetParam();
  const ir::GpuTarget target = *ir::find_gpu_target(gpu);
  for (const Form& form : forms) {
    const search::GeneralKernel general = search::general_kernel(kernel_of(form.text));
    ir::SymbolValues sizes;
    for (const auto& [name, size] : general.sizes)
      sizes.emplace_back(name, ir::evaluate(size, {{"M", form.m}, {"N", form.n}, {"K", form.k}}).value());
    const auto tiles = search::tensor_tiles_of(general, sizes, target);
    ASSERT_TRUE(tiles.ok()) << tiles.status().to_string();
    for (size_t i = 0; i < form.tiles; ++i) {
      const search::TensorTile& t = (*tiles)[i];
      const auto made = search::tensor_schedule(general, t);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      const auto cut = search::cut_launches(made->kernel);
      ASSERT_EQ(cut->leaves.size(), t.terms > 0 ? 2u : 1u);
      if (t.terms > 0) {  // what adds up parts
        const auto adds = jit::lower_device(cut->leaves[1]);
        ASSERT_TRUE(adds.ok()) << adds.status().to_string();
        const auto code = nvrtc->compile(*adds, "lathe_leaf", target);
        ++kernels;
        EXPECT_TRUE(code.ok() && code->info.local == 0 && code->info.loads.bits128 > 0 && code->log.empty())
            << code.status().message() << to_text(made->schedule);
        ++shared;
      }
      const auto program = jit::lower_device(cut->leaves[0]);
      ASSERT_TRUE(program.ok()) << program.status().to_string();
      const auto code = nvrtc->compile(*program, "lathe_leaf", target);
      ++kernels;
      const std::string what = std::string(gpu) + "\n" + to_text(made->schedule);
      EXPECT_TRUE(code.ok()) << code.status().message() << what;
      if (!code.ok()) {
        ++(code.status().message().find("spill") != std::string::npos ? spills : warnings);
        continue;
      }
      warnings += !code->log.empty();
      EXPECT_EQ(t.stages > 1, form.copied) << what;
      // Products of 16 x 8 x 16 and squares of 16 x 16 of a step, each once, and once more for the last steps where
      // there are stages; the copies of a step by 16 bytes, ahead of the loop once for each step.
      const auto loops = t.stages > 1 ? 2 : 1;
      const auto squares = static_cast<int>((t.warp_rows / 16 + (t.warp_columns + 8) / 16) * t.depth / 16 * loops);
      const auto products = static_cast<int>(t.warp_rows / 16 * (t.warp_columns / 8) * t.depth / 16 * loops);
      const auto of_operand = [&](int64_t lines) { return (lines * t.depth / 8 + t.threads() - 1) / t.threads(); };
      const auto copies = static_cast<int>(t.stages == 1 ? 0 : (of_operand(t.rows) + of_operand(t.columns)) * t.stages);
      const jit::CubinInfo& info = code->info;
      const bool as_predicted = info.local == 0 && info.mma == products && info.matrix_loads == squares &&
                                info.async_copies == copies && info.sm == target.sm;
      opcode_failures += !as_predicted;
      EXPECT_TRUE(as_predicted) << info.mma << " products of " << products << ", " << info.matrix_loads
                                << " squares of " << squares << ", " << info.async_copies << " copies of " << copies
                                << what;
      EXPECT_EQ(code->log, "") << what;
    }
  }
  EXPECT_GE(kernels, 12);
  EXPECT_GE(shared, 1);
  RecordProperty("kernels", kernels);
  RecordProperty("spills", spills);
  RecordProperty("warnings", warnings);
  RecordProperty("opcode_failures", opcode_failures);
}
INSTANTIATE_TEST_SUITE_P(Gpu, TensorMatrix, testing::Values("a100", "l40s", "h200", "rtx5090"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lathe::test
