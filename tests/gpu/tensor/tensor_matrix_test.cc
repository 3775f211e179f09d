// The compile matrix of products on tensor cores: every tile, type and layout, for each architecture, through the real
// compiler; the instructions in the cubin are those of the tile. Skipped where the compiler is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/analysis/analysis.h"
#include "jit/cuda/text/cuda_text.h"
#include "search/cut/launch_cut.h"
#include "search/gpu/tensor/tensor_schedule.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/counted_kernels.h"
#include "tests/gpu/tensor/tensor_opcodes.h"
#include "tests/gpu/tensor/tensor_products.h"

namespace lathe::test {
namespace {

class TensorMatrix : public CountedKernels<testing::TestWithParam<const char*>> {};

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
                        {tensor_product("bf16", false, true), 1, 385, 4864, 896, true},
                        {tensor_product("f16", false, false), 1, 4096, 4096, 4096, true},
                        {tensor_product("f16", true, true), 1, 2048, 2048, 512, true},
                        {kTensorFused, 1, 1024, 4096, 1024, false},
                        {kTensorEpilogue, 2, 4096, 4096, 1024, true}};
  int shared = 0, staged = 0;  // products whose sums blocks share; whose results are staged
  const ir::GpuTarget target = *ir::find_gpu_target(GetParam());
  for (const Form& form : forms) {
    const ir::SymbolValues calls = {{"M", form.m}, {"N", form.n}, {"K", form.k}};
    const search::GeneralKernel general = search::general_kernel(up_to(kernel_of(form.text), calls));
    ir::SymbolValues sizes;
    for (const auto& [name, size] : general.sizes) sizes.emplace_back(name, ir::evaluate(size, calls).value());
    const auto tiles = search::tensor_tiles_of(general, sizes, target);
    ASSERT_TRUE(tiles.ok()) << tiles.status().to_string();
    for (size_t i = 0; i < form.tiles; ++i) {
      const search::TensorTile& t = (*tiles)[i];
      EXPECT_EQ(t.stages > 1, form.copied);
      shared += t.terms > 0;
      staged += t.staged;
      if (!in_turn(GetParam())) continue;
      const auto made = search::tensor_schedule(general, t);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      const auto cut = search::cut_launches(made->kernel);
      ASSERT_EQ(cut->leaves.size(), t.terms > 0 ? 2u : 1u);
      const std::string what = to_text(made->schedule);
      if (t.terms > 0) {  // what adds up parts
        const auto adds = compiled(cut->leaves[1], target, what);
        if (adds) expect_predicted(adds->loads.bits128 > 0, "parts by 16 bytes\n" + what);
      }
      const auto code = compiled(cut->leaves[0], target, what);
      const std::string wrong = code ? not_as_predicted(*code, t) : "";
      expect_predicted(wrong.empty(), wrong + "\n" + what);
    }
  }
  EXPECT_GE(asked(), 12);
  EXPECT_GE(kernels(), 1);
  EXPECT_GE(shared, 1);
  EXPECT_GE(staged, 4);
}
INSTANTIATE_TEST_SUITE_P(Gpu, TensorMatrix, testing::Values("a100", "l40s", "h200", "rtx5090"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lathe::test
