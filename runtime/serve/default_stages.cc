// Stages by the default Schedule: over the whole range of an operator's symbols, for the largest hint. Where a Kernel
// packs constants there are two, and the one that reads them as they lie may wait for the first call that wants it. So
// do those of other hinted ranges of which nothing is decided: where the default there is another than over the whole
// range, as one for a single row reads weights faster than one for 128.
#include <algorithm>

#include "ops/family.h"
#include "runtime/base/verbose.h"
#include "runtime/serve/live.h"
#include "runtime/serve/stages.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;

namespace {

constexpr size_t kMostRanges = 4;  // of a Kernel

bool same_moves(const search::Schedule& a, const search::Schedule& b) {
  return std::equal(a.moves.begin(), a.moves.end(), b.moves.begin(), b.moves.end(),
                    [](const search::Move& x, const search::Move& y) { return to_text(x) == to_text(y); });
}

}  // namespace

// What packs the Kernel's constants for the stages that are there already.
KnownPacks Stages::known_packs(int kernel) const {
  KnownPacks out;
  for (const auto& s : stages_[static_cast<size_t>(kernel)]) {
    for (const PackedParam& p : s->stage.packed) out.push_back(&p);
  }
  return out;
}

// The default, or the first simpler one that takes only liberties that are allowed.
search::Scheduled Stages::general_default(const search::Problem& problem, const PrepareRequest& request) const {
  search::Scheduled scheduled = search::default_scheduled(problem, context_.target());
  const auto allowed = [&](const search::Scheduled& s) {
    return (s.kernel.numeric & kDefaultAllowed & ~allowed_classes(request)) == 0;
  };
  if (allowed(scheduled)) return scheduled;
  // The last of them are the naive loops, which take no liberty.
  std::vector<search::Scheduled> simpler = search::simpler_schedules(problem, context_.target());
  return std::move(*std::find_if(simpler.begin(), simpler.end() - 1, allowed));
}

Result<Stage> Stages::default_stage(const search::Problem& problem, const PrepareRequest& request,
                                    const LeafPolicy& policy, const KnownPacks& known, const Stage* cut) const {
  LeafCache& leaves = context_.leaves();
  const bool native = leaves.generates(context_.target(), policy);
  const auto with_leaves = [&](Result<Stage> stage) {
    const Status added = stage.ok() ? add_leaves(*stage, context_.target(), leaves, policy, nullptr, known) : Status();
    return added.ok() ? std::move(stage) : Result<Stage>(added);
  };
  const auto serves = [&](const Result<Stage>& s) {
    return s.ok() ? !s->portable || !native : s.status().code() != ir::Code::kUNSUPPORTED;
  };
  Result<Stage> best =
      with_leaves(cut != nullptr ? Result<Stage>(*cut)
                                 : cut_stage(problem.kernel, general_default(problem, request), leaves.options()));
  if (serves(best) || !policy.generate) return best;
  for (const search::Scheduled& simpler : search::simpler_schedules(problem, context_.target())) {
    if ((simpler.kernel.numeric & kDefaultAllowed & ~allowed_classes(request)) != 0) continue;
    Result<Stage> other = with_leaves(cut_stage(problem.kernel, simpler, leaves.options()));
    if (!other.ok() || (best.ok() && !serves(other))) continue;
    best = std::move(other);
    if (serves(best)) break;
  }
  return best;
}

// The stage over the whole range, by the default Schedule for the largest hint; plain: constants as they lie.
Status Stages::add_general(int kernel, const PrepareRequest& request, bool packed, const LeafPolicy& policy,
                           PrepareInfo& info) {
  const search::Problem p = definition_.general_problem(kernel, packed, request);
  ServedStage attributes;
  attributes.tier = 1;
  attributes.threads = request.threads;
  attributes.packed = packed;
  LATHE_ASSIGN(attributes.stage, default_stage(p, request, policy, known_packs(kernel)));
  LATHE_ASSIGN(const ServedStage* added, keep_stage(kernel, p, std::move(attributes), info));
  if (!packed || added->stage.packed.empty()) return {};
  return add_plain(kernel, request, policy, info);
}

// Beside a stage that packs constants: the one for calls that bring them as they lie.
Status Stages::add_plain(int kernel, const PrepareRequest& request, const LeafPolicy& policy, PrepareInfo& info) {
  if (!request.caller_waits) return add_general(kernel, request, false, policy, info);
  const bool there = std::any_of(later_.begin(), later_.end(), [&](const Late& l) {
    return l.kernel == kernel && l.request.threads == request.threads;
  });
  if (!there) later_.push_back({kernel, request, nullptr, nullptr});
  return {};
}

