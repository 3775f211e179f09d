// Stages run whatever Executable they hold: one that is no CPU nest, in host memory and not.
#include "runtime/compile/executable.h"

#include <gtest/gtest.h>

#include "ir/core/text_form.h"
#include "runtime/compile/compiler.h"
#include "runtime/measure/rotating_operands.h"
#include "runtime/oracle/oracle.h"

namespace lathe::runtime {
namespace {

constexpr const char* kTwice =
    "kernel twice(x: f32[8, 40] in, y: f32[8, 40] out) family elementwise\n"
    "  for i < 8 [row]:\n    for j < 40 [col]:\n      y[i, j] = x[i, j] + x[i, j]\n";

// The same by a loop of its own.
struct Loop final : Executable {
  explicit Loop(MemorySpace where) : place(where) {}
  struct Bound final : BoundExecutable {
    Bound() : BoundExecutable(128) {}
    void run(void* const* params, void* workspace, ThreadTeam*) const override {
      EXPECT_NE(workspace, nullptr);
      for (int i = 0; i < 320; ++i) static_cast<float*>(params[1])[i] = 2 * static_cast<const float*>(params[0])[i];
    }
  };
  MemorySpace memory() const override { return place; }
  ir::Result<std::unique_ptr<const BoundExecutable>> bind(const SymbolValues&, const std::vector<ArgLayout>&,
                                                          int) const override {
    return std::unique_ptr<const BoundExecutable>(std::make_unique<Bound>());
  }
  std::unique_ptr<Executable> copy() const override { return std::make_unique<Loop>(*this); }
  MemorySpace place;
};

struct Twice {
  explicit Twice(MemorySpace memory) : cache({}, nullptr, nullptr) {
    naive = ir::parse_kernel(kTwice).value();
    stage.naive = naive;
    stage.executable = std::make_unique<Loop>(memory);
  }
  LeafCache cache;
  ir::Kernel naive;
  Stage stage;
};

TEST(Executable, AnotherThanTheNestIsTimed) {
  const Twice t(MemorySpace::host);
  EXPECT_EQ(t.stage.executable->cpu_nest(), nullptr);
  const auto operands = std::move(RotatingOperands::create(t.naive, {{}, 1, false, 1 << 16}, nullptr)).value();
  ASSERT_TRUE(operands->add(t.stage).ok());
  operands->call(0);
}

TEST(Executable, AnotherThanTheNestIsVerified) {
  const Twice t(MemorySpace::host);
  const auto oracle = std::move(Oracle::create({t.naive, {}, 1, 7, 300'000}, nullptr)).value();
  const ir::Result<Verdict> v = oracle->verify(t.stage);
  ASSERT_TRUE(v.ok()) << v.status().to_string();
  EXPECT_TRUE(v->ok) << v->reason;
}

TEST(Executable, OperandsThatThisProcessCannotReachAreRefused) {
  const Twice t(MemorySpace::device);
  const auto operands = std::move(RotatingOperands::create(t.naive, {{}, 1, false, 1 << 16}, nullptr)).value();
  const ir::Status timed = operands->add(t.stage).status();
  EXPECT_EQ(timed.code(), ir::Code::kUNSUPPORTED);
  EXPECT_NE(timed.message().find("timing: operands in device memory, expected host memory"), std::string::npos)
      << timed.to_string();
  const auto oracle = std::move(Oracle::create({t.naive, {}, 1, 7, 300'000}, nullptr)).value();
  const ir::Status verified = oracle->verify(t.stage).status();
  EXPECT_EQ(verified.code(), ir::Code::kUNSUPPORTED);
  EXPECT_NE(verified.message().find("verification: operands in device memory"), std::string::npos)
      << verified.to_string();
}

TEST(Executable, ACopyOfAStageOwnsItsOwn) {
  Twice t(MemorySpace::host);
  const Stage copy = t.stage;
  EXPECT_NE(&*copy.executable, &*std::as_const(t.stage).executable);
}

}  // namespace
}  // namespace lathe::runtime
