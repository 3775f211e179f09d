// The compile service: every reason in a log that refuses a kernel, deadlines, cancelling, and that two compilations
// run at once. The compiler is the fake one, but for a test of the real one's callback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "jit/cuda/compile/nvidia_packages.h"
#include "jit/cuda/compile/nvrtc.h"
#include "jit/cuda/text/cuda_text.h"
#include "tests/gpu/fake_gpu.h"
#include "tests/gpu/real_nvrtc.h"
#include "tests/gpu/served_chain.h"
#include "tests/gpu/temp_store.h"

namespace lathe::test {
namespace {

using ::testing::HasSubstr;

// A planted state of the compiler, as long as it lives.
struct Planted {
  FakeNvrtc& state = fake_compiler();
  ~Planted() {
    state.delay_ms = 0;
    state.wait_for = 0;
    state.most_at_once = 0;
    state.log[0] = 0;
    state.spills = false;
    state.faults = 0;
    state.major = 12;
    state.minor = 9;
  }
};

TEST(CompileLog, EveryReasonIsFoundInWordsOfTheCompiler) {
  struct Case {
    const char* log;
    jit::CompileFault fault;
    const char* says;
  };
  const Case cases[] = {
      {"    0 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads\n", jit::CompileFault::k_spill_stores,
       "registers are spilled (the compiler reports bytes spill stores)"},
      {"    0 bytes stack frame, 0 bytes spill stores, 12 bytes spill loads\n", jit::CompileFault::k_spill_loads,
       "bytes spill loads"},
      {"    256 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n", jit::CompileFault::k_stack_frame,
       "it has a stack frame"},
      {"ptxas info    : (C7504) call in f\n", jit::CompileFault::k_external_call, "C7504"},
      {"ptxas info    : (C7509) Potential Performance Loss: wgmma.mma_async\n", jit::CompileFault::k_indirect_call,
       "C7509"},
      {"ptxas info    : (C7508) setmaxnreg ignored\n", jit::CompileFault::k_register_split,
       "its split of registers among warps is ignored"},
      {"ptxas info    : (C7510) Potential Performance Loss\n", jit::CompileFault::k_serial_wgmma, "C7510"},
      {"ptxas info    : (C7511) Potential Performance Loss\n", jit::CompileFault::k_serial_wgmma_calls, "C7511"},
      {"ptxas info    : (C7512) Potential Performance Loss\n", jit::CompileFault::k_serial_wgmma_flow, "C7512"},
      {"ptxas info    : (C7519) Potential Performance Loss\n", jit::CompileFault::k_injected_arrive, "C7519"},
      {"ptxas info    : (C7577) something new\n", jit::CompileFault::k_other_note,
       "the compiler gave something up (the compiler reports C7577)"}};
  constexpr int kRows = 0
#define LATHE_COMPILE_FAULT(id, counted, words, meaning) +1
#include "jit/cuda/compile/compile_faults.def"
#undef LATHE_COMPILE_FAULT
      ;
  EXPECT_EQ(std::size(cases), size_t{kRows}) << "a case for each row";
  for (const Case& c : cases) {
    EXPECT_EQ(jit::find_fault(c.log), c.fault) << c.log;
    EXPECT_THAT(jit::fault_of({.sm = 90}, c.log), HasSubstr(c.says));
  }
  const char kClean[] =
      "ptxas info    : Compiling entry function 'f' for 'sm_90a'\n"
      "    0 bytes stack frame, 0 bytes spill stores, 00 bytes spill loads\nptxas info    : Used 25 registers\n";
  EXPECT_EQ(jit::fault_of({.sm = 90, .registers = 25}, kClean), "");
  EXPECT_EQ(jit::what_matters(kClean), "");
  EXPECT_EQ(jit::what_matters(std::string(kClean) + "f.cu(3): warning\n"), "f.cu(3): warning\n");
  EXPECT_EQ(jit::fault_of({.local = 3}, ""), "3 accesses of local memory");
  EXPECT_EQ(jit::fault_of({.frame_bytes = 8}, ""), "a stack frame of 8 bytes");
}

// What the log says refuses a kernel, and it is counted.
TEST(CompileService, AFaultInTheLogRefusesTheKernel) {
  const auto ctx = gpu_context();
  const auto graph = unary_graph(ctx.get(), "exp", {range("N", 1, 4096)});
  Owned<lathe_kernel> kernel;
  lathe_error e;
  {
    Planted planted;
    std::strcpy(planted.state.log, "    0 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads\n");
    EXPECT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_TUNED, kernel, nullptr, &e), LATHE_STATUS_UNSUPPORTED);
    EXPECT_THAT(std::string(e.message), HasSubstr("registers are spilled (the compiler reports bytes spill stores)"));
  }
  EXPECT_EQ(counter(ctx.get(), "refusals"), 4u) << "of the default and of the next three";
  EXPECT_EQ(counter(ctx.get(), "compiled_nvrtc"), 0u);
  EXPECT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_TUNED, kernel, nullptr, &e), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(counter(ctx.get(), "compiled_nvrtc"), 1u);
}

