// Where decisions for a kind of GPU stand: its name, what it has, how its clocks are kept. Nothing of the compiler is
// part of it, since what serves from the store does not open one. Pure.
#pragma once
#include <memory>

#include "ir/base/gpu_target.h"
#include "runtime/store/decision.h"

namespace lathe::runtime {

std::shared_ptr<const DecisionHome> device_home(const ir::GpuTarget& target);

}  // namespace lathe::runtime
