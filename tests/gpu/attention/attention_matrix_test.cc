// The compile matrix of attention: types, depths, caches and pages, whole and by parts, for each architecture, through
// the real compiler. Skipped where the compiler is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/analysis/analysis.h"
#include "search/cut/launch_cut.h"
#include "search/gpu/attention/attention_schedule.h"
#include "tests/gpu/attention/attention_kernels.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/counted_kernels.h"

namespace lathe::test {
namespace {

class AttentionMatrix : public CountedKernels<testing::TestWithParam<const char*>> {};

TEST_P(AttentionMatrix, CompilesWithoutSpills) {
  const AttentionText forms[] = {{"bf16", 32, 8, 128, 128},
                                 {"bf16", 32, 4, 128, 128, true, 0, true},
                                 {"f16", 8, 1, 64, 64, true, 9},
                                 {"bf16", 8, 8, 128, 128, true, 0, true, true},
                                 {"bf16", 16, 1, 576, 512, true, 0, true},
                                 {"f32", 12, 12, 80, 80}};
  const ir::GpuTarget target = *ir::find_gpu_target(GetParam());
  for (const AttentionText& form : forms) {
    const search::GeneralKernel general = search::general_kernel(kernel_of(attention_text(form)));
    for (const int64_t part : {0, 512}) {
      if (form.window && part > 0) continue;
      const auto made = search::attention_schedule(general, part);
      ASSERT_TRUE(made.ok()) << made.status().to_string() << "\n" << attention_text(form) << part;
      const auto cut = search::cut_launches(made->kernel);
      ASSERT_TRUE(cut.ok()) << cut.status().to_string();
      for (const ir::Leaf& leaf : cut->leaves) {
        const std::string what = to_text(made->schedule);
        const auto code = compiled(leaf, target, what);
        // Keys and values by 16 bytes.
        if (code && &leaf == &cut->leaves[0])
          expect_predicted(code->loads.bits128 >= 2,
                           fmt::format("{} loads of 16 bytes\n{}", code->loads.bits128, what));
      }
    }
  }
  EXPECT_GE(kernels(), 15);
}
INSTANTIATE_TEST_SUITE_P(Gpu, AttentionMatrix, testing::Values("a100", "l40s", "h200", "rtx5090"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lathe::test
