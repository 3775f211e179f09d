/* What a call costs in several builds of the library, all in one process and turn by turn: microseconds of
 * lathe_execute at a shape that was called before, and of lathe_pinned_run. The operator is relu on [M, 16] f32 at
 * M = 1, whose work is one vector. Give the build before, the same file under another name as control, and the new one:
 * what differs by no more than the first two do has not changed.
 *
 *   execute_calls before.so copy_of_before.so build/release/runtime/liblathe.so
 *
 * Prints a line of JSON for each library: the median over rounds, and over the first library of the same round. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "include/lathe.h"

enum { kMost = 8, kRounds = 101, kCalls = 5000, kColumns = 16 };

typedef struct build {
  void* library;
  lathe_context* context;
  lathe_graph* graph;
  lathe_kernel* kernel;
  lathe_pinned* pinned;
  lathe_status (*execute)(lathe_kernel*, const lathe_arg*, size_t, const lathe_exec*, lathe_error*);
  lathe_status (*pinned_run)(const lathe_pinned*, void* const*, const lathe_exec*);
  double us[2][kRounds], over_first[2][kRounds];
} build;

static _Alignas(64) float x_data[kColumns], y_data[kColumns];
static int64_t shape[2] = {1, kColumns};
static lathe_tensor tensors[2];
static lathe_arg args[2];
static void* data[2] = {x_data, y_data};

static void set_arguments(void) {
  for (int i = 0; i < 2; ++i) {
    tensors[i].data = data[i];
    tensors[i].device.type = 1;
    tensors[i].ndim = 2;
    tensors[i].dtype.code = 2;
    tensors[i].dtype.bits = 32;
    tensors[i].dtype.lanes = 1;
    tensors[i].shape = shape;
    args[i].tensor = &tensors[i];
  }
}

/* Reads a function of the library; ends the program where there is none. ISO C has no cast to it. */
static void find(const build* b, const char* name, void* function) {
  void* found = dlsym(b->library, name);
  if (found == NULL) {
    fprintf(stderr, "execute_calls: %s\n", dlerror());
    exit(1);
  }
  memcpy(function, &found, sizeof found);
}

static void must(lathe_status status, const lathe_error* error) {
  if (status == LATHE_STATUS_OK) return;
  fprintf(stderr, "execute_calls: %s\n", error->message);
  exit(1);
}

static void open_build(build* b, const char* path) {
  lathe_status (*create)(const lathe_context_options*, lathe_context**, lathe_error*);
  lathe_status (*single)(lathe_context*, const char*, const lathe_tensor_desc*, size_t, const lathe_attr*, size_t,
                         lathe_graph**, lathe_error*);
  lathe_status (*resolve)(lathe_context*, const lathe_graph*, const lathe_policy*, lathe_kernel**, lathe_kernel_info*,
                          lathe_error*);
  lathe_status (*pin)(lathe_kernel*, const lathe_arg*, size_t, int32_t, lathe_pinned**, lathe_error*);
  lathe_error error = {0};
  lathe_tensor_desc x = LATHE_TENSOR_DESC_INIT;
  lathe_dim dims[2] = {{1, 64, 1, "M", NULL, 0}, {kColumns, kColumns, 1, NULL, NULL, 0}};
  b->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (b->library == NULL) {
    fprintf(stderr, "execute_calls: %s\n", dlerror());
    exit(1);
  }
  find(b, "lathe_context_create", &create);
  find(b, "lathe_graph_single", &single);
  find(b, "lathe_resolve", &resolve);
  find(b, "lathe_pin", &pin);
  find(b, "lathe_execute", &b->execute);
  find(b, "lathe_pinned_run", &b->pinned_run);
  x.name = "x";
  x.ndim = 2;
  x.dims = dims;
  must(create(NULL, &b->context, &error), &error);
  must(single(b->context, "relu", &x, 1, NULL, 0, &b->graph, &error), &error);
  must(resolve(b->context, b->graph, NULL, &b->kernel, NULL, &error), &error);
  must(pin(b->kernel, args, 2, 1, &b->pinned, &error), &error);
  for (int i = 0; i < kColumns; ++i) x_data[i] = i % 2 == 0 ? 1.0f : -1.0f;
  for (int pinned = 0; pinned < 2; ++pinned) {
    y_data[0] = y_data[1] = 7;
    must(pinned ? b->pinned_run(b->pinned, data, NULL) : b->execute(b->kernel, args, 2, NULL, &error), &error);
    if (y_data[0] == 1 && y_data[1] == 0) continue;
    fprintf(stderr, "execute_calls: %s: relu(1), relu(-1) = %g, %g\n", path, y_data[0], y_data[1]);
    exit(1);
  }
}

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* Microseconds of a call, the least of three runs. */
static double sample(const build* b, int pinned) {
  double best = 1e30;
  for (int again = 0; again < 3; ++again) {
    const double begin = now_us();
    for (int i = 0; i < kCalls; ++i) {
      if (pinned)
        (void)b->pinned_run(b->pinned, data, NULL);
      else
        (void)b->execute(b->kernel, args, 2, NULL, NULL);
    }
    const double us = (now_us() - begin) / kCalls;
    if (us < best) best = us;
  }
  return best;
}

static int order(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}
static double median(double* v) {
  qsort(v, kRounds, sizeof *v, order);
  return v[kRounds / 2];
}

int main(int argc, char** argv) {
  static build builds[kMost];
  const int count = argc - 1;
  if (count < 1 || count > kMost) {
    fprintf(stderr, "usage: execute_calls LIBRARY..., 1 to %d builds of liblathe.so\n", kMost);
    return 2;
  }
  set_arguments();
  for (int i = 0; i < count; ++i) open_build(&builds[i], argv[i + 1]);
  for (int round = 0; round < kRounds; ++round) {
    for (int pinned = 0; pinned < 2; ++pinned) {
      for (int n = 0; n < count; ++n) { /* each round begins with another one */
        build* b = &builds[(n + round) % count];
        b->us[pinned][round] = sample(b, pinned);
      }
      for (int n = 0; n < count; ++n)
        builds[n].over_first[pinned][round] = builds[n].us[pinned][round] / builds[0].us[pinned][round];
    }
  }
  for (int n = 0; n < count; ++n) {
    build* b = &builds[n];
    printf(
        "{\"library\": \"%s\", \"execute_us\": %.4f, \"pinned_us\": %.4f, \"execute_over_first\": %.3f, "
        "\"pinned_over_first\": %.3f}\n",
        argv[n + 1], median(b->us[0]), median(b->us[1]), median(b->over_first[0]), median(b->over_first[1]));
  }
  return 0;
}
