// Tuning while calls run, through the C ABI: its thread, its switch, its end; results stay right whatever it does.
#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/common/c_client.h"

namespace lathe::test {
namespace {

uint64_t counter(const lathe_context* ctx, const char* name) {
  uint64_t value = 0;
  EXPECT_EQ(lathe_stats(ctx, name, &value, nullptr), LATHE_STATUS_OK) << name;
  return value;
}

Owned<lathe_context> tuning_context(const std::string& store, uint32_t mode, int32_t background = 0) {
  setenv("LATHE_CACHE", "rw", 1);
  const lathe_layer layer = {store.c_str(), LATHE_LAYER_SHARED, 0};
  lathe_context_options o = LATHE_CONTEXT_OPTIONS_INIT;
  o.layers = &layer;
  o.num_layers = 1;
  o.worker_path = LATHE_WORKER_PATH;
  o.tune = mode;
  o.tune_cpu = 100;
  o.background_threads = background;
  lathe_context* out = nullptr;
  lathe_error e{};
  EXPECT_EQ(lathe_context_create(&o, &out, &e), LATHE_STATUS_OK) << e.message;
  return Owned<lathe_context>(out);
}

struct Loop {
  explicit Loop(lathe_context* ctx)
      : graph(matmul_graph(ctx, range("M", 1, 64), 64, 48)),
        kernel(resolve(ctx, graph.get())),
        x({8, 64}),
        w({64, 48}),
        y({8, 48}) {
    x.numbers(1);
    w.numbers(2);
    for (size_t i = 0; i < y.data.size(); ++i) {
      float sum = 0;
      for (size_t k = 0; k < 64; ++k) sum += x.data[i / 48 * 64 + k] * w.data[k * 48 + i % 48];
      want.push_back(sum);
    }
  }
  void serve(int calls) {
    lathe_exec exec = LATHE_EXEC_INIT;
    exec.workspace = workspace.memory;
    exec.workspace_bytes = 1 << 18;
    const lathe_arg args[] = {x.arg(), w.arg(), y.arg()};
    lathe_error e{};
    for (int i = 0; i < calls; ++i) {
      ASSERT_EQ(lathe_execute(kernel.get(), args, 3, &exec, &e), LATHE_STATUS_OK) << e.message;
      if (i % 64 == 0) {
        ASSERT_EQ(y.data, want);
      }
    }
  }
  Owned<lathe_graph> graph;
  Owned<lathe_kernel> kernel;
  Floats x, w, y;
  std::vector<float> want;
  Aligned workspace{1 << 18};
};

struct TempDir {
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lathe-tune-XXXXXX").string();
    path = mkdtemp(pattern.data());
  }
  ~TempDir() { std::filesystem::remove_all(path); }
  std::string path;
};

TEST(CapiTune, AHotShapeIsProposedWhileCallsRun) {
  const TempDir store;
  const auto ctx = tuning_context(store.path, LATHE_TUNE_ON);
  Loop loop(ctx.get());
  const auto settled = [&] {
    return counter(ctx.get(), "promotions_active") + counter(ctx.get(), "promotions_tie") +
           counter(ctx.get(), "promotions_rejected") + counter(ctx.get(), "promotions_quarantined");
  };
  // The tuning thread counts the outcome first, then the proposal and its time.
  const auto told = [&] {
    return settled() > 0 && counter(ctx.get(), "promotions_proposed") > 0 && counter(ctx.get(), "tune_cpu_ns") > 0;
  };
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(200);
  while (!told() && std::chrono::steady_clock::now() < end) loop.serve(256);
  EXPECT_EQ(counter(ctx.get(), "promotions_proposed"), 1u);
  EXPECT_GT(counter(ctx.get(), "tune_cpu_ns"), 0u);
  EXPECT_GT(counter(ctx.get(), "tune_ns"), 0u);
  loop.serve(256);
}

TEST(CapiTune, NothingRunsUnlessItIsAllowed) {
  for (const int32_t background : {0, -1}) {
    const TempDir store;
    const auto ctx = tuning_context(store.path, background == 0 ? LATHE_TUNE_OFF : LATHE_TUNE_TRIALS, background);
    Loop loop(ctx.get());
    for (int i = 0; i < 10; ++i) {
      loop.serve(500);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(counter(ctx.get(), "promotions_proposed"), 0u);
    EXPECT_EQ(counter(ctx.get(), "tune_cpu_ns"), 0u);
  }
}

TEST(CapiTune, TheSwitchMayBeTurnedAtAnyTimeAndTheContextGoesAtAnyTime) {
  const TempDir store;
  for (int i = 0; i < 4; ++i) {
    auto ctx = tuning_context(store.path, LATHE_TUNE_DEFAULT);
    lathe_error e{};
    auto loop = std::make_unique<Loop>(ctx.get());
    for (const uint32_t mode : {LATHE_TUNE_TRIALS, LATHE_TUNE_OFF, LATHE_TUNE_REPLAY, LATHE_TUNE_ON}) {
      ASSERT_EQ(lathe_tune_mode(ctx.get(), mode, &e), LATHE_STATUS_OK) << e.message;
      loop->serve(2000);
    }
    if (i % 2 == 0) {
      ctx.reset();
      loop->serve(100);
    }
  }
}

}  // namespace
}  // namespace lathe::test
