// Every operator through finish(), lower() and the interpreter against the direct f64 computation
// of reference.h.
#include <functional>

#include "ir/core/text_form.h"
#include "ops/samples.h"
#include "tests/ops/check_lowered.h"

namespace lathe::ops::testing {
namespace {

TEST(Lower, EveryElementwiseOperator) {
  const std::vector<std::vector<int64_t>> shapes[] = {
      {{3, 5}, {3, 5}, {3, 5}}, {{2, 1, 4}, {3, 1}, {1}}, {{}, {}, {}},
      {{7}, {1}, {2, 7}},       {{2, 0}, {2, 0}, {2, 0}}, {{1, 1}, {4, 3}, {4, 1}}};
  for (const OpRow& row : op_rows()) {
    if (!row.family->rides()) continue;
    const std::string name = row.name;
    SCOPED_TRACE(name);
    for (auto s : shapes) {
      s.resize(row.max_arity);
      std::vector<Attr> attrs;
      if (row.attrs & kHas_value) attrs = {{"value", 0.375}};
      if (row.attrs & kHas_to) attrs = {{"to", std::string("i32")}};
      check(single(name, s, attrs), {}, true);
      if (name != "log" && name != "sqrt" && name != "rsqrt") check(single(name, s, attrs));
    }
  }
  check(single("gelu", {{4, 6}}, {{"approximate", std::string("tanh")}}));
  check(single("geglu", {{4, 6}, {6}}, {{"approximate", std::string("tanh")}}));
}

TEST(Lower, GatherOfAnyIds) {
  const DimDesc p = symbol_dim("P", 1, 100), t = symbol_dim("T", 0, 64);
  for (const ir::DType table : {ir::DType::f32, ir::DType::bf16, ir::DType::i8, ir::DType::u8, ir::DType::i64}) {
    for (const ir::DType ids : {ir::DType::i32, ir::DType::i64}) {
      for (const std::vector<DimDesc>& dims : std::vector<std::vector<DimDesc>>{{}, {t}, {F(2), t}, {t, t}, {F(0)}}) {
        Graph g;
        const int s = add_tensor(g, "s", {p, F(5)}, false, table), i = add_tensor(g, "i", dims, false, ids);
        g.outputs = {add_node(g, "gather", {s, i}, "y")};
        check(g, {{"P", 9}, {"T", 3}});
      }
    }
  }
  Graph strided;
  const int s = add_tensor(strided, "s", {F(7), F(5)});
  const int i = add_tensor(strided, "i", {F(2), t}, false, ir::DType::i32, {ir::Expr(64), ir::Expr(1)});
  strided.outputs = {add_node(strided, "gather", {s, i}, "y")};
  const auto finished = finish(strided);
  ASSERT_TRUE(finished.ok()) << finished.status().to_string();
  EXPECT_EQ(
      ir::print(lower(*finished)->kernels.at(0).kernel),
      R"(kernel gather(s: f32[7, 5] in, ids: i32[2, T] in values 0..7 - 1 strides [64, 1], d: f32[2, T, 5] out) family gather where T in 0..64
  for i0 < 2 [row]:
    for i1 < T [row]:
      for j < 5 [col]:
        d[i0, i1, j] = s[i64(ids[i0, i1]), j]
)");
}

TEST(Lower, QuantizedGatherOfAnyIds) {
  const DimDesc t = symbol_dim("T", 0, 64);
  for (const bool rider : {false, true}) {
    for (const std::vector<DimDesc>& dims : std::vector<std::vector<DimDesc>>{{}, {t}, {F(2), t}, {F(3), F(2), t}}) {
      Graph g;
      const int w = add_tensor(g, "w", {symbol_dim("P", 1, 100), F(72)}, false, ir::DType::u8);
      const int i = add_tensor(g, "i", dims, false, ir::DType::i64);
      g.outputs = {add_node(g, "quantized_gather", {w, i}, "y", {{"format", std::string("q4_0")}})};
      if (rider) g.outputs = {add_node(g, "scale", {g.outputs[0]}, "z", {{"value", 0.5}})};
      check(g, {{"P", 9}, {"T", 3}});
      EXPECT_EQ(lower(*finish(g))->kernels.size(), 1u);
    }
  }
  for (const char* op : {"gather", "quantized_gather"}) {
    Graph deep;
    const int w = add_tensor(deep, "w", {F(9), F(72)}, false, ir::DType::u8),
              i = add_tensor(deep, "i", std::vector<DimDesc>(8, F(1)), false, ir::DType::i32);
    std::vector<Attr> attrs = {{"format", std::string("q4_0")}};
    if (op == std::string("gather")) attrs.clear();
    deep.outputs = {add_node(deep, op, {w, i}, "y", attrs)};
    EXPECT_EQ(finish(deep).status().to_string(), "INVALID: i.shape: 8 dimensions, expected at most 7");
  }
  Graph g;
  const int w = add_tensor(g, "w", {F(9), F(72)}, false, ir::DType::u8), i = add_tensor(g, "i", {F(3)});
  g.outputs = {add_node(g, "quantized_gather", {w, i}, "y", {{"format", std::string("q4_0")}})};
  EXPECT_EQ(finish(g).status().to_string(), "INVALID: i: dtype f32, expected i32 or i64");
}

// What follows is computed where rows are read, in f32.
TEST(Lower, GatherWithFollowers) {
  for (const ir::DType type : {ir::DType::f32, ir::DType::bf16}) {
    for (const std::vector<DimDesc>& dims : std::vector<std::vector<DimDesc>>{{}, {F(3)}, {F(2), F(4)}}) {
      Graph g;
      const int s = add_tensor(g, "s", {F(7), F(5)}, true, type), i = add_tensor(g, "i", dims, false, ir::DType::i32);
      int y = add_node(g, "gather", {s, i}, "rows");
      if (type != ir::DType::f32) y = add_node(g, "cast", {y}, "wide", {{"to", std::string("f32")}});
      y = add_node(g, "scale", {y}, "scaled", {{"value", 2.5}});
      g.outputs = {add_node(g, "add", {y, add_tensor(g, "b", {F(5)})}, "y")};
      check(g);
      EXPECT_EQ(lower(*finish(g))->kernels.size(), 1u);
    }
  }
}

// What a graph computes can only be checked when it is too late.
TEST(Lower, GatherTakesIdsThatAreInputs) {
  Graph g;
  const int s = add_tensor(g, "s", {F(7), F(5)}), x = add_tensor(g, "x", {F(3)});
  const int i = add_node(g, "cast", {x}, "i", {{"to", std::string("i32")}});
  g.outputs = {add_node(g, "gather", {s, i}, "y")};
  const auto finished = finish(g);
  ASSERT_TRUE(finished.ok()) << finished.status().to_string();
  EXPECT_EQ(lower(*finished).status().to_string(),
            "UNSUPPORTED: i: computed by the graph, expected an input: its values are checked before the call");
  Graph flat;
  flat.outputs = {add_node(flat, "gather", {add_tensor(flat, "s", fixed({7})), add_tensor(flat, "i", {F(3)})}, "y")};
  EXPECT_FALSE(finish(flat).ok());
  Graph floats;
  floats.outputs = {
      add_node(floats, "gather", {add_tensor(floats, "s", fixed({7, 2})), add_tensor(floats, "i", {F(3)})}, "y")};
  EXPECT_NE(finish(floats).status().to_string().find("expected i32, i64"), std::string::npos)
      << finish(floats).status().to_string();
}

TEST(Lower, NanReachesMaxReluAndSoftmax) {
  for (const char* op : {"relu", "max", "softmax", "mean"}) {
    const auto g = finish(single(op, {{3, 4}}));
    ASSERT_TRUE(g.ok());
    const auto l = lower(*g);
    Tensors want{{g->inputs[0], {{3, 4}, {1, 2, 3, 4, 5, NAN, 7, 8, -INFINITY, -INFINITY, -INFINITY, -INFINITY}}}},
        got = want;
    run_reference(*g, {}, want);
    run_lowered(*g, *l, {}, got);
    expect_near(got.at(g->outputs[0]), want.at(g->outputs[0]), op);
  }
}

TEST(Lower, MatmulOfAllTransposesAndBatches) {
  const auto swap_last = [](std::vector<int64_t> d, bool on) {
    if (on) std::swap(d[d.size() - 1], d[d.size() - 2]);
    return d;
  };
  for (int t = 0; t < 4; ++t) {
    const bool ta = t & 1, tb = t & 2;
    const std::vector<Attr> attrs{{"transpose_a", ta}, {"transpose_b", tb}};
    using Dims = std::vector<int64_t>;
    for (const auto& [a, b] : {std::pair<Dims, Dims>{{5, 7}, {7, 4}},
                               {{2, 5, 7}, {7, 4}},
                               {{2, 1, 3, 6}, {4, 6, 2}},
                               {{3, 6}, {2, 6, 5}},
                               {{5, 0}, {0, 4}},
                               {{0, 3}, {3, 4}},
                               {{1, 1}, {1, 1}},
                               {{0, 2, 3}, {0, 3, 2}}}) {
      check(single("matmul", {swap_last(a, ta), swap_last(b, tb)}, attrs));
    }
  }
  Graph g;  // one tensor as both operands
  const int x = add_tensor(g, "x", fixed({4, 6}));
  g.outputs = {add_node(g, "matmul", {x, x}, "y", {{"transpose_b", true}})};
  check(g);
}

TEST(Lower, MatmulWithFollowersAndZeroDepth) {
  for (int64_t depth : {9, 1, 0}) {
    Graph g;
    const int x = add_tensor(g, "x", {symbol_dim("M", 0, 64), F(depth)}),
              w = add_tensor(g, "w", {F(6), F(depth)}, true);
    const int bias = add_tensor(g, "bias", {F(6)}, true), r = add_tensor(g, "r", {symbol_dim("M", 0, 64), F(6)});
    int y = add_node(g, "matmul", {x, w}, "p", {{"transpose_b", true}});
    y = add_node(g, "add", {y, bias}, "q");
    y = add_node(g, "gelu", {y}, "u");
    y = add_node(g, "scale", {y}, "v", {{"value", 0.5}});
    g.outputs = {add_node(g, "add", {r, y}, "y")};
    for (int64_t m : {0, 1, 5}) check(g, {{"M", m}});
    ASSERT_EQ(lower(*finish(g))->kernels.size(), 1u);
  }
}

TEST(Lower, RowOperators) {
  for (const char* op : {"softmax", "layernorm", "rmsnorm", "sum", "max", "mean"}) {
    SCOPED_TRACE(op);
    for (const std::vector<int64_t>& dims :
         std::vector<std::vector<int64_t>>{{4, 9}, {9}, {2, 3, 5}, {3, 1}, {0, 4}, {3, 0}}) {
      if (dims.back() == 0 && std::string(op).find("norm") != std::string::npos) continue;  // nothing to compare
      check(single(op, {dims}));
      if (std::string(op) == "sum" || std::string(op) == "max" || std::string(op) == "mean") {
        check(single(op, {dims}, {{"keepdims", true}, {"axis", static_cast<int64_t>(dims.size()) - 1}}));
      } else if (std::string(op) != "softmax") {
        check(single(op, {dims, {dims.back()}}, {{"epsilon", 1e-3}}));
      }
    }
  }
  check(single("layernorm", {{3, 7}, {7}, {7}}));
  Graph g = single("layernorm", {{3, 7}, {7}});
  g.nodes[0].inputs = {0, 1, 1};
  check(g);
}

TEST(Lower, SoftmaxRoundedToBf16HasTheShorterPower) {
  const auto has = [](ir::DType type, const char* follower) {
    Graph g;
    int y = add_node(g, "softmax", {add_tensor(g, "x", {F(3), F(9)}, false, type)}, "p");
    if (follower != nullptr) y = add_node(g, follower, {y}, "y");
    g.outputs = {y};
    return ir::print(lower(*finish(g))->kernels[0].kernel).find("exp2_bf16(") != std::string::npos;
  };
  EXPECT_TRUE(has(ir::DType::bf16, nullptr));
  EXPECT_FALSE(has(ir::DType::bf16, "log"));  // the quotient's error may be that of a large result
  EXPECT_FALSE(has(ir::DType::f16, nullptr));
  EXPECT_FALSE(has(ir::DType::f32, nullptr));
}

TEST(Lower, RowsWithPrologueAndFollowers) {
  for (const std::string op : {"softmax", "layernorm", "rmsnorm", "sum", "max", "mean"}) {
    SCOPED_TRACE(op);
    const bool reduces = op == "sum" || op == "max" || op == "mean";
    for (const bool keep : {false, true}) {
      if (keep && !reduces) continue;
      Graph g;
      const DimDesc m = symbol_dim("M", 1, 64), l = symbol_dim("len", 1, 32);
      const int x = add_tensor(g, "x", {m, F(3), l}), mask = add_tensor(g, "mask", {m, F(1), l});
      int y = add_node(g, "scale", {x}, "a", {{"value", 0.125}});
      y = add_node(g, "add", {y, mask}, "b");
      y = add_node(g, op, {y}, "c", keep ? std::vector<Attr>{{"keepdims", true}} : std::vector<Attr>{});
      const std::vector<DimDesc> rest = !reduces ? std::vector<DimDesc>{m, F(3), l}
                                        : keep   ? std::vector<DimDesc>{m, F(3), F(1)}
                                                 : std::vector<DimDesc>{m, F(3)};
      const int r = add_tensor(g, "r", rest);
      y = add_node(g, "add", {y, r}, "e");
      g.outputs = {add_node(g, "silu", {y}, "y")};
      check(g, {{"M", 4}, {"S_len", 7}});
      ASSERT_EQ(lower(*finish(g))->kernels.size(), 1u);
    }
  }
}

TEST(Lower, TransposeMergesWhatStaysAdjacent) {
  std::vector<int64_t> perm{0, 1, 2, 3};
  do {
    check(single("transpose", {{2, 3, 4, 5}}, {{"perm", perm}}));
  } while (std::next_permutation(perm.begin(), perm.end()));
  check(single("transpose", {{}}, {{"perm", std::vector<int64_t>{}}}));
  const auto kernel_of = [](const Graph& g) { return lower(*finish(g))->kernels[0].kernel; };
  EXPECT_EQ(kernel_of(single("transpose", {{2, 3, 4, 5}}, {{"perm", std::vector<int64_t>{2, 3, 0, 1}}}))
                .buffers[1]
                .dims.size(),
            2u);
  EXPECT_EQ(kernel_of(single("copy", {{2, 3, 4}})).buffers[1].dims.size(), 1u);
}

TEST(Lower, StridedOperandsKeepTheirMemory) {
  const auto strides = [](const std::vector<int64_t>& s) { return std::vector<ir::Expr>(s.begin(), s.end()); };
  for (const std::vector<int64_t>& s :
       {std::vector<int64_t>{40, 10, 1}, {12, 4, 1}, {24, 4, 1}, {1, 2, 6}, {0, 0, 1}, {12, 8, 2}}) {
    for (const char* op : {"copy", "gelu", "softmax", "sum"}) {
      Graph g = single(op, {{2, 3, 4}});
      g.tensors[0].strides = strides(s);
      check(g);
    }
    Graph t = single("transpose", {{2, 3, 4}}, {{"perm", std::vector<int64_t>{2, 0, 1}}});
    t.tensors[0].strides = strides(s);
    check(t);
    Graph m = single("matmul", {{2, 3, 4}, {4, 5}});
    m.tensors[0].strides = strides(s);
    check(m);
  }
  Graph g = single("copy", {{2, 3, 4}});  // to a strided result
  g.tensors[1].strides = strides({60, 20, 2});
  check(g);
  Graph row = single("softmax", {{6}});
  row.tensors[0].strides = strides({3});
  row.tensors[1].strides = strides({2});
  check(row);
}

TEST(Lower, SymbolicStridesInProducts) {
  Graph g;
  const DimDesc m = symbol_dim("M", 1, 64), l = symbol_dim("L", 1, 128);
  const ir::Expr per_head(8);
  const int q = add_tensor(g, "q", {m, F(2), F(3), F(8)});
  const int k = add_tensor(g, "k", {m, F(2), l, F(8)}, false, ir::DType::f32,
                           {ir::Expr(16) * ir::symbol("L"), per_head, ir::Expr(16), 1});
  const int mask = add_tensor(g, "mask", {m, F(1), F(1), l});
  int y = add_node(g, "matmul", {q, k}, "s", {{"transpose_b", true}});
  y = add_node(g, "scale", {y}, "t", {{"value", 0.25}});
  y = add_node(g, "add", {y, mask}, "u");
  y = add_node(g, "softmax", {y}, "p");
  g.outputs = {add_node(g, "matmul", {y, k}, "o")};
  for (int64_t length : {1, 5, 17}) check(g, {{"M", 2}, {"L", length}});
  const auto lowered = lower(*finish(g));
  ASSERT_EQ(lowered->kernels.size(), 3u);
  EXPECT_EQ(lowered->temps.size(), 2u);
}

TEST(Lower, AttentionOfHeadsMasksAndWindows) {
  const std::vector<std::vector<Attr>> ways = {
      {},
      {{"causal", true}},
      {{"scale", 0.3}, {"soft_cap", 1.5}},
      {{"window", int64_t{3}}},
      {{"window", int64_t{2}}, {"causal", true}},
      {{"window", int64_t{100}}, {"causal", true}},
  };
  for (const std::vector<Attr>& attrs : ways) {
    check(single("attention", {{4, 5, 3}, {2, 7, 3}, {2, 7, 2}}, attrs));
    check(single("attention", {{2, 3, 1, 8}, {2, 1, 9, 8}, {2, 1, 9, 4}}, attrs));
    check(single("attention", {{1, 6, 2}, {1, 4, 2}, {1, 4, 2}}, attrs));  // more queries than keys
    check(single("attention", {{2, 6, 2}, {2, 0, 2}, {2, 0, 5}}, attrs));
    check(single("attention", {{2, 3, 0}, {2, 4, 0}, {2, 4, 5}}, attrs));
    check(single("attention", {{0, 3, 4}, {0, 4, 4}, {0, 4, 5}}, attrs));
    check(single("attention", {{4, 5, 3}, {2, 7, 3}, {2, 7, 2}, {5, 7}}, attrs));
    check(single("attention", {{2, 4, 5, 3}, {2, 2, 7, 3}, {2, 2, 7, 2}, {2, 1, 5, 1}}, attrs));
    std::vector<Attr> with_sinks = attrs;
    with_sinks.push_back({"sinks", true});
    check(single("attention", {{4, 5, 3}, {2, 7, 3}, {2, 7, 2}, {4}}, with_sinks));
    check(single("attention", {{4, 5, 3}, {2, 7, 3}, {2, 7, 2}, {5, 7}, {4}}, with_sinks));
    check(single("attention", {{1, 6, 2}, {1, 4, 2}, {1, 4, 2}, {1}}, with_sinks));
    Graph g;
    const DimDesc s = symbol_dim("S", 0, 64), t = symbol_dim("T", 0, 64), b = symbol_dim("B", 0, 8);
    const int q = add_tensor(g, "q", {b, F(4), s, F(3)}), k = add_tensor(g, "k", {b, F(2), t, F(3)}),
              v = add_tensor(g, "v", {b, F(2), t, F(5)});
    Graph cached = g;
    const int lengths = add_tensor(cached, "lengths", {b}, false, ir::DType::i64);
    g.outputs = {add_node(g, "attention", {q, k, v}, "y", attrs)};
    cached.outputs = {add_node(cached, "cached_attention", {q, k, v, lengths}, "y", attrs)};
    for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{1, 9}, {5, 5}, {4, 7}, {7, 4}, {0, 3}, {3, 0}}) {
      check(g, {{"S", queries}, {"T", keys}, {"B", 2}});
      check(cached, {{"S", queries}, {"T", keys}, {"B", 2}});
    }
  }
}

