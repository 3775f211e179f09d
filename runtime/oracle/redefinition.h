// What the oracle compares a Stage with whose moves change what the Kernel computes (search::kRedefining): the Kernel
// after those moves. It rounds activations to integers, which arithmetic in f64 would round otherwise; so what is made
// of the operands first is computed as code computes it, bit by bit, and the rest as ever. Private to the oracle.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "runtime/oracle/oracle_reference.h"

namespace lathe::runtime {

// Mean squared difference from the naive Kernel over its mean square that quantised activations may have, on normally
// distributed data.
inline constexpr double kMostQuantisationError = 5e-4;

// Whether statements before those that store results make what these read.
bool has_first_part(const ir::Kernel& kernel);
// Runs the statements before those that store results, as code does, and adds what they make to the tensors; returns
// the Kernel of the others, which read that.
ir::Result<ir::Kernel> run_first_part(const ir::Kernel& kernel, std::map<std::string, ir::Tensor>& tensors);

// The picks of the naive Kernel by the classes of the redefined one. UNSUPPORTED: they have no such classes.
ir::Result<std::vector<std::vector<int64_t>>> same_picks(const SampledKernel& naive, const SampledKernel& redefined,
                                                         const std::vector<std::vector<int64_t>>& picks,
                                                         const std::vector<OperandShape>& shapes);
// Of two references of the same cells, where the naive Kernel's are finite; infinite where only the others are not.
double quantisation_error(const Reference& naive, const Reference& redefined);

}  // namespace lathe::runtime
