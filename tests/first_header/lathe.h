/* Lathe: a just-in-time runtime kernel library. The only public header (C99 and C++).
 *
 * One call, in order:
 *   lathe_context_create   -> where the store is, threads allowed, ISA cap
 *   lathe_graph_*          -> an operator or a small fused group: shapes (fixed, or a range), dtypes, constants
 *   lathe_resolve          -> a kernel: at once, or after waiting for the best
 *   lathe_prepack          -> constant operands in the kernel's own layout
 *   lathe_execute, or lathe_pin + lathe_pinned_run
 * and around it: lathe_plan_* (warm-up from a manifest), lathe_seal, lathe_stats.
 *
 * Conventions
 *   - Every function that can fail returns a lathe_status and, but for lathe_pinned_run, takes as last parameter a
 *     lathe_error* (may be NULL) that it fills on failure only. On failure outputs are untouched.
 *   - Every struct starts with struct_size and version (the *_INIT macros set both). A smaller struct than this
 *     library's: missing fields are zero. A larger one is accepted if its unknown tail is zero. Reserved fields must be
 *     zero. Enums only grow.
 *   - Handles are opaque; destroying NULL is allowed. A kernel keeps its context alive, a pin its kernel.
 *   - Thread-safety: any function may be called from any thread; a handle must not be destroyed while another thread
 *     uses it. Graphs and plans are used by one thread at a time. execute and pinned_run are lock-free once warm.
 *   - No library thread exists that the host did not allow. Kernels run on the caller's thread (or its pool), allocate
 *     nothing, and never wait for a compiler.
 *   - Sizes are in elements unless the name says bytes; times in nanoseconds unless the name says otherwise.
 */
#ifndef LATHE_H_
#define LATHE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LATHE_VERSION_MAJOR 1
#define LATHE_VERSION_MINOR 0
#define LATHE_VERSION_PATCH 0

#if defined(__GNUC__)
#define LATHE_API __attribute__((visibility("default")))
#else
#define LATHE_API
#endif

/* --- Status ----------------------------------------------------------------------------------------------------- */

typedef enum lathe_status {
  LATHE_OK = 0,
  LATHE_INVALID = 1,     /* an argument is wrong; the error names it and says what was expected */
  LATHE_UNSUPPORTED = 2, /* well-formed, but this build or machine cannot do it */
  LATHE_MISS = 3,        /* nothing stored serves this request, and compiling is not allowed (sealed with ERROR) */
  LATHE_TIMEOUT = 4,
  LATHE_CANCELLED = 5,
  LATHE_NOMEM = 6,
  LATHE_DEVICE = 7,
  LATHE_STATE = 8, /* not allowed in this state, or the handle is dead */
  LATHE_UNTRUSTED = 9,
  LATHE_IO = 10,
  LATHE_INTERNAL = 11 /* a bug in Lathe */
} lathe_status;

typedef struct lathe_error {
  lathe_status code;
  int32_t arg_index; /* 0-based parameter or argument at fault, -1: none */
  char arg_name[32]; /* its name, possibly truncated; "" if none */
  int32_t os_errno;  /* 0 if no system call failed */
  char message[256]; /* "x.shape[1]: 96, expected 128 (K of w)"; always terminated */
} lathe_error;

/* "OK", "INVALID", ...; "UNKNOWN" for other values. Never NULL; static storage. */
LATHE_API const char* lathe_status_name(lathe_status status);
/* major * 10000 + minor * 100 + patch of the library linked. */
LATHE_API uint32_t lathe_version(void);

/* --- Context ---------------------------------------------------------------------------------------------------- */

typedef struct lathe_context lathe_context;

typedef enum lathe_layer_kind { LATHE_LAYER_SHARED = 0, LATHE_LAYER_READ_ONLY = 1 } lathe_layer_kind;
typedef struct lathe_layer {
  const char* path; /* absolute; created with mode 0700 if missing (not when read-only) */
  uint32_t kind;    /* lathe_layer_kind */
  uint32_t reserved;
} lathe_layer;

/* The host's thread pool. parallel_for runs body(ctx, i) for i in 0..n-1, in any order, on any threads, and returns
 * when all are done. in_parallel: nonzero if the calling thread is inside such a loop (then Lathe runs serially). */
typedef struct lathe_pool {
  uint32_t struct_size, version;
  void* self;
  int32_t (*num_threads)(void* self);
  void (*parallel_for)(void* self, int32_t n, void (*body)(void* ctx, int32_t i), void* ctx);
  int32_t (*in_parallel)(void* self);
} lathe_pool;
#define LATHE_POOL_INIT {(uint32_t)sizeof(lathe_pool), 1, NULL, NULL, NULL, NULL}

