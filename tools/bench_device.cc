// lathe bench --device: served operators timed on a GPU, as shares of a copy of as many bytes there.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "runtime/bench/device_bench.h"
#include "tools/on_device.h"
#include "tools/table.h"

namespace lathe::tools {

using nlohmann::json;

namespace {

json row_json(const BenchOnDevice& flags, const ops::Workload& item, const runtime::SymbolValues& dims, bool cold,
              const runtime::DeviceBenchRow& row) {
  json line = json_event(flags, "row");
  line["op"] = item.name;
  line["dims"] = json_dims(item, dims);
  line["cache"] = cold ? "cold" : "hot";
  line["tier"] = tier_name(row.tier);
  line["us"] = row.us;
  line["min_us"] = row.min_us;
  line["spread"] = row.spread;
  line["rounds"] = row.rounds;
  line["gbs"] = row.gbs;
  line["tflops"] = row.tflops;
  line["copy_gbs"] = row.copy_gbs;
  line["of_copy"] = row.of_copy;
  if (flags.samples) line["samples"] = row.samples;
  return line;
}

struct Totals {
  int rows = 0, failed = 0;
  double copy_gbs = 0;
};

ir::Status bench_item(const BenchOnDevice& flags, const ops::Workload& item,
                      const std::shared_ptr<runtime::Context>& context, const runtime::DeviceChoice& on,
                      const std::shared_ptr<runtime::DeviceSession>& session, Table& table, Totals& totals) {
  LATHE_ASSIGN(ops::Graph graph, ops::finish(item.graph));
  graph.name = item.name;
  LATHE_ASSIGN(const std::shared_ptr<runtime::Operator> op, runtime::Operator::create(context, graph));
  runtime::PrepareRequest request;
  request.allowed = item.allowed;
  request.device = on.number;
  request.compile = true;
  LATHE_RETURN_IF_ERROR(op->stages().prepare_on_device(request).status());
  LATHE_ASSIGN(const std::vector<runtime::SymbolValues> dims_list, shaped(item, op->hinted_dims(), flags.shape));
  runtime::BenchOptions options;
  options.cold = flags.cold || (!flags.hot && item.cache == ops::CacheState::cold);
  options.row_ms = flags.row_ms;
  options.seed = flags.seed;
  runtime::DeviceBench bench(op, session, options);
  for (const runtime::SymbolValues& dims : dims_list) {
    if (interrupted()) return {};
    LATHE_ASSIGN(const runtime::DeviceBenchRow row, bench.run(dims));
    ++totals.rows;
    totals.copy_gbs = std::max(totals.copy_gbs, row.copy_gbs);
    if (flags.json) {
      print_json(row_json(flags, item, dims, options.cold, row));
    } else {
      table.row({item.name, dims_text(item, dims), options.cold ? "cold" : "hot", tier_name(row.tier), us_text(row.us),
                 percent_text(row.spread), fmt::format("{:.1f}", row.gbs), fmt::format("{:.3f}", row.tflops),
                 percent_text(row.of_copy)});
    }
  }
  return {};
}

}  // namespace

int bench_on_device(const BenchOnDevice& flags, const std::vector<ops::Workload>& items) {
  auto context = make_context(flags);
  if (!context.ok()) return fail(flags, context.status(), kUsage);
  const auto on = device_at_hand(**context, flags.device);
  if (!on.ok()) return fail(flags, on.status(), on.status().code() == ir::Code::kINVALID ? kUsage : kFailed);
  auto session = runtime::DeviceSession::open(on->device);
  if (!session.ok()) return fail(flags, session.status(), kFailed);
  const std::shared_ptr<runtime::DeviceSession> shared = std::move(*session);
  catch_interrupts();
  Bar bar(!flags.json);
  Table table({"op", "dims", "cache", "tier", ">us", ">spread", ">GB/s", ">TFLOP/s", ">of copy"});
  Totals totals;
  for (const ops::Workload& item : items) {
    if (interrupted()) break;
    bar.update(static_cast<double>(&item - items.data()) / static_cast<double>(items.size()), item.name);
    const ir::Status done = bench_item(flags, item, *context, *on, shared, table, totals);
    if (done.ok()) continue;
    ++totals.failed;
    bar.clear();
    (void)fail(flags, of_operator(item, done), kFailed);
    if (!on->device->working().ok()) break;
  }
  bar.clear();
  const bool emulated = on->device->driver().emulated;
  if (flags.json) {
    json line = json_event(flags, "summary");
    line["gpu"] = on->target.name;
    line["emulated"] = emulated;
    line["rows"] = totals.rows;
    line["copy_gbs"] = totals.copy_gbs;
    line["compiled_nvrtc"] = (*context)->stats().get(runtime::Stat::k_compiled_nvrtc);
    line["failed"] = totals.failed;
    print_json(line);
  } else {
    fmt::print("{}\n{} rows on {}; best copy {:.1f} GB/s read and written\n", table.text(), totals.rows,
               on->target.name, totals.copy_gbs);
    if (emulated) fmt::print("These times are an emulator's: they say nothing of a GPU.\n");
  }
  return totals.failed > 0 ? kFailed : interrupted() ? kSpent : kDone;
}

}  // namespace lathe::tools
