/* Lathe: a just-in-time library of compute kernels. This is its only public C header (C99 and C++).
 *
 * The calls, in order:
 *   lathe_context_create   sets the store, the permitted threads and the highest instruction set
 *   lathe_graph_*          describes an operator or a small fused group: shapes (fixed or a range), dtypes, constants
 *   lathe_resolve          returns a kernel, at once or after a search
 *   lathe_prepack          puts constant operands into the kernel's layout
 *   lathe_execute          runs the kernel; lathe_pin and lathe_pinned_run do so with fewer checks
 * Beside these, lathe_plan_* warms up from a manifest, lathe_seal ends compilation, and lathe_stats reads counters.
 *
 * Conventions
 *   - Errors: a function that can fail returns a lathe_status. All but lathe_pinned_run take as last parameter a
 *     lathe_error* (may be NULL), which they fill on failure only. On failure outputs are untouched, unless the
 *     function says otherwise. A NULL pointer where none is allowed, or a value out of range, is LATHE_STATUS_INVALID.
 *   - Versions: a struct that starts with struct_size and version is initialised with its *_INIT macro. If it is
 *     smaller than this library's, missing fields are zero. If it is larger, its unknown tail must be zero. Reserved
 *     fields must be zero. Enums only grow.
 *   - Ownership: the caller destroys every handle it gets, in any order; destroying NULL is allowed. A handle keeps its
 *     context alive, and a pin its kernel's code. Texts, arrays and structs that are passed in are read or copied
 *     during the call, and the caller keeps them; exceptions are stated. Use of one of the context's last 1024
 *     destroyed handles is LATHE_STATUS_STATE, or 0 where a number is returned. Texts have at most 4095 bytes.
 *   - Thread-safety: any function may be called from any thread. A handle must not be destroyed while another thread
 *     uses it. A graph or a plan must be used by one thread at a time. lathe_execute takes no lock for a shape that was
 *     called before; lathe_pinned_run never takes one.
 *   - Threads: the library starts no thread that the host did not allow. Kernels run on the caller's thread, the host's
 *     pool or the context's team, and never wait for another caller's compilation or search.
 *   - Units: sizes and strides are in elements unless the name says bytes; times are in nanoseconds unless the name
 *     says otherwise. Arrays are row-major: the last dimension is innermost.
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
  LATHE_STATUS_OK = 0,
  LATHE_STATUS_INVALID = 1,     /* an argument is wrong; the error names it and says what was expected */
  LATHE_STATUS_UNSUPPORTED = 2, /* well-formed, but this build or machine cannot do it */
  LATHE_STATUS_MISS = 3,      /* nothing stored serves, and compiling is not allowed: ERROR seal, STORED, a GPU's NOW */
  LATHE_STATUS_TIMEOUT = 4,   /* the deadline passed */
  LATHE_STATUS_CANCELLED = 5, /* the caller cancelled */
  LATHE_STATUS_NOMEM = 6,     /* memory or space for code is exhausted */
  LATHE_STATUS_DEVICE = 7,    /* the device failed or is absent */
  LATHE_STATUS_STATE = 8,     /* not allowed in this state, or the handle was destroyed */
  LATHE_STATUS_UNTRUSTED = 9, /* owner or mode of a file forbids its use */
  LATHE_STATUS_IO = 10,       /* the operating system refused; os_errno says why */
  LATHE_STATUS_INTERNAL = 11, /* a bug in Lathe */
  /* Older spellings of the same values. */
  LATHE_OK = LATHE_STATUS_OK,
  LATHE_INVALID = LATHE_STATUS_INVALID,
  LATHE_UNSUPPORTED = LATHE_STATUS_UNSUPPORTED,
  LATHE_MISS = LATHE_STATUS_MISS,
  LATHE_TIMEOUT = LATHE_STATUS_TIMEOUT,
  LATHE_CANCELLED = LATHE_STATUS_CANCELLED,
  LATHE_NOMEM = LATHE_STATUS_NOMEM,
  LATHE_DEVICE = LATHE_STATUS_DEVICE,
  LATHE_STATE = LATHE_STATUS_STATE,
  LATHE_UNTRUSTED = LATHE_STATUS_UNTRUSTED,
  LATHE_IO = LATHE_STATUS_IO,
  LATHE_INTERNAL = LATHE_STATUS_INTERNAL
} lathe_status;

