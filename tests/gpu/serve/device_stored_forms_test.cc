// Integers, weights of few bits and groups of rows that one process compiled are served by another one, which has no
// compiler.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gpu/served_op.h"
#include "tests/gpu/temp_store.h"

namespace lathe::test {
namespace {

const lathe_hint kFew = {2, 1}, kMany = {500, 1};
constexpr size_t kProduct = 5;  // of few bits

std::vector<Owned<lathe_graph>> graphs(lathe_context* ctx) {
  std::vector<Owned<lathe_graph>> out;
  const lathe_dim n = range("N", 0, 5000);
  out.push_back(single_graph(ctx, "cast", {{{n}}}, {text_attr("to", "i8")}));
  out.push_back(single_graph(ctx, "argmax", {{{range("M", 0, 99), n}}}, {text_attr("to", "i64")}));
  out.push_back(single_graph(ctx, "cumsum", {{{range("M", 0, 99), n}}}));
  out.push_back(single_graph(ctx, "cumsum", {{{range("M", 0, 99), n}}}, {int_attr("axis", 0)}));
  out.push_back(single_graph(ctx, "top_k", {{{range("M", 0, 99), n}}}, {int_attr("k", 3)}));
  for (const lathe_hint* hint : {&kFew, &kMany}) {
    lathe_dim m = range("M", 0, 5000);
    m.hints = hint;
    m.num_hints = 1;
    const DescOf weight{{fixed(70), fixed(144)}, LATHE_DTYPE_U8, LATHE_TENSOR_CONST};
    out.push_back(single_graph(ctx, "quantized_matmul", {{{m, fixed(256)}}, weight}, {text_attr("format", "q4_k")}));
  }
  out.push_back(single_graph(ctx, "grouped_matmul",
                             {{{range("S", 0, 5000), fixed(33)}, LATHE_DTYPE_BF16},
                              {{fixed(3), fixed(33), fixed(70)}, LATHE_DTYPE_BF16, LATHE_TENSOR_CONST},
                              {{fixed(4)}, LATHE_DTYPE_I32}}));
  return out;
}

TEST(DeviceStoredForms, DISABLED_ServesWhatIsStored) {
  const auto ctx = gpu_context(std::getenv("LATHE_TEST_STORE"), "/nonexistent/libnvrtc.so");
  const auto all = graphs(ctx.get());
  Owned<lathe_kernel> kernel;
  lathe_error e;
  for (const auto& graph : all)
    ASSERT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_NOW, kernel, nullptr, &e), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(counter(ctx.get(), "compiled_nvrtc"), 0u);
  Owned<lathe_kernel> cast;
  ASSERT_EQ(resolve_on(ctx.get(), all[0].get(), LATHE_WAIT_NOW, cast, nullptr, &e), LATHE_STATUS_OK) << e.message;
  expect_as_on_cpu(ctx.get(), all[0].get(), cast.get(), {{{77}}}, {{77}, LATHE_DTYPE_I8}, 0, 0);
  // What packs a constant is stored as well.
  Owned<lathe_kernel> product;
  ASSERT_EQ(resolve_on(ctx.get(), all[kProduct].get(), LATHE_WAIT_NOW, product, nullptr, &e), LATHE_STATUS_OK);
  lathe_pack_info info{};
  ASSERT_EQ(lathe_prepack_query(product.get(), 1, &info, &e), LATHE_STATUS_OK) << e.message;
  const TensorOf weight({{70, 144}, LATHE_DTYPE_U8}, true),
      packed({{static_cast<int64_t>(info.bytes + 63) / 64 * 64}, LATHE_DTYPE_U8}, true);
  EXPECT_EQ(lathe_prepack_on_stream(product.get(), 1, &weight.tensor, packed.data, info.bytes, on_stream().stream, &e),
            LATHE_STATUS_OK)
      << e.message;
  EXPECT_EQ(counter(ctx.get(), "compiled_nvrtc"), 0u);
}

TEST(DeviceStoredForms, AnotherProcessServesThem) {
  const TempStore store;
  const auto ctx = gpu_context(store.path);
  for (const auto& graph : graphs(ctx.get())) ASSERT_NE(served_on_device(ctx.get(), graph.get()), nullptr);
  expect_served_in_another_process(store, "DeviceStoredForms.DISABLED_ServesWhatIsStored");
}

}  // namespace
}  // namespace lathe::test
