// Attention on a device, through the C ABI and the fakes: every option by itself, every type, keys in caches and pages,
// at odd sizes, with the results of the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/gpu/served_op.h"
#include "tests/gpu/temp_store.h"

namespace lathe::test {
namespace {

// Dimensions below 0 are symbols.
enum Symbol : int64_t { kB = -1, kS = -2, kT = -3, kP = -4, kN = -5, kR = -6 };
struct Sizes {
  int64_t b = 1, s = 1, t = 1, p = 1, n = 1, r = 1;
  int64_t of(int64_t dim) const {
    const int64_t values[] = {0, b, s, t, p, n, r};
    return dim < 0 ? values[-dim] : dim;
  }
};

struct Operand {
  std::vector<int64_t> dims;
  uint32_t dtype = LATHE_DTYPE_F32;
  int64_t most = -1;  // integers: the largest, a symbol
  bool rises = false;
};
struct Attention {
  const char *name, *op;
  std::vector<Operand> operands;
  std::vector<lathe_attr> attrs = {};
  std::vector<Sizes> sizes;
};

lathe_attr flag(const char* name) {
  lathe_attr a{};
  a.name = name;
  a.type = LATHE_ATTR_BOOL;
  a.i = 1;
  return a;
}
lathe_attr number(const char* name, int64_t value) {
  lathe_attr a{};
  a.name = name;
  a.type = LATHE_ATTR_INT;
  a.i = value;
  return a;
}

lathe_dim described(int64_t dim) {
  static constexpr const char* kNames[] = {"", "B", "S", "T", "P", "N", "R"};
  return dim >= 0 ? fixed(dim) : range(kNames[-dim], 0, 3000);
}

Owned<lathe_graph> graph_of(lathe_context* ctx, const Attention& a) {
  std::vector<DescOf> inputs;
  for (const Operand& o : a.operands) {
    DescOf d;
    d.dtype = o.dtype;
    for (const int64_t dim : o.dims) d.dims.push_back(described(dim));
    inputs.push_back(d);
  }
  return single_graph(ctx, a.op, inputs, a.attrs);
}

float tolerance(uint32_t dtype) {
  return dtype == LATHE_DTYPE_F32 ? 2e-5f : dtype == LATHE_DTYPE_F16 ? 2e-3f : 1.6e-2f;
}

void expect_sizes(lathe_context* ctx, const Attention& a, const lathe_graph* graph, lathe_kernel* kernel,
                  const Sizes& s, size_t room) {
  SCOPED_TRACE(testing::Message() << a.name << " B " << s.b << " S " << s.s << " T " << s.t << " P " << s.p << " N "
                                  << s.n << " R " << s.r);
  std::vector<ArgOf> inputs;
  for (const Operand& o : a.operands) {
    ArgOf arg;
    arg.dtype = o.dtype;
    for (const int64_t dim : o.dims) arg.dims.push_back(s.of(dim));
    if (o.most != -1) arg.below = s.of(o.most) + 1;
    arg.rises = o.rises;
    inputs.push_back(arg);
  }
  ArgOf output = inputs[0];
  const std::vector<int64_t>& v = inputs[2].dims;
  output.dims.back() = v.back();
  expect_as_on_cpu(ctx, graph, kernel, inputs, output, room, tolerance(output.dtype));
}

void expect_attention(const std::vector<Attention>& all) {
  const auto ctx = gpu_context();
  for (const Attention& a : all) {
    const auto graph = graph_of(ctx.get(), a);
    ASSERT_NE(graph, nullptr) << a.name;
    const auto kernel = served_on_device(ctx.get(), graph.get());
    ASSERT_NE(kernel, nullptr) << a.name;
    int number = 0;
    for (const Sizes& s : a.sizes) {
      fake_gpu().state.order = number % 3 == 0 ? Order::forward : number % 3 == 1 ? Order::backward : Order::shuffled;
      expect_sizes(ctx.get(), a, graph.get(), kernel.get(), s, number++ % 2 == 0 ? 8 : 0);
    }
  }
  fake_gpu().state.order = Order::forward;
}

constexpr uint32_t kF32 = LATHE_DTYPE_F32, kBf16 = LATHE_DTYPE_BF16, kF16 = LATHE_DTYPE_F16, kI32 = LATHE_DTYPE_I32,
                   kI64 = LATHE_DTYPE_I64;

// None, one, a few, one more and less than a block of keys, and several of them.
const std::vector<Sizes> kQueriesAndKeys = {{.s = 1, .t = 0},  {.s = 0, .t = 5},   {.s = 1, .t = 1},  {.s = 3, .t = 2},
                                            {.s = 2, .t = 63}, {.s = 1, .t = 64},  {.s = 1, .t = 65}, {.s = 5, .t = 31},
                                            {.s = 7, .t = 97}, {.s = 1, .t = 257}, {.s = 2, .t = 515}};

TEST(DeviceAttention, EveryOptionByItself) {
  const auto of = [](const char* name, std::vector<lathe_attr> attrs, std::vector<Operand> more = {}) {
    Attention a{name, "attention", {{{4, kS, 32}}, {{2, kT, 32}}, {{2, kT, 32}}}, std::move(attrs), kQueriesAndKeys};
    a.operands.insert(a.operands.end(), more.begin(), more.end());
    return a;
  };
  expect_attention({of("plain", {}), of("causal", {flag("causal")}), of("window", {number("window", 5)}),
                    of("causal window", {flag("causal"), number("window", 70)}),
                    of("soft cap", {float_attr("soft_cap", 2.5)}), of("scale", {float_attr("scale", 0.5)}),
                    of("mask", {}, {{{kS, kT}}}), of("mask of heads", {flag("causal")}, {{{4, 1, kT}}}),
                    of("sinks", {flag("sinks")}, {{{4}}})});
}

// One head for each, all heads on one, and numbers of heads that blocks divide.
TEST(DeviceAttention, HeadsAndTypes) {
  const std::vector<Sizes> sizes = {{.b = 2, .s = 1, .t = 9}, {.b = 1, .s = 3, .t = 130}, {.b = 0, .s = 1, .t = 1}};
  std::vector<Attention> all;
  for (const auto& [heads, kept] : {std::pair<int64_t, int64_t>{3, 3}, {5, 1}, {12, 1}, {8, 1}, {22, 2}})
    all.push_back(
        {"heads", "attention", {{{kB, heads, kS, 16}}, {{kB, kept, kT, 16}}, {{kB, kept, kT, 16}}}, {}, sizes});
  for (const auto& [q, k, v] :
       {std::array{kBf16, kBf16, kBf16}, {kF16, kF16, kF16}, {kF32, kBf16, kF16}, {kBf16, kF32, kF32}})
    all.push_back(
        {"types", "attention", {{{kB, 4, kS, 64}, q}, {{kB, 2, kT, 64}, k}, {{kB, 2, kT, 64}, v}}, {}, sizes});
  // Groups of more heads than a block has sums for.
  all.push_back({"groups in parts",
                 "attention",
                 {{{kB, 16, kS, 64}, kBf16}, {{kB, 2, kT, 64}, kBf16}, {{kB, 2, kT, 64}, kBf16}},
                 {},
                 sizes});
  expect_attention(all);
}

TEST(DeviceAttention, DepthsAndColumns) {
  std::vector<Attention> all;
  for (const auto& [d, e] :
       {std::pair<int64_t, int64_t>{0, 3}, {1, 1}, {3, 129}, {33, 17}, {80, 96}, {128, 128}, {256, 64}, {20, 520}}) {
    for (const auto& [heads, type] : {std::pair<int64_t, uint32_t>{4, kBf16}, {2, kF32}}) {
      all.push_back({"depth and columns",
                     "attention",
                     {{{heads, kS, d}, type}, {{2, kT, d}, type}, {{2, kT, e}, type}},
                     {flag("causal")},
                     {{.s = 2, .t = 5}, {.s = 1, .t = 150}, {.s = 3, .t = 0}}});
    }
  }
  expect_attention(all);
}

TEST(DeviceAttention, Caches) {
  const std::vector<Sizes> sizes = {{.b = 3, .s = 1, .t = 70}, {.b = 2, .s = 3, .t = 130}, {.b = 1, .s = 1, .t = 0},
                                    {.b = 0, .s = 1, .t = 4},  {.b = 5, .s = 2, .t = 1},   {.b = 1, .s = 0, .t = 3}};
  const auto of = [&](const char* name, std::vector<lathe_attr> attrs, uint32_t lengths) {
    return Attention{
        name,
        "cached_attention",
        {{{kB, 4, kS, 64}, kBf16}, {{kB, 2, kT, 64}, kBf16}, {{kB, 2, kT, 64}, kBf16}, {{kB}, lengths, kT}},
        std::move(attrs),
        sizes};
  };
  expect_attention({of("cache", {}, kI32), of("causal cache", {flag("causal")}, kI64),
                    of("window of a cache", {flag("causal"), number("window", 9)}, kI32)});
}

TEST(DeviceAttention, Pages) {
  std::vector<Attention> all;
  for (const int64_t page : {1, 3, 16}) {
    const std::vector<Sizes> sizes = {{.b = 3, .s = 1, .t = 5 * page, .p = 7, .n = 5},
                                      {.b = 2, .s = 3, .t = 90 * page, .p = 11, .n = 90},
                                      {.b = 1, .s = 1, .t = page, .p = 1, .n = 1},
                                      {.b = 0, .s = 1, .t = 2 * page, .p = 2, .n = 2}};
    // The last page is chosen by p - 1.
    for (const uint32_t type : {kBf16, kF32}) {
      all.push_back({"pages",
                     "paged_attention",
                     {{{kB, 4, kS, 40}, type},
                      {{kP, 2, page, 40}, type},
                      {{kP, 2, page, 40}, type},
                      {{kB}, kI32, kT},
                      {{kB, kN}, kI64, kR}},
                     {flag("causal")},
                     sizes});
      for (Sizes& s : all.back().sizes) s.r = s.p - 1;
    }
  }
  expect_attention(all);
}

// Keys and values of one byte with a scale for each: 16 of them at once where they begin so, else one by one.
TEST(DeviceAttention, KeysOfBytes) {
  constexpr uint32_t kI8 = LATHE_DTYPE_I8;
  const std::vector<Sizes> sizes = {{.b = 3, .s = 1, .t = 70},
                                    {.b = 2, .s = 3, .t = 130},
                                    {.b = 1, .s = 1, .t = 0},
                                    {.b = 5, .s = 2, .t = 1},
                                    {.b = 1, .s = 1, .t = 515}};
  std::vector<Attention> all;
  lathe_attr scale = number("scale", 0);  // products of bytes are large
  scale.type = LATHE_ATTR_FLOAT;
  scale.f = 1e-3;
  for (const auto& [depth, type] : {std::pair<int64_t, uint32_t>{64, kBf16}, {33, kF32}, {80, kF16}}) {
    for (const int64_t kept : {2, 4}) {
      all.push_back({"bytes",
                     "cached_attention",
                     {{{kB, 4, kS, depth}, type},
                      {{kB, kept, kT, depth}, kI8},
                      {{kB, kept, kT, depth}, kI8},
                      {{kB}, kI32, kT},
                      {{kB, kept, kT}},
                      {{kB, kept, kT}}},
                     {flag("causal"), flag("scales"), scale},
                     sizes});
    }
  }
  for (const int64_t page : {3, 16}) {
    all.push_back({"pages of bytes",
                   "paged_attention",
                   {{{kB, 4, kS, 64}, kBf16},
                    {{kP, 2, page, 64}, kI8},
                    {{kP, 2, page, 64}, kI8},
                    {{kB}, kI32, kT},
                    {{kB, kN}, kI64, kR},
                    {{kP, 2, page}},
                    {{kP, 2, page}}},
                   {flag("causal"), flag("scales"), scale},
                   {{.b = 3, .s = 1, .t = 5 * page, .p = 7, .n = 5, .r = 6},
                    {.b = 2, .s = 3, .t = 30 * page, .p = 11, .n = 30, .r = 10},
                    {.b = 1, .s = 1, .t = page, .p = 1, .n = 1, .r = 0}}});
  }
  expect_attention(all);
}

// Sequences of unequal numbers of queries, rows of none, and more sequences than rows.
TEST(DeviceAttention, UnequalSequences) {
  std::vector<Attention> all;
  for (const auto& [heads, type] : {std::pair<int64_t, uint32_t>{4, kBf16}, {2, kF32}, {16, kF16}}) {
    for (const bool window : {false, true}) {
      std::vector<lathe_attr> attrs = {flag("causal")};
      if (window) attrs.push_back(number("window", 7));
      all.push_back({"ragged",
                     "ragged_attention",
                     {{{kR, heads, 40}, type},
                      {{kP, 2, 16, 40}, type},
                      {{kP, 2, 16, 40}, type},
                      {{kB}, kI32, kT},
                      {{kB, kN}, kI32, kS},
                      {{kB, 2}, kI32, kR, true}},
                     attrs,
                     {{.b = 3, .s = 6, .t = 80, .p = 7, .n = 5, .r = 13},
                      {.b = 9, .s = 0, .t = 16, .p = 1, .n = 1, .r = 4},
                      {.b = 1, .s = 2, .t = 160, .p = 3, .n = 10, .r = 1},
                      {.b = 0, .s = 0, .t = 16, .p = 1, .n = 1, .r = 5},
                      {.b = 2, .s = 0, .t = 16, .p = 1, .n = 1, .r = 0}}});
    }
  }
  expect_attention(all);
}

// What holds no element whatever the call is, a window of several pages, and few keys of two bounded numbers.
TEST(DeviceAttention, KnownSizes) {
  std::vector<Attention> all;
  for (const uint32_t type : {kF32, kBf16}) {
    const std::vector<Operand> pages = {
        {{7, 2, 16, 64}, type}, {{7, 2, 16, 64}, type}, {{kB}, kI32, 80}, {{kB, 5}, kI32, 6}};
    std::vector<Operand> window = {{{kB, 8, 1, 64}, type}};
    window.insert(window.end(), pages.begin(), pages.end());
    all.push_back({"window of pages",
                   "paged_attention",
                   window,
                   {flag("causal"), number("window", 48)},
                   {{.b = 3}, {.b = 1}, {.b = 0}}});
    window.push_back({{3, 2}, kI32, kR, true});
    window[0].dims = {kR, 8, 64};
    window[3].dims = {3};
    window[4].dims = {3, 5};
    all.push_back({"known sequences", "ragged_attention", window, {flag("causal")}, {{.r = 9}, {.r = 1}, {.r = 0}}});
    all.push_back({"no sequence",
                   "cached_attention",
                   {{{0, 4, 1, 64}, type}, {{0, 2, kT, 64}, type}, {{0, 2, kT, 64}, type}, {{0}, kI32, kT}},
                   {flag("causal")},
                   {{.t = 9}}});
    for (const auto& [rows, sequences] : {std::pair<int64_t, int64_t>{0, 2}, {5, 0}}) {
      std::vector<Operand> none = {{{rows, 8, 64}, type}};
      none.insert(none.end(), pages.begin(), pages.end());
      none[3].dims = {sequences};
      none[4].dims = {sequences, 5};
      none.push_back({{sequences, 2}, kI32, 0, true});
      all.push_back({"no rows, or no sequences", "ragged_attention", none, {flag("causal")}, {{}}});
    }
  }
  expect_attention(all);
  const auto ctx = gpu_context();
  for (const int64_t most : {8, 16, 40}) {
    for (const int64_t depth : {8, 40, 64}) {
      const lathe_dim s = range("S", 1, most), t = range("T", 1, most), d = fixed(depth);
      const auto graph = single_graph(ctx.get(), "attention",
                                      {{{fixed(4), s, d}}, {{fixed(2), t, d}}, {{fixed(2), t, d}}}, {flag("causal")});
      const auto kernel = served_on_device(ctx.get(), graph.get());
      ASSERT_NE(kernel, nullptr) << most << " keys of depth " << depth;
      for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{1, 1}, {most, most}, {3, 7}, {1, most}})
        expect_as_on_cpu(ctx.get(), graph.get(), kernel.get(),
                         {{{4, queries, depth}}, {{2, keys, depth}}, {{2, keys, depth}}}, {{4, queries, depth}}, 0,
                         2e-5f);
    }
  }
}

