// Context: see context.h.
#include "runtime/serve/context.h"

#include <algorithm>

#include "jit/host/host_cpu.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/device_code.h"
#include "runtime/measure/machine_profile.h"
#include "search/moves/schedule.h"

namespace lathe::runtime {

using ir::OptionId;
using ir::Result;

namespace {

ir::Target capped_target(const ir::Options& options) {
  const ir::Target& host = jit::host_target();
  const std::optional<ir::IsaLevel> cap = ir::parse_isa(options.text(OptionId::max_isa));
  return cap ? host.cap(*cap) : host;
}

StoreMode store_mode(const ir::Options& options) {
  const std::string& mode = options.text(OptionId::cache);
  if (mode == "off") return StoreMode::off;
  return mode == "ro" ? StoreMode::read_only : StoreMode::read_write;
}

jit::ExecMode exec_mode(const ir::Options& options) {
  const std::string& mode = options.text(OptionId::execmem);
  if (mode == "dual") return jit::ExecMode::dual;
  if (mode == "flip") return jit::ExecMode::flip;
  return mode == "off" ? jit::ExecMode::off : jit::ExecMode::automatic;
}

Seal seal_mode(const ir::Options& options) { return static_cast<Seal>(options.integer(OptionId::seal)); }

}  // namespace

Result<std::shared_ptr<Context>> Context::create(ContextConfig config) {
  std::shared_ptr<Context> ctx(new Context);
  const ir::Options& options = config.options;
  ctx->target_ = capped_target(options);
  ctx->home_ = {decision_environment(machine_fields(ctx->target_)), kCodegenEpoch};
  StoreOptions store;
  store.layers = config.layers;
  store.cache_dir = options.text(OptionId::cache_dir);
  store.xdg_cache_home = ir::process_environment("XDG_CACHE_HOME").value_or("");
  store.home = ir::process_environment("HOME").value_or("");
  store.mode = store_mode(options);
  LATHE_ASSIGN(ctx->store_, Store::open(store, &ctx->stats_));
  LeafCacheOptions leaves;
  leaves.exec_mode = exec_mode(options);
  leaves.code_bytes = static_cast<size_t>(options.integer(OptionId::code_mb)) << 20;
  leaves.plugin_dir = options.text(OptionId::plugin_dir);
  leaves.profile = static_cast<int>(options.integer(OptionId::profile));
  leaves.dump = options.text(OptionId::dump);
  leaves.filter = options.text(OptionId::filter);
  leaves.verify = static_cast<int>(options.integer(OptionId::verify));
  leaves.verbose = static_cast<Verbosity>(options.integer(OptionId::verbose));
  leaves.compiler = config.compiler;
  if (!config.binder) config.binder = std::mem_fn(&Executable::bind);
  ctx->leaves_ = std::make_unique<LeafCache>(leaves, ctx->store_.get(), &ctx->stats_);
  ctx->device_codes_ = std::make_shared<DeviceCodes>(options.text(OptionId::nvrtc), ctx->store_.get(), &ctx->stats_);
  if (config.own_threads > 1) {
    ctx->team_ = std::make_unique<ThreadTeam>(TeamOptions{.threads = config.own_threads, .cpus = config.own_cpus});
    ctx->tasks_ = std::make_unique<TaskArena>(config.own_threads);
  }
  ctx->set_seal(seal_mode(options));
  ctx->config_ = std::move(config);
  return ctx;
}

void Context::set_seal(Seal seal) {
  seal_.store(seal, std::memory_order_relaxed);
  leaves_->set_sealed(seal != Seal::off);
}

Result<std::shared_ptr<CudaDevice>> Context::device(int number) const {
  return cuda_device(options().text(OptionId::cuda), number - 1);
}

LeafPolicy Context::leaf_policy() const {
  LeafPolicy policy;
  const Seal sealed = seal();
  policy.generate = policy.llvm = sealed == Seal::off;
  policy.portable = sealed != Seal::error || target_.level == ir::IsaLevel::portable;
  return policy;
}

ObjectKey Context::decision_object(const DecisionQuery& query) const {
  GraphFields graph;
  graph.structure = query.structure;
  graph.allowed_classes = query.allowed;
  RequestFields request;
  request.semantic_key = semantic_key(graph).hash;
  request.threads = query.threads;
  request.cache = query.cold ? "cold" : "hot";
  return {ObjectKind::k_decision, home_of(query).environment.hash,
          decision_name(decision_base(request).hash, query.ranges)};
}

std::optional<Decision> Context::find_decision(const DecisionQuery& query, MissReason* reason) {
  const ObjectKey key = decision_object(query);
  const DecisionHome& home = home_of(query);
  const Lookup found = store_->find(key);
  if (!found.found) {
    if (reason != nullptr) *reason = found.reason;
    return std::nullopt;
  }
  Result<Decision> decision = parse_decision(found.bytes);
  std::optional<MissReason> fault;
  if (!decision.ok() || decision->key != key.name) {
    fault = MissReason::k_corrupt;
  } else if (decision->environment != home.environment.hash) {
    fault = MissReason::k_environment;
  } else if (decision->epoch != home.epoch) {
    fault = MissReason::k_epoch;
  }
  if (!fault) return std::move(*decision);
  if (reason != nullptr) *reason = *fault;
  store_->reject(key, found, *fault);
  return std::nullopt;
}

void Context::reject_decision(const DecisionQuery& query, MissReason reason) {
  store_->reject(decision_object(query), {}, reason);
}

void Context::record_decision(const DecisionQuery& query, Decision decision) {
  const ObjectKey key = decision_object(query);
  const DecisionHome& home = home_of(query);
  decision.key = key.name;
  decision.environment = home.environment.hash;
  decision.epoch = home.epoch;
  const Result<search::Schedule> schedule = search::parse_schedule(decision.schedule);
  decision.numeric = schedule.ok() ? schedule->numeric : 0;
  // A record that cannot be written lives in memory; the store counts it.
  (void)store_->put({ObjectKind::k_env, "", home.environment.hash}, home.environment.text);
  (void)store_->put(key, print_decision(decision));
}

std::vector<std::vector<SymbolRange>> Context::decision_ranges(DecisionQuery query) {
  query.ranges.clear();
  std::vector<std::vector<SymbolRange>> out;
  for (const std::string& name :
       store_->names(ObjectKind::k_decision, home_of(query).environment.hash, decision_object(query).name + "-")) {
    if (auto ranges = runtime::decision_ranges(name)) out.push_back(std::move(*ranges));
  }
  return out;
}

void Context::forget_decision(const DecisionQuery& query) { (void)store_->remove(decision_object(query)); }

std::string Context::find_profile() {
  const Lookup stored = store_->find({ObjectKind::k_profile, "", home_.environment.hash});
  return stored.found ? stored.bytes : described_profile();
}

void Context::record_profile(const std::string& text) {
  (void)store_->put({ObjectKind::k_profile, "", home_.environment.hash}, text);
}

}  // namespace lathe::runtime
