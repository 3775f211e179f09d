/* What a server does at its start: a plan makes everything the workload needs, then the context is sealed and nothing
   compiles. */
#include "example.h"

enum { kN = 1000 };

static float g_x[8 * kN], g_y[8 * kN];

static void progress(void* user, double fraction, const char* op) {
  (void)user;
  printf("  %3.0f%% %s\n", fraction * 100, op);
}

int main(void) {
  lathe_context* ctx = NULL;
  CHECK(lathe_context_create(NULL, &ctx, &g_error));

  const lathe_hint hints[2] = {{1, 1.0}, {8, 1.0}};
  lathe_dim dims[2] = {{1, 64, 1, "M", hints, 2}, {kN, kN, 1, NULL, NULL, 0}};
  lathe_tensor_desc input = describe("x", dims, 2, 0);
  lathe_graph* graph = NULL;
  CHECK(lathe_graph_single(ctx, "softmax", &input, 1, NULL, 0, &graph, &g_error));

  lathe_plan* plan = NULL;
  CHECK(lathe_plan_create(ctx, &plan, &g_error));
  CHECK(lathe_plan_add(plan, graph, 1.0, &g_error)); /* or lathe_plan_load: a manifest's operators */
  lathe_budget budget = LATHE_BUDGET_INIT;
  budget.tier = 1; /* 2 searches for better Schedules too */
  lathe_report report = LATHE_REPORT_INIT;
  CHECK(lathe_plan_run(plan, &budget, progress, NULL, &report, &g_error));
  printf("warm-up: %d operators, %d failed\n", (int)report.ops, (int)report.failed);

  CHECK(lathe_seal(ctx, LATHE_SEAL_FALLBACK, &g_error));

  lathe_kernel* kernel = NULL;
  CHECK(lathe_resolve(ctx, graph, NULL, &kernel, NULL, &g_error));
  int64_t shape[2] = {5, kN}; /* not a hint: served all the same */
  lathe_tensor x = tensor_on(g_x, shape, 2), y = tensor_on(g_y, shape, 2);
  lathe_arg args[2];
  args[0] = arg_of(&x);
  args[1] = arg_of(&y);
  lathe_exec exec = LATHE_EXEC_INIT;
  void* workspace_base = NULL;
  CHECK(lathe_workspace_bytes(kernel, args, 2, 1, &exec.workspace_bytes, &g_error));
  exec.workspace = aligned(exec.workspace_bytes, &workspace_base);
  CHECK(lathe_execute(kernel, args, 2, &exec, &g_error));
  free(workspace_base);

  uint64_t compiles = 1;
  CHECK(lathe_stats(ctx, "compiles_after_seal", &compiles, &g_error));
  const float sum = g_y[0] * kN;
  printf("sealed: %d compilations since, a row adds up to %.3f\n", (int)compiles, sum);
  lathe_kernel_destroy(kernel);
  lathe_plan_destroy(plan);
  lathe_graph_destroy(graph);
  lathe_context_destroy(ctx);
  return compiles != 0 || sum < 0.999f || sum > 1.001f || report.failed != 0;
}
