// gather through the C ABI, on every level and of every dtype of a table: rows bit by bit, and ids that are no rows
// refused, by position, value and range, before anything is written.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstring>

#include "tests/common/c_client.h"

namespace lathe::test {
namespace {

using testing::HasSubstr;

struct Type {
  uint32_t dtype;
  lathe_data_type lanes;
};
constexpr Type kI32 = {LATHE_DTYPE_I32, {0, 32, 1}}, kI64 = {LATHE_DTYPE_I64, {0, 64, 1}},
               kF32 = {LATHE_DTYPE_F32, {2, 32, 1}};
constexpr Type kTables[] = {kF32, {LATHE_DTYPE_BF16, {4, 16, 1}}, {LATHE_DTYPE_F16, {2, 16, 1}},
                            kI32, {LATHE_DTYPE_I8, {0, 8, 1}},    {LATHE_DTYPE_U8, {1, 8, 1}},
                            kI64};

// A compact tensor of any type.
struct Bytes {
  Bytes(Type type, std::vector<int64_t> dims, unsigned char fill = 0)
      : shape(std::move(dims)), element(type.lanes.bits / 8) {
    bytes = element;
    for (const int64_t d : shape) bytes *= static_cast<size_t>(d);
    memory = std::make_unique<Aligned>(bytes);
    tensor = {memory->memory, {1, 0}, static_cast<int32_t>(shape.size()), type.lanes, shape.data(), nullptr, 0};
    std::memset(memory->memory, fill, bytes);
  }
  unsigned char* at(int64_t i) {
    return static_cast<unsigned char*>(memory->memory) + static_cast<size_t>(i) * element;
  }
  Bytes& counted() {
    for (size_t i = 0; i < bytes; ++i) static_cast<unsigned char*>(memory->memory)[i] = i * 37 + i / 251;
    return *this;
  }
  Bytes& ids(const std::vector<int64_t>& values) {
    for (size_t i = 0; i < values.size(); ++i) std::memcpy(at(static_cast<int64_t>(i)), &values[i], element);
    return *this;
  }
  bool is_filled_with(unsigned char fill) {
    for (size_t i = 0; i < bytes; ++i) {
      if (static_cast<unsigned char*>(memory->memory)[i] != fill) return false;
    }
    return true;
  }
  lathe_arg arg() const { return {&tensor, bytes, 0, 0, 0}; }

