// Costs that are not of arithmetic or memory: a leaf call, a phase, a task; and the profile as the cost model's rates.
// See machine_profile.h.
#include <algorithm>

#include "ir/leaf_abi.h"
#include "runtime/base/clock.h"
#include "runtime/measure/machine_profile.h"
#include "runtime/walk/threads.h"

namespace lathe::runtime {
namespace {

void empty_leaf(const ir::LeafArgs*) {}

// The least of several runs of `f`, each `calls` long.
template <class F>
double least_per_call(int runs, int calls, F&& f) {
  double least = 0;
  for (int r = 0; r < runs; ++r) {
    const int64_t start = now_ns();
    for (int i = 0; i < calls; ++i) f(i);
    const double time = static_cast<double>(now_ns() - start) / calls;
    if (r == 0 || time < least) least = time;
  }
  return std::max(least, 0.01);
}

}  // namespace

double leaf_call_ns() {
  ir::LeafArgs args{};
  const volatile ir::LeafFn leaf = empty_leaf;
  char bytes[64] = {};
  return least_per_call(8, 4096, [&](int i) {
    for (int o = 0; o < 3; ++o) {
      args.op[o].ptr = bytes + (i & 15);
      for (int64_t& stride : args.op[o].stride) stride = i;
    }
    for (int e = 0; e < 4; ++e) args.extent[e] = i;
    asm volatile("" ::"r"(&args) : "memory");
    leaf(&args);
  });
}

TeamCost team_cost(int threads) {
  TeamCost out;
  if (threads <= 1) return out;
  TeamOptions options;
  options.threads = threads;
  ThreadTeam team(options);
  constexpr int kMore = 32;
  const auto phase = [&](int count) {
    return least_per_call(6, 64, [&](int) { team.parallel_for(count, [](int i) { asm volatile("" ::"r"(i)); }); });
  };
  out.barrier_ns = phase(threads);
  out.task_ns = std::max((phase(threads * kMore) - out.barrier_ns) / (threads * (kMore - 1)), 0.01);
  return out;
}

search::MachineRates rates_of(const MachineProfile& profile, const ir::Target& target) {
  search::MachineRates r = search::MachineRates::assumed(target);
  const auto take = [&](const std::string& name, double unit, double* out) {
    if (const double value = profile.get(name); value > 0) *out = value * unit;
  };
  take(peak_name(target), 1, &r.flops);
  take("read_l1", 1, &r.l1);
  take("read_l2", 1, &r.l2);
  take("read_l3", 1, &r.l3);
  take("read_memory", 1, &r.dram);
  take("call_ns", 1e-3, &r.call_us);
  take("task_ns", 1e-3, &r.task_us);
  take("barrier_ns", 1e-3, &r.barrier_us);
  return r;
}

}  // namespace lathe::runtime
