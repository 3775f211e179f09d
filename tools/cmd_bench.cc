// lathe bench: served operators timed against what the machine can do in the same round.
#include <fmt/format.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/bench/bench.h"
#include "runtime/tune/warmup.h"
#include "tools/on_device.h"
#include "tools/table.h"

namespace lathe::tools {
namespace {

using nlohmann::json;
using runtime::BenchRow;
using runtime::Stat;

struct BenchFlags : CommonOptions {
  std::string manifest, shape, device;
  bool cold = false, hot = false, samples = false;
  double row_ms = 400;
};

json share(double v) { return v > 0 ? json(v) : json(); }

json row_json(const BenchFlags& flags, const ops::Workload& item, const runtime::SymbolValues& dims, const char* dtype,
              const runtime::BenchOptions& options, const BenchRow& row) {
  json line = json_event(flags, "row");
  line["op"] = item.name;
  line["dims"] = json_dims(item, dims);
  line["dtype"] = dtype;
  line["format"] = row.format.empty() ? json() : json(row.format);
  line["threads"] = options.threads;
  line["cache"] = options.cold ? "cold" : "hot";
  line["tier"] = tier_name(row.tier);
  line["us"] = row.us;
  line["min_us"] = row.min_us;
  line["spread"] = row.spread;
  line["rounds"] = row.rounds;
  line["of_peak"] = share(row.of_peak);
  line["peak_of"] = row.peak_of;
  line["ceiling"] = row.ceiling;
  line["of_read"] = share(row.of_read);
  line["of_copy"] = share(row.of_copy);
  line["of_roofline"] = share(row.of_roofline);
  line["limit"] = row.limit;
  line["peers"] = json::object();
  if (flags.samples) line["samples"] = row.samples;
  return line;
}

int run(const BenchFlags& flags) {
  const auto items = read_manifest(flags.manifest);
  if (!items.ok()) return fail(flags, items.status(), kUsage);
  const auto shape = parse_shape(flags.shape, symbols_of(*items));
  if (!shape.ok()) return fail(flags, shape.status(), kUsage);
  if (!flags.device.empty()) {
    BenchOnDevice on;
    static_cast<CommonOptions&>(on) = flags;
    on.device = flags.device;
    on.shape = *shape;
    on.cold = flags.cold;
    on.hot = flags.hot;
    on.samples = flags.samples;
    on.row_ms = flags.row_ms;
    return bench_on_device(on, *items);
  }
  int most_threads = flags.threads;
  for (const ops::Workload& item : *items)
    most_threads = std::max(most_threads, flags.threads > 0 ? flags.threads : item.threads);
  auto context = make_context(flags, most_threads);
  if (!context.ok()) return fail(flags, context.status(), kUsage);
  catch_interrupts();

  const runtime::Stats& stats = (*context)->stats();
  Bar bar(!flags.json);
  Table table({"op", "dims", ">threads", "cache", "tier", ">us", ">spread", ">of peak", ">ceiling", ">of read",
               ">of copy", "limit"});
  int rows = 0, from_store = 0, failed = 0;
  std::string worst_row;
  std::map<std::string, double> peaks;  // by instruction
  double worst = 0, read_gbs = 0, copy_gbs = 0;
  const auto failure = [&](const ops::Workload& item, const ir::Status& status) {
    ++failed;
    bar.clear();
    (void)fail(flags, status.with_context(item.name), kFailed);
  };
  for (const ops::Workload& item : *items) {
    if (interrupted()) break;
    auto graph = ops::finish(item.graph);
    if (!graph.ok()) {
      failure(item, graph.status());
      continue;
    }
    graph->name = item.name;
    auto op = runtime::Operator::create(*context, *graph);
    if (!op.ok()) {
      failure(item, op.status());
      continue;
    }
    runtime::BenchOptions options;
    options.threads = flags.threads > 0 ? flags.threads : item.threads;
    options.cold = flags.cold || (!flags.hot && item.cache == ops::CacheState::cold);
    options.row_ms = flags.row_ms;
    options.seed = flags.seed;
    options.allowed = item.allowed;
    const int64_t compiled = stats.get(Stat::k_compiled_xbyak) + stats.get(Stat::k_compiled_llvm);
    const auto info = (*op)->stages().prepare(
        {.threads = options.threads, .cold = item.cache == ops::CacheState::cold, .allowed = item.allowed});
    if (!info.ok()) {
      failure(item, info.status());
      continue;
    }
    const bool stored =
        !info->missed && stats.get(Stat::k_compiled_xbyak) + stats.get(Stat::k_compiled_llvm) == compiled;
    const auto dims_list = shaped(item, (*op)->hinted_dims(), *shape);
    if (!dims_list.ok()) return fail(flags, dims_list.status(), kUsage);
    const std::vector<int> cpus = runtime::allowed_cpus();
    const bool enough = static_cast<int>(cpus.size()) >= options.threads;
    const runtime::PinnedThread pinned(enough, options.threads > 1 && enough ? cpus[0] : -1);
    runtime::Bench bench(*op, options);
    const char* dtype = ir::dtype_name((*op)->graph().tensors[static_cast<size_t>((*op)->graph().outputs[0])].dtype);
    for (const runtime::SymbolValues& dims : *dims_list) {
      if (interrupted()) break;
      bar.update(static_cast<double>(&item - items->data()) / static_cast<double>(items->size()),
                 item.name + " " + dims_text(item, dims));
      const auto row = bench.run(dims);
      if (!row.ok()) {
        failure(item, row.status());
        continue;
      }
      ++rows;
      from_store += stored;
      peaks[row->peak_of] = std::max(peaks[row->peak_of], row->peak_gflops);
      read_gbs = std::max(read_gbs, row->read_gbs);
      copy_gbs = std::max(copy_gbs, row->copy_gbs);
      if (worst_row.empty() || row->of_roofline < worst) {
        worst = row->of_roofline;
        worst_row = item.name + " " + dims_text(item, dims);
      }
      if (flags.json) {
        print_json(row_json(flags, item, dims, dtype, options, *row));
      } else {
        table.row({item.name, dims_text(item, dims), fmt::format("{}", options.threads), options.cold ? "cold" : "hot",
                   tier_name(row->tier), us_text(row->us), percent_text(row->spread), percent_text(row->of_peak),
                   percent_text(row->ceiling), percent_text(row->of_read), percent_text(row->of_copy), row->limit});
      }
    }
  }
  bar.clear();
  const bool llvm = runtime::llvm_mapped();
  if (flags.json) {
    json line = json_event(flags, "summary");
    line["rows"] = rows;
    line["peak_gflops"] = peaks;
    line["read_gbs"] = read_gbs;
    line["copy_gbs"] = copy_gbs;
    line["from_store"] = from_store;
    line["compiled_xbyak"] = stats.get(Stat::k_compiled_xbyak);
    line["compiled_llvm"] = stats.get(Stat::k_compiled_llvm);
    line["searches"] = stats.get(Stat::k_searches);
    line["llvm_mapped"] = llvm;
    line["geomean_vs_best_peer"] = json();
    line["worst_vs_best_peer"] = json();
    line["worst_row"] = worst_row;
    line["failed"] = failed;
    print_json(line);
  } else {
    fmt::print("{}\n{} rows, {} from the store; compiled: {} by xbyak, {} by LLVM; {} searches; LLVM {}\n",
               table.text(), rows, from_store, stats.get(Stat::k_compiled_xbyak), stats.get(Stat::k_compiled_llvm),
               stats.get(Stat::k_searches), llvm ? "mapped" : "not mapped");
    fmt::print("best probes: read {:.1f} GB/s, copy {:.1f} GB/s", read_gbs, copy_gbs);
    for (const auto& [instruction, gflops] : peaks) fmt::print(", {} {:.1f} GFLOP/s", instruction, gflops);
    fmt::print("\n");
  }
  return failed > 0 ? kFailed : interrupted() ? kSpent : kDone;
}

}  // namespace

const Verb kBench = {
    "bench", "Time a workload as it is served", [](CLI::App& app) -> std::function<int()> {
      auto f = std::make_shared<BenchFlags>();
      add_common(app, f.get());
      app.add_option("manifest", f->manifest, "JSON Lines; - reads the standard input")->required();
      app.add_option("--shape", f->shape, "M=3,L=128: instead of the hints, where an operator has the symbol");
      add_device(app, &f->device);
      auto* cold = app.add_flag("--cold", f->cold, "Constants come from memory, whatever the workload says");
      app.add_flag("--hot", f->hot, "Constants come from the cache")->excludes(cold);
      app.add_flag("--samples", f->samples, "With --json: the samples of each row");
      app.add_option("--row-ms", f->row_ms, "Milliseconds to spend per row")->check(number_up_to(1e6));
      return [f] { return run(*f); };
    }};

}  // namespace lathe::tools
