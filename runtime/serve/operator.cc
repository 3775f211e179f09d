// Operator: see operator.h.
#include "runtime/serve/operator.h"

#include <algorithm>
#include <cstring>

#include "ir/analysis/analysis.h"
#include "ir/core/text_form.h"
#include "runtime/walk/nest_walk.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;

namespace {

constexpr size_t kMaxHintedDims = 64;
constexpr size_t kMaxBound = 1024;  // shapes come from requests: no more nests than this are kept

// Of each symbol the largest value.
SymbolValues largest(const ir::Kernel& kernel) {
  SymbolValues out;
  for (const ir::Symbol& s : kernel.symbols) out.emplace_back(s.name, s.max - s.max % s.multiple_of);
  return out;
}

int64_t align64(int64_t bytes) { return (bytes + 63) & ~int64_t{63}; }

}  // namespace

ir::Kernel constants_as_inputs(const ir::Kernel& kernel) {
  ir::Kernel out = kernel;
  for (ir::Buffer& b : out.buffers) {
    if (b.place == ir::Place::constant) b.place = ir::Place::in;
  }
  return out;
}

Result<std::shared_ptr<Operator>> Operator::create(std::shared_ptr<Context> context, const ops::Graph& finished) {
  std::shared_ptr<Operator> op(new Operator);
  op->context_ = std::move(context);
  op->graph_ = finished;
  LATHE_ASSIGN(op->lowered_, ops::lower(finished));
  op->arg_tensors_ = finished.inputs;
  op->arg_tensors_.insert(op->arg_tensors_.end(), finished.outputs.begin(), finished.outputs.end());
  op->stages_.resize(op->lowered_.kernels.size());
  op->promoted_ = std::make_shared<const Bodies>(op->lowered_.kernels.size());
  return op;
}

std::vector<SymbolValues> Operator::hinted_dims() const {
  std::vector<SymbolValues> out{{}};
  for (const ops::DimDesc& d : graph_.symbols) {
    std::vector<SymbolValues> next;
    for (const SymbolValues& values : out) {
      if (d.hints.empty()) {
        next.push_back(values);
        next.back().emplace_back(ops::kernel_symbol(d.symbol), d.max);
      }
      for (const ops::Hint& h : d.hints) {
        if (next.size() >= kMaxHintedDims) break;
        next.push_back(values);
        next.back().emplace_back(ops::kernel_symbol(d.symbol), h.value);
      }
    }
    out = std::move(next);
  }
  return out;
}

std::vector<SymbolRange> Operator::ranges_at(int kernel, const SymbolValues& dims) const {
  std::vector<SymbolRange> out;
  for (const ir::Symbol& s : lowered_.kernels[static_cast<size_t>(kernel)].kernel.symbols) {
    out.push_back(default_range(dims.value_or(s.name, s.max), {s.min, s.max}));
  }
  return out;
}

search::Problem Operator::problem_in(int kernel, const std::vector<SymbolRange>& ranges, const SymbolValues& dims,
                                     const PrepareRequest& request) const {
  const ir::Kernel& naive = lowered_.kernels[static_cast<size_t>(kernel)].kernel;
  SymbolRanges narrowed;
  search::Problem p;
  for (size_t i = 0; i < naive.symbols.size(); ++i) {
    const ir::Symbol& s = naive.symbols[i];
    narrowed[s.name] = ranges[i];
    p.dims[s.name] = dims.value_or(s.name, s.max);
  }
  p.one_layout = !naive.symbols.empty();
  p.unhurried = true;
  p.kernel = search::restrict_symbols(naive, narrowed);
  p.threads = request.threads;
  p.cold = request.cold;
  return p;
}

DecisionQuery Operator::query_in(int kernel, const std::vector<SymbolRange>& ranges,
                                 const PrepareRequest& request) const {
  DecisionQuery q;
  q.structure = lowered_.kernels[static_cast<size_t>(kernel)].structure;
  q.ranges = ranges;
  q.threads = request.threads;
  q.cold = request.cold;
  q.allowed = allowed_classes(request);
  return q;
}

search::Problem Operator::problem(int kernel, const SymbolValues& dims, const PrepareRequest& request) const {
  return problem_in(kernel, ranges_at(kernel, dims), dims, request);
}

DecisionQuery Operator::query(int kernel, const SymbolValues& dims, const PrepareRequest& request) const {
  return query_in(kernel, ranges_at(kernel, dims), request);
}

