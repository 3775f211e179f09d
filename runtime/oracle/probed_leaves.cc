// See probed_leaves.h.
#include "runtime/oracle/probed_leaves.h"

#include <fmt/format.h>

#include <atomic>
#include <mutex>

#include "jit/host/abi_probe.h"
#include "jit/host/cpu_state.h"
#include "jit/host/host_cpu.h"
#include "jit/image/image.h"

namespace lathe::runtime {

struct ProbedLeaves::Watched {
  LeafRef real;
  std::atomic<int> left{0};
  std::mutex mutex;
  std::string broken;  // of the first call that broke something

  void report(std::string what) {
    if (what.empty()) return;
    std::lock_guard lock(mutex);
    if (broken.empty()) broken = std::move(what);
  }

  static void call(const void* program, const ir::LeafArgs& args) {
    Watched& w = *static_cast<Watched*>(const_cast<void*>(program));
    if (w.left.load(std::memory_order_relaxed) <= 0 || w.left.fetch_sub(1, std::memory_order_relaxed) <= 0) {
      w.real(&args);
      return;
    }
    const uint32_t before = jit::fp_control();
    if (w.real.fn != nullptr && (jit::host_features() & jit::kCpu_avx) != 0) {
      static thread_local jit::AbiProbe probe;
      jit::AbiReport report = probe.call(w.real.fn, &args);
      if (report.stack_bytes > jit::kMaxLeafStack) report.broken += " stack";
      w.report(std::move(report.broken));
    } else {
      w.real(&args);
      if (((jit::fp_control() ^ before) & ~jit::kFpSticky) != 0) w.report(" mxcsr");
    }
    jit::set_fp_control(before);
  }
};

ProbedLeaves::ProbedLeaves(const std::vector<LeafRef>& leaves, int calls) {
  for (const LeafRef& leaf : leaves) {
    watched_.push_back(std::make_unique<Watched>());
    watched_.back()->real = leaf;
    watched_.back()->left = calls;
    refs_.push_back({nullptr, &Watched::call, watched_.back().get()});
  }
}

ProbedLeaves::~ProbedLeaves() = default;

std::string ProbedLeaves::broken() const {
  for (size_t i = 0; i < watched_.size(); ++i) {
    std::lock_guard lock(watched_[i]->mutex);
    if (!watched_[i]->broken.empty()) return fmt::format("leaf {} does not keep{}", i, watched_[i]->broken);
  }
  return "";
}

}  // namespace lathe::runtime
