// A candidate on recorded calls: each run once more on the copied inputs, its results compared with the interpreter's
// at sampled cells and with what the incumbent answered everywhere. What may crash runs in a child: shadow_in_child().
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "ir/base/status.h"
#include "runtime/compile/leaf_cache.h"
#include "runtime/oracle/stage_maker.h"
#include "runtime/walk/nest_bind.h"

namespace lathe::runtime {

struct ShadowTask {
  std::string kernel_text;  // naive, restricted to the range it serves
  std::string schedule;
  SymbolValues dims;
  int threads = 1;
  std::string target;    // the machine it is meant for, ir::Target::to_string(); empty: the host
  std::string recorded;  // names the calls: RecordedCalls::path()
  uint64_t seed = 0;
  double cpu_share = 0;  // of one CPU, on average; 0: no limit
};

struct ShadowResult {
  enum class Outcome : uint8_t { agrees, wrong, crashed, hung, refused };
  Outcome outcome = Outcome::refused;
  std::string reason;  // unless it agrees
  int calls = 0;       // compared
  double err_over_bound = 0;
  int64_t cpu_ns = 0;  // of the child
};

// In this process; before(call) is told which call comes next. Never crashed or hung, or there is no answer.
ShadowResult shadow_in_process(const ShadowTask& task, LeafCache& leaves, StageMaker& stages,
                               const std::function<void(int call)>& before = {});

struct ShadowChild {
  std::string path;  // the worker; empty: find_worker()
  std::string plugin_dir;
  int silence_ms = 10'000;  // longer without a sign of life: it hangs
  // Asked and told ten times a second; each may be empty.
  std::function<bool()> cancelled;
  std::function<bool()> paused;              // the child stands still as long as this says so
  std::function<void(int64_t cpu_ns)> used;  // by the child since the last time
};
// In a child of its own that lives for this task. UNSUPPORTED: it cannot be started; CANCELLED.
ir::Result<ShadowResult> shadow_in_child(const ShadowTask& task, const ShadowChild& child);

// The child's side: lines that are shadow tasks, and the answer to one; tell: signs of life meanwhile.
bool is_shadow(std::string_view line);
std::string answer_shadow(std::string_view line, LeafCache& leaves, StageMaker& stages,
                          const std::function<void(const std::string&)>& tell);

}  // namespace lathe::runtime