typedef struct lathe_error {
  lathe_status code;
  int32_t arg_index; /* 0-based index of the wrong parameter, or of the wrong entry of args; -1: none */
  char arg_name[32]; /* its name, possibly truncated; "" if none */
  int32_t os_errno;  /* 0 if no system call failed */
  char message[256]; /* "x.shape[1]: 96, expected 128 (K of w)"; always terminated */
} lathe_error;

/* "OK", "INVALID", ...; "UNKNOWN" for other values. Never NULL, never to be freed. */
LATHE_API const char* lathe_status_name(lathe_status status);
/* major * 10000 + minor * 100 + patch of the loaded library. */
LATHE_API uint32_t lathe_version(void);

/* --- Context ---------------------------------------------------------------------------------------------------- */

typedef struct lathe_context lathe_context;

/* SHARED: read and written. READ_ONLY: only read. */
typedef enum lathe_layer_kind { LATHE_LAYER_SHARED = 0, LATHE_LAYER_READ_ONLY = 1 } lathe_layer_kind;
/* A directory of the store (docs/store.md). Layers are searched in order. */
typedef struct lathe_layer {
  const char* path; /* absolute; created with mode 0700 if missing (not when read-only) */
  uint32_t kind;    /* lathe_layer_kind */
  uint32_t reserved;
} lathe_layer;

/* The host's thread pool; it must stay valid during the calls that use it. parallel_for runs body(ctx, i) once for each
 * i in 0..n-1, in any order, on any threads, and returns when all are done. in_parallel returns nonzero if the calling
 * thread is inside such a loop (then Lathe runs serially); it may be NULL. Each function gets self. */
typedef struct lathe_pool {
  uint32_t struct_size, version;
  void* self;
  int32_t (*num_threads)(void* self);
  void (*parallel_for)(void* self, int32_t n, void (*body)(void* ctx, int32_t i), void* ctx);
  int32_t (*in_parallel)(void* self);
} lathe_pool;
#define LATHE_POOL_INIT {(uint32_t)sizeof(lathe_pool), 1, NULL, NULL, NULL, NULL}

/* Tuning while calls run, on a background thread and in the measuring worker, within a share of one CPU
 * (docs/online.md). Calls do not wait for it. A Schedule that takes over keeps the packed layouts and needs no more
 * workspace and no other numeric class than the host was told. */
typedef enum lathe_tune {
  LATHE_TUNE_DEFAULT = 0, /* the value of the environment variable LATHE_TUNE, else off */
  LATHE_TUNE_OFF = 1,
  LATHE_TUNE_REPLAY = 2, /* recorded Schedules of hot shapes take over; nothing is searched */
  LATHE_TUNE_ON = 3,     /* hot shapes are searched; a winner takes over */
  LATHE_TUNE_TRIALS = 4  /* a winner first recomputes copies of real calls, then serves at most 0.5 % of them */
} lathe_tune;

