// See store_merge.h.
#include "runtime/store/store_merge.h"

#include <tuple>

#include "ir/analysis/analysis.h"
#include "runtime/store/decision.h"

namespace lathe::runtime {
namespace {

// Smaller is better: measured before provisional, then by hash. A text that does not parse is worst.
std::tuple<int, std::string> rank(ObjectKind kind, const std::string& payload) {
  int founded = 0;
  if (kind == ObjectKind::k_decision) {
    const ir::Result<Decision> decision = parse_decision(payload);
    founded = !decision.ok() ? 2 : decision->status == DecisionStatus::provisional ? 1 : 0;
  }
  return {founded, ir::content_hash(payload.data(), payload.size())};
}

}  // namespace

MergeReport merge_store(Store& from, Store& into) {
  MergeReport report;
  for (const StoredObject& o : from.list(true)) {
    // Profiles are of one machine; models are made from rows.
    if (o.key.kind == ObjectKind::k_profile || o.key.kind == ObjectKind::k_model) continue;
    const Lookup theirs = o.ok ? from.find(o.key) : Lookup{};
    if (!theirs.found) {
      ++report.refused[miss_reason_name(o.ok ? theirs.reason : o.reason)];
      continue;
    }
    const Lookup ours = into.find(o.key);
    if (ours.found && ours.bytes == theirs.bytes) {
      ++report.same;
      continue;
    }
    if (ours.found && rank(o.key.kind, ours.bytes) <= rank(o.key.kind, theirs.bytes)) {
      ++report.kept;
      continue;
    }
    std::string detail;
    const ir::Result<bool> written = into.put(o.key, theirs.bytes, &detail);
    if (!written.ok() || !*written) {
      ++report.refused[written.ok() ? detail : written.status().message()];
    } else {
      ++(ours.found ? report.replaced : report.copied);
    }
  }
  return report;
}

}  // namespace lathe::runtime
