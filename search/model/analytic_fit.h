// Refits the analytic stage's eight coefficients to measured times: non-negative least squares on the error of the
// logarithm, held near the machine profile's. Pure and deterministic.
#pragma once
#include <span>

#include "search/model/features.h"
#include "search/model/history.h"

namespace lathe::search {

// `measured` unchanged if fewer than 32 rows of recipes' own configurations are timed. Only records of the machine
// itself belong here.
MachineRates fit_rates(std::span<const TaskRecord> records, const ir::Target& target, const MachineRates& measured);

}  // namespace lathe::search
