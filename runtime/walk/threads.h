// Where parallel work runs: the host's pool, a team of Lathe's own if the host asked for one, else
// the caller's thread. A phase is one parallel_for of a few equal parts, without a barrier inside,
// so any pool can run it. The own team is made at the first use, spins for a bounded time between
// phases, then sleeps; after fork() the child makes a new one. No thread exists before that.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace lathe::runtime {

using TaskFn = void (*)(void* context, int index);

// The host's pool; each entry takes `user`. in_parallel: whether the calling thread is inside one
// of its parallel regions (then Lathe stays serial). in_parallel may be null.
struct HostPool {
  void* user = nullptr;
  int (*num_threads)(void* user) = nullptr;
  void (*parallel_for)(void* user, int count, TaskFn task, void* context) = nullptr;
  int (*in_parallel)(void* user) = nullptr;
};

struct TeamOptions {
  int threads = 1;
  int spin_us = 100;      // before a worker sleeps
  std::vector<int> cpus;  // worker i runs on cpus[i % size]; empty: as the thread that first uses the team. A
                          // pinned caller must say where its workers go, or they all share its CPU.
};

class ThreadTeam {
 public:
  ThreadTeam();  // the caller's thread
  explicit ThreadTeam(const HostPool& pool);
  explicit ThreadTeam(TeamOptions options);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int num_threads() const;

  // task(context, i) for each i < count, each once, all done at return. Serial on the caller's
  // thread when nested, when another thread uses the team, or when it has one thread. Thread-safe;
  // takes no lock, allocates only to make the team.
  void parallel_for(int count, TaskFn task, void* context);
  template <class F>
  void parallel_for(int count, F&& f) {
    parallel_for(count, [](void* c, int i) { (*static_cast<std::remove_reference_t<F>*>(c))(i); }, &f);
  }

 private:
  struct Team;
  Team* team();  // the live team of this process; null if no thread could be made

  HostPool pool_;
  TeamOptions options_;
  std::atomic<Team*> team_{nullptr};
};

}  // namespace lathe::runtime
