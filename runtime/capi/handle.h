// The handles of the C ABI: a shell with a magic word around a body. Destroying empties the shell and keeps it for a
// while with the context's state, so that a dead handle is told from a live one.
#pragma once
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "include/lathe.h"
#include "ops/graph.h"
#include "runtime/capi/call_args.h"
#include "runtime/capi/error.h"
#include "runtime/serve/context.h"
#include "runtime/serve/served_operators.h"

namespace lathe::runtime {

class OnlineTuner;

inline constexpr uint64_t kDeadMagic = 0x64616568746c6144;  // of every destroyed handle
inline constexpr size_t kDeadShells = 1024;                 // remembered per context
inline constexpr int kMaxThreads = 256;
inline constexpr uint32_t kMaxDevices = 64;

template <class Body, uint64_t kMagicWord>
struct Shell {
  static constexpr uint64_t kMagic = kMagicWord;
  uint64_t magic = kMagic;
  std::unique_ptr<Body> body;
};

// What a context's handles share.
struct ContextState {
  explicit ContextState(std::shared_ptr<Context> shared);
  ~ContextState();  // no handle is left: background work ends here, on the host's thread
  const std::shared_ptr<Context> context;
  const std::unique_ptr<OnlineTuner> tuner;
  ServedOperators served;

  std::mutex mutex;  // of the dead
  void retire(std::shared_ptr<void> shell) {
    std::lock_guard lock(mutex);
    dead.push_back(std::move(shell));
    if (dead.size() > kDeadShells) dead.pop_front();
  }
  std::deque<std::shared_ptr<void>> dead;
};

struct ContextBody {
  std::shared_ptr<ContextState> state;
};
struct GraphBody {
  std::shared_ptr<ContextState> state;
  ops::Graph graph;
  bool finished = false;
};
struct KernelBody {
  std::shared_ptr<ContextState> state;
  std::shared_ptr<ServedOperator> served;
  std::shared_ptr<Operator> op;
  CallPlan plan;
  std::shared_ptr<CudaDevice> device;  // null: the CPU
};
// What a pinned call needs to look at the values of its arguments.
struct PinnedValues {
  CallPlan plan;
  DispatchKey key;
};
struct PinnedBody {
  std::shared_ptr<ContextState> state;
  std::shared_ptr<Operator> op;
  std::unique_ptr<BoundOp> own;  // if the operator keeps no more shapes
  const BoundOp* bound = nullptr;
  ThreadTeam* team = nullptr;            // the context's
  std::shared_ptr<CudaDevice> device;    // null: the CPU
  std::unique_ptr<PinnedValues> values;  // null: any will do
};

}  // namespace lathe::runtime

struct lathe_context : lathe::runtime::Shell<lathe::runtime::ContextBody, 0x7478746e6f63> {};
struct lathe_graph : lathe::runtime::Shell<lathe::runtime::GraphBody, 0x68706172676c> {};
struct lathe_kernel : lathe::runtime::Shell<lathe::runtime::KernelBody, 0x6c656e72656b> {};
struct lathe_pinned : lathe::runtime::Shell<lathe::runtime::PinnedBody, 0x64656e6e6970> {};

namespace lathe::runtime {

template <class H>
ir::Status handle_error(const H* handle, const char* name, int index) {
  if (handle == nullptr) return null_argument(name, index);
  if (handle->magic == kDeadMagic)
    return ir::make_error(ir::Code::kSTATE, "the handle was destroyed").with_arg(name, index);
  return ir::invalid("not a handle of this kind").with_arg(name, index);
}
template <class H>
bool is_live(const H* handle) {
  return handle != nullptr && handle->magic == H::kMagic;
}
#define LATHE_CHECK_HANDLE(handle, index) \
  if (!is_live(handle)) return handle_error(handle, #handle, index)
#define LATHE_CHECK_POINTER(pointer, index) \
  if ((pointer) == nullptr) return null_argument(#pointer, index)

template <class H, class Body>
H* make_handle(Body body) {
  auto shell = std::make_unique<H>();
  shell->body = std::make_unique<Body>(std::move(body));
  return shell.release();
}

// Null and dead handles are left alone.
template <class H>
void destroy_handle(H* handle) noexcept {
  if (!is_live(handle)) return;
  try {
    const std::shared_ptr<ContextState> state = handle->body->state;
    std::shared_ptr<H> shell(handle);
    handle->magic = kDeadMagic;
    handle->body.reset();
    state->retire(std::move(shell));
  } catch (...) {  // no memory to remember it: it is gone all the same
  }
}

// Reads the parameter of index 2 (null: the defaults).
ir::Status read_policy(const lathe_policy* policy, ServeRequest& request, uint64_t& max_workspace);
// Reads a caller's text: not null, not empty, at most kMaxText characters.
inline constexpr size_t kMaxText = 4095;
ir::Result<std::string> read_text(const char* text, const std::string& name, int index, size_t max = kMaxText);

}  // namespace lathe::runtime
