// Operator while it serves: hot shapes counted, candidates built beside what serves, swapped in and out. Calls in
// flight keep the body they found; the table of shapes gets another one by a release store. Nothing is freed before the
// operator goes.
#include <algorithm>

#include "ir/analysis/analysis.h"
#include "ir/core/names.h"
#include "runtime/serve/operator.h"
#include "search/cut/cut.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;

namespace {

constexpr size_t kAtOnce = 32;  // shapes: a call that binds one waits for the lock no longer than so many need

// Parameters whose layout the stage chose, with it.
std::vector<std::pair<int, uint64_t>> layouts(const Stage& stage) {
  std::vector<std::pair<int, uint64_t>> out;
  for (const PackedParam& p : stage.packed) out.emplace_back(p.param, p.layout_id);
  std::sort(out.begin(), out.end());
  return out;
}

bool has_constants(const ir::Kernel& kernel) {
  return std::any_of(kernel.buffers.begin(), kernel.buffers.end(),
                     [](const ir::Buffer& b) { return b.place == ir::Place::constant; });
}

}  // namespace

// With the lock held.
void Operator::heat_up(Kept& k) {
  if (heat_period_ == 0) return;
  if (k.heat == nullptr) k.heat = std::make_unique<HotShape>(heat_period_);
  k.body->heat.store(k.heat.get(), std::memory_order_release);
}

template <class F>
void Operator::each_shape(F f) {
  for (size_t i = 0;;) {
    const std::lock_guard lock(mutex_);
    if (i >= kept_.size()) return;
    for (const size_t end = std::min(i + kAtOnce, kept_.size()); i < end; ++i) f(kept_[i]);
  }
}

void Operator::set_heat(uint32_t period) {
  {
    const std::lock_guard lock(mutex_);
    heat_period_ = period;
  }
  each_shape([&](Kept& k) {
    heat_up(k);
    if (period == 0 && k.heat != nullptr) k.heat->set_trial(nullptr);
  });
  for (size_t i = 0; period == 0;) {
    const std::lock_guard lock(mutex_);
    if (i >= bound_.size()) return;
    for (const size_t end = std::min(i + kAtOnce, bound_.size()); i < end; ++i)
      bound_[i]->heat.store(nullptr, std::memory_order_release);
  }
}

std::vector<Operator::LiveShape> Operator::live_shapes() {
  std::vector<LiveShape> out;
  each_shape([&](const Kept& k) {
    if (k.heat != nullptr && !k.body->empty) out.push_back({k.call, k.heat.get(), k.body});
  });
  return out;
}

Trial* Operator::new_trial(const BoundOp* other, std::unique_ptr<RecordedCalls> recorder, int kernel) {
  auto trial = std::make_unique<Trial>();
  trial->other = other;
  trial->recorder = recorder.get();
  trial->step = static_cast<size_t>(kernel);
  const std::lock_guard lock(mutex_);
  if (recorder != nullptr) recorders_.push_back(std::move(recorder));
  trials_.push_back(std::move(trial));
  return trials_.back().get();
}

search::Problem Operator::live_problem(int kernel, const SymbolValues& dims, const PrepareRequest& request,
                                       const ServedStage& serving) const {
  search::Problem p = problem(kernel, dims, request);
  if (serving.stage.packed.empty()) p.kernel = constants_as_inputs(p.kernel, context_->target());
  return p;
}

// A decision under a layout that is given is not the one that warm-up would make: it has a name of its own, except
// where there is no constant.
DecisionQuery Operator::live_query(int kernel, const SymbolValues& dims, const PrepareRequest& request,
                                   const ServedStage& serving) const {
  DecisionQuery q = query(kernel, dims, request);
  if (!has_constants(lowered_.kernels[static_cast<size_t>(kernel)].kernel)) return q;
  q.structure += "layouts in use:";
  for (const auto& [param, id] : layouts(serving.stage)) q.structure += fmt::format(" {}={:016x}", param, id);
  q.structure += '\n';
  return q;
}

bool Operator::same_layouts(const ir::Kernel& scheduled, const ServedStage& serving) {
  std::vector<std::pair<int, uint64_t>> found;
  int param = 0;
  for (const ir::Buffer& b : scheduled.buffers) {
    if (search::is_packed(b)) found.emplace_back(param, constant_layout(b));
    param += ir::is_param(b.place);
  }
  return found == layouts(serving.stage);
}

