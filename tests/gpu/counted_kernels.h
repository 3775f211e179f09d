// Compile matrices: kernels by the real compiler, none of which may spill, warn or touch local memory. What was done is
// recorded for scripts/gpu.sh. Skipped without the compiler.
#pragma once
#include <optional>
#include <string>
#include <utility>

#include "ir/base/gpu_target.h"
#include "ir/nest.h"
#include "jit/cuda/lower/lower_device.h"
#include "tests/gpu/real_nvrtc.h"

namespace lathe::test {

template <class Test>
class CountedKernels : public WithNvrtc<Test> {
 protected:
  // What a cubin has; null where there is none, which is a failure. what: told of failures.
  std::optional<jit::CubinInfo> compiled(const ir::Leaf& leaf, const ir::GpuTarget& target, const std::string& what) {
    const auto program = jit::lower_device(leaf);
    EXPECT_TRUE(program.ok()) << program.status().to_string() << "\n" << leaf.text;
    return program.ok() ? compiled(*program, target, what) : std::nullopt;
  }
  std::optional<jit::CubinInfo> compiled(const jit::DeviceProgram& program, const ir::GpuTarget& target,
                                         const std::string& what) {
    const auto code = this->nvrtc->compile(program, "lathe_leaf", target);
    const std::string where = std::string(target.name) + "\n" + what;
    ++kernels_;
    EXPECT_TRUE(code.ok()) << code.status().message() << where;
    if (!code.ok()) {
      ++(code.status().message().find("spill") != std::string::npos ? spills_ : warnings_);
      return std::nullopt;
    }
    warnings_ += !code->log.empty();
    EXPECT_EQ(code->log, "") << where;
    expect_predicted(code->info.local == 0 && code->info.sm == target.sm,
                     "local memory, or another architecture\n" + where);
    return code->info;
  }
  void expect_predicted(bool as_predicted, const std::string& what) {
    EXPECT_TRUE(as_predicted) << what;
    opcode_failures_ += !as_predicted;
  }
  int kernels() const { return kernels_; }
  void TearDown() override {
    Test::RecordProperty("kernels", kernels_);
    Test::RecordProperty("spills", spills_);
    Test::RecordProperty("warnings", warnings_);
    Test::RecordProperty("opcode_failures", opcode_failures_);
  }

 private:
  int kernels_ = 0, spills_ = 0, warnings_ = 0, opcode_failures_ = 0;
};

}  // namespace lathe::test
