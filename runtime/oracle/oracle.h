// Whether a built Stage computes what its naive Kernel says, at one shape and thread count: three data sets (more where
// operands are small), each run twice (operands ending at, then starting after an unmapped page), against the
// interpreter on sampled cells. The references are computed once and shared by all Stages. A Stage that touches memory
// outside its operands faults: verify in a child what is not trusted. Not thread-safe.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "ir/base/status.h"
#include "ir/core/kernel.h"
#include "runtime/compile/compiler.h"
#include "runtime/walk/threads.h"

namespace lathe::runtime {

// exact: bits; bound: the a-priori bound of rounding; table: tolerances.def, or bits where nothing
// rounds.
enum class Gate : uint8_t { none, exact, bound, table };
const char* gate_name(Gate gate);

struct OracleTask {
  ir::Kernel naive;  // restricted as the Stages are
  SymbolValues dims;
  int threads = 1;
  uint64_t seed = 0;
  int64_t budget = 300'000;  // statements interpreted per data set and arithmetic
};

struct Verdict {
  bool ok = false;
  Gate gate = Gate::none;     // of the integer data, the strongest one
  double err_over_bound = 0;  // largest |y - r| / tolerance; <= 1 is within
  double rho = 0;             // |y - r| / (sqrt(K) u S) on random data, matmuls and sums only; honest sums
                              // stay below 1.5
  std::string reason;         // when not ok
};

class Oracle {
 public:
  // Computes nothing yet. team walks, arena computes references; either may be null (the caller's thread) and outlives
  // the oracle.
  static ir::Result<std::unique_ptr<Oracle>> create(OracleTask task, ThreadTeam* team, TaskArena* arena = nullptr);
  ~Oracle();

  // A verdict, or UNSUPPORTED if nothing can be said (no memory, sizes beyond the interpreter, a
  // nest that does not bind). alive is called between steps, which take seconds where operands are large; may be null.
  ir::Result<Verdict> verify(const Stage& stage, const std::function<void()>& alive = nullptr);
  // Grows when a Stage that passed turns out to be the wrong one of two that differ: verify earlier
  // ones again.
  int generation() const;
  // "x + 4096" for an address inside an operand of the running check or its guards, else empty.
  // Async-signal-safe.
  size_t describe(const void* address, char* out, size_t size) const;

 private:
  struct Impl;
  explicit Oracle(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lathe::runtime
