// What a candidate takes beside the real compiler: all that is done before its text is there, as a share of what NVRTC
// takes for it; and what two compilations at once take, of one. Both are recorded and not asserted: on a machine that
// does something else times say nothing. Skipped without NVRTC.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "ir/analysis/analysis.h"
#include "jit/cuda/lower/lower_device.h"
#include "jit/cuda/text/cuda_text.h"
#include "search/cut/launch_cut.h"
#include "search/cut/safe_kernel.h"
#include "search/gpu/choice/device_candidates.h"
#include "search/gpu/product_schedule.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/integers/quantised_kernels.h"
#include "tests/gpu/real_nvrtc.h"
#include "tests/gpu/rows.h"
#include "tests/gpu/tensor/tensor_products.h"

namespace lathe::test {
namespace {

using Clock = std::chrono::steady_clock;

struct Form {
  ir::Kernel kernel;
  ir::SymbolValues dims;
};
std::vector<Form> forms() {
  return {{kernel_of(kFlat), {{"N", 100000}}},
          {kernel_of(softmax_rows("4096")), {{"B", 1000}}},
          {kernel_of(kProduct), {{"M", 2048}, {"N", 2048}, {"K", 2048}}},
          {kernel_of(tensor_product("bf16", false, true)), {{"M", 4096}, {"N", 4096}, {"K", 4096}}},
          {kernel_of(tensor_product("bf16", false, true)), {{"M", 16}, {"N", 4096}, {"K", 4096}}},
          {quantised_product("q4_0", 4096, 4096, ir::DType::bf16), {{"M", 1}}},
          {quantised_product("q4_k", 4096, 4096, ir::DType::bf16), {{"M", 64}}}};
}

class CompileShare : public WithNvrtc<testing::Test> {
 protected:
  void SetUp() override {
    WithNvrtc::SetUp();
    if (nvrtc) nvrtc = jit::Nvrtc::open(real_nvrtc_path()).value();  // which compiles each time
  }
  static double since(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  }
  const ir::GpuTarget target = *ir::find_gpu_target("h200");
};

// From the text of a Schedule, as the worker gets it, to the text of its launches.
TEST_F(CompileShare, OwnTimeOfACandidate) {
  std::vector<double> shares;
  for (const Form& form : forms()) {
    const search::GeneralKernel general = search::general_kernel(form.kernel);
    ir::SymbolValues sizes;
    for (const auto& [name, size] : general.sizes) sizes.emplace_back(name, ir::evaluate(size, form.dims).value());
    const auto ranked = search::device_candidates(general, sizes, target, 3);
    ASSERT_TRUE(ranked.ok()) << ranked.status().to_string();
    for (const search::Scheduled& candidate : *ranked) {
      const std::string text = to_text(candidate.schedule);
      const Clock::time_point start = Clock::now();
      const auto made = search::replay_on_device(general, search::parse_schedule(text).value());
      ASSERT_TRUE(made.ok() && search::check_safe(general.kernel, made->kernel).ok());
      std::vector<jit::DeviceProgram> programs;
      const auto cut = search::cut_launches(made->kernel);
      ASSERT_TRUE(cut.ok());
      for (const ir::Leaf& leaf : cut->leaves) {
        programs.push_back(jit::lower_device(leaf).value());
        EXPECT_FALSE(jit::cuda_text(programs.back(), "lathe_leaf").empty());
      }
      const double own = since(start);
      const Clock::time_point compiling = Clock::now();
      for (const jit::DeviceProgram& p : programs) {
        const auto code = nvrtc->compile(p, "lathe_leaf", target);
        EXPECT_TRUE(code.ok()) << code.status().message() << "\n" << text;
      }
      shares.push_back(own / since(compiling));
    }
  }
  std::sort(shares.begin(), shares.end());
  RecordProperty("own_permille_of_nvrtc", static_cast<int>(1000 * shares[shares.size() / 2]));
}

// That nothing stands between two compilations, CompileService.TwoResolvesCompileAtOnce shows.
TEST_F(CompileShare, TwoAtOnce) {
  const search::GeneralKernel general = search::general_kernel(kernel_of(kProduct));
  const auto compile = [&](const search::ProductTile& tile) {
    const auto made = search::product_schedule(general, tile);
    const auto program = jit::lower_device(search::cut_launches(made->kernel)->leaves[0]);
    EXPECT_TRUE(nvrtc->compile(*program, "lathe_leaf", target).ok());
  };
  double one = HUGE_VAL, two = HUGE_VAL;
  for (int round = 0; round < 3; ++round) {
    const Clock::time_point first = Clock::now();
    compile({128, 128, 16, 8, 8});
    one = std::min(one, since(first));
    const Clock::time_point both = Clock::now();
    std::thread other([&] { compile({128, 128, 8, 8, 8}); });
    compile({128, 128, 16, 8, 8});
    other.join();
    two = std::min(two, since(both));
  }
  RecordProperty("two_permille_of_one", static_cast<int>(1000 * two / one));
}

}  // namespace
}  // namespace lathe::test
