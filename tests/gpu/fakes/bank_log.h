// What the threads of a warp access at once: banks of shared memory, and sectors of the GPU's memory.
//
// There are 32 banks of 4 bytes: an access of a warp takes one pass for each different word of the bank that has most
// of them. Accesses of 8 and 16 bytes go by halves and quarters of a warp. Memory goes by sectors of 32 bytes: what a
// warp asks for lies in so many of them, at best in as many as its bytes fill.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace lathe::test {

struct SectorCounts {
  int64_t requests = 0, sectors = 0;  // of warps
  int64_t wasted = 0;                 // sectors beyond those that the bytes of a request fill
};
struct BankCounts {
  int64_t accesses = 0, conflicts = 0;  // of shared memory by warps; passes beyond one for each part of a warp
  SectorCounts loads, stores;           // of the GPU's memory
};

class BankLog {
 public:
  // site: where in the kernel's text. What threads of a warp do there for the same time since the last barrier is one
  // access.
  void note(int thread, int site, const void* p, int bytes) { shared_.note(thread, site, p, bytes); }
  void note_memory(int thread, int site, const void* p, int bytes, bool store) {
    (store ? stores_ : loads_).note(thread, site, p, bytes);
  }
  // A barrier, or the end.
  void finish(BankCounts& to);

 private:
  struct Lane {
    int thread;
    uintptr_t at;
    int bytes;
  };
  struct Accesses {
    std::map<std::pair<int, int>, std::vector<std::vector<Lane>>> all;  // by warp and site
    std::map<std::pair<int, int>, size_t> times;                        // by thread and site
    void note(int thread, int site, const void* p, int bytes);
  };
  static void add_banks(const std::vector<Lane>& lanes, BankCounts& to);
  static void add_sectors(const std::vector<Lane>& lanes, SectorCounts& to);

  Accesses shared_, loads_, stores_;
};

}  // namespace lathe::test
