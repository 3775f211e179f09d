// Whether the operators of a workload compute what their Kernels say: every tier, level and back end this host has, at
// a few shapes, through the oracle. In this process: what faults ends it. Nothing is recorded.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ops/manifest.h"
#include "runtime/oracle/oracle.h"
#include "runtime/serve/operator.h"

namespace lathe::runtime {

struct VerifyOptions {
  uint64_t seed = 0;
  int threads = 0;                     // > 0: instead of the workload's
  bool hints = false;                  // the hinted shapes, too, as far as `flops` and `bytes` allow
  std::vector<SymbolValues> dims;      // not empty: these instead, under kernel names
  double flops = 2e9;                  // shapes with more work are left out
  int64_t bytes = int64_t{512} << 20;  // and those with larger operands; sizes are cut down where nothing else is left
  const std::atomic<bool>* cancel = nullptr;
};

struct VerifyRow {
  const ops::Workload* item = nullptr;
  int kernel = 0;  // of the operator's Kernels
  SymbolValues dims;
  std::string dtype;
  int tier = 0;
  ir::IsaLevel level = ir::IsaLevel::portable;
  jit::Backend backend = jit::Backend::portable;
  Gate gate = Gate::none;
  double err_over_bound = 0;
  bool ok = false;
  bool refused = false;   // outside the back end, or nothing the oracle can judge: not ok
  bool cut_down = false;  // fixed sizes were made smaller
  std::string reason;     // when not ok
  std::string schedule;   // text, to reproduce
};

struct VerifyReport {
  int checked = 0, failed = 0;
  int refused = 0;  // neither checked nor failed
  double worst_err_over_bound = 0;
};

// Rows of a verification: each is counted, then told.
class VerifyRows {
 public:
  explicit VerifyRows(const std::function<void(const VerifyRow&)>& row) : row_(row) {}
  void judged(VerifyRow row, const Verdict& verdict);
  void refused(VerifyRow row, const ir::Status& why);
  const VerifyReport& report() const { return report_; }

 private:
  const std::function<void(const VerifyRow&)>& row_;
  VerifyReport report_;
};

// Levels up to the context's; T2 is the stored Schedule, else a candidate picked by the seed.
ir::Result<VerifyReport> run_verify(const std::shared_ptr<Context>& context, const std::vector<ops::Workload>& items,
                                    const VerifyOptions& options, const std::function<void(const VerifyRow&)>& row);

// Small and odd values (up to `most`, all symbols together) and, if asked for, hinted ones; what is more work than
// `flops` or options.bytes is left out. options.dims, if there are any, instead.
std::vector<SymbolValues> verified_shapes(const ops::Graph& graph, const std::vector<SymbolValues>& hinted,
                                          const VerifyOptions& options, double flops, int64_t most);
// Even the least shape is beyond the limits.
bool too_much_to_verify(const ops::Graph& graph, const VerifyOptions& options);
inline constexpr int64_t kCutDown = 256;  // fixed sizes beyond it shrink where the full ones are too much

// The graph with fixed sizes above `limit` made smaller, equal ones equally; the graph itself if it has strides or does
// not finish then.
ops::Graph cut_down(const ops::Graph& graph, int64_t limit);

}  // namespace lathe::runtime
