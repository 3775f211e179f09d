// See recorded_calls.h. The memory: a head, a row per parameter, constants, calls; each part on a multiple of 64 bytes.
#include "runtime/serve/recorded_calls.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "ir/base/file_limit.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;
using Kind = RecordedParam::Kind;

namespace {

constexpr uint64_t kMagic = 0x31736c6c6163686cull;
constexpr size_t kMostParams = 64;
constexpr int kMostCalls = 4096;

struct Head {
  uint64_t magic = kMagic;
  int64_t calls = 0, params = 0;
};
struct Row {
  int64_t kind = 0, bytes = 0;
};

int64_t align64(int64_t bytes) { return (bytes + 63) & ~int64_t{63}; }

}  // namespace

// Offsets and sizes from params_ and calls_.
Status RecordedCalls::lay_out() {
  if (params_.empty() || params_.size() > kMostParams || calls_ < 1 || calls_ > kMostCalls)
    return ir::invalid("{} parameters, {} calls", params_.size(), calls_);
  size_ = align64(static_cast<int64_t>(sizeof(Head) + params_.size() * sizeof(Row)));
  for (const RecordedParam& p : params_) {
    if (p.bytes < 0 || p.bytes > kMost)
      return ir::unsupported("an operand of {} bytes is too large to record", p.bytes);
    int64_t& end = p.kind == Kind::constant ? size_ : call_bytes_;
    offsets_.push_back(end);
    end += align64(p.bytes);
  }
  first_call_ = size_;
  size_ += call_bytes_ * calls_;
  if (call_bytes_ > kMostPerCall || size_ > kMost)
    return ir::unsupported("calls of {} bytes, {} in all, are too large to record", call_bytes_, size_);
  return {};
}

Result<std::unique_ptr<RecordedCalls>> RecordedCalls::create(const std::vector<RecordedParam>& params, int calls) {
  std::unique_ptr<RecordedCalls> out(new RecordedCalls);
  out->params_ = params;
  out->calls_ = calls;
  LATHE_RETURN_IF_ERROR(out->lay_out());
  const ir::FileLimitGuard guard;
  out->fd_ = memfd_create("lathe-calls", MFD_CLOEXEC);
  if (out->fd_ < 0 || ftruncate(out->fd_, out->size_) != 0) return ir::unsupported("no memory for recorded calls");
  void* memory = mmap(nullptr, static_cast<size_t>(out->size_), PROT_READ | PROT_WRITE, MAP_SHARED, out->fd_, 0);
  if (memory == MAP_FAILED) return ir::unsupported("no memory for recorded calls");
  out->memory_ = static_cast<char*>(memory);
  Head head;
  head.calls = calls;
  head.params = static_cast<int64_t>(params.size());
  std::memcpy(out->memory_, &head, sizeof head);
  for (size_t i = 0; i < params.size(); ++i) {
    const Row row = {static_cast<int64_t>(params[i].kind), params[i].bytes};
    std::memcpy(out->memory_ + sizeof head + i * sizeof row, &row, sizeof row);
  }
  return out;
}

Result<std::unique_ptr<RecordedCalls>> RecordedCalls::open(const std::string& path) {
  std::unique_ptr<RecordedCalls> out(new RecordedCalls);
  out->fd_ = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  struct stat file = {};
  if (out->fd_ < 0 || fstat(out->fd_, &file) != 0 || !S_ISREG(file.st_mode))
    return ir::unsupported("{} cannot be opened", path);
  if (file.st_size < static_cast<off_t>(sizeof(Head)) || file.st_size > kMost)
    return ir::invalid("{}: {} bytes", path, file.st_size);
  out->size_ = file.st_size;
  void* memory = mmap(nullptr, static_cast<size_t>(file.st_size), PROT_READ, MAP_SHARED, out->fd_, 0);
  if (memory == MAP_FAILED) return ir::unsupported("{} cannot be mapped", path);
  out->memory_ = static_cast<char*>(memory);
  Head head;
  std::memcpy(&head, out->memory_, sizeof head);
  const auto rows = static_cast<int64_t>(kMostParams * sizeof(Row));
  const bool sound =
      head.magic == kMagic && head.params > 0 && head.params <= static_cast<int64_t>(kMostParams) &&
      static_cast<int64_t>(sizeof head) + std::min<int64_t>(rows, head.params * static_cast<int64_t>(sizeof(Row))) <=
          file.st_size;
  if (!sound || head.calls < 1 || head.calls > kMostCalls) return ir::invalid("{} holds no recorded calls", path);
  out->calls_ = static_cast<int>(head.calls);
  for (int64_t i = 0; i < head.params; ++i) {
    Row row;
    std::memcpy(&row, out->memory_ + sizeof head + static_cast<size_t>(i) * sizeof row, sizeof row);
    if (row.kind < 0 || row.kind > static_cast<int64_t>(Kind::out))
      return ir::invalid("{} holds no recorded calls", path);
    out->params_.push_back({static_cast<Kind>(row.kind), row.bytes});
  }
  LATHE_RETURN_IF_ERROR(out->lay_out());
  if (out->size_ != file.st_size) return ir::invalid("{}: {} bytes, expected {}", path, file.st_size, out->size_);
  return out;
}

