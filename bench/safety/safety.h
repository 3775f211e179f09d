// The safety campaign's parts: what is planted and what caught it; what a noisy clock made the timing claim.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lathe::safety {

struct FaultCounts {
  int planted = 0;
  int harmless = 0;                   // passed, and right: an independent judge on other data agrees
  int served = 0;                     // passed all steps, though wrong
  std::map<std::string, int> caught;  // by step
  int wrong() const { return planted - harmless; }
};
struct FaultReport {
  std::map<std::string, FaultCounts> kinds;
  int host_crashes = 0;   // of this process: it would not be here to say so
  int children = 0;       // workers started
  std::string complaint;  // why the campaign itself failed; empty
  std::vector<std::string>
      passes;  // what passed V0-V3 and was found wrong afterwards: what was planted where, on which data, why
};
// At least `wrong` wrong candidates of each kind, `processes` of those that hang, crash or scribble.
// only: kinds whose name has it in it.
FaultReport plant_faults(int wrong, int processes, uint64_t seed, const std::string& only = {});

struct ClaimCounts {
  int runs = 0;
  int claims = 0;                                    // promotions of anything
  int slower_1_2 = 0, slower_2_5 = 0, slower_5 = 0;  // promoted though that much slower than the default, in per cent
  double further_mean = 0;                           // samples
};
struct SimulationReport {
  std::map<std::string, ClaimCounts> models;  // "a/a busy", "a/a hostile", "slower hostile", "clock ..."
  std::map<std::string, double> detected;     // share of the runs in which a truly faster one won, by its gain
};
SimulationReport simulate(int runs, uint64_t seed);

}  // namespace lathe::safety
