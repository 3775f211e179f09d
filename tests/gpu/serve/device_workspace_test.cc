// How much workspace the defaults for GPUs take: those of models' layers and of a batch of unequal sequences, over the
// ranges of their hints and over all sizes; and a kernel whose hinted range has a Schedule that the others may not
// have.
#include <gtest/gtest.h>

#include "runtime/cuda/device_stage.h"
#include "runtime/serve/operator.h"
#include "search/gpu/packed_constants.h"
#include "search/gpu/workspace.h"
#include "tests/common/workload_rows.h"
#include "tests/gpu/served_op.h"

namespace lathe::runtime {
namespace {

// Queries of sequences with 1024 keys each, in pages: 8 of them mostly.
std::vector<ops::Workload> ragged(const char* type, int64_t most_rows) {
  const std::string text = fmt::format(
      R"({{"name":"ragged","graph":{{"tensors":{{"q":{{"dtype":"{0}","dims":["R",32,128]}},)"
      R"("k":{{"dtype":"{0}","dims":["P",8,16,128]}},"v":{{"dtype":"{0}","dims":["P",8,16,128]}},)"
      R"("lengths":{{"dtype":"i32","dims":["B"]}},"pages":{{"dtype":"i32","dims":["B",64]}},)"
      R"("offsets":{{"dtype":"i32","dims":["B",2],"strides":[1,1]}}}},"nodes":[{{"op":"ragged_attention",)"
      R"("in":["q","k","v","lengths","pages","offsets"],"out":"y","attrs":{{"causal":true}}}}],"outputs":["y"]}},)"
      R"("dims":{{"R":{{"min":1,"max":{1},"hints":[{{"value":8,"weight":1}}]}},)"
      R"("P":{{"min":1,"max":65536,"hints":[{{"value":512,"weight":1}}]}},)"
      R"("B":{{"min":1,"max":256,"hints":[{{"value":8,"weight":1}}]}}}}}})",
      type, most_rows);
  auto items = ops::parse_manifest(text);
  EXPECT_TRUE(items.ok()) << items.status().to_string();
  return items.ok() ? std::move(*items) : std::vector<ops::Workload>();
}

void expect_room(const std::vector<ops::Workload>& items) {
  const ir::GpuTarget target = *ir::find_gpu_target("h100");
  const std::shared_ptr<Context> context = Context::create({}).value();
  for (const ops::Workload& item : items) {
    const std::shared_ptr<Operator> op = Operator::create(context, ops::finish(item.graph).value()).value();
    PrepareRequest request;
    request.allowed = item.allowed;
    std::vector<std::pair<std::string, search::Problem>> problems;
    for (const SymbolValues& dims : op->hinted_dims()) {
      std::string at = item.name;
      for (const auto& [name, value] : dims) at += fmt::format(" {}={}", name, value);
      problems.emplace_back(at, op->problem(0, dims, request));
    }
    problems.emplace_back(item.name + ", all sizes", op->general_problem(0, true, request));
    problems.push_back(problems.back());
    problems.back().first += ", constants as they lie";
    problems.back().second.kernel = search::reads_given(problems.back().second.kernel);
    for (const auto& [name, p] : problems) {
      SCOPED_TRACE(name);
      const auto ranked = rank_on_device(p.kernel, p.dims, target, 1, p.allowed);
      if (ranked.status().message().find("served on the CPU alone") != std::string::npos) continue;
      ASSERT_TRUE(ranked.ok()) << ranked.status().to_string();
      const auto most = most_workspace(p.kernel, ranked->front());
      ASSERT_TRUE(most.ok()) << most.status().to_string();
      EXPECT_LE(*most, search::kMostWorkspace) << to_text(ranked->front().schedule);
    }
  }
}

class DeviceWorkspace : public testing::TestWithParam<const char*> {};

TEST_P(DeviceWorkspace, HasRoom) { expect_room(test::workload_rows(GetParam())); }

INSTANTIATE_TEST_SUITE_P(Layers, DeviceWorkspace,
                         testing::Values("llama3-8b-layer-q4_k_m", "llama3-8b-layer-bf16", "llama3-8b-layer",
                                         "qwen2.5-7b-layer", "qwen3-30b-a3b-layer"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '-' || c == '.' ? '_' : c;
                           return name;
                         });

TEST(DeviceWorkspace, OfUnequalSequences) {
  for (const char* type : {"f32", "bf16"}) {
    for (const int64_t rows : {64, 4096}) {
      SCOPED_TRACE(fmt::format("{} {}", type, rows));
      expect_room(ragged(type, rows));
    }
  }
}

TEST(DeviceWorkspace, HintsThatServeAlone) {
  const ir::GpuTarget target = *ir::find_gpu_target("h100");
  const std::shared_ptr<Context> context = Context::create({}).value();
  int seen = 0;
  for (const ops::Workload& item : test::workload_rows("llama3-8b-layer-bf16")) {
    if (item.name != "norm" && item.name != "q_proj") continue;
    ++seen;
    const std::shared_ptr<Operator> op = Operator::create(context, ops::finish(item.graph).value()).value();
    const search::Problem whole = op->general_problem(0, true, {});
    const auto general = rank_on_device(whole.kernel, whole.dims, target, 1);
    ASSERT_TRUE(general.ok()) << general.status().to_string();
    Stage serving;
    serving.naive = whole.kernel;
    serving.schedule = general->front().schedule;
    const auto dims = op->hinted_dims();
    // 1, 8, 128 rows: blocks share the sums of 128 in their own range alone; a row by itself has other threads.
    ASSERT_EQ(dims.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      const ir::Kernel part = op->problem(0, dims[i], {}).kernel;
      EXPECT_EQ(serves_alone(serving, whole.dims, part, dims[i], target, 0), item.name == "q_proj" || i == 0)
          << item.name << i;
    }
  }
  EXPECT_EQ(seen, 2);
}

}  // namespace
}  // namespace lathe::runtime

