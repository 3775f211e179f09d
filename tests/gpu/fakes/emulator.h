// Runs a launch on the host: each thread of each block, one after the other, in an order of the caller's choice.
// Threads that do not wait for each other may run in any.
#pragma once
#include <cstdint>
#include <string>

namespace lathe::test {

enum class Order { forward, backward, shuffled };

// What a launch did to memory, added up over all launches.
struct Accesses {
  int64_t loads[3] = {}, stores[3] = {};  // of 1, 2 and 4 elements at once
};

class EmulatedKernel {
 public:
  // code: a shared object that the fake compiler made. False: it does not load, or has no such kernel.
  bool open(std::string_view code, const std::string& name);
  int threads() const { return threads_; }
  unsigned long arg_bytes() const { return arg_bytes_; }
  // False: an access was not aligned.
  bool run(unsigned blocks, unsigned threads, const void* args, Order order, Accesses& accesses) const;

 private:
  void (*entry_)(const void*) = nullptr;
  long long *block_ = nullptr, *thread_ = nullptr, *accesses_ = nullptr;
  int* misaligned_ = nullptr;
  int threads_ = 0;
  unsigned long arg_bytes_ = 0;
};

}  // namespace lathe::test
