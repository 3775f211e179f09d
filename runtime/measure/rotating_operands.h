// Operands for timing several Stages of one Kernel: activations and outputs hot and shared by all; constants either hot
// or, if cold, rotated over copies that are together as large as the options say, and evicted before a sample: where
// memory does not allow so many, all that a sample reads is, however long that takes.
// Where constants are less than half of what is read, everything rotates: a cache of keys comes from memory, too.
// Contents are tame numbers, not a correct packing: times do not depend on them. Not thread-safe.
#pragma once
#include <memory>

#include "ir/base/status.h"
#include "runtime/compile/compiler.h"
#include "runtime/walk/threads.h"

namespace lathe::runtime {

struct RotatingOptions {
  SymbolValues dims;
  int threads = 1;
  bool cold = false;
  int64_t cold_bytes = 0;      // that copies of cold operands have together, at least:
  int64_t memory = INT64_MAX;  // but no more than this
};

class RotatingOperands {
 public:
  // team (null: the caller's thread) outlives it. UNSUPPORTED: no memory.
  static ir::Result<std::unique_ptr<RotatingOperands>> create(const ir::Kernel& naive, const RotatingOptions& options,
                                                              ThreadTeam* team);
  ~RotatingOperands();
  // A Stage to call, by number from 0; it outlives this object. Operands grow where its packing is larger.
  ir::Result<int> add(const Stage& stage);
  // Where in their pages operands and workspace begin from now on (sample.h); at first 0. The pages stay the same.
  void place(int placement);
  // Runs a Stage once, on the next copy of the constants.
  void call(int stage);
  // Cold: the copies that the next calls read leave the caches. What is large has left them by rotation already.
  void evict(int calls);
  int copies() const;

 private:
  struct Impl;
  explicit RotatingOperands(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lathe::runtime
