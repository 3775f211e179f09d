/* See graphs.h. */
#include "bench/serving_latency/graphs.h"

#include <stdio.h>
#include <stdlib.h>

enum { kDeep = 6 };

void check(lathe_status status, const lathe_error* error, const char* call) {
  if (status == LATHE_STATUS_OK) return;
  fprintf(stderr, "serving_latency: %s: %s: %s\n", call, lathe_status_name(status), error->message);
  exit(1);
}

static lathe_dim fixed(int64_t size) {
  const lathe_dim out = {size, size, 1, NULL, NULL, 0};
  return out;
}

static lathe_dim any(const char* symbol, int64_t max) {
  const lathe_dim out = {1, max, 1, symbol, NULL, 0};
  return out;
}

static lathe_graph* graph_of(lathe_context* ctx, const char* name) {
  lathe_error error;
  lathe_graph* out = NULL;
  check(lathe_graph_create(ctx, name, &out, &error), &error, name);
  return out;
}

static int32_t typed(lathe_graph* graph, const char* name, const lathe_dim* dims, int ndim, uint32_t dtype,
                     uint32_t flags) {
  lathe_error error;
  lathe_tensor_desc desc = LATHE_TENSOR_DESC_INIT;
  int32_t id = -1;
  desc.name = name;
  desc.dtype = dtype;
  desc.ndim = ndim;
  desc.dims = dims;
  desc.flags = flags;
  check(lathe_graph_tensor(graph, &desc, &id, &error), &error, name);
  return id;
}

static int32_t input(lathe_graph* graph, const char* name, const lathe_dim* dims, int ndim, uint32_t flags) {
  return typed(graph, name, dims, ndim, LATHE_DTYPE_F32, flags);
}

static int32_t op(lathe_graph* graph, const char* name, const int32_t* inputs, size_t num_inputs,
                  const lathe_attr* attr, const char* output) {
  lathe_error error;
  int32_t id = -1;
  check(lathe_graph_op(graph, name, inputs, num_inputs, attr, attr == NULL ? 0 : 1, output, &id, &error), &error, name);
  return id;
}

static lathe_graph* finished(lathe_graph* graph, int32_t output) {
  lathe_error error;
  check(lathe_graph_output(graph, output, &error), &error, "lathe_graph_output");
  check(lathe_graph_finish(graph, &error), &error, "lathe_graph_finish");
  return graph;
}

/* [M, columns] and nothing else. */
static lathe_graph* rows(lathe_context* ctx, const char* name, int columns) {
  lathe_graph* g = graph_of(ctx, name);
  const lathe_dim dims[2] = {any("M", 4096), fixed(columns)};
  const int32_t x = input(g, "x", dims, 2, 0);
  return finished(g, op(g, name, &x, 1, NULL, "y"));
}

lathe_graph* product_rows(lathe_context* ctx, int columns) {
  lathe_graph* g = graph_of(ctx, "product");
  const lathe_dim a_dims[2] = {any("M", 4096), fixed(PRODUCT_DEPTH)},
                  b_dims[2] = {fixed(PRODUCT_DEPTH), fixed(columns)};
  int32_t in[2];
  in[0] = input(g, "a", a_dims, 2, 0);
  in[1] = input(g, "b", b_dims, 2, 0);
  return finished(g, op(g, "matmul", in, 2, NULL, "y"));
}

static lathe_graph* make_softmax(lathe_context* ctx, int salt) { return rows(ctx, "softmax", 896 + salt); }
static lathe_graph* make_gelu(lathe_context* ctx, int salt) { return rows(ctx, "gelu", 4864 + salt); }

/* x[M, K] and a constant w[K, N]; *x gets the first. */
static int32_t product(lathe_graph* g, int64_t k, int64_t n, const char* w_name, int32_t* x) {
  const lathe_dim x_dims[2] = {any("M", 512), fixed(k)}, w_dims[2] = {fixed(k), fixed(n)};
  int32_t in[2];
  if (*x < 0) *x = input(g, "x", x_dims, 2, 0);
  in[0] = *x;
  in[1] = input(g, w_name, w_dims, 2, LATHE_TENSOR_CONST);
  return op(g, "matmul", in, 2, NULL, w_name[1] == 0 ? "p" : "q");
}

