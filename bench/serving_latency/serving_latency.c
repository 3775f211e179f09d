/* What callers wait for, measured through include/lathe.h alone: the first resolve of each operator family, each in a
 * process of its own with an empty store; then resolves of graphs and executions of shapes that nobody has seen, beside
 * a search, a promotion, a compilation by LLVM, and, as controls, beside nothing and beside a thread that only spins.
 * Progress goes to stderr. */
#define _XOPEN_SOURCE 700
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/serving_latency/beside.h"
#include "bench/serving_latency/graphs.h"

enum { kMostRepeats = 1000 };

static double clock_us(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}
double wall_us(void) { return clock_us(CLOCK_MONOTONIC); }
double cpu_us(void) { return clock_us(CLOCK_THREAD_CPUTIME_ID); }

int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return x < y ? -1 : x > y;
}

void make_store(char* path, unsigned long size) {
  snprintf(path, size, "/tmp/lathe-latency-XXXXXX");
  if (mkdtemp(path) != NULL) return;
  perror("serving_latency: a folder for the store");
  exit(1);
}

static int remove_entry(const char* path, const struct stat* what, int type, struct FTW* at) {
  (void)what;
  (void)type;
  (void)at;
  return remove(path);
}
void remove_store(const char* path) { nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS); }

/* One resolve. */
static void time_first(lathe_context* ctx, const family* f, int salt, double* wall, double* cpu) {
  lathe_error error;
  lathe_kernel* kernel = NULL;
  lathe_graph* graph = f->make(ctx, salt);
  *wall = wall_us();
  *cpu = cpu_us();
  check(lathe_resolve(ctx, graph, NULL, &kernel, NULL, &error), &error, "lathe_resolve");
  *cpu = cpu_us() - *cpu;
  *wall = wall_us() - *wall;
  lathe_kernel_destroy(kernel);
  lathe_graph_destroy(graph);
}

/* The child: makes a context, resolves a graph, then another one of the same family that is divided by the same tiles;
   the times of all three on stdout. */
static int first_resolve(const char* family_name, const char* store) {
  lathe_error error;
  lathe_layer layer = {store, LATHE_LAYER_SHARED, 0};
  lathe_context_options options = LATHE_CONTEXT_OPTIONS_INIT;
  lathe_context* ctx = NULL;
  const family* f = NULL;
  double wall[2], cpu[2], context;
  options.layers = &layer;
  options.num_layers = 1;
  context = wall_us();
  check(lathe_context_create(&options, &ctx, &error), &error, "lathe_context_create");
  context = wall_us() - context;
  for (int i = 0; i < kNumFamilies; ++i) {
    if (strcmp(kFamilies[i].name, family_name) == 0) f = &kFamilies[i];
  }
  if (f == NULL) return 2;
  for (int i = 0; i < 2; ++i) time_first(ctx, f, 64 * i, &wall[i], &cpu[i]);
  printf("%f %f %f %f\n", wall[0], cpu[0], cpu[1], context);
  lathe_context_destroy(ctx);
  return 0;
}

/* This program again, for one family. */
static int run_child(const char* self, const char* name, double* wall, double* cpu, double* next, double* context) {
  char store[256], text[128] = {0};
  int ends[2], status = 1;
  ssize_t n = 0;
  make_store(store, sizeof(store));
  if (pipe(ends) != 0) return 0;
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 1);
    close(ends[0]);
    close(ends[1]);
    execl(self, self, "--first", name, store, (char*)NULL);
    _exit(127);
  }
  close(ends[1]);
  if (child > 0) {
    n = read(ends[0], text, sizeof(text) - 1);
    waitpid(child, &status, 0);
  }
  close(ends[0]);
  remove_store(store);
  return n > 0 && status == 0 && sscanf(text, "%lf %lf %lf %lf", wall, cpu, next, context) == 4;
}

static int measure_first(const settings* s) {
  static double wall[kMostRepeats], cpu[kMostRepeats], next[kMostRepeats], context[kMostRepeats];
  const size_t n = (size_t)s->repeats;
  for (int f = 0; f < kNumFamilies; ++f) {
    const char* name = kFamilies[f].name;
    fprintf(stderr, "serving_latency: first resolve of %s, %d processes\n", name, s->repeats);
    for (int i = 0; i < s->repeats; ++i) {
      if (run_child("/proc/self/exe", name, &wall[i], &cpu[i], &next[i], &context[i])) continue;
      fprintf(stderr, "serving_latency: the process for %s failed\n", name);
      return 1;
    }
    qsort(wall, n, sizeof(double), by_value);
    qsort(cpu, n, sizeof(double), by_value);
    qsort(next, n, sizeof(double), by_value);
    qsort(context, n, sizeof(double), by_value);
    if (s->json) {
      printf(
          "{\"schema\": \"serving_latency-1\", \"event\": \"first\", \"family\": \"%s\", \"processes\": %d, "
          "\"wall_us\": %.1f, \"wall_us_worst\": %.1f, "
          "\"cpu_us\": %.1f, \"cpu_us_worst\": %.1f, \"next_cpu_us\": %.1f, \"next_cpu_us_worst\": %.1f, "
          "\"context_us\": %.1f}\n",
          name, s->repeats, wall[n / 2], wall[n - 1], cpu[n / 2], cpu[n - 1], next[n / 2], next[n - 1], context[n / 2]);
    } else {
      printf(
          "%-12s first resolve: wall %8.1f us, worst %8.1f; CPU of the caller %8.1f, worst %8.1f; of the next graph "
          "%8.1f, worst %8.1f; the context %8.1f\n",
          name, wall[n / 2], wall[n - 1], cpu[n / 2], cpu[n - 1], next[n / 2], next[n - 1], context[n / 2]);
    }
    fflush(stdout);
  }
  return 0;
}

static int usage(const char* wrong) {
  fprintf(stderr,
          "serving_latency: %s\n"
          "usage: serving_latency [--json] [--repeats N] [--seconds S] [--only "
          "first|nothing|busy|search|promotion|LLVM] [--worker PATH]\n",
          wrong);
  return 2;
}

int main(int argc, char** argv) {
  settings s = {10, 15, 0, LATHE_WORKER_PATH, NULL};
  if (argc == 4 && strcmp(argv[1], "--first") == 0) return first_resolve(argv[2], argv[3]);
  for (int i = 1; i < argc; ++i) {
    const char* value = i + 1 < argc ? argv[i + 1] : NULL;
    if (strcmp(argv[i], "--json") == 0) {
      s.json = 1;
      continue;
    }
    if (value == NULL) return usage("an option without its value, or an unknown one");
    if (strcmp(argv[i], "--repeats") == 0) {
      s.repeats = atoi(value);
    } else if (strcmp(argv[i], "--seconds") == 0) {
      s.seconds = atof(value);
    } else if (strcmp(argv[i], "--only") == 0) {
      s.only = value;
    } else if (strcmp(argv[i], "--worker") == 0) {
      s.worker = value;
    } else {
      return usage("an unknown option");
    }
    ++i;
  }
  if (s.repeats < 1 || s.repeats > kMostRepeats) return usage("--repeats: expected 1..1000");
  if (!(s.seconds > 0)) return usage("--seconds: expected more than 0");
  if (s.only == NULL || strcmp(s.only, "first") == 0) {
    const int failed = measure_first(&s);
    if (failed != 0 || s.only != NULL) return failed;
  }
  return measure_beside(&s);
}