/* Tuning while calls run, on a thread of Lathe's own and in the measuring worker, within a share of one CPU. Compiling
 * and swapping happen beside the calls, and what takes over keeps what the host was told: packed layouts, workspace,
 * numeric class. */
typedef enum lathe_tune {
  LATHE_TUNE_DEFAULT = 0, /* as LATHE_TUNE says; else off */
  LATHE_TUNE_OFF = 1,
  LATHE_TUNE_REPLAY = 2, /* recorded Schedules of hot shapes take over; nothing is searched */
  LATHE_TUNE_ON = 3,     /* hot shapes are searched; a winner takes over */
  LATHE_TUNE_TRIALS = 4  /* a winner first recomputes copies of real calls, then serves at most 0.5 % of them */
} lathe_tune;

typedef struct lathe_context_options {
  uint32_t struct_size, version;
  const lathe_layer* layers; /* the first writable one is written; NULL: LATHE_CACHE_DIR, XDG_CACHE_HOME/lathe,
                                  HOME/.cache/lathe, else memory only */
  size_t num_layers;
  const char* max_isa;     /* "portable", "avx2", "avx512"; NULL: the host's, or LATHE_MAX_ISA */
  const char* worker_path; /* measuring worker; NULL: libexec/lathe-worker beside the library, or LATHE_WORKER */
  const char* plugin_dir;  /* where liblathe_llvm.so is; NULL: beside the library, then LATHE_PLUGIN_DIR */
  int32_t own_threads;     /* > 1: Lathe may use that many threads, caller included: a bounded-spin team of its own for
                              calls, oneTBB's for warm-up and packing. Neither is there before its first use */
  uint32_t reserved;
  uint32_t tune;              /* lathe_tune */
  uint32_t tune_cpu;          /* most that tuning takes on average, in per cent of one CPU; 0: LATHE_TUNE_CPU, or 2 */
  int32_t background_threads; /* for tuning; 0: one if it is on, or LATHE_BACKGROUND_THREADS; -1: none */
  uint32_t reserved2;
} lathe_context_options;
#define LATHE_CONTEXT_OPTIONS_INIT \
  {(uint32_t)sizeof(lathe_context_options), 1, NULL, 0, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0}

/* options may be NULL (all defaults). Reads the LATHE_* environment once. Starts no thread, opens no compiler. */
LATHE_API lathe_status lathe_context_create(const lathe_context_options* options, lathe_context** out,
                                            lathe_error* error);
LATHE_API void lathe_context_destroy(lathe_context* ctx);

typedef enum lathe_seal_mode {
  LATHE_SEAL_OFF = 0,
  LATHE_SEAL_FALLBACK = 1, /* what exists serves (T0 at worst), and is counted */
  LATHE_SEAL_WARN = 2,     /* FALLBACK, and a verbose line */
  LATHE_SEAL_ERROR = 3     /* a miss is LATHE_MISS */
} lathe_seal_mode;
/* After it nothing is compiled or searched; what earlier resolves left for a first call is made now. */
LATHE_API lathe_status lathe_seal(lathe_context* ctx, uint32_t mode /* lathe_seal_mode */, lathe_error* error);

/* The switch of tuning while calls run, LATHE_TUNE_OFF to LATHE_TUNE_TRIALS; a sealed context does not tune. OFF takes
 * effect within a moment: no call is counted or tried, the worker rests and soon ends; what took over stays. */
LATHE_API lathe_status lathe_tune_mode(lathe_context* ctx, uint32_t mode /* lathe_tune */, lathe_error* error);

/* --- Graphs ----------------------------------------------------------------------------------------------------- */

typedef struct lathe_graph lathe_graph;

typedef enum lathe_dtype {
  LATHE_F32 = 0,
  LATHE_F64 = 1,
  LATHE_F16 = 2,
  LATHE_BF16 = 3,
  LATHE_I8 = 4,
  LATHE_U8 = 5,
  LATHE_I32 = 6,
  LATHE_I64 = 7,
  LATHE_BOOL = 8
} lathe_dtype;

typedef struct lathe_hint {
  int64_t value;
  double weight;
} lathe_hint;

/* A size: fixed if min == max; else any multiple of multiple_of in [min, max], named by symbol: the same symbol has the
 * same value everywhere in the graph. 0 is in every dynamic range. hints: values worth tuning for. */
