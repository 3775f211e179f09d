// cuBLASLt as a peer to measure against, where the machine has it: opened by name from declarations of the project's
// own, from NVIDIA's documented C interface. Not thread-safe.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/device_session.h"

namespace lathe::bench {

// A product of row-major matrices: c[m, n] = a[m, k] * b[k, n]; b_rows: b is [n, k] instead.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  bool bf16 = false, b_rows = false;  // else f32, without TF32
};

class CublasLt {
 public:
  // A product on random data, by cuBLASLt's own first choice of an algorithm, in a graph. The library and the session
  // outlive it.
  struct Prepared {
    std::vector<runtime::DeviceMemory> memory;  // a, b, c and a workspace
    std::unique_ptr<runtime::DeviceGraph> graph;
  };

  // path: a library; empty: where toolkits and Python's packages have it. UNSUPPORTED, with every reason: there is
  // none.
  static ir::Result<std::unique_ptr<CublasLt>> open(const std::string& path,
                                                    std::shared_ptr<runtime::DeviceSession> session);
  ~CublasLt();
  ir::Result<Prepared> prepare(const Product& product);

 private:
  struct Table;
  CublasLt(std::unique_ptr<Table> table, std::shared_ptr<runtime::DeviceSession> session);

  std::unique_ptr<Table> table_;
  std::shared_ptr<runtime::DeviceSession> session_;
  void* handle_ = nullptr;
};

}  // namespace lathe::bench
