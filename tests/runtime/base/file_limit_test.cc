// A host with a limit on file sizes, or whose standard error is a pipe that nobody reads: whatever the library writes
// or grows fails like a full disk, and the host lives, with its handlers, its mask and no signal left. Each case runs
// in a child whose limit is too small for anything.
#include "ir/base/file_limit.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "ir/core/text_form.h"
#include "jit/image/exec_memory.h"
#include "jit/image/profiler_map.h"
#include "runtime/base/verbose.h"
#include "runtime/compile/dump.h"
#include "runtime/serve/recorded_calls.h"
#include "search/cut/cut.h"
#include "tests/common/c_client.h"
#include "tests/runtime/store/store_util.h"

namespace lathe::runtime {
namespace {

void limit_files(rlim_t bytes) {
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = bytes;
  setrlimit(RLIMIT_FSIZE, &limit);
}

bool signals_as_before() {
  sigset_t pending, mask;
  struct sigaction action;
  sigpending(&pending);
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  bool same = true;
  for (const int number : {SIGXFSZ, SIGPIPE}) {
    sigaction(number, nullptr, &action);
    same = same && !sigismember(&pending, number) && !sigismember(&mask, number) && action.sa_handler == SIG_DFL;
  }
  return same;
}

// Runs `body` under the limit and ends: 0 if it said true and the signals are as they were.
template <class Body>
[[noreturn]] void under_limit(rlim_t bytes, const Body& body) {
  signal(SIGXFSZ, SIG_DFL);
  signal(SIGPIPE, SIG_DFL);
  limit_files(bytes);
  const bool ok = body() && signals_as_before();
  _exit(ok ? 0 : 1);
}
#define EXPECT_LIVES(bytes, ...) EXPECT_EXIT((under_limit(bytes, __VA_ARGS__)), testing::ExitedWithCode(0), "")

TEST(FileLimit, AStoreCountsAWriteThatFailed) {
  TempDir dir;
  EXPECT_LIVES(100, [&] {
    Stats stats;
    auto store = std::move(Store::open(at(dir.path()), &stats)).value();
    std::string why;
    const bool put = store->put(decision_key(), std::string(1000, 'x'), &why).value();
    return !put && why == "EFBIG" && stats.get(Stat::k_publish_failed) == 1 && store->find(decision_key()).found;
  });
  EXPECT_EQ(files_in(dir.path() + "/v1/new"), 0);
}

TEST(FileLimit, LinesIntoAPipeThatNobodyReadsFailQuietly) {
  EXPECT_LIVES(RLIM_INFINITY, [] {
    int ends[2];
    if (pipe(ends) != 0 || dup2(ends[1], STDERR_FILENO) < 0) return false;
    close(ends[0]);
    close(ends[1]);
    verbose_line({"create", "kernel", "T1", "compiled", "", 1});
    return true;
  });
}

TEST(FileLimit, MemoryFilesDumpsAndLinesFailQuietly) {
  TempDir dir;
  EXPECT_LIVES(16, [] {
    return !RecordedCalls::create({{RecordedParam::Kind::in, 64}, {RecordedParam::Kind::out, 64}}, 2).ok();
  });
  EXPECT_LIVES(16, [&] {
    const ir::Kernel k = ir::parse_kernel(
                             "kernel scale(x: f32[64] in, y: f32[64] out) family elementwise\n  for i < 64 [col]:\n    "
                             "y[i] = 2.0 * x[i]\n")
                             .value();
    dump_kernel(dir.path(), k, {}, search::cut(k).value());
    return true;
  });
  EXPECT_LIVES(16, [&] {
    const int file = open((dir.path() + "/stderr").c_str(), O_CREAT | O_WRONLY, 0600);
    dup2(file, STDERR_FILENO);
    verbose_line({"create", "kernel_of_a_long_name", "T1", "compiled", "", 1});
    return true;
  });
  EXPECT_LIVES(4, [&] {
    jit::CodeImage image;
    image.symbol = "lathe_test";
    image.code = {0xc3};
    image.text_bytes = 1;
    jit::LoadedCode code;
    jit::ProfilerMap map(jit::kProfilerPerf, dir.path());
    map.add(image, code);
    return true;
  });
  EXPECT_LIVES(0, [] {
    jit::CodeImage image;
    image.symbol = "lathe_test";
    image.code = {0xc3};
    image.text_bytes = 1;
    jit::ExecMemory dual(jit::ExecMode::dual), any(jit::ExecMode::automatic);
    return !dual.load(image).ok() && any.load(image).ok();
  });
}

// The whole way of a host: its operator serves.
TEST(FileLimit, AHostIsServed) {
  TempDir dir;
  EXPECT_LIVES(0, [&] {
    setenv("LATHE_CACHE_DIR", dir.path().c_str(), 1);
    setenv("LATHE_CACHE", "rw", 1);
    lathe_context* c = nullptr;
    lathe_error e;
    if (lathe_context_create(nullptr, &c, &e) != LATHE_STATUS_OK) return false;
    const test::Owned<lathe_context> ctx(c);
    const auto graph = test::unary_graph(c, "relu", {test::fixed(8)});
    const auto kernel = test::resolve(c, graph.get());
    test::Floats x({8}, -1), y({8}, 7);
    const lathe_arg args[] = {x.arg(), y.arg()};
    return kernel != nullptr && lathe_execute(kernel.get(), args, 2, nullptr, &e) == LATHE_STATUS_OK && y.data[3] == 0;
  });
}

// What others raised and hold back stays theirs.
TEST(FileLimit, ASignalThatWasPendingStays) {
  const auto pending_stays = [] {
    sigset_t ours, pending;
    sigemptyset(&ours);
    sigaddset(&ours, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &ours, nullptr);
    raise(SIGXFSZ);
    {
      const ir::FileLimitGuard guard;
    }
    sigpending(&pending);
    return sigismember(&pending, SIGXFSZ) == 1;
  };
  EXPECT_EXIT(_exit(pending_stays() ? 0 : 1), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace lathe::runtime
