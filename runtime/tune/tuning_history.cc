// See tuning_history.h.
#include "runtime/tune/tuning_history.h"

#include <fmt/format.h>

#include <iterator>

#include "ir/analysis/analysis.h"
#include "ir/base/line_reader.h"
#include "runtime/store/store_frame.h"
#include "search/model/starter_pack.h"

namespace lathe::runtime {
namespace {

constexpr double kGrowth = 1.2;  // of rows, until a model is trained again

int64_t rows_in(const std::vector<search::TaskRecord>& history) {
  int64_t rows = 0;
  for (const search::TaskRecord& r : history) rows += static_cast<int64_t>(r.rows.size());
  return rows;
}

ObjectKey model_key(const std::string& family, const std::string& environment) {
  return {ObjectKind::k_model, environment, family + "-trees"};
}

double trust_of(const search::TaskRecord& record, const std::string& environment) {
  const bool own = record.environment == environment, fresh = record.epoch == kCodegenEpoch;
  return (own ? 1 : kForeignTrust) * (fresh ? 1 : kStaleTrust);
}

void load_group(Store& store, const std::string& family, const std::string& sub, const std::string& environment,
                std::vector<search::TaskRecord>* out) {
  for (const std::string& name : store.names(ObjectKind::k_rows, sub, family + "-")) {
    const ObjectKey key{ObjectKind::k_rows, sub, name};
    const Lookup found = store.find(key);
    if (!found.found) continue;
    ir::Result<search::TaskRecord> record = search::parse_record(found.bytes);
    if (!record.ok() || record->problem.kernel.family != family || record->environment != sub) {
      store.reject(key, found, MissReason::k_corrupt);
      continue;
    }
    record->trust = trust_of(*record, environment);
    out->push_back(std::move(*record));
  }
}

}  // namespace

ir::Result<bool> publish_rows(Store& store, const search::TaskRecord& record) {
  const std::string& family = record.problem.kernel.family;
  if (family.size() < 2 || !valid_object_name(family) || !valid_object_name(record.environment))
    return ir::invalid("rows without a family or an environment");
  const std::string text = search::print_record(record);
  const std::string name = fmt::format("{}-{}-{:016x}", family, search::task_name(record.problem), ir::hash_text(text));
  return store.put({ObjectKind::k_rows, record.environment, name}, text);
}

std::vector<search::TaskRecord> load_history(Store& store, const std::string& family, const std::string& environment) {
  std::vector<search::TaskRecord> out;
  if (family.size() < 2) return out;
  load_group(store, family, environment, environment, &out);
  for (const std::string& sub : store.groups(ObjectKind::k_rows)) {
    if (sub != environment) load_group(store, family, sub, environment, &out);
  }
  for (const search::TaskRecord& r : search::starter_pack()) {
    if (r.problem.kernel.family != family) continue;
    out.push_back(r);
    out.back().trust = trust_of(r, environment);
  }
  return out;
}

std::string print_family_model(const FamilyModel& m, std::string_view family) {
  const search::MachineRates& r = m.rates;
  const search::ModelSource& s = m.model.source();
  return fmt::format("model 1\nfamily {}\nhistory {} {} {} {}\nrates {} {} {} {} {} {} {} {}\n{}", family, m.rows,
                     s.tasks, s.local_tasks, s.rows, r.flops, r.l1, r.l2, r.l3, r.dram, r.call_us, r.task_us,
                     r.barrier_us, m.model.base().print());
}

ir::Result<FamilyModel> parse_family_model(std::string_view text, std::string_view family) {
  ir::LineReader in(text);
  FamilyModel m;
  if (in.line("model") != "1") in.fail("expected 'model 1'");
  if (in.line("family") != family) in.fail("of another family");
  std::string_view l = in.line("history");
  search::ModelSource source;
  m.rows = in.number<int64_t>(in.word(&l));
  source.tasks = in.number<int>(in.word(&l));
  source.local_tasks = in.number<int>(in.word(&l));
  source.rows = in.number<int>(in.word(&l));
  in.done(l);
  l = in.line("rates");
  search::MachineRates& r = m.rates;
  for (double* rate : {&r.flops, &r.l1, &r.l2, &r.l3, &r.dram, &r.call_us, &r.task_us, &r.barrier_us}) {
    *rate = in.number<double>(in.word(&l));
    if (!(*rate > 0)) in.fail("a rate that is not positive");
  }
  in.done(l);
  if (!in.ok()) return in.status();
  LATHE_ASSIGN(search::BoostedTrees trees, search::BoostedTrees::parse(in.rest()));
  m.model = search::CostModel(std::move(trees), source);
  return m;
}

std::optional<FamilyModel> stored_model(Store& store, const std::string& family, const std::string& environment) {
  const ObjectKey key = model_key(family, environment);
  const Lookup found = store.find(key);
  if (!found.found) return {};
  ir::Result<FamilyModel> stored = parse_family_model(found.bytes, family);
  if (!stored.ok()) {
    store.reject(key, found, MissReason::k_corrupt);
    return {};
  }
  return std::move(*stored);
}

FamilyModel family_model(Store& store, const std::string& family, const std::string& environment,
                         const std::vector<search::TaskRecord>& history, const ir::Target& target,
                         const search::MachineRates& measured, uint64_t seed) {
  FamilyModel m;
  m.rows = rows_in(history);
  std::optional<FamilyModel> stored = stored_model(store, family, environment);
  if (stored && m.rows >= stored->rows && static_cast<double>(m.rows) < kGrowth * static_cast<double>(stored->rows))
    return std::move(*stored);
  m.trained = true;
  m.rates = measured;
  m.model = search::train_model(history, target, m.rates, seed);
  // One that cannot be written is trained again next time; the store counts it.
  if (m.model.trusted()) (void)store.put(model_key(family, environment), print_family_model(m, family));
  return m;
}

MachineProfile machine_profile(Context& context) {
  // What lacks something was measured by an older version.
  const auto whole = [&](const MachineProfile& p) {
    return p.get("call_ns") > 0 && p.peak(ir::DType::i8, context.target()).gflops > 0 &&
           p.peak(ir::DType::bf16, context.target()).gflops > 0;
  };
  if (ir::Result<MachineProfile> stored = parse_profile(context.find_profile()); stored.ok() && whole(*stored))
    return std::move(*stored);
  MachineProbe probe;
  MachineProfile profile = measure_profile(probe, context.target());
  context.record_profile(to_text(profile));
  return profile;
}

}  // namespace lathe::runtime
