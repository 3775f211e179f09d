// kv_append of both kinds of caches against the f64 computation, and what graphs with it are refused.
#include <gmock/gmock.h>

#include "ir/core/text_form.h"
#include "tests/ops/check_lowered.h"

namespace lathe::ops::testing {
namespace {

using ir::DType;

const DimDesc kTokens = symbol_dim("T", 0, 64), kRoom = symbol_dim("P", 1, 1000);

struct Append {
  Graph g;
  std::vector<int> in;
  explicit Append(DType cache, DType x = DType::f32, int64_t heads = 2, int64_t width = 8) {
    in = {add_tensor(g, "x", {kTokens, F(heads), F(width)}, false, x),
          add_tensor(g, "slots", {kTokens}, false, DType::i32),
          add_tensor(g, "cache", {kRoom, F(heads), F(width)}, false, cache)};
    if (cache == DType::i8) in.push_back(add_tensor(g, "scales", {kRoom, F(heads)}));
  }
  Append& angles(int64_t half) {
    in.push_back(add_tensor(g, "cos", {F(40), F(half)}));
    in.push_back(add_tensor(g, "sin", {F(40), F(half)}));
    in.push_back(add_tensor(g, "positions", {kTokens}, false, DType::i64));
    return *this;
  }
  Append& norm(int64_t width = 8) {
    in.push_back(add_tensor(g, "norm", {F(width)}));
    return *this;
  }
  Graph& done(std::vector<Attr> attrs = {}) {
    const bool scaled = g.tensors[2].dtype == DType::i8;
    g.outputs = {add_node(g, scaled ? "kv_append_int8" : "kv_append", in, "after", std::move(attrs))};
    return g;
  }
};

TEST(Append, EveryWay) {
  for (const DType cache : {DType::f32, DType::i8}) {
    for (const bool interleaved : {false, true}) {
      for (const int64_t half : {-1, 0, 2, 4}) {
        for (const bool norm : {false, true}) {
          if (norm && half < 0) continue;
          Append a(cache);
          if (half >= 0) a.angles(half);
          if (norm) a.norm();
          const Graph& g = a.done({{"interleaved", interleaved}});
          for (const int64_t tokens : {0, 1, 5}) check(g, {{"T", tokens}, {"P", 9}});
        }
      }
    }
  }
}

TEST(Append, SkipsSlotMinusOneAndKeepsTheRest) {
  const Graph g = *finish(Append(DType::f32, DType::f32, 1, 2).done());
  Tensors values;
  values[g.inputs[0]] = {{3, 1, 2}, {1, 2, 3, 4, 5, 6}};
  values[g.inputs[1]] = {{3}, {2, -1, 0}};
  values[g.inputs[2]] = {{4, 1, 2}, {-1, -1, -2, -2, -3, -3, -4, -4}};
  run_lowered(g, *lower(g), {{"T", 3}, {"P", 4}}, values);
  EXPECT_THAT(values.at(g.outputs[0]).data, ::testing::ElementsAre(5, 6, -2, -2, 1, 2, -4, -4));
}

TEST(Append, IsOneKernelThatUpdatesItsCache) {
  const Lowered lowered = *lower(*finish(Append(DType::f16).angles(2).norm().done()));
  ASSERT_EQ(lowered.kernels.size(), 1u);
  EXPECT_TRUE(lowered.temps.empty());
  EXPECT_EQ(
      ir::print(lowered.kernels[0].kernel),
      R"(kernel kv_append(s: f32[T, 2, 8] in, slots: i32[T] in values -1..P - 1, c: f16[P, 2, 8] out keep, co: f32[40, 2] in, si: f32[40, 2] in, positions: i64[T] in values 0..40 - 1, g: f32[8] in) family kv_append where T in 0..64, P in 1..1000
  v: f32[2, T] heap
  r: f32[2, T] heap
  for h < 2 [row]:
    for t < T [row]:
      for u < min(min(1, i64(slots[t]) + 1), P) [slot]:
        v[h, t] = 0.0
        for n < 8 [col]:
          v[h, t] += s[t, h, n] * s[t, h, n]
        r[h, t] = rsqrt(v[h, t] / 8.0 + 1e-05)
        for p < 2 [col]:
          c[max(i64(slots[t]), 0), h, p] = f16(s[t, h, p] * r[h, t] * g[p] * co[positions[t], p] - s[t, h, p + 2] * r[h, t] * g[p + 2] * si[positions[t], p])
          c[max(i64(slots[t]), 0), h, p + 2] = f16(s[t, h, p + 2] * r[h, t] * g[p + 2] * co[positions[t], p] + s[t, h, p] * r[h, t] * g[p] * si[positions[t], p])
        for q < 4 [col]:
          c[max(i64(slots[t]), 0), h, q + 4] = f16(s[t, h, q + 4] * r[h, t] * g[q + 4])
)");
}

TEST(Append, ArgumentsNameTheCacheOnce) {
  const Graph g = *finish(Append(DType::i8).done());
  EXPECT_EQ(arguments(g), g.inputs);
  EXPECT_TRUE(is_updated(g, g.inputs[2]));
  EXPECT_TRUE(is_updated(g, g.inputs[3]));
  EXPECT_FALSE(is_updated(g, g.inputs[0]));
}

std::string error(const Graph& g) {
  const auto finished = finish(g);
  if (!finished.ok()) return finished.status().to_string();
  const auto lowered = lower(*finished);
  return lowered.ok() ? "" : lowered.status().to_string();
}

TEST(Append, RefusesOperandsThatDoNotFit) {
  Append shape(DType::f32), type(DType::i32), heads(DType::f32), count(DType::f32), angles(DType::f32),
      odd(DType::f32, DType::f32, 2, 7), norm(DType::f32), slots(DType::f32);
  EXPECT_EQ(error(type.done()),
            "UNSUPPORTED: cache: dtype i32 of kv_append, expected f32, bf16, f16; cast it to f32 before");
  count.in.push_back(add_tensor(count.g, "cos", {F(40), F(4)}));
  EXPECT_EQ(error(count.done()), "INVALID: x: 4 operands of kv_append, expected 3, 6 or 7");
  heads.g.tensors[2].dims[1] = F(3);
  EXPECT_EQ(error(heads.done()), "INVALID: cache.shape[1]: 3, expected 2 (as x.shape[1])");
  EXPECT_EQ(error(angles.angles(5).done()), "INVALID: cos.shape[1]: 5, expected at most 4 (half of the last of x)");
  EXPECT_EQ(error(odd.done()), "INVALID: x.shape[2]: 7, expected an even size, as pairs are turned: pad it by one");
  EXPECT_EQ(error(norm.angles(4).norm(6).done()), "INVALID: norm.shape[0]: 6, expected 8 (as x.shape[2])");
  slots.g.tensors[1].dims[0] = F(3);
  EXPECT_EQ(error(slots.done()), "INVALID: slots.shape[0]: 3, expected T (as x.shape[0])");
  EXPECT_EQ(error(shape.angles(4).done({{"epsilon", -1.0}})), "INVALID: x: epsilon -1 of kv_append, expected >= 0");
  Append scales(DType::i8);
  scales.g.tensors[3].dims[1] = F(3);
  EXPECT_EQ(error(scales.done()), "INVALID: scales.shape[1]: 3, expected 2 (as cache.shape[1])");
}

TEST(Append, RefusesACacheThatOthersUse) {
  Append constant(DType::f32), twice(DType::f32), read(DType::f32), made(DType::f32);
  constant.g.tensors[2].constant = true;
  EXPECT_EQ(error(constant.done()), "INVALID: cache: a constant, expected an input: kv_append updates it");
  twice.done();
  twice.g.outputs.push_back(add_node(twice.g, "exp", {twice.in[2]}, "e"));
  EXPECT_EQ(error(twice.g), "INVALID: cache: read 2 times, expected once: kv_append updates it");
  read.done();
  read.g.outputs.push_back(add_node(read.g, "exp", {read.g.outputs[0]}, "e"));
  EXPECT_EQ(error(read.g),
            "UNSUPPORTED: after: read in the graph of the kv_append that updates it: read it in another call");
  made.in[2] = add_node(made.g, "exp", {made.in[2]}, "e");
  EXPECT_EQ(error(made.done()), "INVALID: e: made by the graph, expected an input: kv_append updates it");
}

}  // namespace
}  // namespace lathe::ops::testing
