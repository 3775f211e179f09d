// See bound_shapes.h. Calls in flight keep the body they found; the table of shapes gets another one by a release
// store.
#include "runtime/serve/bound_shapes.h"

#include <algorithm>

#include "ir/analysis/analysis.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;

namespace {

constexpr size_t kMaxBound = 1024;  // shapes come from requests: no more nests than this are kept
constexpr size_t kAtOnce = 32;      // shapes: a call that binds one waits for the lock no longer than so many need

int64_t align64(int64_t bytes) { return (bytes + 63) & ~int64_t{63}; }

// Where a parameter that is part of a tensor begins: in the packed form, or as the caller gives it.
Status add_offset(BoundOp::Step& step, const ops::LoweredKernel& kernel, size_t param, const CallShape& call) {
  const ops::ParamSource& source = kernel.params[param];
  if (!source.part) return {};
  step.offsets.resize(kernel.params.size());
  step.offsets[param] = source.offset;
  if (!call.packed) return {};
  LATHE_ASSIGN(const TensorPacking packing, tensor_packing(kernel, step.stage->stage, source.tensor, call.symbols));
  for (const TensorPacking::Part& p : packing.parts) {
    if (p.packed->param == static_cast<int>(param)) step.offsets[param] = p.at;
  }
  return {};
}

}  // namespace

BoundShapes::BoundShapes(Context& context, const Definition& definition, Stages& stages)
    : context_(context),
      definition_(definition),
      stages_(stages),
      promoted_(std::make_shared<const Bodies>(definition.lowered().kernels.size())) {}

