// What attention gets by default: recipes that share keys for caches, pages, ragged queries and bytes alike, and whose
// moves are all accepted; results by another test (capi).
#include <gtest/gtest.h>

#include "ops/lower.h"
#include "search/moves/schedule.h"
#include "search/sketches/recipe.h"

namespace lathe::runtime {
namespace {

using ops::DimDesc;

DimDesc F(int64_t n) { return ops::fixed_dim(n); }

// The default Schedule of `op` for so many queries and sequences.
std::string schedule(const std::string& op, int64_t queries, int64_t batch, int64_t kept, int64_t page, bool bytes,
                     int64_t window = 0) {
  ops::Graph g;
  const bool ragged = op == "ragged_attention", paged = ragged || op == "paged_attention";
  const ir::DType type = bytes ? ir::DType::i8 : ir::DType::f32;
  const auto add = [&](const char* name, std::vector<DimDesc> dims, ir::DType t = ir::DType::f32) {
    return ops::add_tensor(g, name, std::move(dims), false, t);
  };
  const DimDesc first = F(paged ? 20 : batch), rows = F(paged ? page : 64);
  std::vector<int> in = {ragged ? add("q", {F(queries), F(4), F(32)}) : add("q", {F(batch), F(4), F(queries), F(32)}),
                         add("k", {first, F(kept), rows, F(32)}, type), add("v", {first, F(kept), rows, F(32)}, type),
                         add("lengths", {F(batch)}, ir::DType::i32)};
  if (paged) in.push_back(add("pages", {F(batch), F(5)}, ir::DType::i32));
  if (ragged) in.push_back(add("offsets", {F(batch + 1)}, ir::DType::i32));
  for (const char* scales : {"ks", "vs"}) {
    if (bytes) in.push_back(add(scales, {first, F(kept), rows}));
  }
  std::vector<ops::Attr> attrs = {{"causal", true}, {"scales", bytes}};
  if (window > 0) attrs.push_back({"window", window});
  g.outputs = {ops::add_node(g, op, in, "y", attrs)};
  const auto finished = ops::finish(g);
  EXPECT_TRUE(finished.ok()) << finished.status().to_string();
  const auto lowered = ops::lower(*finished);
  EXPECT_TRUE(lowered.ok()) << lowered.status().to_string();
  search::Problem p;
  p.kernel = lowered->kernels.at(0).kernel;
  ir::Target t;
  t.level = ir::IsaLevel::avx512;
  t.lanes = 16;
  t.vector_registers = 32;
  t.mask_registers = 7;
  const search::Schedule out = search::default_schedule(p, t);
  const auto replayed = search::replay(p.kernel, out);
  EXPECT_TRUE(replayed.ok()) << replayed.status().to_string();
  return search::to_text(out);
}

TEST(AttentionRecipe, KeysAreSharedWhereverTheyAre) {
  for (const int64_t batch : {1, 3}) {
    for (const int64_t kept : {1, 2, 4}) {
      for (const bool bytes : {false, true}) {
        for (const int64_t page : {16}) {
          SCOPED_TRACE(fmt::format("batch {}, {} heads of keys, bytes {}, pages of {}", batch, kept, bytes, page));
          EXPECT_NE(schedule("paged_attention", 1, batch, kept, page, bytes).find("from groups."), std::string::npos);
          EXPECT_NE(schedule("paged_attention", 9, batch, kept, page, bytes).find("from query_tiles."),
                    std::string::npos);
          EXPECT_NE(schedule("paged_attention", 1, batch, kept, page, bytes, 5).find("from queries."),
                    std::string::npos);
          EXPECT_NE(schedule("ragged_attention", 40, batch, kept, page, bytes).find("from query_tiles."),
                    std::string::npos);
        }
        if (bytes || kept < 4) {
          EXPECT_NE(schedule("cached_attention", 1, batch, kept, 0, bytes).find("from groups."), std::string::npos);
        }
        EXPECT_NE(schedule("cached_attention", 9, batch, kept, 0, bytes).find("from query_tiles."), std::string::npos);
      }
    }
  }
}

}  // namespace
}  // namespace lathe::runtime
