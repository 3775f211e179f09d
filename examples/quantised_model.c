/* The attention of one layer of a language model, token by token: projections that multiply by an engine's own q4_0
 * blocks, packed once, and attention over keys and values in pages that a table names, as an engine hands them out. */
#include <math.h>
#include <string.h>

#include "example.h"

enum { kHidden = 64, kHeads = 4, kKvHeads = 2, kDepth = 16, kTokens = 20 };
enum { kPage = 8, kPages = 6, kTableRoom = 4, kRoom = kTableRoom * kPage }; /* tokens of a page; pages of the pool */
enum { kBlock = 32, kBlockBytes = 18, kRowBytes = kHidden / kBlock * kBlockBytes };

/* A kernel with its workspace for calls of one shape, and the weight that it has packed. */
typedef struct layer {
  lathe_kernel* kernel;
  lathe_exec exec;
  void *packed_base, *workspace_base;
  lathe_tensor weight;
  uint64_t layout_id;
} layer;

/* A weight [n, 64] as a model file has it: per 32 inputs a scale in f16, then 16 bytes of two 4-bit numbers each. */
static void make_weight(unsigned char* bytes, int n, unsigned seed) {
  for (int block = 0; block < n * kHidden / kBlock; ++block) {
    unsigned char* at = bytes + block * kBlockBytes;
    at[0] = 0;
    at[1] = (unsigned char)(0x24 + block % 3 * 4); /* 1/64, 1/32 or 1/16 */
    for (int i = 0; i < 16; ++i) at[2 + i] = (unsigned char)((seed = seed * 1103515245u + 12345u) >> 16);
  }
}

static float weight_at(const unsigned char* bytes, int row, int k) {
  const unsigned char* at = bytes + row * kRowBytes + k / kBlock * kBlockBytes;
  const float scale = ldexpf(1, (at[1] >> 2) - 15);
  const int i = k % kBlock, two = at[2 + i % 16];
  return scale * (float)((i < 16 ? two & 15 : two >> 4) - 8);
}

/* y[M, n] = x[M, 64] * weight[n, 64]^T, its weight packed. */
static layer make_projection(lathe_context* ctx, unsigned char* bytes, int n, int64_t* w_shape) {
  layer out;
  lathe_graph* graph = NULL;
  lathe_dim x_dims[2] = {{1, 512, 1, "M", NULL, 0}, {kHidden, kHidden, 1, NULL, NULL, 0}};
  lathe_dim w_dims[2];
  lathe_tensor_desc inputs[2];
  lathe_attr format = {"format", LATHE_ATTR_STRING, 0, 0, 0, "q4_0", NULL, 0};
  lathe_pack_info pack;
  memset(&out, 0, sizeof out);
  w_dims[0] = fixed_dim(n);
  w_dims[1] = fixed_dim(kRowBytes);
  inputs[0] = describe("x", x_dims, 2, 0);
  inputs[1] = describe("w", w_dims, 2, LATHE_TENSOR_CONST);
  inputs[1].dtype = LATHE_DTYPE_U8;
  CHECK(lathe_graph_single(ctx, "quantized_matmul", inputs, 2, &format, 1, &graph, &g_error));
  CHECK(lathe_resolve(ctx, graph, NULL, &out.kernel, NULL, &g_error));
  lathe_graph_destroy(graph);

  w_shape[0] = n;
  w_shape[1] = kRowBytes;
  out.weight = tensor_on(NULL, w_shape, 2);
  out.weight.data = bytes;
  out.weight.dtype.code = LATHE_TYPE_CODE_UINT;
  out.weight.dtype.bits = 8;
  CHECK(lathe_prepack_query(out.kernel, 1, &pack, &g_error));
  if (pack.bytes > 0) {
    void* packed = aligned(pack.bytes, &out.packed_base);
    CHECK(lathe_prepack(out.kernel, 1, &out.weight, packed, pack.bytes, &g_error));
    out.weight.data = packed;
    out.layout_id = pack.layout_id;
  }
  return out;
}

