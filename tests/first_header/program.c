/* A program of the first published header: its spellings, its structs, its sizes. It is built twice, with that header
 * (tests/first_header/lathe.h, frozen) and with today's, and must run against today's library either way. */
#include <lathe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(call)                                                               \
  do {                                                                           \
    const lathe_status status_ = (call);                                         \
    if (status_ != LATHE_OK) return printf("%s: %s\n", #call, error.message), 1; \
  } while (0)
#define EXPECT(condition) \
  if (!(condition)) return printf("failed: %s\n", #condition), 1

static lathe_error error;

/* y[M, 8] = bf16 x[M, 8], rows of ones: softmax gives eighths. */
static int halves(lathe_context* context) {
  lathe_dim dims[2];
  lathe_tensor_desc desc = LATHE_TENSOR_DESC_INIT;
  lathe_graph* graph = NULL;
  lathe_kernel* kernel = NULL;
  lathe_policy policy = LATHE_POLICY_INIT;
  lathe_kernel_info info = LATHE_KERNEL_INFO_INIT;
  uint16_t x[3 * 8], y[3 * 8];
  int64_t shape[2] = {3, 8};
  lathe_tensor tx, ty;
  lathe_arg args[2];
  lathe_exec exec = LATHE_EXEC_INIT;
  uint64_t bytes = 0;
  int i;
  memset(dims, 0, sizeof(dims));
  memset(args, 0, sizeof(args));
  dims[0].min = 1, dims[0].max = 64, dims[0].symbol = "M";
  dims[1].min = dims[1].max = 8;
  desc.name = "x";
  desc.dtype = LATHE_BF16;
  desc.ndim = 2;
  desc.dims = dims;
  MUST(lathe_graph_single(context, "softmax", &desc, 1, NULL, 0, &graph, &error));
  policy.wait = LATHE_COMPILED_ONLY;
  EXPECT(lathe_resolve(context, graph, &policy, &kernel, NULL, &error) == LATHE_MISS);
  policy.wait = LATHE_NOW;
  MUST(lathe_resolve(context, graph, &policy, &kernel, &info, &error));
  EXPECT(info.num_args == 2);
  for (i = 0; i < 24; ++i) x[i] = 0x3f80; /* 1 */
  memset(&tx, 0, sizeof(tx));
  tx.data = x;
  tx.device.type = 1;
  tx.ndim = 2;
  tx.dtype.code = 4, tx.dtype.bits = 16, tx.dtype.lanes = 1;
  tx.shape = shape;
  ty = tx;
  ty.data = y;
  args[0].tensor = &tx;
  args[1].tensor = &ty;
  MUST(lathe_workspace_bytes(kernel, args, 2, 1, &bytes, &error));
  exec.workspace = bytes == 0 ? NULL : aligned_alloc(64, (bytes + 63) / 64 * 64);
  exec.workspace_bytes = bytes;
  MUST(lathe_execute(kernel, args, 2, &exec, &error));
  free(exec.workspace);
  for (i = 0; i < 24; ++i) EXPECT(y[i] == 0x3e00); /* 1 / 8 */
  lathe_kernel_destroy(kernel);
  lathe_graph_destroy(graph);
  return 0;
}

/* y[2, 4] = x[2, 3] * w[3, 4], all ones: the second description lies where the first one's size says. */
static int product(lathe_context* context) {
  lathe_dim dims[4];
  lathe_tensor_desc descs[2] = {LATHE_TENSOR_DESC_INIT, LATHE_TENSOR_DESC_INIT};
  lathe_graph* graph = NULL;
  lathe_kernel* kernel = NULL;
  float x[6], w[12], y[8];
  int64_t shapes[3][2] = {{2, 3}, {3, 4}, {2, 4}};
  lathe_tensor tensors[3];
  lathe_arg args[3];
  int i;
  memset(dims, 0, sizeof(dims));
  memset(tensors, 0, sizeof(tensors));
  memset(args, 0, sizeof(args));
  for (i = 0; i < 4; ++i) dims[i].min = dims[i].max = shapes[i / 2][i % 2];
  for (i = 0; i < 2; ++i) {
    descs[i].name = i == 0 ? "x" : "w";
    descs[i].ndim = 2;
    descs[i].dims = dims + 2 * i;
  }
  descs[1].flags = LATHE_TENSOR_CONST;
  MUST(lathe_graph_single(context, "matmul", descs, 2, NULL, 0, &graph, &error));
  MUST(lathe_resolve(context, graph, NULL, &kernel, NULL, &error));
  for (i = 0; i < 12; ++i) w[i] = 1;
  for (i = 0; i < 6; ++i) x[i] = 1;
  for (i = 0; i < 3; ++i) {
    tensors[i].data = i == 0 ? x : i == 1 ? w : y;
    tensors[i].device.type = 1;
    tensors[i].ndim = 2;
    tensors[i].dtype.code = 2, tensors[i].dtype.bits = 32, tensors[i].dtype.lanes = 1;
    tensors[i].shape = shapes[i];
    args[i].tensor = &tensors[i];
  }
  MUST(lathe_execute(kernel, args, 3, NULL, &error));
  for (i = 0; i < 8; ++i) EXPECT(y[i] == 3);
  lathe_kernel_destroy(kernel);
  lathe_graph_destroy(graph);
  return 0;
}

static int plan(lathe_context* context) {
  lathe_plan* made = NULL;
  lathe_budget budget = LATHE_BUDGET_INIT;
  lathe_report report = LATHE_REPORT_INIT;
  budget.tier = 1;
  MUST(lathe_plan_create(context, &made, &error));
  MUST(lathe_plan_run(made, &budget, NULL, NULL, &report, &error));
  EXPECT(report.ops == 0);
  lathe_plan_destroy(made);
  return 0;
}

int main(void) {
  lathe_context_options options = LATHE_CONTEXT_OPTIONS_INIT;
  lathe_context* context = NULL;
  int failed;
  setenv("LATHE_CACHE", "off", 1);
  EXPECT(LATHE_NOW == 0 && LATHE_WAIT == 1 && LATHE_COMPILED_ONLY == 2 && LATHE_BOOL == 8 && LATHE_INTERNAL == 11);
  options.max_isa = "portable";
  MUST(lathe_context_create(&options, &context, &error));
  failed = halves(context) || product(context) || plan(context);
  MUST(lathe_seal(context, LATHE_SEAL_FALLBACK, &error));
  lathe_context_destroy(context);
  if (!failed) printf("ok\n");
  return failed;
}
