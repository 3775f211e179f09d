// Fault injection: makes a built Stage misbehave in a stated way, so that tests can see the gates
// and the worker catch it. Nothing plants anything unless a task asks by name:
//   idle       leaves do nothing            hang       the first leaf call never returns
//   crash      an undefined instruction     overread   reads on behind the first operand until it faults
//   exit       the process ends             flaky      the second run differs from the first
//   scribble   writes behind the last operand          mxcsr      leaves with another rounding mode
//   stray:N    writes where a random number points     eat        takes memory until there is none
//   bytes:N    a bit of a leaf's text is flipped       nest:N     a number of the nest is off by a little
//   tail:N     a minimum in the nest loses a side      broken:M.P move M is applied without its precondition P
// N seeds the choice.
#pragma once
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "ir/base/status.h"
#include "runtime/compile/compiler.h"

namespace lathe::runtime {

// Keeps the wrappers alive; outlive the Stage's use.
using PlantedLeaves = std::vector<std::shared_ptr<void>>;
// INVALID: an unknown name. UNSUPPORTED: refused like any Schedule, or there is nothing to break. An empty name plants
// nothing.
ir::Result<Stage> build_planted(std::string_view fault, const ir::Kernel& restricted, const search::Schedule& schedule,
                                const ir::Target& target, LeafCache& leaves, PlantedLeaves* keep);

// How the fault replays Schedules; empty: as search::replay does.
using PlantedReplay = std::function<ir::Result<ir::Kernel>(const ir::Kernel&, const search::Schedule&)>;
PlantedReplay planted_replay(std::string_view fault);

}  // namespace lathe::runtime
