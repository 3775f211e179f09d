// A Stage on a GPU for who has operands in host memory, as the oracle does: each run copies them to the device, where
// they end at an unmapped page at one run and begin after one at the next, packs constants there, launches, and copies
// the results back.
#pragma once
#include <memory>

#include "runtime/compile/compiler.h"
#include "runtime/cuda/device_session.h"

namespace lathe::runtime {

// *failed, shared: the first error of a run, which itself can report none. Nothing is copied back then.
Stage hosted_stage(const Stage& stage, std::shared_ptr<DeviceSession> session, std::shared_ptr<ir::Status> failed);

}  // namespace lathe::runtime
