// The tour of a Kernel from naive nest to callable Stage: see compiler.h.
#include "runtime/compiler.h"

#include <time.h>

#include <cstring>
#include <set>

#include "ir/analysis.h"
#include "ir/text_form.h"
#include "ir/verifier.h"
#include "runtime/dump.h"
#include "runtime/leaf_error.h"
#include "runtime/nest_walk.h"
#include "search/cut.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;

namespace {

// Of the calling thread: what others do on a shared machine meanwhile is not code generation.
double cpu_us() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

// Compiles the leaves of a cut kernel; remembers the most expensive origin.
Status make_leaves(const ir::CutKernel& cut, const ir::Target& target, LeafCache& cache, const LeafPolicy& policy,
                   std::vector<LeafRef>& out, Stage& stage) {
  const double start = cpu_us();
  for (size_t l = 0; l < cut.leaves.size(); ++l) {
    LeafOrigin origin = LeafOrigin::memory;
    const Result<const LeafEntry*> made = cache.get(cut.leaves[l], target, policy, &origin);
    if (!made.ok()) return leaf_error(made.status(), cut, static_cast<int>(l));
    const LeafEntry* entry = *made;
    out.push_back(entry->ref);
    stage.leaf_keys.push_back(entry->key);
    if (entry->image && &cut == &stage.cut) stage.images.push_back(entry->image);
    stage.portable |= entry->backend == jit::Backend::portable;
    if (origin != LeafOrigin::memory) stage.origin = std::max(stage.origin, origin);
  }
  stage.codegen_us += cpu_us() - start;
  return {};
}

Result<PackedParam> make_pack(const ir::Kernel& scheduled, const std::string& buffer, int param, const ir::Target& target,
                              LeafCache& cache, const LeafPolicy& policy, Stage& stage) {
  PackedParam out;
  out.param = param;
  out.layout_id = constant_layout(*scheduled.find_buffer(buffer));
  search::Problem problem;
  problem.threads = 2;  // shared out where run_pack() has a team
  LATHE_ASSIGN(problem.kernel, search::pack_kernel(scheduled, buffer));
  const search::Schedule schedule = search::default_schedule(problem, target);
  LATHE_ASSIGN(const ir::Kernel kernel, search::replay(problem.kernel, schedule));
  LATHE_ASSIGN(out.pack, search::cut(kernel));
  LATHE_RETURN_IF_ERROR(make_leaves(out.pack, target, cache, policy, out.leaves, stage));
  return out;
}

}  // namespace

uint64_t constant_layout(const ir::Buffer& b) {
  std::string text = ir::dtype_name(b.type);
  for (const ir::Expr& d : ir::physical_dims(b)) text += "," + ir::print(d);
  for (const ir::LayoutDim& l : b.layout) text += fmt::format(";{}:{}:{}", l.dim, static_cast<int>(l.part), l.tile);
  const uint64_t id = ir::hash_text(text);
  return id == 0 ? 1 : id;
}

Result<Stage> build_stage(const ir::Kernel& restricted, const search::Schedule& schedule, const ir::Target& target,
                          LeafCache& leaves, const LeafPolicy& policy) {
  const LeafCacheOptions& options = leaves.options();
  std::vector<ir::Kernel> steps;
  LATHE_ASSIGN(const ir::Kernel scheduled, search::replay(restricted, schedule, options.verify > 1 ? &steps : nullptr));
  for (const ir::Kernel& step : steps) LATHE_RETURN_IF_ERROR(ir::verify(step).with_context("LATHE_VERIFY"));
  if (options.verify > 0) {
    LATHE_RETURN_IF_ERROR(ir::verify(restricted).with_context("LATHE_VERIFY"));
    LATHE_RETURN_IF_ERROR(ir::verify(scheduled).with_context("LATHE_VERIFY"));
  }
  return build_scheduled(restricted, schedule, scheduled, target, leaves, policy);
}

Result<Stage> build_scheduled(const ir::Kernel& restricted, const search::Schedule& schedule, const ir::Kernel& scheduled,
                              const ir::Target& target, LeafCache& leaves, const LeafPolicy& policy) {
  const LeafCacheOptions& options = leaves.options();
  Stage stage;
  stage.naive = restricted;
  stage.schedule = schedule;
  stage.schedule.numeric = scheduled.numeric;
  LATHE_ASSIGN(stage.cut, search::cut(scheduled));
  LATHE_RETURN_IF_ERROR(make_leaves(stage.cut, target, leaves, policy, stage.leaves, stage));
  int param = 0;
  for (const ir::Buffer& b : scheduled.buffers) {
    if (b.place == ir::Place::constant && !b.layout.empty()) {
      LATHE_ASSIGN(PackedParam p, make_pack(scheduled, b.name, param, target, leaves, policy, stage));
      stage.packed.push_back(std::move(p));
    }
    param += b.place == ir::Place::in || b.place == ir::Place::constant || b.place == ir::Place::out;
  }
  if (!options.dump.empty() && dump_wanted(options.filter, restricted.name)) {
    dump_kernel(options.dump, restricted, stage.schedule, stage.cut);
  }
  if (options.verbose >= Verbosity::create) {
    verbose_line({"create", restricted.name, stage.portable ? "T0" : schedule.recipe, origin_name(stage.origin), "", stage.codegen_us});
  }
  return stage;
}

Status run_pack(const PackedParam& packed, const SymbolValues& symbols, const ArgLayout& source, const void* src, void* dst,
                ThreadTeam* team) {
  const int threads = team == nullptr ? 1 : team->num_threads();
  LATHE_ASSIGN(const BoundNest nest, bind_nest(packed.pack, symbols, {source, {}}, threads));
  if (nest.workspace_bytes != 0) return ir::internal_error("packing wants a workspace of {} bytes", nest.workspace_bytes);
  void* args[] = {const_cast<void*>(src), dst};
  walk(nest, packed.leaves.data(), args, nullptr, team);
  return {};
}

Result<int64_t> packed_bytes(const PackedParam& packed, const SymbolValues& symbols) {
  const ir::Buffer* dst = packed.pack.kernel.find_buffer("dst");
  int64_t bytes = ir::dtype_bytes(dst->type);
  for (const ir::Expr& d : dst->dims) {
    const std::optional<int64_t> size = ir::evaluate(d, symbols);
    if (!size) return ir::invalid("a symbol of the packed layout has no value");
    if (__builtin_mul_overflow(bytes, *size, &bytes)) return ir::invalid("packed size overflows");
  }
  return bytes;
}

}  // namespace lathe::runtime
