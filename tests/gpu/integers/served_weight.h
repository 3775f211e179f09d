// Weights of few bits on fake devices, with the bytes that engines have, and what the CPU makes of them.
#pragma once
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/gpu/served_op.h"

namespace lathe::test {

// The blocks of tests/ops/quant_vectors.txt: random ones, all bits set, none, the largest scale.
inline std::vector<std::string> blocks_of(const std::string& format) {
  std::vector<std::string> out;
  std::ifstream in(LATHE_SOURCE_DIR "/tests/ops/quant_vectors.txt");
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name, hex, bytes;
    words >> name >> hex;
    if (name != format) continue;
    for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    out.push_back(bytes);
  }
  return out;
}

// Operands of the weight, with their bytes.
struct Operand {
  ArgOf arg;
  std::string bytes;
};
struct Weight {
  std::string format;
  int64_t group = 0, n = 0, k = 0;
  std::vector<Operand> operands;
};

// Of several weights, `number` of them, which are the first dimension of each operand; 0: of one.
inline std::vector<int64_t> of_several(int64_t number, std::vector<int64_t> dims) {
  if (number > 0) dims.insert(dims.begin(), number);
  return dims;
}

// extreme: of all blocks, else of random ones.
inline Weight blocks(const std::string& format, int64_t block, int64_t n, int64_t depth, bool extreme = false,
                     int64_t number = 0) {
  const std::vector<std::string> known = blocks_of(format);
  std::string bytes;
  for (int64_t i = 0; i < std::max<int64_t>(number, 1) * n * depth; ++i) {
    const auto from = static_cast<size_t>(i * 7 + i / 3) % known.size();
    bytes += known[extreme ? from : from % 2 * (known.size() - 1)];
  }
  const auto row = static_cast<int64_t>(known[0].size()) * depth;
  return {format, 0, n, block * depth, {{{of_several(number, {n, row}), LATHE_DTYPE_U8}, bytes}}};
}

// Fields that are operands of their own: any bits, and scales that are exact.
inline Operand random_bits(const std::vector<int64_t>& dims, uint32_t dtype, uint64_t seed) {
  Operand out{{dims, dtype}, ""};
  TensorOf shape(out.arg, false);
  out.bytes.resize(shape.bytes);
  for (char& c : out.bytes) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    c = static_cast<char>(seed >> 40);
  }
  return out;
}
inline Operand exact_scales(const std::vector<int64_t>& dims, uint32_t dtype = LATHE_DTYPE_F32) {
  Operand out{{dims, dtype}, ""};
  TensorOf values(out.arg, false);
  values.fill(out.arg, 3);
  out.bytes.assign(values.data, values.bytes);
  return out;
}
inline Weight tensors(const std::string& format, int64_t n, int64_t k, int64_t group, int64_t number = 0) {
  const int64_t g = group == 0 ? 1 : (k + group - 1) / group;
  const uint32_t u8 = LATHE_DTYPE_U8, i8 = LATHE_DTYPE_I8, i32 = LATHE_DTYPE_I32;
  const auto bits = [&](const std::vector<int64_t>& dims, uint32_t dtype, uint64_t seed) {
    return random_bits(of_several(number, dims), dtype, seed);
  };
  const auto scales = [&](const std::vector<int64_t>& dims, uint32_t dtype = LATHE_DTYPE_F32) {
    return exact_scales(of_several(number, dims), dtype);
  };
  Weight out{format, group, n, k, {}};
  if (format == "int8_channel") out.operands = {bits({n, k}, i8, 1), scales({n})};
  if (format == "int8_group") out.operands = {bits({n, k}, i8, 1), scales({n, g}, LATHE_DTYPE_F16)};
  if (format.rfind("nbits_4", 0) == 0) out.operands = {bits({n, g, group / 2}, u8, 1), scales({n, g})};
  if (format.rfind("nbits_8", 0) == 0) out.operands = {bits({n, g, group}, u8, 1), scales({n, g})};
  if (format == "nbits_4_zeros") out.operands.push_back(bits({n, (g + 1) / 2}, u8, 2));
  if (format == "nbits_8_zeros") out.operands.push_back(bits({n, g}, u8, 2));
  if (format.ends_with("float_zeros")) out.operands.push_back(scales({n, g}));
  if (format.rfind("gptq", 0) == 0)
    out.operands = {bits({k / 8, n}, i32, 1), scales({g, n}, LATHE_DTYPE_BF16), bits({g, n / 8}, i32, 2)};
  if (format == "awq") out.operands = {bits({k, n / 8}, i32, 1), scales({g, n}), bits({g, n / 8}, i32, 2)};
  return out;
}

struct Call {
  std::vector<std::unique_ptr<TensorOf>> tensors;
  std::vector<lathe_arg> args;
  void add(const Operand& o, bool on_device, int seed = 0) {
    tensors.push_back(std::make_unique<TensorOf>(o.arg, on_device));
    if (o.bytes.empty()) {
      tensors.back()->fill(o.arg, seed);
    } else {
      std::memcpy(tensors.back()->data, o.bytes.data(), o.bytes.size());
    }
    args.push_back(tensors.back()->arg());
  }
};

inline const lathe_hint kFew = {1, 1}, kMany = {64, 1};

