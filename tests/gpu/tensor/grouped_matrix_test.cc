// The compile matrix of products of groups of rows on tensor cores: the best tiles of each type and layout, through the
// real compiler; the instructions in the cubin are those of the tile. Skipped where the compiler is not.
#include <gtest/gtest.h>

#include "jit/cuda/compile/nvrtc.h"
#include "jit/cuda/lower/lower_device.h"
#include "search/cut/launch_cut.h"
#include "search/gpu/tensor/grouped_tensor.h"
#include "tests/gpu/emulated.h"
#include "tests/gpu/real_nvrtc.h"
#include "tests/gpu/tensor/grouped_products.h"
#include "tests/gpu/tensor/tensor_opcodes.h"

namespace lathe::test {
namespace {

class GroupedMatrix : public WithNvrtc<testing::TestWithParam<const char*>> {};

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
  int kernels = 0, spills = 0, warnings = 0, opcode_failures = 0;
  const ir::GpuTarget target = *ir::find_gpu_target(GetParam());
  jit::CompileLimits patient;  // other tests may run beside this one
  patient.most_ms = 60'000;
  for (const Form& form : forms) {
    const search::GeneralKernel general =
        search::general_kernel(grouped_product(form.type, form.turned, 8, form.n, form.k));
    const auto tiles = search::grouped_tiles_of(general, sizes_of(general, {{"S", form.rows}}), target);
    ASSERT_TRUE(tiles.ok()) << tiles.status().to_string();
    for (size_t i = 0; i < form.tiles; ++i) {
      const search::TensorTile& t = (*tiles)[i];
      const auto made = search::grouped_tensor(general, t);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      const auto program = jit::lower_device(search::cut_launches(made->kernel)->leaves[1]);
      ASSERT_TRUE(program.ok()) << program.status().to_string();
      const auto code = nvrtc->compile(*program, "lathe_leaf", target, patient);
      ++kernels;
      const std::string what = std::string(GetParam()) + "\n" + to_text(made->schedule);
      EXPECT_TRUE(code.ok()) << code.status().message() << what;
      if (!code.ok()) {
        ++(code.status().message().find("spill") != std::string::npos ? spills : warnings);
        continue;
      }
      EXPECT_EQ(code->log, "") << what;
      warnings += !code->log.empty();
      const std::string wrong = not_as_predicted(code->info, t);
      EXPECT_EQ(wrong, "") << what;
      opcode_failures += wrong.empty() ? 0 : 1;
    }
  }
  RecordProperty("kernels", kernels);
  RecordProperty("spills", spills);
  RecordProperty("warnings", warnings);
  RecordProperty("opcode_failures", opcode_failures);
}
INSTANTIATE_TEST_SUITE_P(Gpu, GroupedMatrix, testing::Values("a100", "h200"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lathe::test