typedef struct lathe_context_options {
  uint32_t struct_size, version;
  const lathe_layer* layers; /* num_layers, at most 64; the first writable one is written. NULL: LATHE_CACHE_DIR,
                                  XDG_CACHE_HOME/lathe, HOME/.cache/lathe, else memory only */
  size_t num_layers;
  const char* max_isa;     /* "portable", "avx2", "avx512", "amx", "host"; NULL: LATHE_MAX_ISA, or the host's */
  const char* worker_path; /* measuring worker; NULL: LATHE_WORKER, or libexec/lathe-worker beside the library */
  const char* plugin_dir;  /* where liblathe_llvm.so is looked for after the library's folder; NULL: LATHE_PLUGIN_DIR */
  int32_t own_threads;     /* 0..256. > 1: Lathe may use that many threads, caller included: a team that spins for a
                              short time for calls, oneTBB for warm-up and packing. Neither exists before its use */
  uint32_t reserved;
  uint32_t tune;              /* lathe_tune */
  uint32_t tune_cpu;          /* 1..100: most that tuning takes, in per cent of one CPU; 0: LATHE_TUNE_CPU, or 2 */
  int32_t background_threads; /* 1: one for tuning; -1: none; 0: LATHE_BACKGROUND_THREADS, or one if tuning is on */
  uint32_t reserved2;
} lathe_context_options;
#define LATHE_CONTEXT_OPTIONS_INIT \
  {(uint32_t)sizeof(lathe_context_options), 1, NULL, 0, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0}

/* Creates a context. options may be NULL (all defaults). Reads the LATHE_* environment once; an option of the struct
 * takes precedence. Starts no process and no compiler, a thread only for tuning. The first one rehearses a resolve. */
LATHE_API lathe_status lathe_context_create(const lathe_context_options* options, lathe_context** out,
                                            lathe_error* error);
/* The context is freed with its last graph, kernel, pin and plan. Background work ends then. */
LATHE_API void lathe_context_destroy(lathe_context* ctx);

typedef enum lathe_seal_mode {
  LATHE_SEAL_OFF = 0,
  LATHE_SEAL_FALLBACK = 1, /* on a miss the best kernel at hand serves (T0 at worst), and it is counted */
  LATHE_SEAL_WARN = 2,     /* as FALLBACK, with a line on standard error unless LATHE_VERBOSE is none */
  LATHE_SEAL_ERROR = 3     /* a miss is LATHE_STATUS_MISS */
} lathe_seal_mode;
/* Seals the context: afterwards nothing is compiled or searched. Code that earlier resolves left for a first call is
 * made now. OFF lifts the seal. */
LATHE_API lathe_status lathe_seal(lathe_context* ctx, uint32_t mode /* lathe_seal_mode */, lathe_error* error);

/* Switches tuning while calls run, to LATHE_TUNE_OFF .. LATHE_TUNE_TRIALS; a sealed context does not tune. After OFF no
 * call is counted or used for a trial, and the worker pauses and then ends. Schedules that took over stay. */
LATHE_API lathe_status lathe_tune_mode(lathe_context* ctx, uint32_t mode /* lathe_tune */, lathe_error* error);

/* --- Graphs ----------------------------------------------------------------------------------------------------- */

typedef struct lathe_graph lathe_graph;

typedef enum lathe_dtype {
  LATHE_DTYPE_F32 = 0,
  LATHE_DTYPE_F64 = 1,
  LATHE_DTYPE_F16 = 2,
  LATHE_DTYPE_BF16 = 3,
  LATHE_DTYPE_I8 = 4,
  LATHE_DTYPE_U8 = 5,
  LATHE_DTYPE_I32 = 6,
  LATHE_DTYPE_I64 = 7,
  LATHE_DTYPE_BOOL = 8,
  /* Older spellings of the same values. */
  LATHE_F32 = LATHE_DTYPE_F32,
  LATHE_F64 = LATHE_DTYPE_F64,
  LATHE_F16 = LATHE_DTYPE_F16,
  LATHE_BF16 = LATHE_DTYPE_BF16,
  LATHE_I8 = LATHE_DTYPE_I8,
  LATHE_U8 = LATHE_DTYPE_U8,
  LATHE_I32 = LATHE_DTYPE_I32,
  LATHE_I64 = LATHE_DTYPE_I64,
  LATHE_BOOL = LATHE_DTYPE_BOOL
} lathe_dtype;

