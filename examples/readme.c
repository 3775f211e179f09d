/* A linear layer of a model: y[M, 48] = x[M, 64] * w[64, 48], for every M up to 512. */
#include <lathe.h>
#include <stdio.h>
#define MUST(call) \
  if ((call) != LATHE_STATUS_OK) return fprintf(stderr, "%s\n", error.message), 1
#define F32(rows, columns, at)                                                                           \
  {                                                                                                      \
    .data = at, .device = {1, 0}, .ndim = 2, .dtype = {2, 32, 1}, .shape = (int64_t[]) { rows, columns } \
  }
static float x_data[3 * 64], w_data[64 * 48], y_data[3 * 48];
static lathe_error error;

int main(void) {
  lathe_context* context;
  lathe_graph* graph;
  lathe_kernel* kernel;
  lathe_tensor_desc operands[2] = {LATHE_TENSOR_DESC_INIT, LATHE_TENSOR_DESC_INIT};
  operands[0].name = "x", operands[0].ndim = 2,
  operands[0].dims = (lathe_dim[]){{.min = 1, .max = 512, .symbol = "M"}, {.min = 64, .max = 64}};
  operands[1].name = "w", operands[1].ndim = 2,
  operands[1].dims = (lathe_dim[]){{.min = 64, .max = 64}, {.min = 48, .max = 48}};
  MUST(lathe_context_create(NULL, &context, &error));
  MUST(lathe_graph_single(context, "matmul", operands, 2, NULL, 0, &graph, &error));
  MUST(lathe_resolve(context, graph, NULL, &kernel, NULL, &error)); /* from the store, or generated now */

  for (int i = 0; i < 3 * 64; ++i) x_data[i] = 1;
  for (int i = 0; i < 64 * 48; ++i) w_data[i] = 2;
  lathe_tensor x = F32(3, 64, x_data), w = F32(64, 48, w_data), y = F32(3, 48, y_data);
  lathe_arg args[3] = {{.tensor = &x}, {.tensor = &w}, {.tensor = &y}};
  MUST(lathe_execute(kernel, args, 3, NULL, &error));
  printf("y[2, 47] = %g\n", y_data[2 * 48 + 47]);
  lathe_kernel_destroy(kernel);
  lathe_graph_destroy(graph);
  lathe_context_destroy(context);
  return y_data[2 * 48 + 47] != 128;
}