typedef struct lathe_dim {
  int64_t min, max;
  int64_t multiple_of; /* 0 means 1 */
  const char* symbol;  /* NULL if fixed */
  const lathe_hint* hints;
  size_t num_hints;
} lathe_dim;

enum { LATHE_TENSOR_CONST = 1u }; /* the operand never changes: it may be prepacked */

typedef struct lathe_tensor_desc {
  uint32_t struct_size, version;
  const char* name; /* unique in the graph; copied */
  uint32_t dtype;   /* lathe_dtype */
  int32_t ndim;     /* 0..8 */
  const lathe_dim* dims;
  const int64_t* strides; /* elements, ndim of them; NULL: compact row-major. 0 broadcasts (inputs only) */
  uint32_t flags;
  uint32_t reserved;
} lathe_tensor_desc;
#define LATHE_TENSOR_DESC_INIT {(uint32_t)sizeof(lathe_tensor_desc), 1, NULL, 0, 0, NULL, NULL, 0, 0}

typedef enum lathe_attr_type {
  LATHE_ATTR_INT = 0,
  LATHE_ATTR_FLOAT = 1,
  LATHE_ATTR_BOOL = 2,
  LATHE_ATTR_STRING = 3,
  LATHE_ATTR_INTS = 4
} lathe_attr_type;
typedef struct lathe_attr {
  const char* name; /* as in the operator table of docs/operators.md */
  uint32_t type;    /* lathe_attr_type */
  uint32_t reserved;
  int64_t i;           /* INT; BOOL as 0 or 1 */
  double f;            /* FLOAT */
  const char* s;       /* STRING */
  const int64_t* ints; /* INTS */
  size_t num_ints;
} lathe_attr;

LATHE_API lathe_status lathe_graph_create(lathe_context* ctx, const char* name, lathe_graph** out, lathe_error* error);
/* Declares an argument. *id numbers tensors from 0 in order of declaration (arguments and op results alike). */
LATHE_API lathe_status lathe_graph_tensor(lathe_graph* graph, const lathe_tensor_desc* desc, int32_t* id,
                                          lathe_error* error);
/* Adds an operator; its result's shape and dtype are inferred at finish. */
LATHE_API lathe_status lathe_graph_op(lathe_graph* graph, const char* op, const int32_t* inputs, size_t num_inputs,
                                      const lathe_attr* attrs, size_t num_attrs, const char* output_name, int32_t* id,
                                      lathe_error* error);
LATHE_API lathe_status lathe_graph_output(lathe_graph* graph, int32_t id, lathe_error* error);
/* Infers, checks, canonicalises; nothing can be added afterwards. */
LATHE_API lathe_status lathe_graph_finish(lathe_graph* graph, lathe_error* error);
/* A graph of one operator, finished: its inputs are the graph's inputs in order, its result the only output. */
LATHE_API lathe_status lathe_graph_single(lathe_context* ctx, const char* op, const lathe_tensor_desc* inputs,
                                          size_t num_inputs, const lathe_attr* attrs, size_t num_attrs,
                                          lathe_graph** out, lathe_error* error);
LATHE_API void lathe_graph_destroy(lathe_graph* graph);

/* --- Resolve ---------------------------------------------------------------------------------------------------- */

typedef struct lathe_kernel lathe_kernel;

typedef enum lathe_wait { LATHE_NOW = 0, LATHE_WAIT = 1, LATHE_COMPILED_ONLY = 2 } lathe_wait;
enum {
  LATHE_CLASS_REASSOCIATE = 1u,
  LATHE_CLASS_CONTRACT = 2u,
  LATHE_CLASS_APPROXIMATE = 4u,
  LATHE_CLASS_REDUCED_ACCUMULATE = 8u,
  LATHE_CLASS_QUANTISED_ACTIVATIONS = 16u,
  LATHE_CLASS_WINOGRAD = 32u
};

