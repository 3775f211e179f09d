// A host that has a oneTBB arena lends it to Lathe: lathe_tbb.h makes a lathe_pool of it. C++, and links oneTBB.
#include <lathe_tbb.h>

#include "example.h"

namespace {
constexpr int kM = 128, kN = 256;
float g_x[kM * kN], g_y[kM * kN];
}  // namespace

int main() {
  for (int i = 0; i < kM * kN; ++i) g_x[i] = static_cast<float>(i % 9 - 4);
  lathe_context* ctx = nullptr;
  CHECK(lathe_context_create(nullptr, &ctx, &g_error));
  const lathe_dim dims[2] = {fixed_dim(kM), fixed_dim(kN)};
  const lathe_tensor_desc input = describe("x", dims, 2, 0);
  lathe_graph* graph = nullptr;
  CHECK(lathe_graph_single(ctx, "relu", &input, 1, nullptr, 0, &graph, &g_error));
  lathe_policy policy = LATHE_POLICY_INIT;
  policy.threads = 2;
  lathe_kernel* kernel = nullptr;
  CHECK(lathe_resolve(ctx, graph, &policy, &kernel, nullptr, &g_error));

  int64_t shape[2] = {kM, kN};
  const lathe_tensor x = tensor_on(g_x, shape, 2), y = tensor_on(g_y, shape, 2);
  const lathe_arg args[2] = {arg_of(&x), arg_of(&y)};
  uint64_t bytes = 0;
  CHECK(lathe_workspace_bytes(kernel, args, 2, 2, &bytes, &g_error));
  void* base = nullptr;

  tbb::task_arena arena(2);
  const lathe_pool pool = lathe_tbb_pool(arena);
  lathe_exec exec = LATHE_EXEC_INIT;
  exec.pool = &pool;
  exec.threads = 2;
  exec.workspace = aligned(bytes, &base);
  exec.workspace_bytes = bytes;
  CHECK(lathe_execute(kernel, args, 2, &exec, &g_error));
  int wrong = 0;
  for (int i = 0; i < kM * kN; ++i) wrong += g_y[i] != (g_x[i] > 0 ? g_x[i] : 0);

  // What Lathe asks of a pool: each part once; and a loop inside another is announced.
  struct Seen {
    lathe_pool pool;
    int parts[64];
    int inside[64];
  } seen = {pool, {}, {}};
  pool.parallel_for(
      pool.self, 64,
      [](void* s, int32_t i) {
        Seen* all = static_cast<Seen*>(s);
        all->parts[i] += 1;
        all->inside[i] = all->pool.in_parallel(all->pool.self);
      },
      &seen);
  for (int i = 0; i < 64; ++i) wrong += seen.parts[i] != 1 || seen.inside[i] == 0;
  wrong += pool.in_parallel(pool.self) != 0 || pool.num_threads(pool.self) != 2;

  std::printf("host arena: %d threads, %d wrong\n", static_cast<int>(pool.num_threads(pool.self)), wrong);
  std::free(base);
  lathe_kernel_destroy(kernel);
  lathe_graph_destroy(graph);
  lathe_context_destroy(ctx);
  return wrong != 0;
}
