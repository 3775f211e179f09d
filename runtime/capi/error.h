// The border of the C ABI: statuses become lathe_status and lathe_error, exceptions stop here, and versioned structs
// are read and written by the caller's size. Knows no handle (handle.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include "include/lathe.h"
#include "ir/base/status.h"

namespace lathe::runtime {

// Fills *error (may be null) on failure only. Allocates nothing.
lathe_status report(const ir::Status& status, lathe_error* error);
lathe_status report_nomem(lathe_error* error);
lathe_status report_exception(lathe_error* error);

// The body of an exported function: returns an ir::Status; what it throws becomes NOMEM or INTERNAL.
template <class F>
lathe_status guarded(lathe_error* error, F&& body) noexcept {
  try {
    const ir::Status status = body();
    return status.ok() ? LATHE_STATUS_OK : report(status, error);
  } catch (const std::bad_alloc&) {
    return report_nomem(error);
  } catch (...) {
    return report_exception(error);
  }
}

ir::Status null_argument(const char* name, int index);

inline constexpr uint32_t kMaxStructSize = 4096;

// Sizes and version of a caller's struct, the tail beyond `known` bytes included.
ir::Status check_struct(const void* given, uint32_t known, const char* name, int index);

// A copy of the caller's struct: fields it lacks keep the zeros of `out`. A null one leaves `out` (the defaults) as it
// is.
template <class T>
ir::Status read_struct(const T* given, T& out, const char* name, int index) {
  if (given == nullptr) return {};
  LATHE_RETURN_IF_ERROR(check_struct(given, sizeof(T), name, index));
  std::memset(static_cast<void*>(&out), 0, sizeof(T));
  std::memcpy(static_cast<void*>(&out), given, given->struct_size < sizeof(T) ? given->struct_size : sizeof(T));
  return {};
}

// Fills the caller's struct (checked before) as far as it reaches; its size and version stay.
template <class T>
void write_struct(const T& from, T* to) {
  constexpr size_t kHead = 2 * sizeof(uint32_t);
  const size_t size = to->struct_size < sizeof(T) ? to->struct_size : sizeof(T);
  std::memcpy(reinterpret_cast<char*>(to) + kHead, reinterpret_cast<const char*>(&from) + kHead, size - kHead);
}

}  // namespace lathe::runtime