typedef struct lathe_policy {
  uint32_t struct_size, version;
  /* lathe_wait. NOW: stored, else the default Schedule by the quick generator, about a millisecond of the caller's CPU
   * time (counter first_resolve_cpu_ns); where constants are packed, what reads them as they lie is made for the first
   * call that brings them so. NOW never waits for another caller's work.
   * WAIT: tuned by measurement for the hinted dims, within deadline_ns; at the deadline, or without a measuring worker,
   * as NOW: info.miss_reason "budget" or "no_worker".
   * COMPILED_ONLY: LATHE_MISS unless stored. */
  uint32_t wait;
  uint32_t allowed;       /* LATHE_CLASS_* liberties; 0: reassociate + contract */
  uint64_t deadline_ns;   /* WAIT: 0 = no limit */
  uint64_t max_workspace; /* bytes; 0 = no limit */
  int32_t threads;        /* that execute will use; 0 means 1 */
  uint32_t cold;          /* 1: constants come from memory at each call (decode); 0: hot */
} lathe_policy;
#define LATHE_POLICY_INIT {(uint32_t)sizeof(lathe_policy), 1, 0, 0, 0, 0, 1, 0}

typedef enum lathe_origin {
  LATHE_ORIGIN_MEMORY = 0,
  LATHE_ORIGIN_STORE = 1,
  LATHE_ORIGIN_COMPILED = 2,
  LATHE_ORIGIN_BUILTIN = 3
} lathe_origin;

typedef struct lathe_kernel_info {
  uint32_t struct_size, version;
  int32_t tier;             /* 0 portable, 1 default Schedule, 2 tuned; the lowest over its ranges of dims */
  uint32_t origin;          /* lathe_origin */
  uint32_t numeric_class;   /* liberties taken */
  int32_t num_args;         /* inputs, then outputs, in graph order */
  uint64_t workspace_bytes; /* an upper bound at the hinted dims; exactly: lathe_workspace_bytes */
  uint64_t generation;
  char miss_reason
      [32]; /* why the store did not serve, or not tuned: "never_seen", "off", "unmeasured", ...; "" if it did */
  char name[64];
} lathe_kernel_info;
#define LATHE_KERNEL_INFO_INIT {(uint32_t)sizeof(lathe_kernel_info), 1, 0, 0, 0, 0, 0, 0, {0}, {0}}

/* policy and info may be NULL. The graph must be finished and may be destroyed afterwards. */
LATHE_API lathe_status lathe_resolve(lathe_context* ctx, const lathe_graph* graph, const lathe_policy* policy,
                                     lathe_kernel** out, lathe_kernel_info* info, lathe_error* error);
LATHE_API void lathe_kernel_destroy(lathe_kernel* kernel);
/* Moves when something else serves the operator. After a promotion or a rollback while calls run: pin again; a pin
 * keeps the body it has. After a search (WAIT) or a warm-up: resolve again; a kernel keeps the operator it has. */
LATHE_API uint64_t lathe_generation(const lathe_kernel* kernel);

/* --- Arguments -------------------------------------------------------------------------------------------------- */

/* DLTensor of DLPack, 48 bytes, field for field. strides in elements, NULL = compact. The first element is at
 * (char*)data + byte_offset. */
typedef struct lathe_device {
  int32_t type, id; /* type 1 = CPU */
} lathe_device;
typedef struct lathe_data_type {
  uint8_t code, bits;
  uint16_t lanes;
} lathe_data_type;
typedef struct lathe_tensor {
  void* data;
  lathe_device device;
  int32_t ndim;
  lathe_data_type dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} lathe_tensor;

typedef struct lathe_arg {
  const lathe_tensor* tensor;
  uint64_t bytes; /* capacity from the first element on; 0: not stated */
  uint32_t flags; /* LATHE_ARG_* */
  uint32_t reserved;
  uint64_t layout_id; /* of a prepacked constant; 0: plain */
} lathe_arg;
enum { LATHE_ARG_READ_ONLY = 1u };

/* --- Constants -------------------------------------------------------------------------------------------------- */

typedef struct lathe_pack_info {
  uint64_t layout_id, bytes, align;
} lathe_pack_info;
/* The layout the kernel wants for constant argument `arg`; bytes = 0 if it is best left as it is. */
LATHE_API lathe_status lathe_prepack_query(const lathe_kernel* kernel, int32_t arg, lathe_pack_info* out,
                                           lathe_error* error);
/* Packs `source` into memory of the caller (info.bytes, aligned to info.align), which then stands for the argument with
 * layout_id set. Runs on the context's own threads, if it has some. */
LATHE_API lathe_status lathe_prepack(const lathe_kernel* kernel, int32_t arg, const lathe_tensor* source, void* out,
                                     uint64_t out_bytes, lathe_error* error);

/* --- Execute ---------------------------------------------------------------------------------------------------- */

