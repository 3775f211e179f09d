// See hosted_stage.h.
#include "runtime/cuda/measure/hosted_stage.h"

#include <vector>

#include "runtime/cuda/measure/packed_operands.h"
#include "runtime/oracle/data_sets.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;

namespace {

constexpr size_t kWorkspaceAlign = 256;

// Waits for the stream at the end of a scope, however it is left: what the stream uses must not go before.
struct Finish {
  explicit Finish(DeviceSession& s) : session(s) {}
  ~Finish() { (void)session.finish(); }
  Finish(const Finish&) = delete;
  Finish& operator=(const Finish&) = delete;
  DeviceSession& session;
};

class BoundHosted final : public BoundExecutable {
 public:
  BoundHosted(std::unique_ptr<const BoundExecutable> inner, std::vector<OperandShape> shapes,
              std::vector<PackedParam> packed, std::shared_ptr<DeviceSession> session, std::shared_ptr<Status> failed)
      : BoundExecutable(0),
        inner_(std::move(inner)),
        shapes_(std::move(shapes)),
        packed_(std::move(packed)),
        session_(std::move(session)),
        failed_(std::move(failed)) {}

  void run(void* const* params, void* /*workspace*/, ThreadTeam* /*team*/) const override {
    if (!failed_->ok()) return;
    const DeviceGuard side = runs_++ % 2 == 0 ? DeviceGuard::after : DeviceGuard::before;
    const Status ran = run_once(params, side);
    if (!ran.ok()) *failed_ = ran;
  }

 private:
  Status run_once(void* const* params, DeviceGuard side) const {
    DeviceSession& s = *session_;
    std::vector<DeviceMemory> memory, packed;
    DeviceMemory workspace;
    const Finish before_these_go(s);
    std::vector<void*> at;
    for (size_t i = 0; i < shapes_.size(); ++i) {
      const auto bytes = static_cast<size_t>(shapes_[i].bytes());
      const auto element = static_cast<size_t>(ir::dtype_bytes(shapes_[i].type));
      LATHE_ASSIGN(DeviceMemory operand, DeviceMemory::map(s.device(), bytes, element, side));
      at.push_back(operand.data());
      memory.push_back(std::move(operand));
      LATHE_RETURN_IF_ERROR(s.to_device(at.back(), params[i], bytes));  // of results what shows an unwritten cell
    }
    LATHE_ASSIGN(packed, pack_operands(s, packed_, side, at));
    if (inner_->workspace_bytes() > 0) {
      LATHE_ASSIGN(workspace, DeviceMemory::map(s.device(), static_cast<size_t>(inner_->workspace_bytes()),
                                                kWorkspaceAlign, side));
    }
    LATHE_RETURN_IF_ERROR(inner_->launch(at.data(), workspace.data(), s.stream()));
    LATHE_RETURN_IF_ERROR(s.finish());
    for (size_t i = 0; i < shapes_.size(); ++i) {
      if (shapes_[i].place == ir::Place::out)
        LATHE_RETURN_IF_ERROR(s.to_host(params[i], at[i], static_cast<size_t>(shapes_[i].bytes())));
    }
    return s.finish();
  }

  const std::unique_ptr<const BoundExecutable> inner_;
  const std::vector<OperandShape> shapes_;
  const std::vector<PackedParam> packed_;
  const std::shared_ptr<DeviceSession> session_;
  const std::shared_ptr<Status> failed_;
  mutable int runs_ = 0;
};

class Hosted final : public Executable {
 public:
  Hosted(const Stage& stage, std::shared_ptr<DeviceSession> session, std::shared_ptr<Status> failed)
      : inner_(stage.executable->copy()),
        naive_(stage.naive),
        packed_(stage.packed),
        session_(std::move(session)),
        failed_(std::move(failed)) {}

  MemorySpace memory() const override { return MemorySpace::host; }
  Result<std::unique_ptr<const BoundExecutable>> bind(const SymbolValues& symbols, const std::vector<ArgLayout>&,
                                                      int threads) const override {
    SymbolValues all = symbols;
    LATHE_ASSIGN(std::vector<OperandShape> shapes, operand_shapes(naive_, &all));
    LATHE_ASSIGN(std::unique_ptr<const BoundExecutable> bound, inner_->bind(all, {}, threads));
    return std::unique_ptr<const BoundExecutable>(
        std::make_unique<BoundHosted>(std::move(bound), std::move(shapes), packed_, session_, failed_));
  }
  std::unique_ptr<Executable> copy() const override { return std::make_unique<Hosted>(*this); }

 private:
  std::shared_ptr<const Executable> inner_;
  ir::Kernel naive_;
  std::vector<PackedParam> packed_;
  std::shared_ptr<DeviceSession> session_;
  std::shared_ptr<Status> failed_;
};

}  // namespace

Stage hosted_stage(const Stage& stage, std::shared_ptr<DeviceSession> session, std::shared_ptr<Status> failed) {
  Stage out;
  out.naive = stage.naive;
  out.schedule = stage.schedule;
  out.executable = std::make_unique<Hosted>(stage, std::move(session), std::move(failed));
  return out;
}

}  // namespace lathe::runtime