// Either of them, where it is not there yet and something is left for it to serve.
Status Stages::add_missing(int kernel, const PrepareRequest& request, const LeafPolicy& policy, PrepareInfo& info) {
  const auto& list = stages_[static_cast<size_t>(kernel)];
  const bool general = std::any_of(list.begin(), list.end(),
                                   [&](const auto& s) { return !s->decided && s->threads == request.threads; });
  if (general) return {};
  // Without symbols a decision serves everything but plain constants, maybe from a layout of its own.
  const auto whole = std::find_if(list.begin(), list.end(), [&](const auto& s) {
    return s->decided && s->threads == request.threads && s->range.empty();
  });
  if (whole != list.end() && (*whole)->stage.packed.empty()) return {};
  const Status added =
      whole == list.end() ? add_general(kernel, request, true, policy, info) : add_plain(kernel, request, policy, info);
  return added.with_context(definition_.graph().name);
}

Result<const ServedStage*> Stages::late_stage(Late& late, bool leaves) {
  const ServedStage* cut = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (late.whole != nullptr) return late.whole.get();
    cut = late.cut.get();
  }
  if (cut != nullptr && !leaves) return cut;
  const search::Problem p = definition_.general_problem(late.kernel, false, late.request);
  auto made = std::make_unique<ServedStage>();
  made->range = definition_.range_of(late.kernel, p);
  made->threads = late.request.threads;
  made->packed = false;
  if (leaves) {
    LeafPolicy policy = context_.leaf_policy();
    policy.llvm = false;
    LATHE_ASSIGN(made->stage, default_stage(p, late.request, policy, {}, cut == nullptr ? nullptr : &cut->stage));
    if (made->stage.portable) made->tier = 0;
  } else {
    Result<Stage> stage = cut_stage(p.kernel, general_default(p, late.request), context_.leaves().options());
    // Without a leaf form something simpler will serve, and say what workspace it takes.
    if (stage.status().code() == ir::Code::kUNSUPPORTED) return late_stage(late, true);
    if (!stage.ok()) return stage.status();
    made->stage = std::move(*stage);
  }
  const std::lock_guard lock(mutex_);
  std::unique_ptr<const ServedStage>& kept = leaves ? late.whole : late.cut;
  if (kept == nullptr) kept = std::move(made);
  return kept.get();
}

Result<Bodies> Stages::late_stages(bool leaves) {
  Bodies out(definition_.lowered().kernels.size());
  for (Late& l : later_) {
    const Result<const ServedStage*> stage = late_stage(l, leaves);
    if (!stage.ok()) return stage.status().with_context(definition_.graph().name);
    out[static_cast<size_t>(l.kernel)].push_back(*stage);
  }
  return out;
}

// The default over the whole range; null: something decided serves, or constants as they lie.
const ServedStage* Stages::whole_default(int kernel, int threads) const {
  const auto& list = stages_[static_cast<size_t>(kernel)];
  const auto whole = std::find_if(list.begin(), list.end(),
                                  [&](const auto& s) { return !s->decided && s->packed && s->threads == threads; });
  return whole == list.end() ? nullptr : whole->get();
}

// Not where results may overwrite operands: that is promised of all stages there will be. The largest hint has the
// default over the whole range.
bool Stages::may_differ(int kernel, const SymbolValues& dims) const {
  const ops::Family* family =
      ops::find_family(definition_.lowered().kernels[static_cast<size_t>(kernel)].kernel.family);
  return family != nullptr && !family->in_place &&
         definition_.ranges_at(kernel, dims) != definition_.ranges_at(kernel, definition_.hinted_dims().back());
}

// How much faster it is the model of costs need not say, and equal knobs need not be equal moves: which prefetches suit
// few rows is a rule of the recipe, and what they fetch at a time depends on how many rows there are.
std::optional<search::Scheduled> Stages::own_default(int kernel, const SymbolValues& dims,
                                                     const PrepareRequest& request) const {
  const ServedStage* whole = may_differ(kernel, dims) ? whole_default(kernel, request.threads) : nullptr;
  if (whole == nullptr || whole->tier == 0) return {};
  search::Problem p = definition_.problem(kernel, dims, request);
  p.unhurried = false;
  search::Scheduled own = general_default(p, request);
  if (own.schedule.recipe.empty() || same_moves(own.schedule, whole->stage.schedule)) return {};
  return own;
}

