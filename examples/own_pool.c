/* The host's threads: Lathe starts none, and runs its parallel loops on the pool it is given. This one has a single
   thread and counts. */
#include "example.h"

enum { kM = 128, kN = 256 };

static float g_x[kM * kN], g_y[kM * kN];

struct counting_pool {
  int loops, parts;
};

static int32_t num_threads(void* self) {
  (void)self;
  return 2;
}
static void parallel_for(void* self, int32_t n, void (*body)(void* ctx, int32_t i), void* ctx) {
  struct counting_pool* pool = self;
  pool->loops += 1;
  pool->parts += n;
  for (int32_t i = 0; i < n; ++i) body(ctx, i); /* a real pool shares these out */
}

int main(void) {
  for (int i = 0; i < kM * kN; ++i) g_x[i] = (float)(i % 9 - 4);
  lathe_context* ctx = NULL;
  CHECK(lathe_context_create(NULL, &ctx, &g_error));
  lathe_dim dims[2] = {{1, kM, 1, "M", NULL, 0}, {kN, kN, 1, NULL, NULL, 0}};
  lathe_tensor_desc input = describe("x", dims, 2, 0);
  lathe_graph* graph = NULL;
  CHECK(lathe_graph_single(ctx, "sigmoid", &input, 1, NULL, 0, &graph, &g_error));
  lathe_policy policy = LATHE_POLICY_INIT;
  policy.threads = 2;
  lathe_kernel* kernel = NULL;
  CHECK(lathe_resolve(ctx, graph, &policy, &kernel, NULL, &g_error));

  int64_t shape[2] = {kM, kN};
  lathe_tensor x = tensor_on(g_x, shape, 2), y = tensor_on(g_y, shape, 2);
  lathe_arg args[2];
  args[0] = arg_of(&x);
  args[1] = arg_of(&y);

  struct counting_pool counts = {0, 0};
  lathe_pool pool = LATHE_POOL_INIT;
  pool.self = &counts;
  pool.num_threads = num_threads;
  pool.parallel_for = parallel_for;
  lathe_exec exec = LATHE_EXEC_INIT;
  exec.pool = &pool;
  exec.threads = 2;

  /* Pinned: everything but the addresses is checked and fixed now. */
  lathe_pinned* pinned = NULL;
  CHECK(lathe_pin(kernel, args, 2, 2, &pinned, &g_error));
  void* data[2] = {g_x, g_y};
  void* base = NULL;
  exec.workspace_bytes = lathe_pinned_workspace_bytes(pinned);
  exec.workspace = aligned(exec.workspace_bytes, &base);
  if (lathe_pinned_run(pinned, data, &exec) != LATHE_STATUS_OK) return 1;

  printf("own pool: %d loops of %d parts, sigmoid(%g) = %.4f\n", counts.loops, counts.parts, g_x[4], g_y[4]);
  const int wrong = g_y[4] < 0.4999f || g_y[4] > 0.5001f;
  free(base);
  lathe_pinned_destroy(pinned);
  lathe_kernel_destroy(kernel);
  lathe_graph_destroy(graph);
  lathe_context_destroy(ctx);
  return wrong;
}
