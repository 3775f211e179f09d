/* See beside.h. One thread makes the calls that are timed; another one makes Lathe work. */
#define _XOPEN_SOURCE 700
#include "bench/serving_latency/beside.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/serving_latency/graphs.h"

enum { kColumns = 16, kMaxRows = 4096, kMaxTimes = 1 << 20, kShapes = 900, kWorkspace = 1 << 20 };
#define TARGET_US 2000.0
#define SEARCH_NS 2000000000ull

typedef enum work { kNothing, kBusy, kSearch, kPromotion, kLlvm, kNumWork } work;
static const char* const kWorkNames[kNumWork] = {"nothing", "a busy thread", "a search", "a promotion",
                                                 "a compilation by LLVM"};
static const char* const kEvents[kNumWork] = {NULL, NULL, "searches", "promotions_active", "compiled_llvm"};

typedef enum call { kUnseenGraph, kSearchedGraph, kSeenShape, kUnseenShape, kNumCalls } call;
static const char* const kCallNames[kNumCalls] = {"resolve_unseen", "resolve_searched", "execute_seen",
                                                  "execute_unseen"};

typedef struct times {
  double* us;
  size_t n;
} times;

typedef struct scene {
  lathe_context* ctx;
  work kind;
  pthread_mutex_t mutex; /* of what follows */
  int stop;
  /* What the other thread works at: the salt of its graph, the columns of its hot kernel; -1: nothing yet. */
  int at_hand;
} scene;

static float g_x[kMaxRows * PRODUCT_DEPTH], g_y[kMaxRows * kColumns];
static void* g_workspace;

static int stopped(scene* s) {
  pthread_mutex_lock(&s->mutex);
  const int out = s->stop;
  pthread_mutex_unlock(&s->mutex);
  return out;
}

static int at_hand(scene* s) {
  pthread_mutex_lock(&s->mutex);
  const int out = s->at_hand;
  pthread_mutex_unlock(&s->mutex);
  return out;
}

static void take_in_hand(scene* s, int what) {
  pthread_mutex_lock(&s->mutex);
  s->at_hand = what;
  pthread_mutex_unlock(&s->mutex);
}

static lathe_kernel* resolved(scene* s, lathe_graph* graph, uint32_t wait) {
  lathe_error error;
  lathe_policy policy = LATHE_POLICY_INIT;
  lathe_kernel* out = NULL;
  policy.wait = wait;
  policy.deadline_ns = SEARCH_NS;
  check(lathe_resolve(s->ctx, graph, &policy, &out, NULL, &error), &error, "lathe_resolve");
  lathe_graph_destroy(graph);
  return out;
}

/* product_rows(), of so many rows */
static void execute(lathe_kernel* kernel, int64_t rows, int64_t columns, float* y) {
  lathe_error error;
  int64_t shape[3][2];
  lathe_tensor tensors[3];
  lathe_arg args[3];
  lathe_exec exec = LATHE_EXEC_INIT;
  memset(args, 0, sizeof(args));
  for (int i = 0; i < 3; ++i) {
    const lathe_tensor plain = {i == 2 ? (void*)y : (void*)g_x, {1, 0}, 2, {2, 32, 1}, NULL, NULL, 0};
    tensors[i] = plain;
    shape[i][0] = i == 1 ? PRODUCT_DEPTH : rows;
    shape[i][1] = i == 0 ? PRODUCT_DEPTH : columns;
    tensors[i].shape = shape[i];
    args[i].tensor = &tensors[i];
  }
  exec.workspace = g_workspace;
  exec.workspace_bytes = kWorkspace;
  check(lathe_execute(kernel, args, 3, &exec, &error), &error, "lathe_execute");
}

/* --- the other thread --- */

static void search_one(scene* s, int round) {
  take_in_hand(s, 10000 + round);
  lathe_kernel_destroy(resolved(s, kFamilies[round % kNumFamilies].make(s->ctx, 10000 + round), LATHE_WAIT_TUNED));
}

