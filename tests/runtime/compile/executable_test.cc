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

// What a call finds in its second operand.
struct Reader final : Executable {
  struct Bound final : BoundExecutable {
    Bound(std::vector<std::vector<float>>* seen, int64_t elements)
        : BoundExecutable(0), seen(seen), elements(elements) {}
    void run(void* const* params, void*, ThreadTeam*) const override {
      const auto* w = static_cast<const float*>(params[1]);
      seen->emplace_back(w, w + elements);
    }
    std::vector<std::vector<float>>* seen;
    int64_t elements;
  };
  Reader(std::vector<std::vector<float>>* seen, int64_t elements) : seen(seen), elements(elements) {}
  MemorySpace memory() const override { return MemorySpace::host; }
  ir::Result<std::unique_ptr<const BoundExecutable>> bind(const SymbolValues&, const std::vector<ArgLayout>&,
                                                          int) const override {
    return std::unique_ptr<const BoundExecutable>(std::make_unique<Bound>(seen, elements));
  }
  std::unique_ptr<Executable> copy() const override { return std::make_unique<Reader>(*this); }
  std::vector<std::vector<float>>* seen;
  int64_t elements;
};

TEST(Executable, ColdOperandsAreCopiesOfTheFirst) {
  for (const int64_t elements : {1, 17, 64, 1000, 1024, 1025, 5000, 70'000, 200'000}) {
    Stage stage;
    stage.naive = ir::parse_kernel(fmt::format("kernel scaled(x: f32[{0}] in, w: f32[{0}] const, y: f32[{0}] out)\n"
                                               "  for i < {0}:\n    y[i] = x[i] * w[i]\n",
                                               elements))
                      .value();
    std::vector<std::vector<float>> seen;
    stage.executable = std::make_unique<Reader>(&seen, elements);
    const RotatingOptions cold{{}, 1, true, elements > 5000 ? 3 << 20 : 100'000};
    const auto operands = std::move(RotatingOperands::create(stage.naive, cold, nullptr)).value();
    ASSERT_TRUE(operands->add(stage).ok());
    ASSERT_GT(operands->copies(), 2);
    for (int n = 0; n < operands->copies(); ++n) operands->call(0);
    for (const std::vector<float>& copy : seen) ASSERT_EQ(copy, seen.front()) << elements;
    if (elements > 64) {
      EXPECT_NE(*std::min_element(seen.front().begin(), seen.front().end()),
                *std::max_element(seen.front().begin(), seen.front().end()));
    }
  }
}

TEST(Executable, ACopyOfAStageOwnsItsOwn) {
  Twice t(MemorySpace::host);
  const Stage copy = t.stage;
  EXPECT_NE(&*copy.executable, &*std::as_const(t.stage).executable);
}

}  // namespace
}  // namespace lathe::runtime