// The values of symbols that the problem is for.
SymbolRanges Operator::range_of(int kernel, const search::Problem& problem) const {
  SymbolRanges out;
  for (const ir::Symbol& s : lowered_.kernels[static_cast<size_t>(kernel)].kernel.symbols) {
    const ir::Symbol* left = problem.kernel.find_symbol(s.name);
    const auto fixed = problem.dims.find(s.name);
    if (left != nullptr) {
      out[s.name] = {left->min, left->max};
    } else if (fixed != problem.dims.end()) {
      out[s.name] = {fixed->second, fixed->second};
    }
  }
  return out;
}

// Adds a stage that was built.
Result<const ServedStage*> Operator::keep_stage(int kernel, const search::Problem& problem, ServedStage attributes,
                                                PrepareInfo& info) {
  attributes.range = range_of(kernel, problem);
  const Stage& stage = attributes.stage;
  for (const PackedParam& p : stage.packed) {
    for (const auto& other : stages_[static_cast<size_t>(kernel)]) {
      for (const PackedParam& q : other->stage.packed) {
        if (q.param == p.param && q.layout_id != p.layout_id) {
          return ir::unsupported("{}: another packed layout of a constant is in use already", graph_.name);
        }
      }
    }
  }
  if (stage.portable) attributes.tier = 0;
  // Constants that come as they lie are the exception: what serves those says nothing of the others.
  if (attributes.packed) info.tier = std::min(info.tier, attributes.tier);
  info.origin = std::max(info.origin, stage.portable ? LeafOrigin::builtin : stage.origin);
  info.numeric |= stage.schedule.numeric;
  auto& list = stages_[static_cast<size_t>(kernel)];
  list.push_back(std::make_unique<ServedStage>(std::move(attributes)));
  return list.back().get();
}

// What a search decided, over the problem's range: nothing in a record is believed that replay can tell. Not by the
// portable executor, if that is not all there is: the general stage is better.
Result<const ServedStage*> Operator::decided_stage(int kernel, const search::Problem& problem, const Decision& decision,
                                                   const PrepareRequest& request, LeafPolicy policy, PrepareInfo& info,
                                                   MissReason* why) {
  *why = MissReason::k_corrupt;
  LATHE_ASSIGN(const search::Schedule schedule, search::parse_schedule(decision.schedule));
  if (decision.numeric != schedule.numeric)
    return ir::unsupported("a record of class {:#x} with a Schedule of class {:#x}", decision.numeric,
                           schedule.numeric);
  *why = MissReason::k_numeric;
  if ((schedule.numeric & ~allowed_classes(request)) != 0)
    return ir::unsupported("liberties that the caller does not allow");
  policy.portable &= !context_->leaves().native(context_->target());
  ServedStage attributes;
  attributes.tier = decision.unmeasured() ? 1 : 2;
  attributes.decided = true;
  attributes.threads = request.threads;
  attributes.best_us = decision.best_us;
  attributes.default_us = decision.default_us;
  LATHE_ASSIGN(attributes.stage, build_stage(problem.kernel, schedule, context_->target(), context_->leaves(), policy,
                                             why, known_packs(kernel)));
  *why = MissReason::k_corrupt;
  if (attributes.stage.schedule.numeric != schedule.numeric)
    return ir::unsupported("liberties that are not the ones stated");
  *why = MissReason::k_refused;
  LATHE_RETURN_IF_ERROR(
      bind_nest(attributes.stage.cut, largest(attributes.stage.cut.kernel), {}, request.threads).status());
  *why = MissReason::k_layout;
  return keep_stage(kernel, problem, std::move(attributes), info);
}

// True: it serves. Else *why, counted; what does not depend on the code at hand is not looked at again.
bool Operator::add_decided(int kernel, const search::Problem& problem, const DecisionQuery& query,
                           const Decision& decision, const PrepareRequest& request, const LeafPolicy& policy,
                           PrepareInfo& info, MissReason* why) {
  if (decided_stage(kernel, problem, decision, request, policy, info, why).ok()) return true;
  if (*why == MissReason::k_never_seen && context_->seal() != Seal::off) *why = MissReason::k_sealed;
  const bool code = *why == MissReason::k_never_seen || *why == MissReason::k_sealed || *why == MissReason::k_budget ||
                    *why == MissReason::k_compile_failed;
  if (code)
    context_->stats().miss(*why);
  else
    context_->reject_decision(query, *why);
  return false;
}

