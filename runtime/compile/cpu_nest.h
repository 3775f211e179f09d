// The Executable of the CPU: a cut Kernel with its leaves, bound by bind_nest() and walked.
#pragma once
#include <vector>

#include "ir/nest.h"
#include "runtime/compile/executable.h"
#include "runtime/walk/leaf_ref.h"

namespace lathe::runtime {

struct CpuNest final : Executable {
  explicit CpuNest(ir::CutKernel from) : cut(std::move(from)) {}
  MemorySpace memory() const override { return MemorySpace::host; }
  ir::Result<std::unique_ptr<const BoundExecutable>> bind(const SymbolValues& symbols,
                                                          const std::vector<ArgLayout>& layouts,
                                                          int threads) const override;
  std::unique_ptr<Executable> copy() const override { return std::make_unique<CpuNest>(*this); }
  CpuNest* cpu_nest() override { return this; }

  ir::CutKernel cut;
  std::vector<LeafRef> leaves;  // of cut.leaves; empty: it can be bound, not run
};

}  // namespace lathe::runtime
