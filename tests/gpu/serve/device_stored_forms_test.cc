// Every family that one process compiled is served by another one at odd shapes, without a compiler. (Chains and
// products in tiles: device_states_test.cc; tensor cores: device_*products_test.cc, device_tensor_attention_test.cc.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gpu/served_op.h"
#include "tests/gpu/temp_store.h"

namespace lathe::test {
namespace {

constexpr uint32_t kF32 = LATHE_DTYPE_F32, kBf16 = LATHE_DTYPE_BF16, kI8 = LATHE_DTYPE_I8, kU8 = LATHE_DTYPE_U8,
                   kI32 = LATHE_DTYPE_I32, kI64 = LATHE_DTYPE_I64, kConst = LATHE_TENSOR_CONST;
// The fake driver's devices: two H200s, then the rows of ir/base/gpu_targets.def.
constexpr int kH200 = 0, kA100 = 2, kRtx4090 = 3, kRtx5090 = 7;
const lathe_hint kFew = {2, 1}, kMany = {500, 1};
const int64_t kSwapped[] = {1, 0};

struct Call {
  std::vector<ArgOf> inputs;
  ArgOf output;
  float tolerance = 4e-6f;
};
struct Form {
  const char* op;
  std::vector<DescOf> inputs;
  std::vector<lathe_attr> attrs;
  std::vector<Call> calls;
};

lathe_attr flag(const char* name) {
  lathe_attr a{};
  a.name = name;
  a.type = LATHE_ATTR_BOOL;
  a.i = 1;
  return a;
}

std::vector<Form> forms() {
  lathe_attr swap{};
  swap.name = "perm";
  swap.type = LATHE_ATTR_INTS;
  swap.ints = kSwapped;
  swap.num_ints = 2;
  const lathe_dim n = range("N", 0, 5000), m = range("M", 0, 5000), few_lines = range("M", 0, 99);
  const lathe_dim b = range("B", 1, 9), p = range("P", 1, 999), v = range("V", 0, 5000);
  const std::vector<lathe_attr> channels = {text_attr("format", "int8_channel"), int_attr("group", 0)};
  std::vector<Form> out = {
      {"cast", {{{n}}}, {text_attr("to", "i8")}, {{{{{77}}}, {{77}, kI8}, 0}}},
      {"argmax", {{{few_lines, n}}}, {text_attr("to", "i64")}, {{{{{5, 1031}}}, {{5}, kI64}, 0}}},
      {"cumsum", {{{few_lines, n}}}, {}, {{{{{5, 1025}}}, {{5, 1025}}}}},
      {"cumsum", {{{few_lines, n}}}, {int_attr("axis", 0)}, {{{{{31, 9}}}, {{31, 9}}}}},
      {"top_k", {{{few_lines, n}}}, {int_attr("k", 3)}, {}},
      {"transpose", {{{m, n}}}, {swap}, {{{{{33, 29}}}, {{29, 33}}, 0}}},
      {"gather", {{{v, fixed(3)}}, {{n}, kI64}}, {}, {{{{{50, 3}}, {{7}, kI64, 50}}, {{7, 3}}, 0}}},
      {"rope",
       {{{b, range("T", 0, 100), fixed(2), fixed(32)}},
        {{p, fixed(16)}},
        {{p, fixed(16)}},
        {{range("T", 0, 100)}, kI32}},
       {},
       {{{{{3, 5, 2, 32}}, {{40, 16}}, {{40, 16}}, {{5}, kI32, 40}}, {{3, 5, 2, 32}}}}},
      {"softmax", {{{m, fixed(1000)}}}, {}, {{{{{5, 1000}}}, {{5, 1000}}}}},
      {"rmsnorm", {{{m, fixed(1000)}}, {{fixed(1000)}}}, {}, {{{{{5, 1000}}, {{1000}}}, {{5, 1000}}}}},
      {"layernorm",
       {{{m, fixed(1000)}}, {{fixed(1000)}}, {{fixed(1000)}}},
       {},
       {{{{{5, 1000}}, {{1000}}, {{1000}}}, {{5, 1000}}}}},
      {"mean", {{{m, fixed(1000)}}}, {}, {{{{{5, 1000}}}, {{5}}}}},
      {"dequantize",
       {{{fixed(16), fixed(96)}, kI8, kConst}, {{fixed(16)}, kF32, kConst}},
       channels,
       {{{{{16, 96}, kI8}, {{16}}}, {{16, 96}}, 0}}},
      {"quantized_gather",
       {{{fixed(9), fixed(96)}, kI8, kConst}, {{fixed(9)}, kF32, kConst}, {{range("T", 0, 5000)}, kI32}},
       channels,
       {{{{{9, 96}, kI8}, {{9}}, {{7}, kI32, 9}}, {{7, 96}}, 0}}},
      {"expert_matmul",
       {{{range("T", 0, 5000), fixed(33)}},
        {{fixed(5), fixed(70), fixed(33)}, kF32, kConst},
        {{range("T", 0, 5000)}, kI64}},
       {flag("transpose_b")},
       {{{{{7, 33}}, {{5, 70, 33}}, {{7}, kI64, 5}}, {{7, 70}}}}},
      {"grouped_matmul",
       {{{range("S", 0, 5000), fixed(33)}, kBf16},
        {{fixed(3), fixed(33), fixed(70)}, kBf16, kConst},
        {{fixed(4)}, kI32}},
       {},
       {{{{{37, 33}, kBf16}, {{3, 33, 70}, kBf16}, {{4}, kI32, 38, true}}, {{37, 70}, kBf16}, 0.0079f}}},
      {"attention",
       {{{fixed(4), range("S", 0, 3000), fixed(32)}},
        {{fixed(2), range("T", 0, 3000), fixed(32)}},
        {{fixed(2), range("T", 0, 3000), fixed(32)}}},
       {flag("causal")},
       {{{{{4, 3, 32}}, {{2, 70, 32}}, {{2, 70, 32}}}, {{4, 3, 32}}, 2e-5f}}},
      {"attention",
       {{{fixed(4), range("S", 0, 3000), fixed(64)}, kBf16},
        {{fixed(2), range("T", 0, 3000), fixed(64)}, kBf16},
        {{fixed(2), range("T", 0, 3000), fixed(64)}, kBf16}},
       {flag("causal")},
       {{{{{4, 70, 64}, kBf16}, {{2, 70, 64}, kBf16}, {{2, 70, 64}, kBf16}}, {{4, 70, 64}, kBf16}, 0.0079f}}}};
  for (const lathe_hint* hint : {&kFew, &kMany}) {
    lathe_dim rows = m;
    rows.hints = hint;
    rows.num_hints = 1;
    out.push_back({"matmul",
                   {{{rows, fixed(33)}}, {{fixed(33), fixed(70)}, kF32, kConst}},
                   {},
                   {{{{{3, 33}}, {{33, 70}}}, {{3, 70}}}, {{{{129, 33}}, {{33, 70}}}, {{129, 70}}}}});
    out.push_back({"matmul",
                   {{{rows, fixed(72)}, kBf16}, {{fixed(72), fixed(136)}, kBf16, kConst}},
                   {},
                   {{{{{3, 72}, kBf16}, {{72, 136}, kBf16}}, {{3, 136}, kBf16}, 0.0079f},
                    {{{{129, 72}, kBf16}, {{72, 136}, kBf16}}, {{129, 136}, kBf16}, 0.0079f}}});
    out.push_back({"quantized_matmul",
                   {{{rows, fixed(96)}}, {{fixed(65), fixed(96)}, kI8, kConst}, {{fixed(65)}, kF32, kConst}},
                   channels,
                   {{{{{3, 96}}, {{65, 96}, kI8}, {{65}}}, {{3, 65}}, 1e-5f}}});
    out.push_back({"quantized_matmul",
                   {{{rows, fixed(256)}}, {{fixed(70), fixed(144)}, kU8, kConst}},
                   {text_attr("format", "q4_k")},
                   {}});
  }
  return out;
}

Owned<lathe_graph> graph_of(lathe_context* ctx, const Form& form) {
  return single_graph(ctx, form.op, form.inputs, form.attrs);
}

// What packs a constant is stored as well.
void expect_packed(lathe_kernel* kernel) {
  lathe_error e;
  lathe_pack_info info{};
  ASSERT_EQ(lathe_prepack_query(kernel, 1, &info, &e), LATHE_STATUS_OK) << e.message;
  const TensorOf weight({{70, 144}, kU8}, true), packed({{static_cast<int64_t>(info.bytes + 63) / 64 * 64}, kU8}, true);
  EXPECT_EQ(lathe_prepack_on_stream(kernel, 1, &weight.tensor, packed.data, info.bytes, on_stream().stream, &e),
            LATHE_STATUS_OK)
      << e.message;
}

TEST(DeviceStoredForms, DISABLED_ServesWhatIsStored) {
  const auto ctx = gpu_context(std::getenv("LATHE_TEST_STORE"));
  for (const Form& form : forms()) {
    SCOPED_TRACE(form.op);
    const auto graph = graph_of(ctx.get(), form);
    Owned<lathe_kernel> kernel;
    lathe_error e;
    for (const int number : {kA100, kH200}) {
      ASSERT_EQ(
          resolve_on(ctx.get(), graph.get(), LATHE_WAIT_NOW, kernel, nullptr, &e, static_cast<uint32_t>(number) + 1),
          LATHE_STATUS_OK)
          << e.message;
      for (const Call& c : form.calls)
        expect_as_on_cpu(ctx.get(), graph.get(), kernel.get(), c.inputs, c.output, 0, c.tolerance, number);
    }
    if (form.inputs.size() == 2 && form.inputs[1].dtype == kU8) expect_packed(kernel.get());
  }
  expect_nothing_compiled(ctx.get());
}

TEST(DeviceStoredForms, AnotherProcessServesThem) {
  const TempStore store;
  const auto ctx = gpu_context(store.path);
  for (const Form& form : forms()) {
    for (const int number : {kH200, kA100})
      ASSERT_NE(served_on_device(ctx.get(), graph_of(ctx.get(), form).get(), number), nullptr);
  }
  expect_served_in_another_process(store, "DeviceStoredForms.DISABLED_ServesWhatIsStored");
}

// They have less shared memory than an H200, and neither boxes nor products of groups of warps.
TEST(DeviceStoredForms, OtherKindsOfGpuServeThem) {
  const auto ctx = gpu_context();
  for (const int number : {kA100, kRtx4090, kRtx5090}) {
    for (const Form& form : forms()) {
      SCOPED_TRACE(form.op + (" on device " + std::to_string(number)));
      const auto graph = graph_of(ctx.get(), form);
      const auto kernel = served_on_device(ctx.get(), graph.get(), number);
      ASSERT_NE(kernel, nullptr);
      for (const Call& c : form.calls)
        expect_as_on_cpu(ctx.get(), graph.get(), kernel.get(), c.inputs, c.output, 0, c.tolerance, number);
      EXPECT_EQ(fake_gpu().state.why, "");
    }
  }
}

}  // namespace
}  // namespace lathe::test
