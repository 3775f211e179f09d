// The tour of a Kernel from naive nest to callable Stage: see compiler.h.
#include "runtime/compile/compiler.h"

#include <algorithm>
#include <mutex>

#include "ir/analysis/analysis.h"
#include "ir/analysis/verifier.h"
#include "ir/core/names.h"
#include "ir/core/text_form.h"
#include "runtime/base/clock.h"
#include "runtime/base/leaf_error.h"
#include "runtime/compile/dump.h"
#include "runtime/compile/packed_places.h"
#include "search/cut/cut.h"
#include "search/cut/safe_kernel.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;

namespace {

// Of a leaf that could not be had.
MissReason reason_of(const Status& leaf) {
  if (leaf.code() == ir::Code::kMISS) return MissReason::k_never_seen;
  return leaf.code() == ir::Code::kNOMEM ? MissReason::k_budget : MissReason::k_compile_failed;
}

// What came of compiling the leaves of a nest.
struct MadeLeaves {
  std::vector<std::string> keys;
  std::vector<std::shared_ptr<const jit::CodeImage>> images;
  LeafOrigin origin = LeafOrigin::memory;  // the most expensive one
  bool portable = false;                   // some leaf is executed by T0
};

Result<MadeLeaves> make_leaves(CpuNest& nest, const ir::Target& target, LeafCache& cache, const LeafPolicy& policy,
                               MissReason* why) {
  const ir::CutKernel& cut = nest.cut;
  MadeLeaves out;
  for (size_t l = 0; l < cut.leaves.size(); ++l) {
    LeafOrigin origin = LeafOrigin::memory;
    const Result<const LeafEntry*> made = cache.get(cut.leaves[l], target, policy, &origin);
    if (!made.ok()) {
      if (why != nullptr) *why = reason_of(made.status());
      return leaf_error(made.status(), cut, static_cast<int>(l));
    }
    const LeafEntry* entry = *made;
    nest.leaves.push_back(entry->ref);
    out.keys.push_back(entry->key);
    if (entry->image) out.images.push_back(entry->image);
    out.portable |= entry->backend == jit::Backend::portable;
    out.origin = std::max(out.origin, origin);
  }
  return out;
}

struct Packing {
  std::shared_ptr<CpuNest> nest;
  MadeLeaves leaves;
};
Result<Packing> make_packing(const ir::Kernel& kernel, const ir::Target& target, LeafCache& cache,
                             const LeafPolicy& policy, MissReason* why) {
  search::Problem problem;
  problem.threads = 2;  // shared out where run_pack() has an arena
  problem.kernel = kernel;
  const auto made_by = [&](const search::Scheduled& copy) -> Result<Packing> {
    LATHE_RETURN_IF_ERROR(search::check_safe(kernel, copy.kernel));
    LATHE_ASSIGN(ir::CutKernel cut, search::cut(copy.kernel));
    Packing out;
    out.nest = std::make_shared<CpuNest>(std::move(cut));
    LATHE_ASSIGN(out.leaves, make_leaves(*out.nest, target, cache, policy, why));
    return out;
  };
  Result<Packing> out = made_by(search::default_scheduled(problem, target));
  if (out.status().code() != ir::Code::kUNSUPPORTED) return out;
  // Vectors that have no leaf form: the loops as they are.
  for (const search::Scheduled& simpler : search::simpler_schedules(problem, target)) {
    Result<Packing> other = made_by(simpler);
    if (other.ok()) return other;
  }
  return out;
}

// What packs a constant, made by who first packs one. Who comes second meanwhile makes one as well, and takes the
// first one's.
class LatePack final : public Executable {
 public:
  LatePack(ir::Kernel kernel, const ir::Target& target, LeafCache& leaves, const LeafPolicy& policy)
      : kernel_(std::move(kernel)), target_(target), leaves_(leaves), policy_(policy) {}
  MemorySpace memory() const override { return MemorySpace::host; }
  Result<std::unique_ptr<const BoundExecutable>> bind(const SymbolValues& symbols,
                                                      const std::vector<ArgLayout>& layouts,
                                                      int threads) const override {
    LATHE_RETURN_IF_ERROR(complete());
    return made_->bind(symbols, layouts, threads);
  }
  std::unique_ptr<Executable> copy() const override {
    return std::make_unique<LatePack>(kernel_, target_, leaves_, policy_);
  }
  Status complete() const override {
    {
      const std::lock_guard lock(mutex_);
      if (made_ != nullptr) return {};
    }
    LATHE_ASSIGN(Packing packing, make_packing(kernel_, target_, leaves_, policy_, nullptr));
    const std::lock_guard lock(mutex_);
    if (made_ == nullptr) made_ = std::move(packing.nest);
    return {};
  }