/* DLPack's element type: code (lathe_type_code), bits of one element, lanes (1: no vectors). */
typedef enum lathe_type_code {
  LATHE_TYPE_CODE_INT = 0,
  LATHE_TYPE_CODE_UINT = 1,
  LATHE_TYPE_CODE_FLOAT = 2,
  LATHE_TYPE_CODE_BFLOAT = 4,
  LATHE_TYPE_CODE_BOOL = 6
} lathe_type_code;
typedef struct lathe_data_type {
  uint8_t code, bits;
  uint16_t lanes;
} lathe_data_type;

typedef struct lathe_hint {
  int64_t value;
  double weight; /* relative frequency of the value, which is worth tuning for */
} lathe_hint;
/* A size in elements: fixed if min == max, else any multiple of multiple_of in [min, max]; 0 <= min <= max. A dynamic
 * size has a symbol (at most 6 in a graph), with one value everywhere; 0 is always allowed. hints: at most 256. */
typedef struct lathe_dim {
  int64_t min, max;
  int64_t multiple_of; /* 0 means 1 */
  const char* symbol;  /* NULL if fixed */
  const lathe_hint* hints;
  size_t num_hints;
} lathe_dim;

enum { LATHE_TENSOR_CONST = 1u }; /* the operand never changes, so it may be prepacked */

typedef struct lathe_tensor_desc {
  uint32_t struct_size, version;
  const char* name;       /* unique in the graph, at most 255 bytes */
  uint32_t dtype;         /* lathe_dtype; if data_type is set, 0 or the same type */
  int32_t ndim;           /* 0..8 */
  const lathe_dim* dims;  /* ndim of them */
  const int64_t* strides; /* in elements, ndim of them, each >= 0, 0 broadcasts (inputs only); NULL: compact */
  uint32_t flags;         /* 0 or LATHE_TENSOR_CONST */
  uint32_t reserved;
  lathe_data_type data_type; /* the element type in DLPack's form, instead of dtype; all 0: dtype */
  uint32_t reserved2;
  const char* const* stride_symbols; /* NULL, or ndim of them: NULL, or the symbol of a size that strides[i] is times */
} lathe_tensor_desc;
#define LATHE_TENSOR_DESC_INIT \
  {(uint32_t)sizeof(lathe_tensor_desc), 1, NULL, 0, 0, NULL, NULL, 0, 0, {0, 0, 0}, 0, NULL}

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

/* An empty graph, of at most 4096 tensors. name (1 to 255 bytes, as all names) is for reports. */
LATHE_API lathe_status lathe_graph_create(lathe_context* ctx, const char* name, lathe_graph** out, lathe_error* error);
/* Declares an input. *id is its number: inputs and results are numbered from 0 in the order of their declaration. */
LATHE_API lathe_status lathe_graph_tensor(lathe_graph* graph, const lathe_tensor_desc* desc, int32_t* id,
                                          lathe_error* error);
/* Adds an operator of docs/operators.md on the tensors `inputs`. *id is the number of its result, whose shape and dtype
 * are inferred at finish. Where an operator has several results, the others have the numbers that follow, and are named
 * "NAME.1", ... There are at most 64 inputs and 64 attributes. UNSUPPORTED: an unknown operator. */
LATHE_API lathe_status lathe_graph_op(lathe_graph* graph, const char* op, const int32_t* inputs, size_t num_inputs,
                                      const lathe_attr* attrs, size_t num_attrs, const char* output_name, int32_t* id,
                                      lathe_error* error);
/* Declares a tensor to be an output of the graph; outputs are numbered in the order of these calls. */
LATHE_API lathe_status lathe_graph_output(lathe_graph* graph, int32_t id, lathe_error* error);
/* Infers shapes and dtypes and checks the graph: INVALID or UNSUPPORTED names tensor, dimension and what was expected.
 * Afterwards each call that adds something is LATHE_STATUS_STATE. */