// Keys and values in pages, which a table names.
TEST(Lower, PagedAttention) {
  const std::vector<std::vector<Attr>> ways = {
      {}, {{"causal", true}}, {{"causal", true}, {"window", int64_t{5}}}, {{"sinks", true}}};
  for (const std::vector<Attr>& attrs : ways) {
    for (const auto& [heads, kept, page] : {std::tuple{4, 2, 4}, {2, 2, 1}, {3, 1, 16}}) {
      Graph g;
      const DimDesc pages = symbol_dim("P", 1, 64), table = symbol_dim("N", 1, 16), s = symbol_dim("S", 1, 16);
      std::vector<int> in = {
          add_tensor(g, "q", {F(2), F(heads), s, F(3)}), add_tensor(g, "k", {pages, F(kept), F(page), F(3)}),
          add_tensor(g, "v", {pages, F(kept), F(page), F(5)}), add_tensor(g, "lengths", {F(2)}, false, ir::DType::i32),
          add_tensor(g, "pages", {F(2), table}, false, ir::DType::i64)};
      if (attrs.size() == 1 && attrs[0].name == "sinks") in.push_back(add_tensor(g, "sinks", {F(heads)}));
      g.outputs = {add_node(g, "paged_attention", in, "y", attrs)};
      check(g, {{"P", 6}, {"N", 3}, {"S", 1}});
      check(g, {{"P", 2}, {"N", 5}, {"S", 6}});
    }
  }
}

