// See cublaslt.h.
#include "bench/gpu/cublaslt.h"

#include <dlfcn.h>

#include <cstring>
#include <vector>

#include "jit/cuda/compile/nvidia_packages.h"
#include "runtime/oracle/data_sets.h"

namespace lathe::bench {

using ir::Result;
using ir::Status;

namespace {

// Values of the interface, under its own names in comments.
constexpr int kCompute32F = 68;                     // CUBLAS_COMPUTE_32F: no TF32
constexpr int kReal32F = 0, kReal16BF = 14;         // CUDA_R_32F, CUDA_R_16BF
constexpr int kTransposeA = 3, kTransposeB = 4;     // CUBLASLT_MATMUL_DESC_TRANSA, _TRANSB
constexpr int kNotTransposed = 0, kTransposed = 1;  // CUBLAS_OP_N, _T
constexpr int kMostWorkspace = 1;                   // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
constexpr size_t kWorkspace = size_t{32} << 20, kAlign = 256;

// cublasLtMatmulHeuristicResult_t.
struct Heuristic {
  uint64_t algorithm[8];
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(Heuristic) == 96);

constexpr const char* kNames[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so",
                                  "/usr/local/cuda/lib64/libcublasLt.so"};
// Of Python's packages, which torch brings.
constexpr const char* kPackages[] = {"cu13/lib", "cublas/lib"};

std::vector<std::string> places() {
  std::vector<std::string> out(std::begin(kNames), std::end(kNames));
  for (const std::string& folder : jit::nvidia_packages()) {
    for (const char* package : kPackages) {
      for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"})
        out.push_back(folder + "/" + package + "/" + name);
    }
  }
  return out;
}

}  // namespace

struct CublasLt::Table {
#define LATHE_CUBLASLT(name, ...) int (*name)(__VA_ARGS__) = nullptr;
#include "bench/gpu/cublaslt.def"
#undef LATHE_CUBLASLT

