// Status: see status.h.
#include "ir/base/status.h"

namespace lathe::ir {

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

static const std::string kEmpty;

const std::string& Status::message() const { return info_ ? info_->message : kEmpty; }
const std::string& Status::arg() const { return info_ ? info_->arg : kEmpty; }

Status make_error_impl(Code code, std::string message, std::string arg, int arg_index, int os_errno) {
  Status status;
  status.info_ =
      std::make_shared<const Status::Info>(Status::Info{code, std::move(message), std::move(arg), arg_index, os_errno});
  return status;
}

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