// Keys and values of bytes, with a scale for each key and head.
TEST(Lower, AttentionOfBytes) {
  const std::vector<Attr> attrs = {{"causal", true}, {"scales", true}};
  for (const bool paged : {false, true}) {
    for (const int64_t kept : {2, 1}) {
      Graph g;
      const DimDesc first = paged ? symbol_dim("P", 1, 64) : F(2), rows = paged ? F(4) : symbol_dim("T", 1, 64);
      std::vector<int> in = {add_tensor(g, "q", {F(2), F(4), F(3), F(5)}),
                             add_tensor(g, "k", {first, F(kept), rows, F(5)}, false, ir::DType::i8),
                             add_tensor(g, "v", {first, F(kept), rows, F(6)}, false, ir::DType::i8),
                             add_tensor(g, "lengths", {F(2)}, false, ir::DType::i32)};
      if (paged) in.push_back(add_tensor(g, "pages", {F(2), F(3)}, false, ir::DType::i32));
      in.push_back(add_tensor(g, "k_scales", {first, F(kept), rows}));
      in.push_back(add_tensor(g, "v_scales", {first, F(kept), rows}, false, ir::DType::f16));
      g.outputs = {add_node(g, paged ? "paged_attention" : "cached_attention", in, "y", attrs)};
      check(g, {{"P", 5}, {"T", 11}});
      check(g, {{"P", 1}, {"T", 2}});
    }
  }
}