Result<const ServedStage*> Operator::add_candidate(int kernel, const search::Problem& problem,
                                                   const search::Schedule& schedule, const ServedStage& serving,
                                                   const PrepareRequest& request) {
  LeafPolicy policy = context_->leaf_policy();
  policy.portable = false;
  auto candidate = std::make_unique<ServedStage>();
  LATHE_ASSIGN(candidate->stage, build_stage(problem.kernel, schedule, context_->target(), context_->leaves(), policy));
  context_->leaves().publish_all();
  if (layouts(candidate->stage) != layouts(serving.stage))
    return ir::unsupported("another layout of a constant than the one in use");
  candidate->range = range_of(kernel, problem);
  candidate->tier = 2;
  candidate->threads = request.threads;
  candidate->packed = serving.packed;
  const std::lock_guard lock(mutex_);
  candidates_.push_back(std::move(candidate));
  return candidates_.back().get();
}

Result<const BoundOp*> Operator::bind_candidate(int kernel, const ServedStage* candidate, const Call& call) {
  LATHE_ASSIGN(const Bodies late, late_for(call));
  LATHE_ASSIGN(std::unique_ptr<BoundOp> made, bind(call, *promoted(), late, kernel, candidate));
  const BoundOp* serving = dispatch_.find(dispatch_key(call));
  if (serving != nullptr && made->workspace_bytes > serving->workspace_bytes) {
    return ir::unsupported("{} bytes of workspace, and the host was told {}", made->workspace_bytes,
                           serving->workspace_bytes);
  }
  if (serving != nullptr) made->workspace_bytes = serving->workspace_bytes;
  const std::lock_guard lock(mutex_);
  bound_.push_back(std::move(made));
  return bound_.back().get();
}

// New bodies for the shapes that the candidate holds, bound beside the calls by what is promoted next; then all of them
// serve, or none. What is bound meanwhile is looked at in another round. With swaps_ held.
Status Operator::serve_by(std::shared_ptr<const Bodies> next, int kernel, const ServedStage& candidate,
                          bool within_workspace) {
  std::vector<std::pair<Kept*, std::unique_ptr<BoundOp>>> made;
  for (size_t seen = 0;;) {
    std::vector<Kept*> fresh;
    {
      const std::lock_guard lock(mutex_);
      for (; seen < kept_.size(); ++seen) fresh.push_back(&kept_[seen]);
      if (fresh.empty()) {
        promoted_ = next;
        break;
      }
    }
    for (Kept* k : fresh) {
      if (k->body->empty || k->call.threads != candidate.threads || !suits(kernel, candidate, k->call)) continue;
      LATHE_ASSIGN(const Bodies late, late_for(k->call));
      LATHE_ASSIGN(std::unique_ptr<BoundOp> body, bind(k->call, *next, late));
      if (within_workspace && body->workspace_bytes > k->body->workspace_bytes) {
        return ir::unsupported("{} bytes of workspace, and the host was told {}", body->workspace_bytes,
                               k->body->workspace_bytes);
      }
      body->workspace_bytes = std::max(body->workspace_bytes, k->body->workspace_bytes);  // as it was told
      made.emplace_back(k, std::move(body));
    }
  }
  for (size_t i = 0; i < made.size();) {
    const std::lock_guard lock(mutex_);
    for (const size_t end = std::min(i + kAtOnce, made.size()); i < end; ++i) {
      Kept& k = *made[i].first;
      k.body = made[i].second.get();
      bound_.push_back(std::move(made[i].second));
      heat_up(k);
      if (k.heat != nullptr) k.heat->forget_times();
      dispatch_.replace(k.key, k.body);
    }
  }
  generation_.fetch_add(1, std::memory_order_release);
  return {};
}

Status Operator::promote(int kernel, const ServedStage* candidate) {
  const std::lock_guard swaps(swaps_);
  auto next = std::make_shared<Bodies>(*promoted());
  (*next)[static_cast<size_t>(kernel)].push_back(candidate);
  return serve_by(std::move(next), kernel, *candidate, true);
}

Status Operator::demote(int kernel, const ServedStage* candidate) {
  const std::lock_guard swaps(swaps_);
  auto next = std::make_shared<Bodies>(*promoted());
  auto& list = (*next)[static_cast<size_t>(kernel)];
  const auto it = std::find(list.begin(), list.end(), candidate);
  if (it == list.end()) return ir::make_error(ir::Code::kSTATE, "the stage was not promoted");
  list.erase(it);
  return serve_by(std::move(next), kernel, *candidate, false);
}

}  // namespace lathe::runtime
