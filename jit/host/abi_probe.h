// Calls a leaf with every callee-saved register, the stack below it and the control registers known, and reports what
// it changed. The leaf runs on a painted stack of its own, so its depth can be read off. x86-64 System V.
#pragma once
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "ir/leaf_abi.h"

namespace lathe::jit {

struct AbiReport {
  std::string broken;      // "" or the names of what was not kept
  size_t stack_bytes = 0;  // below the return address
};

class AbiProbe {
 public:
  static constexpr size_t kStack = 64 << 10;
  static constexpr uint8_t kPaint = 0xd7;

  AbiProbe() {
    stack_ = static_cast<uint8_t*>(mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  ~AbiProbe() { munmap(stack_, kStack); }
  AbiProbe(const AbiProbe&) = delete;
  AbiProbe& operator=(const AbiProbe&) = delete;

  __attribute__((noinline)) AbiReport call(ir::LeafFn leaf, const ir::LeafArgs* args) {
    std::memset(stack_, kPaint, kStack);
    Frame frame{};
    // The caller's frame, as the leaf sees it. With the address that is pushed below it the stack is aligned to 16
    // bytes at the call.
    constexpr size_t kAbove = 256 + 8;
    frame.leaf = leaf;
    frame.args = args;
    frame.top = stack_ + kStack - kAbove;
    static constexpr uint64_t kValues[6] = {0x1111222233334444, 0x5555666677778888, 0x9999aaaabbbbcccc,
                                            0xddddeeeeffff0000, 0x0123456789abcdef, 0xfedcba9876543210};
    std::memcpy(frame.in, kValues, sizeof kValues);
    enter(&frame);
    AbiReport report;
    static constexpr const char* kNames[6] = {" rbx", " rbp", " r12", " r13", " r14", " r15"};
    for (int i = 0; i < 6; ++i) {
      if (frame.out[i] != kValues[i]) report.broken += kNames[i];
    }
    if (frame.rsp != reinterpret_cast<uint64_t>(frame.top)) report.broken += " rsp";
    if (((frame.mxcsr[0] ^ frame.mxcsr[1]) & ~0x3fu) != 0) report.broken += " mxcsr";  // but for the sticky flags
    if (frame.x87[0] != frame.x87[1]) report.broken += " x87";
    if (frame.flags & (1u << 10)) report.broken += " df";
    for (const uint8_t* p = frame.top; p < stack_ + kStack; ++p) {
      if (*p != kPaint) {
        report.broken += " caller's frame";
        break;
      }
    }
    const uint8_t* deepest = stack_;
    while (*deepest == kPaint) ++deepest;
    report.stack_bytes = static_cast<size_t>(frame.top - deepest) - 16;  // the frame's address, the return address
    return report;
  }

 private:
  struct Frame {
    ir::LeafFn leaf;           // 0
    const ir::LeafArgs* args;  // 8
    uint8_t* top;              // 16
    uint64_t in[6];            // 24
    uint64_t out[6];           // 72
    uint64_t rsp;              // 120
    uint64_t flags;            // 128
    uint32_t mxcsr[2];         // 136
    uint16_t x87[2];           // 144
    uint64_t old_rsp;          // 152
  };

  // The leaf may change every register, so the frame's address waits on its stack, above the return address.
  __attribute__((noinline, target("avx"))) static void enter(Frame* frame) {
    __asm__ volatile(
        "push %%rbx\n push %%rbp\n push %%r12\n push %%r13\n push %%r14\n push %%r15\n"
        "mov %[frame], %%rax\n"
        "mov %%rsp, 152(%%rax)\n"
        "stmxcsr 136(%%rax)\n fnstcw 144(%%rax)\n"
        "mov 24(%%rax), %%rbx\n mov 32(%%rax), %%rbp\n mov 40(%%rax), %%r12\n"
        "mov 48(%%rax), %%r13\n mov 56(%%rax), %%r14\n mov 64(%%rax), %%r15\n"
        "mov 8(%%rax), %%rdi\n"
        "mov 16(%%rax), %%rsp\n"
        "push %%rax\n"
        "call *(%%rax)\n"
        "mov (%%rsp), %%rcx\n"
        "lea 8(%%rsp), %%rax\n"
        "mov %%rax, 120(%%rcx)\n"
        "pushfq\n pop %%rax\n mov %%rax, 128(%%rcx)\n"
        "mov %%rbx, 72(%%rcx)\n mov %%rbp, 80(%%rcx)\n mov %%r12, 88(%%rcx)\n"
        "mov %%r13, 96(%%rcx)\n mov %%r14, 104(%%rcx)\n mov %%r15, 112(%%rcx)\n"
        "stmxcsr 140(%%rcx)\n fnstcw 146(%%rcx)\n"
        "mov 152(%%rcx), %%rsp\n"
        "cld\n vzeroupper\n"
        "pop %%r15\n pop %%r14\n pop %%r13\n pop %%r12\n pop %%rbp\n pop %%rbx\n"
        :
        : [frame] "S"(frame)
        : "rax", "rcx", "rdx", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
  }

  uint8_t* stack_ = nullptr;
};

}  // namespace lathe::jit
