// See threads.h. One job at a time: `ticket` holds its number, its count and the next unclaimed
// index, so that a late worker can only claim an index of the job whose fields it has just read.
#include "runtime/walk/threads.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

#include "runtime/base/clock.h"
#include "runtime/base/fork_mark.h"
#include "runtime/walk/x86/cpu.h"

namespace lathe::runtime {
namespace {

constexpr int kMaxParts = 0xffff;

void futex(std::atomic<uint32_t>* word, int op, uint32_t value) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), op | FUTEX_PRIVATE_FLAG, value, nullptr, nullptr, 0);
}

uint64_t make_ticket(uint64_t job, int count) { return job << 32 | static_cast<uint64_t>(count) << 16; }
int ticket_count(uint64_t t) { return static_cast<int>(t >> 16 & 0xffff); }
int ticket_index(uint64_t t) { return static_cast<int>(t & 0xffff); }

}  // namespace

struct ThreadTeam::Team {
  alignas(64) std::atomic<uint64_t> ticket{0};
  std::atomic<TaskFn> task{nullptr};
  std::atomic<void*> context{nullptr};
  alignas(64) std::atomic<int> done{0};
  alignas(64) std::atomic<bool> busy{false};
  std::atomic<bool> stop{false};
  alignas(64) std::atomic<uint32_t> signal{0};
  std::atomic<int> sleepers{0};
  int64_t spin_ns = 0;
  ForkMark mark;
  Team* before_fork = nullptr;
  std::vector<pthread_t> workers;

  bool live() const { return mark.here(); }

  // Runs one unclaimed index of the current job.
  bool run_one() {
    uint64_t t = ticket.load(std::memory_order_acquire);
    while (ticket_index(t) < ticket_count(t)) {
      const TaskFn f = task.load(std::memory_order_relaxed);
      void* c = context.load(std::memory_order_relaxed);
      if (!ticket.compare_exchange_weak(t, t + 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
      f(c, ticket_index(t));
      done.fetch_add(1, std::memory_order_release);
      return true;
    }
    return false;
  }

  void work() {
    while (!stop.load(std::memory_order_acquire)) {
      int64_t deadline = 0;
      uint32_t spins = 0;
      while (!run_one() && !stop.load(std::memory_order_relaxed)) {
        pause_cpu();
        if (++spins % 64 != 0) continue;
        const int64_t now = now_ns();
        if (deadline == 0) deadline = now + spin_ns;
        if (now < deadline) continue;
        const uint32_t seen = signal.load();
        sleepers.fetch_add(1);
        const uint64_t t = ticket.load();
        if (ticket_index(t) >= ticket_count(t) && !stop.load()) futex(&signal, FUTEX_WAIT, seen);
        sleepers.fetch_sub(1);
        deadline = 0;
      }
    }
  }

  void wake() {
    signal.fetch_add(1);
    if (sleepers.load() > 0) futex(&signal, FUTEX_WAKE, INT_MAX);
  }

  void run(int count, TaskFn f, void* c) {
    task.store(f, std::memory_order_relaxed);
    context.store(c, std::memory_order_relaxed);
    done.store(0, std::memory_order_relaxed);
    const uint64_t job = (ticket.load(std::memory_order_relaxed) >> 32) + 1;
    ticket.store(make_ticket(job, count));
    wake();
    while (run_one()) {
    }
    for (uint32_t spins = 0; done.load(std::memory_order_acquire) < count; ++spins) {
      if (spins < 4096) {
        pause_cpu();
      } else {
        sched_yield();  // more threads than CPUs
      }
    }
  }

  static void* entry(void* self) {
    static_cast<Team*>(self)->work();
    return nullptr;
  }

  static Team* create(const TeamOptions& options) {
    Team* team = new Team;
    if (!team->live()) {  // without a mark a child would wait for workers that it does not have
      delete team;
      return nullptr;
    }
    team->spin_ns = int64_t{options.spin_us} * 1000;
    for (int i = 1; i < options.threads; ++i) {
      pthread_attr_t attr;
      pthread_attr_init(&attr);
      if (!options.cpus.empty()) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(options.cpus[static_cast<size_t>(i) % options.cpus.size()], &set);
        pthread_attr_setaffinity_np(&attr, sizeof set, &set);
      }
      pthread_t thread;
      if (pthread_create(&thread, &attr, entry, team) == 0) team->workers.push_back(thread);
      pthread_attr_destroy(&attr);
    }
    return team;
  }

  static void destroy(Team* team) {
    if (team == nullptr) return;
    destroy(team->before_fork);
    if (team->live()) {
      team->stop.store(true);
      team->wake();
      for (pthread_t t : team->workers) pthread_join(t, nullptr);
    }
    delete team;
  }
};

ThreadTeam::ThreadTeam() = default;
ThreadTeam::ThreadTeam(const HostPool& pool) : pool_(pool) {}
ThreadTeam::ThreadTeam(TeamOptions options) : options_(std::move(options)) {}
ThreadTeam::~ThreadTeam() { Team::destroy(team_.load()); }

int ThreadTeam::num_threads() const {
  if (pool_.parallel_for == nullptr) return options_.threads;
  const int n = pool_.num_threads != nullptr ? pool_.num_threads(pool_.user) : 1;
  return n < 1 ? 1 : n;
}

ThreadTeam::Team* ThreadTeam::team() {
  Team* t = team_.load(std::memory_order_acquire);
  if (t != nullptr && t->live()) return t;
  Team* fresh = Team::create(options_);
  if (fresh == nullptr) return nullptr;
  fresh->before_fork = t;
  if (team_.compare_exchange_strong(t, fresh)) return fresh;
  fresh->before_fork = nullptr;
  Team::destroy(fresh);
  return t;
}

void ThreadTeam::parallel_for(int count, TaskFn task, void* context) {
  if (count > 1 && pool_.parallel_for != nullptr) {
    if (pool_.in_parallel == nullptr || pool_.in_parallel(pool_.user) == 0) {
      pool_.parallel_for(pool_.user, count, task, context);
      return;
    }
  } else if (count > 1 && count <= kMaxParts && options_.threads > 1) {
    Team* t = team();
    if (t != nullptr && !t->busy.exchange(true, std::memory_order_acquire)) {
      t->run(count, task, context);
      t->busy.store(false, std::memory_order_release);
      return;
    }
  }
  for (int i = 0; i < count; ++i) task(context, i);
}

}  // namespace lathe::runtime
