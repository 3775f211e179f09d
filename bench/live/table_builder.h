// Builds the measured table of one task: chooses configurations, compiles, verifies once, times in interleaved passes.
// In process: for code that is trusted to fail with a verdict. Pin it, and let nothing else run.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "bench/search/measured_table.h"
#include "runtime/compile/leaf_cache.h"

namespace lathe::bench {

struct BuildOptions {
  int rows = 300;  // configurations at most; fewer where a call takes long
  int passes = 2;
  int best = 40, confirm = 48;
  double seconds = 60;  // what one task may take, roughly: decides rows and best
  uint64_t seed = 1;
};

// The tasks of a manifest file: a line stands for one per hint of its symbol, "name_M16". The group of a task is the
// line's name up to "@". INVALID names what is wrong with the file.
ir::Result<std::vector<MeasuredTask>> read_tasks(const std::string& path);

// Where this thread measures the task from now on: a task of one thread on this processor, others, or with -1,
// anywhere.
void pin_for(const MeasuredTask& task, int cpu);

// Fills in rows. UNSUPPORTED: the default cannot be built or is wrong, or there is no memory.
ir::Status build_table(MeasuredTask* task, const ir::Target& target, runtime::LeafCache& leaves,
                       const BuildOptions& options);

}  // namespace lathe::bench
