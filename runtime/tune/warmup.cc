// See warmup.h.
#include "runtime/tune/warmup.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include "ir/analysis/analysis.h"
#include "runtime/base/clock.h"
#include "runtime/measure/work.h"
#include "runtime/tune/tuning_history.h"
#include "runtime/tune/workload_search.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;

namespace {

// One operator of the workload.
struct Entry {
  const ops::Workload* item = nullptr;
  std::shared_ptr<Operator> op;
  PrepareRequest request;
  PrepareInfo info;
  double first_resolve_us = 0;
  bool worked = false;  // something was compiled or searched for it
  bool failed = false;
};

class Warmup {
 public:
  Warmup(const std::shared_ptr<Context>& context, const WarmupBudget& budget, const WarmupObserver& observer)
      : context_(context), budget_(budget), observer_(observer), start_(now_ms()) {}

  WarmupReport run(const std::vector<ops::Workload>& items) {
    const uint64_t kept = context_->leaves().kept();
    prepare(items);
    for (Entry& e : entries_) time_first_resolve(&e);
    judge_origins(kept);
    if (budget_.tier >= 2) {
      profile_ = profile();  // for shares in reports
      search();
    } else {
      serve_defaults();
    }
    finish();
    report_.cancelled = cancelled();
    report_.ops = static_cast<int>(items.size());
    for (const auto& [key, leaf] : context_->leaves().kept_since(kept)) {
      if (leaf.origin != LeafOrigin::compiled) continue;
      ++(leaf.backend == jit::Backend::llvm ? report_.compiled_llvm : report_.compiled_xbyak);
    }
    report_.wall_ms = now_ms() - start_;
    report_.digest = digest();
    return report_;
  }

 private:
  void fail(const ops::Workload& item, const Status& status) {
    ++report_.failed;
    if (observer_.failed) observer_.failed(item, status);
  }

  // What a first resolve costs its caller where nothing is stored: an operator made and bound in a context of its own,
  // without a store.
  double first_resolve_us(const Entry& e) const {
    ContextConfig config;
    for (const ir::OptionId id : {ir::OptionId::max_isa, ir::OptionId::execmem}) {
      if (!config.options.set(id, context_->options().text(id)).ok()) return 0;
    }
    if (!config.options.set(ir::OptionId::cache, "off").ok()) return 0;
    const Result<std::shared_ptr<Context>> blank = Context::create(std::move(config));
    if (!blank.ok()) return 0;
    PrepareRequest request = e.request;
    request.caller_waits = true;
    const int64_t start = thread_cpu_ns();
    const Result<std::shared_ptr<Operator>> op = Operator::create(*blank, e.op->graph());
    if (!op.ok() || !(*op)->stages().prepare(request).ok()) return 0;
    bool packed = false;
    for (size_t k = 0; k < (*op)->lowered().kernels.size(); ++k) {
      for (const auto& s : (*op)->stages().of(static_cast<int>(k))) packed |= !s->stage.packed.empty();
    }
    if (!(*op)->shapes().hinted_workspace(request.threads, packed, false).ok()) return 0;
    return static_cast<double>(thread_cpu_ns() - start) * 1e-3;
  }

  // The operator with what needs no search: the general range, and what is stored.
  Status prepare(Entry* e) const {
    const ops::Workload& item = *e->item;
    LATHE_ASSIGN(ops::Graph graph, ops::finish(item.graph));
    graph.name = item.name;
    LATHE_ASSIGN(e->op, Operator::create(context_, graph));
    e->request.threads = budget_.threads > 0 ? budget_.threads : item.threads;
    e->request.cold = item.cache == ops::CacheState::cold;
    e->request.allowed = item.allowed;
    LATHE_ASSIGN(e->info, e->op->stages().prepare(e->request));
    return {};
  }

  // Work for each entry on the threads there are. Those it fails for are marked and reported, in the workload's order.
  void for_each_entry(std::vector<Entry>* entries, const std::function<Status(Entry*)>& work) {
    std::vector<Status> failed(entries->size());
    (void)for_each_index(context_->tasks(), entries->size(), [&](size_t i) {
      failed[i] = work(&(*entries)[i]);
      return Status();
    });
    for (size_t i = 0; i < entries->size(); ++i) {
      if (!failed[i].ok()) fail(*(*entries)[i].item, failed[i]);
      (*entries)[i].failed = !failed[i].ok();
    }
  }

