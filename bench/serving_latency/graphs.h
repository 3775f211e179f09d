/* Graphs of the benchmark: one builder per operator family. The salt changes a fixed size, so that each salt is a graph
   nobody has seen. */
#ifndef LATHE_BENCH_SERVING_LATENCY_GRAPHS_H
#define LATHE_BENCH_SERVING_LATENCY_GRAPHS_H
#include <lathe.h>

typedef struct family {
  const char* name;
  lathe_graph* (*make)(lathe_context* ctx, int salt);
} family;
extern const family kFamilies[];
extern const int kNumFamilies;

/* y[M, columns] = a[M, PRODUCT_DEPTH] b[PRODUCT_DEPTH, columns], M up to 4,096. Where M varies the default is made
 * quickly rather than well, so that a search for a hot shape finds something to promote. */
enum { PRODUCT_DEPTH = 64 };
lathe_graph* product_rows(lathe_context* ctx, int columns);
/* A softmax of values that six masks choose: more operands than the quick generator has registers for, so that LLVM
   compiles it where it may. */
lathe_graph* deep_graph(lathe_context* ctx, int salt);

/* Ends the program with the error's message unless the call succeeded. */
void check(lathe_status status, const lathe_error* error, const char* call);

#endif
