// See verify.h.
#include "runtime/tune/verify.h"

#include <algorithm>

#include "ir/analysis/analysis.h"
#include "jit/host/host_cpu.h"
#include "jit/host/llvm_loader.h"
#include "runtime/measure/work.h"

namespace lathe::runtime {

using ir::IsaLevel;
using ir::Result;
using ir::Status;

namespace {

constexpr double kPortableFlops = 3e6;  // leaf programs are executed operation by operation
constexpr int64_t kPortableValue = 7;
constexpr int kCandidates = 8;  // T2 without a stored decision is one of them

// What is checked of one Kernel at one shape.
struct Variant {
  int tier;
  IsaLevel level;
  jit::Backend backend;
};

std::vector<Variant> variants(const ir::Target& target, bool llvm) {
  std::vector<Variant> out = {{0, IsaLevel::portable, jit::Backend::portable}};
  for (int row = 0; row < ir::kIsaLevels; ++row) {
    const auto level = static_cast<IsaLevel>(row);
    if (level == IsaLevel::portable || !target.has(level)) continue;
    for (const int tier : {1, 2}) {
      for (const jit::Backend b : {jit::Backend::xbyak, jit::Backend::llvm}) {
        if (!jit::backend_built(b)) continue;
        // LLVM once, at the level that matters: it takes a hundred times as long.
        if (b == jit::Backend::llvm && (!llvm || tier == 2 || level != ir::isa_row(target.level).vectors)) continue;
        out.push_back({tier, level, b});
      }
    }
  }
  return out;
}

bool fits(const ops::Graph& graph, const SymbolValues& dims, double flops, const VerifyOptions& options) {
  const Work work = work_at(graph, dims);
  return work.flops <= flops && work.read_bytes + work.write_bytes <= static_cast<double>(options.bytes);
}

class Verify {
 public:
  Verify(const std::shared_ptr<Context>& context, const VerifyOptions& options,
         const std::function<void(const VerifyRow&)>& row)
      : context_(context), options_(options), rows_(row), leaves_(leaf_options(*context), nullptr, nullptr) {
    llvm_ = jit::open_llvm_plugin(jit::llvm_plugin_directories(leaves_.options().plugin_dir)).ok();
  }

  Result<VerifyReport> run(const std::vector<ops::Workload>& items) {
    for (const ops::Workload& item : items) {
      LATHE_ASSIGN(const ops::Graph full, ops::finish(item.graph));
      const ops::Graph small = cut_down(full, kCutDown);
      for (const bool portable : {true, false}) {
        const bool cut = portable || too_much_to_verify(full, options_);
        LATHE_RETURN_IF_ERROR(
            check(item, cut ? small : full, cut && !(small == full), portable).with_context(item.name));
      }
      if (cancelled()) break;
    }
    return rows_.report();
  }

 private:
  static LeafCacheOptions leaf_options(const Context& context) {
    LeafCacheOptions out;
    out.plugin_dir = context.options().text(ir::OptionId::plugin_dir);
    return out;
  }
  bool cancelled() const { return options_.cancel != nullptr && options_.cancel->load(std::memory_order_relaxed); }

  std::vector<SymbolValues> shapes(const Operator& op, bool portable) const {
    return portable ? verified_shapes(op.graph(), {}, options_, kPortableFlops, kPortableValue)
                    : verified_shapes(op.graph(), op.hinted_dims(), options_, options_.flops, INT64_MAX);
  }

