// How the threads of a launch's block divide what belongs to the block.
//
//   for t < 256 @block: for i < 2: r[512*i + 2*t + v]     2 elements in turn: thread t has 2*t.. and 512 + 2*t..
//     -> one register for every element, r[2*i + v] in each thread
#pragma once
#include <string>
#include <vector>

#include "ir/analysis/analysis.h"
#include "ir/base/status.h"
#include "ir/core/kernel.h"

namespace lathe::ir {

// The threads of a @block scope: its iterator is thread // step % threads.
struct BlockScope {
  const Stmt* scope = nullptr;
  int64_t step = 1, threads = 1;
  bool same_threads(const BlockScope& o) const { return step == o.step && threads == o.threads; }
};
// Threads that a @block scope has: its most iterations, or the power of two below where these are proven to suffice.
int64_t threads_of(const Stmt& block, const Ranges& ranges);
// The most threads that @block scopes of a body, and a warp's instructions in it, share out between them; more than
// kMostThreads: too many.
int64_t block_threads(const std::vector<Stmt>& body, const Ranges& ranges);

// A dimension of a reg buffer, divided by several scopes in turn, that of the largest chunks first: element e belongs
// to the thread whose number in the scope is e // chunk % threads. Of a warp's instruction the lanes are threads of a
// scope.
struct ThreadDim {
  struct Part {
    int64_t chunk = 1;
    BlockScope owner;
  };
  std::vector<Part> parts;  // none: every thread has the whole dimension
  // Of a thread: how many elements it has of `size`, and which of them this one is.
  int64_t own_size(int64_t size) const;
  Expr own_index(const Expr& index) const;
};
// UNSUPPORTED: an index whose thread cannot be told, or accesses that divide the buffer differently.
Result<std::vector<ThreadDim>> thread_share(const Kernel& kernel, const std::string& buffer);

}  // namespace lathe::ir
