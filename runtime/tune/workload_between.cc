// Lengths that nobody hinted, of operators that were tuned at several: few bodies for all of them, chosen jointly by
// what was measured and what near tasks let expect (search/strategy/bodies.h). Each is verified and timed against the
// default of its range, then stored as a provisional decision: a later hint of such a length is searched as if there
// were none. Kernels of one symbol only.
#include <algorithm>
#include <memory>

#include "runtime/base/clock.h"
#include "runtime/tune/workload_search.h"
#include "search/strategy/bodies.h"

namespace lathe::runtime {

namespace {

constexpr int kBodies = 4;
constexpr int64_t kBeyond = 4;     // times the largest tuned length: above it the general stage serves
constexpr double kRangeMs = 2000;  // of verifying and timing one range

// Settings and their times relative to the default's, which comes first, of this machine's records of a task.
std::vector<std::pair<search::Knobs, double>> measured_settings(const std::vector<search::TaskRecord>& history,
                                                                const search::Problem& problem) {
  const std::string name = search::task_name(problem);
  std::vector<std::pair<search::Knobs, double>> out;
  for (const search::TaskRecord& r : history) {
    if (r.trust < 1 || search::task_name(r.problem) != name) continue;
    const std::vector<double> times = search::corrected_times(r);
    for (size_t i = 0; i < times.size() && times[0] > 0; ++i) {
      if (times[i] > 0 && r.rows[i].extra.empty() && !r.rows[i].recipe.empty())
        out.emplace_back(r.rows[i].knobs, times[i] / times[0]);
    }
  }
  return out;
}

// A default range of the symbol and the largest value in it.
struct Piece {
  SymbolRange range;
  int64_t length = 0;
  bool tuned = false;
  search::Problem problem;
  std::unique_ptr<search::RecipeSpace> space;  // where it was not tuned
};

std::vector<Piece> pieces_of(const Operator& op, int kernel, const PrepareRequest& request,
                             const std::vector<SymbolRange>& tuned) {
  const ir::Symbol& symbol = op.lowered().kernels[static_cast<size_t>(kernel)].kernel.symbols[0];
  int64_t largest = 0;
  for (const SymbolRange& r : tuned) largest = std::max(largest, r.hi);
  std::vector<Piece> out;
  for (int64_t lo = std::max<int64_t>(symbol.min, 1); lo <= symbol.max && lo <= kBeyond * largest;) {
    Piece piece;
    piece.range = default_range(lo, {symbol.min, symbol.max});
    lo = piece.range.hi + 1;
    piece.length = piece.range.hi - piece.range.hi % symbol.multiple_of;
    if (piece.length < piece.range.lo) continue;
    piece.tuned = std::find(tuned.begin(), tuned.end(), piece.range) != tuned.end();
    piece.problem = op.problem_in(kernel, {piece.range}, {{symbol.name, piece.length}}, request);
    out.push_back(std::move(piece));
  }
  return out;
}

}  // namespace

// The hinted ranges; empty: the Kernel is none of ours, or there is nothing new to choose from.
std::vector<SymbolRange> WorkloadSearch::tuned_ranges(size_t op, int kernel) {
  const SearchedOp& searched = ops_[op];
  std::vector<SymbolRange> out;
  bool now = false;
  for (const SymbolValues& dims : searched.op->hinted_dims()) {
    const WorkloadTask& t = task(op, kernel, dims);
    const bool fresh = t.verdict == TaskVerdict::won || t.verdict == TaskVerdict::tie;
    if (t.op != op || (!fresh && t.verdict != TaskVerdict::stored)) return {};
    now |= fresh;
    const SymbolRange range = searched.op->query(kernel, dims, searched.request).ranges.at(0);
    if (std::find(out.begin(), out.end(), range) == out.end()) out.push_back(range);
  }
  if (out.size() < 2) return {};
  // Those of an earlier choice give way to a new one.
  for (const std::vector<SymbolRange>& ranges :
       context_->decision_ranges(searched.op->query_in(kernel, {}, searched.request))) {
    if (ranges.size() != 1 || std::find(out.begin(), out.end(), ranges[0]) != out.end()) continue;
    if (!now) return {};
    const DecisionQuery query = searched.op->query_in(kernel, ranges, searched.request);
    const std::optional<Decision> found = context_->find_decision(query);
    if (found && found->status == DecisionStatus::provisional) context_->forget_decision(query);
  }
  return out;
}

// Verifies the setting (none: the default) over the range, times it against the range's default, and keeps the faster.
bool WorkloadSearch::serve_range(const SearchedOp& op, int kernel, SymbolRange range, const SymbolValues& dims,
                                 const search::Knobs& knobs) {
  SearchTask task;
  task.dims = dims;
  task.query = op.op->query_in(kernel, {range}, op.request);
  task.problem = op.op->problem_in(kernel, {range}, dims, op.request);
  task.candidates = 1;  // the default: the setting is measured apart, nothing else is tried
  task.budget_ms = kRangeMs;
  task.seed = budget_.seed;
  task.ram = budget_.ram;
  task.cancelled = budget_.cancelled;
  if (operand_bytes(task.problem.kernel, dims) > budget_.ram / 4) return false;
  if (!knobs.empty()) {
    search::RecipeSpace space(task.problem, context_->target(), search::MachineRates::assumed(context_->target()));
    const int point = space.nearest(knobs);
    const ir::Result<search::Schedule> schedule = space.schedule(point < 0 ? space.default_index() : point);
    if (!schedule.ok()) return false;
    task.incumbent = search::to_text(*schedule);
  }
  const ir::Result<SearchOutcome> found =
      search_and_record(*context_, task, worker_evaluator(worker_, budget_.cancelled), "");
  std::optional<Decision> decision = found.ok() && found->recorded ? context_->find_decision(task.query) : std::nullopt;
  if (!decision) return false;
  decision->status = DecisionStatus::provisional;
  context_->record_decision(task.query, std::move(*decision));
  return found->measured;
}

int WorkloadSearch::serve_between(size_t number, int kernel, double until_ms) {
  const SearchedOp& op = ops_[number];
  const std::vector<ir::Symbol>& symbols = op.op->lowered().kernels[static_cast<size_t>(kernel)].kernel.symbols;
  const std::vector<SymbolRange> tuned =
      symbols.size() == 1 ? tuned_ranges(number, kernel) : std::vector<SymbolRange>{};
  if (tuned.empty()) return 0;
  std::vector<Piece> pieces = pieces_of(*op.op, kernel, op.request, tuned);
  SearchTask knows;
  knows.problem = op.op->general_problem(kernel, true, op.request);
  knowledge_.equip(&knows);
  std::vector<search::ServedLength> lengths;
  for (Piece& piece : pieces) {
    search::ServedLength at;
    at.length = piece.length;
    if (piece.tuned) {
      for (const SymbolValues& dims : op.op->hinted_dims()) {
        if (!at.measured.empty() || op.op->query(kernel, dims, op.request).ranges[0] != piece.range) continue;
        at.measured = measured_settings(*knows.history, op.op->problem(kernel, dims, op.request));
      }
      if (at.measured.empty()) return 0;  // decided by somebody else: nothing to go by
    } else {
      piece.space = std::make_unique<search::RecipeSpace>(piece.problem, context_->target(), *knows.rates);
      at.search.problem = &piece.problem;
      at.search.target = &context_->target();
      at.search.space = piece.space.get();
      at.search.history = knows.history.get();
      at.search.model = knows.model.get();
      at.search.rates = knows.rates.get();
    }
    lengths.push_back(std::move(at));
  }
  const search::BodyPlan plan = search::plan_bodies(lengths, kBodies);
  if (plan.rules.empty() || plan.settings.size() == 1) return 0;
  int served = 0;
  for (size_t i = 0; i < pieces.size() && now_ms() < until_ms && !cancelled(); ++i) {
    if (pieces[i].tuned) continue;
    const int body = search::body_for(plan.rules, pieces[i].length);
    // Ranges next to each other with one body are one range.
    SymbolRange range = pieces[i].range;
    for (; i + 1 < pieces.size() && !pieces[i + 1].tuned && search::body_for(plan.rules, pieces[i + 1].length) == body;
         ++i)
      range.hi = pieces[i + 1].range.hi;
    served +=
        serve_range(op, kernel, range, {{symbols[0].name, pieces[i].length}}, plan.settings[static_cast<size_t>(body)]);
  }
  return served;
}

int WorkloadSearch::serve_between(double until_ms) {
  worker_.give_up_at(static_cast<int64_t>(until_ms));
  int served = 0;
  for (size_t op = 0; op < ops_.size(); ++op) {
    for (size_t k = 0; k < ops_[op].op->lowered().kernels.size(); ++k)
      served += serve_between(op, static_cast<int>(k), until_ms);
  }
  return served;
}

}  // namespace lathe::runtime
