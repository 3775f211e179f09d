// Blocks of a cluster that share boxes (the mark @cluster): each asks for half of what both need, for both; the
// verifier plays them together, and the emulator finds mistakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>

#include "ir/core/text_form.h"
#include "jit/cuda/compile/nvrtc.h"
#include "jit/cuda/text/cuda_text.h"
#include "runtime/cuda/launch.h"
#include "tests/gpu/tensor/group_programs.h"

namespace lathe::test {
namespace {

using jit::DeviceProgram;
using jit::DeviceStmt;
using search::TilePairs;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Kind = DeviceStmt::Kind;

search::GroupTile tile_of(TilePairs pairs, bool persistent = true) {
  return {64, 64, 64, 3, 2, true, persistent, false, pairs};
}
constexpr int64_t kRows = 136;  // three tiles: two clusters, of which the last one has an empty tile
std::string failure(const DeviceProgram& p, const ir::Kernel& kernel) { return ring_failure(p, kernel, kRows); }

template <class F>
void change_all(DeviceProgram& p, Kind kind, const F& f) {
  visit(p.body, kind, [&](std::vector<DeviceStmt>& list, size_t i) { f(list[i]); });
}
DeviceStmt* shared_box(DeviceProgram& p) {
  DeviceStmt* out = nullptr;
  change_all(p, Kind::box, [&](DeviceStmt& s) {
    if (s.all) out = &s;
  });
  return out;
}
constexpr int kRead = 1;

TEST(ClusterCode, IsWrittenOut) {
  const GroupProgram m = group_program(false, true, {128, 256, 256, 4, 8, true, true, false, TilePairs::below});
  const std::string text = print(m.program);
  EXPECT_THAT(text, HasSubstr("program leaf threads 384 cluster 2 ("));
  EXPECT_THAT(text, HasSubstr("  ring e0[4] arrivals 16 read f0\n  open rings\n  barrier of the cluster\n"));
  EXPECT_THAT(text, HasSubstr("box 64 x 128\n"));  // half of 256 lines, and all of 128
  EXPECT_THAT(text,
              ContainsRegex("expect 49152 bytes in f0\\[[^\n]*\n *box s2[^\n]* of all blocks\n *box s1[^\n]*\\]\n"));
  EXPECT_THAT(text, ContainsRegex("arrive e0\\[.*\\] of all blocks\n"));
  EXPECT_EQ(count_of(m.program, Kind::barrier), 0);
  EXPECT_EQ(count_of(m.program, Kind::cluster_barrier), 3);
  const std::string code = jit::cuda_text(m.program, "lathe_leaf");
  for (const char* part : {"LT_CLUSTER_KERNEL(lathe_leaf, 384, 1, 2, lt_args, a) {", "lt_shared_box2(",
                           "lt_cluster_barrier();", "lt_arrive_in_all("})
    EXPECT_THAT(code, HasSubstr(part));
}

// Each statement that synchronises left out, found by the emulator and without it.
void expect_needed(std::initializer_list<Kind> kinds, TilePairs pairs = TilePairs::below) {
  const GroupProgram sound = group_program(true, false, tile_of(pairs));
  PlantedBugs bugs;
  bugs.leave_out(sound.program, kinds, [&](const DeviceProgram& p) { return failure(p, sound.kernel); });
}
TEST(ClusterCode, EveryStatementOnRingsIsNeeded) {
  expect_needed(
      {Kind::open_rings, Kind::cluster_barrier, Kind::expect, Kind::arrive, Kind::await_ring, Kind::box, Kind::add});
}
TEST(ClusterCode, EveryOtherSynchronisationIsNeeded) {
  expect_needed({Kind::fence_sums, Kind::fence_shared, Kind::commit_products, Kind::await_products}, TilePairs::beside);
}

// Both ends of the roles, which one left out alone would stop the other.
DeviceProgram without_the_end(DeviceProgram p) {
  DeviceStmt& roles = *find(p, Kind::roles, 0);
  roles.body.pop_back();
  roles.otherwise.pop_back();
  return p;
}

TEST(ClusterCode, PlantedMistakesAreFound) {
  const GroupProgram sound = group_program(false, true, tile_of(TilePairs::below));
  struct Mistake {
    const char* name;
    std::function<void(DeviceProgram&)> plant;
    bool seen = true;  // by the verifier, which knows no numbers in memory
  };
  const Mistake mistakes[] = {
      {"what is read is counted in one block",
       [](DeviceProgram& p) { p.rings[kRead].arrivals = ir::Expr(int64_t{p.readers() / 32}); }},
      {"what is read is said to the own block alone",
       [](DeviceProgram& p) { change_all(p, Kind::arrive, [](DeviceStmt& s) { s.all = false; }); }},
      {"a box goes to the own block alone", [](DeviceProgram& p) { shared_box(p)->all = false; }},
      {"what one block needs goes to all",
       [](DeviceProgram& p) {
         visit(p.body, Kind::box, [](std::vector<DeviceStmt>& list, size_t i) { list[i].all = true; });
       }},
      {"halves of the boxes are exchanged",
       [](DeviceProgram& p) {
         DeviceStmt& box = *shared_box(p);
         const int64_t half = p.maps[static_cast<size_t>(box.map)].box[1];
         const ir::Expr rank = ir::mod(ir::iter("block"), ir::Expr(2));
         box.at[1] = box.at[1] + ir::Expr(half) - ir::Expr(2 * half) * rank;
       },
       false},
      {"both blocks ask for the same half",
       [](DeviceProgram& p) {
         DeviceStmt& box = *shared_box(p);
         const int64_t half = p.maps[static_cast<size_t>(box.map)].box[1];
         const ir::Expr rank = ir::mod(ir::iter("block"), ir::Expr(2));
         box.places[0].offset = box.places[0].offset - ir::Expr(64 * half) * rank;
       }},
      {"bytes of the own half alone", [](DeviceProgram& p) { find(p, Kind::expect, 0)->bytes -= 64 * 64; }},
      {"blocks leave when they are done", [](DeviceProgram& p) { p = without_the_end(std::move(p)); }},
      {"blocks wait for their own rings alone",
       [](DeviceProgram& p) { find(p, Kind::cluster_barrier, 0)->kind = Kind::barrier; }},
  };
  PlantedBugs bugs;
  for (const Mistake& m : mistakes) {
    DeviceProgram broken = sound.program;
    m.plant(broken);
    EXPECT_NE(print(broken), print(sound.program)) << m.name;
    bugs.plant(m.name, !failure(broken, sound.kernel).empty());
    EXPECT_EQ(!verify(broken).ok(), m.seen) << m.name;
  }
}

TEST(ClusterCode, EveryRuleRefuses) {
  const auto made_of = [](Kind kind) {
    DeviceStmt s;
    s.kind = kind;
    return s;
  };
  const std::pair<const char*, std::function<void(DeviceProgram&)>> cases[] = {
      {"cluster: 3 blocks, expected 1 or 2", [](DeviceProgram& p) { p.cluster = 3; }},
      {"cluster: one block reaches others", [](DeviceProgram& p) { p.cluster = 1; }},
      {"cluster: blocks share what all threads ask for, expected roles",
       [](DeviceProgram& p) {
         p.roles = {};
         const DeviceStmt roles = *find(p, Kind::roles, 0);
         *find(p, Kind::roles, 0) = roles.body[0];
       }},
      {"cluster: a role ends before all threads of the cluster meet",
       [](DeviceProgram& p) { find(p, Kind::roles, 0)->otherwise.pop_back(); }},
      {"cluster: a role ends before all threads of the cluster meet",
       [](DeviceProgram& p) { p = without_the_end(std::move(p)); }},
      {"cluster: threads of a role meet others before they are done",
       [&](DeviceProgram& p) {
         std::vector<DeviceStmt>& list = find(p, Kind::roles, 0)->otherwise;
         list.insert(list.begin(), made_of(Kind::cluster_barrier));
       }},
      {"wait: a barrier that not all threads reach",
       [&](DeviceProgram& p) {
         DeviceStmt& meet = *find(p, Kind::cluster_barrier, 0);
         DeviceStmt when = made_of(Kind::when);
         when.integer = ir::make(ir::Op::k_lt, {ir::iter("thread"), ir::Expr(128)});
         when.body = {meet};
         meet = when;
       }},
      {"rings: two boxes go to the same lines of place 0 of",
       [](DeviceProgram& p) {
         visit(find(p, Kind::roles, 0)->body, Kind::box, [](std::vector<DeviceStmt>& list, size_t i) {
           if (list[i].all)
             list[i].places[0].offset =
                 ir::simplify(ir::floordiv(list[i].places[0].offset, ir::Expr(4096))) * ir::Expr(4096);
         });
       }},
      {"rings: f0 is used before threads know that it was made",
       [](DeviceProgram& p) { find(p, Kind::cluster_barrier, 0)->kind = Kind::barrier; }},
      {"is filled while products may read it",
       [](DeviceProgram& p) {
         change_all(p, Kind::arrive, [](DeviceStmt& s) { s.all = false; });
         p.rings[kRead].arrivals = ir::Expr(int64_t{p.readers() / 32});
       }},
  };
  const DeviceProgram sound = group_program(false, true, tile_of(TilePairs::below)).program;
  ASSERT_TRUE(verify(sound).ok()) << verify(sound).to_string();
  for (const auto& [message, change] : cases) {
    DeviceProgram broken = sound;
    change(broken);
    EXPECT_THAT(std::string(verify(broken).message()), HasSubstr(message));
  }
}

TEST(ClusterCode, WhatThereIsNoCodeForIsRefused) {
  const auto general = search::general_kernel(kernel_of(tensor_product("bf16", false, true)));
  const auto message = [&](search::GroupTile tile) {
    return search::hopper_schedule(general, tile).status().to_string();
  };
  search::GroupTile tile = tile_of(TilePairs::below, false);
  tile.roles = false;
  EXPECT_THAT(message(tile), HasSubstr("blocks that share boxes, expected roles in them"));
  tile = tile_of(TilePairs::below);
  tile.raster = 3;
  EXPECT_THAT(message(tile), HasSubstr("3 tiles below each other, expected whole pairs"));
  // Threads that do not go apart share nothing.
  const auto plain = search::hopper_schedule(general, search::GroupTile{64, 64, 64, 3});
  ASSERT_TRUE(plain.ok());
  std::string text = ir::print(plain->kernel);
  const std::string from = "@grid:\n    for nb < ceildiv(D1, 64) [n] @grid:";
  ASSERT_NE(text.find(from), std::string::npos) << text;
  text.replace(text.find(from), from.size(), "@grid:\n    for nb < 2 [n] @cluster:");
  const auto marked = ir::parse_kernel(text);
  ASSERT_TRUE(marked.ok()) << marked.status().to_string();
  const auto cut = search::cut_launches(*marked);
  ASSERT_TRUE(cut.ok()) << cut.status().to_string();
  EXPECT_EQ(cut->launches[0].cluster, 2);
  EXPECT_THAT(jit::lower_device(cut->leaves[0]).status().to_string(),
              HasSubstr("a @cluster scope without a @role scope"));
}

TEST(ClusterCode, GpusWithoutClustersAreRefused) {
  const auto nvrtc = jit::Nvrtc::open(LATHE_FAKE_NVRTC);
  ASSERT_TRUE(nvrtc.ok()) << nvrtc.status().to_string();
  const DeviceProgram program = group_program(false, true, tile_of(TilePairs::below)).program;
  for (const char* name : {"a100", "l40s"}) {
    const auto made = (*nvrtc)->compile(program, "lathe_leaf", *ir::find_gpu_target(name));
    EXPECT_THAT(made.status().to_string(), HasSubstr("clusters of 2 blocks, NVIDIA"));
  }
}

TEST(ClusterCode, LaunchesAreWholeClusters) {
  const auto device = runtime::cuda_device(LATHE_FAKE_CUDA, 0);
  ASSERT_TRUE(device.ok()) << device.status().to_string();
  auto code = std::make_shared<runtime::DeviceCode>();
  code->cluster = 2;
  ir::Launch launch;
  launch.cluster = 2;
  const auto why = [&](int64_t blocks) {
    launch.grid = {ir::Expr(blocks)};
    return runtime::CudaLaunch(*device, {{launch, code, nullptr, {}}}, {}).bind({}, {}, 1).status().to_string();
  };
  EXPECT_THAT(why(3), HasSubstr("3 blocks in clusters of 2"));
  EXPECT_EQ(why(4), ir::Status().to_string());
  code->cluster = 1;
  EXPECT_THAT(why(4), HasSubstr("code for clusters of 1 blocks, expected 2"));
}

TEST(ClusterCode, NoConflictsOfBanks) {
  for (const bool turned : {false, true}) {
    const BankCounts counts = bank_conflicts(group_program(turned, !turned, tile_of(TilePairs::below, false)).kernel,
                                             {{"D0", 128}, {"D1", 64}, {"D2", 200}});
    EXPECT_EQ(counts.conflicts, 0);
  }
}

}  // namespace
}  // namespace lathe::test
