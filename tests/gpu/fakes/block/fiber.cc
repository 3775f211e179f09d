// See fiber.h.
#include "tests/gpu/fakes/block/fiber.h"

#include <cstdint>

#if LATHE_FIBER_OWN_SWITCH
// Leaves what a function keeps for its caller on the old stack, and takes it from the new one.
extern "C" void lathe_fiber_switch(void** from, void* to);
asm(R"(
  .text
  .type lathe_fiber_switch, @function
lathe_fiber_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size lathe_fiber_switch, .-lathe_fiber_switch
)");
#endif

namespace lathe::test {

namespace {
thread_local Fiber* t_entered = nullptr;  // that begins
}

void Fiber::enter() {
  Fiber& self = *t_entered;
  self.run_(self.of_);
}

#if LATHE_FIBER_OWN_SWITCH

Fiber::Fiber(size_t bytes, void (*run)(void*), void* of) : stack_(new char[bytes]), run_(run), of_(of) {
  // As if enter() were about to be called: the address of its first instruction lies above six registers.
  constexpr size_t kRegisters = 6;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(stack_.get()) + bytes) / 16 * 16;
  auto* slots = reinterpret_cast<void**>(end) - 2 - kRegisters;
  for (size_t i = 0; i < kRegisters; ++i) slots[i] = nullptr;
  slots[kRegisters] = reinterpret_cast<void*>(&Fiber::enter);
  slots[kRegisters + 1] = nullptr;
  top_ = slots;
}

void Fiber::go_to(Fiber& next) {
  t_entered = &next;
  lathe_fiber_switch(&top_, next.top_);
}

#else

Fiber::Fiber(size_t bytes, void (*run)(void*), void* of) : stack_(new char[bytes]), run_(run), of_(of) {
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_.get();
  context_.uc_stack.ss_size = bytes;
  context_.uc_link = nullptr;
  makecontext(&context_, &Fiber::enter, 0);
}

void Fiber::go_to(Fiber& next) {
  t_entered = &next;
  swapcontext(&context_, &next.context_);
}

#endif

}  // namespace lathe::test
