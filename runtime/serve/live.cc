// See live.h.
#include "runtime/serve/live.h"

#include <algorithm>

#include "ir/core/names.h"
#include "runtime/compile/plain_constants.h"
#include "search/cut/cut.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;

namespace {

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

Trial* Live::new_trial(const BoundOp* other, std::unique_ptr<RecordedCalls> recorder, int kernel) {
  auto trial = std::make_unique<Trial>();
  trial->other = other;
  trial->recorder = recorder.get();
  trial->step = static_cast<size_t>(kernel);
  const std::lock_guard lock(mutex_);
  if (recorder != nullptr) recorders_.push_back(std::move(recorder));
  trials_.push_back(std::move(trial));
  return trials_.back().get();
}

search::Problem Live::problem(int kernel, const SymbolValues& dims, const PrepareRequest& request,
                              const ServedStage& serving) const {
  search::Problem p = definition_.problem(kernel, dims, request);
  if (serving.stage.packed.empty()) p.kernel = constants_as_inputs(p.kernel, context_.target());
  return p;
}

// A decision under a layout that is given is not the one that warm-up would make: it has a name of its own, except
// where there is no constant.
DecisionQuery Live::query(int kernel, const SymbolValues& dims, const PrepareRequest& request,
                          const ServedStage& serving) const {
  DecisionQuery q = definition_.query(kernel, dims, request);
  if (!has_constants(definition_.lowered().kernels[static_cast<size_t>(kernel)].kernel)) return q;
  q.structure += "layouts in use:";
  for (const auto& [param, id] : layouts(serving.stage)) q.structure += fmt::format(" {}={:016x}", param, id);
  q.structure += '\n';
  return q;
}

std::vector<std::pair<int, uint64_t>> Live::layouts_of(const ir::Kernel& scheduled) {
  std::vector<std::pair<int, uint64_t>> found;
  int param = 0;
  for (const ir::Buffer& b : scheduled.buffers) {
    if (search::is_packed(b)) found.emplace_back(param, constant_layout(b));
    param += ir::is_param(b.place);
  }
  return found;
}

bool Live::same_layouts(const ir::Kernel& scheduled, const ServedStage& serving) {
  return layouts_of(scheduled) == layouts(serving.stage);
}

Result<const ServedStage*> Live::add_candidate(int kernel, const search::Problem& problem,
                                               const search::Scheduled& scheduled, const ServedStage& serving,
                                               const PrepareRequest& request) {
  LeafPolicy policy = context_.leaf_policy();
  policy.portable = false;
  auto candidate = std::make_unique<ServedStage>();
  LATHE_ASSIGN(candidate->stage, build_stage(problem.kernel, scheduled, context_.target(), context_.leaves(), policy));
  context_.leaves().publish_all();
  if (layouts(candidate->stage) != layouts(serving.stage))
    return ir::unsupported("another layout of a constant than the one in use");
  candidate->range = definition_.range_of(kernel, problem);
  candidate->tier = 2;
  candidate->threads = request.threads;
  candidate->packed = serving.packed;
  const std::lock_guard lock(mutex_);
  candidates_.push_back(std::move(candidate));
  return candidates_.back().get();
}

Status Live::promote(int kernel, const ServedStage* candidate) {
  const std::lock_guard swaps(swaps_);
  auto next = std::make_shared<Bodies>(*shapes_.promoted());
  (*next)[static_cast<size_t>(kernel)].push_back(candidate);
  return shapes_.serve_by(std::move(next), kernel, *candidate, true);
}

Status Live::demote(int kernel, const ServedStage* candidate) {
  const std::lock_guard swaps(swaps_);
  auto next = std::make_shared<Bodies>(*shapes_.promoted());
  auto& list = (*next)[static_cast<size_t>(kernel)];
  const auto it = std::find(list.begin(), list.end(), candidate);
  if (it == list.end()) return ir::make_error(ir::Code::kSTATE, "the stage was not promoted");
  list.erase(it);
  return shapes_.serve_by(std::move(next), kernel, *candidate, false);
}

}  // namespace lathe::runtime