/* lengths[1] of the tokens in the pages [6, 2, 8, 16] that pages[1, 4] names count; the query is the last of them. */
static layer make_attention(lathe_context* ctx) {
  layer out;
  lathe_graph* graph = NULL;
  lathe_dim q_dims[4], kv_dims[4], length_dims[1], table_dims[2];
  lathe_tensor_desc inputs[5];
  memset(&out, 0, sizeof out);
  length_dims[0] = table_dims[0] = q_dims[0] = q_dims[2] = fixed_dim(1);
  table_dims[1] = fixed_dim(kTableRoom);
  kv_dims[0] = fixed_dim(kPages);
  q_dims[1] = fixed_dim(kHeads);
  kv_dims[1] = fixed_dim(kKvHeads);
  kv_dims[2] = fixed_dim(kPage);
  q_dims[3] = kv_dims[3] = fixed_dim(kDepth);
  inputs[0] = describe("q", q_dims, 4, 0);
  inputs[1] = describe("k", kv_dims, 4, 0);
  inputs[2] = describe("v", kv_dims, 4, 0);
  inputs[3] = describe("lengths", length_dims, 1, 0);
  inputs[4] = describe("pages", table_dims, 2, 0);
  inputs[3].dtype = inputs[4].dtype = LATHE_DTYPE_I32;
  CHECK(lathe_graph_single(ctx, "paged_attention", inputs, 5, NULL, 0, &graph, &g_error));
  CHECK(lathe_resolve(ctx, graph, NULL, &out.kernel, NULL, &g_error));
  lathe_graph_destroy(graph);
  return out;
}

static void run(layer* l, lathe_arg* args, size_t n) {
  if (l->workspace_base == NULL) {
    CHECK(lathe_workspace_bytes(l->kernel, args, n, 1, &l->exec.workspace_bytes, &g_error));
    const uint64_t bytes = l->exec.workspace_bytes;
    const lathe_exec fresh = LATHE_EXEC_INIT;
    l->exec = fresh;
    l->exec.workspace = aligned(bytes, &l->workspace_base);
    l->exec.workspace_bytes = bytes;
  }
  CHECK(lathe_execute(l->kernel, args, n, &l->exec, &g_error));
}

static void project(layer* l, float* x, float* y) {
  int64_t x_shape[2] = {1, kHidden}, y_shape[2] = {1, l->weight.shape[0]};
  lathe_tensor in = tensor_on(x, x_shape, 2), out = tensor_on(y, y_shape, 2);
  lathe_arg args[3];
  args[0] = arg_of(&in);
  args[1] = arg_of(&l->weight);
  args[1].layout_id = l->layout_id;
  args[2] = arg_of(&out);
  run(l, args, 3);
}

/* The pool of pages, and those of the sequence in the order of its tokens: an engine takes any that are free. */
static float g_k[kPages * kKvHeads * kPage * kDepth], g_v[kPages * kKvHeads * kPage * kDepth];
static int32_t g_table[kTableRoom] = {4, 1, 5, 0};

/* Where the key, or value, of a token's head lies in the pool. */
static int row_of(int head, int token) {
  return ((g_table[token / kPage] * kKvHeads + head) * kPage + token % kPage) * kDepth;
}

static lathe_tensor integers_on(int32_t* data, int64_t* shape, int32_t ndim) {
  lathe_tensor out = tensor_on(NULL, shape, ndim);
  out.data = data;
  out.dtype.code = LATHE_TYPE_CODE_INT;
  return out;
}

static void attend(layer* l, float* q, int32_t length, float* y) {
  int64_t q_shape[4] = {1, kHeads, 1, kDepth}, kv_shape[4] = {kPages, kKvHeads, kPage, kDepth};
  int64_t one[1] = {1}, table[2] = {1, kTableRoom};
  lathe_tensor tensors[6];
  lathe_arg args[6];
  tensors[0] = tensor_on(q, q_shape, 4);
  tensors[1] = tensor_on(g_k, kv_shape, 4);
  tensors[2] = tensor_on(g_v, kv_shape, 4);
  tensors[3] = integers_on(&length, one, 1);
  tensors[4] = integers_on(g_table, table, 2);
  tensors[5] = tensor_on(y, q_shape, 4);
  for (int i = 0; i < 6; ++i) args[i] = arg_of(&tensors[i]);
  run(l, args, 6);
}

