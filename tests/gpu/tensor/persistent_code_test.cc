// Blocks that go through several tiles (the mark @persistent): each role counts the places of rings that it has come
// by, and what is wrong with that is found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "jit/cuda/text/cuda_text.h"
#include "tests/gpu/tensor/group_programs.h"

namespace lathe::test {
namespace {

using jit::DeviceProgram;
using jit::DeviceStmt;
using ::testing::HasSubstr;
using Kind = DeviceStmt::Kind;

constexpr search::GroupTile kTile = {64, 64, 64, 3, 2, true, true};
constexpr int64_t kRows = 136;  // three tiles, of which two are those of one block

std::string failure(const DeviceProgram& p, const ir::Kernel& kernel) { return ring_failure(p, kernel, kRows); }

// The loops over a block's tiles: of those who ask for boxes, who copy instead, and who multiply.
std::vector<DeviceStmt*> turns(DeviceProgram& p) {
  std::vector<DeviceStmt*> out;
  visit(p.body, Kind::loop, [&](std::vector<DeviceStmt>& list, size_t i) {
    if (list[i].name.rfind("turn", 0) == 0) out.push_back(&list[i]);
  });
  return out;
}

TEST(PersistentCode, IsWrittenOut) {
  DeviceProgram p = group_program(false, true, kTile).program;
  const std::string text = print(p);
  for (const char* part : {"    count filled\n    for turn < ceildiv(", "- block, blocks):\n",
                           "await f0[filled % 3] parity filled // 3 % 2\n", "arrive e0[(filled + 2) % 3]\n"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_EQ(turns(p).size(), 3u);
  EXPECT_EQ(count_of(p, Kind::add), 3);
  const std::string code = jit::cuda_text(p, "lathe_leaf");
  for (const char* part : {"lt_int filled = 0ll;", "filled += 1ll;", "lt_blocks()"}) EXPECT_THAT(code, HasSubstr(part));
}

TEST(PersistentCode, EveryRuleRefuses) {
  const DeviceProgram sound = group_program(false, true, kTile).program;
  ASSERT_TRUE(verify(sound).ok()) << verify(sound).to_string();
  const auto add_to = [](const char* name) {
    DeviceStmt more;
    more.kind = Kind::add;
    more.name = name;
    more.integer = ir::Expr(1);
    return more;
  };
  const std::pair<const char*, std::function<void(DeviceProgram&)>> cases[] = {
      {"names: nothing counts x", [&](DeviceProgram& p) { find(p, Kind::roles, 0)->body.push_back(add_to("x")); }},
      {"names: nothing counts turn", [&](DeviceProgram& p) { turns(p)[2]->body.push_back(add_to("turn")); }},
      {"names: filled is defined twice", [&](DeviceProgram& p) {
         auto& list = find(p, Kind::roles, 0)->otherwise;
         list.insert(list.begin(), list[0]);
       }}};
  for (const auto& [message, change] : cases) {
    DeviceProgram broken = sound;
    change(broken);
    EXPECT_THAT(std::string(verify(broken).message()), HasSubstr(message));
  }
  for (int i = 0; i < count_of(sound, Kind::count); ++i)
    EXPECT_THAT(std::string(verify(without(sound, Kind::count, i)).message()), HasSubstr("filled"));
  // Threads that do not go apart for good have no rings that go on.
  const auto plain = search::hopper_schedule(search::general_kernel(kernel_of(tensor_product("bf16", false, true))),
                                             search::GroupTile{64, 64, 64, 3});
  ASSERT_TRUE(plain.ok());
  const auto marked = search::apply(plain->kernel, *search::parse_move("make_persistent nb"));
  ASSERT_TRUE(marked.ok()) << marked.status().to_string();
  const auto lowered = jit::lower_device(search::cut_launches(marked->kernel)->leaves[0]);
  EXPECT_THAT(lowered.status().to_string(), HasSubstr("a @persistent scope without a @role scope"));
}

void expect_needed(std::initializer_list<Kind> kinds) {
  const GroupProgram sound = group_program(true, false, kTile);
  PlantedBugs bugs;
  bugs.leave_out(sound.program, kinds, [&](const DeviceProgram& p) { return failure(p, sound.kernel); });
}
TEST(PersistentCode, EveryStatementOnRingsIsNeeded) {
  expect_needed({Kind::open_rings, Kind::expect, Kind::arrive, Kind::await_ring, Kind::box, Kind::add});
}
TEST(PersistentCode, EveryOtherSynchronisationIsNeeded) {
  expect_needed({Kind::fence_sums, Kind::fence_shared, Kind::commit_products, Kind::await_products, Kind::barrier});
}

// The verifier finds all of them, too.
TEST(PersistentCode, PlantedMistakesAreFound) {
  const GroupProgram sound = group_program(true, false, kTile);
  const std::pair<const char*, std::function<void(DeviceProgram&)>> mistakes[] = {
      {"places are counted anew for each tile",
       [](DeviceProgram& p) {
         visit(p.body, Kind::count, [](std::vector<DeviceStmt>& list, size_t i) {
           list[i + 1].body.insert(list[i + 1].body.begin(), list[i]);
           list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
         });
       }},
      {"those who multiply count two places a step",
       [](DeviceProgram& p) {
         visit(find(p, Kind::roles, 0)->otherwise, Kind::add,
               [](auto& list, size_t i) { list[i].integer = ir::Expr(2); });
       }},
      {"those who fill places stop a tile early",
       [](DeviceProgram& p) {
         for (size_t i = 0; i < 2; ++i) add(turns(p)[i]->integer, -1);
       }},
      {"those who multiply stop a tile early", [](DeviceProgram& p) { add(turns(p)[2]->integer, -1); }},
  };
  PlantedBugs bugs;
  bugs.make_each(sound.program, mistakes, [&](const DeviceProgram& p) { return failure(p, sound.kernel); });
  for (const auto& [name, plant] : mistakes) {
    DeviceProgram broken = sound.program;
    plant(broken);
    EXPECT_FALSE(verify(broken).ok()) << name;
  }
}

}  // namespace
}  // namespace lathe::test
