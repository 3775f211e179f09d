// Coarse work on several threads: what is worth a millisecond an item (preparing operators, compiling, packing,
// references, files). Never beside a timing, and not for calls, which take microseconds: those have the team of
// runtime/walk/threads.h. Threads are oneTBB's: the process has one set of them, shared with the host's own arenas, so
// nothing is set on them: no priority, no affinity. After fork() the child has none and works alone.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>

#include "ir/base/status.h"

namespace lathe::runtime {

class TaskArena {
 public:
  // At most so many threads work in it at once, the caller included, and no more than the process may have. Starts
  // none.
  explicit TaskArena(int threads);
  ~TaskArena();
  TaskArena(const TaskArena&) = delete;
  TaskArena& operator=(const TaskArena&) = delete;

  int threads() const;  // 1 in a child of the process that made it

 private:
  friend ir::Status for_each_index(TaskArena* arena, size_t n, const std::function<ir::Status(size_t)>& work);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// work(i) for each i < n, in any order; all that were begun are done at return. The error of the smallest i that has
// one, whoever was first; after an error larger i may be left out. Null or one thread: the caller alone, in order. It
// may be called from inside work. Threads compute as the caller's floating-point control says.
ir::Status for_each_index(TaskArena* arena, size_t n, const std::function<ir::Status(size_t)>& work);

}  // namespace lathe::runtime
