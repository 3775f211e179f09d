/* One operator on a GPU: the host owns the device's memory and a stream, Lathe launches on it. The CUDA driver is
 * opened by name, as Lathe does it, so that this builds and links where there is none; then it says so and ends. */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <math.h>

#include "example.h"

enum { kN = 1000 };

static float g_x[kN], g_y[kN];

/* The functions of the driver that a host needs; each returns 0 for success. */
static int (*cuInit)(unsigned);
static int (*cuDevicePrimaryCtxRetain)(void** context, int device);
static int (*cuCtxPushCurrent)(void* context);
static int (*cuStreamCreate)(void** stream, unsigned flags);
static int (*cuStreamSynchronize)(void* stream);
static int (*cuMemAlloc)(unsigned long long* address, size_t bytes);
static int (*cuMemcpyHtoD)(unsigned long long to, const void* from, size_t bytes);
static int (*cuMemcpyDtoH)(void* to, unsigned long long from, size_t bytes);

#define CUDA(call)                                    \
  do {                                                \
    const int error = (call);                         \
    if (error != 0) {                                 \
      fprintf(stderr, "%s: CUDA %d\n", #call, error); \
      exit(1);                                        \
    }                                                 \
  } while (0)

static int open_driver(void) {
  const char* path = getenv("LATHE_CUDA");
  void* library = dlopen(path != NULL ? path : "libcuda.so.1", RTLD_NOW);
  if (library == NULL) return 0;
  /* ISO C has no cast from an object to a function; POSIX promises that this works. */
  *(void**)&cuInit = dlsym(library, "cuInit");
  *(void**)&cuDevicePrimaryCtxRetain = dlsym(library, "cuDevicePrimaryCtxRetain");
  *(void**)&cuCtxPushCurrent = dlsym(library, "cuCtxPushCurrent_v2");
  *(void**)&cuStreamCreate = dlsym(library, "cuStreamCreate");
  *(void**)&cuStreamSynchronize = dlsym(library, "cuStreamSynchronize");
  *(void**)&cuMemAlloc = dlsym(library, "cuMemAlloc_v2");
  *(void**)&cuMemcpyHtoD = dlsym(library, "cuMemcpyHtoD_v2");
  *(void**)&cuMemcpyDtoH = dlsym(library, "cuMemcpyDtoH_v2");
  return cuInit != NULL && cuMemAlloc != NULL && cuMemcpyHtoD != NULL && cuMemcpyDtoH != NULL && cuInit(0) == 0;
}

static lathe_tensor on_device(unsigned long long address, int64_t* shape) {
  lathe_tensor t = tensor_on((float*)(uintptr_t)address, shape, 1);
  t.device.type = 2; /* CUDA */
  t.device.id = 0;
  return t;
}

int main(void) {
  if (!open_driver()) {
    printf("on a GPU: no CUDA driver, nothing to show\n");
    return 0;
  }
  void *primary = NULL, *stream = NULL;
  unsigned long long x_at = 0, y_at = 0;
  CUDA(cuDevicePrimaryCtxRetain(&primary, 0));
  CUDA(cuCtxPushCurrent(primary));
  CUDA(cuStreamCreate(&stream, 1)); /* not the default stream */
  CUDA(cuMemAlloc(&x_at, sizeof g_x));
  CUDA(cuMemAlloc(&y_at, sizeof g_y));
  for (int i = 0; i < kN; ++i) g_x[i] = (float)(i % 17 - 8);
  CUDA(cuMemcpyHtoD(x_at, g_x, sizeof g_x));

  lathe_context* ctx = NULL;
  CHECK(lathe_context_create(NULL, &ctx, &g_error));
  const lathe_dim dims = {1, 1 << 20, 1, "N", NULL, 0};
  const lathe_tensor_desc input = describe("x", &dims, 1, 0);
  lathe_graph* graph = NULL;
  CHECK(lathe_graph_single(ctx, "silu", &input, 1, NULL, 0, &graph, &g_error));

  /* Device 1 is the first GPU. TUNED compiles by NVRTC what is not stored; afterwards NOW serves it. */
  lathe_policy policy = LATHE_POLICY_INIT;
  policy.wait = LATHE_WAIT_TUNED;
  policy.device = 1;
  lathe_kernel* kernel = NULL;
  CHECK(lathe_resolve(ctx, graph, &policy, &kernel, NULL, &g_error));

  int64_t shape[1] = {kN};
  const lathe_tensor x = on_device(x_at, shape), y = on_device(y_at, shape);
  const lathe_arg args[2] = {arg_of(&x), arg_of(&y)};
  lathe_exec exec = LATHE_EXEC_INIT;
  exec.stream = stream;
  CHECK(lathe_execute(kernel, args, 2, &exec, &g_error));
  CUDA(cuStreamSynchronize(stream)); /* the call itself waits for nothing */
  CUDA(cuMemcpyDtoH(g_y, y_at, sizeof g_y));

  int wrong = 0;
  for (int i = 0; i < kN; ++i) {
    const float want = g_x[i] / (1 + expf(-g_x[i]));
    wrong += fabsf(g_y[i] - want) > 1e-5f * (1 + fabsf(want));
  }
  printf("on a GPU: %d wrong numbers\n", wrong);
  lathe_kernel_destroy(kernel);
  lathe_graph_destroy(graph);
  lathe_context_destroy(ctx);
  return wrong != 0;
}
