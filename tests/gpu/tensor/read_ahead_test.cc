// Loops of products in steps: squares of the next step are read before the last products of one, as what they replace
// says, and where registers are there for it.
#include "jit/cuda/passes/read_ahead.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jit/cuda/lower/lower_device.h"
#include "jit/cuda/text/cuda_text.h"
#include "search/cut/launch_cut.h"
#include "search/gpu/tensor/tensor_schedule.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/emulated.h"
#include "tests/gpu/memory/mutations.h"
#include "tests/gpu/tensor/tensor_products.h"

namespace lathe::test {
namespace {

using jit::DeviceProgram;
using jit::DeviceStmt;
using search::TensorTile;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using Kind = DeviceStmt::Kind;

TensorTile wide(int64_t depth, int64_t stages, bool swizzled) {
  TensorTile tile{128, 128, depth, 64, 64};
  tile.stages = stages;
  tile.swizzled = swizzled;
  return tile;
}

ir::Kernel kernel_with(const TensorTile& tile, bool turn_b = true, const std::string& type = "bf16") {
  const auto made = tensor_schedule(search::general_kernel(kernel_of(tensor_product(type, false, turn_b))), tile);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return made->kernel;
}

DeviceProgram lowered(const ir::Kernel& kernel) {
  return jit::lower_device(search::cut_launches(kernel).value().leaves[0]).value();
}

// The loops that read ahead: behind their barrier products follow.
std::vector<const DeviceStmt*> ahead(const std::vector<DeviceStmt>& list) {
  std::vector<const DeviceStmt*> out;
  for (const DeviceStmt& s : list) {
    for (const auto* inner : {&s.body, &s.otherwise}) {
      for (const DeviceStmt* loop : ahead(*inner)) out.push_back(loop);
    }
    const auto barrier = [](const DeviceStmt& of) { return of.kind == Kind::barrier; };
    if (s.kind != Kind::loop || s.unrolled > 0 || s.body.empty()) continue;
    if (std::any_of(s.body.begin(), s.body.end(), barrier) && !barrier(s.body.back())) out.push_back(&s);
  }
  return out;
}

TEST(ReadAhead, ProductsStandBehindTheBarrier) {
  const DeviceProgram program = lowered(kernel_with(wide(64, 2, true)));
  EXPECT_EQ(ahead(program.body).size(), 1u) << print(program);
  const std::string text = print(program);
  EXPECT_THAT(text, HasSubstr("  local bf16 r3_n[32]\n"));
  // Four groups of terms: those of odd numbers have the other registers.
  EXPECT_THAT(text, HasSubstr("ldmatrix r4_n["));
  EXPECT_THAT(text, ContainsRegex("let i[0-9]+_w_1 = \\(i[0-9]+_w \\+ 1\\) % 2\n"));  // the next place of the ring
}

// As many products and copies as before; reads once more, before the loop.
TEST(ReadAhead, DoesWhatTheLoopDid) {
  const ir::Kernel kernel = kernel_with(wide(32, 3, true));
  for (const ir::SymbolValues& sizes : {ir::SymbolValues{{"D0", 128}, {"D1", 128}, {"D2", 32}},
                                        {{"D0", 128}, {"D1", 136}, {"D2", 64}},
                                        {{"D0", 130}, {"D1", 128}, {"D2", 96}},
                                        {{"D0", 256}, {"D1", 128}, {"D2", 160}},
                                        {{"D0", 128}, {"D1", 129}, {"D2", 139}},
                                        {{"D0", 128}, {"D1", 128}, {"D2", 0}}})
    expect_as_interpreted(kernel, sizes, kBf16);
  for (const bool swizzled : {false, true}) {
    expect_as_interpreted(kernel_with(wide(64, 2, swizzled), false), {{"D0", 128}, {"D1", 128}, {"D2", 256}}, kBf16);
    expect_as_interpreted(kernel_with(wide(64, 2, swizzled), true, "f16"), {{"D0", 128}, {"D1", 128}, {"D2", 320}},
                          kBf16);
  }
}

TEST(ReadAhead, LeavesOtherLoops) {
  TensorTile pairs{128, 128, 64, 64, 32};  // two blocks of eight warps fit, and would not with more registers
  pairs.stages = 2;
  TensorTile once = wide(32, 1, false);  // a step is stored behind a barrier, when what it replaces has been read
  for (const TensorTile& tile : {pairs, once}) {
    const DeviceProgram program = lowered(kernel_with(tile));
    EXPECT_TRUE(ahead(program.body).empty()) << print(program);
    EXPECT_THAT(print(program), Not(HasSubstr("_n[")));
  }
}

// Where the number of a step says more than a place of the ring, there may be nothing behind the last one.
TEST(ReadAhead, LeavesWhatEndsWithTheSteps) {
  TensorTile pairs{128, 128, 64, 64, 32};
  pairs.stages = 2;
  DeviceProgram program = lowered(kernel_with(pairs));
  program.threads = 384;  // of which one block fits, with these registers or with more
  DeviceProgram in_ring = program, all_steps = program;
  jit::read_ahead(in_ring);
  EXPECT_EQ(ahead(in_ring.body).size(), 1u);
  int places = 0;
  visit(all_steps.body, Kind::let, [&](std::vector<DeviceStmt>& list, size_t at) {
    ir::Expr& e = list[at].integer;
    if (e->op != ir::Op::k_mod || e->args[0]->op != ir::Op::k_iter || e->args[0]->name == "thread") return;
    e = e->args[0];
    ++places;
  });
  EXPECT_GE(places, 1) << print(program);
  jit::read_ahead(all_steps);
  EXPECT_TRUE(ahead(all_steps.body).empty()) << print(all_steps);
}

// No barrier is there in vain, as far as the verifier can tell.
TEST(ReadAhead, EachBarrierIsNeeded) {
  const ir::Kernel kernel = kernel_with(wide(32, 3, true));
  const DeviceProgram program = lowered(kernel);
  ASSERT_EQ(ahead(program.body).size(), 1u);
  PlantedBugs bugs;
  const int barriers = count_of(program, Kind::barrier);
  ASSERT_GE(barriers, 4);
  for (int i = 0; i < barriers; ++i)
    bugs.plant("barrier " + std::to_string(i), !verify(without(program, Kind::barrier, i)).ok());
}

// What depends on the thread alone is said once, before all else.
TEST(KeptPlaces, AreFoundOutAtTheStart) {
  const DeviceProgram program = lowered(kernel_with(wide(64, 2, true)));
  const std::string text = jit::cuda_text(program, "lathe_leaf");
  EXPECT_THAT(text, HasSubstr("  const lt_int z0 = lt_kept("));
  EXPECT_THAT(text, HasSubstr(" + z0)"));
  const size_t loop = text.find("_w = 0; ");
  EXPECT_THAT(text.substr(loop, text.find("lt_barrier", loop) - loop), Not(HasSubstr("lt_swizzled(")));
  EXPECT_THAT(jit::cuda_text(lowered(kernel_with(wide(32, 2, false))), "lathe_leaf"), Not(HasSubstr("lt_kept")));
}

}  // namespace
}  // namespace lathe::test
