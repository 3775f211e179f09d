/* A fused group: relu(x * w + b) as one kernel, whose intermediates never reach memory. */
#include "example.h"

enum { kM = 4, kK = 32, kN = 40 };

static float g_x[kM * kK], g_w[kK * kN], g_b[kN], g_y[kM * kN];

static int wrong_numbers(void) {
  int wrong = 0;
  for (int i = 0; i < kM; ++i) {
    for (int j = 0; j < kN; ++j) {
      float sum = g_b[j];
      for (int k = 0; k < kK; ++k) sum += g_x[i * kK + k] * g_w[k * kN + j];
      wrong += g_y[i * kN + j] != (sum > 0 ? sum : 0);
    }
  }
  return wrong;
}

int main(void) {
  for (int i = 0; i < kM * kK; ++i) g_x[i] = (float)(i % 7 - 3);
  for (int i = 0; i < kK * kN; ++i) g_w[i] = (float)(i % 5 - 2);
  for (int i = 0; i < kN; ++i) g_b[i] = (float)(i - 20);

  lathe_context* ctx = NULL;
  CHECK(lathe_context_create(NULL, &ctx, &g_error));
  lathe_graph* graph = NULL;
  CHECK(lathe_graph_create(ctx, "dense", &graph, &g_error));
  lathe_dim x_dims[2], w_dims[2], b_dims[1];
  x_dims[0] = fixed_dim(kM);
  x_dims[1] = w_dims[0] = fixed_dim(kK);
  w_dims[1] = b_dims[0] = fixed_dim(kN);
  lathe_tensor_desc x_desc = describe("x", x_dims, 2, 0);
  lathe_tensor_desc w_desc = describe("w", w_dims, 2, LATHE_TENSOR_CONST);
  lathe_tensor_desc b_desc = describe("b", b_dims, 1, LATHE_TENSOR_CONST);
  int32_t product[2], biased[2], result;
  CHECK(lathe_graph_tensor(graph, &x_desc, &product[0], &g_error));
  CHECK(lathe_graph_tensor(graph, &w_desc, &product[1], &g_error));
  CHECK(lathe_graph_tensor(graph, &b_desc, &biased[1], &g_error));
  CHECK(lathe_graph_op(graph, "matmul", product, 2, NULL, 0, "product", &biased[0], &g_error));
  int32_t sum;
  CHECK(lathe_graph_op(graph, "add", biased, 2, NULL, 0, "sum", &sum, &g_error));
  CHECK(lathe_graph_op(graph, "relu", &sum, 1, NULL, 0, "y", &result, &g_error));
  CHECK(lathe_graph_output(graph, result, &g_error));
  CHECK(lathe_graph_finish(graph, &g_error));

  lathe_kernel* kernel = NULL;
  lathe_kernel_info info = LATHE_KERNEL_INFO_INIT;
  CHECK(lathe_resolve(ctx, graph, NULL, &kernel, &info, &g_error));
  int64_t x_shape[2] = {kM, kK}, w_shape[2] = {kK, kN}, b_shape[1] = {kN}, y_shape[2] = {kM, kN};
  lathe_tensor tensors[4];
  tensors[0] = tensor_on(g_x, x_shape, 2);
  tensors[1] = tensor_on(g_w, w_shape, 2);
  tensors[2] = tensor_on(g_b, b_shape, 1);
  tensors[3] = tensor_on(g_y, y_shape, 2);
  lathe_arg args[4];
  for (int i = 0; i < 4; ++i) args[i] = arg_of(&tensors[i]);

  lathe_exec exec = LATHE_EXEC_INIT;
  void* base = NULL;
  CHECK(lathe_workspace_bytes(kernel, args, 4, 1, &exec.workspace_bytes, &g_error));
  exec.workspace = aligned(exec.workspace_bytes, &base);
  CHECK(lathe_execute(kernel, args, 4, &exec, &g_error));

  const int wrong = wrong_numbers();
  printf("fused group \"%s\": tier %d, %d wrong numbers\n", info.name, (int)info.tier, wrong);
  free(base);
  lathe_kernel_destroy(kernel);
  lathe_graph_destroy(graph);
  lathe_context_destroy(ctx);
  return wrong != 0;
}
