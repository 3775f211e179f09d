/* One matmul: described for any number of rows, resolved, its weights packed, executed, its numbers checked. */
#include "example.h"

enum { kM = 3, kK = 64, kN = 48 };

static float g_x[kM * kK], g_w[kK * kN], g_y[kM * kN];

static int wrong_numbers(void) {
  int wrong = 0;
  for (int i = 0; i < kM; ++i) {
    for (int j = 0; j < kN; ++j) {
      float sum = 0;
      for (int k = 0; k < kK; ++k) sum += g_x[i * kK + k] * g_w[k * kN + j];
      wrong += g_y[i * kN + j] != sum; /* small integers: exact in any order */
    }
  }
  return wrong;
}

int main(void) {
  for (int i = 0; i < kM * kK; ++i) g_x[i] = (float)(i % 7 - 3);
  for (int i = 0; i < kK * kN; ++i) g_w[i] = (float)(i % 5 - 2);

  lathe_context* ctx = NULL;
  CHECK(lathe_context_create(NULL, &ctx, &g_error));

  /* y[M, 48] = x[M, 64] * w[64, 48], M in 1..512, w constant. */
  lathe_dim x_dims[2] = {{1, 512, 1, "M", NULL, 0}, {kK, kK, 1, NULL, NULL, 0}};
  lathe_dim w_dims[2] = {{kK, kK, 1, NULL, NULL, 0}, {kN, kN, 1, NULL, NULL, 0}};
  lathe_tensor_desc inputs[2];
  inputs[0] = describe("x", x_dims, 2, 0);
  inputs[1] = describe("w", w_dims, 2, LATHE_TENSOR_CONST);
  lathe_graph* graph = NULL;
  CHECK(lathe_graph_single(ctx, "matmul", inputs, 2, NULL, 0, &graph, &g_error));

  lathe_kernel* kernel = NULL;
  lathe_kernel_info info = LATHE_KERNEL_INFO_INIT;
  CHECK(lathe_resolve(ctx, graph, NULL, &kernel, &info, &g_error));

  int64_t x_shape[2] = {kM, kK}, w_shape[2] = {kK, kN}, y_shape[2] = {kM, kN};
  lathe_tensor x = tensor_on(g_x, x_shape, 2), w = tensor_on(g_w, w_shape, 2), y = tensor_on(g_y, y_shape, 2);
  lathe_arg args[3];
  args[0] = arg_of(&x);
  args[1] = arg_of(&w);
  args[2] = arg_of(&y);

  /* Once per weight: its form for this kernel, if it wants one. */
  lathe_pack_info pack;
  void* packed_base = NULL;
  CHECK(lathe_prepack_query(kernel, 1, &pack, &g_error));
  if (pack.bytes > 0) {
    void* packed = aligned(pack.bytes, &packed_base);
    CHECK(lathe_prepack(kernel, 1, &w, packed, pack.bytes, &g_error));
    w.data = packed;
    args[1].layout_id = pack.layout_id;
  }

  lathe_exec exec = LATHE_EXEC_INIT;
  void* workspace_base = NULL;
  CHECK(lathe_workspace_bytes(kernel, args, 3, 1, &exec.workspace_bytes, &g_error));
  exec.workspace = aligned(exec.workspace_bytes, &workspace_base);
  CHECK(lathe_execute(kernel, args, 3, &exec, &g_error));

  const int wrong = wrong_numbers();
  printf("one call: tier %d, %d wrong numbers\n", (int)info.tier, wrong);
  free(packed_base);
  free(workspace_base);
  lathe_kernel_destroy(kernel);
  lathe_graph_destroy(graph);
  lathe_context_destroy(ctx);
  return wrong != 0;
}