Result<std::unique_ptr<BoundOp>> BoundShapes::bind(const CallShape& call, const Bodies& promoted, const Bodies& late,
                                                   int kernel, const ServedStage* only) const {
  auto out = std::make_unique<BoundOp>();
  out->tier = 2;
  out->empty = std::all_of(definition_.graph().outputs.begin(), definition_.graph().outputs.end(), [&](int t) {
    const std::vector<ops::DimDesc>& dims = definition_.graph().tensors[static_cast<size_t>(t)].dims;
    return std::any_of(dims.begin(), dims.end(), [&](const ops::DimDesc& d) {
      return (d.fixed() ? d.max : call.symbols.value_or(ops::kernel_symbol(d.symbol), -1)) == 0;
    });
  });
  if (out->empty) return out;
  int64_t at = 0;
  for (const ops::TempDesc& t : definition_.lowered().temps) {
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
  out->scratch_offset = at;
  int64_t scratch = 0;
  for (size_t k = 0; k < definition_.lowered().kernels.size(); ++k) {
    const ops::LoweredKernel& lk = definition_.lowered().kernels[k];
    BoundOp::Step step;
    step.stage = only != nullptr && kernel == static_cast<int>(k)
                     ? only
                     : stages_.pick(static_cast<int>(k), call, promoted, late);
    if (step.stage == nullptr)
      return ir::make_error(ir::Code::kMISS, "{}: nothing serves these dims", definition_.graph().name);
    std::vector<ArgLayout> layouts(lk.params.size());
    for (size_t p = 0; p < lk.params.size(); ++p) {
      const int tensor = lk.params[p].tensor;
      LATHE_RETURN_IF_ERROR(add_offset(step, lk, p, call));
      const auto arg = std::find(definition_.arg_tensors().begin(), definition_.arg_tensors().end(), tensor);
      if (arg != definition_.arg_tensors().end()) {
        const auto number = static_cast<size_t>(arg - definition_.arg_tensors().begin());
        step.args.push_back(static_cast<int>(number));
        if (number < call.layouts.size() && !lk.params[p].part) layouts[p] = call.layouts[number];
        continue;
      }
      const auto temp = std::find_if(definition_.lowered().temps.begin(), definition_.lowered().temps.end(),
                                     [&](const ops::TempDesc& t) { return t.tensor == tensor; });
      if (temp == definition_.lowered().temps.end())
        return ir::internal_error("tensor {} is neither argument nor temporary", tensor);
      step.args.push_back(-1 - static_cast<int>(temp - definition_.lowered().temps.begin()));
    }
    LATHE_ASSIGN(step.bound, context_.binder()(*step.stage->stage.executable, call.symbols, layouts, call.threads));
    scratch = std::max(scratch, step.bound->workspace_bytes());
    out->tier = std::min(out->tier, step.stage->tier);
    out->steps.push_back(std::move(step));
  }
  if (__builtin_add_overflow(at, align64(scratch), &out->workspace_bytes))
    return ir::invalid("the workspace's size overflows");
  out->find_direct();
  context_.stats().add(Stat::k_nests_bound, static_cast<int64_t>(out->steps.size()));
  return out;
}

DispatchKey BoundShapes::dispatch_key(const CallShape& call) {
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

Result<const BoundOp*> BoundShapes::bound(const CallShape& call) {
  const DispatchKey key = dispatch_key(call);
  std::shared_ptr<const Bodies> by;  // what `made` was bound by
  std::unique_ptr<BoundOp> made;
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (const BoundOp* found = dispatch_.find(key)) return found;
      if (kept_.size() >= kMaxBound) {
        return ir::make_error(ir::Code::kNOMEM, "{}: more than {} distinct shapes", definition_.graph().name,
                              kMaxBound);
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
    LATHE_ASSIGN(const Bodies late, stages_.late_for(call));
    LATHE_ASSIGN(made, bind(call, *by, late));
  }
}

std::shared_ptr<const Bodies> BoundShapes::promoted() const {
  const std::lock_guard lock(mutex_);
  return promoted_;
}

Result<std::unique_ptr<BoundOp>> BoundShapes::bind_once(const CallShape& call) {
  LATHE_ASSIGN(const Bodies late, stages_.late_for(call));
  return bind(call, *promoted(), late);
}

Result<int64_t> BoundShapes::hinted_workspace(int threads, bool packed, bool plain) {
  int64_t most = 0;
  for (const SymbolValues& dims : definition_.hinted_dims()) {
    const CallShape call{.symbols = dims, .threads = threads, .packed = packed};
    if (stages_.awaits_range(call)) {
      const Bodies none(definition_.lowered().kernels.size());
      LATHE_ASSIGN(const std::unique_ptr<BoundOp> by_default, bind(call, *promoted(), none));
      most = std::max(most, by_default->workspace_bytes);
    } else {
      LATHE_ASSIGN(const BoundOp* op, bound(call));
      most = std::max(most, op->workspace_bytes);
    }
    if (!packed || !plain) continue;
    LATHE_ASSIGN(const Bodies late, stages_.late_stages(false));
    LATHE_ASSIGN(const std::unique_ptr<BoundOp> as_it_lies,
                 bind({.symbols = dims, .threads = threads}, *promoted(), late));
    most = std::max(most, as_it_lies->workspace_bytes);
  }
  return most;
}

// With the lock held.
void BoundShapes::heat_up(Kept& k) {
  if (heat_period_ == 0) return;
  if (k.heat == nullptr) k.heat = std::make_unique<HotShape>(heat_period_);
  k.body->heat.store(k.heat.get(), std::memory_order_release);
}

template <class F>
void BoundShapes::each_shape(F f) {
  for (size_t i = 0;;) {
    const std::lock_guard lock(mutex_);
    if (i >= kept_.size()) return;
    for (const size_t end = std::min(i + kAtOnce, kept_.size()); i < end; ++i) f(kept_[i]);
  }
}

void BoundShapes::set_heat(uint32_t period) {
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

std::vector<LiveShape> BoundShapes::live_shapes() {
  std::vector<LiveShape> out;
  each_shape([&](const Kept& k) {
    if (k.heat != nullptr && !k.body->empty) out.push_back({k.call, k.heat.get(), k.body});
  });
  return out;
}

Result<const BoundOp*> BoundShapes::bind_candidate(int kernel, const ServedStage* candidate, const CallShape& call) {
  LATHE_ASSIGN(const Bodies late, stages_.late_for(call));
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
// serve, or none. What is bound meanwhile is looked at in another round.
Status BoundShapes::serve_by(std::shared_ptr<const Bodies> next, int kernel, const ServedStage& candidate,
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
      if (k->body->empty || k->call.threads != candidate.threads || !stages_.suits(kernel, candidate, k->call))
        continue;
      LATHE_ASSIGN(const Bodies late, stages_.late_for(k->call));
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

}  // namespace lathe::runtime
