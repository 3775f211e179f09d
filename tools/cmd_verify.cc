// lathe verify: operators of workloads, or random ones, compared with their definition on every tier, level and back
// end.
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "jit/program/backend.h"
#include "runtime/tune/device/device_verify.h"
#include "tools/on_device.h"
#include "tools/random_workload.h"
#include "tools/table.h"

namespace lathe::tools {
namespace {

using nlohmann::json;
using runtime::VerifyRow;

struct VerifyFlags : CommonOptions {
  std::vector<std::string> manifests;
  std::string shape, device;
  int random = 0;
  bool hints = false, whole = false;
};

std::string level_of(const VerifyFlags& flags, const VerifyRow& row) {
  return flags.device.empty() ? ir::isa_name(row.level) : "device " + flags.device;
}
std::string backend_of(const VerifyFlags& flags, const VerifyRow& row) {
  return flags.device.empty() ? jit::backend_name(row.backend) : "nvrtc";
}

json row_json(const VerifyFlags& flags, const VerifyRow& row) {
  json line = json_event(flags, "row");
  line["op"] = row.item->name;
  line["dims"] = json_dims(*row.item, row.dims);
  line["dtype"] = row.dtype;
  line["tier"] = tier_name(row.tier);
  line["level"] = level_of(flags, row);
  line["backend"] = backend_of(flags, row);
  line["gate"] = runtime::gate_name(row.gate);
  line["err_over_bound"] = row.err_over_bound;
  line["ok"] = row.ok;
  line["refused"] = row.refused;
  line["cut_down"] = row.cut_down;
  if (!row.ok) {
    line["reason"] = row.reason;
    line["schedule"] = row.schedule;
    line["repro"] = {{"workload", ops::to_json_line(*row.item)}, {"seed", flags.seed}};
  }
  return line;
}

// What is to be verified; kDone or an exit code.
int collect(const VerifyFlags& flags, std::vector<ops::Workload>* items) {
  for (const std::string& path : flags.manifests) {
    auto read = read_manifest(path);
    if (!read.ok()) return fail(flags, read.status(), kUsage);
    items->insert(items->end(), std::make_move_iterator(read->begin()), std::make_move_iterator(read->end()));
  }
  for (ops::Workload& w : random_workloads(flags.random, flags.seed)) items->push_back(std::move(w));
  if (items->empty()) return fail(flags, ir::invalid("expected a manifest or --random N"), kUsage);
  return kDone;
}

struct Counts {
  int checked = 0, failed = 0, refused = 0;
  double worst = 0;
  std::string gate;
};

int run(const VerifyFlags& flags) {
  std::vector<ops::Workload> items;
  if (const int code = collect(flags, &items); code != kDone) return code;
  const auto shape = parse_shape(flags.shape, symbols_of(items));
  if (!shape.ok()) return fail(flags, shape.status(), kUsage);
  auto context = make_context(flags, flags.threads);
  if (!context.ok()) return fail(flags, context.status(), kUsage);
  runtime::DeviceChoice on;
  if (!flags.device.empty()) {
    auto chosen = device_at_hand(**context, flags.device);
    if (!chosen.ok())
      return fail(flags, chosen.status(), chosen.status().code() == ir::Code::kINVALID ? kUsage : kFailed);
    on = std::move(*chosen);
  }
  catch_interrupts();
  Bar bar(!flags.json);
  runtime::VerifyReport total;
  Table failures({"op", "dims", "tier", "level", "back end", "reason"});
  std::map<std::string, Counts> summary;  // by tier, level, back end
  for (const ops::Workload& item : items) {
    if (interrupted()) break;
    runtime::VerifyOptions options;
    options.seed = flags.seed;
    options.threads = flags.threads;
    options.hints = flags.hints;
    if (flags.whole) options.flops = HUGE_VAL, options.bytes = INT64_MAX;
    options.cancel = &interrupted();
    if (!shape->empty()) {
      runtime::SymbolValues dims;
      for (const ops::DimDesc& d : item.dims)
        dims.emplace_back(ops::kernel_symbol(d.symbol), d.hints.empty() ? d.max : d.hints[0].value);
      const auto given = shaped(item, {dims}, *shape);
      if (!given.ok()) return fail(flags, given.status(), kUsage);
      options.dims = *given;
    }
    bar.update(static_cast<double>(&item - items.data()) / static_cast<double>(items.size()), item.name);
    const auto take = [&](const VerifyRow& row) {
      if (flags.json) return print_json(row_json(flags, row));
      const std::string level = level_of(flags, row), backend = backend_of(flags, row);
      Counts& c = summary[fmt::format("{} {} {}", tier_name(row.tier), level, backend)];
      c.checked += !row.refused;
      c.failed += !row.ok && !row.refused;
      c.refused += row.refused;
      c.worst = std::max(c.worst, row.err_over_bound);
      if (!row.ok)
        failures.row({row.item->name, dims_text(*row.item, row.dims), tier_name(row.tier), level, backend, row.reason});
    };
    const auto report = flags.device.empty() ? runtime::run_verify(*context, {item}, options, take)
                                             : runtime::run_device_verify(*context, {item}, on, options, take);
    if (!report.ok()) {
      ++total.failed;
      bar.clear();
      (void)fail(flags, report.status(), kFailed);
      continue;
    }
    total.checked += report->checked;
    total.failed += report->failed;
    total.refused += report->refused;
    total.worst_err_over_bound = std::max(total.worst_err_over_bound, report->worst_err_over_bound);
  }
  bar.clear();
  if (flags.json) {
    json line = json_event(flags, "summary");
    line["checked"] = total.checked;
    line["failed"] = total.failed;
    line["refused"] = total.refused;
    line["worst_err_over_bound"] = total.worst_err_over_bound;
    print_json(line);
  } else {
    Table table({"tier, level, back end", ">checked", ">failed", ">refused", ">worst err / bound"});
    for (const auto& [name, c] : summary) {
      table.row({name, fmt::format("{}", c.checked), fmt::format("{}", c.failed), fmt::format("{}", c.refused),
                 fmt::format("{:.3f}", c.worst)});
    }
    if (total.failed + total.refused > 0) fmt::print("{}\n", failures.text());
    fmt::print("{}\n{} operators, {} checks, {} failed, {} refused; worst err / bound {:.3f}\n", table.text(),
               items.size(), total.checked, total.failed, total.refused, total.worst_err_over_bound);
  }
  if (total.failed + total.refused > 0) return kFailed;
  if (interrupted()) return kSpent;
  if (total.checked > 0) return kDone;
  return fail(
      flags,
      ir::unsupported(
          "nothing was checked: every shape is beyond what the interpreter can follow; name a smaller one by --shape"),
      kFailed);
}

}  // namespace

const Verb kVerify = {"verify", "Compare operators with their definition", [](CLI::App& app) -> std::function<int()> {
                        auto f = std::make_shared<VerifyFlags>();
                        add_common(app, f.get());
                        add_jobs(app, f.get());
                        add_device(app, &f->device);
                        app.add_option("manifest", f->manifests, "JSON Lines");
                        app.add_option("--random", f->random, "Random operators")->check(CLI::Range(0, 1'000'000));
                        app.add_option("--shape", f->shape, "M=3,L=128: this shape only");
                        app.add_flag("--hints", f->hints, "The hinted shapes, too");
                        app.add_flag("--whole", f->whole, "However large: no size is cut down, no shape left out");
                        return [f] { return run(*f); };
                      }};

}  // namespace lathe::tools