  void prepare(const std::vector<ops::Workload>& items) {
    std::vector<Entry> entries(items.size());
    for (size_t i = 0; i < items.size(); ++i) entries[i].item = &items[i];
    for_each_entry(&entries, [this](Entry* e) { return cancelled() ? Status() : prepare(e); });
    for (Entry& e : entries) {
      if (!e.failed && e.op != nullptr) entries_.push_back(std::move(e));
    }
  }

  // A timing: nothing else runs.
  void time_first_resolve(Entry* e) {
    if (cancelled()) return;
    e->first_resolve_us = first_resolve_us(*e);
    report_.first_resolve_us_max = std::max(report_.first_resolve_us_max, e->first_resolve_us);
  }

  // Where the leaves of each operator came from. What several share is put down to the first, whoever came first.
  void judge_origins(uint64_t kept) {
    std::map<std::string, LeafCache::Kept> fresh = context_->leaves().kept_since(kept);
    for (Entry& e : entries_) {
      LeafOrigin origin = LeafOrigin::memory;
      for (size_t k = 0; k < e.op->lowered().kernels.size(); ++k) {
        for (const auto& s : e.op->stages().of(static_cast<int>(k))) {
          if (s->stage.portable) origin = LeafOrigin::builtin;
          for (const std::string& key : s->stage.leaf_keys) {
            const auto found = fresh.find(key);
            if (found == fresh.end()) continue;
            origin = std::max(origin, found->second.origin);
            e.worked |= found->second.origin == LeafOrigin::compiled;
            fresh.erase(found);
          }
        }
      }
      e.info.origin = origin;
    }
  }

  bool cancelled() const { return budget_.cancelled && budget_.cancelled(); }

  MachineProfile profile() const {
    if (budget_.wall_ms >= kUnhurriedMs) return machine_profile(*context_);
    const Result<MachineProfile> stored = parse_profile(context_->find_profile());
    return stored.ok() ? *stored : MachineProfile{};
  }

  void search() {
    search_ = std::make_unique<WorkloadSearch>(context_, budget_, profile_);
    for (const Entry& e : entries_) search_->add({e.item, e.op, e.request});
    const int64_t searches = context_->stats().get(Stat::k_searches);
    search_->run(start_ + budget_.wall_ms, [this](const WorkloadTask& t, double done) {
      if (!observer_.progress) return;
      observer_.progress(
          {entries_[t.op].item, t.dims, done, t.outcome.best_us, t.outcome.default_us, now_ms() - start_});
    });
    report_.searches = static_cast<int>(context_->stats().get(Stat::k_searches) - searches);
    if (budget_.wall_ms > 0 && !cancelled()) {  // without time it is a dry run
      search_->serve_pending();
      report_.between = search_->serve_unhinted();
    }
    if (budget_.check_whole && !cancelled()) {
      const Status checked = search_->check(&report_);
      if (!checked.ok()) report_.check_note = checked.to_string();
    }
    for (const WorkloadTask& t : search_->tasks()) count(t);
    report_.gain_geomean = gains_ > 0 ? std::exp(log_gain_ / gains_) : 1;
  }

  void serve_defaults() {
    WorkloadSearch unsearched(context_, budget_, profile_);
    for (const Entry& e : entries_) unsearched.add({e.item, e.op, e.request});
    for (const size_t op : unsearched.serve_defaults()) entries_[op].worked = true;
  }

  void count(const WorkloadTask& t) {
    const SearchOutcome& o = t.outcome;
    Entry& e = entries_[t.op];
    report_.pending += t.verdict == TaskVerdict::pending;
    report_.ties += t.verdict == TaskVerdict::tie;
    report_.promoted += t.verdict == TaskVerdict::won || t.verdict == TaskVerdict::pinned;
    report_.dropped += t.verdict == TaskVerdict::dropped;
    report_.unmeasured += t.verdict == TaskVerdict::unmeasured;
    report_.measurements += o.measurements;
    report_.further += o.further;
    report_.rejected += o.rejected;
    for (const auto& [reason, n] : o.rejected_by) report_.rejected_by[reason] += n;
    e.worked |=
        t.verdict != TaskVerdict::stored && t.verdict != TaskVerdict::elsewhere && t.verdict != TaskVerdict::pending;
    if (t.verdict == TaskVerdict::failed) fail(*e.item, t.failure);
    report_.no_worker += o.no_worker;
    if (o.no_worker) fail(*e.item, ir::make_error(ir::Code::kIO, "nothing was measured: {}", o.note));
    if (!o.measured || o.best_us <= 0) return;
    const double best = t.verdict == TaskVerdict::dropped ? o.default_us : o.best_us;
    log_gain_ += std::log(o.default_us / best);
    ++gains_;
    report_.default_us += t.weight * o.default_us;
    report_.tuned_us += t.weight * best;
  }

