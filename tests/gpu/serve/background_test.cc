// What a resolve that does not wait misses on a GPU is compiled behind it, on the one thread that the host allows, and
// serves at a later call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/gpu/served_chain.h"

namespace lathe::test {
namespace {

using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

Owned<lathe_context> context_with_thread(int32_t background_threads) {
  (void)gpu_context();  // the environment
  lathe_context_options o = LATHE_CONTEXT_OPTIONS_INIT;
  o.background_threads = background_threads;
  lathe_context* out = nullptr;
  lathe_error e;
  EXPECT_EQ(lathe_context_create(&o, &out, &e), LATHE_STATUS_OK) << e.message;
  return Owned<lathe_context>(out);
}

// Until the resolve says something else than MISS, or a minute has passed.
lathe_status resolve_soon(lathe_context* ctx, const lathe_graph* graph, Owned<lathe_kernel>& kernel, lathe_error* e) {
  const Clock::time_point start = Clock::now();
  lathe_status status = LATHE_STATUS_MISS;
  while (status == LATHE_STATUS_MISS && Clock::now() - start < std::chrono::minutes(1)) {
    status = resolve_on(ctx, graph, LATHE_WAIT_NOW, kernel, nullptr, e);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return status;
}

class Background : public DeviceServe {};

TEST_F(Background, WhatIsMissedServesSoon) {
  const auto ctx = context_with_thread(1);
  const auto graph = unary_graph(ctx.get(), "tanh", {range("N", 1, 4096)});
  Owned<lathe_kernel> kernel;
  lathe_error e;
  const int before = fake_compiler().compiles;
  EXPECT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_NOW, kernel, nullptr, &e), LATHE_STATUS_MISS);
  ASSERT_EQ(resolve_soon(ctx.get(), graph.get(), kernel, &e), LATHE_STATUS_OK) << e.message;
  expect_as_cpu(ctx.get(), graph.get(), kernel.get(), {{405}}, {405}, 3);
  EXPECT_EQ(counter(ctx.get(), "compiled_behind"), 1u);
  EXPECT_EQ(counter(ctx.get(), "compiled_nvrtc"), 1u);
  EXPECT_EQ(fake_compiler().compiles, before + 1) << "many misses, one compilation";
}

TEST_F(Background, NotWithoutLeave) {
  for (const int32_t threads : {-1, 0}) {  // none; as many as tuning has, which is off
    const auto ctx = context_with_thread(threads);
    const auto graph = unary_graph(ctx.get(), "tanh", {range("N", 1, 4096)});
    Owned<lathe_kernel> kernel;
    lathe_error e;
    const int before = fake_compiler().compiles;
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_NOW, kernel, nullptr, &e), LATHE_STATUS_MISS);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_EQ(fake_compiler().compiles, before);
  }
}

// Nor is anything compiled behind one that asked for what is stored, or behind a seal.
TEST_F(Background, NotForStoredNorSealed) {
  const auto ctx = context_with_thread(1);
  const auto graph = unary_graph(ctx.get(), "floor", {range("N", 1, 4096)});
  Owned<lathe_kernel> kernel;
  lathe_error e;
  const int before = fake_compiler().compiles;
  EXPECT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_STORED, kernel, nullptr, &e), LATHE_STATUS_MISS);
  ASSERT_EQ(lathe_seal(ctx.get(), LATHE_SEAL_FALLBACK, &e), LATHE_STATUS_OK);
  EXPECT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_NOW, kernel, nullptr, &e), LATHE_STATUS_MISS);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(fake_compiler().compiles, before);
}

// It is not tried again and again: the miss says why.
TEST_F(Background, WhatCannotBeCompiledIsSaid) {
  const auto ctx = context_with_thread(1);
  const auto graph = unary_graph(ctx.get(), "exp", {range("N", 1, 4096)});
  Owned<lathe_kernel> kernel;
  lathe_error e;
  const int before = fake_compiler().compiles;
  std::strcpy(fake_compiler().log, "ptxas info    : (C7510) Potential Performance Loss\n");
  std::string said;
  for (const Clock::time_point start = Clock::now();
       said.find("C7510") == std::string::npos && Clock::now() - start < std::chrono::minutes(1);) {
    EXPECT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_NOW, kernel, nullptr, &e), LATHE_STATUS_MISS);
    said = e.message;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  fake_compiler().log[0] = 0;
  EXPECT_THAT(said, HasSubstr("its matrix products wait for each other"));
  EXPECT_EQ(fake_compiler().compiles, before + 4) << "of four Schedules; sparing registers would not help";
  EXPECT_EQ(counter(ctx.get(), "compiled_behind"), 0u);
}

// The little time that a caller has is not the compiler's.
TEST_F(Background, ACallersDeadlineIsNotTheCompilations) {
  const auto ctx = context_with_thread(1);
  const auto graph = unary_graph(ctx.get(), "tanh", {range("N", 1, 4096)});
  lathe_policy policy = LATHE_POLICY_INIT;
  policy.wait = LATHE_WAIT_NOW;
  policy.device = 1;
  policy.deadline_ns = 1'000'000;
  lathe_kernel* missed = nullptr;
  lathe_error e;
  fake_compiler().delay_ms = 200;
  EXPECT_EQ(lathe_resolve(ctx.get(), graph.get(), &policy, &missed, nullptr, &e), LATHE_STATUS_MISS) << e.message;
  Owned<lathe_kernel> kernel;
  EXPECT_EQ(resolve_soon(ctx.get(), graph.get(), kernel, &e), LATHE_STATUS_OK) << e.message;
  fake_compiler().delay_ms = 0;
}

// A context that goes ends what is compiled behind it.
TEST_F(Background, EndsWithTheContext) {
  const Clock::time_point start = Clock::now();
  fake_compiler().delay_ms = 60'000;
  {
    const auto ctx = context_with_thread(1);
    const auto graph = unary_graph(ctx.get(), "sqrt", {range("N", 1, 4096)});
    Owned<lathe_kernel> kernel;
    lathe_error e;
    EXPECT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_NOW, kernel, nullptr, &e), LATHE_STATUS_MISS);
    while (fake_compiler().running == 0 && Clock::now() - start < std::chrono::seconds(30))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(fake_compiler().running, 1);
  }
  fake_compiler().delay_ms = 0;
  EXPECT_EQ(fake_compiler().running, 0);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(40));
}

}  // namespace
}  // namespace lathe::test
