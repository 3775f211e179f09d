// Whether this is still the process that made something: threads, and locks that other threads held, do not survive
// fork().
#pragma once
#include <atomic>

namespace lathe::runtime {

class ForkMark {
 public:
  ForkMark();
  ~ForkMark();
  ForkMark(const ForkMark&) = delete;
  ForkMark& operator=(const ForkMark&) = delete;

  // False in a child, and where the system cannot tell.
  bool here() const { return page_ != nullptr && page_->load(std::memory_order_relaxed) == 1; }

 private:
  std::atomic<char>* page_ = nullptr;  // the kernel wipes it in a child
};

}  // namespace lathe::runtime