// Queries of sequences one after another, with offsets as they come: those of no sequence are 0.
TEST(Lower, RaggedAttention) {
  const std::vector<std::vector<Attr>> ways = {{}, {{"causal", true}}, {{"causal", true}, {"window", int64_t{5}}}};
  for (const std::vector<Attr>& attrs : ways) {
    for (const bool pairs : {false, true}) {
      Graph g;
      const DimDesc batch = pairs ? symbol_dim("B", 1, 8) : F(3), pages = symbol_dim("P", 1, 64);
      std::vector<int> in = {
          add_tensor(g, "q", {symbol_dim("R", 0, 64), F(4), F(3)}), add_tensor(g, "k", {pages, F(2), F(4), F(3)}),
          add_tensor(g, "v", {pages, F(2), F(4), F(5)}), add_tensor(g, "lengths", {batch}, false, ir::DType::i32),
          add_tensor(g, "pages", {batch, symbol_dim("N", 1, 8)}, false, ir::DType::i64)};
      in.push_back(
          add_tensor(g, "offsets", pairs ? std::vector{batch, F(2)} : std::vector{F(4)}, false, ir::DType::i32));
      g.outputs = {add_node(g, "ragged_attention", in, "y", attrs)};
      check(g, {{"R", 9}, {"P", 6}, {"N", 3}, {"B", 3}});
      check(g, {{"R", 40}, {"P", 2}, {"N", 5}, {"B", 7}});
    }
  }
}

