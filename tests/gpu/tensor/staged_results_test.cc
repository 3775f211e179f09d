// Results of products on tensor cores that go through shared memory, a warp's at a time: Schedules keep the values, the
// emulator gives what the interpreter does without conflicts of banks, and each barrier of a warp is needed.
#include "search/gpu/tensor/staged_results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jit/cuda/lower/lower_device.h"
#include "search/cut/launch_cut.h"
#include "search/gpu/choice/device_schedules.h"
#include "search/gpu/tensor/hopper_schedule.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/emulated.h"
#include "tests/gpu/memory/mutations.h"
#include "tests/gpu/tensor/tensor_products.h"

namespace lathe::test {
namespace {

using ir::Kernel;
using ir::SymbolValues;
using jit::DeviceProgram;
using jit::DeviceStmt;
using search::GeneralKernel;
using search::GroupTile;
using search::TensorTile;
using ::testing::HasSubstr;
using Kind = DeviceStmt::Kind;

TensorTile warps(int64_t rows, int64_t columns, int64_t warp_rows, int64_t warp_columns, int64_t stages = 1) {
  TensorTile t{rows, columns, 32, warp_rows, warp_columns, stages};
  t.staged = true;
  return t;
}
GroupTile groups(GroupTile t) {
  t.staged = true;
  return t;
}

template <class Tile>
ir::Result<search::Scheduled> scheduled(const GeneralKernel& general, const Tile& tile) {
  if constexpr (std::is_same_v<Tile, TensorTile>)
    return search::tensor_schedule(general, tile);
  else
    return search::hopper_schedule(general, tile);
}

template <class Tile>
int expect_right(const std::string& text, const Tile& tile, const std::vector<SymbolValues>& sizes) {
  const Kernel naive = kernel_of(text);
  const GeneralKernel general = search::general_kernel(naive);
  const auto made = scheduled(general, tile);
  for (const SymbolValues& s : sizes) {
    expect_values_kept(naive, general, made, s, kBf16);
    if (!made.ok()) return 0;
    expect_as_interpreted(made->kernel, sizes_of(general, s), kBf16);
  }
  return static_cast<int>(3 * sizes.size());
}

// One over and under each tile; lines of whole vectors, and others.
TEST(StagedResults, OfWarpsOnTheEmulator) {
  int emulated = 0;
  const std::vector<SymbolValues> sizes = {{{"M", 33}, {"N", 72}, {"K", 40}},
                                           {{"M", 64}, {"N", 64}, {"K", 32}},
                                           {{"M", 15}, {"N", 31}, {"K", 33}},
                                           {{"M", 1}, {"N", 1}, {"K", 1}},
                                           {{"M", 17}, {"N", 8}, {"K", 0}}};
  emulated += expect_right(tensor_product("bf16", false, true), warps(32, 64, 16, 32), sizes);
  emulated += expect_right(tensor_product("f16", true, false), warps(32, 64, 32, 64, 3), sizes);
  emulated += expect_right(kTensorFused, warps(64, 32, 32, 32), {sizes[0], sizes[2]});
  emulated += expect_right(kTensorEpilogue, warps(64, 64, 32, 32, 2), {sizes[0], sizes[1], sizes[2]});
  RecordProperty("emulated", emulated);
}

TEST(StagedResults, OfGroupsOnTheEmulator) {
  int emulated = 0;
  const std::vector<SymbolValues> sizes = {
      {{"M", 65}, {"N", 72}, {"K", 72}}, {{"M", 128}, {"N", 64}, {"K", 64}}, {{"M", 1}, {"N", 9}, {"K", 63}}};
  emulated += expect_right(tensor_product("bf16", false, true), groups({128, 64, 64}), sizes);
  emulated += expect_right(kTensorFused, groups({64, 64, 64}), {sizes[0]});
  emulated += expect_right(kTensorEpilogue, groups({64, 128, 128, 3}), {sizes[0], sizes[2]});
  emulated += expect_right(kTensorEpilogue, groups({128, 64, 64, 3, 2, true}), {sizes[0], sizes[2]});
  emulated += expect_right(kTensorEpilogue, groups({64, 64, 64, 3, 0, true, true}),
                           {{{"M", 168}, {"N", 136}, {"K", 72}}, sizes[2]});
  RecordProperty("emulated", emulated);
}

struct Sound {
  Kernel kernel;
  DeviceProgram program;
  SymbolValues sizes;
};
template <class Tile>
Sound sound(const std::string& text, const Tile& tile, const SymbolValues& sizes) {
  const GeneralKernel general = search::general_kernel(kernel_of(text));
  const auto made = scheduled(general, tile);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  const auto cut = search::cut_launches(made->kernel);
  EXPECT_TRUE(cut.ok()) << cut.status().to_string();
  auto program = jit::lower_device(cut->leaves[0]);
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  return {made->kernel, *program, sizes_of(general, sizes)};
}

// Warps meet on their own, once what they store is there and once it is read; left out, both the verifier and a run say
// so. No barrier of the block is there for it.
TEST(StagedResults, EveryBarrierOfAWarpIsNeeded) {
  PlantedBugs bugs;
  const auto look = [&](const Sound& s, int of_block, int of_warp) {
    EXPECT_EQ(count_of(s.program, Kind::warp_barrier), of_warp) << print(s.program);
    EXPECT_EQ(count_of(s.program, Kind::barrier), of_block) << print(s.program);
    bugs.leave_out(s.program, {Kind::warp_barrier},
                   [&](const DeviceProgram& p) { return failure_of(p, s.kernel, s.sizes, kBf16); });
  };
  look(sound(kTensorEpilogue, warps(64, 64, 32, 32), {{"M", 64}, {"N", 64}, {"K", 64}}), 4,
       2);  // in loops of whole steps and of others
  look(sound(tensor_product("bf16", false, true), groups({64, 64, 64, 3, 0, true, true}),
             {{"M", 136}, {"N", 64}, {"K", 64}}),
       1, 4);  // of whole tiles and of others
  EXPECT_EQ(bugs.planted(), 6);
}

// Of one warp what another stores: a barrier of each is none of both.
TEST(StagedResults, PlantedMistakesAreFound) {
  const Sound s = sound(tensor_product("bf16", false, true), warps(32, 64, 16, 32), {{"M", 32}, {"N", 64}, {"K", 32}});
  const std::pair<const char*, std::function<void(DeviceProgram&)>> mistakes[] = {
      {"warps read what their neighbours store", [](DeviceProgram& p) {
         visit(p.body, Kind::load, [&](std::vector<DeviceStmt>& list, size_t i) {
           jit::DevicePlace& at = list[i].places[0];
           if (at.space != jit::DevicePlace::Space::shared ||
               p.shared[static_cast<size_t>(at.index)].type != ir::DType::f32)
             return;
           const int64_t all = p.shared[static_cast<size_t>(at.index)].count;
           at.offset = ir::mod(at.offset + ir::Expr(all / 4), ir::Expr(all));
         });
       }}};
  PlantedBugs bugs;
  bugs.make_each(s.program, mistakes, [&](const DeviceProgram& p) { return failure_of(p, s.kernel, s.sizes, kBf16); });
  DeviceProgram broken = s.program;
  mistakes[0].second(broken);
  EXPECT_THAT(std::string(verify(broken).message()), HasSubstr("no barrier is between them"));
}

TEST(StagedResults, NoConflictsOfBanks) {
  int64_t conflicts = 0;
  const auto look = [&](const Sound& s) {
    const BankCounts counts = bank_conflicts(s.kernel, s.sizes);
    EXPECT_GT(counts.accesses, 0);
    EXPECT_EQ(counts.conflicts, 0) << "of " << counts.accesses << "\n" << print(s.program);
    conflicts += counts.conflicts;
  };
  look(sound(tensor_product("bf16", false, true), warps(64, 128, 32, 64, 2), {{"M", 64}, {"N", 128}, {"K", 64}}));
  look(sound(kTensorEpilogue, groups({128, 128, 128, 3, 0, true}), {{"M", 128}, {"N", 128}, {"K", 64}}));
  RecordProperty("conflicts", static_cast<int>(conflicts));
}

TEST(StagedResults, AreProposedWhereLinesAreWhole) {
  const ir::GpuTarget h200 = *ir::find_gpu_target("h200"), a100 = *ir::find_gpu_target("a100");
  const auto staged = [](const std::string& text, const ir::GpuTarget& gpu, int64_t n) {
    const GeneralKernel general = search::general_kernel(kernel_of(text));
    const auto made = search::device_schedule(general, sizes_of(general, {{"M", 4096}, {"N", n}, {"K", 4096}}), gpu);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made.ok() && made->schedule.knobs.count("staged") == 1;
  };
  for (const ir::GpuTarget& gpu : {h200, a100}) {
    EXPECT_TRUE(staged(tensor_product("bf16", false, true), gpu, 4096));
    EXPECT_TRUE(staged(kTensorEpilogue, gpu, 4096));
    EXPECT_FALSE(staged(tensor_product("bf16", false, true), gpu, 4100));
  }
  const GeneralKernel turned = search::general_kernel(kernel_of(
      "kernel turned(a: bf16[M, K] in, b: bf16[N, K] in, y: bf16[N, M] out) family matmul where M in 0..5000, "
      "N in 0..5000, K in 0..5000\n  c: f32[M, N] heap\n  for m < M [m]:\n    for n < N [n]:\n"
      "      c[m, n] = 0.0\n      for k < K [k]:\n        c[m, n] += f32(a[m, k]) * f32(b[n, k])\n"
      "      y[n, m] = bf16(c[m, n])\n"));
  EXPECT_FALSE(search::has_lines(turned.kernel, *search::tensor_form(turned.kernel)));
  // The best tile without it is measured as well.
  const GeneralKernel general = search::general_kernel(kernel_of(tensor_product("bf16", false, true)));
  const auto tiles =
      search::group_tiles_of(general, sizes_of(general, {{"M", 4096}, {"N", 4096}, {"K", 4096}}), h200).value();
  const auto direct = std::find_if(tiles.begin(), tiles.end(), [](const GroupTile& t) { return !t.staged; });
  ASSERT_NE(direct, tiles.end());
  EXPECT_LE(direct - tiles.begin(), 2);
  EXPECT_TRUE(tiles[0].staged && direct->rows == tiles[0].rows && direct->columns == tiles[0].columns);
}

TEST(StagedResults, RefusesWhatIsNoTileOfIt) {
  const auto why = [](const auto& t) { return std::string(check_tile(t).message()); };
  TensorTile t = warps(64, 64, 32, 16);
  EXPECT_THAT(why(t), HasSubstr("results of 16 columns of a warp are staged"));
  t = warps(64, 64, 32, 32);
  EXPECT_EQ(why(t), "");
  t.swapped = true;
  EXPECT_THAT(why(t), HasSubstr("are staged"));
  t.swapped = false;
  t.terms = 256;
  EXPECT_THAT(why(t), HasSubstr("are staged"));
  EXPECT_THAT(why(groups({64, 64, 16})), HasSubstr("results of 16 columns of a group are staged"));
  EXPECT_THAT(why(groups({192, 128, 128, 5, 0, true})), HasSubstr("bytes of shared memory"));
}

// Barriers of warps in programs made for it.
TEST(WarpBarriers, EveryRuleRefuses) {
  using ir::Expr;
  const Expr t = ir::iter("thread"), e = ir::symbol("e0");
  DeviceProgram p;
  p.name = "made";
  p.threads = 64;
  p.sizes = {"e0"};
  p.shared = {{"s0", 64}};
  const auto store = [](const Expr& at) {
    DeviceStmt s;
    s.kind = Kind::store;
    s.places = {{jit::DevicePlace::Space::shared, 0, at}};
    s.operands = {{-1, 1.0f}};
    return s;
  };
  const auto load = [&](const Expr& at, int value) {
    DeviceStmt s = store(at);
    s.kind = Kind::load;
    s.operands.clear();
    s.value = value;
    return s;
  };
  DeviceStmt meet;
  meet.kind = Kind::warp_barrier;
  const auto body = [](Kind kind, const Expr& integer, std::vector<DeviceStmt> inside) {
    DeviceStmt s;
    s.kind = kind;
    s.name = kind == Kind::loop ? "i" : "";
    s.integer = integer;
    s.body = std::move(inside);
    return s;
  };
  const auto why = [&](std::vector<DeviceStmt> list) {
    p.body = std::move(list);
    return std::string(verify(p).message());
  };
  // Threads of a warp turned round; all threads turned round.
  const Expr near = ir::floordiv(t, Expr(32)) * Expr(32) + Expr(31) - ir::mod(t, Expr(32)), far = Expr(63) - t;
  const Expr warp = ir::floordiv(t, Expr(32)), first = ir::make(ir::Op::k_lt, {warp, Expr(1)});
  EXPECT_THAT(why({store(t), load(near, 0)}), HasSubstr("no barrier is between them"));
  EXPECT_EQ(why({store(t), meet, load(near, 0)}), "");
  EXPECT_THAT(why({store(t), meet, load(far, 0)}), HasSubstr("no barrier is between them"));
  // The next turn stores what this one reads.
  EXPECT_THAT(why({body(Kind::loop, e, {store(t), meet, load(near, 0)})}), HasSubstr("no barrier is between them"));
  EXPECT_EQ(why({body(Kind::loop, e, {store(t), meet, load(near, 0), meet})}), "");
  // Another warp after it.
  EXPECT_THAT(why({store(t), meet, load(near, 0), meet, store(far)}), HasSubstr("no barrier is between them"));
  // A whole warp may leave it out, and then has not met; as often as a warp says is often enough.
  EXPECT_EQ(why({body(Kind::when, first, {store(t), meet, load(near, 0)})}), "");
  EXPECT_THAT(why({store(t), body(Kind::when, first, {meet}), load(near, 0)}), HasSubstr("no barrier is between them"));
  EXPECT_EQ(why({body(Kind::loop, warp, {store(t), meet, load(near, 0), meet})}), "");
  // Threads of a warp may not.
  const char* split = "a barrier of a warp that not all of its threads reach";
  EXPECT_THAT(why({body(Kind::when, ir::make(ir::Op::k_lt, {t, Expr(7)}), {meet})}), HasSubstr(split));
  EXPECT_THAT(why({body(Kind::loop, ir::mod(t, Expr(8)), {meet})}), HasSubstr(split));
  EXPECT_THAT(why({body(Kind::when, ir::make(ir::Op::k_lt, {ir::floordiv(t, Expr(16)), Expr(1)}), {meet})}),
              HasSubstr(split));
  DeviceStmt either = body(Kind::when, first, {store(t), meet});
  either.otherwise = {load(t, 0)};
  EXPECT_THAT(why({either}), HasSubstr("warps do two different things and meet there"));
  p.threads = 48;
  EXPECT_THAT(why({meet}), HasSubstr("a barrier of warps in 48 threads"));
}

}  // namespace
}  // namespace lathe::test