  const char* find(void* library) {
#define LATHE_CUBLASLT(name, ...)                                       \
  name = reinterpret_cast<int (*)(__VA_ARGS__)>(dlsym(library, #name)); \
  if (name == nullptr) return #name;
#include "bench/gpu/cublaslt.def"
#undef LATHE_CUBLASLT
    return nullptr;
  }
};

CublasLt::CublasLt(std::unique_ptr<Table> table, std::shared_ptr<runtime::DeviceSession> session)
    : table_(std::move(table)), session_(std::move(session)) {}

CublasLt::~CublasLt() {
  const runtime::CurrentDevice current(*session_->device());
  if (handle_ != nullptr) (void)table_->cublasLtDestroy(handle_);
}

Result<std::unique_ptr<CublasLt>> CublasLt::open(const std::string& path,
                                                 std::shared_ptr<runtime::DeviceSession> session) {
  std::string reasons;
  void* library = nullptr;
  for (const std::string& place : path.empty() ? places() : std::vector<std::string>{path}) {
    if (library != nullptr) break;
    library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    const char* why = library == nullptr ? dlerror() : nullptr;
    if (why != nullptr) reasons += std::string("; ") + why;
  }
  if (library == nullptr) return ir::unsupported("no cuBLASLt{}", reasons);
  auto table = std::make_unique<Table>();
  if (const char* missing = table->find(library)) return ir::unsupported("cuBLASLt lacks {}", missing);
  std::unique_ptr<CublasLt> out(new CublasLt(std::move(table), std::move(session)));
  const runtime::CurrentDevice current(*out->session_->device());
  if (const int error = out->table_->cublasLtCreate(&out->handle_); error != 0)
    return ir::unsupported("cuBLASLt does not start: {}", error);
  return out;
}

// cuBLASLt's matrices are column-major: what is computed is c^T = b^T * a^T, whose operands are those of the caller as
// they lie.
Result<CublasLt::Prepared> CublasLt::prepare(const Product& p) {
  runtime::DeviceSession& s = *session_;
  const Table& t = *table_;
  const runtime::CurrentDevice current(*s.device());
  const auto check = [](int error, const char* what) {
    return error == 0 ? Status() : ir::make_error(ir::Code::kDEVICE, "cuBLASLt: {}: {}", what, error);
  };
  const int type = p.bf16 ? kReal16BF : kReal32F;
  const ir::DType element = p.bf16 ? ir::DType::bf16 : ir::DType::f32;
  Prepared out;
  std::vector<runtime::DeviceMemory>& memory = out.memory;
  const int64_t sizes[] = {p.m * p.k, p.k * p.n, p.m * p.n};
  for (const int64_t size : sizes) {
    const auto bytes = static_cast<size_t>(ir::dtype_bytes(element, size));
    LATHE_ASSIGN(runtime::DeviceMemory made, runtime::DeviceMemory::map(s.device(), bytes, kAlign));
    std::vector<char> data(bytes);
    runtime::fill_tame(element, memory.size(), data.data(), static_cast<int64_t>(bytes));
    LATHE_RETURN_IF_ERROR(s.to_device(made.data(), data.data(), bytes));
    LATHE_RETURN_IF_ERROR(s.finish());
    memory.push_back(std::move(made));
  }
  LATHE_ASSIGN(runtime::DeviceMemory workspace, runtime::DeviceMemory::map(s.device(), kWorkspace, kAlign));
  memory.push_back(std::move(workspace));
  void *product = nullptr, *left = nullptr, *right = nullptr, *result = nullptr, *preference = nullptr;
  LATHE_RETURN_IF_ERROR(check(t.cublasLtMatmulDescCreate(&product, kCompute32F, kReal32F), "product"));
  const int left_op = p.b_rows ? kTransposed : kNotTransposed, right_op = kNotTransposed;
  LATHE_RETURN_IF_ERROR(
      check(t.cublasLtMatmulDescSetAttribute(product, kTransposeA, &left_op, sizeof left_op), "transpose"));
  LATHE_RETURN_IF_ERROR(
      check(t.cublasLtMatmulDescSetAttribute(product, kTransposeB, &right_op, sizeof right_op), "transpose"));
  const auto at = [](int64_t v) { return static_cast<uint64_t>(v); };
  const auto layout = [&](void** out, int64_t rows, int64_t columns) {
    return check(t.cublasLtMatrixLayoutCreate(out, type, at(rows), at(columns), rows), "layout");
  };
  LATHE_RETURN_IF_ERROR(layout(&left, p.b_rows ? p.k : p.n, p.b_rows ? p.n : p.k));
  LATHE_RETURN_IF_ERROR(layout(&right, p.k, p.m));
  LATHE_RETURN_IF_ERROR(layout(&result, p.n, p.m));
  LATHE_RETURN_IF_ERROR(check(t.cublasLtMatmulPreferenceCreate(&preference), "preference"));
  LATHE_RETURN_IF_ERROR(check(
      t.cublasLtMatmulPreferenceSetAttribute(preference, kMostWorkspace, &kWorkspace, sizeof kWorkspace), "workspace"));
  Heuristic best{};
  int found = 0;
  LATHE_RETURN_IF_ERROR(check(
      t.cublasLtMatmulAlgoGetHeuristic(handle_, product, left, right, result, result, preference, 1, &best, &found),
      "algorithm"));
  if (found < 1) return ir::unsupported("cuBLASLt has no algorithm for it");
  const float one = 1, zero = 0;
  LATHE_ASSIGN(out.graph, s.record([&](void* stream) {
    return check(t.cublasLtMatmul(handle_, product, &one, memory[1].data(), left, memory[0].data(), right, &zero,
                                  memory[2].data(), result, memory[2].data(), result, best.algorithm, memory[3].data(),
                                  kWorkspace, stream),
                 "launch");
  }));
  (void)t.cublasLtMatmulPreferenceDestroy(preference);
  for (void* l : {left, right, result}) (void)t.cublasLtMatrixLayoutDestroy(l);
  (void)t.cublasLtMatmulDescDestroy(product);
  return out;
}

}  // namespace lathe::bench