// A hinted range whose default is another is left to the whole range's.
void Stages::left_to_whole(const SymbolRanges& range, std::string_view why) const {
  context_.stats().add(Stat::k_ranges_by_whole);
  if (context_.leaves().options().verbose < Verbosity::create) return;
  std::string reason;
  for (const auto& [name, r] : range) reason += fmt::format("{} {}..{} ", name, r.lo, r.hi);
  verbose_line({"range", definition_.graph().name, "T1", "", reason + std::string(why), 0});
}

void Stages::add_range(int kernel, const SymbolValues& dims, const PrepareRequest& request) {
  if (!may_differ(kernel, dims) || context_.seal() != Seal::off) return;
  LateRange late;
  late.kernel = kernel;
  late.dims = dims;
  late.range = definition_.range_of(kernel, definition_.problem(kernel, dims, request));
  late.request = request;
  const std::lock_guard lock(mutex_);
  size_t others = 0;
  for (const LateRange& l : ranges_) {
    if (l.kernel != kernel || l.request.threads != request.threads) continue;
    if (l.range == late.range) return;
    ++others;
  }
  late.beyond = others >= kMostRanges;
  ranges_.push_back(std::move(late));
}

// Null: the default there is what serves the whole range. An error says why what is made would not serve: a stage takes
// no more workspace than the host was told of, and packs constants as the others do.
Result<std::unique_ptr<const ServedStage>> Stages::make_range(const LateRange& late) const {
  const std::optional<search::Scheduled> own = own_default(late.kernel, late.dims, late.request);
  if (!own) return std::unique_ptr<const ServedStage>();
  if (late.beyond) return ir::unsupported("{} other ranges are hinted", kMostRanges);
  const ServedStage& whole = *whole_default(late.kernel, late.request.threads);
  if (!Live::same_layouts(own->kernel, whole)) return ir::unsupported("packs a constant in another way");
  LeafPolicy policy = context_.leaf_policy();
  policy.llvm = policy.portable = false;
  auto made = std::make_unique<ServedStage>();
  const search::Problem p = definition_.problem(late.kernel, late.dims, late.request);
  LATHE_ASSIGN(made->stage, build_stage(p.kernel, *own, context_.target(), context_.leaves(), policy, nullptr,
                                        known_packs(late.kernel)));
  if (made->stage.portable) return ir::unsupported("no back end makes its leaves");
  LATHE_ASSIGN(const auto bound, made->stage.executable->bind(late.dims, {}, late.request.threads));
  LATHE_ASSIGN(const auto told, whole.stage.executable->bind(definition_.hinted_dims().back(), {}, whole.threads));
  if (bound->workspace_bytes() > told->workspace_bytes())
    return ir::unsupported("needs {} bytes of workspace, {} are there", bound->workspace_bytes(),
                           told->workspace_bytes());
  made->range = late.range;
  made->threads = late.request.threads;
  return std::unique_ptr<const ServedStage>(std::move(made));
}

const ServedStage* Stages::range_stage(LateRange& late) {
  {
    const std::lock_guard lock(mutex_);
    if (late.tried) return late.stage.get();
  }
  if (context_.seal() != Seal::off) return nullptr;
  Result<std::unique_ptr<const ServedStage>> made = make_range(late);
  const std::lock_guard lock(mutex_);
  if (late.tried) return late.stage.get();
  late.tried = true;
  if (made.ok())
    late.stage = std::move(*made);
  else
    left_to_whole(late.range, made.status().message());
  return late.stage.get();
}

bool Stages::awaits_range(const CallShape& call) const {
  if (context_.seal() != Seal::off) return false;
  const std::lock_guard lock(mutex_);
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const LateRange& l) { return !l.tried && wants(l, call); });
}

Result<Bodies> Stages::late_for(const CallShape& call) {
  Bodies out(definition_.lowered().kernels.size());
  if (!call.packed) {
    LATHE_ASSIGN(out, late_stages(true));
  }
  for (LateRange& l : ranges_) {
    const ServedStage* stage = wants(l, call) ? range_stage(l) : nullptr;
    if (stage != nullptr) out[static_cast<size_t>(l.kernel)].push_back(stage);
  }
  return out;
}

Status Stages::complete() {
  for (LateRange& l : ranges_) (void)range_stage(l);
  for (const auto& list : stages_) {
    for (const auto& s : list) {
      for (const PackedParam& p : s->stage.packed) LATHE_RETURN_IF_ERROR(p.pack->complete());
    }
  }
  return late_stages(true).status();
}

}  // namespace lathe::runtime
