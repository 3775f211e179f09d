// Packing constants on a device: who packs joins the caller's stream and does nothing else; what stands against it, or
// against a call with what was packed, is refused by the name of the argument, and nothing is written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gpu/served_op.h"

namespace lathe::test {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kN = 6, kK = 64, kRow = kK / 32 * 18;

class DevicePacked : public testing::Test {
 protected:
  void SetUp() override {
    graph = product("q4_0", kRow);
    kernel = served_on_device(ctx.get(), graph.get());
    ASSERT_NE(kernel, nullptr);
    ASSERT_EQ(lathe_prepack_query(kernel.get(), 1, &info, &e), LATHE_STATUS_OK) << e.message;
    ASSERT_EQ(info.bytes, 64u + kN * kK / 2);  // scales, up to the next multiple of 64, and nibbles
    ASSERT_EQ(info.align, 64u);
    weight.fill({{kN, kRow}, LATHE_DTYPE_U8}, 1);
    a.fill({{2, kK}}, 2);
  }
  Owned<lathe_graph> product(const char* format, int64_t row) {
    return single_graph(
        ctx.get(), "quantized_matmul",
        {{{range("M", 0, 50), fixed(kK)}}, {{fixed(kN), fixed(row)}, LATHE_DTYPE_U8, LATHE_TENSOR_CONST}},
        {text_attr("format", format)});
  }
  lathe_status prepack(const lathe_tensor& source, void* to, uint64_t bytes, int32_t arg = 1) {
    return lathe_prepack_on_stream(kernel.get(), arg, &source, to, bytes, on_stream().stream, &e);
  }
  // Refused, and nothing written.
  void expect_refused(lathe_status status, lathe_status want, const char* arg, const char* message) {
    EXPECT_EQ(status, want) << message;
    EXPECT_STREQ(e.arg_name, arg) << message;
    EXPECT_THAT(e.message, HasSubstr(message));
    for (size_t i = 0; i < form.bytes; ++i) ASSERT_EQ(form.data[i], 0x5b);
  }
  lathe_status call(const lathe_arg& w, int64_t expected_rows = 2) {
    const TensorOf rows({{expected_rows, kK}}, true), y({{expected_rows, kN}}, true);
    const lathe_arg args[] = {rows.arg(), w, y.arg()};
    const lathe_exec exec = on_stream();
    return lathe_execute(kernel.get(), args, 3, &exec, &e);
  }
  lathe_arg packed(void* data, uint64_t layout) {
    form_tensor = weight.tensor;
    form_tensor.data = data;
    return {&form_tensor, 0, 0, 0, layout};
  }