class ServedWeight : public testing::Test {
 protected:
  static std::vector<lathe_attr> attrs_of(const Weight& w) {
    lathe_attr group{};
    group.name = "group";
    group.type = LATHE_ATTR_INT;
    group.i = w.group;
    return {text_attr("format", w.format.c_str()), group};
  }
  static std::vector<DescOf> descs_of(const Weight& w) {
    std::vector<DescOf> out;
    for (const Operand& o : w.operands) {
      std::vector<lathe_dim> dims;
      for (const int64_t d : o.arg.dims) dims.push_back(fixed(d));
      out.push_back({dims, o.arg.dtype, LATHE_TENSOR_CONST});
    }
    return out;
  }

  // Results of the CPU, relative to the largest of them; NaN where they are. before, after: the other inputs.
  void expect_as_cpu(const lathe_graph* graph, lathe_kernel* kernel, const std::vector<Operand>& before,
                     const Weight& w, const std::vector<Operand>& after, const ArgOf& result, float tolerance) {
    Call host, device;
    for (Call* call : {&host, &device}) {
      for (const Operand& o : before) call->add(o, call == &device, 1);
      for (const Operand& o : w.operands) call->add(o, call == &device);
      for (const Operand& o : after) call->add(o, call == &device, 2);
      call->add({result, ""}, call == &device);
    }
    lathe_error e;
    const Owned<lathe_kernel> cpu = resolve(ctx.get(), graph);
    uint64_t bytes = 0;
    ASSERT_EQ(lathe_workspace_bytes(cpu.get(), host.args.data(), host.args.size(), 1, &bytes, &e), LATHE_STATUS_OK);
    const Aligned workspace(bytes);
    lathe_exec on_cpu = LATHE_EXEC_INIT;
    on_cpu.workspace = workspace.memory;
    on_cpu.workspace_bytes = bytes;
    lathe_exec exec = on_stream();
    ASSERT_EQ(lathe_workspace_bytes(kernel, device.args.data(), device.args.size(), 1, &bytes, &e), LATHE_STATUS_OK);
    const TensorOf sums({{static_cast<int64_t>(bytes)}, LATHE_DTYPE_U8}, true);
    exec.workspace = bytes == 0 ? nullptr : sums.data;
    exec.workspace_bytes = bytes;
    ASSERT_EQ(lathe_execute(cpu.get(), host.args.data(), host.args.size(), &on_cpu, &e), LATHE_STATUS_OK) << e.message;
    ASSERT_EQ(lathe_execute(kernel, device.args.data(), device.args.size(), &exec, &e), LATHE_STATUS_OK) << e.message;
    expect_equal(w, host, device, tolerance);
    if (!pack(kernel, device)) return;
    TensorOf& result_of = *device.tensors.back();
    std::memset(result_of.data, 0x5b, result_of.bytes);
    ASSERT_EQ(lathe_execute(kernel, device.args.data(), device.args.size(), &exec, &e), LATHE_STATUS_OK) << e.message;
    expect_equal(w, host, device, tolerance);
    ++packed_;
  }

  // Constants that the kernel packs, packed; false: it packs none.
  bool pack(lathe_kernel* kernel, Call& call) {
    bool any = false;
    lathe_error e;
    for (size_t i = 0; i + 1 < call.args.size(); ++i) {
      lathe_pack_info info{};
      const auto number = static_cast<int32_t>(i);
      if (lathe_prepack_query(kernel, number, &info, nullptr) != LATHE_STATUS_OK || info.layout_id == 0) continue;
      // Aligned, it ends at most 63 bytes before what is mapped does.
      const auto room = static_cast<int64_t>((info.bytes + info.align - 1) / info.align * info.align);
      forms_.push_back(std::make_unique<TensorOf>(ArgOf{{room}, LATHE_DTYPE_U8}, true));
      void* const at = forms_.back()->data;
      EXPECT_EQ(lathe_prepack_on_stream(kernel, number, call.args[i].tensor, at, info.bytes, on_stream().stream, &e),
                LATHE_STATUS_OK)
          << e.arg_name << ": " << e.message;
      std::memset(call.tensors[i]->data, 0, call.tensors[i]->bytes);  // nobody reads the caller's any more
      call.tensors[i]->tensor.data = at;
      call.args[i].layout_id = info.layout_id;
      call.args[i].bytes = info.bytes;
      any = true;
    }
    return any;
  }

  static void expect_equal(const Weight& w, const Call& host, const Call& device, float tolerance) {
    const TensorOf &want = *host.tensors.back(), &got = *device.tensors.back();
    float most = 0;
    for (size_t i = 0; i < want.count; ++i)
      if (std::isfinite(want.value(i))) most = std::max(most, std::fabs(want.value(i)));
    for (size_t i = 0; i < want.count; ++i) {
      const float a = want.value(i), b = got.value(i);
      ASSERT_TRUE(a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= tolerance * (1 + most))
          << w.format << " element " << i << " of " << want.count << " is " << b << ", expected " << a;
    }
  }

  Owned<lathe_context> ctx = gpu_context();
  std::vector<std::unique_ptr<TensorOf>> forms_;
  int packed_ = 0;  // calls with packed constants
};

struct Blocks {
  const char* name;
  int64_t size;
};
inline constexpr Blocks kBlocks[] = {{"q4_0", 32}, {"q4_1", 32},  {"q5_0", 32},  {"q5_1", 32},
                                     {"q8_0", 32}, {"q4_k", 256}, {"q5_k", 256}, {"q6_k", 256}};

}  // namespace lathe::test
