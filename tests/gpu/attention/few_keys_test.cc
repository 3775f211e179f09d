// Attention whose caches have room for a few keys, or whose queries see one: every capacity around a block of keys, in
// every type, with windows, causal or not, with the results of the CPU.
#include <gtest/gtest.h>

#include "tests/gpu/served_op.h"
#include "tests/gpu/temp_store.h"

namespace lathe::test {
namespace {

constexpr uint32_t kF32 = LATHE_DTYPE_F32, kBf16 = LATHE_DTYPE_BF16, kF16 = LATHE_DTYPE_F16, kI8 = LATHE_DTYPE_I8,
                   kI32 = LATHE_DTYPE_I32;
constexpr int64_t kSymbol = 0;

struct Few {
  int64_t room = 1;  // keys; kSymbol: any number
  int64_t window = 0;
  bool causal = false;
  int64_t queries = kSymbol, depth = 64, heads = 4, kept = 1;
  uint32_t type = kF32;  // of keys and values; queries of bytes are bf16
  bool lengths = true;
};

std::ostream& operator<<(std::ostream& out, const Few& f) {
  return out << "room " << f.room << " window " << f.window << " causal " << f.causal << " queries " << f.queries
             << " depth " << f.depth << " heads " << f.heads << ":" << f.kept << " type " << f.type << " lengths "
             << f.lengths;
}

uint32_t type_of_queries(const Few& f) { return f.type == kI8 ? kBf16 : f.type; }

Owned<lathe_graph> graph_of(lathe_context* ctx, const Few& f) {
  const auto attr = [](const char* name, uint32_t type, int64_t value) {
    lathe_attr a{};
    a.name = name;
    a.type = type;
    a.i = value;
    return a;
  };
  const lathe_dim b = range("B", 0, 100), s = f.queries == kSymbol ? range("S", 0, 3000) : fixed(f.queries),
                  t = f.room == kSymbol ? range("T", 0, 3000) : fixed(f.room);
  const std::vector<lathe_dim> keys = {b, fixed(f.kept), t, fixed(f.depth)}, scales = {b, fixed(f.kept), t};
  std::vector<DescOf> inputs = {
      {{b, fixed(f.heads), s, fixed(f.depth)}, type_of_queries(f)}, {keys, f.type}, {keys, f.type}};
  std::vector<lathe_attr> attrs;
  if (f.lengths) inputs.push_back({{b}, kI32});
  if (f.causal) attrs.push_back(attr("causal", LATHE_ATTR_BOOL, 1));
  if (f.window > 0) attrs.push_back(attr("window", LATHE_ATTR_INT, f.window));
  if (f.type == kI8) {
    inputs.push_back({scales});
    inputs.push_back({scales});
    attrs.push_back(attr("scales", LATHE_ATTR_BOOL, 1));
    attrs.push_back(float_attr("scale", 1e-3f));  // products of bytes are large
  }
  return single_graph(ctx, f.lengths ? "cached_attention" : "attention", inputs, attrs);
}

void expect_sizes(lathe_context* ctx, const Few& f, const lathe_graph* graph, lathe_kernel* kernel, int64_t batch,
                  int64_t queries, int64_t keys) {
  SCOPED_TRACE(testing::Message() << f << ": " << batch << " of " << queries << " queries and " << keys << " keys");
  const std::vector<int64_t> of_keys = {batch, f.kept, keys, f.depth}, of_scales = {batch, f.kept, keys};
  const ArgOf q{{batch, f.heads, queries, f.depth}, type_of_queries(f)};
  std::vector<ArgOf> inputs = {q, {of_keys, f.type}, {of_keys, f.type}};
  if (f.lengths) inputs.push_back({{batch}, kI32, keys + 1});
  if (f.type == kI8) inputs.insert(inputs.end(), {{of_scales}, {of_scales}});
  const float tolerance = q.dtype == kF32 ? 2e-5f : q.dtype == kF16 ? 2e-3f : 1.6e-2f;
  expect_as_on_cpu(ctx, graph, kernel, inputs, q, 8, tolerance);
}

void expect_served(const std::vector<Few>& all) {
  const auto ctx = gpu_context();
  int number = 0;
  for (const Few& f : all) {
    const auto graph = graph_of(ctx.get(), f);
    ASSERT_NE(graph, nullptr) << f;
    const auto kernel = served_on_device(ctx.get(), graph.get());
    ASSERT_NE(kernel, nullptr) << f;
    for (const auto& [batch, queries] : {std::pair<int64_t, int64_t>{3, 1}, {2, 5}, {1, f.room + 2}, {2, 0}, {0, 1}}) {
      if (f.queries != kSymbol && queries != 1) continue;
      constexpr Order kOrders[] = {Order::forward, Order::backward, Order::shuffled};
      fake_gpu().state.order = kOrders[number++ % 3];
      for (const int64_t keys : {int64_t{1}, int64_t{0}, int64_t{70}}) {
        const bool known = f.room != kSymbol;
        expect_sizes(ctx.get(), f, graph.get(), kernel.get(), batch, f.queries != kSymbol ? f.queries : queries,
                     known ? f.room : keys);
        if (known) break;
      }
    }
  }
  fake_gpu().state.order = Order::forward;
}

// Each capacity in several forms, and all types, sizes of heads and groups over the capacities.
TEST(FewKeys, EveryCapacity) {
  constexpr int64_t kDepths[] = {64, 1, 2, 3, 128};
  constexpr uint32_t kTypes[] = {kF32, kF16, kBf16, kI8};
  std::vector<Few> all;
  size_t turn = 0;
  for (const int64_t room : {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33}) {
    for (const bool causal : {true, false}) {
      if (!causal && room > 4) continue;
      Few f{room, 0, causal};
      f.depth = kDepths[turn % std::size(kDepths)];
      f.type = kTypes[turn % std::size(kTypes)];
      f.kept = turn % 3 == 0 ? f.heads : 1;
      f.lengths = f.type == kI8 || turn % 2 == 0;
      all.push_back(f);
      ++turn;
    }
  }
  // Blocks of more threads than they have keys, which no step of keys fills.
  all.push_back({16, 0, false, 3, 3, 4, 1, kI8});
  all.push_back({32, 0, false, kSymbol, 3, 4, 1, kBf16});
  // Fewer keys than a tile of tensor cores takes steps of.
  all.push_back({17, 0, true, kSymbol, 128, 4, 1, kBf16});
  all.push_back({31, 0, true, kSymbol, 64, 4, 1, kBf16, false});
  all.push_back({33, 0, true, kSymbol, 128, 2, 2, kBf16});
  expect_served(all);
}

TEST(FewKeys, WindowsOfOneAndTwo) {
  std::vector<Few> all;
  size_t turn = 0;
  for (const int64_t room : {int64_t{1}, int64_t{2}, int64_t{7}, int64_t{9}, int64_t{33}, kSymbol}) {
    for (const int64_t window : {1, 2}) {
      Few f{room, window, turn % 3 != 2};
      f.type = turn % 2 == 0 ? kF32 : kBf16;
      f.depth = turn % 4 == 0 ? 3 : 64;
      f.queries = turn % 4 == 3 ? 3 : kSymbol;
      f.lengths = turn % 5 != 1;
      all.push_back(f);
      ++turn;
    }
  }
  all.push_back({kSymbol, 1, true, kSymbol, 64, 4, 2, kI8});
  all.push_back({kSymbol, 1, true, kSymbol, 64, 4, 1, kF16, false});
  all.push_back({2, 0, true, 1, 64, 4, 4, kF16});
  all.push_back({4, 0, true, 3, 128, 4, 1, kI8});
  expect_served(all);
}

// Pages of few keys, of which a sequence has one, and unequal sequences of them.
TEST(FewKeys, OnePage) {
  const auto ctx = gpu_context();
  for (const int64_t page : {1, 3}) {
    for (const bool ragged : {false, true}) {
      SCOPED_TRACE(testing::Message() << "page " << page << " ragged " << ragged);
      const lathe_dim b = range("B", 0, 100), s = range("S", 0, 3000), p = range("P", 1, 3000);
      const std::vector<lathe_dim> pages = {p, fixed(2), fixed(page), fixed(32)},
                                   q = ragged ? std::vector{s, fixed(4), fixed(32)}
                                              : std::vector{b, fixed(4), s, fixed(32)};
      std::vector<DescOf> inputs = {{q}, {pages}, {pages}, {{b}, kI32}, {{b, fixed(1)}, kI32}};
      if (ragged) inputs.push_back({{b, fixed(2)}, kI32});
      lathe_attr causal = int_attr("causal", 1);
      causal.type = LATHE_ATTR_BOOL;
      const auto graph = single_graph(ctx.get(), ragged ? "ragged_attention" : "paged_attention", inputs, {causal});
      ASSERT_NE(graph, nullptr);
      const auto kernel = served_on_device(ctx.get(), graph.get());
      ASSERT_NE(kernel, nullptr);
      for (const auto& [batch, rows] : {std::pair<int64_t, int64_t>{3, 1}, {2, 5}, {1, 0}, {3, 9}}) {
        const ArgOf y{ragged ? std::vector<int64_t>{rows, 4, 32} : std::vector<int64_t>{batch, 4, rows, 32}};
        std::vector<ArgOf> args = {
            y, {{5, 2, page, 32}}, {{5, 2, page, 32}}, {{batch}, kI32, page + 1}, {{batch, 1}, kI32, 5}};
        if (ragged) args.push_back({{batch, 2}, kI32, rows + 1, true});
        expect_as_on_cpu(ctx.get(), graph.get(), kernel.get(), args, y, 8, 2e-5f);
      }
    }
  }
}

TEST(FewKeys, WhatOneProcessCompiledAnotherServes) {
  const TempStore folder;
  const std::vector<Few> all = {{3, 0, true}, {1, 0, true}, {kSymbol, 1, true}, {7, 0, false, 1, 64, 4, 1, kBf16}};
  for (const bool second : {false, true}) {
    const auto ctx = gpu_context(folder.path, second ? "/nonexistent/libnvrtc.so" : LATHE_FAKE_NVRTC);
    for (const Few& f : all) {
      const auto graph = graph_of(ctx.get(), f);
      const auto kernel = served_on_device(ctx.get(), graph.get());
      ASSERT_NE(kernel, nullptr) << f;
      expect_sizes(ctx.get(), f, graph.get(), kernel.get(), 2, f.queries == kSymbol ? 4 : f.queries,
                   f.room == kSymbol ? 5 : f.room);
    }
    EXPECT_EQ(counter(ctx.get(), "compiled_nvrtc") > 0, !second);
  }
}

}  // namespace
}  // namespace lathe::test