// Of which there is one whatever the call is, or at most one.
TEST(DeviceAttention, OneKnownKey) {
  const std::vector<Sizes> sizes = {{.b = 2, .s = 1}, {.b = 1, .s = 5}, {.b = 0, .s = 1}};
  std::vector<Attention> all;
  for (const uint32_t type : {kF32, kBf16}) {
    all.push_back(
        {"one key", "attention", {{{kB, 4, kS, 32}, type}, {{kB, 2, 1, 32}, type}, {{kB, 2, 1, 48}, type}}, {}, sizes});
    all.push_back({"one key of a cache",
                   "cached_attention",
                   {{{kB, 4, 1, 32}, type}, {{kB, 2, 1, 32}, type}, {{kB, 2, 1, 32}, type}, {{kB}, kI32, 1}},
                   {flag("causal")},
                   {{.b = 3}, {.b = 1}}});
  }
  expect_attention(all);
}

// Keys in parts: a hint of one long sequence.
TEST(DeviceAttention, KeysInParts) {
  const auto ctx = gpu_context();
  const lathe_hint hints[] = {{3000, 1}};
  for (const bool sinks : {false, true}) {
    lathe_dim t = range("T", 0, 3000);
    t.hints = hints;
    t.num_hints = 1;
    std::vector<DescOf> inputs = {{{fixed(2), fixed(4), fixed(1), fixed(32)}, kBf16},
                                  {{fixed(2), fixed(2), t, fixed(32)}, kBf16},
                                  {{fixed(2), fixed(2), t, fixed(32)}, kBf16},
                                  {{fixed(2)}, kI32}};
    std::vector<lathe_attr> attrs = {flag("causal")};
    if (sinks) inputs.push_back({{fixed(4)}});
    if (sinks) attrs.push_back(flag("sinks"));
    const auto graph = single_graph(ctx.get(), "cached_attention", inputs, attrs);
    const auto kernel = served_on_device(ctx.get(), graph.get());
    ASSERT_NE(kernel, nullptr);
    for (const int64_t keys : {0, 1, 255, 256, 257, 1000, 3000}) {
      SCOPED_TRACE(keys);
      std::vector<ArgOf> args = {
          {{2, 4, 1, 32}, kBf16}, {{2, 2, keys, 32}, kBf16}, {{2, 2, keys, 32}, kBf16}, {{2}, kI32, keys + 1}};
      if (sinks) args.push_back({{4}});
      expect_as_on_cpu(ctx.get(), graph.get(), kernel.get(), args, {{2, 4, 1, 32}, kBf16}, 8, tolerance(kBf16));
    }
  }
}

