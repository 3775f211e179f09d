/* A caller beside other work: how long its calls take while another thread waits for a search, tunes a hot shape, has
   LLVM compile, or spins. */
#ifndef LATHE_BENCH_SERVING_LATENCY_BESIDE_H
#define LATHE_BENCH_SERVING_LATENCY_BESIDE_H

typedef struct settings {
  double seconds; /* of calls per kind of work */
  int repeats;    /* fresh processes per family */
  int json;
  const char* worker;
  const char* only; /* one kind of work; NULL: all */
} settings;

/* 0, or the exit status of a program that failed. */
int measure_beside(const settings* s);

double wall_us(void);
double cpu_us(void);                        /* of the calling thread */
int by_value(const void* a, const void* b); /* doubles, for qsort */
/* An empty folder for a store; remove_store() takes it away again. */
void make_store(char* path, unsigned long size);
void remove_store(const char* path);

#endif
