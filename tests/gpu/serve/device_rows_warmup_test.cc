// Warm-up of rows that registers hold, whose Schedules start from what is known of their lengths: for a kind of GPU
// without one and on the GPU, and what was stored serves without a compiler.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gpu/serve/cli_run.h"
#include "tests/gpu/served_op.h"

namespace lathe::test {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kLongest = 1000, kMostRows = 5000;
constexpr lathe_hint kRowsHint = {7, 1}, kLengthHint = {600, 1};

struct RowsOp {
  const char* op;
  int operands;  // the rows, and a scale
};
constexpr RowsOp kOps[] = {{"softmax", 1}, {"rmsnorm", 2}, {"layernorm", 2}};

// M rows of N elements.
std::string lines() {
  std::string out;
  const auto dim = [](int64_t least, int64_t most, const lathe_hint& hint) {
    return R"({"min":)" + std::to_string(least) + R"(,"max":)" + std::to_string(most) + R"(,"hints":[{"value":)" +
           std::to_string(hint.value) + R"(,"weight":1}]})";
  };
  for (const RowsOp& o : kOps) {
    const bool scale = o.operands > 1;
    out += std::string(R"({"name":")") + o.op + R"(","graph":{"tensors":{"x":{"dtype":"f32","dims":["M","N"]})" +
           (scale ? R"(,"g":{"dtype":"f32","dims":["N"]})" : "") + R"(},"nodes":[{"op":")" + o.op + R"(","in":["x")" +
           (scale ? R"(,"g")" : "") + R"(],"out":"y"}],"outputs":["y"]},"dims":{"M":)" + dim(0, kMostRows, kRowsHint) +
           R"(,"N":)" + dim(1, kLongest, kLengthHint) + "}}\n";
  }
  return out;
}

// Each from the store, with nothing compiled. miss: the reason at the hinted shape.
void expect_served(const std::string& store, const std::string& miss) {
  const auto ctx = gpu_context(store, "/nowhere/libnvrtc.so");
  lathe_dim rows = range("M", 0, kMostRows), length = range("N", 1, kLongest);
  rows.hints = &kRowsHint;
  length.hints = &kLengthHint;
  rows.num_hints = length.num_hints = 1;
  for (const RowsOp& o : kOps) {
    SCOPED_TRACE(o.op);
    std::vector<DescOf> descs = {{{rows, length}}};
    if (o.operands > 1) descs.push_back({{length}});
    const auto graph = single_graph(ctx.get(), o.op, descs);
    Owned<lathe_kernel> kernel;
    lathe_kernel_info info = LATHE_KERNEL_INFO_INIT;
    lathe_error e;
    ASSERT_EQ(resolve_on(ctx.get(), graph.get(), LATHE_WAIT_NOW, kernel, &info, &e), LATHE_STATUS_OK) << e.message;
    for (const int64_t m : {0, 1, 7, 129}) {
      for (const int64_t n : {1, 129, 600, 1000}) {
        std::vector<ArgOf> args = {{{m, n}}};
        if (o.operands > 1) args.push_back({{n}});
        expect_as_on_cpu(ctx.get(), graph.get(), kernel.get(), args, {{m, n}}, 64);
      }
    }
    EXPECT_EQ(info.origin, static_cast<uint32_t>(LATHE_ORIGIN_STORE));
    EXPECT_EQ(std::string(info.miss_reason), miss);
  }
  EXPECT_EQ(counter(ctx.get(), "compiled_nvrtc"), 0u);
}

TEST(DeviceRowsWarmup, AKindFirstThenTheGpu) {
  Cli cli(lines());
  cli.environment["LATHE_CUDA"] = "/nowhere/libcuda.so";
  const tools::Finished ranked = cli.run("warmup", {"--json", "--device", "h200"});
  ASSERT_EQ(ranked.code, 0) << ranked.err;
  EXPECT_EQ(ranked.summary()["failed"], 0);
  EXPECT_EQ(ranked.rows().size(), 3u);
  expect_served(cli.store, "unmeasured");
  const tools::Finished stored = cli.run("explain", {"--json", "--op", "softmax", "--device", "h200"});
  ASSERT_EQ(stored.code, 0) << stored.err;
  EXPECT_EQ(stored.rows().at(0)["stored"], true);
  cli.environment["LATHE_CUDA"] = LATHE_FAKE_CUDA;
  const tools::Finished timed = cli.run("warmup", {"--json", "--device", "0"});
  ASSERT_EQ(timed.code, 0) << timed.err;
  EXPECT_EQ(timed.summary()["searches"], 3);
  EXPECT_EQ(timed.summary()["failed"], 0);
  EXPECT_EQ(timed.summary()["rejected"], 0) << timed.out;
  for (const auto& row : timed.rows()) EXPECT_EQ(row["tier"], "T2") << row;
  expect_served(cli.store, "");
  const tools::Finished again = cli.run("warmup", {"--json", "--device", "0"});
  EXPECT_EQ(again.summary()["from_store"], 3) << again.out << again.err;
}

TEST(DeviceRowsWarmup, ExplainShowsThem) {
  const Cli cli(lines());
  const tools::Finished f = cli.run("explain", {"--op", "softmax", "--device", "0"});
  ASSERT_EQ(f.code, 0) << f.err;
  for (const char* part : {"from rows.1", "longest=1024", "LT_KERNEL(", "24 registers"})
    EXPECT_THAT(f.out, HasSubstr(part));
}

}  // namespace
}  // namespace lathe::test
