// What tests of the C ABI share: a context of its own, graphs and tensors in a line each.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "include/lathe.h"
#include "tests/common/aligned.h"

namespace lathe::test {

struct Destroy {
  void operator()(lathe_context* p) const { lathe_context_destroy(p); }
  void operator()(lathe_graph* p) const { lathe_graph_destroy(p); }
  void operator()(lathe_kernel* p) const { lathe_kernel_destroy(p); }
  void operator()(lathe_pinned* p) const { lathe_pinned_destroy(p); }
  void operator()(lathe_plan* p) const { lathe_plan_destroy(p); }
};
template <class T>
using Owned = std::unique_ptr<T, Destroy>;

// In memory only, whatever the environment says.
inline Owned<lathe_context> make_context(const char* isa = nullptr, int threads = 0) {
  lathe_context_options o = LATHE_CONTEXT_OPTIONS_INIT;
  o.max_isa = isa;
  o.own_threads = threads;
  setenv("LATHE_CACHE", "off", 1);
  lathe_context* out = nullptr;
  lathe_error e;
  EXPECT_EQ(lathe_context_create(&o, &out, &e), LATHE_STATUS_OK) << e.message;
  return Owned<lathe_context>(out);
}

inline lathe_dim fixed(int64_t size) { return {size, size, 1, nullptr, nullptr, 0}; }
inline lathe_dim range(const char* symbol, int64_t min, int64_t max, int64_t multiple = 1) {
  return {min, max, multiple, symbol, nullptr, 0};
}

inline lathe_tensor_desc desc(const char* name, const std::vector<lathe_dim>& dims, uint32_t flags = 0,
                              uint32_t dtype = LATHE_DTYPE_F32) {
  lathe_tensor_desc d = LATHE_TENSOR_DESC_INIT;
  d.name = name;
  d.dtype = dtype;
  d.ndim = static_cast<int32_t>(dims.size());
  d.dims = dims.data();
  d.flags = flags;
  return d;
}

// The attribute points to `name` and `value`: both must outlive it.
inline lathe_attr text_attr(const char* name, const char* value) {
  lathe_attr a{};
  a.name = name;
  a.type = LATHE_ATTR_STRING;
  a.s = value;
  return a;
}
inline lathe_attr float_attr(const char* name, double value) {
  lathe_attr a{};
  a.name = name;
  a.type = LATHE_ATTR_FLOAT;
  a.f = value;
  return a;
}

// y[M, N] = x[M, K] * w[K, N]
inline Owned<lathe_graph> matmul_graph(lathe_context* ctx, const lathe_dim& m, int64_t k, int64_t n) {
  const std::vector<lathe_dim> x = {m, fixed(k)}, w = {fixed(k), fixed(n)};
  const lathe_tensor_desc inputs[] = {desc("x", x), desc("w", w, LATHE_TENSOR_CONST)};
  lathe_graph* out = nullptr;
  lathe_error e;
  EXPECT_EQ(lathe_graph_single(ctx, "matmul", inputs, 2, nullptr, 0, &out, &e), LATHE_STATUS_OK) << e.message;
  return Owned<lathe_graph>(out);
}

inline Owned<lathe_graph> unary_graph(lathe_context* ctx, const char* op, const std::vector<lathe_dim>& dims) {
  const lathe_tensor_desc input = desc("x", dims);
  lathe_graph* out = nullptr;
  lathe_error e;
  EXPECT_EQ(lathe_graph_single(ctx, op, &input, 1, nullptr, 0, &out, &e), LATHE_STATUS_OK) << e.message;
  return Owned<lathe_graph>(out);
}

inline Owned<lathe_kernel> resolve(lathe_context* ctx, const lathe_graph* graph, lathe_kernel_info* info = nullptr,
                                   int threads = 1) {
  lathe_kernel* out = nullptr;
  lathe_error e;
  lathe_policy policy = LATHE_POLICY_INIT;
  policy.threads = threads;
  EXPECT_EQ(lathe_resolve(ctx, graph, &policy, &out, info, &e), LATHE_STATUS_OK) << e.message;
  return Owned<lathe_kernel>(out);
}

// A float tensor of its own memory, and the DLTensor on it.
struct Floats {
  explicit Floats(std::vector<int64_t> dims, float value = 0) : shape(std::move(dims)) {
    int64_t n = 1;
    for (const int64_t d : shape) n *= d;
    data.assign(static_cast<size_t>(n), value);
    tensor = {data.data(), {1, 0}, static_cast<int32_t>(shape.size()), {2, 32, 1}, shape.data(), nullptr, 0};
  }
  Floats(const Floats&) = delete;
  // Small integers: products and sums are exact.
  Floats& numbers(int seed) {
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>((i * 7 + static_cast<size_t>(seed)) % 11) - 5;
    return *this;
  }
  lathe_arg arg() const { return {&tensor, data.size() * sizeof(float), 0, 0, 0}; }

  std::vector<int64_t> shape;
  std::vector<float> data;
  lathe_tensor tensor;
};

// Calls a kernel with the workspace that it wants.
inline lathe_status execute(lathe_kernel* kernel, std::span<const lathe_arg> args, lathe_error* e, int threads = 1) {
  uint64_t bytes = 0;
  EXPECT_EQ(lathe_workspace_bytes(kernel, args.data(), args.size(), threads, &bytes, e), LATHE_STATUS_OK) << e->message;
  const Aligned workspace(bytes);
  lathe_exec exec = LATHE_EXEC_INIT;
  exec.threads = threads;
  exec.workspace = workspace.memory;
  exec.workspace_bytes = bytes;
  return lathe_execute(kernel, args.data(), args.size(), &exec, e);
}

// Calls a kernel whose argument 1 is a constant, packed if that is asked for and it has a packed form, with the
// workspace that it wants.
template <size_t N>
lathe_status run_with_weight(lathe_kernel* kernel, lathe_arg (&args)[N], bool packed, int threads, lathe_error* e) {
  lathe_pack_info info{};
  EXPECT_EQ(lathe_prepack_query(kernel, 1, &info, e), LATHE_STATUS_OK) << e->message;
  const Aligned room(static_cast<size_t>(info.bytes) + 64);
  lathe_tensor weight = *args[1].tensor;
  if (packed && info.layout_id != 0) {
    EXPECT_EQ(lathe_prepack(kernel, 1, args[1].tensor, room.memory, info.bytes, e), LATHE_STATUS_OK) << e->message;
    weight.data = room.memory;
    args[1].tensor = &weight;
    args[1].bytes = info.bytes;
    args[1].layout_id = info.layout_id;
  }
  return execute(kernel, args, e, threads);
}

}  // namespace lathe::test
