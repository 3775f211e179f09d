// Other callers' work, held at a gate while the test's thread goes on beside it: what must not wait for that work
// returns with the gate shut. No clock decides; a call that does wait is a failure after a minute, when the gate opens
// by itself.
#pragma once
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>

namespace lathe::test {

class Gate {
 public:
  ~Gate() { open(); }
  // What the other one runs: stands still at a shut gate, on threads of during() only.
  void pass() {
    std::unique_lock lock(mutex_);
    if (!other()) return;
    reached_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  // Starts the other one's work; returns when it stands at the gate, false if it ended without coming by.
  template <class F>
  bool during(F work) {
    other_ = std::async(std::launch::async, [this, work = std::move(work)] {
      other() = true;
      work();
      const std::lock_guard lock(mutex_);
      ended_ = true;
      changed_.notify_all();
    });
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reached_ || ended_; });
    return !ended_;
  }
  // What `call` returns while the gate is shut.
  template <class F>
  auto beside(F call) {
    auto mine = std::async(std::launch::async, std::move(call));
    if (mine.wait_for(std::chrono::minutes(1)) != std::future_status::ready) {
      ADD_FAILURE() << "the call waits for another caller's work";
      open();
    }
    return mine.get();
  }
  // Opens, and waits for the other one's end.
  void finish() {
    open();
    other_.get();
  }

 private:
  static bool& other() {
    static thread_local bool is = false;
    return is;
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false, reached_ = false, ended_ = false;
  std::future<void> other_;
};

}  // namespace lathe::test
