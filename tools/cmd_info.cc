// lathe info: the machine as Lathe sees it, back ends, layers of the store, options and where they come from.
#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "jit/host/host_cpu.h"
#include "jit/program/backend.h"
#include "runtime/store/key.h"
#include "tools/on_device.h"
#include "tools/table.h"

namespace lathe::tools {
namespace {

using nlohmann::json;

const char* mode_name(runtime::LayerMode mode) {
  switch (mode) {
    case runtime::LayerMode::read_only:
      return "read-only";
    case runtime::LayerMode::private_rw:
      return "private";
  }
  return "";
}

json target_json(const ir::Target& t, const runtime::MachineFields& m) {
  return {{"isa", ir::isa_name(t.level)},
          {"lanes", t.lanes},
          {"vector_registers", t.vector_registers},
          {"l1_bytes", t.l1_bytes},
          {"l2_bytes", t.l2_bytes},
          {"l3_bytes", t.l3_bytes},
          {"cores", t.cores},
          {"bf16", t.has(ir::kCpu_avx512bf16)},
          {"vnni", t.has(ir::kCpu_avx512vnni)},
          {"vendor", m.cpu_vendor},
          {"family", m.cpu_family},
          {"model", m.cpu_model},
          {"stepping", m.cpu_stepping},
          {"features", jit::feature_names(jit::host_features())}};
}

int run(const CommonOptions& options) {
  auto context = make_context(options);
  if (!context.ok()) return fail(options, context.status(), kUsage);
  runtime::Context& ctx = **context;
  const runtime::MachineFields machine = runtime::machine_fields(ctx.target());
  const std::vector<std::pair<std::string, std::string>> backends = {
      {"portable", "leaf programs executed by C++"},
      {"xbyak", jit::backend_built(jit::Backend::xbyak) ? "in the library" : "not built"},
      {"llvm", "plug-in, opened when it must compile"}};
  if (options.json) {
    json line = json_event(options, "summary");
    line["target"] = target_json(ctx.target(), machine);
    line["backends"] = json::array();
    for (const auto& [name, what] : backends) line["backends"].push_back({{"name", name}, {"what", what}});
    line["layers"] = json::array();
    for (const auto& l : ctx.store().layers()) {
      line["layers"].push_back(
          {{"path", l.path}, {"mode", mode_name(l.mode)}, {"exists", l.exists}, {"writable", l.writable}});
    }
    line["placement"] = ctx.store().placement();
    line["options"] = json::array();
    for (const ir::OptionInfo& o : ir::option_table()) {
      line["options"].push_back({{"name", o.name},
                                 {"variable", o.variable},
                                 {"value", ctx.options().text(o.id)},
                                 {"source", ir::option_source_name(ctx.options().source(o.id))},
                                 {"meaning", o.meaning}});
    }
    print_json(line);
    return kDone;
  }
  fmt::print("target    {}\n          {} family {} model {}, {} cores, L1 {} KiB, L2 {} KiB, L3 {} KiB\n",
             ctx.target().to_string(), machine.cpu_vendor, machine.cpu_family, machine.cpu_model, ctx.target().cores,
             ctx.target().l1_bytes >> 10, ctx.target().l2_bytes >> 10, ctx.target().l3_bytes >> 10);
  for (const auto& [name, what] : backends) fmt::print("backend   {}: {}\n", name, what);
  fmt::print("store     by {}\n", ctx.store().placement());
  for (const auto& l : ctx.store().layers()) {
    fmt::print("layer     {} ({}{}{})\n", l.path, mode_name(l.mode), l.exists ? "" : ", does not exist yet",
               l.exists && !l.writable ? ", not writable" : "");
  }
  fmt::print("\n");
  Table table({"option", "value", "from", "meaning"});
  for (const ir::OptionInfo& o : ir::option_table()) {
    const std::string& value = ctx.options().text(o.id);
    table.row({o.variable, value.empty() ? "-" : value, ir::option_source_name(ctx.options().source(o.id)), o.meaning});
  }
  fmt::print("{}", table.text());
  return kDone;
}

}  // namespace

const Verb kInfo = {"info", "The machine, back ends, layers of the store, options and their source",
                    [](CLI::App& app) -> std::function<int()> {
                      auto options = std::make_shared<CommonOptions>();
                      auto device = std::make_shared<std::string>();
                      add_common(app, options.get(), false);
                      add_device(app, device.get());
                      return [options, device] {
                        return device->empty() ? run(*options) : info_on_device(*options, *device);
                      };
                    }};

}  // namespace lathe::tools
