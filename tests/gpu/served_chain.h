// Graphs of chains on fake devices, and the comparison of what a device makes of them with what the CPU does.
#pragma once
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/gpu/fake_gpu.h"

namespace lathe::test {

struct Op {
  const char* name;
  std::vector<int> inputs;  // by number; negative: from the end
  std::vector<lathe_attr> attrs = {};
};

// The last result is the output.
inline Owned<lathe_graph> graph_of(lathe_context* ctx, const std::vector<std::vector<lathe_dim>>& inputs,
                                   const std::vector<Op>& ops) {
  lathe_graph* g = nullptr;
  lathe_error e;
  EXPECT_EQ(lathe_graph_create(ctx, "chain", &g, &e), LATHE_STATUS_OK) << e.message;
  Owned<lathe_graph> out(g);
  int32_t id = -1;
  std::vector<std::string> names;
  for (size_t i = 0; i < inputs.size(); ++i) names.push_back("x" + std::to_string(i));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const lathe_tensor_desc d = desc(names[i].c_str(), inputs[i]);
    EXPECT_EQ(lathe_graph_tensor(g, &d, &id, &e), LATHE_STATUS_OK) << e.message;
  }
  for (const Op& op : ops) {
    const std::string result = "r" + std::to_string(&op - ops.data());
    std::vector<int32_t> in;
    for (const int i : op.inputs) in.push_back(i < 0 ? id + 1 + i : i);
    EXPECT_EQ(
        lathe_graph_op(g, op.name, in.data(), in.size(), op.attrs.data(), op.attrs.size(), result.c_str(), &id, &e),
        LATHE_STATUS_OK)
        << op.name << ": " << e.message;
  }
  EXPECT_EQ(lathe_graph_output(g, id, &e), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(lathe_graph_finish(g, &e), LATHE_STATUS_OK) << e.message;
  return out;
}

inline std::vector<float> values(size_t n, int seed) {
  std::vector<float> out(n);
  for (size_t i = 0; i < n; ++i)
    out[i] = static_cast<float>(static_cast<int>((i * 37 + static_cast<size_t>(seed) * 11) % 101) - 50) * 0.0625f;
  return out;
}

class DeviceServe : public testing::Test {
 protected:
  void TearDown() override { RecordProperty("emulated", calls); }
  static inline int calls = 0;  // that the emulator ran and the CPU agreed with
  void SetUp() override { calls = 0; }
  static void expect_as_cpu(lathe_context* ctx, const lathe_graph* graph, lathe_kernel* kernel,
                            const std::vector<std::vector<int64_t>>& inputs, const std::vector<int64_t>& output,
                            size_t room);
};

// What the CPU makes of the same, and how far a device may be off: a few units in the last place of each function.
inline void DeviceServe::expect_as_cpu(lathe_context* ctx, const lathe_graph* graph, lathe_kernel* kernel,
                                       const std::vector<std::vector<int64_t>>& inputs,
                                       const std::vector<int64_t>& output, size_t room) {
  std::vector<std::unique_ptr<Floats>> host;
  std::vector<std::unique_ptr<DeviceFloats>> device;
  std::vector<lathe_arg> host_args, device_args;
  for (size_t i = 0; i <= inputs.size(); ++i) {
    const std::vector<int64_t>& dims = i < inputs.size() ? inputs[i] : output;
    host.push_back(std::make_unique<Floats>(dims));
    device.push_back(std::make_unique<DeviceFloats>(dims, room));
    if (i < inputs.size()) {
      host[i]->data = values(host[i]->data.size(), static_cast<int>(i));
      host[i]->tensor.data = host[i]->data.data();
      *device[i] = host[i]->data;
    }
    host_args.push_back(host[i]->arg());
    device_args.push_back(device[i]->arg());
  }
  lathe_error e;
  const Owned<lathe_kernel> cpu = resolve(ctx, graph);
  const lathe_exec exec = on_stream();
  ASSERT_EQ(lathe_execute(cpu.get(), host_args.data(), host_args.size(), nullptr, &e), LATHE_STATUS_OK) << e.message;
  ASSERT_EQ(lathe_execute(kernel, device_args.data(), device_args.size(), &exec, &e), LATHE_STATUS_OK) << e.message;
  const DeviceFloats& got = *device.back();
  for (size_t i = 0; i < got.count; ++i) {
    const float want = host.back()->data[i];
    const bool near = std::fabs(got.data[i] - want) <= 4e-6f * (1 + std::fabs(want));
    ASSERT_TRUE(std::isnan(want) ? std::isnan(got.data[i]) : got.data[i] == want || near)
        << "element " << i << " of " << got.count << " is " << got.data[i] << ", expected " << want;
  }
  for (size_t i = got.count; i < got.all; ++i) ASSERT_EQ(got.data[i], -7.5f) << "past the end";
  ++calls;
}

}  // namespace lathe::test