static lathe_graph* make_matmul(lathe_context* ctx, int salt) {
  lathe_graph* g = graph_of(ctx, "matmul");
  int32_t x = -1;
  return finished(g, product(g, 896, 1024 + salt, "w", &x));
}

static lathe_graph* make_scores(lathe_context* ctx, int salt) {
  lathe_graph* g = graph_of(ctx, "scores");
  const lathe_dim q_dims[3] = {fixed(14), any("M", 512), fixed(64 + salt)},
                  k_dims[3] = {fixed(14), any("L", 2048), fixed(64 + salt)};
  lathe_attr attr = {"transpose_b", LATHE_ATTR_BOOL, 0, 1, 0, NULL, NULL, 0};
  int32_t in[2];
  in[0] = input(g, "q", q_dims, 3, 0);
  in[1] = input(g, "k", k_dims, 3, 0);
  return finished(g, op(g, "matmul", in, 2, &attr, "s"));
}

static lathe_graph* make_norm(lathe_context* ctx, const char* name, int inputs, int salt) {
  lathe_graph* g = graph_of(ctx, name);
  const lathe_dim x_dims[2] = {any("M", 4096), fixed(896 + salt)}, s_dims[1] = {fixed(896 + salt)};
  int32_t in[3];
  in[0] = input(g, "x", x_dims, 2, 0);
  in[1] = input(g, "s", s_dims, 1, LATHE_TENSOR_CONST);
  if (inputs == 3) in[2] = input(g, "b", s_dims, 1, LATHE_TENSOR_CONST);
  return finished(g, op(g, name, in, (size_t)inputs, NULL, "y"));
}
static lathe_graph* make_layernorm(lathe_context* ctx, int salt) { return make_norm(ctx, "layernorm", 3, salt); }
static lathe_graph* make_rmsnorm(lathe_context* ctx, int salt) { return make_norm(ctx, "rmsnorm", 2, salt); }

static lathe_graph* make_add(lathe_context* ctx, int salt) {
  lathe_graph* g = graph_of(ctx, "add");
  const lathe_dim dims[2] = {any("M", 4096), fixed(896 + salt)};
  int32_t in[2];
  in[0] = input(g, "a", dims, 2, 0);
  in[1] = input(g, "b", dims, 2, 0);
  return finished(g, op(g, "add", in, 2, NULL, "y"));
}

static lathe_graph* make_rope(lathe_context* ctx, int salt) {
  lathe_graph* g = graph_of(ctx, "rope");
  const lathe_dim x_dims[3] = {any("T", 4096), fixed(14 + salt), fixed(64)}, a_dims[2] = {any("T", 4096), fixed(32)};
  int32_t in[3];
  in[0] = input(g, "x", x_dims, 3, 0);
  in[1] = input(g, "cos", a_dims, 2, 0);
  in[2] = input(g, "sin", a_dims, 2, 0);
  return finished(g, op(g, "rope", in, 3, NULL, "y"));
}

static lathe_graph* make_transpose(lathe_context* ctx, int salt) {
  static const int64_t kPerm[2] = {1, 0};
  lathe_graph* g = graph_of(ctx, "transpose");
  const lathe_dim dims[2] = {any("M", 4096), fixed(896 + salt)};
  const lathe_attr attr = {"perm", LATHE_ATTR_INTS, 0, 0, 0, NULL, kPerm, 2};
  const int32_t x = input(g, "x", dims, 2, 0);
  return finished(g, op(g, "transpose", &x, 1, &attr, "y"));
}

/* relu(x w + b): one group. */
static lathe_graph* make_linear_relu(lathe_context* ctx, int salt) {
  lathe_graph* g = graph_of(ctx, "linear_relu");
  const lathe_dim b_dims[1] = {fixed(1024 + salt)};
  int32_t x = -1, in[2], y;
  in[0] = product(g, 896, 1024 + salt, "w", &x);
  in[1] = input(g, "b", b_dims, 1, LATHE_TENSOR_CONST);
  y = op(g, "add", in, 2, NULL, "z");
  return finished(g, op(g, "relu", &y, 1, NULL, "y"));
}