  std::vector<int64_t> shape;
  size_t element, bytes;
  std::unique_ptr<Aligned> memory;
  lathe_tensor tensor;
};

// table[P, N], ids[2, T] -> y[2, T, N]
Owned<lathe_kernel> gather(lathe_context* ctx, Type table, Type ids, int64_t n) {
  const std::vector<lathe_dim> rows = {range("P", 0, 1000), fixed(n)}, at = {fixed(2), range("T", 0, 64)};
  const lathe_tensor_desc inputs[] = {desc("table", rows, 0, table.dtype), desc("ids", at, 0, ids.dtype)};
  lathe_graph* graph = nullptr;
  lathe_error e;
  EXPECT_EQ(lathe_graph_single(ctx, "gather", inputs, 2, nullptr, 0, &graph, &e), LATHE_STATUS_OK) << e.message;
  return resolve(ctx, Owned<lathe_graph>(graph).get());
}

lathe_status run(lathe_kernel* kernel, Bytes& table, Bytes& ids, Bytes& y, lathe_error* e, int threads = 1) {
  const lathe_arg args[] = {table.arg(), ids.arg(), y.arg()};
  lathe_exec exec = LATHE_EXEC_INIT;
  exec.threads = threads;
  return lathe_execute(kernel, args, 3, &exec, e);
}

TEST(Gather, CopiesRowsBitByBit) {
  for (const char* level : {"portable", "avx2", "avx512"}) {
    const auto ctx = make_context(level, 2);
    for (const Type& type : kTables) {
      for (const Type& of_ids : {kI32, kI64}) {
        for (const int64_t n : {1, 7, 16, 33, 130}) {
          SCOPED_TRACE(fmt::format("{} dtype {} ids {} n {}", level, type.dtype, of_ids.dtype, n));
          const auto kernel = gather(ctx.get(), type, of_ids, n);
          for (const int64_t p : {1, 9}) {
            const std::vector<int64_t> rows = {p - 1, 0, p / 2, p - 1, p - 1, 0, p / 3, p / 2, 0, p - 1};
            Bytes table(type, {p, n}), ids(of_ids, {2, 5}), y(type, {2, 5, n}, 0xee);
            table.counted();
            ids.ids(rows);
            lathe_error e;
            ASSERT_EQ(run(kernel.get(), table, ids, y, &e, p == 1 ? 1 : 2), LATHE_STATUS_OK) << e.message;
            for (size_t i = 0; i < rows.size(); ++i) {
              ASSERT_EQ(std::memcmp(y.at(static_cast<int64_t>(i) * n), table.at(rows[i] * n),
                                    static_cast<size_t>(n) * y.element),
                        0)
                  << "row " << i;
            }
          }
        }
      }
    }
  }
}

TEST(Gather, RefusesIdsThatAreNoRows) {
  const auto ctx = make_context();
  for (const Type& of_ids : {kI32, kI64}) {
    const auto kernel = gather(ctx.get(), kF32, of_ids, 20);
    const int64_t least = of_ids.dtype == LATHE_DTYPE_I64 ? INT64_MIN : INT32_MIN, most = ~least;
    for (const int64_t bad : {int64_t{-1}, int64_t{9}, least, most}) {
      for (const int64_t at : {0, 4, 9}) {
        std::vector<int64_t> rows(10, 8);
        rows[static_cast<size_t>(at)] = bad;
        Bytes table(kF32, {9, 20}), ids(of_ids, {2, 5}), y(kF32, {2, 5, 20}, 0xee);
        ids.ids(rows);
        lathe_error e;
        EXPECT_EQ(run(kernel.get(), table, ids, y, &e), LATHE_STATUS_INVALID);
        EXPECT_THAT(e.message, HasSubstr(fmt::format("ids[{}, {}]: {}, expected 0..8", at / 5, at % 5, bad)));
        EXPECT_EQ(e.arg_index, 1);
        EXPECT_TRUE(y.is_filled_with(0xee));
      }
    }
  }
}

// The same call with other ids, and other tables: each is looked at anew.
TEST(Gather, LooksAtEveryCall) {
  const auto ctx = make_context();
  const auto kernel = gather(ctx.get(), kF32, kI32, 20);
  Bytes table(kF32, {9, 20}), small(kF32, {8, 20}), ids(kI32, {2, 1}), y(kF32, {2, 1, 20}, 0xee);
  table.counted();
  lathe_error e;
  ids.ids({3, 8});
  EXPECT_EQ(run(kernel.get(), table, ids, y, &e), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(std::memcmp(y.at(20), table.at(8 * 20), 80), 0);
  EXPECT_EQ(run(kernel.get(), small, ids, y, &e), LATHE_STATUS_INVALID);
  EXPECT_THAT(e.message, HasSubstr("ids[1, 0]: 8, expected 0..7"));
  ids.ids({3, 9});
  EXPECT_EQ(run(kernel.get(), table, ids, y, &e), LATHE_STATUS_INVALID);
  ids.ids({8, 3});
  EXPECT_EQ(run(kernel.get(), table, ids, y, &e), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(std::memcmp(y.at(0), table.at(8 * 20), 80), 0);
  EXPECT_EQ(std::memcmp(y.at(20), table.at(3 * 20), 80), 0);
}

// What lies between rows of ids is nobody's id.
TEST(Gather, LooksAtIdsWithStrides) {
  const auto ctx = make_context();
  int64_t strides[] = {8, 2};
  const std::vector<lathe_dim> rows = {fixed(9), fixed(20)}, at = {fixed(2), range("T", 0, 4)};
  lathe_tensor_desc inputs[] = {desc("table", rows), desc("ids", at, 0, LATHE_DTYPE_I32)};
  inputs[1].strides = strides;
  lathe_graph* graph = nullptr;
  lathe_error e;
  ASSERT_EQ(lathe_graph_single(ctx.get(), "gather", inputs, 2, nullptr, 0, &graph, &e), LATHE_STATUS_OK) << e.message;
  const auto kernel = resolve(ctx.get(), Owned<lathe_graph>(graph).get());
  Bytes table(kF32, {9, 20}), ids(kI32, {16}), y(kF32, {2, 3, 20}, 0xee);
  table.counted();
  ids.ids({8, -1, 0, 9, 3, -1, -1, -1, 7, 99, 2, -1, 8, -1, -1, -1});
  ids.shape = {2, 3};
  ids.tensor.shape = ids.shape.data();
  ids.tensor.ndim = 2;
  ids.tensor.strides = strides;
  ASSERT_EQ(run(kernel.get(), table, ids, y, &e), LATHE_STATUS_OK) << e.message;
  const int64_t want[] = {8, 0, 3, 7, 2, 8};
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(std::memcmp(y.at(i * 20), table.at(want[i] * 20), 80), 0) << i;
  const int64_t bad = 9;
  std::memcpy(ids.at(8 + 2 * 2), &bad, 4);
  EXPECT_EQ(run(kernel.get(), table, ids, y, &e), LATHE_STATUS_INVALID);
  EXPECT_STREQ(e.message, "ids[1, 2]: 9, expected 0..8");
}

TEST(Gather, NoRowsAndNoIds) {
  const auto ctx = make_context();
  const auto kernel = gather(ctx.get(), kF32, kI32, 20);
  Bytes none(kF32, {0, 20}), ids(kI32, {2, 3}), y(kF32, {2, 3, 20}, 0xee), table(kF32, {9, 20}), no_ids(kI32, {2, 0}),
      no_rows(kF32, {2, 0, 20});
  lathe_error e;
  const lathe_arg args[] = {none.arg(), ids.arg(), y.arg()};
  uint64_t workspace = 0;
  EXPECT_EQ(lathe_workspace_bytes(kernel.get(), args, 3, 1, &workspace, &e), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(run(kernel.get(), none, ids, y, &e), LATHE_STATUS_INVALID);
  EXPECT_THAT(e.message, HasSubstr("ids[0, 0]: 0, and no value is allowed"));
  EXPECT_TRUE(y.is_filled_with(0xee));
  EXPECT_EQ(run(kernel.get(), table, no_ids, no_rows, &e), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(run(kernel.get(), none, no_ids, no_rows, &e), LATHE_STATUS_OK) << e.message;
}

// Two tables and one tensor of ids: both ranges hold.
TEST(Gather, IdsOfTwoTables) {
  const auto ctx = make_context();
  lathe_graph* made = nullptr;
  lathe_error e;
  ASSERT_EQ(lathe_graph_create(ctx.get(), "both", &made, &e), LATHE_STATUS_OK) << e.message;
  const Owned<lathe_graph> graph(made);
  const std::vector<lathe_dim> first = {fixed(9), fixed(4)}, second = {fixed(5), fixed(4)}, at = {fixed(3)};
  const lathe_tensor_desc inputs[] = {desc("a", first), desc("b", second), desc("ids", at, 0, LATHE_DTYPE_I64)};
  int32_t in[3], out[2];
  for (int i = 0; i < 3; ++i)
    ASSERT_EQ(lathe_graph_tensor(graph.get(), &inputs[i], &in[i], &e), LATHE_STATUS_OK) << e.message;
  for (int i = 0; i < 2; ++i) {
    const int32_t operands[] = {in[i], in[2]};
    ASSERT_EQ(lathe_graph_op(graph.get(), "gather", operands, 2, nullptr, 0, i == 0 ? "y" : "z", &out[i], &e),
              LATHE_STATUS_OK)
        << e.message;
    ASSERT_EQ(lathe_graph_output(graph.get(), out[i], &e), LATHE_STATUS_OK) << e.message;
  }
  ASSERT_EQ(lathe_graph_finish(graph.get(), &e), LATHE_STATUS_OK) << e.message;
  const auto kernel = resolve(ctx.get(), graph.get());
  Bytes a(kF32, {9, 4}), b(kF32, {5, 4}), ids(kI64, {3}), y(kF32, {3, 4}, 0xee), z(kF32, {3, 4}, 0xee);
  const lathe_arg args[] = {a.counted().arg(), b.counted().arg(), ids.ids({0, 5, 4}).arg(), y.arg(), z.arg()};
  EXPECT_EQ(lathe_execute(kernel.get(), args, 5, nullptr, &e), LATHE_STATUS_INVALID);
  EXPECT_THAT(e.message, HasSubstr("ids[1]: 5, expected 0..4"));
  EXPECT_TRUE(y.is_filled_with(0xee));
  ids.ids({0, 3, 4});
  EXPECT_EQ(lathe_execute(kernel.get(), args, 5, nullptr, &e), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(std::memcmp(y.at(4), a.at(12), 32), 0);
  EXPECT_EQ(std::memcmp(z.at(4), b.at(12), 32), 0);
}

TEST(Gather, APinnedCallLooksAtItsIds) {
  const auto ctx = make_context();
  const auto kernel = gather(ctx.get(), kF32, kI64, 20);
  Bytes table(kF32, {9, 20}), ids(kI64, {2, 2}), y(kF32, {2, 2, 20}, 0xee);
  table.counted();
  ids.ids({-7, 0, 0, 0});  // not yet the ids of a call
  const lathe_arg args[] = {table.arg(), ids.arg(), y.arg()};
  lathe_pinned* made = nullptr;
  lathe_error e;
  ASSERT_EQ(lathe_pin(kernel.get(), args, 3, 1, &made, &e), LATHE_STATUS_OK) << e.message;
  const Owned<lathe_pinned> pinned(made);
  void* const data[] = {table.at(0), ids.at(0), y.at(0)};
  EXPECT_EQ(lathe_pinned_run(pinned.get(), data, nullptr), LATHE_STATUS_INVALID);
  EXPECT_TRUE(y.is_filled_with(0xee));
  ids.ids({8, 0, 1, 8});
  EXPECT_EQ(lathe_pinned_run(pinned.get(), data, nullptr), LATHE_STATUS_OK);
  EXPECT_EQ(std::memcmp(y.at(3 * 20), table.at(8 * 20), 80), 0);
  ids.ids({8, 0, 1, 9});
  EXPECT_EQ(lathe_pinned_run(pinned.get(), data, nullptr), LATHE_STATUS_INVALID);
}

}  // namespace
}  // namespace lathe::test