// Keys of few sequences in parts: clearing, parts and what puts them together are launches of one call.
TEST(DeviceAttention, UnequalSequencesInParts) {
  const auto ctx = gpu_context();
  static constexpr lathe_hint kTwo[] = {{2, 1}}, kPages[] = {{64, 1}};
  const auto hinted = [](const char* name, const lathe_hint* hint) {
    lathe_dim d = range(name, 0, 3000);
    d.hints = hint;
    d.num_hints = 1;
    return d;
  };
  const lathe_dim b = hinted("B", kTwo), r = hinted("R", kTwo), n = hinted("N", kPages), p = range("P", 0, 3000);
  const auto graph = single_graph(ctx.get(), "ragged_attention",
                                  {{{r, fixed(4), fixed(32)}},
                                   {{p, fixed(2), fixed(16), fixed(32)}},
                                   {{p, fixed(2), fixed(16), fixed(32)}},
                                   {{b}, kI32},
                                   {{b, n}, kI32},
                                   {{b, fixed(2)}, kI32}},
                                  {flag("causal")});
  const auto kernel = served_on_device(ctx.get(), graph.get());
  ASSERT_NE(kernel, nullptr);
  for (const auto& [rows, sequences, pages] :
       {std::array<int64_t, 3>{2, 2, 64}, {1, 1, 1}, {5, 3, 7}, {7, 2, 65}, {3, 1, 0}, {0, 2, 3}}) {
    SCOPED_TRACE(testing::Message() << rows << " rows of " << sequences << " with " << pages << " pages");
    ArgOf offsets{{sequences, 2}, kI32, rows + 1};
    offsets.rises = true;
    expect_as_on_cpu(ctx.get(), graph.get(), kernel.get(),
                     {{{rows, 4, 32}},
                      {{9, 2, 16, 32}},
                      {{9, 2, 16, 32}},
                      {{sequences}, kI32, 16 * pages + 1},
                      {{sequences, pages}, kI32, 9},
                      offsets},
                     {{rows, 4, 32}}, 8, tolerance(kF32));
  }
}

