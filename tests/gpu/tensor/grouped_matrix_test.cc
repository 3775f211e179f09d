// The compile matrix of products of groups of rows on tensor cores: the best tiles of each type and layout, through the
// real compiler; the instructions in the cubin are those of the tile. Skipped where the compiler is not.
#include <gtest/gtest.h>

#include "search/cut/launch_cut.h"
#include "search/gpu/tensor/grouped_tensor.h"
#include "tests/gpu/counted_kernels.h"
#include "tests/gpu/emulated.h"
#include "tests/gpu/tensor/grouped_products.h"
#include "tests/gpu/tensor/tensor_opcodes.h"

namespace lathe::test {
namespace {

class GroupedMatrix : public CountedKernels<testing::TestWithParam<const char*>> {};

TEST_P(GroupedMatrix, CompilesAsPredicted) {
  struct Form {
    ir::DType type;
    bool turned;
    int64_t rows, n, k;
    size_t tiles;  // of the best
  };
  const Form forms[] = {{ir::DType::bf16, true, 4096, 2048, 1024, 2},
                        {ir::DType::f16, false, 4096, 2048, 1024, 1},
                        {ir::DType::bf16, true, 64, 2048, 1024, 1},
                        {ir::DType::bf16, false, 300, 77, 1023, 1}};
  const ir::GpuTarget target = *ir::find_gpu_target(GetParam());
  for (const Form& form : forms) {
    const search::GeneralKernel general =
        search::general_kernel(grouped_product(form.type, form.turned, 8, form.n, form.k));
    const auto tiles = search::grouped_tiles_of(general, sizes_of(general, {{"S", form.rows}}), target);
    ASSERT_TRUE(tiles.ok()) << tiles.status().to_string();
    for (size_t i = 0; i < form.tiles; ++i) {
      const search::TensorTile& t = (*tiles)[i];
      const auto made = search::grouped_tensor(general, t);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      const std::string what = to_text(made->schedule);
      const auto code = compiled(search::cut_launches(made->kernel)->leaves[1], target, what);
      const std::string wrong = code ? not_as_predicted(*code, t) : "";
      expect_predicted(wrong.empty(), wrong + "\n" + what);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Gpu, GroupedMatrix, testing::Values("a100", "h200"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lathe::test
