// lathe explain: how operators are served and why.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "runtime/tune/explain.h"
#include "tools/on_device.h"
#include "tools/table.h"

namespace lathe::tools {
namespace {

using nlohmann::json;
using runtime::ExplainedKernel;

struct ExplainFlags : CommonOptions {
  std::string manifest, op, shape, device;
  int refusals = 20;
};

void print_text(const std::string& title, const std::string& text) {
  fmt::print("--- {}\n{}{}", title, text, text.empty() || text.back() == '\n' ? "" : "\n");
}

void print_kernel(const ExplainedKernel& e, size_t number, size_t count) {
  if (count > 1) fmt::print("=== kernel {} of {}\n", number + 1, count);
  print_text("naive kernel", e.naive);
  print_text(fmt::format("schedule (T{}, {})", e.tier, e.stored ? "stored decision" : "default"), e.schedule);
  if (!e.knobs.empty()) fmt::print("--- knobs of the recipe\n");
  for (const auto& k : e.knobs)
    fmt::print("{:<12}{} ({})\n", fmt::format("{}={}", k.knob.symbol, k.value), k.knob.name, k.knob.text);
  fmt::print("--- moves and what each follows from\n");
  size_t width = 0;
  for (const auto& m : e.moves) width = std::max(width, m.move.size());
  for (const auto& m : e.moves) fmt::print("{:<{}}  ; {}\n", m.move, width, m.why);
  fmt::print("--- time\npredicted {} us by the analytic model, measured {} us, the default {} us\n",
             us_text(e.predicted_us), us_text(e.measured_us), us_text(e.measured_default_us));
  print_text("scheduled kernel", e.scheduled);
  print_text("nest", e.nest);
  for (size_t l = 0; l < e.leaves.size(); ++l)
    print_text(fmt::format("leaf {} ({})", l, e.leaves[l].key), e.leaves[l].text);
  if (e.stored) {
    print_text("decision", e.decision);
  } else {
    print_text("store", "miss: " + e.miss + (e.difference.empty() ? "" : "\nfirst difference: " + e.difference));
  }
  if (e.refusals.empty()) return;
  fmt::print("--- moves refused on the scheduled kernel\n");
  for (const auto& [move, reason] : e.refusals) fmt::print("{}: {}\n", move, reason);
}

json kernel_json(const ExplainedKernel& e) {
  json leaves = json::array(), refusals = json::array(), moves = json::array(), knobs = json::array();
  for (const auto& k : e.knobs)
    knobs.push_back({{"symbol", k.knob.symbol}, {"name", k.knob.name}, {"value", k.value}, {"text", k.knob.text}});
  for (const auto& m : e.moves) moves.push_back({{"move", m.move}, {"why", m.why}, {"picture", m.picture}});
  for (const auto& l : e.leaves) leaves.push_back({{"key", l.key}, {"text", l.text}});
  for (const auto& [move, reason] : e.refusals) refusals.push_back({{"move", move}, {"reason", reason}});
  return {{"tier", tier_name(e.tier)},
          {"kernel", e.naive},
          {"schedule", e.schedule},
          {"scheduled", e.scheduled},
          {"nest", e.nest},
          {"leaves", leaves},
          {"refusals", refusals},
          {"stored", e.stored},
          {"decision", e.decision},
          {"miss", e.miss},
          {"difference", e.difference},
          {"knobs", knobs},
          {"moves", moves},
          {"predicted_us", e.predicted_us > 0 ? json(e.predicted_us) : json()},
          {"measured_us", e.measured_us > 0 ? json(e.measured_us) : json()},
          {"default_us", e.measured_default_us > 0 ? json(e.measured_default_us) : json()}};
}

int run(const ExplainFlags& flags) {
  auto items = read_manifest(flags.manifest);
  if (!items.ok()) return fail(flags, items.status(), kUsage);
  if (!flags.op.empty()) std::erase_if(*items, [&](const ops::Workload& item) { return item.name != flags.op; });
  if (items->empty()) return fail(flags, ir::invalid("--op: {} is not in {}", flags.op, flags.manifest), kUsage);
  const auto shape = parse_shape(flags.shape, symbols_of(*items));
  if (!shape.ok()) return fail(flags, shape.status(), kUsage);
  if (!flags.device.empty()) {
    ExplainOnDevice on;
    static_cast<CommonOptions&>(on) = flags;
    on.device = flags.device;
    on.shape = *shape;
    return explain_on_device(on, *items);
  }
  auto context = make_context(flags);
  if (!context.ok()) return fail(flags, context.status(), kUsage);
  int explained = 0;
  for (const ops::Workload& item : *items) {
    auto graph = ops::finish(item.graph);
    if (!graph.ok()) return fail(flags, graph.status(), kUsage);
    auto op = runtime::Operator::create(*context, *graph);
    if (!op.ok()) return fail(flags, op.status(), kFailed);
    runtime::PrepareRequest request;
    request.threads = flags.threads > 0 ? flags.threads : item.threads;
    request.cold = item.cache == ops::CacheState::cold;
    request.allowed = item.allowed;
    // One shape: the first hint, or what --shape says.
    const auto dims = shaped(item, {(*op)->hinted_dims()[0]}, *shape);
    if (!dims.ok()) return fail(flags, dims.status(), kUsage);
    const auto kernels = runtime::explain(**op, (*dims)[0], request, flags.refusals);
    if (!kernels.ok()) return fail(flags, kernels.status().with_context(item.name), kFailed);
    ++explained;
    if (flags.json) {
      for (size_t k = 0; k < kernels->size(); ++k) {
        json line = json_event(flags, "row");
        line["op"] = item.name;
        line["dims"] = json_dims(item, (*dims)[0]);
        line["fusion"] = (*op)->lowered().kernels[k].fusion_note;
        line.update(kernel_json((*kernels)[k]));
        print_json(line);
      }
      continue;
    }
    fmt::print("{} {}\n", item.name, dims_text(item, (*dims)[0]));
    for (size_t k = 0; k < kernels->size(); ++k) print_kernel((*kernels)[k], k, kernels->size());
  }
  if (flags.json) {
    json line = json_event(flags, "summary");
    line["ops"] = explained;
    print_json(line);
  }
  return kDone;
}

}  // namespace

const Verb kExplain = {
    "explain", "How operators are served, and why", [](CLI::App& app) -> std::function<int()> {
      auto f = std::make_shared<ExplainFlags>();
      add_common(app, f.get());
      app.add_option("manifest", f->manifest, "JSON Lines; - reads the standard input")->required();
      app.add_option("--op", f->op, "Only the operator of this name");
      app.add_option("--shape", f->shape, "M=3,L=128; default: the first hints");
      add_device(app, &f->device);
      app.add_option("--refusals", f->refusals, "Most refused moves to list")->check(CLI::Range(0, 10000));
      return [f] { return run(*f); };
    }};

}  // namespace lathe::tools
