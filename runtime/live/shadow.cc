// See shadow.h. Packed constants are unpacked once for the interpreter: packing numbered cells says which cell went
// where.
#include "runtime/live/shadow.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "ir/base/target_text.h"
#include "ir/core/text_form.h"
#include "jit/host/host_cpu.h"
#include "runtime/oracle/guard_memory.h"
#include "runtime/oracle/oracle_reference.h"
#include "runtime/serve/recorded_calls.h"
#include "runtime/walk/nest_walk.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;
using Outcome = ShadowResult::Outcome;

namespace {

constexpr int64_t kStatements = 20'000;  // interpreted per call and arithmetic
constexpr double kSlack = 4;             // cells that were not sampled may be less exact than those that were
constexpr int64_t kDigit = 100;          // exact in every type, with 1 to tell it from padding

// The constant as the Kernel has it, from its packed bytes.
Status unpack(const PackedParam& packed, const SymbolValues& symbols, const OperandShape& shape, const char* from,
              std::vector<char>* out) {
  LATHE_ASSIGN(const int64_t bytes, packed_bytes(packed, symbols));
  const int64_t element = ir::dtype_bytes(shape.type), cells = bytes / element;
  std::vector<char> numbers(static_cast<size_t>(shape.bytes())), places(static_cast<size_t>(bytes) + 64);
  char* aligned = places.data() + (64 - reinterpret_cast<uintptr_t>(places.data()) % 64) % 64;
  std::vector<int64_t> source(static_cast<size_t>(cells), 0);
  for (int64_t unit = 1; unit <= shape.span; unit *= kDigit) {
    for (int64_t i = 0; i < shape.span; ++i)
      store_element(shape.type, numbers.data(), i, static_cast<double>(i / unit % kDigit + 1));
    LATHE_RETURN_IF_ERROR(run_pack(packed, symbols, {}, numbers.data(), aligned, nullptr));
    for (int64_t c = 0; c < cells; ++c) {
      const auto digit = static_cast<int64_t>(load_element(shape.type, aligned, c));
      int64_t& at = source[static_cast<size_t>(c)];
      at = digit == 0 || at < 0 ? -1 : at + (digit - 1) * unit;
    }
  }
  out->assign(static_cast<size_t>(shape.bytes()), 0);
  for (int64_t c = 0; c < cells; ++c) {
    const int64_t at = source[static_cast<size_t>(c)];
    if (at >= 0 && at < shape.span)
      std::memcpy(out->data() + at * element, from + c * element, static_cast<size_t>(element));
  }
  return {};
}

class Shadow {
 public:
  Shadow(const ShadowTask& task, LeafCache& leaves, StageMaker& stages)
      : task_(task), leaves_(leaves), stages_(stages) {}

  // What `out` says is the candidate's fault; an error is not.
  Status run(const std::function<void(int)>& before, ShadowResult* out) {
    LATHE_ASSIGN(naive_, ir::parse_kernel(task_.kernel_text));
    ir::Target target = jit::host_target();
    if (!task_.target.empty()) {
      LATHE_ASSIGN(target, ir::parse_target(task_.target));
    }
    LATHE_ASSIGN(calls_, RecordedCalls::open(task_.recorded));
    symbols_ = task_.dims;
    LATHE_ASSIGN(shapes_, operand_shapes(naive_, &symbols_));
    layouts_ = arg_layouts(naive_, shapes_);
    if (calls_->params().size() != shapes_.size())
      return ir::invalid("{} operands were recorded, expected {}", calls_->params().size(), shapes_.size());
    LATHE_ASSIGN(SampledKernel sampled, SampledKernel::create(naive_, symbols_));
    sampled_ = std::make_unique<SampledKernel>(std::move(sampled));
    traits_ = kernel_traits(naive_);
    if (task_.threads > 1) {
      TeamOptions team;
      team.threads = task_.threads;
      team_ = std::make_unique<ThreadTeam>(team);
    }
    LATHE_ASSIGN(const search::Schedule schedule, search::parse_schedule(task_.schedule));
    LATHE_ASSIGN(const Stage stage, stages_.build(task_.schedule, naive_, schedule, target, leaves_));
    LATHE_RETURN_IF_ERROR(check_operands(stage));
    LATHE_RETURN_IF_ERROR(check_host_memory(*stage.executable, "replay"));
    LATHE_ASSIGN(const std::unique_ptr<const BoundExecutable> bound,
                 stage.executable->bind(symbols_, layouts_, task_.threads));
    for (; out->calls < calls_->calls(); ++out->calls) {
      if (before) before(out->calls);
      LATHE_RETURN_IF_ERROR(replay(*bound, out->calls, out));
      if (out->reason.empty()) continue;
      out->outcome = Outcome::wrong;
      out->reason = fmt::format("recorded call {}: {}", out->calls, out->reason);
      return {};
    }
    out->outcome = Outcome::agrees;
    return {};
  }