  Status check(const ops::Workload& item, const ops::Graph& graph, bool cut, bool portable) {
    LATHE_ASSIGN(const std::shared_ptr<Operator> op, Operator::create(context_, graph));
    PrepareRequest request;
    request.threads = options_.threads > 0 ? options_.threads : item.threads;
    request.cold = item.cache == ops::CacheState::cold;
    request.allowed = item.allowed;
    VerifyRow row;
    row.item = &item;
    row.cut_down = cut;
    row.dtype = ir::dtype_name(graph.tensors[static_cast<size_t>(graph.outputs[0])].dtype);
    for (row.kernel = 0; row.kernel < static_cast<int>(op->lowered().kernels.size()); ++row.kernel) {
      for (const SymbolValues& dims : shapes(*op, portable)) {
        row.dims = dims;
        std::unique_ptr<Oracle> oracles[3];  // by tier: Kernels are restricted in another way
        std::vector<Built> built;
        for (const Variant& v : variants(context_->target(), llvm_)) {
          if ((v.tier == 0) == portable)
            built.push_back({v, static_cast<size_t>(rows_.report().checked) + built.size()});
        }
        LATHE_RETURN_IF_ERROR(for_each_index(context_->tasks(), built.size(), [&](size_t i) {
          if (!cancelled()) build(*op, request, row, &built[i]);
          return Status();
        }));
        for (Built& b : built) {
          if (cancelled()) return {};
          LATHE_RETURN_IF_ERROR(check_one(request, std::move(b), &oracles[b.variant.tier], row));
        }
      }
    }
    return {};
  }

  // A variant and the stage made for it.
  struct Built {
    Variant variant;
    size_t number = 0;  // of the check
    ir::Kernel kernel;  // restricted as the stage is
    Result<Stage> stage = ir::unsupported("not built");
  };

  void build(const Operator& op, const PrepareRequest& request, const VerifyRow& row, Built* out) {
    const Variant& v = out->variant;
    const ir::Target target = jit::host_target().cap(v.level);
    const search::Problem problem =
        v.tier == 2 ? op.problem(row.kernel, row.dims, request) : op.general_problem(row.kernel, true, request);
    out->kernel = problem.kernel;
    std::vector<search::Schedule> schedules = {search::default_schedule(problem, target)};
    if (v.tier == 2) schedules = tuned(op, request, problem, target, row, out->number);
    LeafPolicy policy;
    policy.forced = true;
    policy.backend = v.backend;
    Result<Stage>& stage = out->stage;
    stage = build_stage(problem.kernel, schedules[0], target, leaves_, policy);
    if (!stage.ok()) {
      for (search::Scheduled& simpler : search::simpler_schedules(problem, target))
        schedules.push_back(std::move(simpler.schedule));
    }
    // A fault of a generator is no refusal: nothing stands in for it.
    for (size_t i = 1; i < schedules.size() && !stage.ok() && stage.status().code() == ir::Code::kUNSUPPORTED; ++i)
      stage = build_stage(problem.kernel, schedules[i], target, leaves_, policy);
  }

  Status check_one(const PrepareRequest& request, Built built, std::unique_ptr<Oracle>* oracle, VerifyRow row) {
    row.tier = built.variant.tier;
    row.level = built.variant.level;
    row.backend = built.variant.backend;
    const Result<Stage>& stage = built.stage;
    if (stage.ok()) row.schedule = search::to_text(stage->schedule);
    if (!stage.ok()) return refuse(std::move(row), stage.status());
    if (!*oracle) {
      OracleTask task{std::move(built.kernel), row.dims, request.threads, options_.seed};
      LATHE_ASSIGN(*oracle, Oracle::create(std::move(task), context_->team(), context_->tasks()));
    }
    const Result<Verdict> verdict = (*oracle)->verify(*stage);
    if (!verdict.ok()) return refuse(std::move(row), verdict.status());
    rows_.judged(std::move(row), *verdict);
    return {};
  }

  Status refuse(VerifyRow row, const Status& why) {
    rows_.refused(std::move(row), why);
    return {};
  }

