// The compile matrix of attention on tensor cores: types, depths and tiles, for each architecture, through the real
// compiler; the instructions in the cubin are those of the tile. Skipped where the compiler is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ir/analysis/analysis.h"
#include "search/cut/launch_cut.h"
#include "search/gpu/attention/tensor_attention.h"
#include "tests/gpu/attention/attention_kernels.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/counted_kernels.h"

namespace lathe::test {
namespace {

struct Form {
  AttentionText text;
  search::AttentionTile tile;
};

class TensorAttentionMatrix : public CountedKernels<testing::TestWithParam<const char*>> {
 protected:
  void expect_compiled(const std::vector<Form>& forms) {
    const ir::GpuTarget target = *ir::find_gpu_target(GetParam());
    for (const Form& form : forms) {
      const search::AttentionTile& t = form.tile;
      const int64_t depth = form.text.depth, columns = form.text.columns;
      if (search::shared_bytes(t, depth, columns) > ir::most_shared(target)) continue;
      const search::GeneralKernel general = search::general_kernel(kernel_of(attention_text(form.text)));
      const auto made = search::tensor_attention(general, t);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      const auto cut = search::cut_launches(made->kernel);
      ASSERT_TRUE(cut.ok() && cut->leaves.size() == (t.part > 0 ? 2u : 1u)) << cut.status().to_string();
      const std::string what = to_text(made->schedule);
      const auto code = compiled(cut->leaves[0], target, what);
      if (!code) continue;
      // Of a block of keys, once more for the last blocks where there are stages; queries are read once, or with each.
      const int64_t bodies = t.stages > 1 ? 2 : 1, squares = t.keys / 16;
      const bool kept = depth <= 128;
      const int64_t products = bodies * (t.keys / 8 * (depth / 16) + squares * (columns / 8) * (t.split ? 3 : 1));
      const int64_t reads = bodies * (squares * (depth / 16) + squares * (columns / 16) + (kept ? 0 : depth / 16)) +
                            (kept ? depth / 16 : 0);
      const auto of = [&](int64_t line) {  // few lines' at a time
        const int64_t all = (t.keys * line / 8 + t.threads() - 1) / t.threads();
        return line % 64 == 0 ? std::min<int64_t>(all, 4) : all;
      };
      const int64_t copies = t.stages == 1 ? 0 : (of(depth) + of(columns)) * t.stages;
      expect_predicted(code->mma == products && code->matrix_loads == reads && code->async_copies == copies,
                       fmt::format("{} products of {}, {} squares of {}, {} copies of {}\n{}", code->mma, products,
                                   code->matrix_loads, reads, code->async_copies, copies, what));
    }
    EXPECT_GE(kernels(), 5);
  }
};

TEST_P(TensorAttentionMatrix, OfQueries) {
  expect_compiled({{{"bf16", 32, 8, 128, 128}, {64, 64, 2}},
                   {{"bf16", 32, 8, 128, 128}, {128, 64, 2}},
                   {{"bf16", 32, 8, 128, 128}, {128, 32, 3}},
                   {{"f16", 32, 8, 64, 64, false}, {64, 64, 2}},
                   {{"bf16", 16, 16, 96, 96}, {64, 64, 2}},
                   {{"bf16", 8, 8, 256, 256}, {64, 32, 2}},
                   {{"bf16", 32, 8, 128, 128}, {64, 32, 2, true}},
                   {{"bf16", 32, 8, 64, 64}, {128, 64, 2, true}},
                   {{"bf16", 32, 4, 128, 128, true, 0, true}, {64, 64, 2}},
                   {{"f16", 8, 8, 128, 128, true, 0, true, true}, {64, 64, 2}}});
}
TEST_P(TensorAttentionMatrix, OfHeadsWithMasksAndWindows) {
  expect_compiled({{{"bf16", 32, 8, 128, 128, true, 0, true}, {16, 32, 2, true, true, 512}},
                   {{"bf16", 32, 4, 128, 128, true, 0, true}, {16, 64, 2, false, true}},
                   {{"bf16", 64, 8, 96, 96, true, 0, true, true}, {16, 32, 3, true, true, 256}},
                   {{"f16", 28, 4, 64, 64, true, 0, true}, {16, 64, 2, false, true, 1024}},
                   {{"bf16", 32, 8, 128, 128, true, 0, true, false, AttentionText::Mask::queries}, {64, 32, 2}},
                   {{"bf16", 32, 8, 64, 64, true, 0, true, false, AttentionText::Mask::heads}, {64, 64, 1}},
                   {{"bf16", 32, 8, 128, 128, true, 1024}, {64, 64, 2}},
                   {{"bf16", 32, 8, 128, 128, true, 4096, false, true}, {64, 64, 2}},
                   {{"bf16", 32, 8, 128, 128, true, 1024, true}, {16, 64, 2, false, true}}});
}
INSTANTIATE_TEST_SUITE_P(Gpu, TensorAttentionMatrix, testing::Values("a100", "l40s", "h200", "rtx5090"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lathe::test
