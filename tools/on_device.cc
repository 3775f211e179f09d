// See on_device.h.
#include "tools/on_device.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "jit/cuda/compile/nvrtc.h"
#include "runtime/cuda/device_code.h"
#include "runtime/cuda/device_home.h"
#include "runtime/tune/device/device_explain.h"

namespace lathe::tools {

using ir::Result;
using nlohmann::json;

namespace {

void print_text(const std::string& title, const std::string& text) {
  fmt::print("--- {}\n{}{}", title, text, text.empty() || text.back() == '\n' ? "" : "\n");
}

void print_kernel(const runtime::ExplainedDeviceKernel& e, size_t number, size_t count) {
  if (count > 1) fmt::print("=== kernel {} of {}\n", number + 1, count);
  print_text("naive kernel", e.naive);
  print_text(e.stored ? "schedule (stored decision)" : "schedule (the first by rank)", e.schedule);
  fmt::print("--- candidates by rank\n");
  for (const std::string& c : e.candidates) fmt::print("{}\n", c);
  print_text("scheduled kernel", e.scheduled);
  fmt::print("=== workspace: at most {} bytes in the range of these dims\n", e.workspace);
  for (size_t l = 0; l < e.launches.size(); ++l) {
    const runtime::ExplainedLaunch& launch = e.launches[l];
    fmt::print("=== launch {} of {}, {} blocks\n", l + 1, e.launches.size(), launch.grid.empty() ? "?" : launch.grid);
    print_text("device leaf", launch.leaf);
    print_text("device program", launch.program);
    print_text("text", launch.text);
    print_text("code", launch.code);
  }
  print_text(e.stored ? "decision" : "store", e.stored ? e.decision : "miss: " + e.miss);
}

json kernel_json(const runtime::ExplainedDeviceKernel& e) {
  json launches = json::array();
  for (const runtime::ExplainedLaunch& l : e.launches)
    launches.push_back(
        {{"grid", l.grid}, {"leaf", l.leaf}, {"program", l.program}, {"text", l.text}, {"code", l.code}});
  return {{"kernel", e.naive},          {"schedule", e.schedule}, {"scheduled", e.scheduled},
          {"candidates", e.candidates}, {"launches", launches},   {"stored", e.stored},
          {"decision", e.decision},     {"miss", e.miss},         {"workspace", e.workspace}};
}

json target_json(const ir::GpuTarget& t) {
  return {{"name", t.name},
          {"sm", t.sm},
          {"architecture", t.architecture},
          {"multiprocessors", t.multiprocessors},
          {"memory_gib", t.memory_gib}};
}

}  // namespace

void add_device(CLI::App& app, std::string* device) {
  app.add_option("--device", *device, "A GPU instead of the CPU: its number, or a kind as in ir/base/gpu_targets.def")
      ->type_name("N|KIND");
}

Result<runtime::DeviceChoice> device_of(const runtime::Context& context, const std::string& device) {
  Result<runtime::DeviceChoice> on = runtime::choose_device(context.options().text(ir::OptionId::cuda), device);
  return on.ok() ? std::move(on) : Result<runtime::DeviceChoice>(on.status().with_context("--device"));
}

Result<runtime::DeviceChoice> device_at_hand(const runtime::Context& context, const std::string& device) {
  LATHE_ASSIGN(runtime::DeviceChoice on, device_of(context, device));
  if (on.device == nullptr)
    return ir::invalid("--device: {} is a kind, expected the number of a CUDA device: nothing runs without one",
                       device);
  return on;
}

int info_on_device(const CommonOptions& options, const std::string& device) {
  const auto context = make_context(options);
  if (!context.ok()) return fail(options, context.status(), kUsage);
  const auto on = device_of(**context, device);
  if (!on.ok() && on.status().code() == ir::Code::kINVALID) return fail(options, on.status(), kUsage);
  const bool driver = on.ok() && on->device != nullptr;
  const auto compiler = (*context)->device_codes().compiler(driver ? on->device->driver().version : "");
  const char* const state = driver ? compiler.ok() ? "ready" : "no_compiler" : "no_driver";
  // Without a driver code can be made and stored all the same.
  const std::string means = !driver ? compiler.ok() ? "compiles and stores, runs nothing" : "nothing of a GPU is served"
                            : compiler.ok() ? "serves and compiles"
                                            : "serves what is stored";
  if (options.json) {
    json line = json_event(options, "summary");
    line["state"] = state;
    line["target"] = on.ok() ? target_json(on->target) : json();
    line["driver"] = driver ? json(on->device->driver().version) : json();
    line["devices"] = driver ? json(on->device->driver().devices) : json();
    line["driver_note"] = on.ok() ? json() : json(on.status().message());
    line["nvrtc"] = compiler.ok() ? json((*compiler)->version()) : json();
    line["nvrtc_file"] = compiler.ok() ? json((*compiler)->file()) : json();
    line["nvrtc_note"] = compiler.ok() ? json() : json(compiler.status().message());
    line["environment"] = on.ok() ? json(runtime::device_home(on->target)->environment.hash) : json();
    print_json(line);
    return kDone;
  }
  fmt::print("state     {}: {}\n", state, means);
  if (on.ok())
    fmt::print("gpu       {}, {}, {} multiprocessors, {} GiB\n", on->target.name, on->target.architecture,
               on->target.multiprocessors, on->target.memory_gib);
  if (driver)
    fmt::print("driver    CUDA {}, {} devices, {}\n", on->device->driver().version, on->device->driver().devices,
               on->device->driver().file);
  else
    fmt::print("driver    {}\n", on.ok() ? "not asked: a kind is named" : on.status().message());
  if (compiler.ok())
    fmt::print("compiler  {}, {}{}\n", (*compiler)->version(), (*compiler)->file(),
               (*compiler)->can_cancel() ? "" : " (cannot be cancelled)");
  else
    fmt::print("compiler  {}\n", compiler.status().message());
  if (on.ok()) fmt::print("store     decisions under {}\n", runtime::device_home(on->target)->environment.hash);
  return kDone;
}

int explain_on_device(const ExplainOnDevice& flags, const std::vector<ops::Workload>& items) {
  const auto context = make_context(flags);
  if (!context.ok()) return fail(flags, context.status(), kUsage);
  const auto on = device_of(**context, flags.device);
  if (!on.ok()) return fail(flags, on.status(), on.status().code() == ir::Code::kINVALID ? kUsage : kFailed);
  int explained = 0;
  for (const ops::Workload& item : items) {
    auto graph = ops::finish(item.graph);
    if (!graph.ok()) return fail(flags, graph.status(), kUsage);
    auto op = runtime::Operator::create(*context, *graph);
    if (!op.ok()) return fail(flags, op.status(), kFailed);
    runtime::PrepareRequest request;
    request.allowed = item.allowed;
    const auto dims = shaped(item, {(*op)->hinted_dims()[0]}, flags.shape);
    if (!dims.ok()) return fail(flags, dims.status(), kUsage);
    const auto kernels = runtime::explain_on_device(**op, (*dims)[0], request, *on);
    if (!kernels.ok()) return fail(flags, of_operator(item, kernels.status()), kFailed);
    ++explained;
    if (!flags.json) fmt::print("{} {} on {}\n", item.name, dims_text(item, (*dims)[0]), on->target.name);
    for (size_t k = 0; k < kernels->size(); ++k) {
      if (!flags.json) {
        print_kernel((*kernels)[k], k, kernels->size());
        continue;
      }
      json line = json_event(flags, "row");
      line["op"] = item.name;
      line["dims"] = json_dims(item, (*dims)[0]);
      line["gpu"] = on->target.name;
      line.update(kernel_json((*kernels)[k]));
      print_json(line);
    }
  }
  if (flags.json) {
    json line = json_event(flags, "summary");
    line["ops"] = explained;
    print_json(line);
  }
  return kDone;
}

}  // namespace lathe::tools
