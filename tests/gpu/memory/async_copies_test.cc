// Copies to shared memory that threads do not wait for: products whose next steps are on their way, results as the
// interpreter's, and bugs planted in them, each of which the emulator finds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "ir/analysis/analysis.h"
#include "jit/cuda/compile/nvrtc.h"
#include "jit/cuda/lower/lower_device.h"
#include "search/cut/launch_cut.h"
#include "search/gpu/general_kernel.h"
#include "search/gpu/product_schedule.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/emulated.h"
#include "tests/gpu/memory/mutations.h"
#include "tests/gpu/real_nvrtc.h"

namespace lathe::test {
namespace {

using jit::DeviceProgram;
using jit::DeviceStmt;
using ::testing::HasSubstr;
using Kind = DeviceStmt::Kind;
constexpr search::ProductTile kSmall{32, 32, 8, 4, 4};

search::Scheduled scheduled(const char* text, const search::ProductTile& tile) {
  auto made = search::product_schedule(search::general_kernel(kernel_of(text)), tile);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return std::move(*made);
}

DeviceProgram lowered(const ir::Kernel& kernel) {
  const auto cut = search::cut_launches(kernel);
  EXPECT_TRUE(cut.ok()) << cut.status().to_string();
  auto program = jit::lower_device(cut->leaves[0]);
  EXPECT_TRUE(program.ok()) << program.status().to_string() << "\n" << cut->leaves[0].text;
  return std::move(*program);
}

TEST(AsyncCopies, ProductsOfAnyDepth) {
  for (const char* text : {kProduct, kTurnedProduct}) {
    const auto general = search::general_kernel(kernel_of(text));
    const ir::Kernel kernel = scheduled(text, kSmall).kernel;
    for (const int64_t k : {0, 1, 7, 8, 9, 15, 16, 17, 24, 31, 40, 65}) {
      for (const auto& [m, n] : {std::pair<int64_t, int64_t>{32, 32}, {33, 31}})
        expect_as_interpreted(kernel, sizes_of(general, {{"M", m}, {"N", n}, {"K", k}}), 1e-5);
    }
  }
}

// More than 48 KB: the launch asks for them.
TEST(AsyncCopies, StagesOfMoreThanStaticMemory) {
  constexpr search::ProductTile kLarge{128, 128, 16, 8, 8};
  const auto general = search::general_kernel(kernel_of(kTurnedProduct));
  const ir::Kernel kernel = scheduled(kTurnedProduct, kLarge).kernel;
  const DeviceProgram program = lowered(kernel);
  EXPECT_GT(dynamic_shared(program), jit::kStaticShared);
  EXPECT_EQ(dynamic_shared(lowered(scheduled(kProduct, kSmall).kernel)), 0);
  for (const int64_t k : {1, 16, 65})
    expect_as_interpreted(kernel, sizes_of(general, {{"M", 33}, {"N", 129}, {"K", k}}), 1e-5);
  // What a GPU has not is refused before anything is compiled.
  DeviceProgram large = program;
  large.shared[0].count = 40000;
  const auto opened = jit::Nvrtc::open(LATHE_FAKE_NVRTC);
  ASSERT_TRUE(opened.ok());
  for (const char* gpu : {"l40s", "rtx4090"})
    EXPECT_THAT((*opened)->compile(large, "lathe_leaf", *ir::find_gpu_target(gpu)).status().message(),
                HasSubstr("bytes of shared memory, NVIDIA"));
  EXPECT_EQ(ir::most_shared(*ir::find_gpu_target("a100")), 163 * 1024);
  EXPECT_EQ(ir::most_shared(*ir::find_gpu_target("l40s")), 99 * 1024);
  EXPECT_EQ(ir::most_shared(*ir::find_gpu_target("h200")), 227 * 1024);
}

TEST(AsyncCopies, AreInTheProgram) {
  const search::Scheduled s = scheduled(kProduct, kSmall);
  EXPECT_EQ(s.schedule.knobs.at("stages"), 3);
  const DeviceProgram program = lowered(s.kernel);
  EXPECT_EQ(count_of(program, Kind::commit), 2) << print(program);  // before the loop and in it
  EXPECT_EQ(count_of(program, Kind::await), 3) << print(program);   // before the loop, in it, and after it
  std::set<int> lanes;
  DeviceProgram seen = program;
  visit(seen.body, Kind::copy, [&](auto& list, size_t i) { lanes.insert(list[i].lanes); });
  EXPECT_EQ(lanes, (std::set<int>{1, 4}));
}

// Each commit, wait and barrier left out, found by the emulator and without it.
TEST(AsyncCopies, EverySynchronisationIsNeeded) {
  const auto general = search::general_kernel(kernel_of(kProduct));
  const ir::Kernel kernel = scheduled(kProduct, kSmall).kernel;
  // Whole steps, and others: their loops are apart.
  const ir::SymbolValues whole_steps = sizes_of(general, {{"M", 32}, {"N", 32}, {"K", 64}}),
                         others = sizes_of(general, {{"M", 32}, {"N", 32}, {"K", 53}});
  const DeviceProgram whole = lowered(kernel);
  PlantedBugs bugs;
  bugs.leave_out(whole, {Kind::commit, Kind::await, Kind::barrier}, [&](const DeviceProgram& p) {
    const std::string failure = failure_of(p, kernel, others);
    return failure.empty() ? failure_of(p, kernel, whole_steps) : failure;
  });
}

struct Bug {
  const char* what;
  const char* message;  // of the emulator
  std::function<void(DeviceProgram&)> plant;
};

DeviceStmt* find(DeviceProgram& p, Kind kind, int which) {
  DeviceStmt* out = nullptr;
  visit(p.body, kind, [&](std::vector<DeviceStmt>& list, size_t i) {
    if (which-- == 0) out = &list[i];
  });
  return out;
}
// The places of the ring in the loop: where it is copied to, and where it is read.
void change_place(DeviceProgram& p, int which, const ir::Expr& by) {
  visit(p.body, Kind::let, [&](std::vector<DeviceStmt>& list, size_t i) {
    const ir::Expr& e = list[i].integer;
    if (e->op != ir::Op::k_mod || !ir::is_const_int(e->args[1], 3) || list[i].name != "q" + std::to_string(which))
      return;
    list[i].integer = ir::mod(e->args[0] + by, ir::Expr(3));
  });
}

TEST(AsyncCopies, PlantedBugsAreFound) {
  const auto general = search::general_kernel(kernel_of(kProduct));
  const ir::Kernel kernel = scheduled(kProduct, kSmall).kernel;
  const ir::SymbolValues sizes = sizes_of(general, {{"M", 32}, {"N", 32}, {"K", 53}});
  const Bug mistakes[] = {
      {"a wait that is not there", "before its copy has arrived",
       [](DeviceProgram& p) { p = without(p, Kind::await, 1); }},
      {"a wait for one group too few", "before its copy has arrived",
       [](DeviceProgram& p) { ++find(p, Kind::await, 1)->groups; }},
      {"the first wait for one group too few", "before its copy has arrived",
       [](DeviceProgram& p) { ++find(p, Kind::await, 0)->groups; }},
      {"a group that is not closed", "before its copy has arrived",
       [](DeviceProgram& p) { p = without(p, Kind::commit, 1); }},
      {"a place read one turn too early", "", [](DeviceProgram& p) { change_place(p, 1, ir::Expr(1)); }},
      {"a place copied to one turn too late", "", [](DeviceProgram& p) { change_place(p, 0, ir::Expr(2)); }},
      {"a place copied to while it is read", "", [](DeviceProgram& p) { p = without(p, Kind::barrier, 1); }},
      {"waiting after the barrier", "before its copy has arrived",
       [](DeviceProgram& p) {
         visit(p.body, Kind::await, [](std::vector<DeviceStmt>& list, size_t i) {
           if (i + 1 < list.size() && list[i + 1].kind == Kind::barrier) std::swap(list[i], list[i + 1]);
         });
       }},
      {"fewer elements than there are", "",
       [](DeviceProgram& p) {
         visit(p.body, Kind::copy, [](std::vector<DeviceStmt>& list, size_t i) { list[i].lanes = 1; });
       }},
      {"copies of the step after the next", "",
       [](DeviceProgram& p) {
         visit(p.body, Kind::copy, [](std::vector<DeviceStmt>& list, size_t i) {
           list[i].places[1].offset = list[i].places[1].offset + ir::Expr(4);
         });
       }},
  };
  PlantedBugs bugs;
  for (const Bug& bug : mistakes) {
    DeviceProgram broken = lowered(kernel);
    bug.plant(broken);
    EXPECT_NE(print(broken), print(lowered(kernel))) << bug.what;
    const std::string why = failure_of(broken, kernel, sizes);
    EXPECT_THAT(why, HasSubstr(bug.message)) << bug.what;
    bugs.plant(bug.what, !why.empty());
  }
}

// A program that is sound, and one change that breaks a rule.
TEST(AsyncCopies, EveryRuleRefuses) {
  const DeviceProgram sound = lowered(scheduled(kProduct, kSmall).kernel);
  struct Case {
    const char* message;
    void (*change)(DeviceProgram&);
  };
  const Case cases[] = {
      {"async: a copy goes from a parameter to shared memory",
       [](DeviceProgram& p) { std::swap(find(p, Kind::copy, 0)->places[0], find(p, Kind::copy, 0)->places[1]); }},
      {"async: a copy goes from a parameter to shared memory",
       [](DeviceProgram& p) { find(p, Kind::copy, 0)->places.pop_back(); }},
      {"changes its type", [](DeviceProgram& p) { p.params[1].type = ir::DType::f16; }},
      {"is no f32, bf16, f16, i8 or u8 that is only read", [](DeviceProgram& p) { p.params[1].type = ir::DType::i32; }},
      {"is no f32, bf16, f16, i8 or u8 that is only read", [](DeviceProgram& p) { p.params[1].written = true; }},
      {"async: a copy of 2 lanes, expected 1 or 4 neighbours",
       [](DeviceProgram& p) { find(p, Kind::copy, 0)->lanes = 2; }},
      {"async: a copy of 4 lanes, expected 1 or 4 neighbours",
       [](DeviceProgram& p) { find(p, Kind::copy, 0)->step = ir::Expr(2); }},
      {"at once, and nothing says that they are aligned", [](DeviceProgram& p) { find(p, Kind::copy, 1)->lanes = 4; }},
      {"async: 9 groups on their way, expected 0..8", [](DeviceProgram& p) { find(p, Kind::await, 0)->groups = 9; }},
      {"async: a commit or an await that not all threads reach",
       [](DeviceProgram& p) {
         DeviceStmt* await = find(p, Kind::await, 0);
         DeviceStmt when;
         when.kind = Kind::when;
         when.integer = ir::make(ir::Op::k_lt, {ir::iter("thread"), ir::Expr(32)});
         when.body = {*await};
         *await = std::move(when);
       }},
      {"is on its way at the end",
       [](DeviceProgram& p) {
         // Of the loop and what follows nothing is left.
         const auto first =
             std::find_if(p.body.begin(), p.body.end(), [](const auto& s) { return s.kind == Kind::await; });
         p.body.erase(first, p.body.end());
       }},
  };
  for (const Case& c : cases) {
    DeviceProgram broken = sound;
    c.change(broken);
    EXPECT_THAT(std::string(verify(broken).message()), HasSubstr(c.message));
  }
}

TEST(AsyncCopies, AreOneInstructionOf16Bytes) {
  const auto opened = kept_nvrtc();
  if (!opened.ok()) GTEST_SKIP() << opened.status().message() << "; scripts/setup_gpu.sh fetches it";
  int kernels = 0;
  for (const char* text : {kProduct, kTurnedProduct}) {
    for (const search::ProductTile& tile : {search::ProductTile{128, 128, 16, 8, 8}, {64, 64, 16, 4, 4}}) {
      for (const char* gpu : {"a100", "rtx4090", "h200"}) {
        const auto made =
            (*opened)->compile(lowered(scheduled(text, tile).kernel), "lathe_leaf", *ir::find_gpu_target(gpu));
        ASSERT_TRUE(made.ok()) << made.status().message();
        EXPECT_GT(made->info.async_copies, 0);
        EXPECT_EQ(made->info.local, 0);
        ++kernels;
      }
    }
  }
  RecordProperty("kernels", kernels);
}

}  // namespace
}  // namespace lathe::test
