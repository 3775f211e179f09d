// Leaves that watch their own first calls: callee-saved registers, stack pointer and depth, MXCSR, x87 control word,
// direction flag, the caller's frame (jit/host/abi_probe.h). What comes back broken is put right, so that the
// process that watches stays sound. Thread-safe.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "runtime/walk/leaf_ref.h"

namespace lathe::runtime {

class ProbedLeaves {
 public:
  // Each leaf's first calls, that many, are watched; the others go through.
  ProbedLeaves(const std::vector<LeafRef>& leaves, int calls);
  ~ProbedLeaves();
  const LeafRef* data() const { return refs_.data(); }
  // "leaf 2 does not keep rbx, mxcsr"; empty: nothing seen.
  std::string broken() const;

 private:
  struct Watched;
  std::vector<std::unique_ptr<Watched>> watched_;
  std::vector<LeafRef> refs_;
};

}  // namespace lathe::runtime
