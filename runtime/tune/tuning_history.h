// What was measured, and the model made from it, in the store: rows published as one immutable file per task and run,
// read back with their trust; the family's trees as a derived object. Damaged or foreign files are counted misses,
// never errors. Thread-safe.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/measure/machine_profile.h"
#include "runtime/serve/context.h"
#include "search/model/cost_model.h"

namespace lathe::runtime {

// Trust of rows by where and when they were measured (docs/search.md).
inline constexpr double kForeignTrust = 0.25, kStaleTrust = 0.5;

// Publishes to memory and the first writable layer as rows/<environment>/<family>-<task>-<hash of the text>: the same
// run published twice is one file. record.environment and epoch are taken as they stand. False: it lives in memory
// only. INVALID: no family or environment, or a record above the store's limit.
ir::Result<bool> publish_rows(Store& store, const search::TaskRecord& record);

// All rows of a family: this environment's, other environments', then the starter pack's, each with its trust; by name,
// so that the order does not depend on who wrote first.
std::vector<search::TaskRecord> load_history(Store& store, const std::string& family, const std::string& environment);

// A family's model with the rates its features were computed with: they go together.
struct FamilyModel {
  search::CostModel model;
  search::MachineRates rates;
  int64_t rows = 0;      // of history when it was trained
  bool trained = false;  // now, not read
};
std::string print_family_model(const FamilyModel& model, std::string_view family);
ir::Result<FamilyModel> parse_family_model(std::string_view text, std::string_view family);

// The stored model if it is sound, however old.
std::optional<FamilyModel> stored_model(Store& store, const std::string& family, const std::string& environment);
// The stored one if history has not grown by 20 % (or shrunk) since; else trained now, and stored if it is trusted.
// Seconds at most; not for the request path.
FamilyModel family_model(Store& store, const std::string& family, const std::string& environment,
                         const std::vector<search::TaskRecord>& history, const ir::Target& target,
                         const search::MachineRates& measured, uint64_t seed = 1);

// The machine's ceilings: from the store, else measured once (1-2 s) and stored.
MachineProfile machine_profile(Context& context);

}  // namespace lathe::runtime