  // The stages of what was found. Fresh operators: what was found goes before the defaults.
  void finish() {
    for_each_entry(&entries_, [this](Entry* e) {
      LATHE_ASSIGN(e->op, Operator::create(context_, e->op->graph()));
      return e->op->stages().prepare(e->request).status();
    });
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (!entries_[i].failed) report_rows(i);
    }
  }

  // A row for each hinted shape.
  void report_rows(size_t index) {
    const Entry& e = entries_[index];
    if (!e.worked) ++report_.from_store;
    for (const SymbolValues& dims : e.op->hinted_dims()) {
      WarmupRow row;
      row.item = e.item;
      row.dims = dims;
      row.dtype = ir::dtype_name(e.op->graph().tensors[static_cast<size_t>(e.op->graph().outputs[0])].dtype);
      row.threads = e.request.threads;
      row.first_resolve_us = e.first_resolve_us;
      row.origin = e.worked ? std::max(e.info.origin, LeafOrigin::compiled) : e.info.origin;
      if (search_ && !judge(index, dims, &row)) continue;
      describe(e, dims, &row);
      ++report_.rows;
      if (observer_.row) observer_.row(row);
    }
  }

  // What the search made of an operator at these dims; false: nothing, it is another shard's.
  bool judge(size_t index, const SymbolValues& dims, WarmupRow* row) const {
    const size_t kernels = entries_[index].op->lowered().kernels.size();
    TaskVerdict verdict = TaskVerdict::failed;
    bool ours = false;
    for (size_t k = 0; k < kernels; ++k) {
      const WorkloadTask& t = search_->task(index, static_cast<int>(k), dims);
      ours |= t.verdict != TaskVerdict::elsewhere;
      if (k == 0 || t.verdict < verdict) verdict = t.verdict;
      row->measurements += t.outcome.measurements;
      row->search_ms += t.search_ms;
      if (kernels == 1) {
        row->curve = t.curve;
        row->expected = t.outcome.memory.expected;
      }
      if (t.verdict == TaskVerdict::failed) row->note = t.failure.to_string();
      if (t.verdict == TaskVerdict::unmeasured) row->note = t.outcome.note;
    }
    row->verdict = verdict_name(verdict);
    return ours;
  }

  void describe(const Entry& e, const SymbolValues& dims, WarmupRow* row) {
    const Result<const BoundOp*> bound =
        e.op->shapes().bound({.symbols = dims, .threads = e.request.threads, .packed = true});
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
    const Work work = work_at(e.op->graph(), dims);
    row->flops = work.flops;
    row->bytes = work.read_bytes + work.write_bytes;
    row->weight = e.item->weight;
  }

  double share_of_roofline(const Entry& e, const SymbolValues& dims, double us) const {
    const Work work = work_at(e.op->graph(), dims);
    if (us <= 0) return 0;
    return roofline_us(work, e.op->arithmetic(e.request), profile_, context_->target(), e.request.cold,
                       e.request.threads) /
           us;
  }

  std::string digest() const { return fmt::format("{:016x}", ir::hash_text(served_)); }

  const std::shared_ptr<Context>& context_;
  const WarmupBudget& budget_;
  const WarmupObserver& observer_;
  const double start_;
  std::vector<Entry> entries_;
  WarmupReport report_;
  std::string served_;
  MachineProfile profile_;
  std::unique_ptr<WorkloadSearch> search_;  // null: nothing is searched
  double log_gain_ = 0;
  int gains_ = 0;
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

Result<Tuned> tune_operator(const std::shared_ptr<Context>& context, const ops::Graph& graph,
                            const PrepareRequest& request, double left_ms) {
  ops::Workload work;
  work.name = graph.name;
  work.graph = graph;
  work.threads = request.threads;
  work.cache = request.cold ? ops::CacheState::cold : ops::CacheState::hot;
  work.allowed = request.allowed;
  WarmupBudget budget;
  budget.wall_ms = left_ms;
  const std::vector<ops::Workload> items{std::move(work)};
  LATHE_ASSIGN(const WarmupReport report, run_warmup(context, items, budget));
  Tuned out;
  out.searched = report.searches > 0;
  if (report.no_worker > 0) {
    out.missed = MissReason::k_no_worker;
  } else if (report.pending > 0) {
    out.missed = MissReason::k_budget;
  }
  return out;
}

}  // namespace lathe::runtime