typedef struct lathe_exec {
  uint32_t struct_size, version;
  const lathe_pool* pool; /* NULL: the context's own team if it has one, else the caller's thread */
  int32_t threads;        /* 0 means 1 */
  uint32_t reserved;
  void* workspace; /* 64-byte aligned; NULL if none is needed */
  uint64_t workspace_bytes;
} lathe_exec;
#define LATHE_EXEC_INIT {(uint32_t)sizeof(lathe_exec), 1, NULL, 1, 0, NULL, 0}

/* Bytes execute needs at these dims and threads. */
LATHE_API lathe_status lathe_workspace_bytes(lathe_kernel* kernel, const lathe_arg* args, size_t num_args,
                                             int32_t threads, uint64_t* bytes, lathe_error* error);
/* Runs the kernel. A constant argument with layout_id 0 is served by a body that reads it as it lies. exec may be NULL.
   */
LATHE_API lathe_status lathe_execute(lathe_kernel* kernel, const lathe_arg* args, size_t num_args,
                                     const lathe_exec* exec, lathe_error* error);

/* A call with everything but the addresses fixed: dims, strides, alignment as in args, threads. Immutable. */
typedef struct lathe_pinned lathe_pinned;
LATHE_API lathe_status lathe_pin(lathe_kernel* kernel, const lathe_arg* args, size_t num_args, int32_t threads,
                                 lathe_pinned** out, lathe_error* error);
/* Checks nothing. data[i] = address of argument i's first element. */
LATHE_API lathe_status lathe_pinned_run(const lathe_pinned* pinned, void* const* data, const lathe_exec* exec);
LATHE_API uint64_t lathe_pinned_workspace_bytes(const lathe_pinned* pinned);
LATHE_API void lathe_pinned_destroy(lathe_pinned* pinned);

/* --- Warm-up ---------------------------------------------------------------------------------------------------- */

typedef struct lathe_plan lathe_plan;

typedef struct lathe_budget {
  uint32_t struct_size, version;
  uint64_t wall_ms;               /* 0: no limit */
  int32_t tier;                   /* 1: compile only; 2: search too; 0 means 2 */
  int32_t candidates;             /* per operator and dims, the default Schedule included; 0 means 16 */
  const volatile int32_t* cancel; /* polled; nonzero stops after the candidate at hand, keeping what was found */
} lathe_budget;
#define LATHE_BUDGET_INIT {(uint32_t)sizeof(lathe_budget), 1, 0, 2, 0, NULL}

typedef struct lathe_report {
  uint32_t struct_size, version;
  uint64_t ops, from_store, compiled_xbyak, compiled_llvm, searches, measurements, failed, wall_ms;
} lathe_report;
#define LATHE_REPORT_INIT {(uint32_t)sizeof(lathe_report), 1, 0, 0, 0, 0, 0, 0, 0, 0}

/* Called on the thread that runs the plan, after each operator. Re-entry into the plan is LATHE_STATE. */
typedef void (*lathe_progress)(void* user, double fraction, const char* op);

LATHE_API lathe_status lathe_plan_create(lathe_context* ctx, lathe_plan** out, lathe_error* error);
/* Adds the operators of a manifest (docs/workloads.md). Malformed text: LATHE_INVALID naming line and field, nothing
 * added. */
LATHE_API lathe_status lathe_plan_load(lathe_plan* plan, const char* path, lathe_error* error);
LATHE_API lathe_status lathe_plan_add(lathe_plan* plan, const lathe_graph* graph, double weight, lathe_error* error);
/* Makes every leaf the plan needs, searches, stores. Resumable: what the store holds is not done again. TIMEOUT and
 * CANCELLED keep what was found. budget, report, progress may be NULL. */
LATHE_API lathe_status lathe_plan_run(lathe_plan* plan, const lathe_budget* budget, lathe_progress progress, void* user,
                                      lathe_report* report, lathe_error* error);
LATHE_API void lathe_plan_destroy(lathe_plan* plan);

/* --- Looking in ------------------------------------------------------------------------------------------------- */

/* The value of one counter of docs/stats.md ("compiled_xbyak", "compiles_after_seal", "misses_never_seen", ...). */
LATHE_API lathe_status lathe_stats(const lathe_context* ctx, const char* counter, uint64_t* value, lathe_error* error);
/* All counters as Prometheus text; writes at most capacity bytes with the terminator, *needed gets the full size. */
LATHE_API lathe_status lathe_stats_text(const lathe_context* ctx, char* out, size_t capacity, size_t* needed,
                                        lathe_error* error);

#ifdef __cplusplus
}
#endif
#endif /* LATHE_H_ */
