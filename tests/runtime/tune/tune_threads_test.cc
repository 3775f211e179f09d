// What a warm-up, verify and a check of the store say does not depend on how many threads worked on it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "runtime/tune/verify.h"
#include "runtime/tune/warmup.h"
#include "tests/common/generators.h"
#include "tests/runtime/store/store_util.h"

namespace lathe::runtime {
namespace {

// The operators of a small file twice over, so that many share their leaves; two that cannot be lowered among them.
std::vector<ops::Workload> workload() {
  std::ifstream in(LATHE_SOURCE_DIR "/tests/tools/data/small.jsonl");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  std::vector<ops::Workload> items = ops::parse_manifest(text + text).value();
  for (size_t i = 0; i < items.size(); ++i) items[i].name += fmt::format(".{}", i);
  ops::Workload empty;
  empty.name = "empty.1";
  items.insert(items.begin() + 2, empty);
  empty.name = "empty.2";
  items.push_back(empty);
  return items;
}

std::shared_ptr<Context> context_of(int threads, const std::string& store) {
  ContextConfig config;
  config.layers = {{store, LayerMode::private_rw}};
  config.own_threads = threads;
  return Context::create(std::move(config)).value();
}

std::string warmed(int threads, const std::string& store) {
  std::string out;
  WarmupObserver observer;
  observer.row = [&](const WarmupRow& row) {
    out += fmt::format("{} tier {} {} {}\n", row.item->name, row.tier, origin_name(row.origin), row.schedule);
  };
  observer.failed = [&](const ops::Workload& item, const ir::Status& status) {
    out += fmt::format("{} failed: {}\n", item.name, status.to_string());
  };
  WarmupBudget budget;
  budget.tier = 1;
  const std::vector<ops::Workload> items = workload();
  const WarmupReport r = run_warmup(context_of(threads, store), items, budget, observer).value();
  return out + fmt::format("{} rows, {} from store, {} by xbyak, {} by LLVM, {} failed, {}\n", r.rows, r.from_store,
                           r.compiled_xbyak, r.compiled_llvm, r.failed, r.digest);
}

std::string checked(int threads, const std::string& store) {
  std::string out;
  const std::shared_ptr<Context> context = context_of(threads, store);
  for (const StoredObject& o : context->store().list(true, context->tasks()))
    out += fmt::format("{} {} {} {}\n", o.path, o.ok, o.bytes, o.detail);
  return out;
}

TEST(TuneThreads, AWarmUpIsTheSame) {
  if (!jit::backend_built(jit::Backend::xbyak)) GTEST_SKIP() << "built with LATHE_XBYAK=OFF";
  const TempDir one;
  const std::string first = warmed(1, one.path()), stored = warmed(1, one.path());
  EXPECT_NE(first, stored);  // compiled, then from the store
  EXPECT_NE(first.find("empty.1 failed"), std::string::npos) << first;
  EXPECT_LT(first.find("empty.1 failed"), first.find("empty.2 failed")) << first;
  for (const int threads : {2, 3}) {
    for (int round = 0; round < 3; ++round) {
      const TempDir other;
      EXPECT_EQ(warmed(threads, other.path()), first) << threads;
      EXPECT_EQ(warmed(threads, other.path()), stored) << threads;
      EXPECT_EQ(checked(threads, other.path()), checked(1, one.path()));
    }
  }
}

TEST(TuneThreads, ACheckOfTheStoreIsTheSame) {
  const TempDir store;
  (void)warmed(1, store.path());
  std::string damaged;
  for (const auto& file : std::filesystem::recursive_directory_iterator(store.path())) {
    if (file.path().extension() == ".img" && damaged.empty()) damaged = file.path().string();
  }
  if (damaged.empty()) GTEST_SKIP() << "this CPU's level stores no code";
  write_whole(damaged, read_whole(damaged) + "x");
  const std::string one = checked(1, store.path());
  EXPECT_NE(one.find(" false "), std::string::npos) << one;
  for (const int threads : {2, 3}) EXPECT_EQ(checked(threads, store.path()), one);
}

TEST(TuneThreads, VerifySaysTheSame) {
  const auto verified = [](int threads) {
    const TempDir store;
    std::string out;
    std::vector<ops::Workload> items = workload();
    std::erase_if(items, [](const ops::Workload& w) { return w.graph.nodes.empty(); });
    items.resize(3);
    const VerifyReport r =
        run_verify(context_of(threads, store.path()), items, {}, [&](const VerifyRow& row) {
          out += fmt::format("{} {} {} {} {} {:.17g} {}\n", row.item->name, row.tier, static_cast<int>(row.level),
                             static_cast<int>(row.backend), gate_name(row.gate), row.err_over_bound, row.schedule);
        }).value();
    return out + fmt::format("{} checked, {} failed, {} refused\n", r.checked, r.failed, r.refused);
  };
  const std::string one = verified(1);
  EXPECT_NE(one.find(" 0 failed"), std::string::npos) << one;
  for (const int threads : {2, 3}) EXPECT_EQ(verified(threads), one);
}

}  // namespace
}  // namespace lathe::runtime
