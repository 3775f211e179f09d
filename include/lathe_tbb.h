/* A host's tbb::task_arena as a lathe_pool. C++17, header only: whoever includes it links oneTBB.
 *
 *   tbb::task_arena arena(4);
 *   lathe_pool pool = lathe_tbb_pool(arena);   // the arena outlives it
 *   lathe_exec exec = LATHE_EXEC_INIT;
 *   exec.pool = &pool;
 *   exec.threads = 4;
 */
#ifndef LATHE_TBB_H
#define LATHE_TBB_H

#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/partitioner.h>
#include <oneapi/tbb/task_arena.h>

#include "lathe.h"

/* The pool holds a pointer to the arena, which must outlive every call with it. It may be copied, and several threads
 * may use it at once. A call made from inside another call's loop runs serially. One made from inside a loop of the
 * host's own uses the arena, and while it waits takes none of the host's items. */
inline lathe_pool lathe_tbb_pool(tbb::task_arena& arena) {
  struct Loop {
    static int& depth() {
      static thread_local int n = 0;
      return n;
    }
  };
  lathe_pool pool = LATHE_POOL_INIT;
  pool.self = &arena;
  pool.num_threads = [](void* self) -> int32_t { return static_cast<tbb::task_arena*>(self)->max_concurrency(); };
  pool.parallel_for = [](void* self, int32_t n, void (*body)(void*, int32_t), void* ctx) {
    const auto part = [body, ctx](int32_t i) {
      ++Loop::depth();
      body(ctx, i);
      --Loop::depth();
    };
    tbb::task_group_context alone(tbb::task_group_context::isolated,
                                  tbb::task_group_context::default_traits | tbb::task_group_context::fp_settings);
    static_cast<tbb::task_arena*>(self)->execute([&] {
      tbb::this_task_arena::isolate([&] { tbb::parallel_for(int32_t{0}, n, part, tbb::simple_partitioner(), alone); });
    });
  };
  pool.in_parallel = [](void*) -> int32_t { return Loop::depth() > 0; };
  return pool;
}

#endif
