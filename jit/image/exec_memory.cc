// See exec_memory.h. Each process has a State of its own (found by pid), so a mutex held by another thread at fork()
// never blocks the child and a child never writes to the memory file it shares with its parent.
#include "jit/image/exec_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <vector>

#include "ir/base/file_limit.h"
#include "jit/host/host_cpu.h"
#include "jit/image/image.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace lathe::jit {
namespace {

constexpr size_t kArenaBytes = size_t{1} << 20;
constexpr size_t kAlign = 64;
constexpr size_t kPage = 4096;
static_assert(kMaxImageCode < kArenaBytes - kPage);

constexpr size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

ir::Status system_error(const char* what) {
  const int error = errno;
  return ir::make_error_impl(ir::Code::kIO, fmt::format("code memory: {}: {}", what, std::strerror(error)), {}, -1,
                             error);
}

struct Arena {
  char* exec = nullptr;   // read and execute (flip: per page, after its image is written)
  char* write = nullptr;  // dual: the same memory, read and write; flip: exec
  size_t used = 0;
  bool dual = false;
};

ir::Result<Arena> open_dual() {
  const int fd = memfd_create("lathe-code", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return system_error("memfd_create");
  Arena arena;
  arena.dual = true;
  ir::Status status;
  void* write = MAP_FAILED;
  void* exec = MAP_FAILED;
  const ir::FileLimitGuard guard;
  if (ftruncate(fd, kArenaBytes) != 0) {
    status = system_error("ftruncate");
  } else if ((write = mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED) {
    status = system_error("mmap to write");
  } else {
    // Old kernels lack the last seal; the mapping rules hold without it.
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE) != 0) {
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    }
    exec = mmap(nullptr, kArenaBytes, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
    if (exec == MAP_FAILED) status = system_error("mmap to execute");
  }
  if (status.ok() && madvise(write, kArenaBytes, MADV_DONTFORK) != 0) status = system_error("madvise");
  close(fd);
  if (!status.ok()) {
    if (write != MAP_FAILED) munmap(write, kArenaBytes);
    if (exec != MAP_FAILED) munmap(exec, kArenaBytes);
    return status;
  }
  arena.write = static_cast<char*>(write);
  arena.exec = static_cast<char*>(exec);
  return arena;
}

ir::Result<Arena> open_flip() {
  void* memory = mmap(nullptr, kArenaBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return system_error("mmap");
  // A trial page: systems that forbid turning written pages executable say so here.
  if (mprotect(memory, kPage, PROT_READ | PROT_WRITE) != 0 || mprotect(memory, kPage, PROT_READ | PROT_EXEC) != 0) {
    const ir::Status status = system_error("mprotect");
    munmap(memory, kArenaBytes);
    return status;
  }
  Arena arena;
  arena.exec = arena.write = static_cast<char*>(memory);
  arena.used = kPage;
  return arena;
}

ir::Status loadable(const CodeImage& image) {
  LATHE_RETURN_IF_ERROR(check_image(image));
  if (const uint64_t missing = image.features & ~host_features()) {
    return ir::unsupported("image {} needs {}", image.symbol, feature_names(missing));
  }
  return {};
}

}  // namespace

struct ExecMemory::State {
  pid_t pid = getpid();
  State* parent = nullptr;  // the state a forked child inherited: its code may still run
  mutable std::mutex mutex;
  std::vector<Arena> arenas;
  size_t used = 0;
  int images = 0;

  ~State() {
    for (const Arena& arena : arenas) {
      if (arena.exec != arena.write) munmap(arena.write, kArenaBytes);
      munmap(arena.exec, kArenaBytes);
    }
  }

  ir::Status open(ExecMode mode, size_t limit) {
    if ((arenas.size() + 1) * kArenaBytes > std::max(limit, kArenaBytes)) {
      return ir::make_error(ir::Code::kNOMEM, "code memory: the limit of {} bytes is reached", limit);
    }
    ir::Status refusal;
    // What worked once is not tried again: the first arena decides.
    const bool flip_only = mode == ExecMode::flip || (!arenas.empty() && !arenas[0].dual);
    if (!flip_only) {
      ir::Result<Arena> arena = open_dual();
      if (arena.ok()) {
        arenas.push_back(*arena);
        return {};
      }
      refusal = arena.status();
    }
    if (mode != ExecMode::dual) {
      ir::Result<Arena> arena = open_flip();
      if (arena.ok()) {
        arenas.push_back(*arena);
        return {};
      }
      refusal = arena.status();
    }
    return ir::make_error_impl(ir::Code::kUNSUPPORTED, refusal.message(), {}, -1, refusal.os_errno());
  }
};

ExecMemory::ExecMemory(ExecMode mode, size_t limit_bytes) : mode_(mode), limit_(limit_bytes), state_(new State) {}

ExecMemory::~ExecMemory() {
  for (State* state = state_.load(); state;) {
    State* parent = state->parent;
    // A parent's write view is not mapped in a forked child: something else may live at that address by now.
    if (state->pid != getpid()) {
      for (Arena& arena : state->arenas) arena.write = arena.exec;
    }
    delete state;
    state = parent;
  }
}

ExecMemory::State& ExecMemory::current_state() const {
  State* state = state_.load(std::memory_order_acquire);
  if (state->pid == getpid()) return *state;
  auto fresh = std::make_unique<State>();
  fresh->parent = state;
  if (state_.compare_exchange_strong(state, fresh.get(), std::memory_order_acq_rel)) return *fresh.release();
  return *state;  // another thread of the child was first
}

void ExecMemory::reserve() {
  if (mode_ == ExecMode::off) return;
  State& state = current_state();
  const std::lock_guard<std::mutex> lock(state.mutex);
  if (state.arenas.empty()) (void)state.open(mode_, limit_);
}

ir::Result<LoadedCode> ExecMemory::load(const CodeImage& image) {
  LATHE_RETURN_IF_ERROR(loadable(image));
  if (mode_ == ExecMode::off) return ir::unsupported("code memory is off");
  State& state = current_state();
  const std::lock_guard<std::mutex> lock(state.mutex);
  if (state.used + image.code.size() > limit_) {
    return ir::make_error(ir::Code::kNOMEM, "code memory: the limit of {} bytes is reached", limit_);
  }
  const auto size_in = [&image](const Arena& a) { return round_up(image.code.size(), a.dual ? kAlign : kPage); };
  if (state.arenas.empty() || state.arenas.back().used + size_in(state.arenas.back()) > kArenaBytes) {
    LATHE_RETURN_IF_ERROR(state.open(mode_, limit_));
  }
  Arena& arena = state.arenas.back();
  const size_t size = size_in(arena);
  char* write = arena.write + arena.used;
  char* exec = arena.exec + arena.used;
  if (!arena.dual && mprotect(write, size, PROT_READ | PROT_WRITE) != 0) return system_error("mprotect to write");
  std::memcpy(write, image.code.data(), image.code.size());
  if (!arena.dual && mprotect(exec, size, PROT_READ | PROT_EXEC) != 0) return system_error("mprotect to execute");
  arena.used += size;
  state.used += size;
  ++state.images;
  LoadedCode loaded;
  loaded.text = exec;
  loaded.size = image.code.size();
  loaded.entry = reinterpret_cast<ir::LeafFn>(reinterpret_cast<uintptr_t>(exec + image.entry));
  return loaded;
}

ExecStats ExecMemory::stats() const {
  State& state = current_state();
  const std::lock_guard<std::mutex> lock(state.mutex);
  ExecStats stats;
  stats.images = state.images;
  if (!state.arenas.empty()) stats.mode = state.arenas.back().dual ? ExecMode::dual : ExecMode::flip;
  return stats;
}

}  // namespace lathe::jit
