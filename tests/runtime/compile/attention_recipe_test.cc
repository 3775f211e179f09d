// What attention gets by default: recipes that share keys for caches, pages, ragged queries and bytes alike, and whose
// moves are all accepted; groups of heads of every size, on each level's registers. Results by another test (capi).
#include <gtest/gtest.h>

#include <array>

#include "jit/host/host_cpu.h"
#include "ops/lower.h"
#include "runtime/compile/compiler.h"
#include "runtime/oracle/oracle.h"
#include "search/moves/schedule.h"
#include "search/sketches/recipe.h"
#include "tests/common/machines.h"

namespace lathe::runtime {
namespace {

using ops::DimDesc;

DimDesc F(int64_t n) { return ops::fixed_dim(n); }

// `op` for so many queries and sequences; table: pages of a sequence.
search::Problem attention(const std::string& op, int64_t queries, int64_t batch, int64_t kept, int64_t page, bool bytes,
                          int64_t window, const DimDesc& table) {
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
  if (paged) in.push_back(add("pages", {F(batch), table}, ir::DType::i32));
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
  return p;
}

// The default Schedule.
std::string schedule(const std::string& op, int64_t queries, int64_t batch, int64_t kept, int64_t page, bool bytes,
                     int64_t window = 0) {
  const search::Problem p = attention(op, queries, batch, kept, page, bytes, window, F(5));
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

// Recipes look for the two factors of a score.
TEST(AttentionRecipe, SumsOfOneOperandAreServedWithoutOne) {
  for (const char* role : {"k", "key"}) {
    for (const size_t factor : {0, 1}) {
      search::Problem p = attention("cached_attention", 16, 2, 2, 0, false, 0, F(5));
      ir::for_each_stmt(p.kernel.body, [&](ir::Stmt& s) {
        if (s.role != role || s.body.size() != 1 || s.body[0].value->op != ir::Op::k_mul) return;
        s.body[0].value = ir::Expr(s.body[0].value->args[factor]);
      });
      const search::Schedule out = search::default_schedule(p, jit::host_target());
      EXPECT_TRUE(search::replay(p.kernel, out).ok()) << to_text(out);
      EXPECT_EQ(out.recipe, "") << role;
    }
  }
}

// Tiles of queries are for sequences of four and more, unequal ones on average: decode, of one each, is not slowed down
// by the longest that a sequence could be.
TEST(AttentionRecipe, TilesAreForSequencesOfSeveralQueries) {
  const auto by_tiles = [](const char* op, int64_t queries, int64_t batch) {
    return schedule(op, queries, batch, 2, 16, false).find("from query_tiles.") != std::string::npos;
  };
  for (const int64_t batch : {1, 2, 7, 8}) {
    for (const int64_t each : {1, 2, 3, 4, 5, 17}) {
      SCOPED_TRACE(fmt::format("{} sequences of {} queries", batch, each));
      EXPECT_EQ(by_tiles("paged_attention", each, batch), each >= 4);
      EXPECT_EQ(by_tiles("ragged_attention", each * batch, batch), each >= 4);
      EXPECT_EQ(by_tiles("ragged_attention", (each + 1) * batch - 1, batch), each >= 4);
    }
  }
}

// Tables of pages whose width calls choose: the default Schedule is code, not the naive loops. Of queries, heads of
// keys and pages every two meet.
TEST(AttentionRecipe, TablesOfAnyWidth) {
  for (const ir::IsaLevel level : {ir::IsaLevel::avx2, ir::IsaLevel::avx512}) {
    const ir::Target t = jit::host_target().cap(level);
    if (t.level != level) continue;
    LeafCache leaves(LeafCacheOptions{}, nullptr, nullptr);
    LeafPolicy policy;
    policy.llvm = false;
    policy.portable = false;
    for (const char* op : {"paged_attention", "ragged_attention"}) {
      for (const int64_t queries : {1, 9, 40}) {
        for (const int64_t kept : {1, 2, 4}) {
          for (const bool bytes : {false, true}) {
            for (const int64_t page : {3, 16, 32}) {
              if ((queries / 8 + kept / 2 + page / 16) % 3 != 0) continue;
              for (const int64_t window : {0, 4}) {
                SCOPED_TRACE(
                    fmt::format("{} at {} lanes: {} queries, {} heads of keys, bytes {}, pages of {}, window {}", op,
                                t.lanes, queries, kept, bytes, page, window));
                const search::Problem p =
                    attention(op, queries, 2, kept, page, bytes, window, ops::symbol_dim("P", 0, 256));
                const search::Schedule schedule = search::default_schedule(p, t);
                EXPECT_NE(search::to_text(schedule).find("from "), std::string::npos);
                const auto stage = build_stage(p.kernel, schedule, t, leaves, policy);
                EXPECT_TRUE(stage.ok()) << stage.status().to_string();
              }
            }
          }
        }
      }
    }
  }
}

// A page of several heads of keys is one call: by default of all of them, or of fewer where there are threads. Right
// with any number of them, of floats and of bytes, whether sequences have queries of their own or rows of all.
TEST(AttentionRecipe, HeadsOfAPageTogether) {
  for (const ir::IsaLevel level : {ir::IsaLevel::portable, ir::IsaLevel::avx2, ir::IsaLevel::avx512}) {
    const ir::Target t = jit::host_target().cap(level);
    if (t.level != level) continue;
    LeafCache leaves(LeafCacheOptions{}, nullptr, nullptr);
    for (const char* op : {"paged_attention", "ragged_attention"}) {
      for (const int64_t kept : {4}) {
        for (const bool bytes : {false, true}) {
          for (const int64_t page : {3, 16}) {
            search::Problem p = attention(op, 3, 3, kept, page, bytes, 0, F(5));
            const auto sketch = search::find_recipe(p)->sketch(p, t);
            const search::Knobs standard = sketch->defaults();
            EXPECT_EQ(standard.at("kh"), standard.at("hr") == 0 ? 0 : 1);
            p.threads = 16;
            EXPECT_EQ(search::find_recipe(p)->sketch(p, t)->defaults().at("kh"), 1) << "fewer tasks than threads";
            p.threads = 2;
            EXPECT_NE(search::to_text(search::default_schedule(p, t)).find("sv=4"), std::string::npos)
                << "a simpler one";
            const auto oracle = Oracle::create({p.kernel, {}, 3, 7}, nullptr).value();
            for (const int64_t threads : {1, 2}) {
              for (const int64_t heads : {0, 2}) {
                for (const int64_t part : {0, 48}) {
                  p.threads = static_cast<int>(threads);
                  search::Knobs knobs = standard;
                  knobs["hr"] = 0, knobs["jr"] = 2, knobs["nv"] = 1;
                  knobs["kh"] = heads, knobs["kp"] = part, knobs["parallel"] = threads > 1;
                  if (!search::find_recipe(p)->sketch(p, t)->accepts(knobs).ok()) continue;
                  SCOPED_TRACE(fmt::format("{} at {}: {} heads of keys, bytes {}, pages of {}, kh {} kp {}, {} threads",
                                           op, ir::isa_name(t.level), kept, bytes, page, heads, part, threads));
                  const auto schedule = search::kGroupsRecipe.build(knobs, p, t);
                  ASSERT_TRUE(schedule.ok()) << schedule.status().to_string();
                  const auto stage = build_stage(p.kernel, *schedule, t, leaves,
                                                 {.llvm = false, .portable = level == ir::IsaLevel::portable});
                  ASSERT_TRUE(stage.ok()) << stage.status().to_string();
                  const auto verdict = oracle->verify(*stage);
                  ASSERT_TRUE(verdict.ok()) << verdict.status().to_string();
                  EXPECT_TRUE(verdict->ok) << verdict->reason;
                }
              }
            }
          }
        }
      }
    }
  }
}

search::Problem one_query(int64_t heads, int64_t depth) {
  ops::Graph g;
  const std::vector<int> in = {ops::add_tensor(g, "q", {F(2 * heads), F(1), F(depth)}),
                               ops::add_tensor(g, "k", {F(2), F(40), F(depth)}),
                               ops::add_tensor(g, "v", {F(2), F(40), F(depth)})};
  g.outputs = {ops::add_node(g, "attention", in, "y", {})};
  search::Problem p;
  p.kernel = ops::lower(*ops::finish(g))->kernels.at(0).kernel;
  return p;
}

// All heads of a group together, or in parts: whatever the recipe accepts is code, within the registers of the level.
TEST(AttentionRecipe, GroupsOfEverySizeFitTheRegisters) {
  for (const ir::IsaLevel level : {ir::IsaLevel::avx2, ir::IsaLevel::avx512}) {
    const ir::Target t = jit::host_target().cap(level);
    if (t.level != level) continue;
    LeafCache leaves(LeafCacheOptions{}, nullptr, nullptr);
    LeafPolicy policy;
    policy.llvm = false;
    policy.portable = false;
    for (int64_t heads = 2; heads <= 16; ++heads) {
      for (const int64_t depth : {8, 20, 64}) {
        SCOPED_TRACE(fmt::format("{} heads, depth {}, {} lanes", heads, depth, t.lanes));
        const search::Problem p = one_query(heads, depth);
        const search::Recipe* recipe = search::find_recipe(p);
        ASSERT_NE(recipe, nullptr);
        ASSERT_STREQ(recipe->name, "groups");
        const auto sketch = recipe->sketch(p, t);
        EXPECT_NE(search::to_text(search::default_schedule(p, t)).find("from groups."), std::string::npos);
        std::vector<search::Knobs> settings = sketch->simpler();
        settings.push_back(sketch->defaults());
        for (search::Knobs& knobs : sketch->accepted()) {
          const bool sizes = knobs["pf"] == 0 && knobs["sv"] == 1;
          if (sizes && depth == 64 && (heads == 7 || heads == 16)) settings.push_back(std::move(knobs));
        }
        EXPECT_FALSE(settings.empty());
        for (const search::Knobs& knobs : settings) {
          const auto schedule = recipe->build(knobs, p, t);
          ASSERT_TRUE(schedule.ok()) << schedule.status().to_string();
          const auto stage = build_stage(p.kernel, *schedule, t, leaves, policy);
          ASSERT_TRUE(stage.ok()) << search::to_text(*schedule) << stage.status().to_string();
        }
      }
    }
  }
}

// One query of `heads` over `kept` heads of at most 4096 keys, of which a call has T. `apart`: rows of all heads follow
// one another.
search::Problem any_keys(int64_t queries, int64_t heads, int64_t kept, bool apart, int64_t depth = 32,
                         ir::DType type = ir::DType::f32) {
  const DimDesc keys = ops::symbol_dim("T", 0, 4096);
  std::vector<ir::Expr> strides;
  if (apart)
    strides = {ops::dim_expr(keys) * ir::Expr(kept * depth), ir::Expr(depth), ir::Expr(kept * depth), ir::Expr(1)};
  ops::Graph g;
  const std::vector<int> in = {
      ops::add_tensor(g, "q", {F(2), F(heads), queries == 1 ? F(1) : ops::symbol_dim("T", 0, 4096), F(depth)}),
      ops::add_tensor(g, "k", {F(2), F(kept), keys, F(depth)}, false, type, strides),
      ops::add_tensor(g, "v", {F(2), F(kept), keys, F(depth)}, false, type, strides)};
  g.outputs = {ops::add_node(g, "attention", in, "y", {{"causal", queries != 1}})};
  search::Problem p;
  p.kernel = ops::lower(*ops::finish(g))->kernels.at(0).kernel;
  p.cold = true;
  return p;
}

// Where calls choose how many keys there are, those of the next head are prefetched all the same, if two heads are near
// at the size that is expected; the results are right at any other size as well.
TEST(AttentionRecipe, KeysOfTheNextHeadAtAnyLength) {
  for (const ir::IsaLevel level : {ir::IsaLevel::portable, ir::IsaLevel::avx2, ir::IsaLevel::avx512}) {
    ir::Target t = jit::host_target().cap(level);
    if (t.level != level) continue;
    t.prefetches_alone = false;
    LeafCache leaves(LeafCacheOptions{}, nullptr, nullptr);
    for (const bool apart : {false, true}) {
      for (const int64_t queries : {1, 9}) {
        SCOPED_TRACE(fmt::format("{}, apart {}, {} queries", ir::isa_name(level), apart, queries));
        search::Problem p = any_keys(queries, 4, 2, apart);
        p.dims = {{"T", 64}};
        const auto sketch = search::find_recipe(p)->sketch(p, t);
        search::Knobs knobs = sketch->defaults();
        const char* next = queries == 1 ? "pf" : "fn";
        knobs[next] = queries == 1 ? -1 : 1;
        EXPECT_TRUE(sketch->accepts(knobs).ok()) << sketch->accepts(knobs).to_string();
        if (queries == 1) {
          EXPECT_EQ(sketch->defaults().at("pf"), -1);
        }
        const auto schedule = search::find_recipe(p)->build(knobs, p, t);
        ASSERT_TRUE(schedule.ok()) << schedule.status().to_string();
        EXPECT_NE(search::to_text(*schedule).find("next=t1_k"), std::string::npos) << search::to_text(*schedule);
        const auto stage =
            build_stage(p.kernel, *schedule, t, leaves, {.llvm = false, .portable = level == ir::IsaLevel::portable});
        ASSERT_TRUE(stage.ok()) << stage.status().to_string();
        for (const int64_t keys : {0, 1, 7, 64, 131}) {
          const auto verdict = Oracle::create({p.kernel, {{"T", keys}}, 3, 7}, nullptr).value()->verify(*stage);
          ASSERT_TRUE(verdict.ok()) << verdict.status().to_string();
          EXPECT_TRUE(verdict->ok) << keys << " keys: " << verdict->reason;
        }
      }
    }
  }
}

// Narrow keys are prefetched with those of the next head: to the second cache where the core fetches streams alone, as
// they would be in the way of those of this one in the first.
TEST(AttentionRecipe, NarrowKeysOfTheNextHead) {
  for (const bool alone : {false, true}) {
    ir::Target t = ir::bare_target(ir::IsaLevel::avx512);
    t.prefetches_alone = alone;
    for (const ir::DType type : {ir::DType::bf16, ir::DType::f16}) {
      for (const int64_t heads : {2, 7, 8}) {
        SCOPED_TRACE(fmt::format("{}, {} heads, alone {}", ir::dtype_name(type), heads, alone));
        search::Problem p = any_keys(1, 2 * heads, 2, false, 64, type);
        p.dims = {{"T", 512}};
        const search::Knobs knobs = search::find_recipe(p)->defaults(p, t);
        EXPECT_EQ(knobs.at("pf"), -1);
        const auto schedule = search::find_recipe(p)->build(knobs, p, t);
        ASSERT_TRUE(schedule.ok()) << schedule.status().to_string();
        const std::string text = search::to_text(*schedule);
        const auto count = [&](const std::string& word) {
          int64_t found = 0;
          for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
          return found;
        };
        EXPECT_EQ(count("\nprefetch "), 4) << text;
        EXPECT_EQ(count(" to=l2\n"), alone ? 4 : 0) << text;
      }
    }
  }
}

// Of more keys than the second cache keeps of two heads: rows that follow one another are read one by one, as the
// hardware reads ahead; of rows that lie apart several wait for memory together, for half of many heads at a time.
TEST(AttentionRecipe, RowsThatLieApart) {
  ir::Target t;
  t.level = ir::IsaLevel::avx512;
  t.lanes = 16;
  t.vector_registers = 32;
  t.mask_registers = 7;
  for (const int64_t heads : {8, 16}) {
    for (const bool apart : {false, true}) {
      search::Problem p = any_keys(1, heads, 2, apart);
      p.dims = {{"T", 4096}};
      search::Knobs knobs = search::find_recipe(p)->sketch(p, t)->defaults();
      EXPECT_EQ(knobs["jr"], apart ? 4 : 1);
      EXPECT_EQ(knobs["hr"], apart && heads == 16 ? 4 : 0);
      EXPECT_EQ(knobs["pf"], 0);
    }
  }
}

// Where the core reads a stream ahead by itself: keys from memory go one after another, each in full, for as many heads
// as have their queries in registers; parts of a group take blocks of keys in turns. The results are right at any
// number of keys, also where threads share them out.
TEST(AttentionRecipe, KeyByKey) {
  const auto check = [](const search::Problem& p, const ir::Target& t, const std::vector<int64_t>& sizes) {
    LeafCache leaves(LeafCacheOptions{}, nullptr, nullptr);
    // What is not written, or not generated, is replaced by something simpler where it serves.
    const auto schedule = search::find_recipe(p)->build(search::find_recipe(p)->sketch(p, t)->defaults(), p, t);
    ASSERT_TRUE(schedule.ok()) << schedule.status().to_string();
    const auto stage =
        build_stage(p.kernel, *schedule, t, leaves, {.llvm = false, .portable = t.level == ir::IsaLevel::portable});
    ASSERT_TRUE(stage.ok()) << search::to_text(*schedule) << stage.status().to_string();
    for (const int64_t keys : sizes) {
      const ir::SymbolValues dims = p.dims.empty() ? ir::SymbolValues{} : ir::SymbolValues{{"T", keys}};
      const auto verdict = Oracle::create({p.kernel, dims, 3, 7}, nullptr).value()->verify(*stage);
      ASSERT_TRUE(verdict.ok()) << verdict.status().to_string();
      EXPECT_TRUE(verdict->ok) << keys << " keys: " << verdict->reason;
    }
  };
  for (const ir::IsaLevel level : {ir::IsaLevel::portable, ir::IsaLevel::avx2, ir::IsaLevel::avx512}) {
    ir::Target t = jit::host_target().cap(level);
    if (t.level != level) continue;
    // Caches that hold fewer keys than there are, and quick memory, whatever the host has.
    const ir::Target& caches = test::find_machine("zen5")->target;
    t.l1_bytes = caches.l1_bytes;
    t.l1_ways = caches.l1_ways;
    t.l2_bytes = caches.l2_bytes;
    t.l3_bytes = caches.l3_bytes;
    t.memory_rate = caches.memory_rate;
    t.prefetches_alone = true;
    const bool wide = level == ir::IsaLevel::avx512;
    for (const auto& [heads, depth, part, block] : std::vector<std::array<int64_t, 4>>{
             {4, 32, 0, 32}, {8, 64, 0, 16}, {8, 128, 2, 8}, {16, 128, 2, 8}, {14, 64, -1, 0}}) {
      for (const int threads : {1, 2}) {
        if (threads > 1 && block == 0) continue;
        SCOPED_TRACE(fmt::format("{}, {} heads of {}, {} threads", ir::isa_name(level), heads, depth, threads));
        search::Problem p = any_keys(1, heads, 2, false, depth);
        p.dims = {{"T", 4096}};
        p.threads = threads;
        search::Knobs knobs = search::find_recipe(p)->sketch(p, t)->defaults();
        if (wide) {
          EXPECT_EQ(knobs["kb"], block);
        }
        if (wide && part >= 0) {
          EXPECT_EQ(knobs["hr"], part);
        }
        check(p, t, threads == 1 ? std::vector<int64_t>{0, 1, 7, 8, 9, 131, 1100} : std::vector<int64_t>{9, 1100});
      }
    }
    // Lengths of sequences, and windows that begin anywhere.
    for (const int64_t window : {0, 5}) {
      search::Problem p = attention("cached_attention", 1, 3, 2, 0, false, window, F(5));
      p.cold = true;
      check(p, t, {64});
    }
    t.prefetches_alone = false;
    search::Problem p = any_keys(1, 8, 2, false, 128);
    p.dims = {{"T", 4096}};
    EXPECT_EQ(search::find_recipe(p)->sketch(p, t)->defaults().count("kb"), 0);
  }
}

// Threads share out parts of the keys, however many there are: what merges the parts is generated, at each level.
TEST(AttentionRecipe, PartsOfAnyNumberOfKeys) {
  for (const ir::IsaLevel level : {ir::IsaLevel::portable, ir::IsaLevel::avx2, ir::IsaLevel::avx512}) {
    ir::Target t = jit::host_target().cap(level);
    if (t.level != level) continue;
    LeafCache leaves(LeafCacheOptions{}, nullptr, nullptr);
    for (const bool cold : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, cold {}", ir::isa_name(level), cold));
      search::Problem p = any_keys(1, 8, 2, false);
      p.cold = cold;
      p.dims = {{"T", 4096}};
      p.threads = 2;
      search::Knobs knobs = search::find_recipe(p)->sketch(p, t)->defaults();
      EXPECT_EQ(knobs["kp"], 512);
      const auto schedule = search::find_recipe(p)->build(knobs, p, t);
      ASSERT_TRUE(schedule.ok()) << schedule.status().to_string();
      const auto stage =
          build_stage(p.kernel, *schedule, t, leaves, {.llvm = false, .portable = level == ir::IsaLevel::portable});
      ASSERT_TRUE(stage.ok()) << search::to_text(*schedule) << stage.status().to_string();
      EXPECT_EQ(stage->portable, level == ir::IsaLevel::portable);
      for (const int64_t keys : {0, 1, 512, 513, 4096}) {
        const auto verdict = Oracle::create({p.kernel, {{"T", keys}}, 3, 7}, nullptr).value()->verify(*stage);
        ASSERT_TRUE(verdict.ok()) << verdict.status().to_string();
        EXPECT_TRUE(verdict->ok) << keys << " keys: " << verdict->reason;
      }
    }
  }
}

// Threads share out the heads of prompts of any length, whose values are copied in pairs for each of them.
TEST(AttentionRecipe, PairsOfPromptsOfAnyLengthAmongThreads) {
  ops::Graph g;
  std::vector<int> in;
  for (const auto& [name, heads] : {std::pair("q", 4), {"k", 2}, {"v", 2}})
    in.push_back(ops::add_tensor(g, name, {F(heads), ops::symbol_dim("T", 1, 512), F(32)}, false, ir::DType::bf16));
  g.outputs = {ops::add_node(g, "attention", in, "y", {{"causal", true}})};
  search::Problem p;
  p.kernel = ops::lower(*ops::finish(g))->kernels.at(0).kernel;
  p.dims = {{"T", 128}};
  p.allowed = ir::kBf16Dots;
  for (const ir::IsaLevel level : {ir::IsaLevel::portable, ir::IsaLevel::avx2, ir::IsaLevel::avx512}) {
    const ir::Target t = jit::host_target().cap(level);
    if (t.level != level) continue;
    LeafCache leaves(LeafCacheOptions{}, nullptr, nullptr);
    for (const int threads : {1, 2}) {
      SCOPED_TRACE(fmt::format("{}, {} threads", ir::isa_name(level), threads));
      p.threads = threads;
      search::Knobs knobs = search::find_recipe(p)->sketch(p, t)->defaults();
      EXPECT_EQ(knobs["parallel"], threads - 1);
      const auto schedule = search::find_recipe(p)->build(knobs, p, t);
      ASSERT_TRUE(schedule.ok()) << schedule.status().to_string();
      const auto stage =
          build_stage(p.kernel, *schedule, t, leaves, {.llvm = false, .portable = level == ir::IsaLevel::portable});
      ASSERT_TRUE(stage.ok()) << search::to_text(*schedule) << stage.status().to_string();
      for (const int64_t tokens : {1, 33, 130}) {
        const auto verdict = Oracle::create({p.kernel, {{"T", tokens}}, 3, 7}, nullptr).value()->verify(*stage);
        ASSERT_TRUE(verdict.ok()) << verdict.status().to_string();
        EXPECT_TRUE(verdict->ok) << tokens << " tokens: " << verdict->reason;
      }
    }
  }
}

}  // namespace
}  // namespace lathe::runtime