LATHE_API lathe_status lathe_graph_finish(lathe_graph* graph, lathe_error* error);
/* A finished graph of one operator. `inputs`, of one struct_size, are its inputs in order, its results the outputs. */
LATHE_API lathe_status lathe_graph_single(lathe_context* ctx, const char* op, const lathe_tensor_desc* inputs,
                                          size_t num_inputs, const lathe_attr* attrs, size_t num_attrs,
                                          lathe_graph** out, lathe_error* error);
LATHE_API void lathe_graph_destroy(lathe_graph* graph);

/* --- Resolve ---------------------------------------------------------------------------------------------------- */

typedef struct lathe_kernel lathe_kernel;

typedef enum lathe_wait {
  LATHE_WAIT_NOW = 0,    /* do not wait: the stored Schedule serves, else the default */
  LATHE_WAIT_TUNED = 1,  /* wait until the operator is tuned */
  LATHE_WAIT_STORED = 2, /* do not wait, and serve only what is stored */
  /* Older spellings of the same values. */
  LATHE_NOW = LATHE_WAIT_NOW,
  LATHE_WAIT = LATHE_WAIT_TUNED,
  LATHE_COMPILED_ONLY = LATHE_WAIT_STORED
} lathe_wait;
/* Numeric classes: permissions to change the result's last bits. */
enum {
  LATHE_CLASS_REASSOCIATE = 1u,
  LATHE_CLASS_CONTRACT = 2u,
  LATHE_CLASS_APPROXIMATE = 4u,
  LATHE_CLASS_REDUCED_ACCUMULATE = 8u,
  LATHE_CLASS_QUANTISED_ACTIVATIONS = 16u, /* with weights of few bits: products of bytes, on GPUs of bf16 */
  LATHE_CLASS_WINOGRAD = 32u,
  LATHE_CLASS_BF16_DOTS = 64u
};

typedef struct lathe_policy {
  uint32_t struct_size, version;
  /* lathe_wait. NOW: the stored Schedule, else the default Schedule by the fast generator, which takes about a
   * millisecond of the caller's CPU time (counter first_resolve_cpu_ns). A first call near a hint with another default,
   * or with unpacked constants that the kernel packs, compiles code, and so does the first lathe_prepack of a constant,
   * unless lathe_seal did. NOW never waits for another caller's work. TUNED: tuned by measurement for the hinted dims,
   * within deadline_ns. At the deadline, or without a measuring worker, it serves as NOW with info.miss_reason "budget"
   * or "no_worker". STORED: LATHE_STATUS_MISS unless stored. */
  uint32_t wait;
  uint32_t allowed;       /* LATHE_CLASS_* bits; 0: reassociate and contract; UNSUPPORTED: a GPU needs another */
  uint64_t deadline_ns;   /* of TUNED, from the start of the call; 0: no limit */
  uint64_t max_workspace; /* bytes; a kernel that needs more at the hinted dims is UNSUPPORTED; 0: no limit */
  int32_t threads;        /* 0..256, as many as execute will use; 0 means 1 */
  uint32_t cold;          /* 1: constants come from memory at each call (decode); 0: hot */
  /* 0: the CPU; n: CUDA device n - 1 (docs/gpu.md). On a GPU, NOW and STORED serve what is stored, TUNED also compiles
   * but measures nothing; threads and cold have no meaning. A background thread compiles what NOW misses. */
  uint32_t device;
  uint32_t reserved;
} lathe_policy;
#define LATHE_POLICY_INIT {(uint32_t)sizeof(lathe_policy), 1, 0, 0, 0, 0, 1, 0, 0, 0}

/* Where a kernel's code comes from. */
typedef enum lathe_origin {
  LATHE_ORIGIN_MEMORY = 0,   /* this process had it */
  LATHE_ORIGIN_STORE = 1,    /* the store */
  LATHE_ORIGIN_COMPILED = 2, /* it was compiled by this call */
  LATHE_ORIGIN_BUILTIN = 3   /* the portable executor */
} lathe_origin;

