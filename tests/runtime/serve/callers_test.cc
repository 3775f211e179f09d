// Nobody waits for work that another caller asked for: the other one stands at a gate, in a back end, in the binder, in
// a search, in the file system; the call returns while the gate is shut.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <future>

#include "ir/core/text_form.h"
#include "jit/host/host_cpu.h"
#include "jit/program/backend.h"
#include "runtime/capi/handle.h"
#include "runtime/compile/compiler.h"
#include "runtime/store/store_file.h"
#include "search/cut/cut.h"
#include "search/sketches/recipe.h"
#include "tests/common/fake_worker.h"
#include "tests/common/gate.h"
#include "tests/common/generators.h"

namespace lathe::runtime {
namespace {

using test::Gate;

struct TempDir {
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lathe-callers-XXXXXX").string();
    path = mkdtemp(pattern.data());
  }
  ~TempDir() { std::filesystem::remove_all(path); }
  std::string path;
};

bool native() { return test::generates(); }

ops::Graph softmax_of(int64_t n, int64_t most = 4096) {
  ops::Graph g;
  g.name = "softmax";
  const int x = ops::add_tensor(g, "x", {ops::symbol_dim("M", 1, most), ops::fixed_dim(n)});
  g.outputs = {ops::add_node(g, "softmax", {x}, "y")};
  return ops::finish(g).value();
}

ir::Result<jit::CodeImage> compile(const jit::LeafProgram& program, jit::Backend backend) {
  return backend == jit::Backend::xbyak ? jit::compile_xbyak(program, true) : jit::compile_llvm(program, "");
}

// --- leaves ---

struct OneLeaf {
  explicit OneLeaf(LeafCompiler compiler, Store* store = nullptr) {
    LeafCacheOptions options;
    options.compiler = std::move(compiler);
    cache = std::make_unique<LeafCache>(options, store, &stats);
    search::Problem problem;
    problem.kernel =
        ir::parse_kernel(
            "kernel k(x: f32[64] in, y: f32[64] out) family elementwise\n  for i < 64 [i]:\n    y[i] = x[i] + x[i]\n")
            .value();
    const ir::Kernel scheduled =
        search::replay(problem.kernel, search::default_schedule(problem, jit::host_target())).value();
    cut = search::cut(scheduled).value();
  }
  ir::Result<const LeafEntry*> get(bool llvm, LeafOrigin* origin = nullptr) {
    LeafPolicy policy;
    policy.llvm = llvm;
    return cache->get(cut.leaves[0], jit::host_target(), policy, origin);
  }
  Stats stats;
  std::unique_ptr<LeafCache> cache;
  ir::CutKernel cut;
};

TEST(LeafCallers, OneThatAnotherThreadCompilesIsMadeBesideIt) {
  if (!native()) GTEST_SKIP() << "no native level on this machine";
  Gate gate;
  OneLeaf leaf([&](const jit::LeafProgram& program, jit::Backend backend) {
    gate.pass();
    return compile(program, backend);
  });
  const LeafEntry* theirs = nullptr;
  ASSERT_TRUE(gate.during([&] { theirs = leaf.get(false).value(); }));
  LeafOrigin origin = LeafOrigin::memory;
  const ir::Result<const LeafEntry*> mine = gate.beside([&] { return leaf.get(false, &origin); });
  ASSERT_TRUE(mine.ok()) << mine.status().to_string();
  EXPECT_EQ(origin, LeafOrigin::compiled);
  EXPECT_EQ((*mine)->backend, jit::Backend::xbyak);
  gate.finish();
  EXPECT_EQ(theirs, *mine) << "the first one stays";
  EXPECT_EQ(leaf.get(false).value(), *mine);
  EXPECT_EQ(leaf.stats.get(Stat::k_compiled_xbyak), 2);
}

TEST(LeafCallers, BesideACompilationByLlvmALowerTierServes) {
  if (!native()) GTEST_SKIP() << "no native level on this machine";
  Gate gate;
  OneLeaf leaf([&](const jit::LeafProgram& program, jit::Backend backend) -> ir::Result<jit::CodeImage> {
    if (backend == jit::Backend::xbyak) return ir::unsupported("refused");
    gate.pass();
    return compile(program, jit::Backend::xbyak);
  });
  const LeafEntry* theirs = nullptr;
  ASSERT_TRUE(gate.during([&] { theirs = leaf.get(true).value(); }));
  const ir::Result<const LeafEntry*> mine = gate.beside([&] { return leaf.get(false); });
  ASSERT_TRUE(mine.ok()) << mine.status().to_string();
  EXPECT_EQ((*mine)->backend, jit::Backend::portable);
  gate.finish();
  EXPECT_EQ(theirs->backend, jit::Backend::llvm);
  LeafOrigin origin = LeafOrigin::compiled;
  EXPECT_EQ(leaf.get(false, &origin).value(), theirs) << "the better one serves those who come later";
  EXPECT_EQ(origin, LeafOrigin::memory);
  EXPECT_EQ((*mine)->backend, jit::Backend::portable) << "and who has the other one keeps it";
}

// What the portable executor took over for lack of a back end is code as soon as somebody may use that one.
TEST(LeafCallers, ALowerTierIsNotTheLastWord) {
  if (!native()) GTEST_SKIP() << "no native level on this machine";
  OneLeaf leaf([](const jit::LeafProgram& program, jit::Backend backend) -> ir::Result<jit::CodeImage> {
    if (backend == jit::Backend::xbyak) return ir::unsupported("refused");
    return compile(program, jit::Backend::xbyak);
  });
  EXPECT_EQ(leaf.get(false).value()->backend, jit::Backend::portable);
  EXPECT_EQ(leaf.get(false).value()->backend, jit::Backend::portable);
  EXPECT_EQ(leaf.stats.get(Stat::k_refusals), 1) << "what was tried is not tried again";
  EXPECT_EQ(leaf.get(true).value()->backend, jit::Backend::llvm);
  EXPECT_EQ(leaf.get(false).value()->backend, jit::Backend::llvm);
}

TEST(LeafCallers, NobodyWritesTheImagesOfAnother) {
  if (!native()) GTEST_SKIP() << "no native level on this machine";
  const TempDir dir;
  Stats stats;
  StoreOptions layers;
  layers.layers = {{dir.path, LayerMode::private_rw}};
  const std::unique_ptr<Store> store = Store::open(layers, &stats).value();
  OneLeaf leaf({}, store.get());
  Gate gate;
  ASSERT_TRUE(gate.during([&] {
    EXPECT_TRUE(leaf.get(false).ok());
    gate.pass();
    leaf.cache->publish();
  }));
  leaf.cache->publish();
  EXPECT_EQ(stats.get(Stat::k_published), 0);
  gate.finish();
  EXPECT_EQ(stats.get(Stat::k_published), 2) << "the image and the name of its environment";
}

// A caller that must not wait writes no files: who waits anyway writes them for it.
TEST(LeafCallers, WhatWasLeftInMemoryIsWrittenByWhoWaits) {
  if (!native()) GTEST_SKIP() << "no native level on this machine";
  const TempDir dir;
  ContextConfig config;
  config.layers = {{dir.path, LayerMode::private_rw}};
  ContextState state(Context::create(std::move(config)).value());
  const auto ask = [&](int64_t n, Wait wait) {
    ServeRequest request;
    request.wait = wait;
    request.deadline_ns = 1;
    EXPECT_TRUE(state.served.serve(softmax_of(n), request).ok());
  };
  std::async(std::launch::async, [&] { ask(32, Wait::now); }).get();
  ask(64, Wait::now);
  EXPECT_EQ(state.context->stats().get(Stat::k_published), 0);
  ask(32, Wait::tuned);
  const auto images =
      state.context->stats().get(Stat::k_compiled_xbyak) + state.context->stats().get(Stat::k_compiled_llvm);
  EXPECT_EQ(state.context->stats().get(Stat::k_published), images + 1) << "and the name of their environment";
}

// --- shapes ---

// y[M, 100] = x[M, 70] * w[100, 70], w constant.
ops::Graph linear() {
  ops::Graph g;
  g.name = "linear";
  const int x = ops::add_tensor(g, "x", {ops::symbol_dim("M", 1, 512), ops::fixed_dim(70)});
  const int w = ops::add_tensor(g, "w", {ops::fixed_dim(100), ops::fixed_dim(70)}, true);
  g.outputs = {ops::add_node(g, "matmul", {x, w}, "y", {{"transpose_b", true}})};
  return ops::finish(g).value();
}

// An operator whose binder and whose back end stop at the gate, if the other one uses them.
struct Shapes {
  Shapes() {
    ContextConfig config;
    EXPECT_TRUE(config.options.set("cache", "off").ok());
    config.binder = [this](const Executable& executable, const SymbolValues& symbols,
                           const std::vector<ArgLayout>& args, int threads) {
      gate.pass();
      return executable.bind(symbols, args, threads);
    };
    context = Context::create(std::move(config)).value();
    op = Operator::create(context, softmax_of(32)).value();
    EXPECT_TRUE(op->stages().prepare(request).ok());
  }
  CallShape call(int64_t m) const {
    CallShape out;
    out.symbols = {{ops::kernel_symbol("M"), m}};
    return out;
  }
  const ServedStage* candidate(int64_t m) {
    const SymbolValues dims = call(m).symbols;
    const ServedStage* serving = op->shapes().bound(call(m)).value()->steps[0].stage;
    const search::Problem p = op->live().problem(0, dims, request, *serving);
    return op->live().add_candidate(0, p, search::default_scheduled(p, context->target()), *serving, request).value();
  }
  const ServedStage* stage_at(int64_t m) { return op->shapes().bound(call(m)).value()->steps[0].stage; }

