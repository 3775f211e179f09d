// safety: plants wrong candidates by the thousand and counts what each step of the verification caught, and lets the
// timing choose on simulated noisy clocks. Ends with failure if anything wrong would have served or the timing claims
// what it may not.
//   safety --full --json
#include "bench/safety/safety.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

namespace {

using namespace lathe::safety;
using nlohmann::json;

constexpr const char* kSteps[] = {"V0", "V1", "V2", "V3", "after"};

void print(const FaultReport& r) {
  fmt::print("{:<22} {:>8} {:>8}", "planted", "wrong", "harmless");
  for (const char* s : kSteps) fmt::print(" {:>7}", s);
  fmt::print(" {:>7}\n", "served");
  for (const auto& [kind, c] : r.kinds) {
    fmt::print("{:<22} {:>8} {:>8}", kind, c.wrong(), c.harmless);
    for (const char* s : kSteps) fmt::print(" {:>7}", c.caught.count(s) ? c.caught.at(s) : 0);
    fmt::print(" {:>7}\n", c.served);
  }
  for (const std::string& text : r.passes) fmt::print("passed V0-V3: {}\n", text);
  fmt::print("{} workers, {} host crashes{}\n\n", r.children, r.host_crashes,
             r.complaint.empty() ? "" : "; " + r.complaint);
}

void print(const SimulationReport& r) {
  fmt::print("{:<28} {:>7} {:>8} {:>8} {:>8} {:>8} {:>8}\n", "simulated", "runs", "claims", "1-2 %", "2-5 %", "> 5 %",
             "further");
  for (const auto& [name, c] : r.models)
    fmt::print("{:<28} {:>7} {:>7.2f}% {:>8} {:>8} {:>8} {:>8.1f}\n", name, c.runs,
               100.0 * c.claims / std::max(c.runs, 1), c.slower_1_2, c.slower_2_5, c.slower_5, c.further_mean);
  for (const auto& [name, share] : r.detected) fmt::print("{:<28} won {:.1f} %\n", name, 100 * share);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Wrong candidates against the gates, noisy clocks against the timing");
  int faults = 100, processes = 20, runs = 1000;
  uint64_t seed = 1;
  bool full = false, as_json = false;
  std::string only;
  app.add_option("--faults", faults, "Wrong candidates of each kind");
  app.add_option("--processes", processes, "Candidates that hang, crash or scribble");
  app.add_option("--runs", runs, "Simulated searches of each model");
  app.add_option("--seed", seed, "Seed of all random choices");
  app.add_option("--only", only, "Kinds of wrong candidates whose name has this in it");
  app.add_flag("--full", full, "1,000 of each kind, 200 processes, 10,000 runs");
  app.add_flag("--json", as_json, "One object at the end");
  CLI11_PARSE(app, argc, argv);
  if (full) {
    faults = 1000;
    processes = 200;
    runs = 10'000;
  }
  const SimulationReport simulated = simulate(runs, seed);
  const FaultReport planted = faults + processes > 0 ? plant_faults(faults, processes, seed, only) : FaultReport{};
  bool good = planted.complaint.empty() && planted.host_crashes == 0;
  json kinds = json::object(), models = json::object();
  for (const auto& [kind, c] : planted.kinds) {
    good &= c.served == 0;
    kinds[kind] = {{"wrong", c.wrong()}, {"harmless", c.harmless}, {"caught", c.caught}, {"served", c.served}};
  }
  for (const auto& [name, c] : simulated.models) {
    good &= c.slower_5 == 0 && c.slower_1_2 + c.slower_2_5 <= std::max(c.runs / 1000, 1);
    if (name.rfind("a/a", 0) == 0) good &= c.claims < std::max(0.01 * c.runs, 4.0);
    models[name] = {{"runs", c.runs},
                    {"claims", c.claims},
                    {"slower_1_2", c.slower_1_2},
                    {"slower_2_5", c.slower_2_5},
                    {"slower_5", c.slower_5},
                    {"further", c.further_mean}};
  }
  if (as_json) {
    fmt::print("{}\n", json{{"faults", kinds},
                            {"workers", planted.children},
                            {"host_crashes", planted.host_crashes},
                            {"complaint", planted.complaint},
                            {"passes", planted.passes},
                            {"simulated", models},
                            {"detected", simulated.detected},
                            {"good", good}}
                           .dump());
  } else {
    print(planted);
    print(simulated);
  }
  return good ? 0 : 1;
}
