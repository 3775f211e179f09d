// model_faults: plants faults in the Kernels of language models, as they are written and as they are scheduled, and
// asks the oracle about each. What passes is judged by the interpreter on other data: it is harmless, or it was missed,
// which ends the program with failure.
//   model_faults --faults 200
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "bench/safety/model_beds.h"
#include "jit/host/host_cpu.h"
#include "runtime/compile/leaf_cache.h"

namespace lathe::safety {
namespace {

struct Counts {
  int caught = 0;    // by the oracle
  int refused = 0;   // before code was made: the fault reads outside a buffer, or has no leaf form
  int harmless = 0;  // equal by construction
  int missed = 0;
};

struct Planted {
  Bed* bed;
  const Form* form;
  const KernelFault* fault;
};

class Campaign {
 public:
  Campaign(int faults, uint64_t seed, bool verbose) : wanted_(faults), verbose_(verbose), random_(seed) {}

  // Of one group: its kinds in turn, each with beds and forms at random.
  void run(std::vector<Bed*> beds) {
    std::map<FaultKind, std::vector<Planted>> all;
    for (Bed* bed : beds) {
      clean(*bed);
      for (const Form& form : bed->forms) {
        for (const KernelFault& fault : form.faults) all[fault.kind].push_back({bed, &form, &fault});
      }
    }
    for (auto& [kind, list] : all) std::shuffle(list.begin(), list.end(), random_);
    int caught = 0;
    for (bool some = true; some && caught < wanted_;) {
      some = false;
      for (auto& [kind, list] : all) {
        while (!list.empty() && caught < wanted_) {
          const Planted next = list.back();
          list.pop_back();
          some = true;
          const int before = counts_[{next.bed->group, kind}].caught;
          plant_one(next);
          caught += counts_[{next.bed->group, kind}].caught - before;
          if (counts_[{next.bed->group, kind}].caught != before) break;
        }
      }
    }
    if (caught < wanted_)
      complaints_.push_back(fmt::format("{}: {} faults, expected {}", beds[0]->group, caught, wanted_));
  }

  int report(bool as_json) const {
    nlohmann::json rows = nlohmann::json::array();
    int missed = 0;
    if (!as_json)
      fmt::print("{:<12} {:<8} {:>7} {:>7} {:>9} {:>8}\n", "family", "fault", "caught", "missed", "harmless",
                 "refused");
    for (const auto& [key, c] : counts_) {
      missed += c.missed;
      if (!as_json) {
        fmt::print("{:<12} {:<8} {:>7} {:>7} {:>9} {:>8}\n", key.first, fault_kind_name(key.second), c.caught, c.missed,
                   c.harmless, c.refused);
      }
      rows.push_back({{"family", key.first},
                      {"fault", fault_kind_name(key.second)},
                      {"caught", c.caught},
                      {"missed", c.missed},
                      {"harmless", c.harmless},
                      {"refused", c.refused}});
    }
    if (as_json) fmt::print("{}\n", nlohmann::json{{"faults", rows}, {"complaints", complaints_}}.dump());
    for (const std::string& text : complaints_) fmt::print(stderr, "{}\n", text);
    return missed == 0 && complaints_.empty() ? 0 : 1;
  }

 private:
  // The forms without a fault pass: else nothing that follows says anything.
  void clean(Bed& bed) {
    for (const Form& form : bed.forms) {
      auto stage = runtime::build_stage(bed.naive, form.scheduled, jit::host_target(), cache_, runtime::LeafPolicy{});
      if (!stage.ok()) continue;
      const auto verdict = check(bed, *stage);
      if (!verdict.empty())
        complaints_.push_back(fmt::format("{}, {}, without a fault: {}", bed.name, form.name, verdict));
    }
  }

  static std::string check(Bed& bed, const runtime::Stage& stage) {
    const auto oracle = bed.oracle();
    if (!oracle.ok()) return oracle.status().to_string();
    const auto verdict = (*oracle)->verify(stage);
    if (!verdict.ok()) return verdict.status().to_string();
    return verdict->ok ? "" : verdict->reason;
  }

  void plant_one(const Planted& p) {
    Counts& c = counts_[{p.bed->group, p.fault->kind}];
    const auto stage = p.bed->build(*p.form, *p.fault, cache_);
    if (!stage.ok()) {
      ++c.refused;
      return;
    }
    const std::string what = fmt::format("{}, {}, {}", p.bed->name, p.form->name, p.fault->text);
    const std::string why = check(*p.bed, *stage);
    if (!why.empty()) {
      ++c.caught;
      if (verbose_) fmt::print("{}: {}\n", what, why);
      return;
    }
    const auto difference = p.bed->difference(*p.form, *p.fault, *stage);
    if (!difference.ok()) {
      complaints_.push_back(what + ": " + difference.status().to_string());
    } else if (difference->empty()) {
      ++c.harmless;
      if (verbose_) fmt::print("{}: harmless\n", what);
    } else {
      ++c.missed;
      complaints_.push_back(fmt::format("missed: {}: {}", what, *difference));
    }
  }

  const int wanted_;
  const bool verbose_;
  std::mt19937_64 random_;
  runtime::LeafCache cache_{{}, nullptr, nullptr};
  std::map<std::pair<std::string, FaultKind>, Counts> counts_;
  std::vector<std::string> complaints_;
};

int run(int faults, uint64_t seed, const std::string& only, bool verbose, bool as_json) {
  auto beds = make_beds(only);
  if (!beds.ok()) {
    fmt::print(stderr, "{}\n", beds.status().to_string());
    return 2;
  }
  Campaign campaign(faults, seed, verbose);
  std::map<std::string, std::vector<Bed*>> groups;
  for (Bed& bed : *beds) groups[bed.group].push_back(&bed);
  for (const auto& [group, members] : groups) campaign.run(members);
  return campaign.report(as_json);
}

}  // namespace
}  // namespace lathe::safety

int main(int argc, char** argv) {
  CLI::App app("Faults in the Kernels of language models against the oracle");
  int faults = 200;
  uint64_t seed = 1;
  std::string only;
  bool verbose = false, as_json = false;
  app.add_option("--faults", faults, "Faults of each family");
  app.add_option("--seed", seed, "Seed of all random choices");
  app.add_option("--only", only, "Families whose name has this in it");
  app.add_flag("--verbose", verbose, "Every fault, and what was said of it");
  app.add_flag("--json", as_json, "One object at the end");
  CLI11_PARSE(app, argc, argv);
  return lathe::safety::run(faults, seed, only, verbose, as_json);
}
