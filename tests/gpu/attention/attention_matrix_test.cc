// The compile matrix of attention: types, depths, caches and pages, whole and by parts, for each architecture, through
// the real compiler. Skipped where the compiler is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/analysis/analysis.h"
#include "jit/cuda/compile/nvrtc.h"
#include "jit/cuda/lower/lower_device.h"
#include "search/cut/launch_cut.h"
#include "search/gpu/attention/attention_schedule.h"
#include "tests/gpu/attention/attention_kernels.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/real_nvrtc.h"

namespace lathe::test {
namespace {

class AttentionMatrix : public WithNvrtc<testing::TestWithParam<const char*>> {};

TEST_P(AttentionMatrix, CompilesWithoutSpills) {
  const AttentionText forms[] = {{"bf16", 32, 8, 128, 128},
                                 {"bf16", 32, 4, 128, 128, true, false, true},
                                 {"f16", 8, 1, 64, 64, true, true},
                                 {"bf16", 8, 8, 128, 128, true, false, true, true},
                                 {"bf16", 16, 1, 576, 512, true, false, true},
                                 {"f32", 12, 12, 80, 80}};
  int kernels = 0, spills = 0, warnings = 0, opcode_failures = 0;
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
        const auto program = jit::lower_device(leaf);
        ASSERT_TRUE(program.ok()) << program.status().to_string();
        const auto code = nvrtc->compile(*program, "lathe_leaf", target);
        ++kernels;
        const std::string what = std::string(GetParam()) + "\n" + to_text(made->schedule);
        EXPECT_TRUE(code.ok()) << code.status().message() << what;
        if (!code.ok()) {
          ++(code.status().message().find("spill") != std::string::npos ? spills : warnings);
          continue;
        }
        warnings += !code->log.empty();
        // Keys and values by 16 bytes.
        const bool first = &leaf == &cut->leaves[0];
        const bool as_predicted = code->info.local == 0 && (!first || code->info.loads.bits128 >= 2);
        opcode_failures += !as_predicted;
        EXPECT_TRUE(as_predicted) << code->info.loads.bits128 << " loads of 16 bytes\n" << what;
        EXPECT_EQ(code->log, "") << what;
      }
    }
  }
  EXPECT_GE(kernels, 15);
  RecordProperty("kernels", kernels);
  RecordProperty("spills", spills);
  RecordProperty("warnings", warnings);
  RecordProperty("opcode_failures", opcode_failures);
}
INSTANTIATE_TEST_SUITE_P(Gpu, AttentionMatrix, testing::Values("a100", "l40s", "h200", "rtx5090"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lathe::test
