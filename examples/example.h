/* What the examples share: a failed call ends the program with Lathe's message. */
#ifndef EXAMPLE_H_
#define EXAMPLE_H_

#include <lathe.h>
#include <stdio.h>
#include <stdlib.h>

static lathe_error g_error;

#define CHECK(call)                                                                  \
  do {                                                                               \
    if ((call) != LATHE_STATUS_OK) {                                                 \
      fprintf(stderr, "%s: %s\n", lathe_status_name(g_error.code), g_error.message); \
      exit(1);                                                                       \
    }                                                                                \
  } while (0)

static inline lathe_dim fixed_dim(int64_t size) {
  lathe_dim d = {0, 0, 1, NULL, NULL, 0};
  d.min = d.max = size;
  return d;
}

static inline lathe_tensor_desc describe(const char* name, const lathe_dim* dims, int32_t ndim, uint32_t flags) {
  lathe_tensor_desc t = LATHE_TENSOR_DESC_INIT;
  t.name = name;
  t.dims = dims;
  t.ndim = ndim;
  t.flags = flags;
  return t;
}

/* A compact float tensor on memory of the caller. */
static inline lathe_tensor tensor_on(float* data, int64_t* shape, int32_t ndim) {
  lathe_tensor t = {NULL, {1, 0}, 0, {2, 32, 1}, NULL, NULL, 0};
  t.data = data;
  t.shape = shape;
  t.ndim = ndim;
  return t;
}

static inline lathe_arg arg_of(const lathe_tensor* tensor) {
  lathe_arg a = {NULL, 0, 0, 0, 0};
  a.tensor = tensor;
  return a;
}

/* 64-byte aligned inside memory of 64 more bytes, which *base gets for free(). */
static inline void* aligned(uint64_t bytes, void** base) {
  *base = malloc((size_t)bytes + 64);
  if (*base == NULL) exit(1);
  return (void*)(((uintptr_t)*base + 63) / 64 * 64);
}

#endif
