// The border of the C ABI: see error.h.
#include "runtime/capi/error.h"

#include <algorithm>
#include <string_view>

namespace lathe::runtime {

namespace {

template <size_t N>
void copy_text(char (&to)[N], std::string_view a, std::string_view b = "") {
  const size_t na = std::min(a.size(), N - 1), nb = std::min(b.size(), N - 1 - na);
  std::copy_n(b.data(), nb, std::copy_n(a.data(), na, to));
  to[na + nb] = 0;
}

lathe_status fill(lathe_error* error, lathe_status code, std::string_view arg, int index, int os_errno,
                  std::string_view message) {
  if (error == nullptr) return code;
  error->code = code;
  error->arg_index = index;
  error->os_errno = os_errno;
  copy_text(error->arg_name, arg);
  if (arg.empty()) {
    copy_text(error->message, message);
  } else {
    copy_text(error->message, arg, ": ");
    const size_t used = std::strlen(error->message);
    const size_t n = std::min(message.size(), sizeof(error->message) - 1 - used);
    std::memcpy(error->message + used, message.data(), n);
    error->message[used + n] = 0;
  }
  return code;
}

}  // namespace

lathe_status report(const ir::Status& status, lathe_error* error) {
  if (status.ok()) return LATHE_STATUS_OK;
  return fill(error, static_cast<lathe_status>(status.code()), status.arg(), status.arg_index(), status.os_errno(),
              status.message());
}

lathe_status report_nomem(lathe_error* error) { return fill(error, LATHE_STATUS_NOMEM, {}, -1, 0, "out of memory"); }

lathe_status report_exception(lathe_error* error) {
  return fill(error, LATHE_STATUS_INTERNAL, {}, -1, 0, "an exception reached the C ABI");
}

ir::Status null_argument(const char* name, int index) {
  return ir::invalid("NULL, expected a pointer").with_arg(name, index);
}

ir::Status check_struct(const void* given, uint32_t known, const char* name, int index) {
  uint32_t head[2];
  std::memcpy(head, given, sizeof(head));
  if (head[0] < sizeof(head) || head[0] > kMaxStructSize) {
    return ir::invalid("{}, expected {} (use the INIT macro)", head[0], known)
        .with_arg(std::string(name) + ".struct_size", index);
  }
  if (head[1] != 1) return ir::invalid("{}, expected 1", head[1]).with_arg(std::string(name) + ".version", index);
  const char* bytes = static_cast<const char*>(given);
  for (uint32_t i = known; i < head[0]; ++i) {
    if (bytes[i] != 0) {
      return ir::invalid("byte {} is set, and this library knows {} bytes", i, known)
          .with_arg(std::string(name) + ".struct_size", index);
    }
  }
  return {};
}

}  // namespace lathe::runtime

extern "C" const char* lathe_status_name(lathe_status status) {
  switch (status) {
#define LATHE_ERROR(id, value, meaning) \
  case LATHE_STATUS_##id:               \
    return #id;
#include "ir/base/errors.def"
#undef LATHE_ERROR
  }
  return "UNKNOWN";
}

extern "C" uint32_t lathe_version(void) {
  return LATHE_VERSION_MAJOR * 10000 + LATHE_VERSION_MINOR * 100 + LATHE_VERSION_PATCH;
}
