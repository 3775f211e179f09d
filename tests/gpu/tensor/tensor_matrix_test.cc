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
#include "tests/gpu/tensor/tensor_opcodes.h"
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
      const std::string wrong = not_as_predicted(code->info, t);
      opcode_failures += wrong.empty() && code->info.sm == target.sm ? 0 : 1;
      EXPECT_EQ(wrong, "") << what;
      EXPECT_EQ(code->info.sm, target.sm) << what;
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