  // The stored Schedule, or candidates from the one that the seed picks and then the default: a search, too, leaves
  // those that have no code, and with none left the default serves, or what serves in its place.
  std::vector<search::Schedule> tuned(const Operator& op, const PrepareRequest& request, const search::Problem& problem,
                                      const ir::Target& target, const VerifyRow& row, size_t number) const {
    if (target.level == context_->target().level) {
      const std::optional<Decision> found = context_->find_decision(op.query(row.kernel, row.dims, request));
      if (found) {
        Result<search::Schedule> schedule = search::parse_schedule(found->schedule);
        if (schedule.ok()) return {std::move(*schedule)};
      }
    }
    std::vector<search::Schedule> list = search::candidates(problem, target, kCandidates);
    const uint64_t pick = ir::hash_text(row.item->name, options_.seed + number);
    if (!list.empty())
      std::rotate(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(pick % list.size()), list.end());
    list.push_back(search::default_schedule(problem, target));
    return list;
  }

  const std::shared_ptr<Context>& context_;
  const VerifyOptions& options_;
  VerifyRows rows_;
  LeafCache leaves_;
  bool llvm_ = false;  // the host has the plug-in
};

}  // namespace

void VerifyRows::judged(VerifyRow row, const Verdict& verdict) {
  row.gate = verdict.gate;
  row.err_over_bound = verdict.err_over_bound;
  row.ok = verdict.ok;
  row.reason = verdict.reason;
  ++report_.checked;
  report_.failed += !row.ok;
  report_.worst_err_over_bound = std::max(report_.worst_err_over_bound, row.err_over_bound);
  if (row_) row_(row);
}

void VerifyRows::refused(VerifyRow row, const Status& why) {
  row.refused = true;
  row.reason = "refused: " + why.to_string();
  ++report_.refused;
  if (row_) row_(row);
}

bool too_much_to_verify(const ops::Graph& graph, const VerifyOptions& options) {
  SymbolValues least;
  for (const ops::DimDesc& d : graph.symbols)
    least.emplace_back(ops::kernel_symbol(d.symbol), std::max<int64_t>(d.min, 1));
  return !fits(graph, least, options.flops, options);
}

std::vector<SymbolValues> verified_shapes(const ops::Graph& graph, const std::vector<SymbolValues>& hinted,
                                          const VerifyOptions& options, double flops, int64_t most) {
  if (!options.dims.empty()) return options.dims;
  std::vector<SymbolValues> out;
  const auto add = [&](const SymbolValues& dims) {
    if (std::find(out.begin(), out.end(), dims) == out.end() && fits(graph, dims, flops, options)) out.push_back(dims);
  };
  for (const int64_t wish : {1, 7, 30, 197}) {
    if (wish > most) break;
    SymbolValues dims;
    for (const ops::DimDesc& d : graph.symbols) {
      const int64_t step = std::max<int64_t>(d.multiple_of, 1);
      const int64_t value = std::clamp(wish, d.min, d.max) + static_cast<int64_t>(dims.size()) * 6;
      dims.emplace_back(ops::kernel_symbol(d.symbol),
                        std::clamp((value + step - 1) / step * step, d.min, d.max / step * step));
    }
    add(dims);
  }
  if (options.hints) {
    for (const SymbolValues& dims : hinted) add(dims);
  }
  return out;
}

ops::Graph cut_down(const ops::Graph& graph, int64_t limit) {
  ops::Graph out = graph;
  out.source.clear();  // to be finished again: the operators have to take the sizes
  for (ops::TensorDesc& t : out.tensors) {
    if (!t.strides.empty()) return graph;
    for (ops::DimDesc& d : t.dims) {
      if (d.fixed() && d.max > limit) d.min = d.max = limit / 4 + d.max % 61;
    }
  }
  Result<ops::Graph> finished = ops::finish(out);
  return finished.ok() ? std::move(*finished) : graph;
}

Result<VerifyReport> run_verify(const std::shared_ptr<Context>& context, const std::vector<ops::Workload>& items,
                                const VerifyOptions& options, const std::function<void(const VerifyRow&)>& row) {
  return Verify(context, options, row).run(items);
}

}  // namespace lathe::runtime
