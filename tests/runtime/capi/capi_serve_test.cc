// What resolve says and does: origins over two contexts on one store, seals, classes of liberties, waiting.
#include <cmath>
#include <filesystem>

#include "tests/common/c_client.h"

namespace lathe::test {
namespace {

struct TempStore {
  TempStore() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lathe-capi-XXXXXX").string();
    path = mkdtemp(pattern.data());
  }
  ~TempStore() { std::filesystem::remove_all(path); }
  std::string path;
};

Owned<lathe_context> context_on(const TempStore& store) {
  setenv("LATHE_CACHE", "rw", 1);
  const lathe_layer layer = {store.path.c_str(), LATHE_LAYER_SHARED, 0};
  lathe_context_options o = LATHE_CONTEXT_OPTIONS_INIT;
  o.layers = &layer;
  o.num_layers = 1;
  lathe_context* out = nullptr;
  lathe_error e{};
  EXPECT_EQ(lathe_context_create(&o, &out, &e), LATHE_STATUS_OK) << e.message;
  return Owned<lathe_context>(out);
}

uint64_t counter(const lathe_context* ctx, const char* name) {
  uint64_t value = 0;
  EXPECT_EQ(lathe_stats(ctx, name, &value, nullptr), LATHE_STATUS_OK) << name;
  return value;
}

TEST(CapiServe, TheSecondContextCompilesNothing) {
  const TempStore store;
  for (const bool first : {true, false}) {
    const auto ctx = context_on(store);
    const auto graph = matmul_graph(ctx.get(), range("M", 1, 64), 70, 100);
    lathe_kernel_info info = LATHE_KERNEL_INFO_INIT;
    const auto kernel = resolve(ctx.get(), graph.get(), &info);
    if (info.tier == 0) GTEST_SKIP() << "no generated code on this machine";
    EXPECT_EQ(info.tier, 1);
    EXPECT_EQ(info.origin, static_cast<uint32_t>(first ? LATHE_ORIGIN_COMPILED : LATHE_ORIGIN_STORE));
    EXPECT_EQ(counter(ctx.get(), "compiled_xbyak") + counter(ctx.get(), "compiled_llvm") > 0, first);
    EXPECT_EQ(counter(ctx.get(), "caller_blocked_ns") > 0, first);
    EXPECT_STREQ(info.miss_reason, "never_seen");
  }
}

// A plan made for a policy serves kernels of that policy, and no others.
TEST(CapiServe, APlanIsForThePolicyThatItNames) {
  const auto ctx = make_context();
  lathe_dim rows = range("M", 1, 512);
  const lathe_hint hints[] = {{1, 1.0}, {128, 1.0}};
  rows.hints = hints;
  rows.num_hints = 2;
  const auto graph = matmul_graph(ctx.get(), rows, 320, 512);
  const auto reason = [&](const lathe_policy& policy) {
    lathe_kernel_info info = LATHE_KERNEL_INFO_INIT;
    lathe_kernel* kernel = nullptr;
    lathe_error e{};
    EXPECT_EQ(lathe_resolve(ctx.get(), graph.get(), &policy, &kernel, &info, &e), LATHE_STATUS_OK) << e.message;
    lathe_kernel_destroy(kernel);
    return std::string(info.miss_reason);
  };
  lathe_policy cold = LATHE_POLICY_INIT, two = LATHE_POLICY_INIT, wider = LATHE_POLICY_INIT;
  cold.cold = 1;
  two.cold = 1;
  two.threads = 2;
  wider.cold = 1;
  wider.allowed = LATHE_CLASS_REASSOCIATE | LATHE_CLASS_CONTRACT | LATHE_CLASS_BF16_DOTS;
  lathe_plan* p = nullptr;
  lathe_error e{};
  ASSERT_EQ(lathe_plan_create(ctx.get(), &p, &e), LATHE_STATUS_OK);
  const Owned<lathe_plan> plan(p);
  lathe_budget budget = LATHE_BUDGET_INIT;
  budget.tier = 1;
  ASSERT_EQ(lathe_plan_add_for(p, graph.get(), &cold, 1, &e), LATHE_STATUS_OK) << e.message;
  ASSERT_EQ(lathe_plan_run(p, &budget, nullptr, nullptr, nullptr, &e), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(reason(cold), "unmeasured");
  for (const lathe_policy& other : {two, wider, lathe_policy LATHE_POLICY_INIT}) EXPECT_NE(reason(other), "unmeasured");
}

// Two engines name a graph differently: it is one operator all the same, and each calls it by its own names.
TEST(CapiServe, TheNamesOfAGraphMakeNoOperatorOfTheirOwn) {
  const auto ctx = make_context();
  const auto mine = matmul_graph(ctx.get(), range("M", 1, 64), 40, 24);
  const auto theirs = matmul_graph(ctx.get(), range("batch", 1, 64), 40, 24);
  const auto first = resolve(ctx.get(), mine.get());
  const uint64_t compiled = counter(ctx.get(), "compiled_xbyak");
  lathe_kernel_info info = LATHE_KERNEL_INFO_INIT;
  const auto second = resolve(ctx.get(), theirs.get(), &info);
  EXPECT_EQ(info.origin, static_cast<uint32_t>(LATHE_ORIGIN_MEMORY));
  EXPECT_EQ(counter(ctx.get(), "compiled_xbyak"), compiled);
  const Floats x({5, 40}, 1), w({40, 24}, 2), y({5, 24});
  const lathe_arg args[] = {x.arg(), w.arg(), y.arg()};
  const Aligned workspace(1 << 20);
  lathe_exec exec = LATHE_EXEC_INIT;
  exec.workspace = workspace.memory;
  exec.workspace_bytes = 1 << 20;
  lathe_error e{};
  EXPECT_EQ(lathe_execute(second.get(), args, 3, &exec, &e), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(y.data, std::vector<float>(5 * 24, 80.0f));
}

TEST(CapiServe, SealsServeWhatExistsOrMiss) {
  const auto ctx = make_context();
  const auto seen = unary_graph(ctx.get(), "tanh", {range("N", 1, 64)});
  const auto kernel = resolve(ctx.get(), seen.get());
  const auto unseen = matmul_graph(ctx.get(), range("M", 1, 64), 32, 32);
  lathe_error e{};
  ASSERT_EQ(lathe_seal(ctx.get(), LATHE_SEAL_ERROR, &e), LATHE_STATUS_OK);
  lathe_kernel* out = nullptr;
  EXPECT_EQ(lathe_resolve(ctx.get(), unseen.get(), nullptr, &out, nullptr, &e), LATHE_STATUS_MISS);
  EXPECT_EQ(out, nullptr);
  EXPECT_NE(resolve(ctx.get(), seen.get()), nullptr);
  ASSERT_EQ(lathe_seal(ctx.get(), LATHE_SEAL_FALLBACK, &e), LATHE_STATUS_OK);
  lathe_kernel_info info = LATHE_KERNEL_INFO_INIT;
  const auto fallback = resolve(ctx.get(), unseen.get(), &info);
  ASSERT_NE(fallback, nullptr);
  EXPECT_EQ(info.tier, 0);
  EXPECT_EQ(counter(ctx.get(), "compiles_after_seal"), 0u);
  lathe_plan* plan = nullptr;
  ASSERT_EQ(lathe_plan_create(ctx.get(), &plan, &e), LATHE_STATUS_OK);
  EXPECT_EQ(lathe_plan_run(plan, nullptr, nullptr, nullptr, nullptr, &e), LATHE_STATUS_STATE);
  lathe_plan_destroy(plan);
}

TEST(CapiServe, NoLibertyBeyondThoseAllowed) {
  const auto ctx = make_context();
  const auto graph = matmul_graph(ctx.get(), range("M", 1, 8), 64, 64);
  for (const uint32_t allowed : {uint32_t{LATHE_CLASS_CONTRACT}, uint32_t{LATHE_CLASS_REASSOCIATE}}) {
    lathe_policy policy = LATHE_POLICY_INIT;
    policy.allowed = allowed;
    lathe_kernel_info info = LATHE_KERNEL_INFO_INIT;
    lathe_kernel* out = nullptr;
    lathe_error e{};
    ASSERT_EQ(lathe_resolve(ctx.get(), graph.get(), &policy, &out, &info, &e), LATHE_STATUS_OK) << e.message;
    const Owned<lathe_kernel> kernel(out);
    EXPECT_EQ(info.numeric_class & ~allowed, 0u);
    Floats x({3, 64}), w({64, 64}), y({3, 64}, NAN);
    x.numbers(1);
    w.numbers(2);
    const lathe_arg args[] = {x.arg(), w.arg(), y.arg()};
    Aligned workspace(1 << 20);
    lathe_exec exec = LATHE_EXEC_INIT;
    exec.workspace = workspace.memory;
    exec.workspace_bytes = 1 << 20;
    ASSERT_EQ(lathe_execute(kernel.get(), args, 3, &exec, &e), LATHE_STATUS_OK) << e.message;
    float want = 0;
    for (size_t k = 0; k < 64; ++k) want += x.data[k] * w.data[k * 64];
    EXPECT_EQ(y.data[0], want);
  }
}

TEST(CapiServe, WaitingServesWithinTheDeadline) {
  const auto ctx = make_context();
  const auto graph = unary_graph(ctx.get(), "silu", {fixed(64)});
  lathe_policy policy = LATHE_POLICY_INIT;
  policy.wait = LATHE_WAIT_TUNED;
  policy.deadline_ns = 2'000'000'000;
  lathe_kernel* out = nullptr;
  lathe_error e{};
  ASSERT_EQ(lathe_resolve(ctx.get(), graph.get(), &policy, &out, nullptr, &e), LATHE_STATUS_OK) << e.message;
  const Owned<lathe_kernel> kernel(out);
  Floats x({64}), y({64}, NAN);
  const lathe_arg args[] = {x.arg(), y.arg()};
  ASSERT_EQ(lathe_execute(kernel.get(), args, 2, nullptr, &e), LATHE_STATUS_OK) << e.message;
  for (const float v : y.data) EXPECT_EQ(v, 0.f);
}

}  // namespace
}  // namespace lathe::test
