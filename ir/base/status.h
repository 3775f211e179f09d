// Status and Result<T>: how every floor reports failure. No exception crosses a floor.
// An error carries a code (the C ABI's), a message that names what was expected, and, for user errors, the
// argument at fault. Errors are born in make_error() only. Copyable, thread-safe (immutable).
//
// What makes, copies, passes on and frees an error is cold: compilers then move all that leads there away from the code
// of success. Most of a first resolve is code that no cache holds yet.
#pragma once
#include <fmt/format.h>

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
  static const Status kNone;  // OK, where a reference to one is wanted

  Status() = default;  // OK
  Status(const Status& other) : info_(other.info_) {
    if (info_ != nullptr) share();
  }
  Status(Status&& other) noexcept : info_(std::exchange(other.info_, nullptr)) {}
  Status& operator=(Status other) noexcept {
    std::swap(info_, other.info_);
    return *this;
  }
  ~Status() {
    if (info_ != nullptr) release();
  }
  bool ok() const { return info_ == nullptr; }
  Code code() const;
  const std::string& message() const;
  // Name of the argument at fault ("x", "x.shape[1]", "line 3: dims"); empty when none is.
  const std::string& arg() const;
  int arg_index() const;
  int os_errno() const;
  // The same error with more context in front: "while X: message".
  Status with_context(std::string_view context) const;
  Status with_arg(std::string arg, int arg_index = -1) const;
  std::string to_string() const;  // "INVALID: x.shape[1]: 96, expected 128"

 private:
  struct Info;  // counts the Statuses that share it
  friend Status make_error_impl(Code, std::string message, std::string arg, int arg_index, int os_errno);
  [[gnu::cold]] void share() const;
  [[gnu::cold]] void release();
  const Info* info_ = nullptr;
};

[[gnu::cold]] Status make_error_impl(Code code, std::string message, std::string arg = {}, int arg_index = -1,
                                     int os_errno = 0);

template <class... A>
[[gnu::cold]] Status make_error(Code code, fmt::format_string<A...> format, A&&... args) {
  return make_error_impl(code, fmt::format(format, std::forward<A>(args)...));
}
template <class... A>
[[gnu::cold]] Status invalid(fmt::format_string<A...> format, A&&... args) {
  return make_error_impl(Code::kINVALID, fmt::format(format, std::forward<A>(args)...));
}
template <class... A>
[[gnu::cold]] Status unsupported(fmt::format_string<A...> format, A&&... args) {
  return make_error_impl(Code::kUNSUPPORTED, fmt::format(format, std::forward<A>(args)...));
}
template <class... A>
[[gnu::cold]] Status internal_error(fmt::format_string<A...> format, A&&... args) {
  return make_error_impl(Code::kINTERNAL, fmt::format(format, std::forward<A>(args)...));
}

// The error that `status` holds; it holds none afterwards.
[[gnu::cold]] Status pass_on(Status& status);

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : v_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : v_(std::move(status)) {}  // NOLINT(google-explicit-constructor)
  bool ok() const { return v_.index() == 0; }
  const Status& status() const { return ok() ? Status::kNone : std::get<1>(v_); }
  // Takes the error out.
  Status failure() { return pass_on(std::get<1>(v_)); }
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
#define LATHE_RETURN_IF_ERROR(expr)                                      \
  do {                                                                   \
    ::lathe::ir::Status lathe_status_ = (expr);                          \
    if (!lathe_status_.ok()) return ::lathe::ir::pass_on(lathe_status_); \
  } while (0)
#define LATHE_ASSIGN(decl, expr)                                                                     \
  auto LATHE_CAT(lathe_result_, __LINE__) = (expr);                                                  \
  if (!LATHE_CAT(lathe_result_, __LINE__).ok()) return LATHE_CAT(lathe_result_, __LINE__).failure(); \
  decl = std::move(LATHE_CAT(lathe_result_, __LINE__)).value()

}  // namespace lathe::ir
