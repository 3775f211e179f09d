// Products of integers on a device, through the C ABI and the fakes: the CPU's sums, bit by bit, of all four pairs of
// types, with and without zero points, and with what is fused behind.
#include <gtest/gtest.h>

#include "tests/gpu/served_op.h"

namespace lathe::test {
namespace {

class DeviceIntegerProducts : public testing::Test {
 protected:
  Owned<lathe_context> ctx = gpu_context();
};

TEST_F(DeviceIntegerProducts, TypesAndZeroPoints) {
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{24, 40}, {1, 1}, {67, 131}}) {
    for (const uint32_t a : {LATHE_DTYPE_I8, LATHE_DTYPE_U8}) {
      for (const uint32_t b : {LATHE_DTYPE_I8, LATHE_DTYPE_U8}) {
        for (const int64_t zeros : {int64_t{0}, int64_t{1}, n}) {
          std::vector<DescOf> descs = {{{range("M", 0, 5000), fixed(k)}, a},
                                       {{fixed(k), fixed(n)}, b, LATHE_TENSOR_CONST}};
          if (zeros > 0) descs.insert(descs.end(), {{{fixed(1)}, a}, {{fixed(zeros)}, b}});
          const auto graph = single_graph(ctx.get(), "matmul_integer", descs);
          const auto kernel = served_on_device(ctx.get(), graph.get());
          ASSERT_NE(kernel, nullptr) << a << " by " << b << ", zero points " << zeros;
          for (const int64_t m : {0, 1, 7, 33}) {
            std::vector<ArgOf> inputs = {{{m, k}, a}, {{k, n}, b}};
            if (zeros > 0) inputs.insert(inputs.end(), {{{1}, a}, {{zeros}, b}});
            expect_as_on_cpu(ctx.get(), graph.get(), kernel.get(), inputs, {{m, n}, LATHE_DTYPE_I32}, 0, 0);
          }
        }
      }
    }
  }
}

// Tiles, and rows by themselves: one over and under a tile, a step and an access, turned round, in batches.
TEST_F(DeviceIntegerProducts, EveryLayout) {
  const uint32_t u8 = LATHE_DTYPE_U8, i8 = LATHE_DTYPE_I8;
  const auto turned = [](const char* name, bool is) {
    lathe_attr a = int_attr(name, is);
    a.type = LATHE_ATTR_BOOL;
    return a;
  };
  for (const lathe_hint& hint : {lathe_hint{2, 1}, lathe_hint{300, 1}}) {
    for (const int form : {0, 1, 2, 3}) {
      const bool a_turned = form % 2 != 0, b_turned = form / 2 != 0;
      lathe_dim m = range("M", 0, 5000), k = range("K", 0, 4000);
      m.hints = &hint;
      m.num_hints = 1;
      const lathe_dim n = fixed(129), two = fixed(2);
      const std::vector<lathe_dim> a = a_turned ? std::vector{two, k, m} : std::vector{two, m, k},
                                   b = b_turned ? std::vector{n, k} : std::vector{k, n};
      const auto graph = single_graph(ctx.get(), "matmul_integer", {{a, u8}, {b, i8}, {{fixed(1)}, u8}, {{n}, i8}},
                                      {turned("transpose_a", a_turned), turned("transpose_b", b_turned)});
      ASSERT_NE(graph, nullptr);
      const auto kernel = served_on_device(ctx.get(), graph.get());
      ASSERT_NE(kernel, nullptr) << form;
      for (const auto& [rows, terms] :
           {std::pair<int64_t, int64_t>{1, 0}, {1, 1}, {63, 15}, {65, 17}, {127, 31}, {129, 33}, {128, 64}, {7, 515}}) {
        SCOPED_TRACE(testing::Message() << form << " " << rows << "x" << terms);
        const std::vector<int64_t> of_a = a_turned ? std::vector<int64_t>{2, terms, rows}
                                                   : std::vector<int64_t>{2, rows, terms},
                                   of_b =
                                       b_turned ? std::vector<int64_t>{129, terms} : std::vector<int64_t>{terms, 129};
        expect_as_on_cpu(ctx.get(), graph.get(), kernel.get(), {{of_a, u8}, {of_b, i8}, {{1}, u8}, {{129}, i8}},
                         {{2, rows, 129}, LATHE_DTYPE_I32}, 8, 0);
      }
    }
  }
}