  Owned<lathe_context> ctx = gpu_context();
  Owned<lathe_graph> graph;
  Owned<lathe_kernel> kernel;
  lathe_pack_info info{};
  lathe_error e{};
  lathe_tensor form_tensor{};
  TensorOf weight{{{kN, kRow}, LATHE_DTYPE_U8}, true}, form{{{64 + kN * kK / 2}, LATHE_DTYPE_U8}, true},
      a{{{2, kK}}, true};
};

// The scales of all blocks, then the nibbles, in the order of outputs and blocks.
TEST_F(DevicePacked, FieldsLieApart) {
  ASSERT_EQ(prepack(weight.tensor, form.data, info.bytes), LATHE_STATUS_OK) << e.message;
  for (int64_t block = 0; block < kN * kK / 32; ++block) {
    EXPECT_EQ(std::memcmp(form.data + 2 * block, weight.data + 18 * block, 2), 0) << block;
    EXPECT_EQ(std::memcmp(form.data + 64 + 16 * block, weight.data + 18 * block + 2, 16), 0) << block;
  }
}

TEST_F(DevicePacked, PackingAllocatesWaitsAndLoadsNothing) {
  const FakeCuda& state = fake_gpu().state;
  const int allocations = state.allocations, waits = state.synchronisations, loads = state.loads;
  ASSERT_EQ(prepack(weight.tensor, form.data, info.bytes), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(call(packed(form.data, info.layout_id)), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(state.allocations, allocations);
  EXPECT_EQ(state.synchronisations, waits);
  EXPECT_EQ(state.loads, loads);
}

TEST_F(DevicePacked, WhatDoesNotPackIsRefused) {
  lathe_tensor on_host = weight.tensor, of_host = weight.tensor, elsewhere = weight.tensor;
  std::vector<char> host(static_cast<size_t>(kN * kRow));
  on_host.device = {1, 0};
  of_host.data = host.data();
  expect_refused(prepack(on_host, form.data, info.bytes), LATHE_STATUS_INVALID, "x1.device", "expected 2 (CUDA) id 0");
  expect_refused(prepack(of_host, form.data, info.bytes), LATHE_STATUS_INVALID, "source.data", "host memory");
  void* const other = fake_gpu().alloc(4096, 1);
  elsewhere.data = other;
  expect_refused(prepack(elsewhere, form.data, info.bytes), LATHE_STATUS_INVALID, "source.data", "memory of device 1");
  expect_refused(prepack(weight.tensor, other, info.bytes), LATHE_STATUS_INVALID, "out", "memory of device 1");
  fake_gpu().free(other);
  const Aligned on_the_host(info.bytes);
  expect_refused(prepack(weight.tensor, on_the_host.memory, info.bytes), LATHE_STATUS_INVALID, "out", "host memory");
  expect_refused(prepack(weight.tensor, form.data, info.bytes - 1), LATHE_STATUS_INVALID, "out_bytes", "at least 256");
  expect_refused(prepack(weight.tensor, form.data + 16, info.bytes), LATHE_STATUS_INVALID, "out", "not aligned");
  expect_refused(prepack(weight.tensor, nullptr, info.bytes), LATHE_STATUS_INVALID, "out", "NULL");
  lathe_tensor inside = weight.tensor;
  inside.data = form.data;
  expect_refused(prepack(inside, form.data, info.bytes), LATHE_STATUS_INVALID, "out", "overlaps the source");
  expect_refused(prepack(a.tensor, form.data, info.bytes, 0), LATHE_STATUS_INVALID, "arg", "x0 is not a constant");
  expect_refused(prepack(weight.tensor, form.data, info.bytes, 7), LATHE_STATUS_INVALID, "arg", "expected 0..2");
  expect_refused(lathe_prepack_on_stream(kernel.get(), 1, &weight.tensor, form.data, info.bytes, nullptr, &e),
                 LATHE_STATUS_INVALID, "stream", "the stream that packing joins");
}

TEST_F(DevicePacked, EachKindOfKernelPacksInItsOwnWay) {
  expect_refused(lathe_prepack(kernel.get(), 1, &weight.tensor, form.data, info.bytes, &e), LATHE_STATUS_STATE,
                 "kernel", "packs by lathe_prepack_on_stream");
  const Owned<lathe_kernel> cpu = resolve(ctx.get(), graph.get());
  expect_refused(lathe_prepack_on_stream(cpu.get(), 1, &weight.tensor, form.data, info.bytes, on_stream().stream, &e),
                 LATHE_STATUS_STATE, "kernel", "packs by lathe_prepack");
}

// A constant that is no weight of few bits is read as it lies.
TEST_F(DevicePacked, OthersHaveNoPackedForm) {
  const auto matmul =
      single_graph(ctx.get(), "matmul",
                   {{{range("M", 1, 50), fixed(8)}}, {{fixed(8), fixed(8)}, LATHE_DTYPE_F32, LATHE_TENSOR_CONST}});
  const auto plain = served_on_device(ctx.get(), matmul.get());
  ASSERT_EQ(lathe_prepack_query(plain.get(), 1, &info, &e), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(info.layout_id, 0u);
  const TensorOf w({{8, 8}}, true);
  expect_refused(lathe_prepack_on_stream(plain.get(), 1, &w.tensor, form.data, 256, on_stream().stream, &e),
                 LATHE_STATUS_STATE, "arg", "no packed form");
}

TEST_F(DevicePacked, CallsWithWhatWasPackedForOthersAreRefused) {
  lathe_pack_info other{};
  const Owned<lathe_kernel> cpu = resolve(ctx.get(), graph.get());
  ASSERT_EQ(lathe_prepack_query(cpu.get(), 1, &other, &e), LATHE_STATUS_OK) << e.message;
  ASSERT_NE(other.layout_id, info.layout_id);
  EXPECT_EQ(call(packed(form.data, other.layout_id)), LATHE_STATUS_INVALID);
  EXPECT_STREQ(e.arg_name, "x1.layout_id");
  const auto eight = product("q8_0", kK / 32 * 34);
  const auto of_eight = served_on_device(ctx.get(), eight.get());
  ASSERT_EQ(lathe_prepack_query(of_eight.get(), 1, &other, &e), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(call(packed(form.data, other.layout_id)), LATHE_STATUS_INVALID);
  EXPECT_STREQ(e.arg_name, "x1.layout_id");

  void* const there = fake_gpu().alloc(4096, 1);
  EXPECT_EQ(call(packed(there, info.layout_id)), LATHE_STATUS_INVALID);
  EXPECT_STREQ(e.arg_name, "x1.data");
  EXPECT_THAT(e.message, HasSubstr("memory of device 1"));
  fake_gpu().free(there);
  const Aligned on_the_host(info.bytes);
  EXPECT_EQ(call(packed(on_the_host.memory, info.layout_id)), LATHE_STATUS_INVALID);
  EXPECT_THAT(e.message, HasSubstr("host memory"));
  lathe_arg brief = packed(form.data, info.layout_id);
  brief.bytes = info.bytes - 1;
  EXPECT_EQ(call(brief), LATHE_STATUS_INVALID);
  EXPECT_STREQ(e.arg_name, "x1.bytes");
  EXPECT_EQ(call(packed(form.data + 4, info.layout_id)), LATHE_STATUS_INVALID);
  EXPECT_STREQ(e.arg_name, "x1.data");
}

}  // namespace
}  // namespace lathe::test
