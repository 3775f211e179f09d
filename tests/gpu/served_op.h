// Operators on fake devices whose operands are not floats alone, compared with what the CPU makes of the same.
#pragma once
#include <bit>
#include <cmath>
#include <memory>
#include <vector>

#include "tests/gpu/fake_gpu.h"

namespace lathe::test {

struct ArgOf {
  std::vector<int64_t> dims;
  uint32_t dtype = LATHE_DTYPE_F32;
  int64_t below = 50;  // integers: 0..below - 1
  bool rises = false;  // from the first of them to the last
};

// A tensor in host memory, or in that of a device with `room` more bytes behind which nothing is mapped.
struct TensorOf {
  TensorOf(const ArgOf& arg, bool on_device, size_t room = 0, int number = 0) : shape(arg.dims), device(on_device) {
    for (const int64_t d : shape) count *= static_cast<size_t>(d);
    static constexpr uint8_t kCodes[] = {2, 2, 2, 4, 0, 1, 0, 0, 6};  // of LATHE_DTYPE_F32 and what follows
    static constexpr size_t kBytes[] = {4, 8, 2, 2, 1, 1, 4, 8, 1};
    dtype = arg.dtype;
    element = kBytes[dtype];
    bytes = count * element;
    all = bytes + room;
    if (device) {
      data = static_cast<char*>(fake_gpu().alloc(all + (all == 0), number));
    } else {
      host.resize(all + 1);
      data = host.data();
    }
    std::memset(data, 0x5b, all);
    const auto bits = static_cast<uint8_t>(8 * element);
    const auto rank = static_cast<int32_t>(shape.size());
    tensor = {data, {device ? 2 : 1, device ? number : 0}, rank, {kCodes[dtype], bits, 1}, shape.data(), nullptr, 0};
  }
  ~TensorOf() {
    if (device) fake_gpu().free(data);
  }
  TensorOf(const TensorOf&) = delete;