// Sums of integers are exact in any order: no Schedule takes a liberty that the caller has to allow, whichever it is.
TEST_F(DeviceIntegerProducts, TakeNoLiberty) {
  lathe_attr turned = int_attr("transpose_b", 1);
  turned.type = LATHE_ATTR_BOOL;
  for (const int64_t rows : {1, 8, 300}) {
    for (const bool by_terms : {true, false}) {
      const std::vector<lathe_dim> b =
          by_terms ? std::vector{fixed(129), fixed(64)} : std::vector{fixed(64), fixed(129)};
      const auto graph =
          single_graph(ctx.get(), "matmul_integer", {{{fixed(rows), fixed(64)}, LATHE_DTYPE_U8}, {b, LATHE_DTYPE_I8}},
                       by_terms ? std::vector{turned} : std::vector<lathe_attr>{});
      ASSERT_NE(graph, nullptr);
      Owned<lathe_kernel> kernel;
      lathe_error error{};
      EXPECT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_TUNED, kernel, nullptr, &error, 1, LATHE_CLASS_CONTRACT),
                LATHE_STATUS_OK)
          << rows << " " << by_terms << ": " << error.message;
    }
  }
}

TEST_F(DeviceIntegerProducts, WithWhatFollows) {
  constexpr int64_t kColumns = 24, kTerms = 40;
  for (const uint32_t a : {LATHE_DTYPE_I8, LATHE_DTYPE_U8}) {
    lathe_graph* g = nullptr;
    lathe_error e;
    ASSERT_EQ(lathe_graph_create(ctx.get(), "scaled", &g, &e), LATHE_STATUS_OK) << e.message;
    const Owned<lathe_graph> graph(g);
    const std::vector<lathe_dim> rows = {range("M", 0, 5000), fixed(kTerms)}, weight = {fixed(kTerms), fixed(kColumns)},
                                 one = {fixed(1)}, each = {fixed(kColumns)};
    const lathe_tensor_desc descs[] = {desc("a", rows, 0, a), desc("b", weight, LATHE_TENSOR_CONST, LATHE_DTYPE_I8),
                                       desc("za", one, 0, a), desc("zb", each, 0, LATHE_DTYPE_I8), desc("s", each)};
    int32_t in[5], sum = -1, number = -1, out = -1;
    for (size_t i = 0; i < 5; ++i)
      ASSERT_EQ(lathe_graph_tensor(g, &descs[i], &in[i], &e), LATHE_STATUS_OK) << e.message;
    const lathe_attr to = text_attr("to", "f32");
    ASSERT_EQ(lathe_graph_op(g, "matmul_integer", in, 4, nullptr, 0, "c", &sum, &e), LATHE_STATUS_OK) << e.message;
    ASSERT_EQ(lathe_graph_op(g, "cast", &sum, 1, &to, 1, "f", &number, &e), LATHE_STATUS_OK) << e.message;
    const int32_t factors[] = {number, in[4]};
    ASSERT_EQ(lathe_graph_op(g, "mul", factors, 2, nullptr, 0, "y", &out, &e), LATHE_STATUS_OK) << e.message;
    ASSERT_EQ(lathe_graph_output(g, out, &e), LATHE_STATUS_OK) << e.message;
    ASSERT_EQ(lathe_graph_finish(g, &e), LATHE_STATUS_OK) << e.message;
    const auto kernel = served_on_device(ctx.get(), g);
    ASSERT_NE(kernel, nullptr);
    for (const int64_t m : {0, 1, 9, 65})
      expect_as_on_cpu(ctx.get(), g, kernel.get(),
                       {{{m, kTerms}, a},
                        {{kTerms, kColumns}, LATHE_DTYPE_I8},
                        {{1}, a},
                        {{kColumns}, LATHE_DTYPE_I8},
                        {{kColumns}}},
                       {{m, kColumns}}, 0, 0);
  }
}

}  // namespace
}  // namespace lathe::test
