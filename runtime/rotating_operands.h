// Operands for timing several Stages of one Kernel: activations and outputs hot and shared by all;
// constants either hot or, if cold, rotated over copies that are together at least twice the
// last-level cache. Contents are tame numbers, not a correct packing: times do not depend on them.
// Not thread-safe.
#pragma once
#include <memory>
#include <vector>

#include "ir/status.h"
#include "runtime/bound_nest.h"
#include "runtime/compiler.h"
#include "runtime/threads.h"

namespace lathe::runtime {

struct RotatingOptions {
  SymbolValues dims;
  int threads = 1;
  bool cold = false;
  int64_t cache_bytes = 0;  // the last-level cache
};

class RotatingOperands {
 public:
  // Stages and team (null: the caller's thread) outlive it. UNSUPPORTED: no memory.
  static ir::Result<std::unique_ptr<RotatingOperands>> create(
      const ir::Kernel& naive, const std::vector<const Stage*>& stages,
      const RotatingOptions& options, ThreadTeam* team);
  ~RotatingOperands();
  // Runs a Stage once, on the next copy of the constants.
  void call(int stage);
  int copies() const;

 private:
  struct Impl;
  explicit RotatingOperands(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lathe::runtime
