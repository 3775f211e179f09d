// Status and Result<T>: how every floor reports failure. No exception crosses a floor.
// An error carries a code (the C ABI's), a message that names what was expected, and, for user errors, the
// argument at fault. Errors are born in make_error() only. Copyable, thread-safe (immutable).
#pragma once
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace lathe::ir {

enum class Code : int {
#define LATHE_ERROR(id, value, meaning) k##id = value,
#include "ir/base/errors.def"
#undef LATHE_ERROR
};

// "OK", "INVALID", ...; never null.
const char* code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // OK
  bool ok() const { return !info_; }
  Code code() const { return info_ ? info_->code : Code::kOK; }
  const std::string& message() const;
  // Name of the argument at fault ("x", "x.shape[1]", "line 3: dims"); empty when none is.
  const std::string& arg() const;
  int arg_index() const { return info_ ? info_->arg_index : -1; }
  int os_errno() const { return info_ ? info_->os_errno : 0; }
  // The same error with more context in front: "while X: message".
  Status with_context(std::string_view context) const;
  Status with_arg(std::string arg, int arg_index = -1) const;
  std::string to_string() const;  // "INVALID: x.shape[1]: 96, expected 128"

 private:
  struct Info {
    Code code;
    std::string message, arg;
    int arg_index = -1;
    int os_errno = 0;
  };
  friend Status make_error_impl(Code, std::string message, std::string arg, int arg_index, int os_errno);
  std::shared_ptr<const Info> info_;
};

Status make_error_impl(Code code, std::string message, std::string arg = {}, int arg_index = -1, int os_errno = 0);

template <class... A>
Status make_error(Code code, fmt::format_string<A...> format, A&&... args) {
  return make_error_impl(code, fmt::format(format, std::forward<A>(args)...));
}
template <class... A>
Status invalid(fmt::format_string<A...> format, A&&... args) {
  return make_error_impl(Code::kINVALID, fmt::format(format, std::forward<A>(args)...));
}
template <class... A>
Status unsupported(fmt::format_string<A...> format, A&&... args) {
  return make_error_impl(Code::kUNSUPPORTED, fmt::format(format, std::forward<A>(args)...));
}
template <class... A>
Status internal_error(fmt::format_string<A...> format, A&&... args) {
  return make_error_impl(Code::kINTERNAL, fmt::format(format, std::forward<A>(args)...));
}

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : v_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : v_(std::move(status)) {}  // NOLINT(google-explicit-constructor)
  bool ok() const { return v_.index() == 0; }
  const Status& status() const {
    static const Status kOk;
    return ok() ? kOk : std::get<1>(v_);
  }
  T& value() & { return std::get<0>(v_); }
  const T& value() const& { return std::get<0>(v_); }
  T&& value() && { return std::get<0>(std::move(v_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Status> v_;
};

// Return early on error. LATHE_ASSIGN(auto x, f()) declares x.
#define LATHE_CAT2(a, b) a##b
#define LATHE_CAT(a, b) LATHE_CAT2(a, b)
#define LATHE_RETURN_IF_ERROR(expr)                \
  do {                                             \
    ::lathe::ir::Status lathe_status_ = (expr);    \
    if (!lathe_status_.ok()) return lathe_status_; \
  } while (0)
#define LATHE_ASSIGN(decl, expr)                                                                    \
  auto LATHE_CAT(lathe_result_, __LINE__) = (expr);                                                 \
  if (!LATHE_CAT(lathe_result_, __LINE__).ok()) return LATHE_CAT(lathe_result_, __LINE__).status(); \
  decl = std::move(LATHE_CAT(lathe_result_, __LINE__)).value()

}  // namespace lathe::ir
