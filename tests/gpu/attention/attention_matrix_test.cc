// The compile matrix of attention: types, depths, caches and pages, whole and by parts, for each architecture, through
// the real compiler. Skipped where the compiler is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/analysis/analysis.h"
#include "ops/graph.h"
#include "ops/lower.h"
#include "search/cut/launch_cut.h"
#include "search/gpu/attention/attention_schedule.h"
#include "tests/gpu/attention/attention_kernels.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/counted_kernels.h"

namespace lathe::test {
namespace {

// Keys and values of one byte, in caches or in pages of 16.
ir::Kernel attention_of_bytes(int64_t heads, int64_t kept, int64_t depth, bool pages) {
  ops::Graph g;
  const ops::DimDesc b = ops::symbol_dim("B", 0, 64), t = pages ? ops::fixed_dim(16) : ops::symbol_dim("T", 0, 8192),
                     of = pages ? ops::symbol_dim("P", 0, 4096) : b;
  const auto tensor = [&](const char* name, std::vector<ops::DimDesc> dims, ir::DType type) {
    return ops::add_tensor(g, name, std::move(dims), false, type);
  };
  const ops::DimDesc h = ops::fixed_dim(heads), k = ops::fixed_dim(kept), d = ops::fixed_dim(depth);
  std::vector<int> in = {tensor("q", {b, h, ops::symbol_dim("S", 0, 4096), d}, ir::DType::bf16)};
  for (const char* name : {"k", "v"}) in.push_back(tensor(name, {of, k, t, d}, ir::DType::i8));
  in.push_back(tensor("lengths", {b}, ir::DType::i32));
  if (pages) in.push_back(tensor("pages", {b, ops::symbol_dim("N", 0, 512)}, ir::DType::i64));
  for (const char* name : {"ks", "vs"}) in.push_back(tensor(name, {of, k, t}, ir::DType::f32));
  const char* op = pages ? "paged_attention" : "cached_attention";
  g.outputs = {ops::add_node(g, op, in, "y", {{"causal", true}, {"scales", true}})};
  return ops::lower(ops::finish(g).value()).value().kernels[0].kernel;
}

class AttentionMatrix : public CountedKernels<testing::TestWithParam<const char*>> {
 protected:
  void compile(const ir::Kernel& naive, int64_t part) {
    const ir::GpuTarget target = *ir::find_gpu_target(GetParam());
    const auto made = search::attention_schedule(search::general_kernel(naive), part);
    ASSERT_TRUE(made.ok()) << made.status().to_string() << "\n" << print(naive) << part;
    const auto cut = search::cut_launches(made->kernel);
    ASSERT_TRUE(cut.ok()) << cut.status().to_string();
    for (const ir::Leaf& leaf : cut->leaves) {
      const std::string what = to_text(made->schedule);
      const auto code = compiled(leaf, target, what);
      // Keys and values by 16 bytes.
      if (code && &leaf == &cut->leaves[0])
        expect_predicted(code->loads.bits128 >= 2, fmt::format("{} loads of 16 bytes\n{}", code->loads.bits128, what));
    }
  }
};

TEST_P(AttentionMatrix, CompilesWithoutSpills) {
  const AttentionText forms[] = {{"bf16", 32, 8, 128, 128},
                                 {"bf16", 32, 4, 128, 128, true, 0, true},
                                 {"f16", 8, 1, 64, 64, true, 9},
                                 {"bf16", 8, 8, 128, 128, true, 0, true, true},
                                 {"bf16", 16, 1, 576, 512, true, 0, true},
                                 {"f32", 12, 12, 80, 80}};
  for (const AttentionText& form : forms) {
    for (const int64_t part : {0, 512}) {
      if (form.window == 0 || part == 0) compile(kernel_of(attention_text(form)), part);
    }
  }
  EXPECT_GE(kernels(), 15);
}

// Elements of one byte are in a register each: fewer keys are on their way.
TEST_P(AttentionMatrix, KeysOfBytes) {
  for (const auto& [heads, kept, depth, pages] :
       {std::tuple<int64_t, int64_t, int64_t, bool>{32, 8, 128, false}, {8, 8, 64, true}, {16, 1, 256, false}}) {
    for (const int64_t part : {0, 512}) compile(attention_of_bytes(heads, kept, depth, pages), part);
  }
}
INSTANTIATE_TEST_SUITE_P(Gpu, AttentionMatrix, testing::Values("a100", "l40s", "h200", "rtx5090"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lathe::test
