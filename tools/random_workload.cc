// See random_workload.h.
#include "tools/random_workload.h"

#include <fmt/format.h>

#include "ops/samples.h"

namespace lathe::tools {

std::vector<ops::Workload> random_workloads(int count, uint64_t seed) {
  std::vector<ops::Workload> out;
  for (int i = 0; i < count; ++i) {
    ops::Draw draw(seed * 1'000'003 + static_cast<uint64_t>(i));
    ops::Workload w = ops::make_workload(ops::random_graph(draw));
    w.name = fmt::format("random_{}_{}", seed, i);
    out.push_back(std::move(w));
  }
  return out;
}

}  // namespace lathe::tools