typedef struct lathe_kernel_info {
  uint32_t struct_size, version;
  int32_t tier;             /* 0 portable, 1 default Schedule, 2 tuned; the lowest over its ranges of dims */
  uint32_t origin;          /* lathe_origin */
  uint32_t numeric_class;   /* LATHE_CLASS_* bits that it uses */
  int32_t num_args;         /* inputs, then outputs that are no updated inputs, in graph order */
  uint64_t workspace_bytes; /* an upper bound at the hinted dims; lathe_workspace_bytes has the exact number */
  uint64_t generation;      /* lathe_generation */
  /* Why the store served nothing, or nothing tuned: "never_seen", "off", "unmeasured", ...; "" if it did. */
  char miss_reason[32];
  char name[64]; /* the graph's, possibly truncated */
} lathe_kernel_info;
#define LATHE_KERNEL_INFO_INIT {(uint32_t)sizeof(lathe_kernel_info), 1, 0, 0, 0, 0, 0, 0, {0}, {0}}

/* Returns a kernel for a finished graph of the same context; the graph may be destroyed afterwards. policy (NULL: the
 * defaults) and info may be NULL. MISS: nothing stored serves, and the policy or the seal forbids to compile. On a GPU
 * also TIMEOUT (the deadline) and DEVICE (no driver, no such device, or it failed). */
LATHE_API lathe_status lathe_resolve(lathe_context* ctx, const lathe_graph* graph, const lathe_policy* policy,
                                     lathe_kernel** out, lathe_kernel_info* info, lathe_error* error);
LATHE_API void lathe_kernel_destroy(lathe_kernel* kernel);
/* A number that changes when a better kernel exists. After a promotion or a rollback while calls run, pin again: a pin
 * keeps its code. After a search (LATHE_WAIT_TUNED) or a warm-up, resolve again: a kernel keeps its operator. */
LATHE_API uint64_t lathe_generation(const lathe_kernel* kernel);

/* --- Arguments -------------------------------------------------------------------------------------------------- */

/* DLTensor of DLPack, 48 bytes, field for field. The first element is at (char*)data + byte_offset, aligned to the size
 * of an element. strides are in elements; NULL: compact row-major. */
typedef struct lathe_device {
  int32_t type, id; /* type 1: CPU; 2: CUDA, id is the number of the device */
} lathe_device;
typedef struct lathe_tensor {
  void* data;
  lathe_device device;
  int32_t ndim;
  lathe_data_type dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} lathe_tensor;

/* One argument of a call: inputs in graph order, then outputs. An input that an operator updates is given once, among
 * the inputs, and counts as an output otherwise; the operator's result is no argument. The tensor has the dtype, shape
 * and strides that the graph declares, also if the constant is packed; then data is the packed memory. An output must
 * overlap no other argument, unless the operator can run in place and it is an input of the same shape and strides. */
typedef struct lathe_arg {
  const lathe_tensor* tensor;
  uint64_t bytes; /* size of the memory from the first element on, which is checked; 0: unknown */
  uint32_t flags; /* LATHE_ARG_* */
  uint32_t reserved;
  uint64_t layout_id; /* of a packed constant, from lathe_prepack_query; 0: not packed */
} lathe_arg;
enum { LATHE_ARG_READ_ONLY = 1u }; /* not for outputs */

/* --- Constants -------------------------------------------------------------------------------------------------- */

typedef struct lathe_pack_info {
  uint64_t layout_id, bytes, align;
} lathe_pack_info;
/* The layout that the kernel prefers for constant argument `arg`; all fields are 0 if it is best left unpacked. */
LATHE_API lathe_status lathe_prepack_query(const lathe_kernel* kernel, int32_t arg, lathe_pack_info* out,
                                           lathe_error* error);
