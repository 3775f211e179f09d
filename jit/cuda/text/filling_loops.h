// Loops that store a constant, which NVRTC's compiler would make one fill of memory of.
#pragma once
#include <algorithm>
#include <vector>

#include "jit/cuda/device_program.h"

namespace lathe::jit {

// Whether an iteration stores a constant. NVRTC 12.9 and 13.0 end with a segmentation fault where such a loop stands in
// another, stores elements of 2 bytes to shared memory, and something that does not change says whether it does.
inline bool fills(const std::vector<DeviceStmt>& list) {
  return std::any_of(list.begin(), list.end(), [](const DeviceStmt& s) {
    const bool constant = s.kind == DeviceStmt::Kind::store && !s.operands.empty() && s.operands[0].value < 0;
    return constant || (s.kind != DeviceStmt::Kind::loop && (fills(s.body) || fills(s.otherwise)));
  });
}

}  // namespace lathe::jit
