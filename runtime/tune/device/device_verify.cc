// See device_verify.h.
#include "runtime/tune/device/device_verify.h"

#include <algorithm>

#include "runtime/cuda/measure/hosted_stage.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;

namespace {

class DeviceVerify {
 public:
  DeviceVerify(const std::shared_ptr<Context>& context, const DeviceChoice& on, const VerifyOptions& options,
               const std::function<void(const VerifyRow&)>& row)
      : context_(context), on_(on), options_(options), rows_(row) {}

  Result<VerifyReport> run(const std::vector<ops::Workload>& items) {
    LATHE_ASSIGN(session_, DeviceSession::open(on_.device));
    for (const ops::Workload& item : items) {
      if (cancelled()) break;
      LATHE_ASSIGN(const ops::Graph full, ops::finish(item.graph));
      const bool cut = too_much_to_verify(full, options_);
      LATHE_RETURN_IF_ERROR(check(item, cut ? cut_down(full, kCutDown) : full, cut).with_context(item.name));
    }
    return rows_.report();
  }

 private:
  bool cancelled() const { return options_.cancel != nullptr && options_.cancel->load(std::memory_order_relaxed); }

  Status check(const ops::Workload& item, const ops::Graph& graph, bool cut) {
    LATHE_ASSIGN(const std::shared_ptr<Operator> op, Operator::create(context_, graph));
    PrepareRequest request;
    request.allowed = item.allowed;
    request.device = on_.number;
    request.compile = true;
    VerifyRow row;
    row.item = &item;
    row.cut_down = cut;
    row.dtype = ir::dtype_name(graph.tensors[static_cast<size_t>(graph.outputs[0])].dtype);
    const Result<PrepareInfo> prepared = op->stages().prepare_on_device(request);
    if (!prepared.ok()) {
      if (prepared.status().code() != ir::Code::kUNSUPPORTED) return prepared.status();
      return refuse(row, prepared.status());
    }
    const size_t kernels = op->lowered().kernels.size();
    for (const SymbolValues& dims : verified_shapes(graph, op->hinted_dims(), options_, options_.flops, INT64_MAX)) {
      for (row.kernel = 0; row.kernel < static_cast<int>(kernels); ++row.kernel) {
        if (cancelled()) return {};
        row.dims = dims;
        // Of constants in their packed form, and as the caller gives them.
        const auto picked = [&](bool packed) {
          return op->stages().pick(row.kernel, {.symbols = dims, .packed = packed}, Bodies(kernels), Bodies(kernels));
        };
        const ServedStage *packed = picked(true), *given = picked(false);
        if (packed == nullptr || given == nullptr) return ir::internal_error("nothing serves kernel {}", row.kernel);
        LATHE_RETURN_IF_ERROR(check_one(*packed, row));
        if (packed != given) LATHE_RETURN_IF_ERROR(check_one(*given, row));
      }
    }
    return {};
  }

  Status check_one(const ServedStage& served, VerifyRow row) {
    row.tier = served.tier;
    row.schedule = search::to_text(served.stage.schedule);
    LATHE_ASSIGN(const std::unique_ptr<Oracle> oracle,
                 Oracle::create({served.stage.naive, row.dims, 1, options_.seed}, context_->team(), context_->tasks()));
    const auto failed = std::make_shared<Status>();
    const Result<Verdict> verdict = oracle->verify(hosted_stage(served.stage, session_, failed));
    const Status& why = failed->ok() ? verdict.status() : *failed;
    if (!why.ok()) {
      LATHE_RETURN_IF_ERROR(on_.device->working());  // nothing more can be said of any
      return refuse(std::move(row), why);
    }
    rows_.judged(std::move(row), *verdict);
    return {};
  }

  Status refuse(VerifyRow row, const Status& why) {
    rows_.refused(std::move(row), why);
    return {};
  }

  const std::shared_ptr<Context>& context_;
  const DeviceChoice& on_;
  const VerifyOptions& options_;
  std::shared_ptr<DeviceSession> session_;
  VerifyRows rows_;
};

}  // namespace

Result<VerifyReport> run_device_verify(const std::shared_ptr<Context>& context, const std::vector<ops::Workload>& items,
                                       const DeviceChoice& on, const VerifyOptions& options,
                                       const std::function<void(const VerifyRow&)>& row) {
  if (on.device == nullptr) return ir::make_error(ir::Code::kDEVICE, "{} is not at hand", on.target.name);
  return DeviceVerify(context, on, options, row).run(items);
}

}  // namespace lathe::runtime