/* silu(x w) * (x w2): products and what joins them. */
static lathe_graph* make_gated(lathe_context* ctx, int salt) {
  lathe_graph* g = graph_of(ctx, "gated");
  int32_t x = -1, in[2];
  in[0] = product(g, 896, 1024 + salt, "w", &x);
  in[1] = product(g, 896, 1024 + salt, "w2", &x);
  return finished(g, op(g, "swiglu", in, 2, NULL, "y"));
}

/* A prompt: 14 heads over 2 of keys and values. */
static lathe_graph* make_attention(lathe_context* ctx, int salt) {
  lathe_graph* g = graph_of(ctx, "attention");
  const lathe_dim q_dims[3] = {fixed(14), any("T", 4096), fixed(64 + salt)},
                  kv_dims[3] = {fixed(2), any("T", 4096), fixed(64 + salt)};
  const lathe_attr attr = {"causal", LATHE_ATTR_BOOL, 0, 1, 0, NULL, NULL, 0};
  int32_t in[3];
  in[0] = input(g, "q", q_dims, 3, 0);
  in[1] = input(g, "k", kv_dims, 3, 0);
  in[2] = input(g, "v", kv_dims, 3, 0);
  return finished(g, op(g, "attention", in, 3, &attr, "y"));
}

/* A step of each of B sequences over a cache in pages of 16. */
static lathe_graph* make_decode(lathe_context* ctx, int salt) {
  lathe_graph* g = graph_of(ctx, "decode");
  const lathe_dim q_dims[4] = {any("B", 64), fixed(14), fixed(1), fixed(64 + salt)},
                  kv_dims[4] = {any("P", 65536), fixed(2), fixed(16), fixed(64 + salt)},
                  length_dims[1] = {any("B", 64)}, page_dims[2] = {any("B", 64), any("N", 256)};
  int32_t in[5];
  in[0] = input(g, "q", q_dims, 4, 0);
  in[1] = input(g, "k", kv_dims, 4, 0);
  in[2] = input(g, "v", kv_dims, 4, 0);
  in[3] = typed(g, "lengths", length_dims, 1, LATHE_DTYPE_I32, 0);
  in[4] = typed(g, "pages", page_dims, 2, LATHE_DTYPE_I32, 0);
  return finished(g, op(g, "paged_attention", in, 5, NULL, "y"));
}

/* x[M, 896] and a weight of 4 bits, 32 of which have a scale: 18 bytes. */
static lathe_graph* make_low_bits(lathe_context* ctx, int salt) {
  lathe_graph* g = graph_of(ctx, "low_bits");
  const lathe_dim x_dims[2] = {any("M", 512), fixed(896)}, w_dims[2] = {fixed(1024 + salt), fixed(896 / 32 * 18)};
  const lathe_attr attr = {"format", LATHE_ATTR_STRING, 0, 0, 0, "q4_0", NULL, 0};
  int32_t in[2];
  in[0] = input(g, "x", x_dims, 2, 0);
  in[1] = typed(g, "w", w_dims, 2, LATHE_DTYPE_U8, LATHE_TENSOR_CONST);
  return finished(g, op(g, "quantized_matmul", in, 2, &attr, "y"));
}

/* Keys of T tokens to the slots of a cache. */
static lathe_graph* make_append(lathe_context* ctx, int salt) {
  lathe_graph* g = graph_of(ctx, "append");
  const lathe_dim x_dims[3] = {any("T", 4096), fixed(2), fixed(64 + salt)}, slot_dims[1] = {any("T", 4096)},
                  c_dims[3] = {any("P", 65536), fixed(2), fixed(64 + salt)};
  int32_t in[3];
  in[0] = input(g, "x", x_dims, 3, 0);
  in[1] = typed(g, "slots", slot_dims, 1, LATHE_DTYPE_I32, 0);
  in[2] = input(g, "cache", c_dims, 3, 0);
  return finished(g, op(g, "kv_append", in, 3, NULL, "y"));
}

