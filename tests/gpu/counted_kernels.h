// Compile matrices: kernels by the real compiler, none of which may spill, warn or touch local memory. What was done is
// recorded for scripts/gpu.sh. Skipped without the compiler.
#pragma once
#include <cstdlib>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "ir/base/gpu_target.h"
#include "ir/nest.h"
#include "jit/cuda/lower/lower_device.h"
#include "tests/gpu/real_nvrtc.h"

namespace lathe::test {

template <class Test>
class CountedKernels : public WithNvrtc<Test> {
 protected:
  // Whether the next form is compiled for this GPU. All of them for every GPU take minutes, which LATHE_TEST_MATRIX=all
  // asks for, as scripts/gpu.sh --static does. Else each has one GPU in turn.
  bool in_turn(std::string_view gpu) {
    constexpr std::string_view kTurns[] = {"h200", "a100", "l40s", "h200", "rtx5090", "a100", "h200", "a100"};
    return of_all(gpu == kTurns[static_cast<size_t>(forms_) % std::size(kTurns)]);
  }
  // As above, where all forms are of one GPU: each third one.
  bool in_turn() { return of_all(forms_ % 3 == 0); }
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
  int asked() const { return forms_; }  // forms, in turn or not
  void TearDown() override {
    Test::RecordProperty("kernels", kernels_);
    Test::RecordProperty("spills", spills_);
    Test::RecordProperty("warnings", warnings_);
    Test::RecordProperty("opcode_failures", opcode_failures_);
  }

 private:
  bool of_all(bool chosen) {
    ++forms_;
    const char* named = std::getenv("LATHE_TEST_MATRIX");
    return chosen || (named != nullptr && std::string_view(named) == "all");
  }

  int forms_ = 0, kernels_ = 0, spills_ = 0, warnings_ = 0, opcode_failures_ = 0;
};

}  // namespace lathe::test