// Where registers are spilled they are spared once more, before a kernel is refused.
TEST(CompileService, AKernelThatSpillsIsCompiledSparingRegisters) {
  const auto ctx = gpu_context();
  const auto graph = unary_graph(ctx.get(), "log", {range("N", 1, 4096)});
  Planted planted;
  planted.state.spills = true;
  const int before = planted.state.compiles;
  Owned<lathe_kernel> kernel;
  lathe_error e;
  EXPECT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_TUNED, kernel, nullptr, &e), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(planted.state.compiles, before + 2);
  EXPECT_EQ(counter(ctx.get(), "refusals"), 0u);
}

// Where the default is refused, the next Schedule by rank serves; with none left, the message is of the default.
TEST(CompileService, WhereTheDefaultIsRefusedTheNextOneServes) {
  const auto ctx = gpu_context();
  const auto graph = unary_graph(ctx.get(), "silu", {range("N", 1, 4096)});
  Planted planted;
  planted.state.faults = 2;  // of the default, also where registers are spared
  Owned<lathe_kernel> kernel;
  lathe_error e;
  EXPECT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_TUNED, kernel, nullptr, &e), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(counter(ctx.get(), "refusals"), 1u);
  EXPECT_EQ(counter(ctx.get(), "compiled_nvrtc"), 1u);
}

// Who may not compile, or has no compiler, finds its code in the store, and that of the default is not there.
TEST(CompileService, WhatServedInTheDefaultsPlaceIsFoundInTheStore) {
  const TempStore store;
  {
    const auto ctx = gpu_context(store.path);
    const auto graph = unary_graph(ctx.get(), "silu", {range("N", 1, 4096)});
    Planted planted;
    planted.state.faults = 2;
    Owned<lathe_kernel> kernel;
    lathe_error e;
    ASSERT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_TUNED, kernel, nullptr, &e), LATHE_STATUS_OK) << e.message;
  }
  for (const bool compiler : {true, false}) {
    const auto ctx = gpu_context(store.path, compiler ? LATHE_FAKE_NVRTC : "/nowhere/libnvrtc.so");
    const auto graph = unary_graph(ctx.get(), "silu", {range("N", 1, 4096)});
    for (const uint32_t wait :
         compiler ? std::vector<uint32_t>{LATHE_WAIT_NOW} : std::vector<uint32_t>{LATHE_WAIT_NOW, LATHE_WAIT_TUNED}) {
      Owned<lathe_kernel> kernel;
      lathe_error e;
      EXPECT_EQ(resolve_on(ctx.get(), graph.get(), wait, kernel, nullptr, &e), LATHE_STATUS_OK) << e.message;
    }
    EXPECT_EQ(counter(ctx.get(), "compiled_nvrtc"), 0u);
  }
}

