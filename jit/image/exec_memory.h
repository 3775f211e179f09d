// Turns code images into callable functions: the one loader for images fresh from a generator and from the store, so
// the code that was measured is the code that serves. Memory is never writable and executable at one address: a memory
// file mapped twice (dual), else pages of their own made executable once (flip), else a refusal. Code stays mapped
// until the ExecMemory goes. After fork() a child's first load opens a new arena; what the parent loaded stays callable
// there. Thread-safe.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "ir/base/status.h"
#include "ir/leaf_abi.h"
#include "jit/program/backend.h"

namespace lathe::jit {

enum class ExecMode : uint8_t { automatic, dual, flip, off };

struct ExecStats {
  int images = 0;
  ExecMode mode = ExecMode::automatic;  // of the current arena; automatic: none opened yet
};

struct LoadedCode {
  ir::LeafFn entry = nullptr;
  const void* text = nullptr;  // start of the image's bytes as executed
  size_t size = 0;
};

class ExecMemory {
 public:
  static constexpr size_t kDefaultLimit = size_t{64} << 20;
  explicit ExecMemory(ExecMode mode, size_t limit_bytes = kDefaultLimit);
  ~ExecMemory();
  ExecMemory(const ExecMemory&) = delete;
  ExecMemory& operator=(const ExecMemory&) = delete;

  // Opens the arena that the first load would open, with its cost. What the system forbids, load() reports.
  void reserve();
  // UNSUPPORTED: the host lacks a feature of the image, code memory is off, or the system forbids it; NOMEM: the limit
  // is reached; INVALID: an image whose entry or sizes are wrong.
  ir::Result<LoadedCode> load(const CodeImage& image);
  ExecStats stats() const;

 private:
  struct State;  // arenas of one process
  State& current_state() const;

  const ExecMode mode_;
  const size_t limit_;
  mutable std::atomic<State*> state_;
};

}  // namespace lathe::jit