  Gate gate;
  PrepareRequest request;
  std::shared_ptr<Context> context;
  std::shared_ptr<Operator> op;
};

TEST(ShapeCallers, AnUnseenShapeIsBoundBesideAnother) {
  Shapes s;
  const BoundOp* theirs = nullptr;
  ASSERT_TRUE(s.gate.during([&] { theirs = s.op->shapes().bound(s.call(5)).value(); }));
  EXPECT_TRUE(s.gate.beside([&] { return s.op->shapes().bound(s.call(6)).ok(); })) << "another shape";
  const BoundOp* mine = s.gate.beside([&] { return s.op->shapes().bound(s.call(5)).value(); });
  EXPECT_TRUE(s.gate.beside([&] { return s.op->shapes().bind_once(s.call(7)).ok(); }));
  EXPECT_TRUE(s.gate.beside([&] { return s.op->stages().packing(0)->parts.empty(); }));
  s.gate.finish();
  EXPECT_EQ(theirs, mine) << "the first one stays";
}

TEST(ShapeCallers, AnUnseenShapeIsBoundBesideAPromotion) {
  if (!native()) GTEST_SKIP() << "no native level on this machine";
  Shapes s;
  // 33 .. 64 is one range of the search.
  for (int64_t m = 33; m < 48; ++m) ASSERT_TRUE(s.op->shapes().bound(s.call(m)).ok());
  const ServedStage* candidate = s.candidate(33);
  ASSERT_TRUE(s.gate.during([&] { EXPECT_TRUE(s.op->live().promote(0, candidate).ok()); }));
  EXPECT_TRUE(s.gate.beside([&] { return s.op->shapes().bound(s.call(48)).ok(); })) << "in the candidate's range";
  EXPECT_TRUE(s.gate.beside([&] { return s.op->shapes().bound(s.call(3)).ok(); })) << "outside it";
  EXPECT_NE(s.stage_at(33), candidate) << "it does not serve yet";
  s.gate.beside([&] {
    s.op->shapes().set_heat(1024);
    return 0;
  });
  EXPECT_EQ(s.gate.beside([&] { return s.op->shapes().live_shapes().size(); }), 17u);
  s.gate.finish();
  for (const int64_t m : {33, 40, 47, 48, 49})
    EXPECT_EQ(s.stage_at(m), candidate) << "M = " << m << ", bound before, beside and after";
  EXPECT_NE(s.stage_at(3), candidate);
}

// A shape that began before the promotion and ends after it is served by what serves then.
TEST(ShapeCallers, AShapeBoundWhileACandidateTakesOverGetsTheCandidate) {
  if (!native()) GTEST_SKIP() << "no native level on this machine";
  Shapes s;
  const ServedStage* candidate = s.candidate(33);
  ASSERT_TRUE(s.gate.during([&] { EXPECT_TRUE(s.op->shapes().bound(s.call(50)).ok()); }));
  EXPECT_TRUE(s.gate.beside([&] { return s.op->live().promote(0, candidate).ok(); }));
  s.gate.finish();
  EXPECT_EQ(s.stage_at(50), candidate);
  EXPECT_TRUE(s.op->live().demote(0, candidate).ok());
  EXPECT_NE(s.stage_at(50), candidate);
  EXPECT_NE(s.stage_at(51), candidate);
}

// The stage that reads constants as they lie is made by whoever wants it first, beside calls that want it too.
TEST(ShapeCallers, ConstantsAsTheyLieAreServedBesideAnotherFirstCall) {
  if (!native()) GTEST_SKIP() << "no native level on this machine";
  Gate gate;
  ContextConfig config;
  ASSERT_TRUE(config.options.set("cache", "off").ok());
  config.compiler = [&](const jit::LeafProgram& program, jit::Backend backend) {
    gate.pass();
    return compile(program, backend);
  };
  const std::shared_ptr<Context> context = Context::create(std::move(config)).value();
  const std::shared_ptr<Operator> op = Operator::create(context, linear()).value();
  ASSERT_TRUE(op->stages().prepare({.caller_waits = true}).ok());
  if (op->stages().packing(1)->parts.empty()) GTEST_SKIP() << "this CPU's level packs nothing";
  const auto call = [](int64_t m, bool packed) {
    CallShape out;
    out.symbols = {{ops::kernel_symbol("M"), m}};
    out.packed = packed;
    return out;
  };
  const BoundOp* theirs = nullptr;
  ASSERT_TRUE(gate.during([&] { theirs = op->shapes().bound(call(5, false)).value(); }));
  EXPECT_TRUE(gate.beside([&] { return op->shapes().bound(call(5, true)).ok(); })) << "packed ones need nothing of it";
  EXPECT_TRUE(gate.beside([&] { return op->shapes().hinted_workspace(1, true, true).ok(); }));
  const BoundOp* mine = gate.beside([&] { return op->shapes().bound(call(6, false)).value(); });
  EXPECT_TRUE(gate.beside([&] { return op->stages().complete().ok(); }));
  gate.finish();
  EXPECT_EQ(theirs->steps[0].stage, mine->steps[0].stage) << "the first one stays";
  EXPECT_FALSE(mine->steps[0].stage->stage.nest().leaves.empty());
}

// --- resolve ---

struct Resolving {
  explicit Resolving(LeafCompiler compiler = {}, const std::string& worker = "/nonexistent/worker")
      : state(context_with(std::move(compiler), worker)) {}
  static std::shared_ptr<Context> context_with(LeafCompiler compiler, const std::string& worker) {
    ContextConfig config;
    EXPECT_TRUE(config.options.set("cache", "off").ok());
    EXPECT_TRUE(config.options.set("worker", worker).ok());
    config.compiler = std::move(compiler);
    return Context::create(std::move(config)).value();
  }
  ir::Result<std::shared_ptr<Operator>> ask(Wait wait, uint64_t deadline_ns = 0) {
    ServeRequest request;
    request.wait = wait;
    request.deadline_ns = deadline_ns;
    LATHE_ASSIGN(const ServedOperators::Found found, state.served.serve(graph, request));
    return found.op;
  }
  ops::Graph graph = softmax_of(48);
  ContextState state;
};

TEST(ResolveCallers, NowMakesItsOwnBesideAnotherNow) {
  if (!native()) GTEST_SKIP() << "no native level on this machine";
  Gate gate;
  Resolving r([&](const jit::LeafProgram& program, jit::Backend backend) {
    gate.pass();
    return compile(program, backend);
  });
  std::shared_ptr<Operator> theirs;
  ASSERT_TRUE(gate.during([&] { theirs = r.ask(Wait::now).value(); }));
  const ir::Result<std::shared_ptr<Operator>> mine = gate.beside([&] { return r.ask(Wait::now); });
  ASSERT_TRUE(mine.ok()) << mine.status().to_string();
  gate.finish();
  EXPECT_EQ(theirs, *mine) << "one operator is shared";
}

TEST(ResolveCallers, NowDoesNotWaitForASearch) {
  test::HeldWorker worker;
  Gate gate;
  Resolving r({}, worker.path());
  std::shared_ptr<Operator> searched;
  std::future<void> waiting = std::async(std::launch::async, [&] { searched = r.ask(Wait::tuned).value(); });
  worker.await();
  const auto now = gate.beside([&] { return r.ask(Wait::now); });
  EXPECT_TRUE(now.ok()) << now.status().to_string();
  EXPECT_TRUE(gate.beside([&] { return r.ask(Wait::stored); }).ok()) << "there is one by now";
  // A second WAIT shares the search, until its own deadline.
  const auto other = gate.beside([&] { return r.ask(Wait::tuned, 1); });
  EXPECT_TRUE(other.ok()) << other.status().to_string();
  gate.beside([&] {
    r.state.served.forget_untuned();
    return 0;
  });
  EXPECT_TRUE(gate.beside([&] { return r.ask(Wait::now); }).ok());
  worker.let_go();
  waiting.get();
  EXPECT_NE(searched, nullptr);
}

// --- store ---

// Files go, and aside, at the gate.
class HeldFiles final : public FileOps {
 public:
  explicit HeldFiles(Gate& gate) : gate_(gate) {}
  int unlink(int dir, const char* path) const override {
    gate_.pass();
    return FileOps::unlink(dir, path);
  }
  int rename(int dir, const char* from, const char* to) const override {
    gate_.pass();
    return FileOps::rename(dir, from, to);
  }

 private:
  Gate& gate_;
};

TEST(StoreCallers, AReaderDoesNotWaitForFilesOfAnother) {
  const ObjectKey key{ObjectKind::k_env, "", "somename"}, other{ObjectKind::k_env, "", "another"};
  for (const bool reject : {true, false}) {
    const TempDir dir;
    Gate gate;
    const HeldFiles files(gate);
    Stats stats;
    StoreOptions options;
    options.layers = {{dir.path, LayerMode::private_rw}};
    const std::unique_ptr<Store> store = Store::open(options, &stats, files).value();
    ASSERT_TRUE(store->put(key, "text").ok());
    Lookup found = store->find(key);
    found.layer = 0;
    ASSERT_TRUE(gate.during([&] {
      reject ? store->reject(key, found, MissReason::k_corrupt) : void(store->remove(key));
    })) << reject;
    EXPECT_FALSE(gate.beside([&] { return store->find(other).found; }));
    EXPECT_TRUE(gate.beside([&] { return store->put(other, "more").ok(); }));
    gate.finish();
    EXPECT_FALSE(store->find(key).found) << reject;
  }
}

}  // namespace
}  // namespace lathe::runtime