bool Operator::decided(int kernel, const search::Problem& problem, const PrepareRequest& request) const {
  const SymbolRanges range = range_of(kernel, problem);
  const auto& list = stages_[static_cast<size_t>(kernel)];
  return std::any_of(list.begin(), list.end(),
                     [&](const auto& s) { return s->decided && s->threads == request.threads && s->range == range; });
}

// Bodies that are stored for ranges nobody hints, as far as nothing has to be made for them.
void Operator::add_between(int kernel, const PrepareRequest& request, LeafPolicy policy, PrepareInfo& info) {
  const std::vector<ir::Symbol>& symbols = lowered_.kernels[static_cast<size_t>(kernel)].kernel.symbols;
  if (symbols.empty()) return;
  policy.generate = policy.llvm = false;
  std::vector<std::vector<SymbolRange>> hinted;
  for (const SymbolValues& dims : hinted_dims()) hinted.push_back(ranges_at(kernel, dims));
  for (const std::vector<SymbolRange>& ranges : context_->decision_ranges(query_in(kernel, {}, request))) {
    if (std::find(hinted.begin(), hinted.end(), ranges) != hinted.end()) continue;
    SymbolValues dims;
    bool within = ranges.size() == symbols.size();
    for (size_t i = 0; within && i < symbols.size(); ++i) {
      within = ranges[i].lo >= symbols[i].min && ranges[i].hi <= symbols[i].max;
      dims.emplace_back(symbols[i].name, ranges[i].hi);
    }
    if (!within) continue;
    const search::Problem p = problem_in(kernel, ranges, dims, request);
    if (decided(kernel, p, request)) continue;
    const DecisionQuery query = query_in(kernel, ranges, request);
    const std::optional<Decision> decision = context_->find_decision(query);
    MissReason why = MissReason::k_never_seen;
    // One that does not fit (leaves that are not stored, another layout) leaves the range to the general stage.
    if (decision) (void)add_decided(kernel, p, query, *decision, request, policy, info, &why);
  }
}

Result<PrepareInfo> Operator::prepare(const PrepareRequest& asked, bool compiled_only) {
  PrepareInfo info;
  LeafPolicy policy = context_->leaf_policy();
  policy.llvm &= asked.llvm;
  const bool stored_only = compiled_only || context_->seal() == Seal::error;
  if (compiled_only) {
    policy.generate = policy.llvm = false;
    policy.portable = !context_->leaves().native(context_->target());  // which needs nothing stored
  }
  PrepareRequest request = asked;
  request.caller_waits &= !stored_only;  // later nothing could be refused any more
  const std::vector<SymbolValues> hints = hinted_dims();
  for (size_t k = 0; k < lowered_.kernels.size(); ++k) {
    const int kernel = static_cast<int>(k);
    // The layout of constants that the whole range has is the one that decisions for parts of it share.
    const bool ranged = !lowered_.kernels[k].kernel.symbols.empty();
    if (ranged) LATHE_RETURN_IF_ERROR(add_missing(kernel, request, policy, info));
    for (const SymbolValues& dims : hints) {
      const search::Problem p = problem(kernel, dims, request);
      if (decided(kernel, p, request)) continue;
      MissReason reason = MissReason::k_never_seen;
      const DecisionQuery wanted = query(kernel, dims, request);
      const std::optional<Decision> decision = context_->find_decision(wanted, &reason);
      if (decision && add_decided(kernel, p, wanted, *decision, request, policy, info, &reason)) {
        if (!decision->unmeasured()) continue;
        info.unmeasured = true;
        if (!info.missed) info.miss = MissReason::k_unmeasured;
        context_->stats().miss(MissReason::k_unmeasured);
        continue;
      }
      info.missed = true;
      info.miss = reason;
      if (context_->seal() == Seal::warn && context_->leaves().options().verbose >= Verbosity::warn) {
        verbose_line({"warn", graph_.name, "T1", "", miss_reason_name(reason), 0});
      }
      if (stored_only)
        return ir::make_error(ir::Code::kMISS, "{}: no decision that serves is stored ({})", graph_.name,
                              miss_reason_name(reason));
    }
    add_between(kernel, request, policy, info);
    if (!ranged) LATHE_RETURN_IF_ERROR(add_missing(kernel, request, policy, info));
  }
  if (!asked.caller_waits) context_->leaves().publish_all();
  return info;
}