// As many keys as each sequence has, which are read in the nest.
TEST(Lower, CachedAttention) {
  Graph g;
  const DimDesc t = symbol_dim("T", 1, 64);
  const int q = add_tensor(g, "q", {F(2), F(2), F(1), F(4)}), k = add_tensor(g, "k", {F(2), F(2), t, F(4)}),
            v = add_tensor(g, "v", {F(2), F(2), t, F(4)}), n = add_tensor(g, "lengths", {F(2)}, false, ir::DType::i32),
            m = add_tensor(g, "mask", {F(1), t});
  g.outputs = {add_node(g, "cached_attention", {q, k, v, n, m}, "y")};
  check(g, {{"T", 9}});
  const std::string text = ir::print(lower(*finish(g))->kernels.at(0).kernel);
  EXPECT_NE(text.find("lengths: i32[2] in values 0..T,"), std::string::npos) << text;
  EXPECT_NE(text.find("for j < i64(lengths[t0]) [key]:"), std::string::npos) << text;
  Graph wrong;
  for (const int64_t sizes : {2, 2, 2})
    add_tensor(wrong, fmt::format("x{}", wrong.tensors.size()), {F(sizes), F(2), F(3), F(4)});
  const int lengths = add_tensor(wrong, "lengths", {F(3)}, false, ir::DType::i32);
  wrong.outputs = {add_node(wrong, "cached_attention", {0, 1, 2, lengths}, "y")};
  EXPECT_EQ(finish(wrong).status().to_string(), "INVALID: lengths.shape[0]: 3, expected 2 (batch of x0)");
}

