// See stats.h.
#include "runtime/base/stats.h"

#include <fmt/format.h>

#include <iterator>

namespace lathe::runtime {
namespace {

struct Row {
  const char* name;
  const char* text;
};
constexpr Row kStatRows[] = {
#define LATHE_STAT(id, help) {#id, help},
#include "runtime/base/stats.def"
#undef LATHE_STAT
};
constexpr Row kMissRows[] = {
#define LATHE_MISS(id, meaning) {#id, meaning},
#include "runtime/base/miss_reasons.def"
#undef LATHE_MISS
};

}  // namespace

const char* stat_name(Stat stat) { return kStatRows[static_cast<int>(stat)].name; }
const char* miss_reason_name(MissReason reason) { return kMissRows[static_cast<int>(reason)].name; }
const char* miss_reason_meaning(MissReason reason) { return kMissRows[static_cast<int>(reason)].text; }

int64_t Stats::sum(int i) const {
  int64_t n = 0;
  for (const Shard& s : shards_) n += s.cells[static_cast<size_t>(i)].load(std::memory_order_relaxed);
  return n;
}

int64_t Stats::misses() const {
  int64_t n = 0;
  for (int i = 0; i < kMissReasons; ++i) n += sum(kStats + i);
  return n;
}

std::string Stats::prometheus() const {
  std::string out;
  auto it = std::back_inserter(out);
  for (int i = 0; i < kStats; ++i) {
    const char* type = static_cast<Stat>(i) == Stat::k_code_bytes ? "gauge" : "counter";
    fmt::format_to(it, "# HELP lathe_{0} {1}\n# TYPE lathe_{0} {2}\nlathe_{0} {3}\n", kStatRows[i].name,
                   kStatRows[i].text, type, sum(i));
  }
  fmt::format_to(it,
                 "# HELP lathe_misses requests not served from the store, by reason\n# TYPE "
                 "lathe_misses counter\n");
  for (int i = 0; i < kMissReasons; ++i) {
    fmt::format_to(it, "lathe_misses{{reason=\"{}\"}} {}\n", kMissRows[i].name, sum(kStats + i));
  }
  return out;
}

}  // namespace lathe::runtime
