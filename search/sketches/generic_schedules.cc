// Schedules by general rules: which plans are worth trying for a Kernel, and the passes run for each. The passes are in
// generic_rules.cc and generic_product.cc.
#include "search/sketches/generic_schedules.h"

#include <algorithm>
#include <set>

#include "ir/analysis/analysis.h"
#include "search/cut/cut.h"
#include "search/sketches/generic_rules.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

namespace {
// Cycles of a block per product and step of k: two multipliers, two loads, latency four; what M leaves over counts.
double block_cost(int64_t rows, int64_t vectors, int64_t m) {
  const auto cycles = [&](int64_t r) {
    return std::max({static_cast<double>(r * vectors) / 2, static_cast<double>(r + vectors) / 2, 4.0});
  };
  const int64_t full = m / rows, rest = m % rows;
  return (static_cast<double>(full) * cycles(rows) + (rest ? cycles(rest) : 0)) / static_cast<double>(vectors * m);
}

// Blocks that fit into the registers with a vector of each operand beside them, cheapest first.
std::vector<GenericPlan> block_plans(const Kernel& kernel, const ProductSite& site, const Problem& problem,
                                     const Target& target) {
  const int64_t m = std::max<int64_t>(1, extent_at(find_scope(kernel, site.m)->extent, problem));
  const int64_t most = interval(find_scope(kernel, site.m)->extent, Ranges(kernel)).hi;
  std::vector<GenericPlan> out;
  for (int64_t vectors : {1, 2, 3, 4}) {
    for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14}) {
      if (rows > most || rows * vectors + vectors + 1 > target.vector_registers) continue;
      GenericPlan plan;
      plan.rows = rows;
      plan.vectors = vectors;
      plan.unroll = 2;
      out.push_back(plan);
    }
  }
  std::stable_sort(out.begin(), out.end(), [&](const GenericPlan& a, const GenericPlan& b) {
    return block_cost(a.rows, a.vectors, m) < block_cost(b.rows, b.vectors, m);
  });
  return out;
}

std::vector<GenericPlan> plans(const Problem& problem, const Target& target) {
  std::vector<GenericPlan> out;
  for (const ProductSite& site : find_products(problem.kernel)) {
    if (site.m.empty() || !out.empty()) continue;
    out = block_plans(problem.kernel, site, problem, target);
  }
  for (const bool join : {true, false}) {
    for (const int64_t unroll : {4, 2, 1}) {
      GenericPlan plan;
      plan.rows = 0;
      plan.join = join;
      plan.unroll = unroll;
      out.push_back(plan);
      for (const auto& [again, overlap] : {std::pair(true, true), std::pair(true, false), std::pair(false, true)}) {
        plan.again = again;
        plan.overlap = overlap;
        out.push_back(plan);
      }
      plan.again = plan.overlap = false;
      plan.stage = plan.place = false;
      if (unroll == 1) out.push_back(plan);
    }
  }
  if (problem.threads <= 1) return out;
  std::vector<GenericPlan> shared;
  for (GenericPlan plan : out) {
    plan.parallel = true;
    for (const int64_t grain : {0, 4}) {
      if (grain > 0 && plan.rows > 0) continue;  // a panel is enough for a thread
      plan.grain = grain;
      shared.push_back(plan);
    }
  }
  return shared;
}
}  // namespace

std::vector<Schedule> generic_schedules(const Problem& problem, const Target& target, int at_most) {
  std::vector<Schedule> out;
  std::set<std::string> seen;
  for (const GenericPlan& plan : plans(problem, target)) {
    if (static_cast<int>(out.size()) >= at_most) break;
    Attempts a(problem.kernel);
    if (plan.join) join_producers(a);
    if (plan.again) compute_again(a);
    block_products(a, plan, target);
    square_copies(a);
    if (plan.place) place_temporaries(a);
    if (plan.overlap) overlap_rows(a);
    vectorize_scopes(a, plan, target);
    share_out(a, plan);
    Schedule schedule;
    schedule.family = problem.kernel.family;
    schedule.moves = a.moves();
    if (schedule.moves.empty() || !seen.insert(to_text(schedule)).second) continue;
    const Result<Kernel> scheduled = replay(problem.kernel, schedule);
    if (!scheduled.ok() || !cut(*scheduled).ok()) continue;
    schedule.numeric = scheduled->numeric;
    out.push_back(std::move(schedule));
  }
  return out;
}

}  // namespace lathe::search