bool Operator::holds(const SymbolRanges& range, const SymbolValues& values) {
  return std::all_of(range.begin(), range.end(), [&](const auto& r) {
    const auto value = values.find(r.first);
    return value != values.end() && r.second.holds(value->second);
  });
}

// Its values, and its constants as they come: where some stage packs a constant, those that come packed are for stages
// that pack.
bool Operator::suits(int kernel, const ServedStage& stage, const Call& call) const {
  if (!holds(stage.range, call.symbols)) return false;
  if (!call.packed || !stage.stage.packed.empty()) return call.packed || stage.stage.packed.empty();
  const auto& list = stages_[static_cast<size_t>(kernel)];
  return std::none_of(list.begin(), list.end(), [](const auto& s) { return !s->stage.packed.empty(); });
}

// The narrowest stage that suits the call; of equals, one that was promoted.
const ServedStage* Operator::pick(int kernel, const Call& call, const Bodies& promoted, const Bodies& late) const {
  const ServedStage* best = nullptr;
  double best_width = 0;
  const auto consider = [&](const ServedStage* s) {
    if (!suits(kernel, *s, call)) return;
    double width = s->threads == call.threads ? 1 : 1e6;
    if (!s->packed) width *= 1e3;
    for (const auto& [name, r] : s->range) width *= static_cast<double>(r.hi - r.lo + 1);
    if (best == nullptr || width < best_width) {
      best = s;
      best_width = width;
    }
  };
  for (const ServedStage* s : promoted[static_cast<size_t>(kernel)]) consider(s);
  for (const auto& s : stages_[static_cast<size_t>(kernel)]) consider(s.get());
  for (const ServedStage* s : late[static_cast<size_t>(kernel)]) consider(s);
  return best;
}

Result<std::unique_ptr<BoundOp>> Operator::bind(const Call& call, const Bodies& promoted, const Bodies& late,
                                                int kernel, const ServedStage* only) const {
  auto out = std::make_unique<BoundOp>();
  out->tier = 2;
  out->empty = std::all_of(graph_.outputs.begin(), graph_.outputs.end(), [&](int t) {
    const std::vector<ops::DimDesc>& dims = graph_.tensors[static_cast<size_t>(t)].dims;
    return std::any_of(dims.begin(), dims.end(), [&](const ops::DimDesc& d) {
      return (d.fixed() ? d.max : call.symbols.value_or(ops::kernel_symbol(d.symbol), -1)) == 0;
    });
  });
  if (out->empty) return out;
  int64_t at = 0;
  for (const ops::TempDesc& t : lowered_.temps) {
    int64_t elements = 1;
    for (const ir::Expr& d : t.dims) {
      const std::optional<int64_t> size = ir::evaluate(d, call.symbols);
      if (!size || __builtin_mul_overflow(elements, *size, &elements))
        return ir::invalid("an intermediate's size overflows");
    }
    const int64_t bytes = ir::dtype_bytes(t.type, elements);
    if (bytes > INT64_MAX - 64) return ir::invalid("an intermediate's size overflows");
    out->temp_offsets.push_back(at);
    if (__builtin_add_overflow(at, align64(bytes), &at)) return ir::invalid("the workspace's size overflows");
  }
  out->nest_offset = at;
  int64_t scratch = 0;
  for (size_t k = 0; k < lowered_.kernels.size(); ++k) {
    const ops::LoweredKernel& lk = lowered_.kernels[k];
    BoundOp::Step step;
    step.stage =
        only != nullptr && kernel == static_cast<int>(k) ? only : pick(static_cast<int>(k), call, promoted, late);
    if (step.stage == nullptr) return ir::make_error(ir::Code::kMISS, "{}: nothing serves these dims", graph_.name);
    std::vector<ArgLayout> layouts(lk.tensor_of_param.size());
    for (size_t p = 0; p < lk.tensor_of_param.size(); ++p) {
      const int tensor = lk.tensor_of_param[p];
      const auto arg = std::find(arg_tensors_.begin(), arg_tensors_.end(), tensor);
      if (arg != arg_tensors_.end()) {
        const auto number = static_cast<size_t>(arg - arg_tensors_.begin());
        step.args.push_back(static_cast<int>(number));
        if (number < call.layouts.size()) layouts[p] = call.layouts[number];
        continue;
      }
      const auto temp = std::find_if(lowered_.temps.begin(), lowered_.temps.end(),
                                     [&](const ops::TempDesc& t) { return t.tensor == tensor; });
      if (temp == lowered_.temps.end())
        return ir::internal_error("tensor {} is neither argument nor temporary", tensor);
      step.args.push_back(-1 - static_cast<int>(temp - lowered_.temps.begin()));
    }
    LATHE_ASSIGN(step.nest, context_->binder()(step.stage->stage.cut, call.symbols, layouts, call.threads));
    scratch = std::max(scratch, step.nest.workspace_bytes);
    out->tier = std::min(out->tier, step.stage->tier);
    out->steps.push_back(std::move(step));
  }
  if (__builtin_add_overflow(at, align64(scratch), &out->workspace_bytes))
    return ir::invalid("the workspace's size overflows");
  context_->stats().add(Stat::k_nests_bound, static_cast<int64_t>(out->steps.size()));
  return out;
}