/* Rows sorted by expert, of eight. */
static lathe_graph* make_experts(lathe_context* ctx, int salt) {
  lathe_graph* g = graph_of(ctx, "experts");
  const lathe_dim x_dims[2] = {any("M", 4096), fixed(896)}, w_dims[3] = {fixed(8), fixed(896), fixed(1024 + salt)},
                  o_dims[1] = {fixed(9)};
  int32_t in[3];
  in[0] = input(g, "x", x_dims, 2, 0);
  in[1] = input(g, "w", w_dims, 3, LATHE_TENSOR_CONST);
  in[2] = typed(g, "offsets", o_dims, 1, LATHE_DTYPE_I32, 0);
  return finished(g, op(g, "grouped_matmul", in, 3, NULL, "y"));
}

static lathe_graph* make_gather(lathe_context* ctx, int salt) {
  lathe_graph* g = graph_of(ctx, "gather");
  const lathe_dim t_dims[2] = {any("V", 262144), fixed(896 + salt)}, i_dims[1] = {any("T", 4096)};
  int32_t in[2];
  in[0] = input(g, "table", t_dims, 2, 0);
  in[1] = typed(g, "ids", i_dims, 1, LATHE_DTYPE_I32, 0);
  return finished(g, op(g, "gather", in, 2, NULL, "y"));
}

static lathe_graph* make_top_k(lathe_context* ctx, int salt) {
  lathe_graph* g = graph_of(ctx, "top_k");
  const lathe_dim dims[2] = {any("M", 64), fixed(32768 + salt)};
  const lathe_attr attr = {"k", LATHE_ATTR_INT, 0, 8, 0, NULL, NULL, 0};
  const int32_t x = input(g, "x", dims, 2, 0);
  lathe_error error;
  const int32_t y = op(g, "top_k", &x, 1, &attr, "y");
  check(lathe_graph_output(g, y, &error), &error, "lathe_graph_output");
  return finished(g, y + 1); /* the indices */
}

lathe_graph* deep_graph(lathe_context* ctx, int salt) {
  lathe_graph* g = graph_of(ctx, "deep");
  const lathe_dim dims[2] = {fixed(5), fixed(130 + salt)};
  char name[16];
  int32_t in[3], z, x, y;
  x = input(g, "x", dims, 2, 0);
  y = input(g, "y", dims, 2, 0);
  z = op(g, "silu", &x, 1, NULL, "z");
  for (int i = 0; i < kDeep; ++i) {
    lathe_tensor_desc mask = LATHE_TENSOR_DESC_INIT;
    lathe_error error;
    snprintf(name, sizeof(name), "mask%d", i);
    mask.name = name;
    mask.dtype = LATHE_DTYPE_BOOL;
    mask.ndim = 2;
    mask.dims = dims;
    check(lathe_graph_tensor(g, &mask, &in[0], &error), &error, name);
    in[1] = z;
    snprintf(name, sizeof(name), "g%d", i);
    in[2] = op(g, "gelu", &y, 1, NULL, name);
    snprintf(name, sizeof(name), "z%d", i);
    z = op(g, "where", in, 3, NULL, name);
  }
  return finished(g, op(g, "softmax", &z, 1, NULL, "out"));
}

const family kFamilies[] = {{"matmul", make_matmul},       {"scores", make_scores},
                            {"softmax", make_softmax},     {"layernorm", make_layernorm},
                            {"rmsnorm", make_rmsnorm},     {"add", make_add},
                            {"gelu", make_gelu},           {"rope", make_rope},
                            {"transpose", make_transpose}, {"linear_relu", make_linear_relu},
                            {"gated", make_gated},         {"attention", make_attention},
                            {"decode", make_decode},       {"low_bits", make_low_bits},
                            {"append", make_append},       {"experts", make_experts},
                            {"gather", make_gather},       {"top_k", make_top_k}};
const int kNumFamilies = (int)(sizeof(kFamilies) / sizeof(kFamilies[0]));
