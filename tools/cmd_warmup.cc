// lathe warmup: a workload compiled, searched and stored, so that the next process serves it at once.
#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "runtime/tune/device/device_warmup.h"
#include "tools/on_device.h"
#include "tools/table.h"

namespace lathe::tools {
namespace {

using nlohmann::json;
using runtime::WarmupReport;
using runtime::WarmupRow;

struct WarmupOptions : CommonOptions {
  std::string manifest, device;
  double budget = 100, ram = 4096;
  int tier = 2;
  int candidates = 16;
  bool force = false;
};

json row_json(const WarmupOptions& options, const WarmupRow& row) {
  const ops::Workload& item = *row.item;
  json line = json_event(options, "row");
  line["op"] = item.name;
  line["dims"] = json_dims(item, row.dims);
  line["dtype"] = row.dtype;
  line["threads"] = row.threads;
  line["tier"] = tier_name(row.tier);
  line["origin"] = origin_name(row.origin);
  line["schedule"] = row.schedule;
  line["us"] = row.us > 0 ? json(row.us) : json();
  line["default_us"] = row.default_us > 0 ? json(row.default_us) : json();
  line["of_roofline"] = row.of_roofline > 0 ? json(row.of_roofline) : json();
  line["first_resolve_us"] = row.first_resolve_us;
  if (!row.note.empty()) line["note"] = row.note;
  return line;
}

json report_json(const WarmupOptions& options, const WarmupReport& r) {
  json line = json_event(options, "summary");
  line["ops"] = r.ops;
  line["rows"] = r.rows;
  line["from_store"] = r.from_store;
  line["compiled_xbyak"] = r.compiled_xbyak;
  line["compiled_llvm"] = r.compiled_llvm;
  line["compiled_nvrtc"] = r.compiled_nvrtc;
  line["searches"] = r.searches;
  line["measurements"] = r.measurements;
  line["failed"] = r.failed;
  line["rejected"] = r.rejected;
  line["ties"] = r.ties;
  line["unmeasured"] = r.unmeasured;
  line["pending"] = r.pending;
  line["between"] = r.between;
  line["llvm_mapped"] = runtime::llvm_mapped();
  line["first_resolve_us_max"] = r.first_resolve_us_max;
  line["wall_ms"] = r.wall_ms;
  line["digest"] = r.digest;
  return line;
}

int run(const WarmupOptions& options) {
  const auto items = read_manifest(options.manifest);
  if (!items.ok()) return fail(options, items.status(), kUsage);
  auto context = make_context(options);
  if (!context.ok()) return fail(options, context.status(), kUsage);
  catch_interrupts();

  runtime::WarmupBudget budget;
  budget.wall_ms = 1000 * options.budget;
  budget.ram = static_cast<int64_t>(options.ram * (1 << 20));
  budget.tier = options.tier;
  budget.candidates = options.candidates;
  budget.force = options.force;
  budget.threads = options.threads;
  budget.seed = options.seed;
  budget.cancelled = [] { return interrupted().load(); };

  Bar bar(!options.json);
  Table table({"op", "dims", "tier", "from", "schedule", ">us", ">default", ">gain", ">roofline", "note"});
  runtime::WarmupObserver observer;
  observer.row = [&](const WarmupRow& row) {
    const ops::Workload& item = *row.item;
    if (options.json) return print_json(row_json(options, row));
    const std::string gain = row.us > 0 ? ratio_text(row.default_us / row.us) : "-";
    table.row({item.name, dims_text(item, row.dims), tier_name(row.tier), origin_name(row.origin), row.schedule,
               us_text(row.us), us_text(row.default_us), gain, percent_text(row.of_roofline), row.note});
  };
  observer.progress = [&](const runtime::WarmupProgress& p) {
    const ops::Workload& item = *p.item;
    if (options.json) {
      json line = json_event(options, "progress");
      line["op"] = item.name;
      line["dims"] = json_dims(item, p.dims);
      line["weight_done"] = p.weight_done;
      line["best_us"] = p.best_us;
      line["default_us"] = p.default_us;
      line["wall_ms"] = p.wall_ms;
      return print_json(line);
    }
    const double eta = p.weight_done > 0 ? p.wall_ms * (1 / p.weight_done - 1) / 1000 : 0;
    bar.update(p.weight_done, fmt::format("{} {}  {} us (default {})  {:.0f} s left", item.name,
                                          dims_text(item, p.dims), us_text(p.best_us), us_text(p.default_us), eta));
  };
  observer.failed = [&](const ops::Workload& item, const ir::Status& status) {
    bar.clear();
    (void)fail(options, of_operator(item, status), kFailed);
  };
  runtime::DeviceChoice on;
  if (!options.device.empty()) {
    auto chosen = device_of(**context, options.device);
    if (!chosen.ok())
      return fail(options, chosen.status(), chosen.status().code() == ir::Code::kINVALID ? kUsage : kFailed);
    on = std::move(*chosen);
  }
  const auto report = options.device.empty() ? runtime::run_warmup(*context, *items, budget, observer)
                                             : runtime::run_device_warmup(*context, *items, on, budget, observer);
  bar.clear();
  if (!report.ok()) return fail(options, report.status(), kFailed);
  const int lost = kept(options, **context);
  if (options.json) {
    print_json(report_json(options, *report));
  } else {
    fmt::print(
        "{}\n{} operators, {} from the store; compiled: {} by xbyak, {} by LLVM, {} by NVRTC; {} searches, {} "
        "measurements, {} ties\n",
        table.text(), report->ops, report->from_store, report->compiled_xbyak, report->compiled_llvm,
        report->compiled_nvrtc, report->searches, report->measurements, report->ties);
    fmt::print("{} failed, {} candidates rejected; slowest first resolve {:.0f} us of CPU time; {:.1f} s; digest {}\n",
               report->failed, report->rejected, report->first_resolve_us_max, report->wall_ms / 1000, report->digest);
  }
  if (report->failed > 0 || lost != kDone) return kFailed;
  if (report->pending == 0) return kDone;
  say(fmt::format(
      "lathe warmup: {}; {} of the searches are left. What was found is kept: run the same command again to go on.",
      report->cancelled ? "interrupted" : "the budget is spent", report->pending));
  return kSpent;
}

}  // namespace

const Verb kWarmup = {
    "warmup", "Compile, search and store a workload", [](CLI::App& app) -> std::function<int()> {
      auto o = std::make_shared<WarmupOptions>();
      add_common(app, o.get());
      add_jobs(app, o.get());
      add_device(app, &o->device);
      app.add_option("manifest", o->manifest, "JSON Lines; - reads the standard input")->required();
      app.add_option("--tier", o->tier, "1: default schedules; 2: search, too")->check(CLI::Range(1, 2));
      app.add_option("--budget", o->budget, "Seconds of searching")->check(number_up_to(kMostSeconds));
      app.add_option("--candidates", o->candidates, "Schedules tried per kernel and range")->check(CLI::Range(1, 1000));
      app.add_option("--ram", o->ram, "MiB of operands beyond which a shape is not timed")
          ->check(number_up_to(kMostMiB));
      app.add_flag("--force", o->force, "Search again what is stored");
      return [o] { return run(*o); };
    }};

}  // namespace lathe::tools