/* Packs `source` into `out`, memory of the caller of at least lathe_pack_info.bytes, aligned to lathe_pack_info.align.
 * Calls then pass `out` with layout_id set; the caller keeps it valid as long. `out` must not overlap the source.
 * Whole pages of 2 MiB in it are advised to be large ones (madvise, MADV_HUGEPAGE), best before they are written to;
 * smaller constants are read faster side by side on such pages. Either all constants with a layout are packed in a call
 * or none. Runs on the context's threads, if it has any. STATE: there is no packed layout, or the kernel is a GPU's. */
LATHE_API lathe_status lathe_prepack(const lathe_kernel* kernel, int32_t arg, const lathe_tensor* source, void* out,
                                     uint64_t out_bytes, lathe_error* error);
/* The same for a kernel of a GPU, in whose memory both lie: packing joins the CUstream, and the call does not wait. */
LATHE_API lathe_status lathe_prepack_on_stream(const lathe_kernel* kernel, int32_t arg, const lathe_tensor* source,
                                               void* out, uint64_t out_bytes, void* stream, lathe_error* error);

/* --- Execute ---------------------------------------------------------------------------------------------------- */

typedef struct lathe_exec {
  uint32_t struct_size, version;
  const lathe_pool* pool; /* NULL: the context's team if it has one, else the caller's thread */
  int32_t threads;        /* 0..256, as many parts as the call is split into; 0 means 1 */
  uint32_t reserved;
  void* workspace; /* 64-byte aligned (on a GPU 256), no argument in it, for one call at a time; NULL: none needed */
  uint64_t workspace_bytes; /* at least lathe_workspace_bytes */
  void* stream;             /* must be NULL on a CPU; on a GPU, the CUstream that the call joins */
} lathe_exec;
#define LATHE_EXEC_INIT {(uint32_t)sizeof(lathe_exec), 1, NULL, 1, 0, NULL, 0, NULL}

/* The bytes of workspace that lathe_execute needs with these args on so many threads (0 means 1). The args are checked
 * as for lathe_execute; nothing is run. */
LATHE_API lathe_status lathe_workspace_bytes(lathe_kernel* kernel, const lathe_arg* args, size_t num_args,
                                             int32_t threads, uint64_t* bytes, lathe_error* error);
/* Runs the kernel and returns when it is done, on a GPU once it is launched. Unpacked constants are allowed. exec may
 * be NULL on a CPU (one thread, no workspace). The first call at a shape binds it; beyond 1024 shapes of an operator
 * each call binds its own. INVALID: an argument does not fit, and nothing was written. */
LATHE_API lathe_status lathe_execute(lathe_kernel* kernel, const lathe_arg* args, size_t num_args,
                                     const lathe_exec* exec, lathe_error* error);

/* A call in which all but the addresses is fixed: dims, strides and packing as in args, and threads. The args are
 * checked as for lathe_execute, but for the values of ids, and not kept. It is immutable, so several threads may run it
 * at once, each with its own workspace. */
typedef struct lathe_pinned lathe_pinned;
LATHE_API lathe_status lathe_pin(lathe_kernel* kernel, const lathe_arg* args, size_t num_args, int32_t threads,
                                 lathe_pinned** out, lathe_error* error);
/* Runs the call. Checks nothing but the values of ids (INVALID: one is out of its range, and nothing was written; on
 * a GPU: no stream). pinned must be live, and data[i] the address of the first element of argument i, aligned and
 * packed as in the args of lathe_pin. Of exec (NULL: a CPU, no workspace) only pool, workspace, stream are read. */
LATHE_API lathe_status lathe_pinned_run(const lathe_pinned* pinned, void* const* data, const lathe_exec* exec);
/* The bytes of workspace that lathe_pinned_run needs. */
LATHE_API uint64_t lathe_pinned_workspace_bytes(const lathe_pinned* pinned);
LATHE_API void lathe_pinned_destroy(lathe_pinned* pinned);

/* --- Warm-up ---------------------------------------------------------------------------------------------------- */