 private:
  const ir::Kernel kernel_;
  const ir::Target target_;
  LeafCache& leaves_;
  const LeafPolicy policy_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const CpuNest> made_;  // stays once it is there
};

Result<PackedParam> pack_of(const ir::Buffer& buffer, int param, uint64_t layout_id, const ir::Target& target,
                            LeafCache& cache, const LeafPolicy& policy, Stage& stage, MissReason* why) {
  PackedParam out;
  out.param = param;
  out.layout_id = layout_id;
  LATHE_ASSIGN(ir::Kernel kernel, search::pack_kernel(stage.nest().cut.kernel, buffer.name));
  const ir::Buffer* dst = kernel.find_buffer("dst");
  out.type = dst->type;
  out.dims = dst->dims;
  out.strides = dst->strides;
  if (policy.packs_later) {
    LeafPolicy later = policy;
    later.portable = true;  // nothing simpler would serve then
    out.pack = std::make_shared<LatePack>(std::move(kernel), target, cache, later);
    return out;
  }
  LATHE_ASSIGN(Packing made, make_packing(kernel, target, cache, policy, why));
  out.pack = std::move(made.nest);
  out.leaf_keys = std::move(made.leaves.keys);
  out.portable = made.leaves.portable;
  stage.origin = std::max(stage.origin, made.leaves.origin);
  return out;
}

// The same bytes made by the same copy: sizes that no symbol changes, in the same layout. By the portable executor only
// where the policy has it.
const PackedParam* find_known(const KnownPacks& known, const ir::Buffer& buffer, int param, uint64_t layout_id,
                              const LeafPolicy& policy) {
  const bool fixed =
      std::all_of(buffer.dims.begin(), buffer.dims.end(), [](const ir::Expr& d) { return ir::is_const_int(d); });
  const auto at = std::find_if(known.begin(), known.end(), [&](const PackedParam* p) {
    return p->param == param && p->layout_id == layout_id && (policy.portable || !p->portable);
  });
  return fixed && at != known.end() ? *at : nullptr;
}

}  // namespace

uint64_t constant_layout(const ir::Buffer& b) {
  std::string text = ir::dtype_name(b.type);
  for (const ir::Expr& d : ir::physical_dims(b)) text += "," + ir::print(d);
  for (const ir::LayoutDim& l : b.layout) text += fmt::format(";{}:{}:{}", l.dim, static_cast<int>(l.part), l.tile);
  if (b.made) text += fmt::format(";{} {}", ir::dtype_name(b.given), ir::print(b.made));
  const uint64_t id = ir::hash_text(text);
  return id == 0 ? 1 : id;
}

Result<Stage> build_stage(const ir::Kernel& restricted, const search::Schedule& schedule, const ir::Target& target,
                          LeafCache& leaves, const LeafPolicy& policy, MissReason* why, const KnownPacks& known) {
  if (why != nullptr) *why = MissReason::k_refused;
  search::Scheduled scheduled{schedule, {}};
  LATHE_ASSIGN(scheduled.kernel, search::replay(restricted, schedule, nullptr, false));
  return build_stage(restricted, scheduled, target, leaves, policy, why, known);
}

Result<Stage> build_stage(const ir::Kernel& restricted, const search::Scheduled& scheduled, const ir::Target& target,
                          LeafCache& leaves, const LeafPolicy& policy, MissReason* why, const KnownPacks& known) {
  if (why != nullptr) *why = MissReason::k_refused;
  LATHE_ASSIGN(Stage stage, cut_stage(restricted, scheduled, leaves.options()));
  LATHE_RETURN_IF_ERROR(add_leaves(stage, target, leaves, policy, why, known));
  return stage;
}

Result<Stage> cut_stage(const ir::Kernel& restricted, const search::Scheduled& scheduled,
                        const LeafCacheOptions& options) {
  LATHE_RETURN_IF_ERROR(search::check_safe(restricted, scheduled.kernel));
  if (options.verify > 0) LATHE_RETURN_IF_ERROR(ir::verify(restricted).with_context("LATHE_VERIFY"));
  if (options.verify > 1) {
    std::vector<ir::Kernel> steps;
    LATHE_RETURN_IF_ERROR(search::replay(restricted, scheduled.schedule, &steps).status());
    for (const ir::Kernel& step : steps) LATHE_RETURN_IF_ERROR(ir::verify(step).with_context("LATHE_VERIFY"));
  }
  Stage stage;
  stage.naive = restricted;
  stage.schedule = scheduled.schedule;
  stage.schedule.numeric = scheduled.kernel.numeric;
  LATHE_ASSIGN(ir::CutKernel cut, search::cut(scheduled.kernel));
  stage.executable = std::make_unique<CpuNest>(std::move(cut));
  return stage;
}

