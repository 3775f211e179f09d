// The compile matrix of products of groups of warps: every tile, type and layout, for Hopper, through the real
// compiler; the instructions in the cubin are those of the tile. Skipped where the compiler is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jit/cuda/lower/lower_device.h"
#include "jit/cuda/text/cuda_text.h"
#include "search/cut/launch_cut.h"
#include "search/gpu/tensor/hopper_schedule.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/counted_kernels.h"
#include "tests/gpu/tensor/tensor_products.h"

namespace lathe::test {
namespace {

struct Form {
  std::string name, text;
  size_t first, step;  // of tiles
};
const Form kForms[] = {{"terms_last", tensor_product("bf16", false, true), 0, 2},
                       {"as_given", tensor_product("bf16", false, false), 1, 2},
                       {"turned", tensor_product("f16", true, true), 1, 2},
                       {"epilogue", kTensorEpilogue, 3, 8},
                       {"fused", kTensorFused, 0, 2}};
class GroupMatrix : public CountedKernels<testing::TestWithParam<Form>> {};

TEST_P(GroupMatrix, CompilesAsPredicted) {
  const ir::GpuTarget target = *ir::find_gpu_target("h200");
  const search::GeneralKernel general = search::general_kernel(kernel_of(GetParam().text));
  std::vector<search::GroupTile> tiles;
  for (size_t i = GetParam().first; i < search::group_tiles().size(); i += GetParam().step) {
    tiles.push_back(search::group_tiles()[i]);
    if (!tiles.back().roles) continue;  // the same of blocks that go through several
    tiles.push_back(tiles.back());
    tiles.back().persistent = true;
  }
  for (const bool roles : {false, true}) {  // in groups
    if (GetParam().step == 2) tiles.push_back({128, 256, 256, 4, 8, roles, roles});
  }
  // Results by way of shared memory.
  for (const search::GroupTile& t :
       {search::GroupTile{128, 256, 256, 4, 8, true, true}, {128, 128, 128, 3}, {128, 64, 64}}) {
    tiles.push_back(t);
    tiles.back().staged = true;
  }
  // Rows of the instruction that are columns of the result.
  for (const int64_t columns : {16, 64}) {
    if (columns % 64 != 0 && GetParam().name != "terms_last") continue;
    tiles.push_back({columns == 16 ? 128 : 64, columns, columns, 4, 0, true});
    tiles.back().swapped = true;
  }
  // Two blocks that share a factor.
  for (const search::TilePairs pairs : {search::TilePairs::below, search::TilePairs::beside}) {
    for (const bool wide : {false, true}) {
      if (GetParam().step != 2) continue;
      tiles.push_back(wide ? search::GroupTile{128, 256, 256, 4, 8, true, true}
                           : search::GroupTile{192, 128, 128, 4, 0, true});
      tiles.back().pairs = pairs;
      tiles.back().staged = !wide;
    }
  }
  for (const search::GroupTile& t : tiles) {
    if (t.stages > 0 && GetParam().text == kTensorFused) continue;  // it makes a factor
    const auto made = search::hopper_schedule(general, t);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    if (!in_turn()) continue;
    const auto program = jit::lower_device(search::cut_launches(made->kernel)->leaves[0]);
    ASSERT_TRUE(program.ok()) << program.status().to_string();
    const std::string what = to_text(made->schedule);
    const auto code = compiled(*program, target, what);
    if (!code) continue;
    // Products of 16 terms of a step, in the loop and of the last one; the copies of a step by 16 bytes. Roles have one
    // loop, and both change their registers.
    const int loops = t.roles ? 1 : 2, products = loops * 64 / 16;
    const jit::CubinInfo& info = *code;
    // Boxes of lines of neighbours, ahead of the loop and in it; with roles in it alone.
    int boxes = 0, shared = 0;
    for (const jit::DeviceMap& m : program->maps) {
      const bool rows = m.param == 0;
      const int64_t lines = rows != t.swapped ? t.rows : t.columns;
      const bool both = t.pairs == (rows ? search::TilePairs::beside : search::TilePairs::below);  // a half each
      const bool whole = m.box[1] * (both ? 2 : 1) == lines && (lines != 64 || m.sizes[0]->name == "e2");
      boxes += loops * (whole ? 1 : static_cast<int>(lines / m.box[0]));
      if (both) shared += loops * (whole ? 1 : static_cast<int>(lines / m.box[0]));
    }
    const int blocks = t.pairs == search::TilePairs::none ? 1 : 2;
    EXPECT_EQ(info.cluster, blocks) << what;
    EXPECT_EQ(info.shared_boxes, shared) << what;
    EXPECT_EQ(info.cluster_barriers, blocks == 2 ? 3 : 0) << what;  // as rings are made, and where each role ends
    const int kinds = t.roles ? 2 : 1;                              // of tiles: whole ones, and others
    const bool several = t.roles && t.threads() > 128;
    const bool rings = boxes == 0 ? info.rings == 0 : info.rings > 0;
    const bool results = !t.staged || (info.stores.bits128 == kinds * t.group_columns / 16 &&
                                       info.shared_loads.bits128 == kinds * t.group_columns / 8);
    const bool staged = t.roles || (info.loads.bits128 >= 1 && info.shared_stores.bits128 > 0);
    expect_predicted(
        rings && results && info.box_copies == boxes && info.group_mma == products && info.mma == 0 && staged &&
            info.register_changes == (several ? 2 : 0),
        fmt::format(
            "{} products of {}, {} loads, {} boxes of {}, {} of rings, {} of registers, {} and {} of results\n{}",
            info.group_mma, products, info.loads.bits128, info.box_copies, boxes, info.rings, info.register_changes,
            info.stores.bits128, info.shared_loads.bits128, what));
  }
  EXPECT_GE(asked(), 4);
  EXPECT_GE(kernels(), 1);
}
INSTANTIATE_TEST_SUITE_P(Hopper, GroupMatrix, testing::ValuesIn(kForms),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lathe::test
