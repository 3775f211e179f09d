// See warmup.h.
#include "runtime/warmup.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>

#include "ir/analysis.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;

namespace {

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// One operator of the workload.
struct Entry {
  const ops::Workload* item = nullptr;
  std::shared_ptr<Operator> op;
  PrepareRequest request;
  PrepareInfo info;
  bool worked = false;  // something was compiled or searched for it
};

class Warmup {
 public:
  Warmup(const std::shared_ptr<Context>& context, const WarmupBudget& budget, const WarmupObserver& observer)
      : context_(context), budget_(budget), observer_(observer), start_(now_ms()) {}

  WarmupReport run(const std::vector<ops::Workload>& items) {
    const Stats& stats = context_->stats();
    const int64_t xbyak = stats.get(Stat::k_compiled_xbyak), llvm = stats.get(Stat::k_compiled_llvm);
    for (const ops::Workload& item : items) prepare(item);
    for (Entry& e : entries_) finish(e);
    report_.ops = static_cast<int>(items.size());
    report_.compiled_xbyak = stats.get(Stat::k_compiled_xbyak) - xbyak;
    report_.compiled_llvm = stats.get(Stat::k_compiled_llvm) - llvm;
    report_.wall_ms = now_ms() - start_;
    report_.digest = digest();
    return report_;
  }

 private:
  void fail(const ops::Workload& item, const Status& status) {
    ++report_.failed;
    if (observer_.failed) observer_.failed(item, status);
  }

  int64_t compiled() const {
    return context_->stats().get(Stat::k_compiled_xbyak) + context_->stats().get(Stat::k_compiled_llvm);
  }

  // The operator with what needs no search: the general range, and what is stored.
  void prepare(const ops::Workload& item) {
    Result<ops::Graph> graph = ops::finish(item.graph);
    if (!graph.ok()) return fail(item, graph.status());
    graph->name = item.name;
    Result<std::shared_ptr<Operator>> op = Operator::create(context_, *graph);
    if (!op.ok()) return fail(item, op.status());
    Entry e;
    e.item = &item;
    e.op = std::move(*op);
    e.request.threads = budget_.threads > 0 ? budget_.threads : item.threads;
    e.request.cold = item.cache == ops::CacheState::cold;
    e.request.allowed = item.allowed;
    const int64_t before = compiled();
    Result<PrepareInfo> info = e.op->prepare(e.request);
    if (!info.ok()) return fail(item, info.status());
    e.info = *info;
    e.worked = compiled() != before;
    report_.first_call_codegen_us_max = std::max(report_.first_call_codegen_us_max, info->codegen_us);
    entries_.push_back(std::move(e));
  }

  // The stages of what was found, and a row for each hinted shape.
  void finish(Entry& e) {
    Result<PrepareInfo> info = e.op->prepare(e.request);
    if (!info.ok()) return fail(*e.item, info.status());
    if (!e.worked) ++report_.from_store;
    for (const SymbolValues& dims : e.op->hinted_dims()) {
      WarmupRow row;
      row.item = e.item;
      row.dims = dims;
      row.dtype = ir::dtype_name(e.op->graph().tensors[static_cast<size_t>(e.op->graph().outputs[0])].dtype);
      row.threads = e.request.threads;
      row.codegen_us = e.info.codegen_us;
      row.origin = std::max(e.info.origin, info->origin);
      describe(e, dims, &row);
      ++report_.rows;
      if (observer_.row) observer_.row(row);
    }
  }

  void describe(const Entry& e, const SymbolValues& dims, WarmupRow* row) {
    const Result<const BoundOp*> bound = e.op->bound({.symbols = dims, .threads = e.request.threads, .packed = true});
    if (!bound.ok()) {
      row->note = bound.status().to_string();
      return;
    }
    row->tier = (*bound)->tier;
    row->tie = true;
    bool measured = true;
    for (const BoundOp::Step& step : (*bound)->steps) {
      const ServedStage& s = *step.stage;
      if (!row->schedule.empty()) row->schedule += "; ";
      row->schedule += schedule_summary(s.stage.schedule);
      row->us += s.best_us;
      row->default_us += s.default_us;
      row->tie &= s.best_us >= s.default_us;
      measured &= s.best_us > 0;
      served_ += fmt::format("{} {}\n", e.item->name, search::to_text(s.stage.schedule));
    }
    if (!measured) row->us = row->default_us = 0;
  }

  std::string digest() const { return fmt::format("{:016x}", ir::hash_text(served_)); }

  const std::shared_ptr<Context>& context_;
  const WarmupBudget& budget_;
  const WarmupObserver& observer_;
  const double start_;
  std::vector<Entry> entries_;
  WarmupReport report_;
  std::string served_;
};

}  // namespace

std::string schedule_summary(const search::Schedule& schedule) {
  if (schedule.moves.empty()) return "naive";
  std::string out = schedule.recipe.empty() ? schedule.family : schedule.recipe;
  for (const auto& [name, value] : schedule.knobs) out += fmt::format(" {}={}", name, value);
  return out;
}

bool llvm_mapped() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("libLLVM") != std::string::npos || line.find("lathe_llvm") != std::string::npos) return true;
  }
  return false;
}

Result<WarmupReport> run_warmup(const std::shared_ptr<Context>& context, const std::vector<ops::Workload>& items,
                                const WarmupBudget& budget, const WarmupObserver& observer) {
  return Warmup(context, budget, observer).run(items);
}

}  // namespace lathe::runtime
