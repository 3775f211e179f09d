// See warmup.h.
#include "runtime/warmup.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <map>
#include <set>

#include "ir/analysis.h"
#include "runtime/machine_profile.h"
#include "runtime/warmup_search.h"
#include "runtime/work.h"
#include "runtime/worker_client.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;

namespace {

constexpr double kLeastMs = 100;  // of one search

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// One operator of the workload.
struct Entry {
  const ops::Workload* item = nullptr;
  std::shared_ptr<Operator> op;
  PrepareRequest request;
  PrepareInfo info;
  double codegen_us = 0;
  bool worked = false;  // something was compiled or searched for it
  std::map<SymbolValues, std::string> notes;
};

// One Kernel of an operator at one hinted shape.
struct Task {
  Entry* entry = nullptr;
  int kernel = 0;
  SymbolValues dims;
  double weight = 1;
};

// How common the hinted shape is: the product of its hints' weights.
double hint_weight(const ops::Graph& graph, const SymbolValues& dims) {
  double weight = 1;
  for (const ops::DimDesc& d : graph.symbols) {
    double sum = 0, own = 0;
    for (const ops::Hint& h : d.hints) {
      sum += h.weight;
      for (const auto& [name, value] : dims) {
        if (name == ops::kernel_symbol(d.symbol) && value == h.value) own = h.weight;
      }
    }
    if (sum > 0) weight *= own / sum;
  }
  return weight;
}

// Equal ids: one decision.
std::string query_id(const DecisionQuery& query) {
  std::string out = fmt::format("{} {} {}", query.threads, query.cold, query.allowed);
  for (const SymbolRange& r : query.ranges) out += fmt::format(" {}..{}", r.lo, r.hi);
  return out + "\n" + query.kernel_text;
}

class Warmup {
 public:
  Warmup(const std::shared_ptr<Context>& context, const WarmupBudget& budget, const WarmupObserver& observer)
      : context_(context), budget_(budget), observer_(observer), start_(now_ms()) {}

