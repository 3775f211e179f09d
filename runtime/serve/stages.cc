// Stages: what was decided, and which stage serves a call. See stages.h.
#include "runtime/serve/stages.h"

#include <algorithm>

#include "ir/core/names.h"
#include "runtime/cuda/device_home.h"
#include "runtime/cuda/device_stage.h"
#include "search/gpu/packed_constants.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;

namespace {

// Of each symbol the largest value.
SymbolValues largest(const ir::Kernel& kernel) {
  SymbolValues out;
  for (const ir::Symbol& s : kernel.symbols) out.emplace_back(s.name, s.max - s.max % s.multiple_of);
  return out;
}

bool holds(const SymbolRanges& range, const SymbolValues& values) {
  return std::all_of(range.begin(), range.end(), [&](const auto& r) {
    const auto value = values.find(r.first);
    return value != values.end() && r.second.holds(value->second);
  });
}

}  // namespace

Stages::Stages(Context& context, const Definition& definition)
    : context_(context), definition_(definition), stages_(definition.lowered().kernels.size()) {}

// Adds a stage that was built.
Result<const ServedStage*> Stages::keep_stage(int kernel, const search::Problem& problem, ServedStage attributes,
                                              PrepareInfo& info) {
  attributes.range = definition_.range_of(kernel, problem);
  const Stage& stage = attributes.stage;
  for (const PackedParam& p : stage.packed) {
    for (const auto& other : stages_[static_cast<size_t>(kernel)]) {
      for (const PackedParam& q : other->stage.packed) {
        if (q.param == p.param && q.layout_id != p.layout_id) {
          return ir::unsupported("{}: another packed layout of a constant is in use already", definition_.graph().name);
        }
      }
    }
  }
  const ops::LoweredKernel& lowered = definition_.lowered().kernels[static_cast<size_t>(kernel)];
  for (const PackedParam& p : stage.packed) {
    if (lowered.params[static_cast<size_t>(p.param)].part)
      LATHE_RETURN_IF_ERROR(all_parts_packed(lowered, stage, lowered.params[static_cast<size_t>(p.param)].tensor));
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
Result<search::Schedule> stated_schedule(const Decision& decision, uint32_t allowed, MissReason* why) {
  *why = MissReason::k_corrupt;
  LATHE_ASSIGN(search::Schedule schedule, search::parse_schedule(decision.schedule));
  if (decision.numeric != schedule.numeric)
    return ir::unsupported("a record of class {:#x} with a Schedule of class {:#x}", decision.numeric,
                           schedule.numeric);
  *why = MissReason::k_numeric;
  if ((schedule.numeric & ~allowed) != 0) return ir::unsupported("liberties that the caller does not allow");
  return schedule;
}

Result<const ServedStage*> Stages::decided_stage(int kernel, const search::Problem& problem, const Decision& decision,
                                                 const PrepareRequest& request, LeafPolicy policy, PrepareInfo& info,
                                                 MissReason* why) {
  LATHE_ASSIGN(const search::Schedule schedule, stated_schedule(decision, allowed_classes(request), why));
  policy.portable &= !context_.leaves().native(context_.target());
  ServedStage attributes;
  attributes.tier = decision.unmeasured() ? 1 : 2;
  attributes.decided = true;
  attributes.threads = request.threads;
  attributes.best_us = decision.best_us;
  attributes.default_us = decision.default_us;
  LATHE_ASSIGN(attributes.stage, build_stage(problem.kernel, schedule, context_.target(), context_.leaves(), policy,
                                             why, known_packs(kernel)));
  *why = MissReason::k_corrupt;
  if (attributes.stage.schedule.numeric != schedule.numeric)
    return ir::unsupported("liberties that are not the ones stated");
  *why = MissReason::k_refused;
  LATHE_RETURN_IF_ERROR(
      attributes.stage.executable->bind(largest(attributes.stage.naive), {}, request.threads).status());
  *why = MissReason::k_layout;
  return keep_stage(kernel, problem, std::move(attributes), info);
}

// True: it serves. Else *why, counted; what does not depend on the code at hand is not looked at again.
bool Stages::add_decided(int kernel, const search::Problem& problem, const DecisionQuery& query,
                         const Decision& decision, const PrepareRequest& request, const LeafPolicy& policy,
                         PrepareInfo& info, MissReason* why) {
  if (decided_stage(kernel, problem, decision, request, policy, info, why).ok()) return true;
  if (*why == MissReason::k_never_seen && context_.seal() != Seal::off) *why = MissReason::k_sealed;
  const bool code = *why == MissReason::k_never_seen || *why == MissReason::k_sealed || *why == MissReason::k_budget ||
                    *why == MissReason::k_compile_failed;
  if (code)
    context_.stats().miss(*why);
  else
    context_.reject_decision(query, *why);
  return false;
}

bool Stages::decided(int kernel, const search::Problem& problem, const PrepareRequest& request) const {
  const SymbolRanges range = definition_.range_of(kernel, problem);
  const auto& list = stages_[static_cast<size_t>(kernel)];
  return std::any_of(list.begin(), list.end(),
                     [&](const auto& s) { return s->decided && s->threads == request.threads && s->range == range; });
}

// Bodies that are stored for ranges nobody hints, as far as nothing has to be made for them.
void Stages::add_between(int kernel, const PrepareRequest& request, LeafPolicy policy, PrepareInfo& info) {
  const std::vector<ir::Symbol>& symbols = definition_.lowered().kernels[static_cast<size_t>(kernel)].kernel.symbols;
  if (symbols.empty()) return;
  policy.generate = policy.llvm = false;
  std::vector<std::vector<SymbolRange>> hinted;
  for (const SymbolValues& dims : definition_.hinted_dims()) hinted.push_back(definition_.ranges_at(kernel, dims));
  for (const std::vector<SymbolRange>& ranges : context_.decision_ranges(definition_.query_in(kernel, {}, request))) {
    if (std::find(hinted.begin(), hinted.end(), ranges) != hinted.end()) continue;
    SymbolValues dims;
    bool within = ranges.size() == symbols.size();
    for (size_t i = 0; within && i < symbols.size(); ++i) {
      within = ranges[i].lo >= symbols[i].min && ranges[i].hi <= symbols[i].max;
      dims.emplace_back(symbols[i].name, ranges[i].hi);
    }
    if (!within) continue;
    const search::Problem p = definition_.problem_in(kernel, ranges, dims, request);
    if (decided(kernel, p, request)) continue;
    const DecisionQuery query = definition_.query_in(kernel, ranges, request);
    const std::optional<Decision> decision = context_.find_decision(query);
    MissReason why = MissReason::k_never_seen;
    // One that does not fit (leaves that are not stored, another layout) leaves the range to the general stage.
    if (decision) (void)add_decided(kernel, p, query, *decision, request, policy, info, &why);
  }
}

Result<PrepareInfo> Stages::prepare(const PrepareRequest& asked, bool compiled_only) {
  PrepareInfo info;
  LeafPolicy policy = context_.leaf_policy();
  policy.llvm &= asked.llvm;
  const bool stored_only = compiled_only || context_.seal() == Seal::error;
  if (compiled_only) {
    policy.generate = policy.llvm = false;
    policy.portable = !context_.leaves().native(context_.target());  // which needs nothing stored
  }
  PrepareRequest request = asked;
  request.caller_waits &= !stored_only;  // later nothing could be refused any more
  policy.packs_later = request.caller_waits;
  const std::vector<SymbolValues> hints = definition_.hinted_dims();
  for (size_t k = 0; k < definition_.lowered().kernels.size(); ++k) {
    const int kernel = static_cast<int>(k);
    // The layout of constants that the whole range has is the one that decisions for parts of it share.
    const bool ranged = !definition_.lowered().kernels[k].kernel.symbols.empty();
    if (ranged) LATHE_RETURN_IF_ERROR(add_missing(kernel, request, policy, info));
    for (const SymbolValues& dims : hints) {
      const search::Problem p = definition_.problem(kernel, dims, request);
      if (decided(kernel, p, request)) continue;
      MissReason reason = MissReason::k_never_seen;
      const DecisionQuery wanted = definition_.query(kernel, dims, request);
      const std::optional<Decision> decision = context_.find_decision(wanted, &reason);
      if (decision && add_decided(kernel, p, wanted, *decision, request, policy, info, &reason)) {
        if (!decision->unmeasured()) continue;
        info.unmeasured = true;
        if (!info.missed) info.miss = MissReason::k_unmeasured;
        context_.stats().miss(MissReason::k_unmeasured);
        continue;
      }
      info.missed = true;
      info.miss = reason;
      if (ranged && !stored_only) add_range(kernel, dims, request);
      if (context_.seal() == Seal::warn && context_.leaves().options().verbose >= Verbosity::warn) {
        verbose_line({"warn", definition_.graph().name, "T1", "", miss_reason_name(reason), 0});
      }
      if (stored_only)
        return ir::make_error(ir::Code::kMISS, "{}: no decision that serves is stored ({})", definition_.graph().name,
                              miss_reason_name(reason));
    }
    add_between(kernel, request, policy, info);
    if (!ranged) LATHE_RETURN_IF_ERROR(add_missing(kernel, request, policy, info));
  }
  if (!asked.caller_waits) context_.leaves().publish_all();
  return info;
}

// On a GPU: of each Kernel a stage over its whole range, by the default Schedule for the largest hint, and one for each
// hinted range that has a decision in the GPU's own environment or whose default is another Schedule. Where those pack
// constants, one more over the whole range, which reads them as the caller gives them.
struct Stages::OnDevice {
  std::shared_ptr<CudaDevice> device;
  std::shared_ptr<const DecisionHome> home;
  DevicePolicy policy;
};

DevicePolicy device_policy(const Context& context, const PrepareRequest& request) {
  DevicePolicy policy;
  policy.compile = request.compile && context.seal() == Seal::off;
  policy.limits.ends = request.ends;
  policy.limits.cancelled = request.cancelled;
  policy.behind = request.behind;
  policy.allowed = allowed_classes(request);
  return policy;
}

Status Stages::add_on_device(int kernel, bool packed, const PrepareRequest& request, const OnDevice& on,
                             PrepareInfo& info) {
  search::Problem p = definition_.general_problem(kernel, true, request);
  if (!packed) p.kernel = search::reads_given(p.kernel);
  ServedStage attributes;
  attributes.tier = 1;
  attributes.packed = packed;
  Result<Stage> stage = build_device_stage(p.kernel, p.dims, nullptr, on.device, context_.device_codes(), on.policy);
  if (!stage.ok()) {
    const bool sealed = stage.status().code() == ir::Code::kMISS && context_.seal() != Seal::off;
    if (sealed) context_.stats().miss(MissReason::k_sealed);
    return stage.status().with_context(definition_.graph().name);
  }
  const uint32_t forbidden = stage->schedule.numeric & kDefaultAllowed & ~allowed_classes(request);
  if (forbidden != 0)
    return ir::unsupported("{}, expected {} as well: {} has no Schedule for a GPU without",
                           ir::numeric_names(allowed_classes(request)), ir::numeric_names(forbidden),
                           definition_.graph().name)
        .with_arg("policy.allowed", 2);
  attributes.stage = std::move(*stage);
  return keep_stage(kernel, p, std::move(attributes), info).status();
}

// Where it cannot be made, or its code is refused and that of the whole range's Schedule is what is left, the whole
// range's stage serves its calls.
void Stages::add_range_on_device(int kernel, const search::Problem& problem, const PrepareRequest& request,
                                 const OnDevice& on, PrepareInfo& info) {
  const SymbolRanges range = definition_.range_of(kernel, problem);
  const auto& list = stages_[static_cast<size_t>(kernel)];
  if (std::any_of(list.begin(), list.end(), [&](const auto& s) { return s->range == range; })) return;
  const Stage& whole = list.front()->stage;
  const SymbolValues whole_dims = definition_.general_problem(kernel, true, request).dims;
  if (!serves_alone(whole, whole_dims, problem.kernel, problem.dims, on.device->target(), on.policy.allowed)) return;
  Result<Stage> stage =
      build_device_stage(problem.kernel, problem.dims, nullptr, on.device, context_.device_codes(), on.policy);
  if (!stage.ok()) return left_to_whole(range, stage.status().message());
  if ((stage->schedule.numeric & kDefaultAllowed & ~on.policy.allowed) != 0)
    return left_to_whole(range, "liberties that the caller does not allow");
  if (search::to_text(stage->schedule) == search::to_text(whole.schedule)) return;
  ServedStage attributes;
  attributes.stage = std::move(*stage);
  const auto kept = keep_stage(kernel, problem, std::move(attributes), info);
  if (!kept.ok()) left_to_whole(range, kept.status().message());
}

// What was decided for the problem's range; false: *why it does not serve, counted. TIMEOUT, CANCELLED, DEVICE: its
// code could not be made or loaded, for no fault of its own.
Result<bool> Stages::add_decided_on_device(int kernel, const search::Problem& problem, const DecisionQuery& query,
                                           const Decision& decision, const OnDevice& on, PrepareInfo& info,
                                           MissReason* why) {
  const auto refused = [&](MissReason reason) {
    *why = reason;
    context_.reject_decision(query, reason);
    return false;
  };
  const Result<search::Schedule> schedule = search::parse_schedule(decision.schedule);
  if (!schedule.ok()) return refused(MissReason::k_corrupt);
  if ((schedule->numeric & ~query.allowed) != 0) return refused(MissReason::k_numeric);
  Result<Stage> stage =
      build_device_stage(problem.kernel, problem.dims, &*schedule, on.device, context_.device_codes(), on.policy);
  if (!stage.ok()) {
    const ir::Code code = stage.status().code();
    if (code == ir::Code::kTIMEOUT || code == ir::Code::kCANCELLED || code == ir::Code::kDEVICE) return stage.status();
    if (code == ir::Code::kUNSUPPORTED) return refused(MissReason::k_refused);
    *why = context_.seal() != Seal::off ? MissReason::k_sealed : MissReason::k_never_seen;
    context_.stats().miss(*why);
    return false;
  }
  ServedStage attributes;
  attributes.tier = decision.unmeasured() ? 1 : 2;
  attributes.decided = true;
  attributes.best_us = decision.best_us;
  attributes.default_us = decision.default_us;
  attributes.stage = std::move(*stage);
  *why = MissReason::k_layout;
  return keep_stage(kernel, problem, std::move(attributes), info).ok();
}

Result<PrepareInfo> Stages::prepare_on_device(const PrepareRequest& request) {
  OnDevice on;
  LATHE_ASSIGN(on.device, context_.device(request.device));
  LATHE_RETURN_IF_ERROR(on.device->working());
  on.home = device_home(on.device->target());
  on.policy = device_policy(context_, request);
  PrepareInfo info;
  for (size_t k = 0; k < definition_.lowered().kernels.size(); ++k) {
    const int kernel = static_cast<int>(k);
    const bool ranged = !definition_.lowered().kernels[k].kernel.symbols.empty();
    if (ranged) LATHE_RETURN_IF_ERROR(add_on_device(kernel, true, request, on, info));
    for (const SymbolValues& dims : definition_.hinted_dims()) {
      const search::Problem p = definition_.problem(kernel, dims, request);
      if (decided(kernel, p, request)) continue;
      DecisionQuery query = definition_.query(kernel, dims, request);
      query.home = on.home;
      MissReason reason = MissReason::k_never_seen;
      const std::optional<Decision> decision = context_.find_decision(query, &reason);
      bool serves = false;
      if (decision) {
        LATHE_ASSIGN(serves, add_decided_on_device(kernel, p, query, *decision, on, info, &reason));
      }
      if (serves) {
        if (decision->unmeasured() && !info.missed) {
          info.unmeasured = true;
          info.miss = MissReason::k_unmeasured;
        }
        continue;
      }
      info.missed = true;
      info.miss = reason;
      if (ranged) add_range_on_device(kernel, p, request, on, info);
    }
    if (stages_[k].empty()) LATHE_RETURN_IF_ERROR(add_on_device(kernel, true, request, on, info));
    if (!stages_[k].front()->stage.packed.empty())
      LATHE_RETURN_IF_ERROR(add_on_device(kernel, false, request, on, info));
  }
  return info;
}

bool Stages::suits(int kernel, const ServedStage& stage, const CallShape& call) const {
  if (!holds(stage.range, call.symbols)) return false;
  if (!call.packed || !stage.stage.packed.empty()) return call.packed || stage.stage.packed.empty();
  const auto& list = stages_[static_cast<size_t>(kernel)];
  return std::none_of(list.begin(), list.end(), [](const auto& s) { return !s->stage.packed.empty(); });
}

bool Stages::wants(const LateRange& late, const CallShape& call) const {
  if (late.request.threads != call.threads || !holds(late.range, call.symbols)) return false;
  const auto& list = stages_[static_cast<size_t>(late.kernel)];
  return call.packed || std::none_of(list.begin(), list.end(), [](const auto& s) { return !s->stage.packed.empty(); });
}

// The narrowest stage that suits the call; of equals, one that was promoted.
const ServedStage* Stages::pick(int kernel, const CallShape& call, const Bodies& promoted, const Bodies& late) const {
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

Result<TensorPacking> Stages::packing(int arg, const SymbolValues& symbols) const {
  const int tensor = definition_.arg_tensors()[static_cast<size_t>(arg)];
  for (size_t k = 0; k < stages_.size(); ++k) {
    for (const auto& s : stages_[k]) {
      LATHE_ASSIGN(TensorPacking found, tensor_packing(definition_.lowered().kernels[k], s->stage, tensor, symbols));
      if (!found.parts.empty()) return found;
    }
  }
  return TensorPacking();
}

}  // namespace lathe::runtime