DispatchKey Operator::dispatch_key(const Call& call) const {
  DispatchKey key;
  size_t i = 0;
  for (const auto& [name, value] : call.symbols) {
    if (i < kMaxDispatchDims) key.dims[i++] = value;
  }
  key.threads = static_cast<uint16_t>(call.threads);
  key.packed = call.packed ? 1 : 0;
  uint64_t strides = 0;
  for (const ArgLayout& l : call.layouts) {
    strides = ir::hash_bytes(l.strides.data(), l.strides.size() * sizeof(int64_t), strides + 1);
  }
  key.graph = call.layouts.empty() ? 0 : strides;
  return key;
}

Result<const BoundOp*> Operator::bound(const Call& call) {
  const DispatchKey key = dispatch_key(call);
  std::shared_ptr<const Bodies> by;  // what `made` was bound by
  std::unique_ptr<BoundOp> made;
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (const BoundOp* found = dispatch_.find(key)) return found;
      if (kept_.size() >= kMaxBound) {
        return ir::make_error(ir::Code::kNOMEM, "{}: more than {} distinct shapes", graph_.name, kMaxBound);
      }
      if (made != nullptr && by == promoted_) {
        bound_.push_back(std::move(made));
        kept_.push_back({key, call, bound_.back().get(), nullptr});
        heat_up(kept_.back());
        return dispatch_.insert(key, bound_.back().get());
      }
      by = promoted_;
    }
    // Once more only if another body took over meanwhile.
    LATHE_ASSIGN(const Bodies late, late_for(call));
    LATHE_ASSIGN(made, bind(call, *by, late));
  }
}

std::shared_ptr<const Operator::Bodies> Operator::promoted() const {
  const std::lock_guard lock(mutex_);
  return promoted_;
}

Result<std::unique_ptr<BoundOp>> Operator::bind_once(const Call& call) {
  LATHE_ASSIGN(const Bodies late, late_for(call));
  return bind(call, *promoted(), late);
}

void Operator::step_params(const BoundOp& op, size_t step, void* const* args, void* workspace, void** params) const {
  const std::vector<int>& from = op.steps[step].args;
  for (size_t p = 0; p < from.size(); ++p) {
    const int a = from[p];
    params[p] = a >= 0 ? args[a] : static_cast<char*>(workspace) + op.temp_offsets[static_cast<size_t>(-1 - a)];
  }
}

void Operator::run_step(const BoundOp& op, size_t step, void* const* args, void* workspace, ThreadTeam* team) const {
  void* params[kMaxNestBuffers];
  step_params(op, step, args, workspace, params);
  const BoundOp::Step& s = op.steps[step];
  walk(s.nest, s.stage->stage.leaves.data(), params,
       workspace == nullptr ? nullptr : static_cast<char*>(workspace) + op.nest_offset, team);
}

void Operator::run(const BoundOp& op, void* const* args, void* workspace, ThreadTeam* team) const {
  if (op.empty) return;
  for (size_t i = 0; i < op.steps.size(); ++i) run_step(op, i, args, workspace, team);
}

const PackedParam* Operator::packing(int arg) const {
  const int tensor = arg_tensors_[static_cast<size_t>(arg)];
  for (size_t k = 0; k < stages_.size(); ++k) {
    for (const auto& s : stages_[k]) {
      for (const PackedParam& p : s->stage.packed) {
        if (lowered_.kernels[k].tensor_of_param[static_cast<size_t>(p.param)] == tensor) return &p;
      }
    }
  }
  return nullptr;
}

}  // namespace lathe::runtime