  WarmupReport run(const std::vector<ops::Workload>& items) {
    const Stats& stats = context_->stats();
    const int64_t xbyak = stats.get(Stat::k_compiled_xbyak), llvm = stats.get(Stat::k_compiled_llvm);
    entries_.reserve(items.size());
    for (const ops::Workload& item : items) prepare(item);
    if (budget_.tier >= 2) {
      find_profile();
      search_all();
    }
    for (Entry& e : entries_) finish(e);
    report_.cancelled = cancelled();
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

  // What the first call would wait for if nothing were stored: the default Schedules' leaves, made in an empty cache.
  double first_call_codegen(const Entry& e) const {
    LeafCache leaves(LeafCacheOptions{}, nullptr, nullptr);
    LeafPolicy policy;
    policy.llvm = false;
    double us = 0;
    for (size_t k = 0; k < e.op->lowered().kernels.size(); ++k) {
      const search::Problem p = e.op->general_problem(static_cast<int>(k), true, e.request);
      const Result<Stage> stage =
          build_stage(p.kernel, search::default_schedule(p, context_->target()), context_->target(), leaves, policy);
      if (stage.ok()) us += stage->codegen_us;
    }
    return us;
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
    e.codegen_us = first_call_codegen(e);
    report_.first_call_codegen_us_max = std::max(report_.first_call_codegen_us_max, e.codegen_us);
    const int64_t before = compiled();
    Result<PrepareInfo> info = e.op->prepare(e.request);
    if (!info.ok()) return fail(item, info.status());
    e.info = *info;
    e.worked = compiled() != before;
    entries_.push_back(std::move(e));
  }

  bool cancelled() const { return budget_.cancelled && budget_.cancelled(); }

  // Heavy operators first, so that a short budget goes where it counts; each task's share of what is left is by the root of its weight,
  // for rare shapes need about as many samples as common ones.
  void search_all() {
    std::vector<Task> tasks;
    for (Entry& e : entries_) {
      for (const SymbolValues& dims : e.op->hinted_dims()) {
        const double weight = std::sqrt(std::max(e.item->weight * hint_weight(e.op->graph(), dims), 1e-6));
        for (size_t k = 0; k < e.op->lowered().kernels.size(); ++k) tasks.push_back({&e, static_cast<int>(k), dims, weight});
      }
    }
    std::stable_sort(tasks.begin(), tasks.end(), [](const Task& a, const Task& b) { return a.entry->item->weight > b.entry->item->weight; });
    double left = 0, total = 0;
    for (const Task& t : tasks) left += t.weight;
    total = left;
    for (const Task& t : tasks) {
      const double remaining = budget_.wall_ms - (now_ms() - start_);
      if (cancelled() || remaining <= 0) {
        report_.pending += !stored(t);
        continue;
      }
      search(t, std::max(remaining * t.weight / left, kLeastMs));
      left -= t.weight;
      progress(t, total > 0 ? 1 - left / total : 1);
    }
  }

  // What is provisional for lack of a worker is searched again; what is too large to time stays as it is.
  bool stored(const Task& t) {
    const std::optional<Decision> found = context_->find_decision(t.entry->op->query(t.kernel, t.dims, t.entry->request));
    if (!found) return false;
    if (found->status != DecisionStatus::provisional) return true;
    return operand_bytes(t.entry->op->lowered().kernels[static_cast<size_t>(t.kernel)].kernel, t.dims) > budget_.ram / 4;
  }

  void search(const Task& t, double allowance) {
    Entry& e = *t.entry;
    SearchTask task;
    task.query = e.op->query(t.kernel, t.dims, e.request);
    if (!done_.insert(query_id(task.query)).second) return;
    if (!budget_.force && stored(t)) return;
    task.problem = e.op->problem(t.kernel, t.dims, e.request);
    task.dims = t.dims;
    task.isa = ir::isa_name(context_->target().level);
    task.candidates = budget_.candidates;
    task.budget_ms = allowance;
    task.seed = budget_.seed;
    task.ram = budget_.ram;
    task.cancelled = budget_.cancelled;
    e.worked = true;
    const int64_t searches = context_->stats().get(Stat::k_searches);
    std::string& like = winners_[task.query.kernel_text];
    Result<SearchOutcome> found = search_and_record(*context_, task, evaluator(), like);
    if (cancelled() && (!found.ok() || !found->measured)) {
      ++report_.pending;
      return;
    }
    report_.searches += static_cast<int>(context_->stats().get(Stat::k_searches) - searches);
    if (!found.ok()) {
      e.notes[t.dims] = found.status().to_string();
      return fail(*e.item, found.status());
    }
    last_ = *found;
    report_.measurements += found->measurements;
    report_.rejected += found->rejected;
    report_.ties += found->measured && found->tie;
    if (!found->measured) {
      ++report_.unmeasured;
      e.notes[t.dims] = found->note;
    } else {
      like = found->schedule;
    }
  }

  void progress(const Task& t, double done) {
    if (!observer_.progress) return;
    observer_.progress({t.entry->item, t.dims, done, last_.best_us, last_.default_us, now_ms() - start_});
  }

  // The stages of what was found, and a row for each hinted shape. A fresh operator: what was found goes before the defaults.
  void finish(Entry& e) {
    Result<std::shared_ptr<Operator>> fresh = Operator::create(context_, e.op->graph());
    if (!fresh.ok()) return fail(*e.item, fresh.status());
    e.op = std::move(*fresh);
    Result<PrepareInfo> info = e.op->prepare(e.request);
    if (!info.ok()) return fail(*e.item, info.status());
    if (!e.worked) ++report_.from_store;
    for (const SymbolValues& dims : e.op->hinted_dims()) {
      WarmupRow row;
      row.item = e.item;
      row.dims = dims;
      row.dtype = ir::dtype_name(e.op->graph().tensors[static_cast<size_t>(e.op->graph().outputs[0])].dtype);
      row.threads = e.request.threads;
      row.codegen_us = e.codegen_us;
      row.origin = e.worked ? std::max(e.info.origin, LeafOrigin::compiled) : e.info.origin;
      if (const auto note = e.notes.find(dims); note != e.notes.end()) row.note = note->second;
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
    row->of_roofline = share_of_roofline(e, dims, row->us);
  }

  // In the measuring worker, started at the first search; without one nothing is measured.
  Evaluator evaluator() {
    if (!worker_) {
      WorkerOptions options;
      options.path = context_->options().text(ir::OptionId::worker);
      options.plugin_dir = context_->options().text(ir::OptionId::plugin_dir);
      options.store = &context_->store();
      worker_ = std::make_unique<WorkerClient>(std::move(options));
    }
    return worker_evaluator(*worker_, budget_.cancelled);
  }

  // The machine's ceilings: measured once per store, for shares in reports only.
  void find_profile() {
    if (Result<MachineProfile> stored = parse_profile(context_->find_profile()); stored.ok() && !stored->values.empty()) {
      profile_ = std::move(*stored);
      return;
    }
    MachineProbe probe;
    profile_ = measure_profile(probe, context_->target());
    context_->record_profile(to_text(profile_));
  }

  double share_of_roofline(const Entry& e, const SymbolValues& dims, double us) const {
    const Work work = work_at(e.op->graph(), dims);
    return us > 0 ? roofline_us(work, profile_, context_->target(), e.request.cold, e.request.threads) / us : 0;
  }

  std::string digest() const { return fmt::format("{:016x}", ir::hash_text(served_)); }

  const std::shared_ptr<Context>& context_;
  const WarmupBudget& budget_;
  const WarmupObserver& observer_;
  const double start_;
  std::vector<Entry> entries_;
  WarmupReport report_;
  std::string served_;
  SearchOutcome last_;
  MachineProfile profile_;
  std::unique_ptr<WorkerClient> worker_;
  std::set<std::string> done_;                  // decisions made or found by this run
  std::map<std::string, std::string> winners_;  // by naive Kernel: the last Schedule that was measured best
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
