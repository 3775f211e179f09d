// The defaults of models' layers for an H100, by the real compiler: none is refused, so that nothing slower serves in
// its place, or nothing at all. Skipped without the compiler.
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "ir/core/text_form.h"
#include "runtime/cuda/device_stage.h"
#include "runtime/serve/operator.h"
#include "tests/common/workload_rows.h"
#include "tests/gpu/real_nvrtc.h"

namespace lathe::runtime {
namespace {

class DeviceDefaults : public test::WithNvrtc<testing::TestWithParam<const char*>> {};

TEST_P(DeviceDefaults, AreNotRefused) {
  const ir::GpuTarget target = *ir::find_gpu_target("h100");
  const std::shared_ptr<Context> context = Context::create({}).value();
  DevicePolicy policy;
  policy.compile = true;
  Stats stats;
  DeviceCodes codes(LATHE_KEPT_NVRTC, nullptr, &stats);
  std::set<std::string> seen;
  for (const ops::Workload& item : test::workload_rows(GetParam())) {
    const std::shared_ptr<Operator> op = Operator::create(context, ops::finish(item.graph).value()).value();
    for (const ops::LoweredKernel& k : op->lowered().kernels) {
      for (const SymbolValues& dims : op->hinted_dims()) {
        std::string form = ir::print(k.kernel);
        for (const auto& [name, value] : dims) form += fmt::format(" {}={}", name, value);
        if (!seen.insert(form).second) continue;
        const auto plan = plan_on_device(k.kernel, dims, nullptr, target, codes, policy);
        EXPECT_TRUE(plan.ok()) << item.name << form.substr(form.rfind('\n')) << ": " << plan.status().to_string();
        const auto ranked = rank_on_device(k.kernel, dims, target, 1);
        if (!plan.ok() || !ranked.ok()) continue;
        EXPECT_EQ(ir::print(plan->scheduled.kernel), ir::print(ranked->front().kernel))
            << item.name << form.substr(form.rfind('\n')) << ": the default is refused";
      }
    }
  }
  EXPECT_FALSE(seen.empty());
}

// Of products whose second factor lies as it is written, each of them once ended the compiler and the process with it.
class DeviceNarrow : public test::WithNvrtc<testing::Test> {};

TEST_F(DeviceNarrow, ProductsCompile) {
  DevicePolicy policy;
  policy.compile = true;
  Stats stats;
  DeviceCodes codes(LATHE_KEPT_NVRTC, nullptr, &stats);
  for (const auto& [gpu, m, n, k] :
       {std::tuple{"h100", 7, 40, 256}, {"l40s", 8, 1024, 4096}, {"a100", 64, 1024, 512}}) {
    const std::string text = fmt::format(
        "kernel product(a: bf16[{0}, {2}] in, b: bf16[{2}, {1}] in, y: bf16[{0}, {1}] out) family matmul\n"
        "  c: f32[{0}, {1}] heap\n"
        "  for m < {0} [m]:\n    for n < {1} [n]:\n      c[m, n] = 0.0\n      for k < {2} [k]:\n"
        "        c[m, n] += f32(a[m, k]) * f32(b[k, n])\n      y[m, n] = bf16(c[m, n])\n",
        m, n, k);
    const auto plan =
        plan_on_device(ir::parse_kernel(text).value(), {}, nullptr, *ir::find_gpu_target(gpu), codes, policy);
    EXPECT_TRUE(plan.ok()) << gpu << ": " << plan.status().to_string();
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, DeviceDefaults, testing::Values("llama3-8b-layer-q4_k_m", "llama3-8b-layer-bf16"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '-' || c == '.' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace lathe::runtime