static void compile_one(scene* s, int round) {
  lathe_error error;
  lathe_budget budget = LATHE_BUDGET_INIT;
  lathe_plan* plan = NULL;
  lathe_graph* graph = deep_graph(s->ctx, round);
  budget.candidates = 1;
  check(lathe_plan_create(s->ctx, &plan, &error), &error, "lathe_plan_create");
  check(lathe_plan_add(plan, graph, 1, &error), &error, "lathe_plan_add");
  check(lathe_plan_run(plan, &budget, NULL, NULL, NULL, &error), &error, "lathe_plan_run");
  lathe_plan_destroy(plan);
  lathe_graph_destroy(graph);
}

/* Many shapes of one range, and one of them hot until something took over, or for twenty seconds. The calls pause, so
   that the search, which makes way for them, gets on where there are two processors. */
static void heat_one(scene* s, int round) {
  static const struct timespec kPause = {0, 4000000};
  static float y[kMaxRows * kColumns];
  const int columns = kColumns - round % 8;
  lathe_kernel* kernel = resolved(s, product_rows(s->ctx, columns), LATHE_WAIT_NOW);
  uint64_t before = 0, now = 0;
  const double start = wall_us();
  take_in_hand(s, columns);
  lathe_stats(s->ctx, kEvents[kPromotion], &before, NULL);
  for (int i = 0; i < kShapes; ++i) execute(kernel, 2049 + i, columns, y);
  for (now = before; now == before && wall_us() - start < 2e7 && !stopped(s);) {
    for (int i = 0; i < 64; ++i) execute(kernel, 2049, columns, y);
    nanosleep(&kPause, NULL);
    lathe_stats(s->ctx, kEvents[kPromotion], &now, NULL);
  }
  lathe_kernel_destroy(kernel);
}

static void* other_thread(void* at) {
  scene* s = at;
  volatile double spun = 0;
  for (int round = 0; !stopped(s); ++round) {
    if (s->kind == kSearch) search_one(s, round);
    if (s->kind == kLlvm) compile_one(s, round);
    if (s->kind == kPromotion) heat_one(s, round);
    if (s->kind == kBusy)
      for (int i = 0; i < 100000; ++i) spun += i;
  }
  return NULL;
}

/* --- the caller --- */

static void note(times* t, double us) {
  if (t->n < kMaxTimes) t->us[t->n++] = us;
}

/* Destroying is no part of it. */
static void time_resolve(scene* s, times* t, int salt) {
  lathe_graph* graph = kFamilies[salt % kNumFamilies].make(s->ctx, salt);
  lathe_error error;
  lathe_kernel* kernel = NULL;
  const double start = wall_us();
  check(lathe_resolve(s->ctx, graph, NULL, &kernel, NULL, &error), &error, "lathe_resolve");
  note(t, wall_us() - start);
  lathe_kernel_destroy(kernel);
  lathe_graph_destroy(graph);
}

static void time_execute(times* t, lathe_kernel* kernel, int64_t rows, int64_t columns) {
  const double start = wall_us();
  execute(kernel, rows, columns, g_y);
  note(t, wall_us() - start);
}

static void call_for(scene* s, double seconds, times* t) {
  const double end = wall_us() + seconds * 1e6;
  int salt = 0, searched = -1;
  for (int batch = 0; wall_us() < end; ++batch) {
    /* The operator that is being promoted, if one is; else another one now and then: none keeps more than 1,024 shapes.
       */
    const int other = at_hand(s), columns = s->kind == kPromotion && other > 0 ? other : 1 + batch % (kColumns / 2);
    lathe_kernel* kernel = resolved(s, product_rows(s->ctx, columns), LATHE_WAIT_NOW);
    for (int i = 0; i < 32 && wall_us() < end; ++i) {
      time_resolve(s, &t[kUnseenGraph], salt++);
      if (s->kind == kSearch && at_hand(s) != searched) {
        searched = at_hand(s);
        time_resolve(s, &t[kSearchedGraph], searched);
      }
      for (int j = 0; j < 16; ++j) time_execute(&t[kSeenShape], kernel, 16, columns);
      time_execute(&t[kUnseenShape], kernel, 17 + (salt * 7) % 1500, columns);
    }
    lathe_kernel_destroy(kernel);
  }
}

