// Faults in the meaning of a Kernel: what a wrong move, or a wrong hand, would leave behind. Each is one change of one
// expression: a shift, a mask of bits, a group, a page, a comparison, a factor. The Kernel's loops and parameters stay.
#pragma once
#include <string>
#include <vector>

#include "ir/core/kernel.h"

namespace lathe::safety {

// bits: of values: shifts, masks of bits, zero points. scale: factors, and which scale of an operand. mask:
// comparisons, choices, and how often a loop with an extent of an argument runs. page: what integers of arguments
// choose. index: any other index. order: the larger or the smaller of two.
enum class FaultKind : uint8_t { bits, scale, mask, page, index, order };
inline constexpr int kFaultKinds = 6;
const char* fault_kind_name(FaultKind kind);

struct KernelFault {
  int number = 0;  // of plant()
  FaultKind kind = FaultKind::bits;
  std::string text;  // "y = ...: 4 becomes 0"
};

// All that can be planted, in the order of the text.
std::vector<KernelFault> faults_of(const ir::Kernel& kernel);
// The Kernel with one of them. It may be unsafe, or mean the same.
ir::Kernel plant(const ir::Kernel& kernel, int number);

}  // namespace lathe::safety