RecordedCalls::~RecordedCalls() {
  if (memory_ != nullptr) munmap(memory_, static_cast<size_t>(size_));
  if (fd_ >= 0) close(fd_);
}

void RecordedCalls::release() {
  while (busy_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
  const int begun = released_ ? begun_ : next_;
  released_ = true;
  begun_ = begun;
  next_ = calls_;
  constant_ = params_.size();
  busy_.clear(std::memory_order_release);
  if (done_.load(std::memory_order_acquire) != begun || memory_ == nullptr) return;
  munmap(memory_, static_cast<size_t>(size_));
  close(fd_);
  memory_ = nullptr;
  fd_ = -1;
}

std::string RecordedCalls::path() const { return fmt::format("/proc/{}/fd/{}", getpid(), fd_); }

bool RecordedCalls::same_constants(void* const* params) {
  if (addresses_.empty()) addresses_.assign(params, params + params_.size());
  for (size_t i = 0; i < params_.size(); ++i) {
    if (params_[i].kind == Kind::constant && params[i] != addresses_[i]) return false;
  }
  return true;
}

// True once all are there.
bool RecordedCalls::copy_constants(void* const* params) {
  int64_t left = kPiece;
  for (; constant_ < params_.size(); ++constant_, copied_ = 0) {
    const RecordedParam& p = params_[constant_];
    if (p.kind != Kind::constant || p.bytes == 0) continue;
    const int64_t n = std::min(left, p.bytes - copied_);
    std::memcpy(memory_ + offsets_[constant_] + copied_, static_cast<const char*>(params[constant_]) + copied_,
                static_cast<size_t>(n));
    copied_ += n;
    left -= n;
    if (copied_ < p.bytes) return false;
  }
  return left == kPiece;
}

int RecordedCalls::begin(void* const* params) {
  if (busy_.test_and_set(std::memory_order_acquire)) return -1;
  int call = -1;
  if (same_constants(params) && copy_constants(params) && next_ < calls_) call = next_++;
  busy_.clear(std::memory_order_release);
  for (size_t i = 0; call >= 0 && i < params_.size(); ++i) {
    if (params_[i].kind == Kind::in && params_[i].bytes > 0) {
      std::memcpy(memory_ + first_call_ + call_bytes_ * call + offsets_[i], params[i],
                  static_cast<size_t>(params_[i].bytes));
    }
  }
  return call;
}

void RecordedCalls::end(int call, void* const* params) {
  for (size_t i = 0; i < params_.size(); ++i) {
    if (params_[i].kind == Kind::out && params_[i].bytes > 0) {
      std::memcpy(memory_ + first_call_ + call_bytes_ * call + offsets_[i], params[i],
                  static_cast<size_t>(params_[i].bytes));
    }
  }
  done_.fetch_add(1, std::memory_order_release);
}

const char* RecordedCalls::data(int call, int param) const {
  const auto i = static_cast<size_t>(param);
  return memory_ + offsets_[i] + (params_[i].kind == Kind::constant ? 0 : first_call_ + call_bytes_ * call);
}

}  // namespace lathe::runtime
