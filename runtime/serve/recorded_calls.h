// Copies of real calls of one Kernel, in memory that the measuring worker maps: constants once, in pieces over several
// calls so that no call is held up for long; then inputs and results of the calls to come with the same constants
// (layers share an operator). The recording side is thread-safe and never waits; the reading side trusts nothing that
// it reads.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ir/base/status.h"

namespace lathe::runtime {

struct RecordedParam {
  enum class Kind : uint8_t { constant, in, out };
  Kind kind = Kind::in;
  int64_t bytes = 0;
};

class RecordedCalls {
 public:
  static constexpr int64_t kMostPerCall = int64_t{2} << 20;  // bytes of inputs and results
  static constexpr int64_t kMost = int64_t{256} << 20;       // of all
  static constexpr int64_t kPiece = int64_t{256} << 10;      // of constants, copied in one call

  // UNSUPPORTED: beyond the limits, or no memory.
  static ir::Result<std::unique_ptr<RecordedCalls>> create(const std::vector<RecordedParam>& params, int calls);
  // What another process recorded. INVALID: not such memory.
  static ir::Result<std::unique_ptr<RecordedCalls>> open(const std::string& path);
  ~RecordedCalls();
  RecordedCalls(const RecordedCalls&) = delete;
  RecordedCalls& operator=(const RecordedCalls&) = delete;

  // Before the Kernel runs: its number, or -1 if this call is not recorded. After it: end().
  int begin(void* const* params);
  void end(int call, void* const* params);
  bool complete() const { return done_.load(std::memory_order_acquire) == calls_; }
  std::string path() const;  // for open(), until released
  // Records no more, and gives the memory back unless some call is still being copied.
  void release();

  const std::vector<RecordedParam>& params() const { return params_; }
  int calls() const { return calls_; }
  const char* data(int call, int param) const;

 private:
  RecordedCalls() = default;
  ir::Status lay_out();
  bool same_constants(void* const* params);
  bool copy_constants(void* const* params);

  std::vector<RecordedParam> params_;
  std::vector<int64_t> offsets_;  // of constants in the memory, of the others in a call
  int calls_ = 0;
  int64_t first_call_ = 0, call_bytes_ = 0, size_ = 0;
  int fd_ = -1;
  char* memory_ = nullptr;
  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
  size_t constant_ = 0;  // under busy_: what is being copied, and how far
  int64_t copied_ = 0;
  std::vector<void*> addresses_;  // of the constants; empty: none seen yet
  int next_ = 0, begun_ = 0;
  bool released_ = false;
  std::atomic<int> done_{0};
};

}  // namespace lathe::runtime
