// See ours.h.
#include "bench/blueprints/ours.h"

#include <fmt/format.h>

#include "runtime/capi/handle.h"

namespace lathe::blueprints {
namespace {

uint64_t count(const std::vector<int64_t>& dims) {
  uint64_t n = 1;
  for (const int64_t d : dims) n *= static_cast<uint64_t>(d);
  return n;
}

const std::vector<int64_t>& dims_of(const Case& c, size_t arg) {
  return arg < c.inputs.size() ? c.inputs[arg].dims : c.result;
}

lathe_tensor tensor_on(void* data, const std::vector<int64_t>& dims) {
  lathe_tensor t = {};
  t.data = data;
  t.device.type = 1;
  t.dtype = {2, 32, 1};
  t.ndim = static_cast<int32_t>(dims.size());
  t.shape = const_cast<int64_t*>(dims.data());
  return t;
}

std::string text(const char* what, const lathe_error& e) {
  return fmt::format("{}: {}: {}", what, lathe_status_name(e.code), e.message);
}

}  // namespace

std::string Ours::pack(int arg, float* plain, void* out) const {
  lathe_error error = {};
  lathe_pack_info info = {};
  if (lathe_prepack_query(kernel.get(), arg, &info, &error) != LATHE_STATUS_OK) return text("prepack_query", error);
  const lathe_tensor source = tensor_on(plain, what->inputs[static_cast<size_t>(arg)].dims);
  if (lathe_prepack(kernel.get(), arg, &source, out, info.bytes, &error) != LATHE_STATUS_OK)
    return text("prepack", error);
  return {};
}

std::string Ours::pin(void* const* data) {
  const size_t n = bytes.size();
  std::vector<lathe_tensor> tensors;
  for (size_t a = 0; a < n; ++a) tensors.push_back(tensor_on(data[a], dims_of(*what, a)));
  std::vector<lathe_arg> args(n);
  for (size_t a = 0; a < n; ++a) {
    args[a].tensor = &tensors[a];
    args[a].layout_id = layouts[a];
  }
  lathe_error error = {};
  lathe_pinned* handle = nullptr;
  if (lathe_pin(kernel.get(), args.data(), n, 1, &handle, &error) != LATHE_STATUS_OK) return text("pin", error);
  pinned.reset(handle, lathe_pinned_destroy);
  workspace_bytes = lathe_pinned_workspace_bytes(handle);
  tier = handle->body->bound->tier;
  return {};
}

void Ours::run(void* const* args, void* workspace) const {
  lathe_exec exec = LATHE_EXEC_INIT;
  exec.workspace = workspace;
  exec.workspace_bytes = workspace_bytes;
  lathe_pinned_run(pinned.get(), args, &exec);
}

Ours make_ours(lathe_context* context, const Case& c) {
  Ours out;
  out.what = &c;
  lathe_error error = {};
  std::vector<std::vector<lathe_dim>> dims;
  std::vector<lathe_tensor_desc> descs;
  for (const Input& input : c.inputs) {
    auto& d = dims.emplace_back();
    for (const int64_t size : input.dims) d.push_back({size, size, 1, nullptr, nullptr, 0});
    lathe_tensor_desc desc = LATHE_TENSOR_DESC_INIT;
    desc.name = input.name;
    desc.ndim = static_cast<int32_t>(d.size());
    desc.dims = d.data();
    desc.flags = input.constant ? LATHE_TENSOR_CONST : 0;
    descs.push_back(desc);
  }
  lathe_graph* graph = nullptr;
  if (lathe_graph_single(context, c.op, descs.data(), descs.size(), c.attributes.data(), c.attributes.size(), &graph,
                         &error) != LATHE_STATUS_OK) {
    out.error = text("graph", error);
    return out;
  }
  lathe_policy policy = LATHE_POLICY_INIT;
  policy.wait = LATHE_WAIT_TUNED;
  policy.cold = c.cold;
  lathe_kernel* kernel = nullptr;
  lathe_kernel_info info = LATHE_KERNEL_INFO_INIT;
  const lathe_status resolved = lathe_resolve(context, graph, &policy, &kernel, &info, &error);
  lathe_graph_destroy(graph);
  if (resolved != LATHE_STATUS_OK) {
    out.error = text("resolve", error);
    return out;
  }
  out.kernel.reset(kernel, lathe_kernel_destroy);
  out.from_store = info.origin == LATHE_ORIGIN_STORE;
  const size_t n = c.inputs.size() + 1;
  out.layouts.resize(n);
  for (size_t a = 0; a < n; ++a) {
    out.bytes.push_back(4 * count(dims_of(c, a)));
    if (a >= c.inputs.size() || !c.inputs[a].constant) continue;
    lathe_pack_info pack = {};
    if (lathe_prepack_query(kernel, static_cast<int32_t>(a), &pack, &error) != LATHE_STATUS_OK) {
      out.error = text("prepack_query", error);
      return out;
    }
    if (pack.bytes == 0) continue;
    out.layouts[a] = pack.layout_id;
    out.bytes[a] = pack.bytes;
  }
  return out;
}

}  // namespace lathe::blueprints
