// Fault injection: makes a built Stage misbehave in a stated way, so that tests can see the gates
// and the worker catch it. Nothing plants anything unless a task asks by name:
//   idle       leaves do nothing            hang       the first leaf call never returns
//   crash      an undefined instruction     overread   reads on behind the first operand until it
//   faults exit       the process ends             flaky      the second run differs from the first
#pragma once
#include <memory>
#include <string_view>
#include <vector>

#include "ir/status.h"
#include "runtime/compiler.h"

namespace lathe::runtime {

struct PlantedLeaf;
// Keeps the wrappers alive; outlive the Stage's use.
using PlantedLeaves = std::vector<std::shared_ptr<PlantedLeaf>>;
// INVALID: an unknown name. An empty one plants nothing.
ir::Status plant(std::string_view fault, Stage* stage, PlantedLeaves* keep);

}  // namespace lathe::runtime
