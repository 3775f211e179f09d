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
#include "tests/gpu/attention/attention_ops.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/counted_kernels.h"

namespace lathe::test {
namespace {

struct Form {
  AttentionText text;
  search::AttentionTile tile;
};
struct OpForm {
  AttentionOp op;
  search::AttentionTile tile;
};

class TensorAttentionMatrix : public CountedKernels<testing::TestWithParam<const char*>> {
 protected:
  void expect_compiled(const std::vector<Form>& forms) {
    for (const Form& f : forms)
      compile(kernel_of(attention_text(f.text)), f.tile, f.text.depth, f.text.columns, false, false);
    EXPECT_GE(asked(), 5);
    EXPECT_GE(kernels(), 1);
  }
  void expect_compiled(const std::vector<OpForm>& forms) {
    for (const OpForm& f : forms)
      compile(kernel_of_op(f.op), f.tile, f.op.depth, f.op.columns, f.op.bytes, f.op.ragged());
    EXPECT_GE(asked(), 5);
    EXPECT_GE(kernels(), 1);
  }

 private:
  void compile(const ir::Kernel& naive, const search::AttentionTile& t, int64_t depth, int64_t columns, bool bytes,
               bool ragged) {
    const ir::GpuTarget target = *ir::find_gpu_target(GetParam());
    const bool chosen = in_turn(GetParam());
    if (!chosen && !t.groups) return;
    if (search::shared_bytes(t, depth, columns) > ir::most_shared(target)) return;
    const auto made = search::tensor_attention(search::general_kernel(naive), t);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    const auto cut = search::cut_launches(made->kernel);
    ASSERT_TRUE(cut.ok() && cut->leaves.size() == (t.part > 0 || ragged ? 2u : 1u)) << cut.status().to_string();
    const std::string what = to_text(made->schedule);
    const auto code = compiled(cut->leaves[ragged ? 1 : 0], target, what);
    if (!code) return;
    if (t.groups) {
      const int64_t panels = depth / 64 + columns / 64, group = 2 * (depth / 16 + t.keys / 16 * (t.split ? 3 : 1));
      return expect_predicted(code->group_mma == group && code->box_copies == 2 * panels && code->mma == 0,
                              fmt::format("{} products of {}, {} boxes of {}\n{}", code->group_mma, group,
                                          code->box_copies, 2 * panels, what));
    }
    // Of a block of keys, once more for the last blocks where there are stages; queries are read once, or with each.
    const int64_t bodies = t.stages > 1 ? 2 : 1, squares = t.keys / 16;
    const bool kept = depth <= 128;
    const int64_t products = bodies * (t.keys / 8 * (depth / 16) + squares * (columns / 8) * (t.split ? 3 : 1));
    const int64_t reads = bodies * (squares * (depth / 16) + squares * (columns / 16) + (kept ? 0 : depth / 16)) +
                          (kept ? depth / 16 : 0);
    const auto of = [&](int64_t line) {  // few lines' at a time
      const int64_t all = (t.keys * line / 8 + t.threads() - 1) / t.threads();
      return line % 64 == 0 ? std::min<int64_t>(all, t.heads ? 8 : 4) : all;
    };
    const int64_t copies = t.stages == 1 || bytes ? 0 : (of(depth) + of(columns)) * t.stages;
    expect_predicted(code->mma == products && code->matrix_loads == reads && code->async_copies == copies,
                     fmt::format("{} products of {}, {} squares of {}, {} copies of {}\n{}", code->mma, products,
                                 code->matrix_loads, reads, code->async_copies, copies, what));
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
                   {{"bf16", 32, 8, 128, 128, true, 0, true}, {16, 16, 2, false, true, 1024}},
                   {{"bf16", 32, 8, 128, 128, true, 0, true}, {16, 32, 2, false, true, 128}},
                   {{"bf16", 32, 4, 128, 128, true, 0, true}, {16, 64, 2, false, true}},
                   {{"bf16", 64, 8, 96, 96, true, 0, true, true}, {16, 32, 3, true, true, 256}},
                   {{"f16", 28, 4, 64, 64, true, 0, true}, {16, 64, 2, false, true, 1024}},
                   {{"bf16", 32, 8, 128, 128, true, 0, true, false, AttentionText::Mask::queries}, {64, 32, 2}},
                   {{"bf16", 32, 8, 64, 64, true, 0, true, false, AttentionText::Mask::heads}, {64, 64, 1}},
                   {{"bf16", 32, 8, 128, 128, true, 1024}, {64, 64, 2}},
                   {{"bf16", 32, 8, 128, 128, true, 4096, false, true}, {64, 32, 2}},
                   {{"bf16", 32, 8, 128, 128, true, 1024, true}, {16, 64, 2, false, true}}});
}
TEST_P(TensorAttentionMatrix, OfBytes) {
  const AttentionOp cache = {.heads = 32, .kept = 8, .depth = 128, .columns = 128, .bytes = true},
                    pages = {
                        .op = "paged_attention", .heads = 32, .kept = 8, .depth = 64, .columns = 64, .bytes = true};
  AttentionOp halves = cache;
  halves.type = ir::DType::f16;
  expect_compiled({{cache, {64, 32, 1}},
                   {cache, {64, 64, 1, true}},
                   {cache, {16, 32, 1, true, true, 512}},
                   {cache, {16, 16, 1, false, true, 256}},
                   {halves, {128, 64, 1}},
                   {pages, {64, 64, 1}},
                   {pages, {16, 64, 1, false, true}}});
}
TEST_P(TensorAttentionMatrix, OfUnequalSequences) {
  const AttentionOp plain = {.op = "ragged_attention", .heads = 32, .kept = 8, .depth = 128, .columns = 128};
  AttentionOp halves = plain, bytes = plain, window = plain;
  halves.type = ir::DType::f16;
  bytes.bytes = true;
  window.window = 1024;
  expect_compiled({{plain, {64, 64, 2}},
                   {plain, {128, 32, 2, true}},
                   {plain, {16, 32, 2, true, true}},
                   {halves, {64, 64, 2}},
                   {window, {64, 64, 2}},
                   {bytes, {64, 32, 1}}});
}
TEST_P(TensorAttentionMatrix, OfGroups) {
  if (ir::find_gpu_target(GetParam())->sm != 90) GTEST_SKIP() << "no groups of four warps";
  const auto of = [](bool split, int64_t stages = 2) {
    return search::AttentionTile{64, 64, stages, split, false, 0, true};
  };
  expect_compiled({{{"bf16", 32, 8, 128, 128}, of(false)},
                   {{"bf16", 32, 8, 128, 128}, of(true)},
                   {{"bf16", 32, 8, 64, 64}, of(false, 3)},
                   {{"f16", 32, 8, 64, 128, false}, of(false)},
                   {{"bf16", 32, 8, 128, 128, true, 0, false, false, AttentionText::Mask::queries}, of(false)}});
}
INSTANTIATE_TEST_SUITE_P(Gpu, TensorAttentionMatrix, testing::Values("a100", "l40s", "h200", "rtx5090"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lathe::test