 private:
  // Sizes as recorded; plain forms of packed constants.
  Status check_operands(const Stage& stage) {
    plain_.assign(shapes_.size(), {});
    for (size_t p = 0; p < shapes_.size(); ++p) {
      int64_t bytes = shapes_[p].bytes();
      for (const PackedParam& packed : stage.packed) {
        if (packed.param != static_cast<int>(p)) continue;
        LATHE_ASSIGN(bytes, packed_bytes(packed, symbols_));
        if (calls_->params()[p].bytes != bytes) break;
        LATHE_RETURN_IF_ERROR(unpack(packed, symbols_, shapes_[p], calls_->data(0, static_cast<int>(p)), &plain_[p]));
      }
      if (calls_->params()[p].bytes != bytes)
        return ir::invalid("{}: {} bytes were recorded, expected {}", shapes_[p].name, calls_->params()[p].bytes,
                           bytes);
    }
    return {};
  }

  Status replay(const BoundExecutable& bound, int call, ShadowResult* c) {
    std::vector<void*> args;
    std::vector<GuardMemory> outs(shapes_.size());
    HostData host;
    for (size_t p = 0; p < shapes_.size(); ++p) {
      const OperandShape& s = shapes_[p];
      const char* data = calls_->data(call, static_cast<int>(p));
      args.push_back(const_cast<char*>(data));
      host.push_back(plain_[p].empty() ? data : plain_[p].data());
      if (s.place != ir::Place::out) continue;
      host.back() = nullptr;
      LATHE_ASSIGN(outs[p], GuardMemory::map(static_cast<size_t>(s.bytes()),
                                             static_cast<size_t>(ir::dtype_bytes(s.type)), GuardSide::after));
      poison(s.type, outs[p].data(), s.span);
      args.back() = outs[p].data();
    }
    LATHE_ASSIGN(const GuardMemory workspace,
                 GuardMemory::map(static_cast<size_t>(bound.workspace_bytes()), 64, GuardSide::after));
    bound.run(args.data(), workspace.data(), team_.get());
    const ReferenceRequest request{&naive_, &shapes_, &host, DataKind::wide, false};
    LATHE_ASSIGN(const Reference reference,
                 make_reference(*sampled_, sampled_->choose(kStatements, task_.seed + static_cast<uint64_t>(call)),
                                request, traits_));
    compare(reference, call, outs, c);
    return {};
  }

  void compare(const Reference& reference, int call, const std::vector<GuardMemory>& outs, ShadowResult* c) const {
    size_t cell = 0;
    for (size_t p = 0; p < shapes_.size() && c->reason.empty(); ++p) {
      const OperandShape& s = shapes_[p];
      if (s.place != ir::Place::out) continue;
      const char *mine = outs[p].data(), *served = calls_->data(call, static_cast<int>(p));
      double tolerance = 0, size = 0;
      sampled_->for_each_picked(s, reference.picks, [&](int64_t, const std::vector<int64_t>& at) {
        int64_t offset = 0;
        for (size_t d = 0; d < at.size(); ++d) offset += at[d] * s.strides[d];
        const double r = reference.real[cell], y = load_element(s.type, mine, offset),
                     error = cell_error(s.type, y, r, reference.tolerance[cell]);
        if (error > 1 && c->reason.empty()) {
          c->reason = fmt::format("{} at {} = {:.9g}, expected {:.9g} within {:.3g}", s.name, offset, y, r,
                                  reference.tolerance[cell]);
        }
        c->err_over_bound = std::max(c->err_over_bound, error);
        tolerance = std::max(tolerance, reference.tolerance[cell]);
        size = std::max(size, std::abs(r));
        ++cell;
      });
      const bool comparable = size > 0 && std::isfinite(size) && std::isfinite(tolerance);
      for_each_cell(s, [&](int64_t, int64_t offset) {
        const double y = load_element(s.type, mine, offset), r = load_element(s.type, served, offset);
        const double allowed = kSlack * tolerance * std::max(1.0, std::abs(r) / size);
        const bool same = y == r || std::isnan(y) == std::isnan(r);
        if (is_poison(s.type, mine, offset) ||
            (comparable && !(same && (std::isnan(r) || cell_error(s.type, y, r, allowed) <= 1)))) {
          c->reason = fmt::format("{} at {} = {:.9g}, the incumbent says {:.9g}", s.name, offset, y, r);
        }
        return c->reason.empty();
      });
    }
  }

  const ShadowTask& task_;
  LeafCache& leaves_;
  StageMaker& stages_;
  ir::Kernel naive_;
  std::unique_ptr<RecordedCalls> calls_;
  SymbolValues symbols_;
  std::vector<OperandShape> shapes_;
  std::vector<ArgLayout> layouts_;
  std::unique_ptr<SampledKernel> sampled_;
  KernelTraits traits_;
  std::unique_ptr<ThreadTeam> team_;
  std::vector<std::vector<char>> plain_;  // by parameter; empty: as recorded
};

}  // namespace

ShadowResult shadow_in_process(const ShadowTask& task, LeafCache& leaves, StageMaker& stages,
                               const std::function<void(int)>& before) {
  ShadowResult out;
  const Status status = Shadow(task, leaves, stages).run(before, &out);
  if (!status.ok()) {
    out.outcome = Outcome::refused;
    out.reason = status.to_string();
  }
  return out;
}

}  // namespace lathe::runtime
