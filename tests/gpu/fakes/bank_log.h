// Which banks of shared memory the threads of a warp go to at once. 32 banks of 4 bytes: an access of a warp takes one
// pass for each different word of the bank that has most of them. Accesses of 8 and 16 bytes go by halves and quarters
// of a warp.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace lathe::test {

struct BankCounts {
  int64_t accesses = 0, conflicts = 0;  // of warps; passes beyond one for each part of a warp
};

class BankLog {
 public:
  // site: where in the kernel's text. What threads of a warp do there for the same time since the last barrier is one
  // access.
  void note(int thread, int site, const void* p, int bytes);
  // A barrier, or the end.
  void finish(BankCounts& to);

 private:
  struct Lane {
    int thread;
    uintptr_t at;
    int bytes;
  };
  std::map<std::pair<int, int>, std::vector<std::vector<Lane>>> accesses_;  // by warp and site
  std::map<std::pair<int, int>, size_t> times_;                             // by thread and site
};

}  // namespace lathe::test
