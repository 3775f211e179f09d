// What tests of attention on tensor cores share: tiles by their shape, and what is expected of a form in tiles.
#pragma once
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "ir/analysis/analysis.h"
#include "jit/cuda/lower/lower_device.h"
#include "ops/graph.h"
#include "ops/lower.h"
#include "search/cut/launch_cut.h"
#include "search/gpu/attention/tensor_attention.h"
#include "tests/gpu/attention/attention_kernels.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/emulated.h"
#include "tests/gpu/memory/mutations.h"

namespace lathe::test {

constexpr double kRoundedWeights = 2e-2;  // of bf16, and results of it

inline search::AttentionTile of_queries(int64_t rows, int64_t keys, int64_t stages, bool split = false) {
  return {rows, keys, stages, split};
}
inline search::AttentionTile of_heads(int64_t rows, int64_t keys, int64_t stages, bool split = false,
                                      int64_t part = 0) {
  return {rows, keys, stages, split, true, part};
}
// Of groups of four warps.
inline search::AttentionTile of_groups(int64_t rows, int64_t keys, int64_t stages, bool split = false) {
  return {rows, keys, stages, split, false, 0, true};
}
inline search::GeneralKernel general_attention(const AttentionText& a) {
  return search::general_kernel(kernel_of(attention_text(a)));
}

// Of known sizes, as a workload may state them: heads of 32 numbers, two of them of each head of keys.
struct FixedSizes {
  int64_t sequences, queries, keys;
  bool causal = true;
  int64_t window = 0;  // 0: none
  ir::DType type = ir::DType::bf16;
};
inline ir::Kernel fixed_attention(const FixedSizes& s, int64_t depth = 32) {
  ops::Graph g;
  const auto tensor = [&](const char* name, int64_t heads, int64_t rows) {
    std::vector<ops::DimDesc> dims;
    for (const int64_t d : {s.sequences, heads, rows, depth}) dims.push_back(ops::fixed_dim(d));
    return ops::add_tensor(g, name, dims, false, s.type);
  };
  const std::vector<int> in = {tensor("q", 4, s.queries), tensor("k", 2, s.keys), tensor("v", 2, s.keys)};
  std::vector<ops::Attr> attrs = {{"causal", s.causal}};
  if (s.window > 0) attrs.push_back({"window", s.window});
  g.outputs = {ops::add_node(g, "attention", in, "y", attrs)};
  return ops::lower(ops::finish(g).value()).value().kernels[0].kernel;
}

struct AttentionCase {
  AttentionText form;
  std::initializer_list<search::AttentionTile> tiles;
  std::initializer_list<ir::SymbolValues> sizes;
};
// Values stay, what is proven is proven, and the emulator gives the same in every order of the threads.
inline void expect_attention(std::initializer_list<AttentionCase> cases) {
  int emulated = 0;
  for (const AttentionCase& c : cases) {
    const ir::Kernel naive = kernel_of(attention_text(c.form));
    const search::GeneralKernel general = search::general_kernel(naive);
    for (const search::AttentionTile& tile : c.tiles) {
      const auto made = search::tensor_attention(general, tile);
      ASSERT_TRUE(made.ok()) << made.status().to_string() << "\n" << attention_text(c.form);
      SCOPED_TRACE(to_text(made->schedule));
      for (const ir::SymbolValues& s : c.sizes) {
        expect_values_kept(naive, general, made, s, kRoundedWeights);
        expect_as_interpreted(made->kernel, sizes_of(general, s), kRoundedWeights);
        ++emulated;
      }
    }
  }
  testing::Test::RecordProperty("emulated", emulated);
}

// Each statement of those kinds left out of the first launch shows.
inline void expect_each_needed(const search::Scheduled& made, const ir::SymbolValues& sizes,
                               std::initializer_list<jit::DeviceStmt::Kind> kinds) {
  const auto cut = search::cut_launches(made.kernel);
  ASSERT_TRUE(cut.ok());
  const auto whole = jit::lower_device(cut->leaves[0]);
  ASSERT_TRUE(whole.ok()) << whole.status().to_string();
  for (const jit::DeviceStmt::Kind kind : kinds)
    EXPECT_GT(count_of(*whole, kind), 0) << static_cast<int>(kind) << print(*whole);
  PlantedBugs bugs;
  bugs.leave_out(*whole, kinds,
                 [&](const jit::DeviceProgram& p) { return failure_of(p, made.kernel, sizes, kRoundedWeights); });
}

// So is each commit, wait and barrier.
inline void expect_each_wait_needed(const AttentionText& form, const search::AttentionTile& tile,
                                    const ir::SymbolValues& symbols) {
  const search::GeneralKernel general = general_attention(form);
  const auto made = search::tensor_attention(general, tile);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  using Kind = jit::DeviceStmt::Kind;
  expect_each_needed(*made, sizes_of(general, symbols), {Kind::commit, Kind::await, Kind::barrier});
}

inline void expect_no_conflicts(std::initializer_list<AttentionCase> cases) {
  int64_t conflicts = 0;
  for (const AttentionCase& c : cases) {
    const search::GeneralKernel general = general_attention(c.form);
    for (const search::AttentionTile& tile : c.tiles) {
      const auto made = search::tensor_attention(general, tile);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      for (const ir::SymbolValues& s : c.sizes) {
        const BankCounts counts = bank_conflicts(made->kernel, sizes_of(general, s));
        EXPECT_GT(counts.accesses, 0);
        EXPECT_EQ(counts.conflicts, 0) << to_text(made->schedule) << ", of " << counts.accesses;
        conflicts += counts.conflicts;
      }
    }
  }
  testing::Test::RecordProperty("conflicts", static_cast<int>(conflicts));
}

}  // namespace lathe::test