// Integers that are out of range are taken as the nearest; nothing outside of tensors is touched.
TEST(DeviceAttention, IntegersOutOfRange) {
  const auto ctx = gpu_context();
  const auto graph = single_graph(ctx.get(), "cached_attention",
                                  {{{fixed(3), fixed(2), fixed(1), fixed(8)}},
                                   {{fixed(3), fixed(2), range("T", 1, 100), fixed(8)}},
                                   {{fixed(3), fixed(2), range("T", 1, 100), fixed(8)}},
                                   {{fixed(3)}, kI32}});
  const auto kernel = served_on_device(ctx.get(), graph.get());
  ASSERT_NE(kernel, nullptr);
  const ArgOf q{{3, 2, 1, 8}}, k{{3, 2, 20, 8}}, lengths{{3}, kI32};
  const auto result = [&](const std::array<int32_t, 3>& values) {
    TensorOf tq(q, true), tk(k, true), tv(k, true), tl(lengths, true), ty(q, true);
    tq.fill(q, 1);
    tk.fill(k, 2);
    tv.fill(k, 3);
    std::memcpy(tl.data, values.data(), sizeof values);
    const lathe_arg args[] = {tq.arg(), tk.arg(), tv.arg(), tl.arg(), ty.arg()};
    const lathe_exec exec = on_stream();
    lathe_error e;
    EXPECT_EQ(lathe_execute(kernel.get(), args, 5, &exec, &e), LATHE_STATUS_OK) << e.message;
    return std::vector<float>(ty.floats(), ty.floats() + ty.count);
  };
  EXPECT_EQ(result({-5, 1000, 7}), result({0, 20, 7}));
}

