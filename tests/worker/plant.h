// Fault injection: makes a built Stage misbehave in a stated way, so that tests can see the gates and the worker catch
// it. The fault is a comment in the Schedule's text, `; plant crash`; the product's maker of Stages ignores it:
//   idle       leaves do nothing            hang       the first leaf call never returns
//   crash      an undefined instruction     overread   reads on behind the first operand until it faults
//   exit       the process ends             flaky      the second run differs from the first
//   scribble   writes behind the last operand          mxcsr      leaves with another rounding mode
//   stray:N    writes where a random number points     eat        takes memory until there is none
//   bytes:N    a bit of a leaf's text is flipped       nest:N     a number of the nest is off by a little
//   tail:N     a minimum in the nest loses a side      broken:M.P move M is applied without its precondition P
// N seeds the choice.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/oracle/stage_maker.h"

namespace lathe::runtime {

// The Schedule's text with the fault.
std::string planted(std::string_view schedule, std::string_view fault);

// Builds what is planted. UNSUPPORTED: refused like any Schedule, or there is nothing to break. Ends the process if
// there is no such fault. Its Stages do not outlive it.
class PlantingMaker : public StageMaker {
 public:
  ir::Result<Stage> build(std::string_view text, const ir::Kernel& naive, const search::Schedule& schedule,
                          const ir::Target& target, LeafCache& leaves) override;
  Witness::Replay replay(std::string_view text) override;

 private:
  std::vector<std::shared_ptr<void>> keep_;  // what the leaves call
};

}  // namespace lathe::runtime
