// lathe store ls|check|merge|quarantine: what is in the store, whether it is intact, what shards of it found, and which
// candidates are kept out of every search.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/store/store_merge.h"
#include "tools/cli.h"
#include "tools/table.h"

namespace lathe::tools {
namespace {

using nlohmann::json;

int run(const CommonOptions& options, bool check) {
  auto context = make_context(options);
  if (!context.ok()) return fail(options, context.status(), kUsage);
  const runtime::Store& store = (*context)->store();
  int64_t bytes = 0;
  int bad = 0;
  std::map<std::string, int> reasons;
  Table table({"object", "kind", ">bytes", "layer", "state"});
  const std::vector<runtime::StoredObject> objects = store.list(check, (*context)->tasks());
  for (const runtime::StoredObject& o : objects) {
    bytes += o.bytes;
    const std::string reason = o.ok ? "" : runtime::miss_reason_name(o.reason);
    if (!o.ok) {
      ++bad;
      ++reasons[reason];
    }
    if (options.json) {
      json line = json_event(options, "row");
      line["object"] = o.path;
      line["kind"] = runtime::object_kind_name(o.key.kind);
      line["bytes"] = o.bytes;
      line["layer"] = o.layer;
      line["ok"] = o.ok;
      line["reason"] = o.ok ? json() : json(reason);
      if (!o.detail.empty()) line["detail"] = o.detail;
      print_json(line);
    } else if (!check || !o.ok) {
      const std::string state = o.ok               ? (check ? "ok" : "-")
                                : o.detail.empty() ? reason
                                                   : fmt::format("{}: {}", reason, o.detail);
      table.row({o.path, runtime::object_kind_name(o.key.kind), fmt::format("{}", o.bytes), fmt::format("{}", o.layer),
                 state});
    }
  }
  int unusable = 0;
  for (const auto& l : store.layers()) unusable += l.exists && !l.writable && l.mode != runtime::LayerMode::read_only;
  if (options.json) {
    json line = json_event(options, "summary");
    line["objects"] = objects.size();
    line["files"] = objects.size();
    line["bytes"] = bytes;
    line["bad"] = bad;
    line["reasons"] = reasons;
    print_json(line);
  } else {
    if (!check || bad > 0) fmt::print("{}\n", table.text());
    fmt::print("{} objects, {} KiB{}\n", objects.size(), bytes >> 10, check ? fmt::format(", {} bad", bad) : "");
    for (const auto& l : store.layers()) fmt::print("layer {}{}\n", l.path, l.exists ? "" : " (does not exist)");
    if (unusable > 0) fmt::print("{} layers are not writable\n", unusable);
  }
  return bad > 0 ? kFailed : kDone;
}

struct MergeOptions : CommonOptions {
  std::vector<std::string> from;
};

int merge(const MergeOptions& options) {
  auto context = make_context(options);
  if (!context.ok()) return fail(options, context.status(), kUsage);
  runtime::MergeReport total;
  for (const std::string& path : options.from) {
    runtime::Stats stats;
    runtime::StoreOptions layers;
    layers.layers = {{path, runtime::LayerMode::read_only}};
    const auto from = runtime::Store::open(layers, &stats);
    if (!from.ok()) return fail(options, from.status(), kUsage);
    if (!(*from)->layers()[0].exists) return fail(options, ir::invalid("{}: no store there", path), kUsage);
    const runtime::MergeReport one = runtime::merge_store(**from, (*context)->store());
    total.copied += one.copied;
    total.same += one.same;
    total.replaced += one.replaced;
    total.kept += one.kept;
    for (const auto& [reason, n] : one.refused) total.refused[reason] += n;
  }
  int refused = 0;
  for (const auto& [reason, n] : total.refused) refused += n;
  if (options.json) {
    json line = json_event(options, "summary");
    line["copied"] = total.copied;
    line["same"] = total.same;
    line["replaced"] = total.replaced;
    line["kept"] = total.kept;
    line["refused"] = total.refused;
    print_json(line);
  } else {
    fmt::print("{} objects copied, {} were there, {} replaced by better ones, {} kept\n", total.copied, total.same,
               total.replaced, total.kept);
    for (const auto& [reason, n] : total.refused) fmt::print("{} refused: {}\n", n, reason);
  }
  return refused > 0 ? kFailed : kDone;
}

// Candidates that crashed or hung are not tried again until they are lifted.
int quarantine(const CommonOptions& options, const std::vector<std::string>& lift) {
  auto context = make_context(options);
  if (!context.ok()) return fail(options, context.status(), kUsage);
  runtime::Store& store = (*context)->store();
  int kept = 0, lifted = 0;
  std::set<std::string> seen;
  Table table({"name", "why", "schedule", "state"});
  for (const runtime::StoredObject& o : store.list(false)) {
    if (o.key.kind != runtime::ObjectKind::k_quarantine || !seen.insert(o.key.name).second) continue;
    const std::string text = store.find(o.key).bytes;
    const size_t first = std::min(text.find('\n'), text.size());
    const std::string why = text.substr(0, first);
    // Reason, Schedule, Kernel: the recipe's line says most.
    const size_t from = text.find("\nfrom ");
    const std::string schedule =
        from == std::string::npos ? "" : text.substr(from + 6, text.find('\n', from + 1) - from - 6);
    const bool wanted = std::any_of(lift.begin(), lift.end(), [&](const std::string& name) {
      return name == "all" || o.key.name.rfind(name, 0) == 0;
    });
    const bool gone = wanted && store.remove(o.key) > 0;
    lifted += gone;
    kept += !gone;
    if (options.json) {
      json line = json_event(options, "row");
      line["name"] = o.key.name;
      line["why"] = why;
      line["schedule"] = schedule;
      line["lifted"] = gone;
      print_json(line);
    } else {
      table.row({o.key.name, why, schedule, gone ? "lifted" : "quarantined"});
    }
  }
  if (options.json) {
    json line = json_event(options, "summary");
    line["quarantined"] = kept;
    line["lifted"] = lifted;
    print_json(line);
  } else {
    if (kept + lifted > 0) fmt::print("{}\n", table.text());
    fmt::print("{} quarantined, {} lifted\n", kept, lifted);
  }
  if (!lift.empty() && lifted == 0)
    return fail(options, ir::invalid("--lift: nothing quarantined is named {}", lift.front()), kFailed);
  return kDone;
}

}  // namespace

const Verb kStore = {
    "store", "What is stored: ls, check, merge, quarantine", [](CLI::App& app) -> std::function<int()> {
      auto ls = std::make_shared<CommonOptions>(), check = std::make_shared<CommonOptions>();
      CLI::App* ls_app = app.add_subcommand("ls", "Every object");
      add_common(*ls_app, ls.get(), false);
      CLI::App* check_app = app.add_subcommand("check", "Every object verified; prints the bad ones");
      add_common(*check_app, check.get(), false);
      add_jobs(*check_app, check.get());
      auto into = std::make_shared<MergeOptions>();
      CLI::App* merge_app = app.add_subcommand("merge", "Bring in what other stores have");
      add_common(*merge_app, into.get(), false);
      merge_app->add_option("from", into->from, "Directories of stores")->required();
      auto held = std::make_shared<CommonOptions>();
      auto lift = std::make_shared<std::vector<std::string>>();
      CLI::App* held_app = app.add_subcommand("quarantine", "Candidates that crashed or hung, and are not tried again");
      add_common(*held_app, held.get(), false);
      held_app->add_option("--lift", *lift, "Names, their beginnings, or `all`: to be tried again");
      ls->verb = check->verb = into->verb = held->verb = "store";
      app.require_subcommand(1);
      return [=] {
        if (held_app->parsed()) return quarantine(*held, *lift);
        if (merge_app->parsed()) return merge(*into);
        return check_app->parsed() ? run(*check, true) : run(*ls, false);
      };
    }};

}  // namespace lathe::tools
