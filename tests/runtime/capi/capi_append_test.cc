// kv_append through the C ABI, on every level: the cache is given once, keeps the rows that no slot names, and stays as
// it is where the call is refused.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/common/c_client.h"

namespace lathe::test {
namespace {

using testing::HasSubstr;

constexpr int64_t kHeads = 2, kWidth = 24;

// x[T, 2, 24], slots[T], cache[P, 2, 24]
Owned<lathe_kernel> append(lathe_context* ctx, lathe_kernel_info* info = nullptr) {
  const std::vector<lathe_dim> x = {range("T", 0, 64), fixed(kHeads), fixed(kWidth)}, slots = {range("T", 0, 64)},
                               cache = {range("P", 0, 1000), fixed(kHeads), fixed(kWidth)};
  const lathe_tensor_desc inputs[] = {desc("x", x), desc("slots", slots, 0, LATHE_DTYPE_I32), desc("cache", cache)};
  lathe_graph* graph = nullptr;
  lathe_error e;
  EXPECT_EQ(lathe_graph_single(ctx, "kv_append", inputs, 3, nullptr, 0, &graph, &e), LATHE_STATUS_OK) << e.message;
  return resolve(ctx, Owned<lathe_graph>(graph).get(), info);
}

struct Slots {
  explicit Slots(const std::vector<int32_t>& list) : values(list), shape{static_cast<int64_t>(list.size())} {
    tensor = {values.data(), {1, 0}, 1, {0, 32, 1}, shape, nullptr, 0};
  }
  std::vector<int32_t> values;
  int64_t shape[1];
  lathe_tensor tensor;
};

lathe_status run(lathe_kernel* kernel, Floats& x, Slots& slots, Floats& cache, lathe_error* e, uint32_t flags = 0) {
  const lathe_arg args[] = {{&x.tensor, 0, 0, 0, 0}, {&slots.tensor, 0, 0, 0, 0}, {&cache.tensor, 0, flags, 0, 0}};
  lathe_exec exec = LATHE_EXEC_INIT;
  exec.threads = 2;
  return lathe_execute(kernel, args, 3, &exec, e);
}

TEST(Append, WritesTheRowsThatSlotsName) {
  for (const char* level : {"portable", "avx2", "avx512"}) {
    SCOPED_TRACE(level);
    const auto ctx = make_context(level, 2);
    lathe_kernel_info info = LATHE_KERNEL_INFO_INIT;
    const auto kernel = append(ctx.get(), &info);
    EXPECT_EQ(info.num_args, 3);
    Floats x({4, kHeads, kWidth}), cache({5, kHeads, kWidth}, -7);
    for (int64_t i = 0; i < 4 * kHeads * kWidth; ++i) x.data[i] = static_cast<float>(i);
    Slots slots({3, -1, 0, 4});
    lathe_error e;
    ASSERT_EQ(run(kernel.get(), x, slots, cache, &e), LATHE_STATUS_OK) << e.message;
    const int64_t row = kHeads * kWidth, tokens[] = {2, -1, -1, 0, 3};
    for (int64_t p = 0; p < 5; ++p) {
      for (int64_t i = 0; i < row; ++i)
        ASSERT_EQ(cache.data[p * row + i], tokens[p] < 0 ? -7 : x.data[tokens[p] * row + i]) << p << " " << i;
    }
    Floats none({0, kHeads, kWidth}), no_room({0, kHeads, kWidth}), one({1, kHeads, kWidth});
    Slots nowhere({}), skipped({-1});
    EXPECT_EQ(run(kernel.get(), none, nowhere, cache, &e), LATHE_STATUS_OK) << e.message;
    EXPECT_EQ(run(kernel.get(), one, skipped, no_room, &e), LATHE_STATUS_OK) << e.message;
  }
}

TEST(Append, RefusesSlotsThatAreNoRows) {
  const auto ctx = make_context();
  const auto kernel = append(ctx.get());
  for (const int32_t bad : {-2, 5, INT32_MIN, INT32_MAX}) {
    for (const size_t at : {0, 1, 3}) {
      Floats x({4, kHeads, kWidth}, 1), cache({5, kHeads, kWidth}, -7);
      Slots slots({3, -1, 0, 4});
      slots.values[at] = bad;
      lathe_error e;
      EXPECT_EQ(run(kernel.get(), x, slots, cache, &e), LATHE_STATUS_INVALID);
      EXPECT_THAT(e.message, HasSubstr(fmt::format("slots[{}]: {}, expected -1..4", at, bad)));
      EXPECT_EQ(e.arg_index, 1);
      for (int64_t i = 0; i < 5 * kHeads * kWidth; ++i) ASSERT_EQ(cache.data[i], -7);
    }
  }
}

TEST(Append, RefusesACacheThatItMayNotWrite) {
  const auto ctx = make_context();
  const auto kernel = append(ctx.get());
  Floats x({4, kHeads, kWidth}, 1), cache({5, kHeads, kWidth}, -7);
  Slots slots({3, -1, 0, 4});
  lathe_error e;
  EXPECT_EQ(run(kernel.get(), x, slots, cache, &e, LATHE_ARG_READ_ONLY), LATHE_STATUS_INVALID);
  EXPECT_THAT(e.message, HasSubstr("cache.flags: an output cannot be READ_ONLY"));
  Floats whole({5, kHeads, kWidth}, 1);
  x.tensor.data = whole.tensor.data;  // the first rows of the cache
  EXPECT_EQ(run(kernel.get(), x, slots, whole, &e), LATHE_STATUS_INVALID);
  EXPECT_THAT(e.message, HasSubstr("cache.data: overlaps x"));
}

}  // namespace
}  // namespace lathe::test
