// See workload_check.h. What serves untuned is what a context without a store serves.
#include "runtime/tune/workload_check.h"

#include <algorithm>
#include <map>

#include "runtime/bench/bench.h"

namespace lathe::runtime {
namespace {

using ir::Result;

constexpr double kSampleUs = 5'000;  // of many runs where one takes less

// Both bodies of one call with operands of their own. Weights lie once: the calls between evict them, as a model's do.
struct Pair {
  int call = -1;
  std::unique_ptr<Bench> benches[2];  // untuned, tuned
  TimedCalls run[2];
};

Result<std::shared_ptr<Context>> untuned_context(const Context& context, int threads) {
  ContextConfig config;
  config.options = context.options();
  config.own_threads = threads;
  LATHE_RETURN_IF_ERROR(config.options.set("cache", "off"));
  LATHE_RETURN_IF_ERROR(config.options.set("seal", "off"));
  return Context::create(std::move(config));
}

int64_t group_of(const CheckedCall& call) { return call.dims.empty() ? 0 : call.dims.begin()->second; }

std::string served(const BoundOp& bound) {
  std::string text;
  for (const BoundOp::Step& step : bound.steps) text += search::to_text(step.stage->stage.schedule);
  return text;
}

Result<Pair> make_pair(const CheckedCall& call, int index, const std::shared_ptr<Context>& untuned, int64_t ram,
                       bool* differs) {
  Pair pair;
  pair.call = index;
  LATHE_ASSIGN(std::shared_ptr<Operator> plain, Operator::create(untuned, call.op->graph()));
  LATHE_ASSIGN([[maybe_unused]] const PrepareInfo info, plain->stages().prepare(call.request));
  BenchOptions options;
  options.threads = call.request.threads;
  options.ram = ram;
  std::string text[2];
  for (const int tuned : {0, 1}) {
    const std::shared_ptr<Operator>& op = tuned ? call.op : plain;
    pair.benches[tuned] = std::make_unique<Bench>(op, options);
    LATHE_ASSIGN(pair.run[tuned], pair.benches[tuned]->calls(call.dims));
    LATHE_ASSIGN(const BoundOp* bound,
                 op->shapes().bound({.symbols = call.dims, .threads = call.request.threads, .packed = true}));
    text[tuned] = served(*bound);
  }
  *differs = text[0] != text[1];
  return pair;
}

}  // namespace

Result<WorkloadCheck> check_workload(const Context& context, const std::vector<CheckedCall>& calls,
                                     const WorkloadCheckOptions& options) {
  WorkloadCheck out;
  int threads = 1;
  std::map<int64_t, std::vector<int>> groups;
  for (size_t i = 0; i < calls.size(); ++i) {
    groups[group_of(calls[i])].push_back(static_cast<int>(i));
    threads = std::max(threads, calls[i].request.threads);
  }
  LATHE_ASSIGN(const std::shared_ptr<Context> untuned, untuned_context(context, threads));
  for (const auto& [value, members] : groups) {
    if (options.cancelled && options.cancelled()) break;
    std::vector<Pair> pairs;
    std::vector<ModelCall> model;
    for (const int i : members) {
      const CheckedCall& call = calls[static_cast<size_t>(i)];
      bool differs = false;
      Result<Pair> pair = make_pair(call, i, untuned, options.ram / static_cast<int64_t>(2 * members.size()), &differs);
      if (!pair.ok()) {
        ++out.left_out;
        continue;
      }
      pairs.push_back(std::move(*pair));
      ModelCall m;
      m.weight = call.weight;
      m.tuned_differs = differs;
      m.by_default = [run = pairs.back().run[0]] { return run(1); };
      m.tuned = [run = pairs.back().run[1]] { return run(1); };
      model.push_back(std::move(m));
    }
    if (pairs.empty()) continue;
    double once_us = 0;
    for (const ModelCall& m : model) once_us += m.by_default();
    ModelCheckRules rules = options.rules;
    rules.repeats = std::clamp(static_cast<int>(kSampleUs / std::max(once_us, 1.0)), 1, 256);
    rules.pairs = std::clamp(static_cast<int>(options.group_ms * 1e3 / std::max(2 * once_us * rules.repeats, 1.0)), 5,
                             rules.pairs);
    const ModelCheck check = check_model(model, rules);
    ++out.groups;
    out.valid_groups += check.valid;
    out.default_us += check.default_us;
    out.tuned_us += check.tuned_us;
    if (!check.valid) continue;
    for (const int d : check.dropped) out.dropped.push_back(pairs[static_cast<size_t>(d)].call);
  }
  std::sort(out.dropped.begin(), out.dropped.end());
  return out;
}

}  // namespace lathe::runtime
