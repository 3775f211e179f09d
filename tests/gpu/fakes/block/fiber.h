// A stack on which a function runs until it hands over, and goes on from there when it is gone to again.
#pragma once
#include <ucontext.h>

#include <cstddef>
#include <memory>

// Sanitizers know of changed stacks by the library's functions, which call the system each time.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LATHE_FIBER_OWN_SWITCH 1
#else
#define LATHE_FIBER_OWN_SWITCH 0
#endif

namespace lathe::test {

class Fiber {
 public:
  // Of the caller's own stack: one to come back to.
  Fiber() = default;
  // run(of) is called when it is first gone to, and does not return.
  Fiber(size_t bytes, void (*run)(void*), void* of);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  // Leaves the one that runs.
  void go_to(Fiber& next);

 private:
#if LATHE_FIBER_OWN_SWITCH
  void* top_ = nullptr;  // of its stack, once it is left
#else
  ucontext_t context_{};
#endif
  std::unique_ptr<char[]> stack_;
  void (*run_)(void*) = nullptr;
  void* of_ = nullptr;
  static void enter();
};

}  // namespace lathe::test
