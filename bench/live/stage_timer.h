// Stages of one Kernel timed side by side in this process: hot, or with their weights from memory. Not thread-safe.
#pragma once
#include <memory>
#include <vector>

#include "runtime/compile/compiler.h"
#include "runtime/measure/own_cores.h"
#include "runtime/measure/rotating_operands.h"
#include "runtime/walk/threads.h"
#include "search/sketches/recipe.h"

namespace lathe::bench {

class StageTimer {
 public:
  // The problem outlives it.
  StageTimer(const search::Problem& problem, const ir::Target& target);
  // Binds Stages afresh; they outlive it. UNSUPPORTED: no memory.
  ir::Status bind(const std::vector<const runtime::Stage*>& stages);
  // Where operands lie from now on (runtime/measure/sample.h).
  void place(int placement) { operands_->place(placement); }
  // Decides how often a sample of the Stage repeats the call; the microseconds of one.
  double calibrate(size_t stage);
  bool calibrated(size_t stage) const { return repeats_[stage] > 0; }
  // Microseconds of a call, one sample.
  double sample(size_t stage) { return timed(stage, repeats_[stage]); }
  void warm(size_t stage) { timed(stage, 1); }
  // Several threads: waits until each has a core of its own, 20 s in its life at most.
  void await_cores() {
    if (cores_) cores_->await();
  }
  // What one sample takes at least.
  double sample_us() const;
  runtime::ThreadTeam* team() { return team_.get(); }  // null: one thread

 private:
  double timed(size_t stage, int repeats);
  const search::Problem& problem_;
  const ir::Target& target_;
  std::unique_ptr<runtime::ThreadTeam> team_;
  std::unique_ptr<runtime::RotatingOperands> operands_;
  std::vector<int> repeats_, at_once_;
  std::unique_ptr<runtime::OwnCores> cores_;  // null: one thread
};

}  // namespace lathe::bench