static void report(const settings* s, const scene* at, call which, times* t) {
  size_t over = 0;
  uint64_t events = 0;
  if (t->n == 0) return;
  qsort(t->us, t->n, sizeof(double), by_value);
  for (size_t i = 0; i < t->n; ++i) over += t->us[i] > TARGET_US;
  if (kEvents[at->kind] != NULL) lathe_stats(at->ctx, kEvents[at->kind], &events, NULL);
  const double p50 = t->us[t->n / 2], p99 = t->us[t->n - 1 - t->n / 100], longest = t->us[t->n - 1];
  if (s->json) {
    printf(
        "{\"schema\": \"serving_latency-1\", \"event\": \"beside\", \"beside\": \"%s\", \"call\": \"%s\", \"calls\": "
        "%lu, \"p50_us\": %.1f, "
        "\"p99_us\": %.1f, \"longest_us\": %.1f, \"over_2_ms\": %lu, \"events\": %lu}\n",
        kWorkNames[at->kind], kCallNames[which], (unsigned long)t->n, p50, p99, longest, (unsigned long)over,
        (unsigned long)events);
  } else {
    printf("%-22s %-17s %7lu calls  p50 %8.1f  p99 %8.1f  longest %9.1f us  %lu over 2 ms  (%lu %s)\n",
           kWorkNames[at->kind], kCallNames[which], (unsigned long)t->n, p50, p99, longest, (unsigned long)over,
           (unsigned long)events, kEvents[at->kind] == NULL ? "-" : kEvents[at->kind]);
  }
  fflush(stdout);
}

static void measure_one(const settings* s, work kind) {
  char store[256];
  lathe_error error;
  lathe_layer layer = {store, LATHE_LAYER_SHARED, 0};
  lathe_context_options options = LATHE_CONTEXT_OPTIONS_INIT;
  scene at;
  times t[kNumCalls];
  pthread_t thread;
  memset(&at, 0, sizeof(at));
  pthread_mutex_init(&at.mutex, NULL);
  at.kind = kind;
  at.at_hand = -1;
  make_store(store, sizeof(store));
  options.layers = &layer;
  options.num_layers = 1;
  options.worker_path = s->worker;
  options.tune = kind == kPromotion ? LATHE_TUNE_ON : LATHE_TUNE_OFF;
  options.tune_cpu = 100;
  check(lathe_context_create(&options, &at.ctx, &error), &error, "lathe_context_create");
  for (int i = 0; i < kNumCalls; ++i) {
    t[i].us = malloc(kMaxTimes * sizeof(double));
    t[i].n = 0;
    if (t[i].us == NULL) exit(1);
  }
  fprintf(stderr, "serving_latency: %.0f s beside %s\n", s->seconds, kWorkNames[kind]);
  if (kind != kNothing && pthread_create(&thread, NULL, other_thread, &at) != 0) exit(1);
  call_for(&at, s->seconds, t);
  pthread_mutex_lock(&at.mutex);
  at.stop = 1;
  pthread_mutex_unlock(&at.mutex);
  if (kind != kNothing) pthread_join(thread, NULL);
  for (int i = 0; i < kNumCalls; ++i) {
    report(s, &at, (call)i, &t[i]);
    free(t[i].us);
  }
  lathe_context_destroy(at.ctx);
  pthread_mutex_destroy(&at.mutex);
  remove_store(store);
}

int measure_beside(const settings* s) {
  if (posix_memalign(&g_workspace, 64, kWorkspace) != 0) return 1;
  for (size_t i = 0; i < sizeof(g_x) / sizeof(g_x[0]); ++i) g_x[i] = (float)(i % 13) - 6;
  for (int kind = 0; kind < kNumWork; ++kind) {
    if (s->only == NULL || strstr(kWorkNames[kind], s->only) != NULL) measure_one(s, (work)kind);
  }
  free(g_workspace);
  return 0;
}