// Each waits until the other runs: a lock between them would end this after the compiler's patience, with one at once.
TEST(CompileService, TwoResolvesCompileAtOnce) {
  const auto ctx = gpu_context();
  Planted planted;
  planted.state.wait_for = 2;
  std::vector<std::thread> threads;
  for (const char* op : {"tanh", "floor"}) {
    threads.emplace_back([&ctx, op] {
      const auto graph = unary_graph(ctx.get(), op, {range("N", 1, 4096)});
      Owned<lathe_kernel> kernel;
      lathe_error e;
      EXPECT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_TUNED, kernel, nullptr, &e), LATHE_STATUS_OK)
          << e.message;
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(planted.state.most_at_once, 2);
  EXPECT_EQ(counter(ctx.get(), "compiled_nvrtc"), 2u);
}

TEST(CompileService, TheDeadlineEndsACompilation) {
  const auto ctx = gpu_context();
  const auto graph = unary_graph(ctx.get(), "sqrt", {range("N", 1, 4096)});
  Planted planted;
  planted.state.delay_ms = 60'000;
  lathe_policy policy = LATHE_POLICY_INIT;
  policy.wait = LATHE_WAIT_TUNED;
  policy.device = 1;
  policy.deadline_ns = 20'000'000;
  lathe_kernel* kernel = nullptr;
  lathe_error e;
  EXPECT_EQ(lathe_resolve(ctx.get(), graph.get(), &policy, &kernel, nullptr, &e), LATHE_STATUS_TIMEOUT);
  EXPECT_THAT(std::string(e.message), HasSubstr("ms of compiling were not enough"));
  EXPECT_EQ(counter(ctx.get(), "compiles_ended"), 1u);
  planted.state.delay_ms = 0;
  policy.deadline_ns = 0;
  EXPECT_EQ(lathe_resolve(ctx.get(), graph.get(), &policy, &kernel, nullptr, &e), LATHE_STATUS_OK) << e.message;
  lathe_kernel_destroy(kernel);
}

// A compiler that is slow, as on a busy machine, has the time that the caller has.
TEST(CompileService, ACallerWhoWaitsLongerHasWhatIsSlow) {
  using Clock = std::chrono::steady_clock;
  const auto ctx = gpu_context();
  Planted planted;
  planted.state.delay_ms = 5500;
  const Clock::time_point start = Clock::now();
  std::vector<std::thread> threads;
  // None, one that suffices, and one that does not.
  for (const uint64_t seconds : {0, 50, 1}) {
    threads.emplace_back([&ctx, seconds] {
      const auto graph = unary_graph(ctx.get(),
                                     seconds == 0   ? "exp"
                                     : seconds == 1 ? "abs"
                                                    : "neg",
                                     {range("N", 1, 4096)});
      lathe_policy policy = LATHE_POLICY_INIT;
      policy.wait = LATHE_WAIT_TUNED;
      policy.device = 1;
      policy.deadline_ns = seconds * 1'000'000'000;
      lathe_kernel* kernel = nullptr;
      lathe_error e;
      EXPECT_EQ(lathe_resolve(ctx.get(), graph.get(), &policy, &kernel, nullptr, &e),
                seconds == 1 ? LATHE_STATUS_TIMEOUT : LATHE_STATUS_OK)
          << seconds << e.message;
      lathe_kernel_destroy(kernel);
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(5500));
  EXPECT_EQ(counter(ctx.get(), "compiles_ended"), 1u);
}

TEST(CompileService, ANewerToolkitThanTheDriverIsRefused) {
  const auto ctx = gpu_context();
  const auto graph = unary_graph(ctx.get(), "log", {range("N", 1, 4096)});
  Owned<lathe_kernel> kernel;
  lathe_error e;
  const std::pair<int, int> versions[] = {{13, 0}, {12, 2}, {11, 8}};
  const char* const says[] = {"nvrtc 13.0 makes code for drivers of CUDA 13, the driver is of CUDA 12.4",
                              "NVRTC 12.2, expected at least 12.3", "NVRTC 11.8, expected at least 12.3"};
  for (size_t i = 0; i < std::size(versions); ++i) {
    Planted planted;
    std::tie(planted.state.major, planted.state.minor) = versions[i];
    const auto fresh = gpu_context();
    const auto again = unary_graph(fresh.get(), "log", {range("N", 1, 4096)});
    EXPECT_EQ(resolve_on(fresh.get(), again.get(), LATHE_WAIT_TUNED, kernel, nullptr, &e), LATHE_STATUS_UNSUPPORTED);
    EXPECT_THAT(std::string(e.message), HasSubstr(says[i] + std::string("; " LATHE_FAKE_NVRTC)));
    EXPECT_EQ(std::string(e.arg_name), "policy.device");
    EXPECT_NE(resolve(fresh.get(), again.get()), nullptr) << "the CPU notices nothing";
  }
}

// Beside each other there are a newer one and one of the driver's major: that serves. The newest is tried first.
TEST(CompileService, TheOneOfTheDriversMajorIsFound) {
  const TempStore folder;
  std::filesystem::create_directories(folder.path / "lib64");
  for (const int major : {13, 12}) {
    const std::string file = folder.path / "lib64" / ("libnvrtc.so." + std::to_string(major));
    std::filesystem::copy_file(LATHE_FAKE_NVRTC, file);
    void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    reinterpret_cast<FakeNvrtc* (*)()>(dlsym(library, "fake_nvrtc"))()->major = major;
  }
  setenv("CUDA_PATH", folder.path.c_str(), 1);
  const auto any = jit::Nvrtc::open(""), older = jit::Nvrtc::open("", 12);
  unsetenv("CUDA_PATH");
  ASSERT_TRUE(any.ok() && older.ok());
  EXPECT_EQ((*older)->major(), 12);
  EXPECT_GE((*any)->major(), 12);  // the first that this machine or this process has
}

// Where an environment of Python has it.
TEST(CompileService, PackagesOfPythonAreFound) {
  const TempStore folder;
  for (const char* version : {"python3.9", "python3.11"})
    std::filesystem::create_directories(folder.path / "lib" / version / "site-packages/nvidia");
  std::filesystem::create_directories(folder.path / "lib/perl/site-packages/nvidia");
  const auto found = jit::nvidia_packages([&](const char* name) {
    return std::string_view(name) == "VIRTUAL_ENV" ? std::optional<std::string>(folder.path) : std::nullopt;
  });
  ASSERT_GE(found.size(), 2u);
  EXPECT_EQ(found[0], folder.path / "lib/python3.9/site-packages/nvidia");
  EXPECT_EQ(found[1], folder.path / "lib/python3.11/site-packages/nvidia");
}

// The real compiler asks the callback, and ends at once.
TEST(RealCompilerCallback, EndsACompilation) {
  const auto nvrtc = jit::Nvrtc::open(real_nvrtc_path());
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().message() << "; scripts/setup_gpu.sh fetches it";
  if (!(*nvrtc)->can_cancel()) GTEST_SKIP() << (*nvrtc)->version() << " does not ask a callback";
  const std::string text = std::string("#include \"") + jit::kPreludeName + "\"\nstruct lt_args { float* p; };\n" +
                           "LT_KERNEL(f, 32, 1, lt_args, a) { a.p[lt_thread()] = 1; }\n";
  const auto compile = [&](const jit::CompileLimits& limits) {
    return (*nvrtc)->compile(text, "f", ir::find_gpu_target("h200").value(), limits).status().code();
  };
  int asked = 0;
  EXPECT_EQ(compile({.cancelled = [&] { return ++asked > 0; }}), ir::Code::kCANCELLED);
  EXPECT_GT(asked, 0);
  EXPECT_EQ(compile({.most_ms = -1}), ir::Code::kTIMEOUT);
  EXPECT_EQ(compile({.ends = std::chrono::steady_clock::now()}), ir::Code::kTIMEOUT);
  EXPECT_EQ(compile({.most_ms = 60'000}), ir::Code::kOK);
}

TEST(NvrtcVersion, IsReadFromRecords) {
  EXPECT_EQ(jit::nvrtc_major("nvrtc 12.9"), 12);
  EXPECT_EQ(jit::nvrtc_major("nvrtc 13.0"), 13);
  EXPECT_EQ(jit::nvrtc_major("clang 13.0"), 0);
  EXPECT_EQ(jit::nvrtc_major("nvrtc x"), 0);
}

}  // namespace
}  // namespace lathe::test
