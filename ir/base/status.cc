// Status: see status.h.
#include "ir/base/status.h"

#include <atomic>

namespace lathe::ir {

struct Status::Info {
  Code code;
  std::string message, arg;
  int arg_index = -1;
  int os_errno = 0;
  mutable std::atomic<int> users = 1;
};

const char* code_name(Code code) {
  switch (code) {
#define LATHE_ERROR(id, value, meaning) \
  case Code::k##id:                     \
    return #id;
#include "ir/base/errors.def"
#undef LATHE_ERROR
  }
  return "UNKNOWN";
}

constinit const Status Status::kNone;
static const std::string kEmpty;

const std::string& Status::message() const { return info_ ? info_->message : kEmpty; }
const std::string& Status::arg() const { return info_ ? info_->arg : kEmpty; }
Code Status::code() const { return info_ ? info_->code : Code::kOK; }
int Status::arg_index() const { return info_ ? info_->arg_index : -1; }
int Status::os_errno() const { return info_ ? info_->os_errno : 0; }

void Status::share() const { info_->users.fetch_add(1, std::memory_order_relaxed); }
void Status::release() {
  if (info_->users.fetch_sub(1, std::memory_order_acq_rel) == 1) delete info_;
}

Status make_error_impl(Code code, std::string message, std::string arg, int arg_index, int os_errno) {
  Status status;
  status.info_ = new Status::Info{code, std::move(message), std::move(arg), arg_index, os_errno};
  return status;
}
Status pass_on(Status& status) { return std::move(status); }

Status Status::with_context(std::string_view context) const {
  if (ok()) return *this;
  return make_error_impl(info_->code, fmt::format("{}: {}", context, info_->message), info_->arg, info_->arg_index,
                         info_->os_errno);
}

Status Status::with_arg(std::string arg, int arg_index) const {
  if (ok()) return *this;
  return make_error_impl(info_->code, info_->message, std::move(arg), arg_index, info_->os_errno);
}

std::string Status::to_string() const {
  if (ok()) return "OK";
  if (info_->arg.empty()) return fmt::format("{}: {}", code_name(info_->code), info_->message);
  return fmt::format("{}: {}: {}", code_name(info_->code), info_->arg, info_->message);
}

}  // namespace lathe::ir
