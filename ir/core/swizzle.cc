// See swizzle.h.
#include "ir/core/swizzle.h"

#include <algorithm>

#include "ir/core/names.h"

namespace lathe::ir {

// The product of these sizes and a factor, but for multiples of `by`.
static int64_t product_modulo(const std::vector<Expr>& sizes, int64_t factor, int64_t by) {
  int64_t out = factor % by;
  for (const Expr& size : sizes) out = out * (size->ival % by) % by;
  return out;
}

static std::vector<Expr> known_sizes(const Buffer& buffer) {
  std::vector<Expr> out = physical_dims(buffer);
  const bool known = std::all_of(out.begin(), out.end(), [](const Expr& size) { return is_const_int(size); });
  return known ? out : std::vector<Expr>();
}

bool has_whole_lines(const Buffer& buffer, int64_t bytes) {
  const std::vector<Expr> sizes = known_sizes(buffer);
  return !sizes.empty() && product_modulo({sizes.back()}, dtype_bytes(buffer.type), bytes) == 0;
}

bool has_whole_groups(const Buffer& buffer, int64_t bytes) {
  const std::vector<Expr> sizes = known_sizes(buffer);
  return !sizes.empty() && product_modulo(sizes, dtype_bytes(buffer.type), kSwizzledLines * bytes) == 0;
}

Status check_swizzle(const Buffer& b) {
  if (b.swizzle == 0) return {};
  if (b.place != Place::shared)
    return invalid("swizzle: buffer {} is {}, expected a shared one", b.name, place_name(b.place));
  if (!is_swizzle(b.swizzle)) return invalid("swizzle: buffer {}: {}, expected 32, 64 or 128", b.name, b.swizzle);
  if (!has_whole_lines(b, b.swizzle))
    return invalid("swizzle: buffer {}: its innermost dimension is no multiple of {} bytes", b.name, b.swizzle);
  if (!has_whole_groups(b, b.swizzle))
    return invalid("swizzle: buffer {} is no multiple of {} lines of {} bytes", b.name, kSwizzledLines, b.swizzle);
  return {};
}

}  // namespace lathe::ir
