// See table_builder.h.
#include "bench/live/table_builder.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "bench/live/stage_timer.h"
#include "ir/core/text_form.h"
#include "ops/lower.h"
#include "ops/manifest.h"
#include "runtime/compile/compiler.h"
#include "runtime/measure/timing.h"
#include "runtime/oracle/oracle.h"
#include "search/strategy/space.h"

namespace lathe::bench {

using ir::Result;
using ir::Status;
using search::Outcome;

namespace {

constexpr int kSamples = 3;
constexpr double kHopeless = 1.5, kLeastUs = 250;
constexpr int kByEstimate = 20, kFewestRows = 60, kFewestBest = 16;

class Builder {
 public:
  Builder(MeasuredTask* task, const ir::Target& target, runtime::LeafCache& leaves, const BuildOptions& options)
      : task_(task),
        target_(target),
        leaves_(leaves),
        options_(options),
        random_(options.seed),
        space_(task->problem, target, search::MachineRates::assumed(target)),
        timer_(task->problem, target) {}

  Status run() {
    const search::Recipe* recipe = search::find_recipe(task_->problem);
    if (recipe == nullptr) return ir::unsupported("{}: no recipe", task_->name);
    task_->recipe = fmt::format("{}.{}", recipe->name, recipe->version);
    task_->isa = ir::isa_name(target_.level);
    for (const search::KnobDomain& d : space_.domains()) task_->knob_names.push_back(d.name);
    LATHE_RETURN_IF_ERROR(build({space_.default_index()}));
    if (stages_.empty()) return ir::unsupported("{}: the default cannot be built", task_->name);
    LATHE_RETURN_IF_ERROR(bind());
    const double once = timer_.calibrate(0);
    // Screening takes about 4 calls a pass, confirming one a pass; a cold one evicts before it.
    const double us = options_.seconds * 1e6, evicting = task_->problem.cold ? 2 : 1;
    const double call = std::max(once, evicting * timer_.sample_us()), screened = std::max(call, kLeastUs);
    const int rows = static_cast<int>(0.5 * us / (4 * options_.passes * screened * 1.3));
    const int best = static_cast<int>(0.25 * us / (options_.confirm * call));
    best_ = std::clamp(best, kFewestBest, options_.best);
    std::vector<int> points = choose(std::clamp(rows, kFewestRows, options_.rows));
    points.erase(points.begin());
    LATHE_RETURN_IF_ERROR(build(points));
    LATHE_RETURN_IF_ERROR(verify());
    LATHE_RETURN_IF_ERROR(bind());
    screen();
    confirm();
    std::erase_if(task_->rows, [](const TableRow& r) { return r.outcome == Outcome::skipped; });
    return {};
  }

