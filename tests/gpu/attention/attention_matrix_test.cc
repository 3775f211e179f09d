// The compile matrix of attention: types, depths, caches and pages, whole and by parts, for each architecture, through
// the real compiler. Skipped where the compiler is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/analysis/analysis.h"
#include "search/cut/launch_cut.h"
#include "search/gpu/attention/attention_schedule.h"
#include "search/gpu/attention/float_attention.h"
#include "tests/gpu/attention/attention_kernels.h"
#include "tests/gpu/attention/attention_ops.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/counted_kernels.h"

namespace lathe::test {
namespace {

class AttentionMatrix : public CountedKernels<testing::TestWithParam<const char*>> {
 protected:
  void compile(const ir::Kernel& naive, int64_t part, bool bytes = false) {
    const ir::GpuTarget target = *ir::find_gpu_target(GetParam());
    const auto made = search::attention_schedule(search::general_kernel(naive), part);
    ASSERT_TRUE(made.ok()) << made.status().to_string() << "\n" << print(naive) << part;
    const auto cut = search::cut_launches(made->kernel);
    ASSERT_TRUE(cut.ok()) << cut.status().to_string();
    for (const ir::Leaf& leaf : cut->leaves) {
      const std::string what = to_text(made->schedule);
      const auto code = compiled(leaf, target, what);
      // Keys and values by 16 bytes, or 8 of those that are bytes.
      const auto vectors = code ? code->loads.bits128 + (bytes ? code->loads.bits64 : 0) : 0;
      if (code && &leaf == &cut->leaves[0])
        expect_predicted(vectors >= 2, fmt::format("{} loads of vectors\n{}", vectors, what));
    }
  }
};

TEST_P(AttentionMatrix, CompilesWithoutSpills) {
  const AttentionText forms[] = {{"bf16", 32, 8, 128, 128},
                                 {"bf16", 32, 4, 128, 128, true, 0, true},
                                 {"f16", 8, 1, 64, 64, true, 9},
                                 {"bf16", 8, 8, 128, 128, true, 0, true, true},
                                 {"bf16", 16, 1, 576, 512, true, 0, true},
                                 {"f32", 12, 12, 80, 80}};
  for (const AttentionText& form : forms) {
    for (const int64_t part : {0, 16, 512}) {
      if ((form.window == 0 || part == 0) && in_turn(GetParam())) compile(kernel_of(attention_text(form)), part);
    }
  }
  EXPECT_GE(asked(), 15);
  EXPECT_GE(kernels(), 1);
}

// Elements of one byte are in a register each: fewer keys are on their way.
TEST_P(AttentionMatrix, KeysOfBytes) {
  for (const auto& [heads, kept, depth, pages] :
       {std::tuple<int64_t, int64_t, int64_t, bool>{32, 8, 128, false}, {8, 8, 64, true}, {16, 1, 256, false}}) {
    const AttentionOp op = {.op = pages ? "paged_attention" : "cached_attention",
                            .heads = heads,
                            .kept = kept,
                            .depth = depth,
                            .columns = depth,
                            .bytes = true};
    for (const int64_t part : {0, 32, 512}) {
      if (in_turn(GetParam())) compile(kernel_of_op(op), part, true);
    }
  }
}

// Queries in tiles: products of both kinds read 16 bytes at a time from shared memory, too.
TEST_P(AttentionMatrix, TilesOfFloats) {
  const ir::GpuTarget target = *ir::find_gpu_target(GetParam());
  const AttentionText forms[] = {
      {"f32", 32, 8, 128, 128}, {"f32", 8, 8, 64, 64, false}, {"f32", 8, 8, 128, 128, true, 0, true}};
  for (const AttentionText& form : forms) {
    for (const search::FloatTile tile : {search::FloatTile{64, 64}, {64, 64, 256}, {64, 32}, {32, 64}, {32, 32}}) {
      if (form.columns % (4 * tile.lanes()) != 0) continue;
      if (search::shared_bytes(tile, form.depth, form.columns) > ir::most_shared(target)) continue;
      const auto made = search::float_attention(search::general_kernel(kernel_of(attention_text(form))), tile);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      const auto cut = search::cut_launches(made->kernel);
      ASSERT_TRUE(cut.ok()) << cut.status().to_string();
      const auto code = compiled(cut->leaves[0], target, to_text(made->schedule));
      if (code) expect_predicted(code->loads.bits128 >= 2, to_text(made->schedule));
    }
  }
}

// Of its launches the second one has keys.
TEST_P(AttentionMatrix, PartsOfUnequalSequences) {
  const ir::GpuTarget target = *ir::find_gpu_target(GetParam());
  AttentionOp op = {
      .op = "ragged_attention", .heads = 32, .kept = 8, .depth = 128, .columns = 128, .type = ir::DType::f32};
  for (const bool bytes : {false, true}) {
    op.bytes = bytes;
    const auto made = search::attention_schedule(search::general_kernel(kernel_of_op(op)), 32);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    const auto cut = search::cut_launches(made->kernel);
    ASSERT_TRUE(cut.ok() && cut->leaves.size() == 3) << cut.status().to_string();
    for (const ir::Leaf& leaf : cut->leaves) {
      if (in_turn(GetParam())) compiled(leaf, target, to_text(made->schedule));
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Gpu, AttentionMatrix, testing::Values("a100", "l40s", "h200", "rtx5090"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lathe::test