TEST(DeviceAttention, WhatOneProcessCompiledAnotherServes) {
  const TempStore folder;
  const Attention a{"stored", "attention", {{{4, kS, 32}}, {{2, kT, 32}}, {{2, kT, 32}}}, {flag("causal")}, {}};
  for (const bool second : {false, true}) {
    const auto ctx = gpu_context(folder.path, second ? "/nonexistent/libnvrtc.so" : LATHE_FAKE_NVRTC);
    const auto graph = graph_of(ctx.get(), a);
    const auto kernel = served_on_device(ctx.get(), graph.get());
    ASSERT_NE(kernel, nullptr);
    expect_sizes(ctx.get(), a, graph.get(), kernel.get(), {.s = 3, .t = 70}, 4);
    EXPECT_EQ(counter(ctx.get(), "compiled_nvrtc") > 0, !second);
  }
}

TEST(DeviceAttention, RefusalsAreNamed) {
  const auto ctx = gpu_context();
  const auto refused = [&](const char* op, const std::vector<DescOf>& inputs, const std::vector<lathe_attr>& attrs) {
    const auto graph = single_graph(ctx.get(), op, inputs, attrs);
    Owned<lathe_kernel> kernel;
    lathe_error e;
    EXPECT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_TUNED, kernel, nullptr, &e), LATHE_STATUS_UNSUPPORTED);
    return std::string(e.message);
  };
  const lathe_dim t = range("T", 1, 100), e = range("E", 1, 64);
  EXPECT_THAT(refused("attention", {{{fixed(2), t, fixed(8)}}, {{fixed(2), t, fixed(8)}}, {{fixed(2), t, e}}}, {}),
              testing::HasSubstr("vary in their number of columns"));
}

}  // namespace
}  // namespace lathe::test
