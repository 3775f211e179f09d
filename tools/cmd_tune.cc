// lathe tune: a workload searched deeply: measurements go where time and expected gain are largest, the whole is
// checked in the end.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "ir/base/file_limit.h"
#include "runtime/base/read_file.h"
#include "runtime/measure/machine_profile.h"
#include "runtime/tune/warmup.h"
#include "tools/cli.h"
#include "tools/html_report.h"
#include "tools/table.h"

namespace lathe::tools {
namespace {

using nlohmann::json;
using runtime::WarmupReport;
using runtime::WarmupRow;

struct TuneOptions : CommonOptions {
  std::string manifest, shard = "0/1", spec, report;
  double budget = 600, ram = 4096;
  int candidates = 64, first = 4, quantum = 4, measurements = 0;
  bool force = false, no_check = false, dry_run = false;
};

// "i/n" with 0 <= i < n.
ir::Status parse_shard(const std::string& text, runtime::WarmupBudget* budget) {
  int used = 0;
  const bool shaped = std::sscanf(text.c_str(), "%d/%d%n", &budget->shard, &budget->shards, &used) == 2 &&
                      text.size() == static_cast<size_t>(used);
  if (!shaped || budget->shards < 1 || budget->shard < 0 || budget->shard >= budget->shards) {
    return ir::invalid("--shard: {}, expected i/n with 0 <= i < n", text);
  }
  return {};
}

json row_json(const TuneOptions& options, const WarmupRow& row) {
  json line = json_event(options, "row");
  line["op"] = row.item->name;
  line["dims"] = json_dims(*row.item, row.dims);
  line["threads"] = row.threads;
  line["measured"] = row.measurements;
  line["search_ms"] = row.search_ms;
  line["best_us"] = row.us > 0 ? json(row.us) : json();
  line["default_us"] = row.default_us > 0 ? json(row.default_us) : json();
  line["of_roofline"] = row.of_roofline > 0 ? json(row.of_roofline) : json();
  line["verdict"] = row.verdict;
  line["schedule"] = row.schedule;
  line["curve"] = row.curve;
  line["expected"] = row.expected;
  if (!row.note.empty()) line["note"] = row.note;
  return line;
}

json report_json(const TuneOptions& options, const WarmupReport& r) {
  json line = json_event(options, "summary");
  line["ops"] = r.ops;
  line["rows"] = r.rows;
  line["searches"] = r.searches;
  line["measurements"] = r.measurements;
  line["further_samples"] = r.further;
  line["rejected"] = r.rejected_by;
  line["promoted"] = r.promoted;
  line["ties"] = r.ties;
  line["dropped"] = r.dropped;
  line["unmeasured"] = r.unmeasured;
  line["pending"] = r.pending;
  line["between"] = r.between;
  line["failed"] = r.failed;
  line["gain_geomean"] = r.gain_geomean;
  line["default_us"] = r.default_us;
  line["tuned_us"] = r.tuned_us;
  line["check"] = {{"groups", r.check_groups},     {"valid", r.check_valid_groups},
                   {"left_out", r.check_left_out}, {"default_us", r.checked_default_us},
                   {"tuned_us", r.checked_us},     {"note", r.check_note}};
  line["wall_ms"] = r.wall_ms;
  line["digest"] = r.digest;
  return line;
}

std::string report_text(const WarmupReport& r) {
  std::string out = fmt::format(
      "{} operators: {} searches, {} measurements and {} samples to decide; {} won, {} ties, {} unmeasured\n", r.ops,
      r.searches, r.measurements, r.further, r.promoted, r.ties, r.unmeasured);
  std::string rejected;
  for (const auto& [reason, n] : r.rejected_by)
    rejected += fmt::format("{}{} {}", rejected.empty() ? "" : ", ", n, reason);
  out += fmt::format("candidates not timed: {}\n", rejected.empty() ? "none" : rejected);
  if (r.tuned_us > 0) {
    out += fmt::format("against the default schedules: {} as fast in the geometric mean, {} by weight\n",
                       ratio_text(r.gain_geomean), ratio_text(r.default_us / r.tuned_us));
  }
  if (r.check_groups > 0) {
    const std::string gain = r.checked_us > 0 ? ratio_text(r.checked_default_us / r.checked_us) : "-";
    out += fmt::format(
        "the whole, run in order: {} of {} sizes judged, {} calls left out, {} as fast, {} winners dropped\n",
        r.check_valid_groups, r.check_groups, r.check_left_out, gain, r.dropped);
  }
  if (!r.check_note.empty()) out += fmt::format("the whole was not checked: {}\n", r.check_note);
  return out + fmt::format("{} failed; {:.1f} s; digest {}\n", r.failed, r.wall_ms / 1000, r.digest);
}

ReportOp report_op(const WarmupRow& row) {
  ReportOp o;
  o.op = row.item->name;
  o.dims = dims_text(*row.item, row.dims);
  o.schedule = row.schedule;
  o.verdict = row.verdict;
  o.default_us = row.default_us;
  o.best_us = row.us;
  o.of_roofline = row.of_roofline;
  o.flops = row.flops;
  o.bytes = row.bytes;
  o.weight = row.weight;
  o.measurements = row.measurements;
  o.curve = row.curve;
  o.expected = row.expected;
  return o;
}

ir::Status write_report(const std::string& path, ReportPage page, const runtime::Context& context,
                        const std::string& profile_text, const WarmupReport& report) {
  page.machine = context.target().to_string();
  if (const auto profile = runtime::parse_profile(profile_text); profile.ok()) {
    page.peak_gflops = profile->get(runtime::peak_name(context.target()));
    page.read_gbs = profile->get("read_memory");
  }
  page.seconds = report.wall_ms / 1000;
  page.measurements = report.measurements;
  const ir::FileLimitGuard guard;
  std::ofstream out(path, std::ios::trunc);
  out << html_report(page);
  out.flush();
  return out ? ir::Status() : ir::invalid("--report: {} cannot be written", path);
}

int run(const TuneOptions& options) {
  runtime::WarmupBudget budget;
  if (const ir::Status shard = parse_shard(options.shard, &budget); !shard.ok()) return fail(options, shard, kUsage);
  const auto items = read_manifest(options.manifest);
  if (!items.ok()) return fail(options, items.status(), kUsage);
  search::TuningSpec spec;
  if (!options.spec.empty()) {
    const auto text = read_input(options.spec);
    if (!text.ok()) return fail(options, text.status(), kUsage);
    auto parsed = search::parse_tuning_spec(*text);
    if (!parsed.ok()) return fail(options, runtime::in_file(options.spec, parsed.status()), kUsage);
    spec = std::move(*parsed);
    spec.file = options.spec;
    budget.spec = &spec;
  }
  int threads = options.threads;
  for (const ops::Workload& item : *items)
    threads = std::max(threads, options.threads > 0 ? options.threads : item.threads);
  auto context = make_context(options, threads);
  if (!context.ok()) return fail(options, context.status(), kUsage);
  catch_interrupts();

  budget.wall_ms = options.dry_run ? 0 : 1000 * options.budget;
  budget.ram = static_cast<int64_t>(options.ram * (1 << 20));
  budget.candidates = options.candidates;
  budget.first_look = options.first;
  budget.quantum = options.quantum;
  budget.measurements = options.measurements;
  budget.force = options.force;
  budget.check_whole = !options.no_check && !options.dry_run;
  budget.threads = options.threads;
  budget.seed = options.seed;
  budget.cancelled = [] { return interrupted().load(); };

  Bar bar(!options.json);
  Table table({"op", "dims", "verdict", ">measured", "schedule", ">us", ">default", ">gain", ">roofline", "note"});
  ReportPage page;
  page.title = "Tuning " + options.manifest;
  runtime::WarmupObserver observer;
  observer.row = [&](const WarmupRow& row) {
    page.ops.push_back(report_op(row));
    if (options.json) return print_json(row_json(options, row));
    const std::string gain = row.us > 0 ? ratio_text(row.default_us / row.us) : "-";
    table.row({row.item->name, dims_text(*row.item, row.dims), row.verdict, fmt::format("{}", row.measurements),
               row.schedule, us_text(row.us), us_text(row.default_us), gain, percent_text(row.of_roofline), row.note});
  };
  observer.progress = [&](const runtime::WarmupProgress& p) {
    if (options.json) {
      json line = json_event(options, "progress");
      line["op"] = p.item->name;
      line["dims"] = json_dims(*p.item, p.dims);
      line["done"] = p.weight_done;
      line["best_us"] = p.best_us;
      line["default_us"] = p.default_us;
      line["wall_ms"] = p.wall_ms;
      return print_json(line);
    }
    const double eta = p.weight_done > 0 ? p.wall_ms * (1 / p.weight_done - 1) / 1000 : 0;
    bar.update(p.weight_done, fmt::format("{} {}  {} us (default {})  {:.0f} s left", p.item->name,
                                          dims_text(*p.item, p.dims), us_text(p.best_us), us_text(p.default_us),
                                          std::min(eta, options.budget - p.wall_ms / 1000)));
  };
  observer.failed = [&](const ops::Workload& item, const ir::Status& status) {
    bar.clear();
    (void)fail(options, of_operator(item, status), kFailed);
  };
  const auto report = runtime::run_warmup(*context, *items, budget, observer);
  bar.clear();
  if (!report.ok()) return fail(options, report.status(), kFailed);
  const int lost = kept(options, **context);
  if (!options.report.empty()) {
    const ir::Status written =
        write_report(options.report, std::move(page), **context, (*context)->find_profile(), *report);
    if (!written.ok()) return fail(options, written, kUsage);
  }
  if (options.json) {
    print_json(report_json(options, *report));
  } else {
    fmt::print("{}\n{}", table.text(), report_text(*report));
  }
  if (report->failed > 0 || lost != kDone) return kFailed;
  if (report->pending == 0 || options.dry_run) return kDone;
  say(fmt::format(
      "lathe tune: {}; {} of the searches are left. What was found is kept: run the same command again to go on.",
      report->cancelled ? "interrupted" : "the budget is spent", report->pending));
  return kSpent;
}

}  // namespace

const Verb kTune = {
    "tune", "Search a workload deeply and check it as a whole", [](CLI::App& app) -> std::function<int()> {
      auto o = std::make_shared<TuneOptions>();
      add_common(app, o.get());
      add_jobs(app, o.get());
      app.add_option("manifest", o->manifest, "JSON Lines; - reads the standard input")->required();
      app.add_option("--budget", o->budget, "Seconds of searching")->check(number_up_to(kMostSeconds));
      app.add_option("--candidates", o->candidates, "Most measurements per kernel and range")
          ->check(CLI::Range(1, 2000));
      app.add_option("--first", o->first, "Measurements of each kernel's first look")->check(CLI::Range(1, 2000));
      app.add_option("--quantum", o->quantum, "Measurements at a time after that")->check(CLI::Range(1, 2000));
      app.add_option("--measurements", o->measurements, "Most measurements of the whole run; 0: no limit")
          ->check(CLI::Range(0, 1'000'000'000));
      app.add_option("--ram", o->ram, "MiB of operands beyond which a shape is not timed")
          ->check(number_up_to(kMostMiB));
      app.add_option("--shard", o->shard,
                     "i/n: only this share of the kernels; stores of shards are merged by lathe store merge");
      app.add_option("--spec", o->spec, "Tuning spec: what it matches is pinned, not searched");
      app.add_option("--report", o->report, "Write a self-contained HTML page");
      app.add_flag("--force", o->force, "Search again what is stored");
      app.add_flag("--no-check", o->no_check, "Skip the check of the whole workload");
      app.add_flag("--dry-run", o->dry_run, "List what would be searched");
      return [o] { return run(*o); };
    }};

}  // namespace lathe::tools
