// Operators end to end: graph -> Kernels -> default Schedules -> leaves -> nests, at every level the host has, against
// the interpreter.
#include "runtime/serve/operator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "ir/analysis/analysis.h"
#include "ir/core/text_form.h"
#include "ir/meaning/interpreter.h"
#include "jit/host/host_cpu.h"
#include "tests/common/generators.h"

namespace lathe::runtime {
namespace {

using ops::add_node;
using ops::add_tensor;
using ops::fixed_dim;
using ops::symbol_dim;

struct TempDir {
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lathe-test-XXXXXX").string();
    path = mkdtemp(pattern.data());
  }
  ~TempDir() { std::filesystem::remove_all(path); }
  std::string path;
};

std::shared_ptr<Context> make_context(const std::string& store, const std::string& isa) {
  ContextConfig config;
  EXPECT_TRUE(config.options.set("max_isa", isa).ok());
  if (store.empty()) {
    EXPECT_TRUE(config.options.set("cache", "off").ok());
  } else {
    config.layers = {{store, LayerMode::private_rw}};
  }
  ir::Result<std::shared_ptr<Context>> ctx = Context::create(std::move(config));
  EXPECT_TRUE(ctx.ok()) << ctx.status().to_string();
  return std::move(ctx).value();
}

ops::Graph finished(ops::Graph g, int output) {
  g.outputs = {output};
  ir::Result<ops::Graph> done = ops::finish(g);
  EXPECT_TRUE(done.ok()) << done.status().to_string();
  return std::move(done).value();
}

ops::Graph gate_graph() {
  ops::Graph g;
  g.name = "gate";
  const int x = add_tensor(g, "x", {symbol_dim("M", 1, 512, {{1, 1}, {8, 1}, {64, 1}}), fixed_dim(70)});
  const int w = add_tensor(g, "w", {fixed_dim(100), fixed_dim(70)}, true);
  const int b = add_tensor(g, "b", {fixed_dim(100)}, true);
  const int r = add_tensor(g, "r", {symbol_dim("M", 1, 512), fixed_dim(100)});
  const int y = add_node(g, "matmul", {x, w}, "y", {{"transpose_b", true}});
  const int z = add_node(g, "add", {y, b}, "z");
  const int q = add_node(g, "relu", {z}, "q");
  return finished(g, add_node(g, "add", {q, r}, "out"));
}

ops::Graph scores_graph() {
  ops::Graph g;
  g.name = "scores";
  const auto m = symbol_dim("M", 1, 64, {{1, 1}, {4, 1}});
  const auto l = symbol_dim("L", 1, 512, {{33, 1}, {128, 1}});
  const int q = add_tensor(g, "q", {m, fixed_dim(2), fixed_dim(7), fixed_dim(64)});
  const int k = add_tensor(g, "k", {m, fixed_dim(2), l, fixed_dim(64)});
  return finished(g, add_node(g, "matmul", {q, k}, "y", {{"transpose_b", true}}));
}

ops::Graph mix_graph() {
  ops::Graph g;
  g.name = "mix";
  const auto m = symbol_dim("M", 1, 64, {{4, 1}});
  const auto l = symbol_dim("L", 1, 512, {{33, 1}, {128, 1}});
  const int p = add_tensor(g, "p", {m, fixed_dim(2), fixed_dim(7), l});
  const int v = add_tensor(g, "v", {m, fixed_dim(2), l, fixed_dim(64)});
  return finished(g, add_node(g, "matmul", {p, v}, "y"));
}

ops::Graph softmax_graph() {
  ops::Graph g;
  g.name = "softmax";
  const int x = add_tensor(g, "x", {symbol_dim("M", 1, 64), symbol_dim("N", 1, 4096, {{128, 1}})});
  return finished(g, add_node(g, "softmax", {x}, "y"));
}

ops::Graph layernorm_graph() {
  ops::Graph g;
  g.name = "layernorm";
  const int x = add_tensor(g, "x", {symbol_dim("M", 1, 64), fixed_dim(100)});
  const int s = add_tensor(g, "s", {fixed_dim(100)}, true);
  const int b = add_tensor(g, "b", {fixed_dim(100)}, true);
  return finished(g, add_node(g, "layernorm", {x, s, b}, "y"));
}

ops::Graph transpose_graph() {
  ops::Graph g;
  g.name = "transpose";
  const int x = add_tensor(g, "x", {symbol_dim("M", 1, 100), fixed_dim(50)});
  return finished(g, add_node(g, "transpose", {x}, "y", {{"perm", std::vector<int64_t>{1, 0}}}));
}

ops::Graph two_kernels_graph() {
  ops::Graph g;
  g.name = "chain";
  const int x = add_tensor(g, "x", {symbol_dim("M", 1, 64), fixed_dim(48)});
  const int w = add_tensor(g, "w", {fixed_dim(48), fixed_dim(40)}, true);
  const int s = add_tensor(g, "s", {fixed_dim(40)}, true);
  const int y = add_node(g, "matmul", {x, w}, "y");
  return finished(g, add_node(g, "rmsnorm", {y, s}, "z"));
}

struct Case {
  const char* name;
  ops::Graph (*graph)();
  std::vector<SymbolValues> dims;
  double tolerance;  // relative to max(|r|, 1); 0: integer data, equal bits
};

void PrintTo(const Case& c, std::ostream* os) { *os << c.name; }

int64_t dim_value(const ops::DimDesc& d, const SymbolValues& symbols) {
  if (d.fixed()) return d.max;
  for (const auto& [n, v] : symbols) {
    if (n == ops::kernel_symbol(d.symbol)) return v;
  }
  return -1;
}

// Runs the operator on random data and compares each output with the interpreter on the lowered Kernels.
void check(Operator& op, const SymbolValues& dims, bool prepack, double tolerance, int threads) {
  std::mt19937 rng(7);
  const ops::Graph& g = op.graph();
  std::vector<std::vector<float>> data;
  std::map<int, ir::Tensor> tensors;  // by graph tensor
  for (const int t : op.arg_tensors()) {
    ir::Tensor tensor;
    int64_t n = 1;
    for (const ops::DimDesc& d : g.tensors[static_cast<size_t>(t)].dims) {
      tensor.dims.push_back(dim_value(d, dims));
      n *= tensor.dims.back();
    }
    std::vector<float> values(static_cast<size_t>(n));
    for (float& v : values) {
      v = tolerance == 0 ? static_cast<float>(static_cast<int>(rng() % 7) - 3) : std::normal_distribution<float>()(rng);
    }
    tensor.data.assign(values.begin(), values.end());
    data.push_back(std::move(values));
    tensors[t] = std::move(tensor);
  }
  for (const ops::LoweredKernel& lk : op.lowered().kernels) {
    std::map<std::string, ir::Tensor> named;
    for (size_t p = 0; p < lk.params.size(); ++p) {
      const ir::Buffer& b = lk.kernel.buffers[p];
      ir::Tensor& t = tensors[lk.params[p].tensor];
      if (t.data.empty()) {
        int64_t n = 1;
        for (const ir::Expr& d : b.dims) n *= t.dims.emplace_back(*ir::evaluate(d, dims));
        t.data.assign(static_cast<size_t>(n), NAN);
      }
      named[b.name] = t;
    }
    ir::InterpreterOptions options;
    options.arithmetic = tolerance == 0 ? ir::Arithmetic::native : ir::Arithmetic::real;
    const ir::Status status = ir::interpret(lk.kernel, dims, named, options);
    ASSERT_TRUE(status.ok()) << status.to_string();
    for (size_t p = 0; p < lk.params.size(); ++p) tensors[lk.params[p].tensor] = named[lk.kernel.buffers[p].name];
  }
  std::vector<std::vector<float>> packed;
  std::vector<void*> args;
  for (size_t a = 0; a < data.size(); ++a) args.push_back(data[a].data());
  for (const int t : g.outputs) {
    const auto a =
        static_cast<size_t>(std::find(op.arg_tensors().begin(), op.arg_tensors().end(), t) - op.arg_tensors().begin());
    std::fill(data[a].begin(), data[a].end(), NAN);
  }
  packed.reserve(data.size());
  for (size_t a = 0; prepack && a < data.size(); ++a) {
    const ir::Result<TensorPacking> packing = op.stages().packing(static_cast<int>(a));
    ASSERT_TRUE(packing.ok()) << packing.status().to_string();
    if (packing->parts.empty()) continue;
    packed.emplace_back(static_cast<size_t>(packing->bytes) / 4, NAN);
    const ir::Status status = run_pack(*packing, {}, data[a].data(), packed.back().data(), op.context().tasks());
    ASSERT_TRUE(status.ok()) << status.to_string();
    args[a] = packed.back().data();
  }
  CallShape call;
  call.symbols = dims;
  call.packed = prepack;
  call.threads = threads;
  const ir::Result<const BoundOp*> bound = op.shapes().bound(call);
  ASSERT_TRUE(bound.ok()) << bound.status().to_string();
  void* workspace = std::aligned_alloc(64, static_cast<size_t>((*bound)->workspace_bytes) + 64);
  (*bound)->run(args.data(), workspace, nullptr);
  std::free(workspace);
  for (const int t : g.outputs) {
    const auto a =
        static_cast<size_t>(std::find(op.arg_tensors().begin(), op.arg_tensors().end(), t) - op.arg_tensors().begin());
    const ir::Tensor& want = tensors[t];
    for (size_t i = 0; i < want.data.size(); ++i) {
      const double r = want.data[i], y = data[a][i];
      if (tolerance == 0) {
        ASSERT_EQ(y, r) << "element " << i;
      } else {
        ASSERT_LE(std::abs(y - r), tolerance * std::max(std::abs(r), 1.0)) << "element " << i;
      }
    }
  }
}

class OperatorCases : public testing::TestWithParam<Case> {};

TEST_P(OperatorCases, DefaultSchedulesEqualTheInterpreter) {
  const Case& c = GetParam();
  for (const ir::IsaLevel level : {ir::IsaLevel::portable, ir::IsaLevel::avx2, ir::IsaLevel::avx512}) {
    if (!jit::host_target().has(level)) continue;
    SCOPED_TRACE(ir::isa_name(level));
    const std::shared_ptr<Context> ctx = make_context("", ir::isa_name(level));
    ir::Result<std::shared_ptr<Operator>> op = Operator::create(ctx, c.graph());
    ASSERT_TRUE(op.ok()) << op.status().to_string();
    for (const int threads : {1, 2}) {
      const ir::Result<PrepareInfo> info = (*op)->stages().prepare({.threads = threads});
      ASSERT_TRUE(info.ok()) << info.status().to_string();
      EXPECT_EQ(info->tier, test::generates(ctx->target()) ? 1 : 0);
      for (const SymbolValues& dims : c.dims) {
        SCOPED_TRACE(dims.empty() ? 0 : dims.begin()->second);
        check(**op, dims, true, c.tolerance, threads);
        check(**op, dims, false, c.tolerance, threads);
      }
    }
  }
}

// One leaf, no scratch: a call of it, whatever is packed and wherever operands begin.
TEST(Operator, ASmallProductIsOneCallOfALeaf) {
  for (const ir::IsaLevel level : {ir::IsaLevel::portable, ir::IsaLevel::avx2, ir::IsaLevel::avx512}) {
    if (!jit::host_target().has(level)) continue;
    for (const auto& [rows, one_leaf] : {std::pair{4, true}, std::pair{200, false}}) {
      ops::Graph g;
      g.name = "small";
      const int x = add_tensor(g, "x", {fixed_dim(rows), fixed_dim(40)});
      const int w = add_tensor(g, "w", {fixed_dim(40), fixed_dim(rows == 4 ? 8 : 300)}, true);
      g = finished(g, add_node(g, "relu", {add_node(g, "matmul", {x, w}, "y")}, "z"));
      const std::shared_ptr<Context> ctx = make_context("", ir::isa_name(level));
      ir::Result<std::shared_ptr<Operator>> op = Operator::create(ctx, g);
      ASSERT_TRUE(op.ok()) << op.status().to_string();
      ASSERT_TRUE((*op)->stages().prepare({}).ok());
      for (const bool packed : {false, true}) {
        check(**op, {}, packed, 0, 1);
        const ir::Result<const BoundOp*> bound = (*op)->shapes().bound({.threads = 1, .packed = packed});
        ASSERT_TRUE(bound.ok()) << bound.status().to_string();
        EXPECT_EQ((*bound)->direct != nullptr, one_leaf) << ir::isa_name(level) << " " << packed;
      }
    }
  }
}

// Constants that come as they lie are served by a default body, packed ones by the tuned one: that is the tier.
TEST(Operator, AFixedShapeWithADecisionIsTierTwo) {
  if (!test::generates()) GTEST_SKIP() << "no native level on this machine";
  ops::Graph g;
  g.name = "fixed";
  const int x = add_tensor(g, "x", {fixed_dim(8), fixed_dim(70)}),
            w = add_tensor(g, "w", {fixed_dim(96), fixed_dim(70)}, true);
  const std::shared_ptr<Context> ctx = make_context("", ir::isa_name(jit::host_target().level));
  const std::shared_ptr<Operator> op =
      Operator::create(ctx, finished(g, add_node(g, "matmul", {x, w}, "y", {{"transpose_b", true}}))).value();
  const PrepareRequest request;
  const search::Problem p = op->problem(0, {}, request);
  Decision decision;
  decision.status = DecisionStatus::verified;
  decision.kernel = p.kernel.name;
  decision.schedule = search::to_text(search::candidates(p, ctx->target(), 2).back());
  ctx->record_decision(op->query(0, {}, request), decision);
  const ir::Result<PrepareInfo> info = op->stages().prepare(request);
  ASSERT_TRUE(info.ok()) << info.status().to_string();
  EXPECT_FALSE(op->stages().packing(1)->parts.empty());
  EXPECT_EQ(info->tier, 2);
  check(*op, {}, true, 0, 1);
  check(*op, {}, false, 0, 1);
}

ops::Graph fixed_softmax_graph() {
  ops::Graph g;
  g.name = "fixed";
  const int x = add_tensor(g, "x", {fixed_dim(8), fixed_dim(640)});
  return finished(g, add_node(g, "softmax", {x}, "y"));
}

void decide(Context& ctx, const Operator& op, const search::Schedule& schedule) {
  Decision decision;
  decision.status = DecisionStatus::verified;
  decision.kernel = op.problem(0, {}, {}).kernel.name;
  decision.schedule = search::to_text(schedule);
  ctx.record_decision(op.query(0, {}, {}), decision);
}

// The image of what was decided is gone, or was made by a back end that this process lacks.
TEST(OperatorStore, ADecisionWithoutCodeLeavesTheCallToTheDefault) {
  TempDir dir;
  for (const bool first : {true, false}) {
    const std::shared_ptr<Context> ctx = make_context(dir.path, "host");
    if (!test::generates(ctx->target())) GTEST_SKIP() << "no native level on this machine";
    if (!first) ctx->set_seal(Seal::warn);
    const std::shared_ptr<Operator> op = Operator::create(ctx, fixed_softmax_graph()).value();
    const ir::Result<PrepareInfo> info = op->stages().prepare({});
    ASSERT_TRUE(info.ok()) << info.status().to_string();
    EXPECT_EQ(info->tier, 1) << "slower by far is what the portable executor makes of the decision";
    check(*op, {}, true, 3e-6, 1);
    if (!first) break;
    const search::Problem p = op->problem(0, {}, {});
    const search::Schedule other = search::candidates(p, ctx->target(), 2).back();
    ASSERT_NE(search::to_text(other), search::to_text(search::default_schedule(p, ctx->target())));
    decide(*ctx, *op, other);
  }
}

// Neither has the default then: the portable executor is what is left.
TEST(OperatorStore, ADecisionForTheDefaultWithoutCodeServesAllTheSame) {
  TempDir dir;
  for (const bool first : {true, false}) {
    const std::shared_ptr<Context> ctx = make_context(dir.path, "host");
    if (!first) ctx->set_seal(Seal::warn);
    const std::shared_ptr<Operator> op = Operator::create(ctx, fixed_softmax_graph()).value();
    if (first) {
      decide(*ctx, *op, search::default_schedule(op->problem(0, {}, {}), ctx->target()));
      continue;
    }
    const ir::Result<PrepareInfo> info = op->stages().prepare({});
    ASSERT_TRUE(info.ok()) << info.status().to_string();
    EXPECT_EQ(info->tier, 0);
    check(*op, {}, true, 3e-6, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, OperatorCases,
    testing::Values(
        Case{"gate", gate_graph, {{{"M", 1}}, {{"M", 3}}, {{"M", 8}}, {{"M", 13}}, {{"M", 64}}}, 0},
        Case{"scores", scores_graph, {{{"M", 1}, {"L", 33}}, {{"M", 3}, {"L", 128}}, {{"M", 2}, {"L", 1}}}, 0},
        Case{"mix", mix_graph, {{{"M", 1}, {"L", 33}}, {{"M", 3}, {"L", 128}}}, 0},
        Case{"softmax", softmax_graph, {{{"M", 1}, {"N", 1}}, {{"M", 5}, {"N", 130}}, {{"M", 9}, {"N", 77}}}, 3e-6},
        Case{"layernorm", layernorm_graph, {{{"M", 1}}, {{"M", 17}}}, 3e-6},
        Case{"transpose", transpose_graph, {{{"M", 1}}, {{"M", 33}}, {{"M", 100}}}, 0},
        Case{"chain", two_kernels_graph, {{{"M", 1}}, {{"M", 19}}}, 3e-6}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(OperatorStore, ASecondContextCompilesNothing) {
  TempDir dir;
  for (const bool first : {true, false}) {
    const std::shared_ptr<Context> ctx = make_context(dir.path, "host");
    if (!test::generates(ctx->target())) GTEST_SKIP() << "no native level on this machine";
    ir::Result<std::shared_ptr<Operator>> op = Operator::create(ctx, gate_graph());
    ASSERT_TRUE(op.ok());
    const ir::Result<PrepareInfo> info = (*op)->stages().prepare({});
    ASSERT_TRUE(info.ok()) << info.status().to_string();
    EXPECT_EQ(info->origin, first ? LeafOrigin::compiled : LeafOrigin::store);
    EXPECT_EQ(ctx->stats().get(Stat::k_compiled_xbyak) + ctx->stats().get(Stat::k_compiled_llvm) > 0, first);
    check(**op, {{"M", 7}}, true, 0, 1);
  }
}

TEST(OperatorStore, SealedWithErrorAndNothingStoredIsAMiss) {
  TempDir dir;
  const std::shared_ptr<Context> ctx = make_context(dir.path, "host");
  ctx->set_seal(Seal::error);
  ir::Result<std::shared_ptr<Operator>> op = Operator::create(ctx, gate_graph());
  ASSERT_TRUE(op.ok());
  const ir::Result<PrepareInfo> info = (*op)->stages().prepare({});
  ASSERT_FALSE(info.ok());
  EXPECT_EQ(info.status().code(), ir::Code::kMISS);
}

TEST(OperatorPack, SeveralThreadsPackTheBytesOfOne) {
  const std::shared_ptr<Context> context = make_context("", "avx2");
  const ir::Result<std::shared_ptr<Operator>> op = Operator::create(context, gate_graph());
  ASSERT_TRUE(op.ok()) << op.status().to_string();
  ASSERT_TRUE((*op)->stages().prepare({}).ok());
  const auto w = std::find((*op)->arg_tensors().begin(), (*op)->arg_tensors().end(), 1) - (*op)->arg_tensors().begin();
  const ir::Result<TensorPacking> packing = (*op)->stages().packing(static_cast<int>(w));
  ASSERT_TRUE(packing.ok()) << packing.status().to_string();
  if (packing->parts.empty()) GTEST_SKIP() << "this CPU's level packs nothing";
  std::vector<float> plain(100 * 70);
  for (size_t i = 0; i < plain.size(); ++i) plain[i] = static_cast<float>(i);
  std::vector<float> one(static_cast<size_t>(packing->bytes) / 4, NAN), several = one;
  ASSERT_TRUE(run_pack(*packing, {}, plain.data(), one.data(), nullptr).ok());
  for (const int threads : {2, 3}) {
    TaskArena arena(threads);
    std::fill(several.begin(), several.end(), NAN);
    ASSERT_TRUE(run_pack(*packing, {}, plain.data(), several.data(), &arena).ok());
    EXPECT_TRUE(std::equal(one.begin(), one.end(), several.begin()));
  }
  EXPECT_EQ(std::count(one.begin(), one.end(), 6999.f), 1);
}

}  // namespace
}  // namespace lathe::runtime