 private:
  // The default, the best by estimate, the default's neighbours, then a sample of the rest.
  std::vector<int> choose(int n) {
    const int size = space_.size();
    std::vector<int> out{space_.default_index()}, order(static_cast<size_t>(size));
    std::set<int> taken{out[0]};
    const auto take = [&](int i) {
      if (static_cast<int>(out.size()) < n && i < size && taken.insert(i).second) out.push_back(i);
    };
    for (int i = 0; i < size; ++i) order[static_cast<size_t>(i)] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return space_.at(a).estimate_us < space_.at(b).estimate_us; });
    for (int i = 0; i < std::min(size, kByEstimate); ++i) take(order[static_cast<size_t>(i)]);
    for (int i : space_.neighbours(out[0])) take(i);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_() % i]);
    for (int i : order) take(i);
    return out;
  }

  // One row per point that has knobs of its own; stages for those that compile to something new.
  Status build(const std::vector<int>& points) {
    for (int p : points) {
      if (!space_.at(p).extra.empty()) continue;
      TableRow row;
      row.knobs = space_.at(p).knobs;
      const Result<search::Scheduled> scheduled = space_.scheduled(p);
      Result<runtime::Stage> stage = scheduled.ok() ? runtime::build_stage(task_->problem.kernel, *scheduled, target_,
                                                                           leaves_, {.llvm = false, .portable = false})
                                                    : Result<runtime::Stage>(scheduled.status());
      if (!stage.ok()) {
        row.outcome = Outcome::refused;
        ++task_->refused;
      } else if (!distinct_.emplace(ir::print(stage->nest().cut.kernel)).second) {
        row.outcome = Outcome::skipped;
      } else {
        stages_.push_back(std::make_unique<runtime::Stage>(std::move(stage).value()));
        row_of_.push_back(static_cast<int>(task_->rows.size()));
      }
      task_->rows.push_back(std::move(row));
    }
    return {};
  }

  TableRow& row(size_t stage) { return task_->rows[static_cast<size_t>(row_of_[stage])]; }
  runtime::SymbolValues symbols() const { return task_->problem.dims; }

  Status verify() {
    runtime::OracleTask oracle_task{task_->problem.kernel, symbols(), task_->problem.threads, options_.seed};
    LATHE_ASSIGN(const std::unique_ptr<runtime::Oracle> oracle,
                 runtime::Oracle::create(std::move(oracle_task), timer_.team()));
    std::vector<std::unique_ptr<runtime::Stage>> right;
    std::vector<int> rows;
    for (size_t i = 0; i < stages_.size(); ++i) {
      const Result<runtime::Verdict> verdict = oracle->verify(*stages_[i]);
      if (!verdict.ok() || !verdict->ok) {
        row(i).outcome = verdict.ok() ? Outcome::wrong : Outcome::refused;
        if (i == 0)
          return ir::unsupported("{}: the default is not right: {}", task_->name,
                                 verdict.ok() ? verdict->reason : verdict.status().to_string());
        continue;
      }
      right.push_back(std::move(stages_[i]));
      rows.push_back(row_of_[i]);
    }
    stages_ = std::move(right);
    row_of_ = std::move(rows);
    return {};
  }

  Status bind() {
    std::vector<const runtime::Stage*> stages;
    for (const auto& s : stages_) stages.push_back(s.get());
    return timer_.bind(stages);
  }

  std::vector<size_t> shuffled() {
    std::vector<size_t> order(stages_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_() % i]);
    return order;
  }

  void screen() {
    for (int pass = 0; pass < options_.passes; ++pass) {
      double best = 1e30;
      for (size_t i : shuffled()) {
        timer_.await_cores();
        if (timer_.calibrated(i)) {
          timer_.warm(i);
        } else {
          timer_.calibrate(i);
        }
        std::vector<double> samples;
        for (int n = 0; n < kSamples; ++n) {
          samples.push_back(timer_.sample(i));
          if (n == 0 && samples[0] > kHopeless * best) break;
        }
        best = std::min(best, *std::min_element(samples.begin(), samples.end()));
        row(i).passes.push_back(std::move(samples));
      }
    }
  }

  double screened(size_t i) {
    double sum = 0;
    for (const std::vector<double>& p : row(i).passes) {
      sum += task_->problem.cold ? runtime::median_of(p) : *std::min_element(p.begin(), p.end());
    }
    return sum;
  }

  void confirm() {
    std::vector<std::pair<double, size_t>> ranked;
    for (size_t i = 0; i < stages_.size(); ++i) ranked.emplace_back(i == 0 ? 0 : screened(i), i);  // the default always
    std::sort(ranked.begin(), ranked.end());
    ranked.resize(std::min(ranked.size(), static_cast<size_t>(best_)));
    ranked.emplace_back(-1, 0);  // once more, as if it were another candidate
    for (int pass = 0; pass < options_.confirm; ++pass) {
      timer_.await_cores();
      for (size_t n = ranked.size(); n > 1; --n) std::swap(ranked[n - 1], ranked[random_() % n]);
      for (const auto& [us, i] : ranked) {
        timer_.warm(i);
        (us < 0 ? row(i).again : row(i).confirm).push_back(timer_.sample(i));
      }
    }
  }

  MeasuredTask* task_;
  const ir::Target& target_;
  runtime::LeafCache& leaves_;
  const BuildOptions& options_;
  std::mt19937_64 random_;
  search::RecipeSpace space_;
  StageTimer timer_;
  std::vector<std::unique_ptr<runtime::Stage>> stages_;
  std::vector<int> row_of_;
  std::set<std::string> distinct_;
  int best_ = 0;
};

}  // namespace

Result<std::vector<MeasuredTask>> read_tasks(const std::string& path) {
  std::ifstream in(path);
  if (!in) return ir::invalid("{}: cannot be read", path);
  std::ostringstream text;
  text << in.rdbuf();
  LATHE_ASSIGN(const std::vector<ops::Workload> workloads, ops::parse_manifest(text.str()));
  std::vector<MeasuredTask> out;
  for (const ops::Workload& w : workloads) {
    LATHE_ASSIGN(const ops::Graph graph, ops::finish(w.graph));
    LATHE_ASSIGN(const ops::Lowered lowered, ops::lower(graph));
    if (lowered.kernels.size() != 1 || w.dims.size() > 1)
      return ir::invalid("{}: expected one kernel and at most one symbol", w.name);
    std::vector<ops::Hint> hints{{0, 1}};
    if (!w.dims.empty()) hints = w.dims[0].hints;
    for (const ops::Hint& hint : hints) {
      MeasuredTask t;
      t.name = w.name;
      t.group = w.name.substr(0, w.name.find('@'));
      t.problem.kernel = lowered.kernels[0].kernel;
      if (!w.dims.empty()) {
        t.length = hint.value;
        t.name += fmt::format("_{}{}", w.dims[0].symbol, hint.value);
        t.problem.kernel = search::restrict_symbols(t.problem.kernel,
                                                    {{ops::kernel_symbol(w.dims[0].symbol), {hint.value, hint.value}}});
      }
      t.problem.threads = w.threads;
      t.problem.cold = w.cache == ops::CacheState::cold;
      t.problem.unhurried = true;
      t.problem.allowed = w.allowed;
      out.push_back(std::move(t));
    }
  }
  return out;
}

void pin_for(const MeasuredTask& task, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (cpu < 0 || task.problem.threads > 1 || i == cpu) CPU_SET(i, &set);
  }
  sched_setaffinity(0, sizeof(set), &set);
}

Status build_table(MeasuredTask* task, const ir::Target& target, runtime::LeafCache& leaves,
                   const BuildOptions& options) {
  return Builder(task, target, leaves, options).run();
}

}  // namespace lathe::bench
