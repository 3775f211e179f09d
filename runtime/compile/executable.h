// What a Stage runs as: it binds to a shape, and what comes of that runs. The first one is the CPU's nest (cpu_nest.h),
// the second a GPU's launches (runtime/cuda/launch.h). Immutable while it is shared; thread-safe then.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "runtime/walk/nest_bind.h"
#include "runtime/walk/threads.h"

namespace lathe::runtime {

struct CpuNest;

// Where operands and workspace of an Executable must lie.
enum class MemorySpace : uint8_t {
  host,   // this process reads and writes it
  device  // it cannot
};

// Bound to one shape and a number of threads. Lives no longer than its Executable. Any number of threads may run it,
// each with its own workspace. What it runs by depends on Executable::memory(): run() in host memory, launch() on a
// device.
class BoundExecutable {
 public:
  virtual ~BoundExecutable() = default;
  // params: addresses of first elements, per parameter of the Kernel. workspace: workspace_bytes() of it, 64-byte
  // aligned. Allocates nothing, takes no lock, checks nothing.
  virtual void run(void* const* /*params*/, void* /*workspace*/, ThreadTeam* /*team*/) const {}
  // The same on a device: joins the caller's stream and waits for nothing. DEVICE: the device refuses.
  virtual ir::Status launch(void* const* /*params*/, void* /*workspace*/, void* /*stream*/) const {
    return ir::internal_error("launched on a stream, expected a run on the CPU");
  }
  // What run() comes to where that is one call of a leaf: `call` null if it is more.
  struct OneCall {
    const DirectCall* call = nullptr;  // its arguments are params
    const LeafRef* leaf = nullptr;
  };
  virtual OneCall one_call() const { return {}; }
  int64_t workspace_bytes() const { return workspace_bytes_; }

 protected:
  explicit BoundExecutable(int64_t workspace_bytes) : workspace_bytes_(workspace_bytes) {}

 private:
  int64_t workspace_bytes_;
};

class Executable {
 public:
  virtual ~Executable() = default;
  virtual MemorySpace memory() const = 0;
  // Everything is checked here; errors as of bind_nest().
  virtual ir::Result<std::unique_ptr<const BoundExecutable>> bind(const SymbolValues& symbols,
                                                                  const std::vector<ArgLayout>& layouts,
                                                                  int threads) const = 0;
  // Makes what is left for the first bind(); that one's error, where it would have one of its own.
  virtual ir::Status complete() const { return {}; }
  virtual std::unique_ptr<Executable> copy() const = 0;
  // For who shows, probes or changes the parts of the CPU's; null: it is another.
  virtual CpuNest* cpu_nest() { return nullptr; }
  const CpuNest* cpu_nest() const { return const_cast<Executable*>(this)->cpu_nest(); }
};

// UNSUPPORTED unless `who` can reach the operands from this process.
inline ir::Status check_host_memory(const Executable& executable, const char* who) {
  if (executable.memory() == MemorySpace::host) return {};
  return ir::unsupported("{}: operands in device memory, expected host memory", who);
}

// Owns an Executable; a copy owns a copy.
class OwnedExecutable {
 public:
  OwnedExecutable() = default;
  template <class E>
  OwnedExecutable(std::unique_ptr<E> owned) : owned_(std::move(owned)) {}  // NOLINT: what owns it is said
  OwnedExecutable(const OwnedExecutable& o) : owned_(o.owned_ == nullptr ? nullptr : o.owned_->copy()) {}
  OwnedExecutable(OwnedExecutable&&) noexcept = default;
  OwnedExecutable& operator=(OwnedExecutable o) noexcept {
    owned_ = std::move(o.owned_);
    return *this;
  }
  ~OwnedExecutable() = default;
  Executable* operator->() { return owned_.get(); }
  const Executable* operator->() const { return owned_.get(); }
  Executable& operator*() { return *owned_; }
  const Executable& operator*() const { return *owned_; }

 private:
  std::unique_ptr<Executable> owned_;
};

}  // namespace lathe::runtime
