// C ABI: counters by name and as Prometheus text. The names are those of docs/stats.md.
#include <algorithm>
#include <optional>
#include <string_view>

#include "runtime/capi/handle.h"

namespace lathe::runtime {

using ir::Status;

namespace {

std::optional<int64_t> counter_value(const Stats& stats, std::string_view name) {
  for (int i = 0; i < kStats; ++i) {
    if (name == stat_name(static_cast<Stat>(i))) return stats.get(static_cast<Stat>(i));
  }
  constexpr std::string_view kMisses = "misses";
  if (name == kMisses) return stats.misses();
  if (name.substr(0, kMisses.size() + 1) != "misses_") return std::nullopt;
  name.remove_prefix(kMisses.size() + 1);
  for (int i = 0; i < kMissReasons; ++i) {
    if (name == miss_reason_name(static_cast<MissReason>(i))) return stats.misses(static_cast<MissReason>(i));
  }
  return std::nullopt;
}

Status get_counter(const lathe_context* ctx, const char* counter, uint64_t* value) {
  LATHE_CHECK_HANDLE(ctx, 0);
  LATHE_CHECK_POINTER(value, 2);
  LATHE_ASSIGN(const std::string name, read_text(counter, "counter", 1, 255));
  const std::optional<int64_t> found = counter_value(ctx->body->state->context->stats(), name);
  if (!found) return ir::invalid("\"{}\": no such counter", name).with_arg("counter", 1);
  *value = static_cast<uint64_t>(std::max<int64_t>(0, *found));
  return {};
}

Status get_text(const lathe_context* ctx, char* out, size_t capacity, size_t* needed) {
  LATHE_CHECK_HANDLE(ctx, 0);
  if (out == nullptr && capacity > 0) return null_argument("out", 1);
  LATHE_CHECK_POINTER(needed, 3);
  const std::string text = ctx->body->state->context->stats().prometheus();
  if (capacity > 0) {
    const size_t n = std::min(text.size(), capacity - 1);
    std::memcpy(out, text.data(), n);
    out[n] = 0;
  }
  *needed = text.size() + 1;
  return {};
}

}  // namespace
}  // namespace lathe::runtime

using namespace lathe::runtime;  // NOLINT: the C ABI of this floor

extern "C" lathe_status lathe_stats(const lathe_context* ctx, const char* counter, uint64_t* value,
                                    lathe_error* error) {
  return guarded(error, [&] { return get_counter(ctx, counter, value); });
}
extern "C" lathe_status lathe_stats_text(const lathe_context* ctx, char* out, size_t capacity, size_t* needed,
                                         lathe_error* error) {
  return guarded(error, [&] { return get_text(ctx, out, capacity, needed); });
}