  void fill(const ArgOf& arg, int seed) {
    for (size_t i = 0; i < count; ++i) {
      const auto n =
          arg.rises ? static_cast<int64_t>(i) * (arg.below - 1) / std::max<int64_t>(static_cast<int64_t>(count) - 1, 1)
                    : static_cast<int64_t>(i * 37 + static_cast<size_t>(seed) * 11);
      if (arg.dtype == LATHE_DTYPE_I32) reinterpret_cast<int32_t*>(data)[i] = static_cast<int32_t>(n % arg.below);
      if (arg.dtype == LATHE_DTYPE_I64) reinterpret_cast<int64_t*>(data)[i] = n % arg.below;
      if (element == 1) data[i] = static_cast<char>(arg.dtype == LATHE_DTYPE_BOOL ? n % 3 : n);
      const float x = static_cast<float>(n % 101 - 50) * 0.0625f;  // exact in every type
      if (arg.dtype == LATHE_DTYPE_F32) reinterpret_cast<float*>(data)[i] = x;
      if (arg.dtype == LATHE_DTYPE_F16) reinterpret_cast<_Float16*>(data)[i] = static_cast<_Float16>(x);
      if (arg.dtype == LATHE_DTYPE_BF16)
        reinterpret_cast<uint16_t*>(data)[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
    }
  }
  float value(size_t i) const {
    switch (dtype) {
      case LATHE_DTYPE_F16:
        return static_cast<float>(reinterpret_cast<const _Float16*>(data)[i]);
      case LATHE_DTYPE_BF16:
        return std::bit_cast<float>(static_cast<uint32_t>(reinterpret_cast<const uint16_t*>(data)[i]) << 16);
      case LATHE_DTYPE_I8:
        return static_cast<float>(static_cast<int8_t>(data[i]));
      case LATHE_DTYPE_U8:
      case LATHE_DTYPE_BOOL:
        return static_cast<float>(static_cast<uint8_t>(data[i]));
      case LATHE_DTYPE_I32:
        return static_cast<float>(reinterpret_cast<const int32_t*>(data)[i]);
      case LATHE_DTYPE_I64:
        return static_cast<float>(reinterpret_cast<const int64_t*>(data)[i]);
      default:
        return floats()[i];
    }
  }
  float* floats() const { return reinterpret_cast<float*>(data); }
  lathe_arg arg() const { return {&tensor, bytes, 0, 0, 0}; }

  std::vector<int64_t> shape;
  bool device;
  size_t count = 1, element = 4, bytes = 0, all = 0;
  uint32_t dtype = LATHE_DTYPE_F32;
  std::vector<char> host;
  char* data = nullptr;
  lathe_tensor tensor;
};

// A call of float results on a device: those of the CPU within `tolerance` of (1 + |value|), and nothing written past
// the end.
inline void expect_as_on_cpu(lathe_context* ctx, const lathe_graph* graph, lathe_kernel* kernel,
                             const std::vector<ArgOf>& inputs, const ArgOf& output, size_t room = 0,
                             float tolerance = 4e-6f, int number = 0) {
  std::vector<std::unique_ptr<TensorOf>> host, device;
  std::vector<lathe_arg> host_args, device_args;
  for (size_t i = 0; i <= inputs.size(); ++i) {
    const ArgOf& arg = i < inputs.size() ? inputs[i] : output;
    host.push_back(std::make_unique<TensorOf>(arg, false));
    device.push_back(std::make_unique<TensorOf>(arg, true, room, number));
    if (i < inputs.size()) {
      host[i]->fill(arg, static_cast<int>(i));
      device[i]->fill(arg, static_cast<int>(i));
    }
    host_args.push_back(host[i]->arg());
    device_args.push_back(device[i]->arg());
  }
  lathe_error e;
  const Owned<lathe_kernel> cpu = resolve(ctx, graph);
  ASSERT_NE(cpu, nullptr);
  uint64_t bytes = 0;
  ASSERT_EQ(lathe_workspace_bytes(cpu.get(), host_args.data(), host_args.size(), 1, &bytes, &e), LATHE_STATUS_OK);
  const Aligned workspace(bytes);
  lathe_exec on_cpu = LATHE_EXEC_INIT;
  on_cpu.workspace = workspace.memory;
  on_cpu.workspace_bytes = bytes;
  lathe_exec exec = on_stream();
  ASSERT_EQ(lathe_workspace_bytes(kernel, device_args.data(), device_args.size(), 1, &bytes, &e), LATHE_STATUS_OK);
  exec.workspace = bytes == 0 ? nullptr : fake_gpu().alloc(bytes, number);
  exec.workspace_bytes = bytes;
  ASSERT_EQ(lathe_execute(cpu.get(), host_args.data(), host_args.size(), &on_cpu, &e), LATHE_STATUS_OK) << e.message;
  ASSERT_EQ(lathe_execute(kernel, device_args.data(), device_args.size(), &exec, &e), LATHE_STATUS_OK) << e.message;
  if (exec.workspace != nullptr) fake_gpu().free(exec.workspace);
  const TensorOf &want = *host.back(), &got = *device.back();
  if (tolerance == 0 && output.dtype != LATHE_DTYPE_F32 && output.dtype != LATHE_DTYPE_F16 &&
      output.dtype != LATHE_DTYPE_BF16) {
    ASSERT_EQ(std::memcmp(want.data, got.data, got.bytes), 0) << "integers differ";
  }
  for (size_t i = 0; i < got.count; ++i) {
    const float a = want.value(i), b = got.value(i);
    ASSERT_TRUE(a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= tolerance * (1 + std::fabs(a)))
        << "element " << i << " of " << got.count << " is " << b << ", expected " << a;
  }
  for (size_t i = got.bytes; i < got.all; ++i) ASSERT_EQ(got.data[i], 0x5b) << "past the end";
}

inline lathe_attr int_attr(const char* name, int64_t value) {  // name outlives it
  lathe_attr a{};
  a.name = name;
  a.type = LATHE_ATTR_INT;
  a.i = value;
  return a;
}

// A graph of one operator. dims: of each input, with its dtype.
struct DescOf {
  std::vector<lathe_dim> dims;
  uint32_t dtype = LATHE_DTYPE_F32, flags = 0;
};
inline Owned<lathe_graph> single_graph(lathe_context* ctx, const char* op, const std::vector<DescOf>& inputs,
                                       const std::vector<lathe_attr>& attrs = {}) {
  static constexpr const char* kNames[] = {"x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7"};
  std::vector<lathe_tensor_desc> descs;
  for (const DescOf& d : inputs) descs.push_back(desc(kNames[descs.size()], d.dims, d.flags, d.dtype));
  lathe_graph* out = nullptr;
  lathe_error e;
  EXPECT_EQ(lathe_graph_single(ctx, op, descs.data(), descs.size(), attrs.data(), attrs.size(), &out, &e),
            LATHE_STATUS_OK)
      << e.message;
  return Owned<lathe_graph>(out);
}
inline Owned<lathe_kernel> served_on_device(lathe_context* ctx, const lathe_graph* graph, int number = 0) {
  Owned<lathe_kernel> kernel;
  lathe_error e;
  EXPECT_EQ(resolve_on(ctx, graph, LATHE_WAIT_TUNED, kernel, nullptr, &e, static_cast<uint32_t>(number) + 1),
            LATHE_STATUS_OK)
      << e.message;
  return kernel;
}

// act(swiglu(gate [M, 40], up [M, 40]) w [40, 70] + bias [70]) + rest [M, 70], M in 1..500.
inline Owned<lathe_graph> fused_product(lathe_context* ctx, uint32_t dtype, const char* activation,
                                        const std::vector<lathe_attr>& attrs = {}) {
  lathe_graph* g = nullptr;
  lathe_error e;
  EXPECT_EQ(lathe_graph_create(ctx, "mlp", &g, &e), LATHE_STATUS_OK) << e.message;
  Owned<lathe_graph> out(g);
  const lathe_dim m = range("M", 1, 500);
  const std::vector<std::vector<lathe_dim>> dims = {
      {m, fixed(40)}, {m, fixed(40)}, {fixed(40), fixed(70)}, {fixed(70)}, {m, fixed(70)}};
  static constexpr const char* kNames[] = {"gate", "up", "w", "bias", "rest"};
  int32_t id[5];
  for (size_t i = 0; i < 5; ++i) {
    const lathe_tensor_desc d = desc(kNames[i], dims[i], i == 2 ? LATHE_TENSOR_CONST : 0, dtype);
    EXPECT_EQ(lathe_graph_tensor(g, &d, &id[i], &e), LATHE_STATUS_OK) << e.message;
  }
  int32_t last = 0;
  const auto op = [&](const char* name, std::vector<int32_t> in, const std::vector<lathe_attr>& with = {}) {
    const std::string result = "r" + std::to_string(last);
    EXPECT_EQ(lathe_graph_op(g, name, in.data(), in.size(), with.data(), with.size(), result.c_str(), &last, &e),
              LATHE_STATUS_OK)
        << e.message;
  };
  op("swiglu", {id[0], id[1]});
  op("matmul", {last, id[2]});
  op("add", {last, id[3]});
  op(activation, {last}, attrs);
  op("add", {last, id[4]});
  EXPECT_EQ(lathe_graph_output(g, last, &e), LATHE_STATUS_OK);
  EXPECT_EQ(lathe_graph_finish(g, &e), LATHE_STATUS_OK) << e.message;
  return out;
}

}  // namespace lathe::test