/* The same in plain loops, from the weights' definition and the cache. */
static void expected(const unsigned char* wq, const unsigned char* wo, const float* x, int length, float* y) {
  float mixed[kHeads * kDepth];
  for (int h = 0; h < kHeads; ++h) {
    const int kv = h / (kHeads / kKvHeads);
    float q[kDepth], score[kRoom], most = -INFINITY, sum = 0;
    for (int d = 0; d < kDepth; ++d) {
      q[d] = 0;
      for (int k = 0; k < kHidden; ++k) q[d] += x[k] * weight_at(wq, h * kDepth + d, k);
    }
    for (int t = 0; t < length; ++t) {
      score[t] = 0;
      for (int d = 0; d < kDepth; ++d) score[t] += q[d] * g_k[row_of(kv, t) + d] / sqrtf(kDepth);
      most = fmaxf(most, score[t]);
    }
    for (int t = 0; t < length; ++t) sum += score[t] = expf(score[t] - most);
    for (int d = 0; d < kDepth; ++d) {
      mixed[h * kDepth + d] = 0;
      for (int t = 0; t < length; ++t) mixed[h * kDepth + d] += score[t] / sum * g_v[row_of(kv, t) + d];
    }
  }
  for (int n = 0; n < kHidden; ++n) {
    y[n] = 0;
    for (int k = 0; k < kHidden; ++k) y[n] += mixed[k] * weight_at(wo, n, k);
  }
}

int main(void) {
  static unsigned char wq[kHidden * kRowBytes], wo[kHidden * kRowBytes];
  static unsigned char wk[kKvHeads * kDepth * kRowBytes], wv[kKvHeads * kDepth * kRowBytes];
  int64_t shapes[4][2];
  lathe_context* ctx = NULL;
  float worst = 0;
  make_weight(wq, kHidden, 1);
  make_weight(wk, kKvHeads * kDepth, 2);
  make_weight(wv, kKvHeads * kDepth, 3);
  make_weight(wo, kHidden, 4);
  CHECK(lathe_context_create(NULL, &ctx, &g_error));
  layer layers[5];
  layers[0] = make_projection(ctx, wq, kHidden, shapes[0]);
  layers[1] = make_projection(ctx, wk, kKvHeads * kDepth, shapes[1]);
  layers[2] = make_projection(ctx, wv, kKvHeads * kDepth, shapes[2]);
  layers[3] = make_projection(ctx, wo, kHidden, shapes[3]);
  layers[4] = make_attention(ctx);

  for (int t = 0; t < kTokens; ++t) {
    float x[kHidden], q[kHidden], k[kKvHeads * kDepth], v[kKvHeads * kDepth], mixed[kHidden], y[kHidden],
        wanted[kHidden];
    for (int i = 0; i < kHidden; ++i) x[i] = (float)((i * 5 + t * 3) % 11 - 5) / 8;
    project(&layers[0], x, q);
    project(&layers[1], x, k);
    project(&layers[2], x, v);
    for (int h = 0; h < kKvHeads; ++h) {
      memcpy(g_k + row_of(h, t), k + h * kDepth, sizeof(float) * kDepth);
      memcpy(g_v + row_of(h, t), v + h * kDepth, sizeof(float) * kDepth);
    }
    attend(&layers[4], q, t + 1, mixed);
    project(&layers[3], mixed, y);
    expected(wq, wo, x, t + 1, wanted);
    for (int i = 0; i < kHidden; ++i) worst = fmaxf(worst, fabsf(y[i] - wanted[i]));
  }
  printf("quantised model: %d tokens, worst error %g\n", kTokens, (double)worst);
  for (int i = 0; i < 5; ++i) {
    free(layers[i].packed_base);
    free(layers[i].workspace_base);
    lathe_kernel_destroy(layers[i].kernel);
  }
  lathe_context_destroy(ctx);
  return !(worst < 1e-4f);
}
