// A warm call allocates nothing: operator new of this binary counts per thread.
#include <cstdlib>
#include <new>

#include "tests/common/c_client.h"
#include "tests/common/sanitizer.h"

namespace {
thread_local int64_t g_allocations = 0;
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++g_allocations;
  if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }
#endif

namespace lathe::test {
namespace {

TEST(CapiAlloc, WarmCallsAllocateNothing) {
  if (kAddressSanitizer || kThreadSanitizer) GTEST_SKIP() << "the sanitizer's operator new is not replaced";
  const auto ctx = make_context();
  const auto graph = matmul_graph(ctx.get(), range("M", 1, 64), 64, 96);
  const auto kernel = resolve(ctx.get(), graph.get());
  Floats x({7, 64}), w({64, 96}), y({7, 96});
  const lathe_arg args[] = {x.arg(), w.arg(), y.arg()};
  Aligned workspace(1 << 20);
  lathe_exec exec = LATHE_EXEC_INIT;
  exec.workspace = workspace.memory;
  exec.workspace_bytes = 1 << 20;
  lathe_error e{};
  ASSERT_EQ(lathe_execute(kernel.get(), args, 3, &exec, &e), LATHE_STATUS_OK) << e.message;
  lathe_pinned* p = nullptr;
  ASSERT_EQ(lathe_pin(kernel.get(), args, 3, 1, &p, &e), LATHE_STATUS_OK) << e.message;
  const Owned<lathe_pinned> pinned(p);
  void* data[] = {x.data.data(), w.data.data(), y.data.data()};
  const int64_t before = g_allocations;
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(lathe_execute(kernel.get(), args, 3, &exec, &e), LATHE_STATUS_OK);
    ASSERT_EQ(lathe_pinned_run(p, data, &exec), LATHE_STATUS_OK);
  }
  EXPECT_EQ(g_allocations, before);
  x.tensor.data = nullptr;
  EXPECT_EQ(lathe_execute(kernel.get(), args, 3, &exec, &e), LATHE_STATUS_INVALID);
  EXPECT_GT(g_allocations, before);  // the counter counts
}

}  // namespace
}  // namespace lathe::test