namespace lathe::test {
namespace {

uint64_t workspace_of(lathe_kernel* kernel, const std::vector<ArgOf>& all) {
  std::vector<std::unique_ptr<TensorOf>> tensors;
  std::vector<lathe_arg> args;
  for (const ArgOf& a : all) {
    tensors.push_back(std::make_unique<TensorOf>(a, true));
    args.push_back(tensors.back()->arg());
  }
  uint64_t bytes = 0;
  lathe_error e;
  EXPECT_EQ(lathe_workspace_bytes(kernel, args.data(), args.size(), 1, &bytes, &e), LATHE_STATUS_OK) << e.message;
  return bytes;
}

// Blocks share the sums of 16 rows, for which the workspace has no room where there are many more.
TEST(DeviceWorkspaceServed, ARangeOfItsOwn) {
  const auto ctx = gpu_context();
  const lathe_hint sixteen = {16, 1};
  lathe_dim m = range("M", 0, 1 << 20);
  m.hints = &sixteen;
  m.num_hints = 1;
  const auto graph = single_graph(ctx.get(), "matmul", {{{m, fixed(2048)}}, {{fixed(2048), fixed(64)}}}, {});
  const auto kernel = served_on_device(ctx.get(), graph.get());
  ASSERT_NE(kernel, nullptr);
  const auto args = [](int64_t rows) { return std::vector<ArgOf>{{{rows, 2048}}, {{2048, 64}}, {{rows, 64}}}; };
  EXPECT_GT(workspace_of(kernel.get(), args(16)), 0u);
  for (const int64_t rows : {17, 1000}) EXPECT_EQ(workspace_of(kernel.get(), args(rows)), 0u);
  for (const int64_t rows : {0, 1, 9, 16, 17}) {
    SCOPED_TRACE(rows);
    expect_as_on_cpu(ctx.get(), graph.get(), kernel.get(), {{{rows, 2048}}, {{2048, 64}}}, {{rows, 64}}, 8, 1e-4F);
  }
}

}  // namespace
}  // namespace lathe::test