TEST(Lower, AttentionOfAQueryThatSeesNoKeyIsZero) {
  const auto g = finish(single("attention", {{1, 2, 1}, {1, 3, 1}, {1, 3, 2}, {2, 3}}));
  ASSERT_TRUE(g.ok());
  const auto l = lower(*g);
  const double masked = -INFINITY;
  Tensors got{{g->inputs[0], {{1, 2, 1}, {1, 2}}},
              {g->inputs[1], {{1, 3, 1}, {3, 4, 5}}},
              {g->inputs[2], {{1, 3, 2}, {1, 2, 3, 4, 5, 6}}},
              {g->inputs[3], {{2, 3}, {masked, masked, masked, masked, 0, masked}}}};
  run_lowered(*g, *l, {}, got);
  EXPECT_EQ(got.at(g->outputs[0]).data, (std::vector<double>{0, 0, 3, 4}));
}

// The samples that sweeps of machine code take the Kernel's word for.
TEST(Lower, EveryRowAtSmallSizes) {
  const std::vector<std::vector<int64_t>> around = {{5, 2}, {1, 2}, {5, 6}, {1, 6, 1}, {0, 4}};
  for (const OpRow& row : op_rows()) {
    const Samples& samples = row.family->samples;
    for (size_t axis = 0; axis < samples.axes.get().size(); ++axis) {
      for (int variant = 0; variant < samples.variants(row); ++variant) {
        for (const int64_t size : {0, 1, 2, 3, 9}) {
          if (size % samples.axes.get()[axis].step != 0) continue;
          for (const std::vector<int64_t>& dims : around) {
            SampleSizes sizes{F(size), fixed(dims)};
            while (sizes.others.size() < samples.least_others) sizes.others.push_back(F(3));
            if (samples.least_others == 0 && size == 3) sizes.others.clear();
            const auto graph = sample_graph(row, axis, variant, sizes);
            ASSERT_TRUE(graph.ok()) << graph.status().to_string();
            SCOPED_TRACE(fmt::format("{} axis {} variant {} size {} others {}", row.name, axis, variant, size,
                                     fmt::join(dims, " ")));
            check(*graph, {}, true);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST(Lower, MovementKeepsTheDtype) {
  for (const ir::DType type : {ir::DType::f32, ir::DType::i32}) {
    Graph g = single("transpose", {{2, 3}}, {{"perm", std::vector<int64_t>{1, 0}}});
    g.tensors[0].dtype = type;
    const auto lowered = lower(*finish(g));
    ASSERT_TRUE(lowered.ok());
    EXPECT_EQ(lowered->kernels[0].kernel.buffers[1].type, type);
    EXPECT_TRUE(ir::verify(lowered->kernels[0].kernel).ok());
  }
}

TEST(Lower, RandomElementwiseGraphs) {
  std::mt19937 rng(11);
  const std::vector<std::string> unary{"neg", "tanh", "sigmoid", "gelu", "silu", "relu"},
      binary{"add", "mul", "sub", "maximum", "swiglu"};
  for (int trial = 0; trial < 60; ++trial) {
    SCOPED_TRACE(trial);
    Graph g;
    const std::vector<std::vector<int64_t>> shapes{{4, 6}, {6}, {4, 1}, {4, 6}};
    std::vector<int> pool;
    for (size_t i = 0; i < shapes.size(); ++i) pool.push_back(add_tensor(g, "x" + std::to_string(i), fixed(shapes[i])));
    std::vector<int> unused = pool;
    for (int n = 0; n < 8 || unused.size() > 1; ++n) {
      const auto take = [&]() {
        if (!unused.empty() && rng() % 3) {
          const int t = unused[rng() % unused.size()];
          return t;
        }
        return pool[rng() % pool.size()];
      };
      std::vector<int> in{n < 8 ? take() : unused[0]};
      const bool two = n >= 8 || rng() % 2;
      if (two) in.push_back(n < 8 ? take() : unused[1]);
      const int y =
          add_node(g, two ? binary[rng() % binary.size()] : unary[rng() % unary.size()], in, "n" + std::to_string(n));
      for (int t : in) unused.erase(std::remove(unused.begin(), unused.end(), t), unused.end());
      unused.push_back(y);
      pool.push_back(y);
    }
    g.outputs = unused;
    check(g);
  }
}

}  // namespace
}  // namespace lathe::ops::testing
