/* Graphs of the benchmark: one builder per operator family. The salt changes a fixed size, so that each salt is a graph nobody has seen. */
#ifndef LATHE_BENCH_SERVING_LATENCY_GRAPHS_H
#define LATHE_BENCH_SERVING_LATENCY_GRAPHS_H
#include <lathe.h>

typedef struct family {
  const char* name;
  lathe_graph* (*make)(lathe_context* ctx, int salt);
} family;
extern const family kFamilies[];
extern const int kNumFamilies;

/* softmax of [M, columns], M up to 4,096. */
lathe_graph* softmax_rows(lathe_context* ctx, int columns);
/* An expression with more values alive at once than there are registers: the quick generator refuses it, and LLVM compiles it. */
lathe_graph* deep_graph(lathe_context* ctx, int salt);

/* Ends the program with the error's message unless the call succeeded. */
void check(lathe_status status, const lathe_error* error, const char* call);

#endif
