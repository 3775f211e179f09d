// See bound_op.h.
#include "runtime/serve/bound_op.h"

#include "runtime/walk/bound_nest.h"

namespace lathe::runtime {

void BoundOp::step_params(size_t step, void* const* args, void* workspace, void** params) const {
  const std::vector<int>& from = steps[step].args;
  for (size_t p = 0; p < from.size(); ++p) {
    const int a = from[p];
    params[p] = a >= 0 ? args[a] : static_cast<char*>(workspace) + temp_offsets[static_cast<size_t>(-1 - a)];
  }
  const std::vector<int64_t>& offsets = steps[step].offsets;
  for (size_t p = 0; p < offsets.size(); ++p) params[p] = static_cast<char*>(params[p]) + offsets[p];
}

void BoundOp::run_step(size_t step, void* const* args, void* workspace, ThreadTeam* team) const {
  void* params[kMaxNestBuffers];
  step_params(step, args, workspace, params);
  steps[step].bound->run(params, workspace == nullptr ? nullptr : static_cast<char*>(workspace) + scratch_offset, team);
}

void BoundOp::run_steps(void* const* args, void* workspace, ThreadTeam* team) const {
  if (empty) return;
  for (size_t i = 0; i < steps.size(); ++i) run_step(i, args, workspace, team);
}

void BoundOp::find_direct() {
  if (steps.size() != 1) return;
  const Step& step = steps[0];
  const auto [call, leaf] = step.bound->one_call();
  if (call == nullptr) return;
  auto out = std::make_unique<DirectCall>(*call);
  for (DirectCall::Address& a : out->addresses) {
    const int from = step.args[a.from];
    if (from < 0) return;  // a temporary
    if (!step.offsets.empty()) a.bytes += step.offsets[a.from];
    a.from = static_cast<uint32_t>(from);
  }
  direct = std::move(out);
  direct_leaf = leaf;
}

ir::Status BoundOp::launch(void* const* args, void* workspace, void* stream) const {
  if (empty) return {};
  for (size_t i = 0; i < steps.size(); ++i) {
    void* params[kMaxNestBuffers];
    step_params(i, args, workspace, params);
    void* scratch = workspace == nullptr ? nullptr : static_cast<char*>(workspace) + scratch_offset;
    LATHE_RETURN_IF_ERROR(steps[i].bound->launch(params, scratch, stream));
  }
  return {};
}

}  // namespace lathe::runtime
