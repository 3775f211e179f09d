// Fusion decisions: which Kernels a graph becomes, and the reason noted when a result is stored.
#include "ops/fusion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/analysis/verifier.h"
#include "ir/core/text_form.h"
#include "ops/lower.h"

namespace lathe::ops {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

DimDesc F(int64_t n) { return fixed_dim(n); }

struct Built {
  Graph g;
  int tensor(const std::string& name, std::vector<DimDesc> dims) { return add_tensor(g, name, std::move(dims)); }
  int node(const std::string& op, std::vector<int> in, std::vector<Attr> attrs = {}) {
    return add_node(g, op, std::move(in), "t" + std::to_string(g.nodes.size()), std::move(attrs));
  }
  Lowered lower(std::vector<int> outputs) {
    g.outputs = std::move(outputs);
    auto finished = finish(g);
    EXPECT_TRUE(finished.ok()) << finished.status().to_string();
    auto out = ops::lower(*finished);
    EXPECT_TRUE(out.ok());
    return *out;
  }
};
std::vector<std::string> names(const Lowered& l) {
  std::vector<std::string> out;
  for (const auto& k : l.kernels) out.push_back(k.kernel.name);
  return out;
}

TEST(Fusion, FollowersRideOnAMatmul) {
  Built b;
  const int x = b.tensor("x", {F(4), F(8)}), w = b.tensor("w", {F(8), F(6)}), v = b.tensor("v", {F(6)}),
            r = b.tensor("r", {F(4), F(6)});
  const int y = b.node("add", {b.node("gelu", {b.node("add", {b.node("matmul", {x, w}), v})}), r});
  const Lowered l = b.lower({y});
  EXPECT_THAT(names(l), ElementsAre("matmul_add_gelu_add"));
  EXPECT_TRUE(l.temps.empty());
  EXPECT_THAT(l.kernels[0].fusion_note, HasSubstr("matmul + add + gelu + add"));
}

TEST(Fusion, TheLastMatmulTakesWhatJoinsTwo) {
  Built b;
  const int x = b.tensor("x", {F(4), F(8)}), w = b.tensor("w", {F(8), F(6)}), u = b.tensor("u", {F(8), F(6)});
  const int gate = b.node("silu", {b.node("matmul", {x, w})});
  const Lowered l = b.lower({b.node("mul", {gate, b.node("matmul", {x, u})})});
  EXPECT_THAT(names(l), ElementsAre("matmul", "silu_matmul_mul"));
  EXPECT_EQ(l.temps.size(), 1u);
}

TEST(Fusion, BeforeAndAfterARow) {
  Built b;
  const int x = b.tensor("x", {F(4), F(8)}), r = b.tensor("r", {F(4), F(8)});
  const int y = b.node("mul", {b.node("softmax", {b.node("add", {x, r})}), r});
  EXPECT_THAT(names(b.lower({y})), ElementsAre("add_softmax_mul"));
}

TEST(Fusion, AResultUsedElsewhereIsStored) {
  Built b;
  const int x = b.tensor("x", {F(4), F(8)}), r = b.tensor("r", {F(4), F(8)});
  const int h = b.node("add", {x, r}), n = b.node("rmsnorm", {h});
  Lowered l = b.lower({b.node("add", {n, h})});  // read before and after the reduction
  EXPECT_THAT(names(l), ElementsAre("add_rmsnorm_add"));
  l = b.lower({n, h, b.g.nodes.back().output});
  EXPECT_THAT(names(l), ElementsAre("add_rmsnorm_add"));
  EXPECT_THAT(l.kernels[0].fusion_note, HasSubstr("t0 is stored as well; t1 is stored as well; stored: "));
  EXPECT_TRUE(l.temps.empty());
}

TEST(Fusion, AMatmulStoresOneResult) {
  Built b;
  const int m = b.node("matmul", {b.tensor("x", {F(4), F(8)}), b.tensor("w", {F(8), F(6)})});
  const Lowered l = b.lower({b.node("relu", {m}), m});
  EXPECT_THAT(names(l), ElementsAre("matmul", "relu"));
  EXPECT_THAT(l.kernels[0].fusion_note, HasSubstr("t0 is an output of the graph, and a matmul stores one result"));
}

TEST(Fusion, WhatDoesNotFuse) {
  {
    Built b;  // two reductions
    const int x = b.tensor("x", {F(4), F(8)});
    EXPECT_THAT(names(b.lower({b.node("softmax", {b.node("rmsnorm", {x})})})), ElementsAre("rmsnorm", "softmax"));
  }
  {
    Built b;  // twice before a matmul
    const int x = b.node("gelu", {b.tensor("x", {F(4), F(4)})});
    EXPECT_THAT(names(b.lower({b.node("matmul", {x, x})})), ElementsAre("gelu", "matmul"));
  }
  {
    Built b;  // computed again for each row
    const int x = b.tensor("x", {F(4), F(8)}), v = b.tensor("v", {F(8)});
    const Lowered l = b.lower({b.node("add", {x, b.node("gelu", {v})})});
    EXPECT_THAT(names(l), ElementsAre("gelu", "add"));
    EXPECT_THAT(l.kernels[0].fusion_note, HasSubstr("broadcast"));
  }
  {
    Built b;  // the scale of a norm, not its rows
    const int x = b.tensor("x", {F(4), F(8)}), v = b.tensor("v", {F(8)});
    EXPECT_THAT(names(b.lower({b.node("rmsnorm", {x, b.node("exp", {v})})})), ElementsAre("exp", "rmsnorm"));
  }
  {
    Built b;  // movement
    const int x = b.tensor("x", {F(4), F(8)});
    const int t = b.node("transpose", {b.node("neg", {x})}, {{"perm", std::vector<int64_t>{1, 0}}});
    EXPECT_THAT(names(b.lower({b.node("neg", {t})})), ElementsAre("neg", "transpose", "neg"));
  }
}

// What riders make of a constant is made when it is packed.
TEST(Fusion, AWeightIsPackedAsItIsMade) {
  Built b;
  const int x = b.tensor("x", {F(4), F(8)});
  const int w = add_tensor(b.g, "w", {F(6), F(8)}, true, ir::DType::bf16);
  const int scaled = b.node("scale", {b.node("cast", {w}, {{"to", std::string("f32")}})}, {{"value", 0.5}});
  const Lowered l = b.lower({b.node("silu", {b.node("matmul", {x, scaled}, {{"transpose_b", true}})})});
  EXPECT_THAT(names(l), ElementsAre("cast_scale_matmul_silu"));
  EXPECT_TRUE(l.temps.empty());
  const ir::Kernel& k = l.kernels[0].kernel;
  EXPECT_EQ(k.family, "matmul");
  EXPECT_TRUE(ir::verify(k).ok()) << ir::verify(k).to_string();
  EXPECT_THAT(ir::print(k), HasSubstr("b: f32[6, 8] const from bf16 f32(b[]) * 0.5"));
  const auto read = ir::parse_kernel(ir::print(k));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(ir::print(*read), ir::print(k));
  EXPECT_THAT(ir::print(ir::as_given(k)), HasSubstr("b: bf16[6, 8] const"));
  EXPECT_THAT(ir::print(ir::as_given(k)), HasSubstr("f32(b[n, k]) * 0.5"));
}

// What riders make of anything else is stored first, in its own dtype and in the same Kernel.
TEST(Fusion, OperandsOfAProductAreComputedFirst) {
  Built b;
  const auto bf16 = [&](const char* name, std::vector<DimDesc> dims, bool constant = false) {
    return add_tensor(b.g, name, std::move(dims), constant, ir::DType::bf16);
  };
  const int x = bf16("x", {F(4), F(8)}), gate = bf16("gate", {F(4), F(8)}), r = bf16("r", {F(4), F(6)});
  const int y = b.node("matmul", {b.node("swiglu", {x, gate}), bf16("w", {F(8), F(6)}, true)});
  const Lowered l = b.lower({b.node("add", {y, r})});
  EXPECT_THAT(names(l), ElementsAre("swiglu_matmul_add"));
  EXPECT_TRUE(l.temps.empty());
  const ir::Kernel& k = l.kernels[0].kernel;
  EXPECT_EQ(k.family, "matmul");
  EXPECT_TRUE(ir::verify(k).ok()) << ir::verify(k).to_string();
  EXPECT_THAT(ir::print(k), HasSubstr("a: bf16[4, 8] heap"));
  EXPECT_THAT(ir::print(k), HasSubstr("[prologue]"));
}

TEST(Fusion, WhatPackingCannotMakeIsComputedFirst) {
  const Attr to_f32 = {"to", std::string("f32")};
  const auto computed = [&](auto&& weight) {
    Built b;
    const int x = b.tensor("x", {F(4), F(8)});
    const std::vector<int> operands = weight(b);
    const Lowered l = b.lower({b.node("matmul", {x, operands[0]})});
    EXPECT_EQ(l.kernels.size(), 1u);
    return ir::print(l.kernels[0].kernel);
  };
  const auto stored = [](Built& b, const char* name, std::vector<DimDesc> dims, bool constant = true) {
    return add_tensor(b.g, name, std::move(dims), constant, ir::DType::bf16);
  };
  EXPECT_THAT(
      computed([&](Built& b) { return std::vector{b.node("cast", {stored(b, "w", {F(8), F(6)}, false)}, {to_f32})}; }),
      HasSubstr("b: f32[8, 6] heap"));
  EXPECT_THAT(computed([&](Built& b) {
                const int w = add_tensor(b.g, "w", {F(8), F(6)}, true), v = add_tensor(b.g, "v", {F(8), F(6)}, true);
                return std::vector{b.node("add", {w, v})};
              }),
              HasSubstr("b: f32[8, 6] heap"));
  EXPECT_THAT(computed([&](Built& b) {
                const int w = add_tensor(b.g, "w", {F(8), F(6)}, true);
                return std::vector{b.node("mul", {w, w})};
              }),
              HasSubstr("b: f32[8, 6] heap"));
  {
    Built b;  // two products of one weight: it is made once, and stored between Kernels
    const int w = stored(b, "w", {F(8), F(8)}), x = b.tensor("x", {F(4), F(8)});
    const int wide = b.node("cast", {w}, {to_f32});
    EXPECT_THAT(names(b.lower({b.node("matmul", {b.node("matmul", {x, wide}), wide})})),
                ElementsAre("cast", "matmul", "matmul"));
  }
  {
    Built b;  // a follower reads the weight as it lies
    const int w = add_tensor(b.g, "w", {F(8), F(8)}, true), x = b.tensor("x", {F(8), F(8)});
    EXPECT_THAT(names(b.lower({b.node("add", {b.node("matmul", {x, b.node("scale", {w}, {{"value", 2.0}})}), w})})),
                ElementsAre("scale_matmul_add"));
  }
  {
    Built b;  // of varying size
    const int w = add_tensor(b.g, "w", {symbol_dim("K", 1, 64), F(8)}, true, ir::DType::bf16);
    const int x = b.tensor("x", {F(8), symbol_dim("K", 1, 64)});
    EXPECT_THAT(names(b.lower({b.node("matmul", {x, b.node("cast", {w}, {to_f32})})})), ElementsAre("cast_matmul"));
  }
}

TEST(Fusion, ExpressionsAndOperandsAreBounded) {
  {
    Built b;
    int x = b.tensor("x", {F(4), F(8)});
    for (int i = 0; i < 12; ++i) x = b.node("gelu", {x});
    const Lowered l = b.lower({x});
    EXPECT_GT(l.kernels.size(), 2u);
    EXPECT_THAT(l.kernels[0].fusion_note, HasSubstr("exceeds"));
  }
  {
    Built b;
    int x = b.tensor("x", {F(4)});
    for (int i = 0; i < 20; ++i) x = b.node("add", {x, b.tensor("v" + std::to_string(i), {F(4)})});
    const Lowered l = b.lower({x});
    EXPECT_GT(l.kernels.size(), 1u);
    for (const auto& k : l.kernels) EXPECT_LE(k.kernel.num_params(), kMaxGroupOperands);
  }
}

}  // namespace
}  // namespace lathe::ops
