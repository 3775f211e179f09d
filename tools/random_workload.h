// Random operators for `lathe verify --random`: every row of ops.def, odd sizes, dynamic ones, epilogues. Equal seeds:
// equal operators.
#pragma once
#include <cstdint>
#include <vector>

#include "ops/manifest.h"

namespace lathe::tools {

std::vector<ops::Workload> random_workloads(int count, uint64_t seed);

}  // namespace lathe::tools