Status add_leaves(Stage& stage, const ir::Target& target, LeafCache& leaves, const LeafPolicy& policy, MissReason* why,
                  const KnownPacks& known) {
  const LeafCacheOptions& options = leaves.options();
  const int64_t start = thread_cpu_ns();
  LATHE_ASSIGN(MadeLeaves own, make_leaves(stage.nest(), target, leaves, policy, why));
  stage.leaf_keys = std::move(own.keys);
  stage.images = std::move(own.images);
  stage.origin = own.origin;
  stage.portable = own.portable;
  int param = 0;
  for (const ir::Buffer& b : stage.nest().cut.kernel.buffers) {
    if (search::is_packed(b)) {
      const uint64_t layout = constant_layout(b);
      if (const PackedParam* shared = find_known(known, b, param, layout, policy)) {
        stage.packed.push_back(*shared);
      } else {
        LATHE_ASSIGN(PackedParam made, pack_of(b, param, layout, target, leaves, policy, stage, why));
        stage.packed.push_back(std::move(made));
      }
      const PackedParam& p = stage.packed.back();
      stage.leaf_keys.insert(stage.leaf_keys.end(), p.leaf_keys.begin(), p.leaf_keys.end());
      stage.portable |= p.portable;
    }
    param += ir::is_param(b.place);
  }
  stage.codegen_us = static_cast<double>(thread_cpu_ns() - start) * 1e-3;
  if (!options.dump.empty() && dump_wanted(options.filter, stage.naive.name)) {
    dump_kernel(options.dump, stage.naive, stage.schedule, stage.nest().cut);
  }
  if (options.verbose >= Verbosity::create) {
    verbose_line({"create", stage.naive.name, stage.portable ? "T0" : stage.schedule.recipe, origin_name(stage.origin),
                  "", stage.codegen_us});
  }
  return {};
}

Status run_pack(const PackedParam& packed, const SymbolValues& symbols, const ArgLayout& source, const void* src,
                void* dst, TaskArena* arena) {
  const int threads = arena == nullptr ? 1 : arena->threads();
  LATHE_ASSIGN(const std::unique_ptr<const BoundExecutable> bound, packed.pack->bind(symbols, {source, {}}, threads));
  // Room for what is made before it is turned; walks want 64-byte addresses.
  size_t room = static_cast<size_t>(bound->workspace_bytes()) + 64;
  const auto scratch = std::make_unique_for_overwrite<char[]>(room);
  void* workspace = scratch.get();
  workspace = std::align(64, static_cast<size_t>(bound->workspace_bytes()), workspace, room);
  void* args[] = {const_cast<void*>(src), dst};
  HostPool pool;
  pool.user = arena;
  pool.num_threads = [](void* user) { return static_cast<TaskArena*>(user)->threads(); };
  pool.parallel_for = [](void* user, int count, TaskFn task, void* part) {
    const auto one = [&](size_t i) {
      task(part, static_cast<int>(i));
      return Status();
    };
    (void)for_each_index(static_cast<TaskArena*>(user), static_cast<size_t>(count), one);
  };
  ThreadTeam team(pool);
  bound->run(args, workspace, arena == nullptr ? nullptr : &team);
  return {};
}

Status launch_pack(const PackedParam& packed, const void* src, void* dst, void* stream) {
  LATHE_ASSIGN(const std::unique_ptr<const BoundExecutable> bound, packed.pack->bind({}, {}, 1));
  void* args[] = {const_cast<void*>(src), dst};
  return bound->launch(args, nullptr, stream);
}

Result<int64_t> packed_bytes(const PackedParam& packed, const SymbolValues& symbols) {
  LATHE_ASSIGN(const std::vector<PackedDim> dims, packed_dims(packed, symbols));
  int64_t elements = 1;  // from the first to the last
  for (const PackedDim& d : dims) {
    int64_t before = 0;
    if (d.size == 0) return 0;
    if (__builtin_mul_overflow(d.size - 1, d.step, &before) || __builtin_add_overflow(elements, before, &elements))
      return ir::invalid("packed size overflows");
  }
  const int64_t bytes = ir::dtype_bytes(packed.type, elements);
  if (bytes == INT64_MAX) return ir::invalid("packed size overflows");
  return bytes;
}

}  // namespace lathe::runtime
