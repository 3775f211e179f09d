// See tasks.h. The only file of the library that includes oneTBB. Thread sanitizers do not see inside oneTBB's library:
// this file is built without them (runtime/CMakeLists.txt) and tells them where work is handed over.
#include "runtime/base/tasks.h"

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "runtime/base/fork_mark.h"

#ifdef LATHE_TELL_TSAN
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
#else
static void __tsan_acquire(void*) {}
static void __tsan_release(void*) {}
#endif

namespace lathe::runtime {

using ir::Status;

namespace {

// One for the process: what oneTBB has of its own is as lost in a child as an arena is. Never destroyed: arenas of
// static storage may outlive it.
const ForkMark& process_mark() {
  static const ForkMark* mark = new ForkMark;
  return *mark;
}

// The error of the smallest index so far.
class FirstError {
 public:
  bool before(size_t i) const { return index_.load(std::memory_order_relaxed) < i; }
  void set(size_t i, Status status) {
    const std::lock_guard lock(mutex_);
    if (before(i)) return;
    index_.store(i, std::memory_order_relaxed);
    status_ = std::move(status);
  }
  Status take() { return std::move(status_); }

 private:
  std::atomic<size_t> index_{SIZE_MAX};
  std::mutex mutex_;
  Status status_;
};

// oneTBB says on the standard error that it has no more threads than this, where it is asked for more.
int allowed(int threads) {
  const size_t most = tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism);
  return std::max(1, static_cast<int>(std::min(most, static_cast<size_t>(std::max(threads, 1)))));
}

}  // namespace

struct TaskArena::Impl {
  explicit Impl(int threads) : arena(threads), threads(threads) {}
  tbb::task_arena arena;
  int threads;
};

TaskArena::TaskArena(int threads) : impl_(std::make_unique<Impl>(allowed(threads))) { (void)process_mark(); }

TaskArena::~TaskArena() {
  if (!process_mark().here()) (void)impl_.release();  // its locks may be held by threads that are not there
}

int TaskArena::threads() const { return process_mark().here() ? impl_->threads : 1; }

Status for_each_index(TaskArena* arena, size_t n, const std::function<Status(size_t)>& work) {
  if (arena == nullptr || n < 2 || arena->threads() < 2) {
    for (size_t i = 0; i < n; ++i) LATHE_RETURN_IF_ERROR(work(i));
    return {};
  }
  FirstError error;
  char handed_over = 0, handed_back = 0;
  tbb::task_group_context caller(tbb::task_group_context::isolated,
                                 tbb::task_group_context::default_traits | tbb::task_group_context::fp_settings);
  __tsan_release(&handed_over);
  arena->impl_->arena.execute([&] {
    // Who waits for the last items takes none of an outer loop meanwhile: those may be long.
    tbb::this_task_arena::isolate([&] {
      const auto one = [&](size_t i) {
        if (error.before(i)) return;
        __tsan_acquire(&handed_over);
        Status status = work(i);
        if (!status.ok()) error.set(i, std::move(status));
        __tsan_release(&handed_back);
      };
      tbb::parallel_for(size_t{0}, n, one, tbb::simple_partitioner(), caller);
    });
  });
  __tsan_acquire(&handed_back);
  return error.take();
}

}  // namespace lathe::runtime
