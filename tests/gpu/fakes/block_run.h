// One block of a launch on the emulator: its threads as fibers, their rendezvous, and who touched which element since
// the last barrier.
#pragma once
#include <ucontext.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/gpu/fakes/bank_log.h"

namespace lathe::test {

class BlockRun {
 public:
  using Stacks = std::vector<std::unique_ptr<char[]>>;
  // thread: where the kernel finds its number. stacks: those that nobody uses, which blocks hand on.
  BlockRun(void (*entry)(const void*), const void* args, long long* thread, Stacks& stacks)
      : entry_(entry), args_(args), number_(thread), stacks_(stacks) {}
  // To count conflicts of banks in; otherwise none are looked for.
  void count_banks(BankCounts* banks) { banks_ = banks; }
  // order: of the threads that can go on. What went wrong; empty: nothing.
  std::string run(const std::vector<int>& order, bool shuffled);

  // Of the thread that runs.
  void barrier(int number);
  float shuffle(float x, int distance);
  // all: what the warp does when its threads have come, given what each of them brings.
  void warp(int number, void (*all)(void* const* lanes), void* mine);
  void note(const void* p, int bytes, int element, bool store);
  // What the thread asks for and all threads of its warp read.
  void note_warp(const void* p, int bytes, int element);
  void note_shared(void* p, unsigned long bytes);
  // Copies that arrive on their own: at once, or when they are waited for; which of the two no thread may tell.
  void start_copy(void* to, const void* from, int bytes, int element);
  void end_group();
  void wait_groups(int groups);
  void copies_arrive_late(bool late) { late_ = late; }
  void note_banks(int site, const void* p, int bytes) {
    if (banks_ != nullptr) bank_log_.note(current_, site, p, bytes);
  }

 private:
  enum class State : uint8_t { fresh, ready, at_barrier, at_shuffle, at_warp, done };
  struct Copy {
    char* to;
    const char* from;
    int bytes, element;
  };
  struct Thread {
    State state = State::fresh;
    ucontext_t context{};
    std::unique_ptr<char[]> stack;
    int place = 0;  // where it waits: the number in the text, the distance of the shuffle
    void (*all)(void* const*) = nullptr;
    void* mine = nullptr;
    float given = 0, got = 0;
    std::vector<Copy> open;                // since the last group
    std::deque<std::vector<Copy>> groups;  // on their way, the oldest first
  };
  struct Touch {
    int64_t turn = -1;  // barriers before it
    int writer = -1, reader = -1;
    bool readers = false;  // more than one
  };

  static void start(unsigned low, unsigned high);
  void wait(State state, int place);
  void resume(int thread);
  bool release();
  // Element by element, as touched since the last barrier.
  std::vector<Touch*> touched(const void* p, int bytes, int element);
  void conflict(const Touch& t);
  void arrive(const std::vector<Copy>& group);
  template <class F>
  static void words(const Copy& c, F f);
  void fail(const std::string& why) {
    if (why_.empty()) why_ = why;
  }

  void (*entry_)(const void*);
  const void* args_;
  long long* number_;
  Stacks& stacks_;
  std::vector<Thread> threads_;
  ucontext_t scheduler_{};
  int current_ = 0;
  int64_t turn_ = 0;
  std::unordered_map<uintptr_t, Touch> touched_;  // by element
  std::vector<void*> shared_;
  std::unordered_map<uintptr_t, int> arriving_;  // copies on their way to four bytes
  bool late_ = false;
  BankCounts* banks_ = nullptr;
  BankLog bank_log_;
  std::string why_;
};

}  // namespace lathe::test
