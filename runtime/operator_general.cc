// The default stages of an operator: over the whole range of its symbols, by the default Schedule for the largest hint. Where a Kernel packs
// constants there are two, and the one that reads them as they lie may wait for the first call that wants it.
#include <algorithm>

#include "runtime/operator.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;

namespace {

// The kernel over its whole declared range; 0 is in every dim's range.
ir::Kernel widened(const ir::Kernel& kernel) {
  ir::Kernel out = kernel;
  for (ir::Symbol& s : out.symbols) {
    if (s.min != s.max) s.min = 0;
  }
  return out;
}

}  // namespace

search::Problem Operator::general_problem(int kernel, bool packed, const PrepareRequest& request) const {
  search::Problem p;
  const ir::Kernel& naive = lowered_.kernels[static_cast<size_t>(kernel)].kernel;
  const ir::Kernel whole = widened(naive);
  p.kernel = packed ? whole : constants_as_inputs(whole);
  p.one_layout = !naive.symbols.empty();
  const std::vector<SymbolValues> hints = hinted_dims();
  for (const auto& [name, value] : hints.back()) p.dims[name] = value;
  p.threads = request.threads;
  p.cold = request.cold;
  return p;
}

// What packs the Kernel's constants for the stages that are there already.
KnownPacks Operator::known_packs(int kernel) const {
  KnownPacks out;
  for (const auto& s : stages_[static_cast<size_t>(kernel)]) {
    for (const PackedParam& p : s->stage.packed) out.push_back(&p);
  }
  return out;
}

// The default, or the naive Kernel where the default takes a liberty that is not allowed.
search::Scheduled Operator::general_default(const search::Problem& problem, const PrepareRequest& request) const {
  search::Scheduled scheduled = search::default_scheduled(problem, context_->target());
  if ((scheduled.kernel.numeric & kDefaultAllowed & ~allowed_classes(request)) != 0) scheduled = {{.family = problem.kernel.family}, problem.kernel};
  return scheduled;
}

// The stage over the whole range, by the default Schedule for the largest hint; plain: constants as they lie.
Status Operator::add_general(int kernel, const PrepareRequest& request, bool packed, const LeafPolicy& policy, PrepareInfo& info) {
  const search::Problem p = general_problem(kernel, packed, request);
  LATHE_ASSIGN(Stage stage, cut_stage(p.kernel, general_default(p, request), context_->leaves().options()));
  LATHE_RETURN_IF_ERROR(add_leaves(stage, context_->target(), context_->leaves(), policy, known_packs(kernel)));
  ServedStage attributes;
  attributes.tier = 1;
  attributes.threads = request.threads;
  attributes.packed = packed;
  LATHE_ASSIGN(const ServedStage* added, add_stage(kernel, p, std::move(stage), std::move(attributes), info));
  if (!packed || added->stage.packed.empty()) return {};
  return add_plain(kernel, request, policy, info);
}

// Beside a stage that packs constants: the one for calls that bring them as they lie.
Status Operator::add_plain(int kernel, const PrepareRequest& request, const LeafPolicy& policy, PrepareInfo& info) {
  if (!request.caller_waits) return add_general(kernel, request, false, policy, info);
  const auto same = [&](const auto& l) { return l.first == kernel && l.second.threads == request.threads; };
  const auto& late = late_[static_cast<size_t>(kernel)];
  const bool there = std::any_of(later_.begin(), later_.end(), same) ||
                     std::any_of(late.begin(), late.end(), [&](const auto& s) { return s->threads == request.threads; });
  if (!there) later_.emplace_back(kernel, request);
  return {};
}

// The stages that prepare() left for later, scheduled and cut. With the lock held.
Status Operator::add_later() {
  while (!later_.empty()) {
    const auto& [kernel, request] = later_.back();
    const search::Problem p = general_problem(kernel, false, request);
    auto late = std::make_unique<ServedStage>();
    LATHE_ASSIGN(late->stage, cut_stage(p.kernel, general_default(p, request), context_->leaves().options()));
    late->range = range_of(kernel, p);
    late->threads = request.threads;
    late->packed = late->has_leaves = false;
    late_[static_cast<size_t>(kernel)].push_back(std::move(late));
    later_.pop_back();
  }
  return {};
}

// With the lock held.
Status Operator::add_late_leaves(int kernel) {
  LeafPolicy policy = context_->leaf_policy();
  policy.llvm = false;
  for (const auto& late : late_[static_cast<size_t>(kernel)]) {
    if (late->has_leaves) continue;
    LATHE_RETURN_IF_ERROR(add_leaves(late->stage, context_->target(), context_->leaves(), policy).with_context(graph_.name));
    if (late->stage.portable) late->tier = 0;
    late->has_leaves = true;
  }
  return {};
}

Status Operator::complete() {
  std::lock_guard lock(mutex_);
  LATHE_RETURN_IF_ERROR(add_later());
  for (size_t k = 0; k < late_.size(); ++k) LATHE_RETURN_IF_ERROR(add_late_leaves(static_cast<int>(k)));
  return {};
}

Result<int64_t> Operator::hinted_workspace(int threads, bool packed, bool plain) {
  int64_t most = 0;
  for (const SymbolValues& dims : hinted_dims()) {
    LATHE_ASSIGN(const BoundOp* op, bound({.symbols = dims, .threads = threads, .packed = packed}));
    most = std::max(most, op->workspace_bytes);
    if (!packed || !plain) continue;
    std::lock_guard lock(mutex_);
    LATHE_ASSIGN(const std::unique_ptr<BoundOp> as_it_lies, bind({.symbols = dims, .threads = threads}, -1, nullptr, false));
    most = std::max(most, as_it_lies->workspace_bytes);
  }
  return most;
}

}  // namespace lathe::runtime