/* A list of operators to prepare for serving. */
typedef struct lathe_plan lathe_plan;

typedef struct lathe_budget {
  uint32_t struct_size, version;
  uint64_t wall_ms;               /* of the searches, in milliseconds; 0: no limit */
  int32_t tier;                   /* 1: compile only; 2: search too; 0 means 2 */
  int32_t candidates;             /* 0..4096 per Kernel and hinted dims, the default included; 0 means 16 */
  const volatile int32_t* cancel; /* NULL, or polled: nonzero stops after the current candidate and keeps the results */
  uint32_t device; /* as lathe_policy.device. On a GPU tier 1 stores the Schedule of the best rank, tier 2 times the
                      best of them; threads and cold have no meaning */
  uint32_t reserved;
} lathe_budget;
#define LATHE_BUDGET_INIT {(uint32_t)sizeof(lathe_budget), 1, 0, 2, 0, NULL, 0, 0}

/* Operators of the plan, those for which nothing had to be done, leaves compiled, searches, candidates timed, operators
 * or Kernels that cannot be served as they should, and milliseconds in all. */
typedef struct lathe_report {
  uint32_t struct_size, version;
  uint64_t ops, from_store, compiled_xbyak, compiled_llvm, searches, measurements, failed, wall_ms;
  uint64_t compiled_nvrtc; /* kernels for a GPU */
} lathe_report;
#define LATHE_REPORT_INIT {(uint32_t)sizeof(lathe_report), 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/* Called on the thread that runs the plan, after each search and each operator. fraction: 0..1. op is valid during the
 * call. A call of a plan function on the same plan is LATHE_STATUS_STATE; lathe_plan_destroy then does nothing. */
typedef void (*lathe_progress)(void* user, double fraction, const char* op);

LATHE_API lathe_status lathe_plan_create(lathe_context* ctx, lathe_plan** out, lathe_error* error);
/* Adds the operators of a manifest (docs/workloads.md); none if its text is malformed: INVALID with line and field. */
LATHE_API lathe_status lathe_plan_load(lathe_plan* plan, const char* path, lathe_error* error);
/* Adds a finished graph of the same context. weight: its relative frequency, finite and >= 0. The graph is copied. */
LATHE_API lathe_status lathe_plan_add(lathe_plan* plan, const lathe_graph* graph, double weight, lathe_error* error);
/* The same for a policy's threads, cold and allowed; lathe_plan_add takes the defaults. Its device must be 0. */
LATHE_API lathe_status lathe_plan_add_for(lathe_plan* plan, const lathe_graph* graph, const lathe_policy* policy,
                                          double weight, lathe_error* error);
/* Compiles every leaf that the plan needs, searches, and stores the results. Work that the store has is not done again.
 * TIMEOUT and CANCELLED keep the results so far and fill in the report. STATE: the context is sealed, or the plan is
 * running. budget, report and progress may be NULL. */
LATHE_API lathe_status lathe_plan_run(lathe_plan* plan, const lathe_budget* budget, lathe_progress progress, void* user,
                                      lathe_report* report, lathe_error* error);
LATHE_API void lathe_plan_destroy(lathe_plan* plan);

/* --- Counters --------------------------------------------------------------------------------------------------- */

/* The value of a counter of docs/stats.md ("compiled_xbyak", "misses_never_seen", ...). An unknown name is INVALID. */
LATHE_API lathe_status lathe_stats(const lathe_context* ctx, const char* counter, uint64_t* value, lathe_error* error);
/* All counters as Prometheus text. Writes at most capacity bytes, terminator included; *needed gets the full size. out
 * may be NULL if capacity is 0. */
LATHE_API lathe_status lathe_stats_text(const lathe_context* ctx, char* out, size_t capacity, size_t* needed,
                                        lathe_error* error);

#ifdef __cplusplus
}
#endif
#endif /* LATHE_H_ */
