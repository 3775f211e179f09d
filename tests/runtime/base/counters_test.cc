// Every counter and every reason of a miss has something that moves it: here those that no other suite moves. The house
// test of the tables looks for an assertion per row, by the row's name.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ir/core/text_form.h"
#include "jit/host/host_cpu.h"
#include "jit/image/image.h"
#include "runtime/serve/operator.h"
#include "search/cut/cut.h"
#include "tests/common/c_client.h"
#include "tests/common/generators.h"
#include "tests/runtime/store/store_util.h"

namespace lathe::runtime {
namespace {

using test::Owned;

#define LATHE_NEEDS_CODE() \
  if (!test::generates()) GTEST_SKIP() << "no generated code on this machine"

std::shared_ptr<Context> context_at(const std::string& path, const std::string& isa = "host") {
  ContextConfig config;
  EXPECT_TRUE(config.options.set("max_isa", isa).ok());
  config.layers = {{path, LayerMode::private_rw}};
  return Context::create(std::move(config)).value();
}

std::shared_ptr<Operator> softmax_on(const std::shared_ptr<Context>& context, const char* other = "softmax") {
  ops::Graph g;
  g.name = other;
  const int x = ops::add_tensor(g, "x", {ops::fixed_dim(8), ops::fixed_dim(70)});
  g.outputs = {ops::add_node(g, other, {x}, "y")};
  return Operator::create(context, ops::finish(g).value()).value();
}

// A record of the default Schedule, changed.
void record(Context& context, const Operator& op, const std::function<void(Decision&)>& change = {},
            const std::string& append = {}) {
  const PrepareRequest request;
  Decision d;
  d.status = DecisionStatus::verified;
  d.kernel = "softmax";
  d.schedule = search::to_text(search::default_schedule(op.problem(0, {}, request), context.target())) + append;
  const DecisionQuery query = op.query(0, {}, request);
  context.record_decision(query, d);
  if (!change) return;
  Decision written = context.find_decision(query).value();
  const ObjectKey key{ObjectKind::k_decision, context.environment(), written.key};
  change(written);
  EXPECT_TRUE(context.store().put(key, print_decision(written)).ok());
}

// What a context of its own counts when it meets the record.
std::shared_ptr<Context> meet(const std::function<void(Decision&)>& change, const std::string& append = {}) {
  const TempDir dir;
  const std::shared_ptr<Context> first = context_at(dir.path());
  record(*first, *softmax_on(first), change, append);
  const std::shared_ptr<Context> second = context_at(dir.path());
  EXPECT_TRUE(softmax_on(second)->stages().prepare({}).ok());
  return second;
}

TEST(Counters, RecordsThatCannotServe) {
  const auto epoch = meet([](Decision& d) { d.epoch -= 1; });
  EXPECT_EQ(epoch->stats().misses(MissReason::k_epoch), 1);
  const auto machine = meet([](Decision& d) { d.environment[0] = d.environment[0] == 'a' ? 'b' : 'a'; });
  EXPECT_EQ(machine->stats().misses(MissReason::k_environment), 1);
  const auto liar = meet([](Decision& d) { d.numeric ^= ir::kApproximate; });
  EXPECT_EQ(liar->stats().misses(MissReason::k_corrupt), 1);
  EXPECT_EQ(liar->stats().get(Stat::k_bad_files), 1);
  const auto moves = meet({}, "parallelize nowhere\n");
  EXPECT_EQ(moves->stats().misses(MissReason::k_refused), 1);
  const auto liberties = meet([](Decision& d) {
    d.numeric |= ir::kApproximate;
    const size_t at = d.schedule.find("class ") + 6;
    const size_t end = d.schedule.find('\n', at);
    const std::string claimed = d.schedule.substr(at, end - at);
    d.schedule.replace(at, end - at, claimed == "exact" ? "approximate" : claimed + ",approximate");
  });
  EXPECT_EQ(liberties->stats().misses(MissReason::k_numeric), 1);
}

// The default's layout is the one that the ranges of an operator share.
TEST(Counters, ARecordWithALayoutOfItsOwn) {
  if (!jit::backend_built(jit::Backend::xbyak)) GTEST_SKIP() << "built with LATHE_XBYAK=OFF";
  const TempDir dir;
  ops::Graph g;
  g.name = "layout";
  const int x = ops::add_tensor(g, "x", {ops::symbol_dim("M", 1, 64, {{4, 1}}), ops::fixed_dim(70)});
  const int w = ops::add_tensor(g, "w", {ops::fixed_dim(52), ops::fixed_dim(70)}, true);
  g.outputs = {ops::add_node(g, "matmul", {x, w}, "y", {{"transpose_b", true}})};
  const ops::Graph graph = ops::finish(g).value();
  const PrepareRequest request;
  {
    const std::shared_ptr<Context> context = context_at(dir.path());
    const std::shared_ptr<Operator> op = Operator::create(context, graph).value();
    const SymbolValues dims = op->hinted_dims()[0];
    const auto layout = [](const search::Problem& p, const search::Schedule& s) {
      uint64_t id = 0;
      const ir::Result<ir::Kernel> scheduled = search::replay(p.kernel, s);
      for (const ir::Buffer& b : scheduled.value().buffers) id = search::is_packed(b) ? constant_layout(b) : id;
      return id;
    };
    const search::Problem whole = op->general_problem(0, true, request);
    const uint64_t used = layout(whole, search::default_schedule(whole, context->target()));
    search::Problem part = op->problem(0, dims, request);
    part.one_layout = false;
    Decision d;
    for (const search::Schedule& s : search::candidates(part, context->target(), 200)) {
      if (const uint64_t id = layout(part, s); id != 0 && used != 0 && id != used) d.schedule = search::to_text(s);
    }
    if (d.schedule.empty()) GTEST_SKIP() << "one layout only on this machine";
    context->record_decision(op->query(0, dims, request), d);
  }
  const std::shared_ptr<Context> context = context_at(dir.path());
  const std::shared_ptr<Operator> op = Operator::create(context, graph).value();
  const ir::Result<PrepareInfo> info = op->stages().prepare(request);
  ASSERT_TRUE(info.ok()) << info.status().to_string();
  EXPECT_EQ(context->stats().misses(MissReason::k_layout), 1);
  EXPECT_EQ(info->miss, MissReason::k_layout);
}

// One leaf, and what a cache of its own counts for it.
struct OneLeaf {
  OneLeaf() {
    const search::Problem p{
        ir::parse_kernel("kernel relu(x: f32[8, 40] in, y: f32[8, 40] out) family elementwise\n"
                         "  for i < 8 [row]:\n    for j < 40 [col]:\n      y[i, j] = max(x[i, j], 0.0)\n")
            .value()};
    cut = search::cut(search::replay(p.kernel, search::default_schedule(p, jit::host_target())).value()).value();
    store = Store::open(at(dir.path()), &stats).value();
  }
  ir::Result<const LeafEntry*> get(LeafCache& leaves, LeafPolicy policy = {}) {
    return leaves.get(cut.leaves[0], jit::host_target(), policy);
  }
  // The one image in the store, read, changed and written again with the right checksums.
  void change_image(const std::function<void(jit::StoredImage&)>& change) {
    const std::string code = store->groups(ObjectKind::k_image).at(0);
    ASSERT_FALSE(image_name.empty());
    const ObjectKey key{ObjectKind::k_image, code, image_name};
    const std::string old = store->find(key).bytes;
    jit::StoredImage image = jit::parse_image(reinterpret_cast<const uint8_t*>(old.data()), old.size()).value();
    change(image);
    const std::vector<uint8_t> bytes = jit::write_image(image).value();
    EXPECT_EQ(store->remove(key), 1);
    EXPECT_TRUE(store->put(key, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())).value());
  }
  void publish() {
    LeafCache leaves({}, store.get(), &stats);
    image_name = get(leaves).value()->key;
    leaves.publish();
  }
  std::string image_path() {
    return dir.path() + "/v1/" +
           ObjectKey{ObjectKind::k_image, store->groups(ObjectKind::k_image).at(0), image_name}.path();
  }
  TempDir dir;
  Stats stats;
  ir::CutKernel cut;
  std::unique_ptr<Store> store;
  std::string image_name;
};

TEST(Counters, CodeMadeAfterTheSealIsCountedWhereItIsMade) {
  LATHE_NEEDS_CODE();
  const TempDir dir;
  const std::shared_ptr<Context> context = context_at(dir.path());
  EXPECT_TRUE(softmax_on(context)->stages().prepare({}).ok());
  EXPECT_EQ(context->stats().get(Stat::k_compiles_after_seal), 0);
  context->set_seal(Seal::fallback);
  EXPECT_TRUE(softmax_on(context, "tanh")->stages().prepare({}).ok());
  EXPECT_EQ(context->stats().get(Stat::k_compiles_after_seal), 0);
  EXPECT_GT(context->stats().misses(MissReason::k_sealed), 0);
  // A policy that was asked before the seal, as no caller may.
  OneLeaf one;
  ASSERT_TRUE(one.get(context->leaves()).ok());
  EXPECT_EQ(context->stats().get(Stat::k_compiles_after_seal), 1);
}

TEST(Counters, LeavesThatNoBackEndMakes) {
  LATHE_NEEDS_CODE();
  OneLeaf one;
  LeafCacheOptions options;
  options.code_bytes = 1;
  LeafCache small(options, nullptr, &one.stats);
  const ir::Result<const LeafEntry*> entry = one.get(small);
  ASSERT_TRUE(entry.ok()) << entry.status().to_string();
  EXPECT_EQ((*entry)->backend, jit::Backend::portable);
  EXPECT_EQ(one.stats.misses(MissReason::k_budget), 1);

  // An expression of more code than an image may hold.
  std::string value = "x[j]";
  for (int depth = 0; depth < 120; ++depth)
    value = "exp(x[j] + " + value + ") * (" + std::to_string(depth + 1) + ".5 - x[j])";
  const search::Problem p{
      ir::parse_kernel(
          "kernel deep(x: f32[40] in, y: f32[40] out) family elementwise\n  for j < 40 [col]:\n    y[j] = " + value +
          "\n")
          .value()};
  const ir::CutKernel cut =
      search::cut(search::replay(p.kernel, search::default_schedule(p, jit::host_target())).value()).value();
  LeafCache leaves({}, nullptr, &one.stats);
  ASSERT_TRUE(leaves.get(cut.leaves[0], jit::host_target(), {.llvm = false}).ok());
  EXPECT_GT(one.stats.get(Stat::k_refusals), 0);
  EXPECT_EQ(one.stats.misses(MissReason::k_compile_failed), 1);
}

TEST(Counters, ImagesThatCannotBeLoaded) {
  LATHE_NEEDS_CODE();
  OneLeaf one;
  one.publish();
  ASSERT_EQ(one.stats.get(Stat::k_published), 2);
  const uint64_t missing = ~jit::host_features() & jit::kCpu_amx_bf16;
  if (missing != 0) {
    one.change_image([&](jit::StoredImage& i) { i.image.features |= missing; });
    LeafCache leaves({}, one.store.get(), &one.stats);
    ASSERT_TRUE(one.get(leaves).ok());
    EXPECT_EQ(one.stats.misses(MissReason::k_features), 1);
  }
}

// In a child: no file may grow there, not even one in memory, and pages that are made executable later are ruled out.
TEST(Counters, ASystemWithoutExecutableMemory) {
  LATHE_NEEDS_CODE();
  OneLeaf one;
  auto* counted = static_cast<int64_t*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(counted, MAP_FAILED);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit none = {0, 0};
    (void)setrlimit(RLIMIT_FSIZE, &none);
    LeafCacheOptions options;
    options.exec_mode = jit::ExecMode::dual;
    LeafCache leaves(options, nullptr, &one.stats);
    const bool served = one.get(leaves).ok();
    *counted = one.stats.misses(MissReason::k_no_exec_memory);
    _exit(served ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the portable executor was to serve";
  EXPECT_EQ(*counted, 1) << miss_reason_name(MissReason::k_no_exec_memory);
  munmap(counted, 4096);
}

// What the first start misses the stored image for; it makes the leaf anew, which takes the image's place, so that the
// second start misses nothing.
int64_t missed_once(OneLeaf& one, MissReason reason) {
  int64_t missed = 0;
  for (const bool first : {true, false}) {
    Stats stats;
    const std::unique_ptr<Store> store = Store::open(at(one.dir.path()), &stats).value();
    LeafCache leaves({}, store.get(), &stats);
    EXPECT_TRUE(one.get(leaves).ok());
    leaves.publish();
    if (first) {
      missed = stats.misses(reason);
    } else {
      EXPECT_EQ(stats.misses(), 0);
    }
    EXPECT_EQ(stats.get(Stat::k_compiled_xbyak) + stats.get(Stat::k_compiled_llvm), first)
        << "every start would compile again";
  }
  return missed;
}

// Writable by others: it may not be run.
TEST(Counters, AnUntrustedImageIsReplaced) {
  LATHE_NEEDS_CODE();
  OneLeaf one;
  one.publish();
  const std::string path = one.image_path();
  ASSERT_EQ(chmod(path.c_str(), 0666), 0) << path;
  EXPECT_EQ(missed_once(one, MissReason::k_untrusted), 1);
}

// Code that a leaf may not have, with the right checksum: not run.
TEST(Counters, AnImageThatIsNoLeafIsCorrupt) {
  LATHE_NEEDS_CODE();
  OneLeaf one;
  one.publish();
  one.change_image(
      [](jit::StoredImage& i) { i.image.code[i.image.entry] = 0x0f, i.image.code[i.image.entry + 1] = 0x05; });
  EXPECT_EQ(missed_once(one, MissReason::k_corrupt), 1);
}

TEST(Counters, FilesOfTheStore) {
  const TempDir dir;
  Stats stats;
  FaultyOps broken;
  broken.fail_at = 0;
  broken.sticky = true;
  broken.error = EIO;
  const auto faulty = Store::open(at(dir.path()), &stats, broken).value();
  EXPECT_FALSE(faulty->find(decision_key()).found);
  EXPECT_EQ(stats.misses(MissReason::k_io), 1);
  EXPECT_FALSE(faulty->put(decision_key(), "text").value());
  EXPECT_EQ(stats.get(Stat::k_publish_failed), 1);
  const auto store = Store::open(at(dir.path()), &stats).value();
  EXPECT_TRUE(store->put(decision_key(), "text").value());
  EXPECT_EQ(stats.get(Stat::k_published), 1);
  EXPECT_TRUE(store->find(decision_key()).found);
  EXPECT_EQ(stats.get(Stat::k_from_memory), 1);
  const std::string path = dir.path() + "/v1/" + decision_key().path();
  write_whole(path, "lathe-decision 2\nkey env1/aabb\nbytes 0\n");
  EXPECT_FALSE(Store::open(at(dir.path()), &stats).value()->find(decision_key()).found);
  EXPECT_EQ(stats.misses(MissReason::k_newer_schema), 1);
  StoreOptions off = at(dir.path());
  off.mode = StoreMode::off;
  EXPECT_FALSE(Store::open(off, &stats).value()->find(decision_key()).found);
  EXPECT_EQ(stats.misses(MissReason::k_off), 1);
}

uint64_t counter(const lathe_context* ctx, const char* name) {
  uint64_t value = 0;
  EXPECT_EQ(lathe_stats(ctx, name, &value, nullptr), LATHE_STATUS_OK) << name;
  return value;
}

TEST(Counters, OfCallsAndTheirTiers) {
  const auto ctx = test::make_context("portable");
  const auto graph = test::unary_graph(ctx.get(), "softmax", {test::fixed(8), test::fixed(70)});
  const auto kernel = test::resolve(ctx.get(), graph.get());
  EXPECT_EQ(counter(ctx.get(), "hits_t0"), 1u);
  EXPECT_GT(counter(ctx.get(), "nests_bound"), 0u);
  // Two Kernels, and what is handed on between them.
  lathe_error e{};
  lathe_graph* made = nullptr;
  ASSERT_EQ(lathe_graph_create(ctx.get(), "chain", &made, &e), LATHE_STATUS_OK) << e.message;
  const Owned<lathe_graph> chain(made);
  const std::vector<lathe_dim> left = {test::fixed(8), test::fixed(70)}, right = {test::fixed(70), test::fixed(52)};
  const lathe_tensor_desc x = test::desc("x", left), w = test::desc("w", right, LATHE_TENSOR_CONST);
  int32_t inputs[2], product = 0, result = 0;
  ASSERT_EQ(lathe_graph_tensor(chain.get(), &x, &inputs[0], &e), LATHE_STATUS_OK) << e.message;
  ASSERT_EQ(lathe_graph_tensor(chain.get(), &w, &inputs[1], &e), LATHE_STATUS_OK) << e.message;
  ASSERT_EQ(lathe_graph_op(chain.get(), "matmul", inputs, 2, nullptr, 0, "product", &product, &e), LATHE_STATUS_OK)
      << e.message;
  ASSERT_EQ(lathe_graph_op(chain.get(), "softmax", &product, 1, nullptr, 0, "y", &result, &e), LATHE_STATUS_OK)
      << e.message;
  ASSERT_EQ(lathe_graph_output(chain.get(), result, &e), LATHE_STATUS_OK) << e.message;
  ASSERT_EQ(lathe_graph_finish(chain.get(), &e), LATHE_STATUS_OK) << e.message;
  lathe_policy policy = LATHE_POLICY_INIT;
  policy.max_workspace = 1;
  lathe_kernel* out = nullptr;
  EXPECT_EQ(lathe_resolve(ctx.get(), chain.get(), &policy, &out, nullptr, &e), LATHE_STATUS_UNSUPPORTED);
  EXPECT_EQ(counter(ctx.get(), "misses_workspace"), 1u);
}

TEST(Counters, OfGeneratedCode) {
  LATHE_NEEDS_CODE();
  const TempDir dir;
  const std::shared_ptr<Context> context = context_at(dir.path());
  record(*context, *softmax_on(context));
  setenv("LATHE_CACHE", "rw", 1);
  const lathe_layer layer = {dir.path().c_str(), LATHE_LAYER_SHARED, 0};
  lathe_context_options o = LATHE_CONTEXT_OPTIONS_INIT;
  o.layers = &layer;
  o.num_layers = 1;
  lathe_context* made = nullptr;
  lathe_error e{};
  ASSERT_EQ(lathe_context_create(&o, &made, &e), LATHE_STATUS_OK) << e.message;
  const Owned<lathe_context> ctx(made);
  const auto seen = test::unary_graph(ctx.get(), "softmax", {test::fixed(8), test::fixed(70)});
  const auto tuned = test::resolve(ctx.get(), seen.get());
  EXPECT_EQ(counter(ctx.get(), "hits_t2"), 1u);
  const auto unseen = test::unary_graph(ctx.get(), "softmax", {test::fixed(8), test::fixed(71)});
  const auto kernel = test::resolve(ctx.get(), unseen.get());
  EXPECT_EQ(counter(ctx.get(), "hits_t1"), 1u);
  EXPECT_GT(counter(ctx.get(), "code_bytes"), 0u);
  EXPECT_GT(counter(ctx.get(), "compiled_xbyak"), 0u);
  EXPECT_GT(counter(ctx.get(), "caller_blocked_ns"), 0u);
  ASSERT_EQ(lathe_seal(ctx.get(), LATHE_SEAL_FALLBACK, &e), LATHE_STATUS_OK);
  const auto late = test::unary_graph(ctx.get(), "tanh", {test::fixed(72)});
  const auto slow = test::resolve(ctx.get(), late.get());
  EXPECT_EQ(counter(ctx.get(), "fallbacks"), 1u);
}

TEST(Counters, OfLLVM) {
  LATHE_NEEDS_CODE();
  OneLeaf one;
  LeafCache leaves({}, nullptr, &one.stats);
  LeafPolicy policy;
  policy.forced = true;
  policy.backend = jit::Backend::llvm;
  const ir::Result<const LeafEntry*> entry = one.get(leaves, policy);
  if (!entry.ok()) GTEST_SKIP() << "built without LLVM: " << entry.status().to_string();
  EXPECT_EQ(one.stats.get(Stat::k_compiled_llvm), 1);
}

TEST(Counters, OfASearch) {
  LATHE_NEEDS_CODE();
  const TempDir dir;
  setenv("LATHE_CACHE", "rw", 1);
  const lathe_layer layer = {dir.path().c_str(), LATHE_LAYER_SHARED, 0};
  lathe_context_options o = LATHE_CONTEXT_OPTIONS_INIT;
  o.layers = &layer;
  o.num_layers = 1;
  o.worker_path = LATHE_WORKER_PATH;
  lathe_context* made = nullptr;
  lathe_error e{};
  ASSERT_EQ(lathe_context_create(&o, &made, &e), LATHE_STATUS_OK) << e.message;
  const Owned<lathe_context> ctx(made);
  const auto graph = test::unary_graph(ctx.get(), "silu", {test::fixed(640)});
  lathe_policy policy = LATHE_POLICY_INIT;
  policy.wait = LATHE_WAIT_TUNED;
  lathe_kernel* out = nullptr;
  ASSERT_EQ(lathe_resolve(ctx.get(), graph.get(), &policy, &out, nullptr, &e), LATHE_STATUS_OK) << e.message;
  const Owned<lathe_kernel> kernel(out);
  EXPECT_EQ(counter(ctx.get(), "searches"), 1u);
  EXPECT_GT(counter(ctx.get(), "measurements"), 0u);
  EXPECT_GT(counter(ctx.get(), "verifications"), 0u);
}

}  // namespace
}  // namespace lathe::runtime
